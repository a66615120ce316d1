"""Kernels pushed through the real client to a stub of Kaggle's API on loopback."""

import json
import multiprocessing
import signal
import time

import pytest
from support.inputs import put
from support.kaggle_server import USER, fixture_kaggle  # noqa: F401

from kaggle_tfr.__main__ import main
from kaggle_tfr.kaggle.upload import push_kernels

SLUGS = ("tea-part-1", "tea-part-2")
PLAN, PART = f"{USER}/tea-plan", f"{USER}/tea-part-1"
EMPTY = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def make_kernel(folder, slug, *sources):
    metadata = {
        "id": f"INSERT_USERNAME_HERE/{slug}",
        "title": slug.replace("-", " "),
        "language": "python",
        "code_file": "kernel.ipynb",
        "kernel_type": "notebook",
        "kernel_sources": [f"INSERT_USERNAME_HERE/{source}" for source in sources],
    }
    files = {"kernel-metadata.json": metadata, "kernel.ipynb": EMPTY}
    texts = {name: json.dumps(content) for name, content in files.items()}
    return str(put(folder, [], texts))


@pytest.fixture
def recipe(tmp_path, kaggle):
    """A planning kernel, two that write and one that trains, with their output."""
    kaggle.outputs[PLAN] = put(tmp_path / "left/plan", [], {"plan.json": "{}"})
    folders = [make_kernel(tmp_path / "k/tea-plan", "tea-plan")]
    for slug in SLUGS:
        folders.append(make_kernel(tmp_path / "k" / slug, slug, "tea-plan"))
        files = {f"{slug[4:]}/{name}": slug for name in ("shards.csv", "a.tfrec")}
        kaggle.outputs[f"{USER}/{slug}"] = put(tmp_path / "left" / slug, [], files)
    return [*folders, make_kernel(tmp_path / "k/train", "tea-train", *SLUGS)]


@pytest.fixture
def one(recipe):
    """A kernel that writes, whose plan is not in the call."""
    return recipe[1:2]


def push(folders, tmp_path, **settings):
    """Return the state of each kernel by its name."""
    done = push_kernels(folders, str(tmp_path / "got"), **settings)
    return dict(done[["name", "state"]].to_numpy())


def test_parts_wait_for_their_plan_and_come_back_whole(kaggle, recipe, tmp_path):
    """The planning kernel is pushed first, those that write once it has ended.

    With one session at a time, the second part waits until the first has ended. The
    kernel that trains is the last.
    """
    kaggle.statuses[PLAN] = ["QUEUED", "RUNNING", "COMPLETE"]
    kaggle.statuses[PART] = ["RUNNING", "RUNNING", "COMPLETE"]
    statuses = []
    kaggle.on_save = lambda _: statuses.append(
        (len(kaggle.statuses[PLAN]), len(kaggle.statuses[PART]))
    )

    done = push([*recipe[1:], recipe[0]], tmp_path, at_once=1)

    assert set(done.values()) == {"finished"}
    assert [*done] == [PLAN, PART, f"{USER}/tea-part-2", f"{USER}/tea-train"]
    assert statuses == [(3, 3), (1, 3), (1, 1), (1, 1)]
    assert kaggle.kernels[PART][0]["kernelDataSources"] == [PLAN]
    got = tmp_path / "got"
    assert (got / "tea-plan/plan.json").read_text() == "{}"
    assert (got / "tea-part-2/part-2/a.tfrec").read_text() == "tea-part-2"


def test_what_is_finished_is_not_pushed_again(kaggle, one, tmp_path):
    """Even from another folder; what was changed is."""
    assert push(one, tmp_path) == {PART: "finished"}
    moved = (tmp_path / "k/tea-part-1").rename(tmp_path / "moved")
    assert push([moved], tmp_path) == {PART: "finished"}
    assert len(kaggle.kernels[PART]) == 1

    (moved / "kernel.ipynb").write_text(json.dumps(EMPTY | {"nbformat_minor": 4}))
    push([moved], tmp_path)

    assert len(kaggle.kernels[PART]) == 2


@pytest.mark.usefixtures("recipe")
def test_a_refusal_is_an_error(kaggle, tmp_path, capsys):
    """The server rejects with status 200, the client ends with 0, and push with 1.

    A kernel whose source Kaggle drops would run without its input.
    """
    kaggle.errors["SaveKernel"] = 200, "Maximum batch CPU session count"
    kaggle.invalid_sources = ["ada/no-such"]
    for message in ("Maximum batch CPU session count", "has no input ada/no-such"):
        kaggle.calls.clear()
        assert main(["push", str(tmp_path / "k"), "--out", str(tmp_path / "got")]) == 1
        assert message in capsys.readouterr().err
        assert kaggle.calls.count("SaveKernel") == 1
        kaggle.errors.clear()


@pytest.mark.parametrize("status", ["ERROR", "CANCEL_ACKNOWLEDGED"])
def test_a_failed_kernel_is_pushed_again(kaggle, one, tmp_path, capsys, status):
    """The report has the message of Kaggle; the log is beside the output."""
    kaggle.statuses[PART] = [status]
    assert push(one, tmp_path) == {PART: "failed"}
    assert "the notebook threw an exception" in capsys.readouterr().out
    assert (tmp_path / "got/tea-part-1/tea-part-1.log").exists()

    kaggle.statuses[PART] = ["COMPLETE"]
    assert push(one, tmp_path) == {PART: "finished"}
    assert len(kaggle.kernels[PART]) == 2


def test_a_part_that_ran_out_of_time_goes_on_from_its_own_output(kaggle, one, tmp_path):
    """A part without shards.csv is unfinished; its next version has it as a source.

    What only the first session has left is not in the output of the second.
    """
    part = tmp_path / "left/tea-part-1/part-1"
    (part / "shards.csv").rename(part / "journal.csv")
    assert push(one, tmp_path) == {PART: "unfinished"}

    (part / "journal.csv").rename(part / "shards.csv")
    assert push(one, tmp_path) == {PART: "finished"}

    sources = [version["kernelDataSources"] for version in kaggle.kernels[PART]]
    assert sources == [[PLAN], [PLAN, PART]]
    assert not (tmp_path / "got/tea-part-1/part-1/journal.csv").exists()


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
    assert push(one, tmp_path) == {PART: "finished"}
    assert len(kaggle.kernels[PART]) == 1
