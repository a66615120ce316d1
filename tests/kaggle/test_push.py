"""Kernels pushed through the real client to a stub of Kaggle's API on loopback."""

import json
import multiprocessing
import signal
import time

import pytest
from support.inputs import put
from support.kaggle_server import USER, fixture_kaggle, write_part  # noqa: F401
from support.plans import digests

from kaggle_tfr.__main__ import main
from kaggle_tfr.find import find_input
from kaggle_tfr.kaggle.metadata import ACCELERATORS
from kaggle_tfr.kaggle.upload import push_kernels

OWNER_PLACEHOLDER = "INSERT_USERNAME_HERE"
PLAN, PART = f"{USER}/tea-plan", f"{USER}/tea-part-1"
EMPTY = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def make_kernel(folder, slug, after="", **changes):
    folder.mkdir(parents=True)
    metadata = {
        "id": f"{OWNER_PLACEHOLDER}/{slug}",
        "title": slug.replace("-", " "),
        "language": "python",
        "code_file": "kernel.ipynb",
        "kernel_type": "notebook",
        "enable_internet": False,
        "kernel_sources": [f"{OWNER_PLACEHOLDER}/{after}"] if after else [],
    }
    (folder / "kernel-metadata.json").write_text(json.dumps(metadata | changes))
    (folder / "kernel.ipynb").write_text(json.dumps(EMPTY))
    return str(folder)


def leave_part(kaggle, folder, part):
    write_part(folder / f"part-{part}", {f"{part}.tfrec": bytes(range(part * 50))})
    kaggle.outputs[f"{USER}/tea-part-{part}"] = folder


@pytest.fixture
def recipe(tmp_path, kaggle):
    """A planning kernel and two that write, with the output of each."""
    plan = {"plan.json": '{"n_parts": 2}'}
    kaggle.outputs[PLAN] = put(tmp_path / "left" / "plan", [], plan)
    folders = [make_kernel(tmp_path / "k" / "tea-plan", "tea-plan")]
    for part in (1, 2):
        folders.append(
            make_kernel(tmp_path / "k" / f"tea-{part}", f"tea-part-{part}", "tea-plan")
        )
        leave_part(kaggle, tmp_path / "left" / str(part), part)
    return folders


@pytest.fixture
def one(tmp_path, kaggle):
    leave_part(kaggle, tmp_path / "left", 1)
    return [make_kernel(tmp_path / "k" / "tea-1", "tea-part-1")]


def push(folders, tmp_path, **settings):
    done = push_kernels(folders, str(tmp_path / "got"), **settings)
    return done.set_index(done["name"].str.split("/").str[1])


def push_to_the_end(folders, tmp_path):
    """Push kernels, and check that all of them are finished."""
    done = push(folders, tmp_path)
    assert set(done.state) == {"finished"}


def change_notebook(tmp_path):
    """Write another notebook into the folder of the kernel `one`."""
    notebook = json.dumps(EMPTY | {"nbformat_minor": 4})
    (tmp_path / "k/tea-1/kernel.ipynb").write_text(notebook)


def test_parts_wait_for_their_plan_and_come_back_whole(kaggle, recipe, tmp_path):
    """The planning kernel is pushed first, the others once it has ended.

    A kernel that trains on another machine waits for the part, and returns a model.
    """
    trainer = f"{USER}/tea-training"
    machine = {"machine_shape": "TpuV5E8"}
    folder = make_kernel(tmp_path / "k/t", "tea-training", "tea-part-2", **machine)
    output = put(tmp_path / "left" / "trainer", [], {"model.keras": "weights"})
    kaggle.outputs[trainer] = output
    kaggle.statuses[PLAN] = ["QUEUED", "RUNNING", "COMPLETE"]
    left = []
    kaggle.on_save = lambda _: left.append(len(kaggle.statuses[PLAN]))
    push_to_the_end([folder, *recipe[::-1]], tmp_path)
    assert left == [3, 1, 1, 1]
    slugs = [*kaggle.kernels]
    assert (slugs[0], slugs[3]) == (PLAN, trainer)
    assert kaggle.kernels[trainer][0]["machineShape"] == "TpuV5E8"
    assert kaggle.kernels[PART][0]["kernelDataSources"] == [PLAN]
    got = tmp_path / "got"
    assert (got / "tea-training" / "model.keras").exists()
    assert (got / "tea-plan" / "plan.json").read_text() == '{"n_parts": 2}'
    assert (got / "tea-part-2" / "part-2" / "2.tfrec").read_bytes() == bytes(range(100))


def test_what_is_finished_is_not_pushed_again(kaggle, one, tmp_path):
    """A second call pushes nothing, a third what was changed after that.

    The client keeps a damaged copy of the same size; push fetches it again.
    """
    copy = tmp_path / "got" / "tea-part-1" / "part-1" / "1.tfrec"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(bytes(50))
    for _ in range(2):
        push_to_the_end(one, tmp_path)
        assert copy.read_bytes() == bytes(range(50))
    assert len(kaggle.kernels[PART]) == 1
    change_notebook(tmp_path)
    push(one, tmp_path)
    assert len(kaggle.kernels[PART]) == 2


def test_sessions_at_a_time_are_limited(kaggle, recipe, tmp_path):
    """With one session at a time, the second part waits until the first has ended."""
    kaggle.statuses[PART] = ["RUNNING", "RUNNING", "COMPLETE"]
    left = []
    kaggle.on_save = lambda _: left.append(len(kaggle.statuses[PART]))
    push(recipe, tmp_path, at_once=1)
    assert left == [3, 3, 1]


def test_a_rejection_in_the_body_is_an_error(kaggle, recipe, tmp_path, capsys):
    """The server rejects with status 200, the client ends with 0, and push with 1."""
    kaggle.refuse["SaveKernel"] = "Maximum batch CPU session count of 5 reached."
    assert main(["push", str(tmp_path / "k"), "--out", str(tmp_path / "got")]) == 1
    message = capsys.readouterr().err
    assert "Maximum batch CPU session count of 5 reached." in message
    assert f"needs the output of {USER}/tea-plan" in message
    assert kaggle.kernels == {}


def test_a_source_that_kaggle_drops_is_an_error(kaggle, tmp_path):
    """A kernel whose dataset could not be attached would run without its input."""
    folder = make_kernel(tmp_path / "k", "tea-plan", dataset_sources=["ada/no-such"])
    kaggle.invalid_sources = ["ada/no-such"]
    done = push([folder], tmp_path)
    assert list(done.state) == ["failed"]
    assert "ada/no-such" in done.problem["tea-plan"]


def test_a_failed_kernel_is_reported_and_pushed_again(kaggle, one, tmp_path):
    """The report has the message of Kaggle and the path of the log."""
    kaggle.statuses[PART] = ["ERROR"]
    (row,) = push(one, tmp_path).itertuples()
    assert row.state == "failed"
    assert "the notebook threw an exception" in row.problem
    assert (tmp_path / "got" / "tea-part-1" / "tea-part-1.log").exists()
    kaggle.statuses[PART] = ["COMPLETE"]
    push_to_the_end(one, tmp_path)
    assert len(kaggle.kernels[PART]) == 2


def test_a_first_run_without_its_input_is_pushed_once_more(kaggle, one, tmp_path):
    """What was just attached may not be mounted yet; the second time it is an error."""
    message = find_input_error("tea-leaves")
    kaggle.logs[PART] = json.dumps([{"stream_name": "stderr", "data": message}])
    kaggle.statuses[PART] = ["ERROR", "RUNNING", "COMPLETE"]
    push_to_the_end(one, tmp_path)
    assert len(kaggle.kernels[PART]) == 2

    change_notebook(tmp_path)
    kaggle.statuses[PART] = ["ERROR"]
    (row,) = push(one, tmp_path).itertuples()
    assert (row.state, len(kaggle.kernels[PART])) == ("failed", 4)


def find_input_error(slug):
    with pytest.raises(FileNotFoundError) as caught:
        find_input(slug)
    return f"FileNotFoundError: {caught.value}"


def test_an_output_of_many_files_comes_page_by_page(kaggle, one, tmp_path):
    """Eleven files are three pages of at most five."""
    kaggle.longest = 5
    for number in range(8):
        (kaggle.outputs[PART] / f"{number}.txt").touch()
    push_to_the_end(one, tmp_path)
    got = digests(tmp_path / "got" / "tea-part-1")
    assert len(got) == 12  # and the log
    assert kaggle.calls.count("ListKernelSessionOutput") == 3


def test_a_part_that_ran_out_of_time_goes_on_from_its_own_output(kaggle, one, tmp_path):
    """A part without shards.csv is unfinished; its next version has it as a source."""
    listing = tmp_path / "left" / "part-1" / "shards.csv"
    kept = listing.read_bytes()
    listing.unlink()
    (row,) = push(one, tmp_path).itertuples()
    assert row.state == "unfinished"
    assert "push again" in row.problem
    listing.write_bytes(kept)
    push_to_the_end(one, tmp_path)
    sources = [v.get("kernelDataSources", []) for v in kaggle.kernels[PART]]
    assert sources == [[], [PART]]


def test_a_killed_push_only_waits_the_second_time(kaggle, one, tmp_path):
    """After kill -9 while a kernel runs, the next call does not push it again."""
    kaggle.statuses[PART] = ["RUNNING"]
    process = multiprocessing.get_context("fork").Process(
        target=push, args=(one, tmp_path)
    )
    process.start()
    while kaggle.calls.count("GetKernelSessionStatus") < 2:
        time.sleep(0.05)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kaggle.statuses[PART] = ["COMPLETE"]
    push_to_the_end(one, tmp_path)
    assert len(kaggle.kernels[PART]) == 1


@pytest.mark.parametrize("text", ["{", "null", '{"state": "finished"}', "[" * 100_000])
def test_a_damaged_state_means_that_the_kernel_is_pushed(kaggle, one, tmp_path, text):
    """The file beside the output, as a full disk or a user leaves it."""
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "tea-part-1.json").write_text(text)
    push_to_the_end(one, tmp_path)
    assert len(kaggle.kernels[PART]) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"title": "Tea"}, "Kaggle requires 5 to 50"),
        ({"title": "Some other tea"}, "makes the slug 'some-other-tea' of"),
        ({"machine_shape": 5}, "machine_shape: '5' is not one of"),
        ({"kernel_sources": "ada/tea"}, "'ada/tea'; Kaggle requires a list of names"),
        ({"code_file": "other.ipynb"}, "code_file: 'other.ipynb' is not a file in the"),
    ],
)
def test_metadata_of_any_form_is_refused_by_name(kaggle, tmp_path, changes, message):
    """A foreign folder's metadata may hold anything, which Kaggle may misread."""
    folder = make_kernel(tmp_path / "k", "tea-plan", **changes)
    with pytest.raises(ValueError, match=message):
        push([folder], tmp_path)


@pytest.mark.parametrize("name", ["../../a.ipynb", "link.ipynb", "linked/a.ipynb"])
def test_code_outside_the_kernels_folder_is_not_sent(
    kaggle, one, tmp_path, capsys, name
):
    """A foreign folder could name any file of this machine; nothing is sent."""
    (tmp_path / "a.ipynb").write_text(json.dumps(EMPTY))
    foreign = tmp_path / "k" / "foreign"
    make_kernel(foreign, "foreign", code_file=name)
    (foreign / "link.ipynb").symlink_to(tmp_path / "a.ipynb")
    (foreign / "linked").symlink_to(tmp_path)

    assert main(["push", *one, str(foreign), "--out", str(tmp_path / "got")]) == 1

    message = capsys.readouterr().err
    assert f"code_file: '{name}' is outside the kernel's folder" in message
    assert kaggle.kernels == {}


def test_every_accelerator_that_the_client_calls_retired_is_refused(kaggle):
    """Its own list, of which it only warns."""
    from kaggle.api.kaggle_api_extended import _RETIRED_ACCELERATORS

    names = {name.lower() for name in ACCELERATORS}
    assert names.isdisjoint(_RETIRED_ACCELERATORS)


def test_without_a_key_the_error_says_how_to_get_one(monkeypatch, one, tmp_path):
    """No user is known: nothing is pushed, and the message says what to do."""
    monkeypatch.delenv("KAGGLE_USERNAME")
    monkeypatch.delenv("KAGGLE_KEY")
    with pytest.raises(RuntimeError, match="set KAGGLE_USERNAME and KAGGLE_KEY"):
        push(one, tmp_path)
