"""One run at a time in a WORK_DIR: who is refused, what is taken over, what is left."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell

from kaggle_tfr import driver, lock, notebook
from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import DEFAULTS

HOLD = """
import sys
from kaggle_tfr import lock
lock.take(sys.argv[1], holder="a run")
print("held", flush=True)
input()
"""


@pytest.fixture
def other(tmp_path, root):
    """Another process, which holds the lock of tmp_path."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def leave(folder, name="run.lock", **changes):
    """A lock file as this process would write it, but for the changes."""
    taken = json.loads(lock._describe_process("a run")) | changes
    (folder / name).write_text(json.dumps(taken))
    return folder / name


def test_a_second_run_stops_at_once(other, tmp_path, capsys):
    """Exit code 1; the error names process, machine and time, and no notebook has run."""
    taken = json.loads((tmp_path / "run.lock").read_text())
    assert (
        main(["run", "sample", "-p", "WORK_DIR", str(tmp_path), "-p", "N_FOLDS", "3"])
        == 1
    )
    said = capsys.readouterr()
    named = f"'{tmp_path}' is in use since {taken['since']} by a run, process {other.pid} on "
    assert named + socket.gethostname() in said.err
    assert "choose another WORK_DIR" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]
    assert json.loads((tmp_path / "run.lock").read_text()) == taken


def test_the_run_after_a_killed_one_takes_over_and_says_so(other, tmp_path, capsys):
    """The process is gone, whether or not its parent has seen that."""
    other.send_signal(signal.SIGKILL)
    os.waitid(
        os.P_PID, other.pid, os.WEXITED | os.WNOWAIT
    )  # the last of its threads too
    assert psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE
    lock.take(str(tmp_path), holder="a run").release()
    assert (
        f"process {other.pid} on {socket.gethostname()} ended"
        in capsys.readouterr().out
    )
    assert list(tmp_path.iterdir()) == []


def test_a_number_of_no_process_or_of_another_one_is_no_holder(tmp_path):
    """The time at which the process began tells it from one that was given its number."""
    for changes in (
        {"process": 2**22 + 1},  # more than Linux gives
        {"process_started": psutil.Process().create_time() - 60},
    ):
        leave(tmp_path, **changes)
        lock.take(str(tmp_path), holder="a run").release()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "unseen", ["a number of another container", "a step of the clock"]
)
def test_a_live_process_that_looks_gone_keeps_its_lock(other, tmp_path, unseen):
    """Its lock file is open and locked as long as it lives, whatever its number and start are."""
    taken = json.loads((tmp_path / "run.lock").read_text())
    wrong = {"process": 2**22 + 1} if "number" in unseen else {"process_started": 1.0}
    (tmp_path / "run.lock").write_text(json.dumps(taken | wrong))
    with pytest.raises(lock.WorkDirBusyError, match="is in use since"):
        lock.take(str(tmp_path), holder="a run")
    assert other.poll() is None


def test_another_machine_holds_its_lock_as_long_as_it_renews_it(tmp_path, monkeypatch):
    """Its processes cannot be seen from here; the error says which file to remove."""
    path = leave(tmp_path, host="far-away")
    with pytest.raises(lock.WorkDirBusyError, match="on far-away.*remove '.*run.lock'"):
        lock.take(str(tmp_path), holder="a run")

    silent = time.time() - lock.SECONDS_WITHOUT_SIGNS - 1
    os.utime(path, (silent, silent))
    monkeypatch.setattr(lock, "SECONDS_BETWEEN_SIGNS", 0.01)
    held = lock.take(str(tmp_path), holder="a run")
    os.utime(path, (silent, silent))
    until = time.monotonic() + 10
    while path.stat().st_mtime == silent and time.monotonic() < until:
        time.sleep(0.01)
    assert time.time() - path.stat().st_mtime < 60
    held.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"process": "1"}', "\0" * 100])
def test_a_damaged_lock_is_taken_over(tmp_path, monkeypatch, text):
    """As a full disk or a power cut leaves one."""
    monkeypatch.setattr(lock, "SECONDS_TO_WRITE", 0.05)
    (tmp_path / "run.lock").write_text(text)
    lock.take(str(tmp_path), holder="a run").release()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_is_being_written_is_read_when_it_is_whole(
    tmp_path, monkeypatch
):
    """A process creates its file empty; one that begins at that moment takes nothing over."""
    (tmp_path / "run.lock").touch()
    monkeypatch.setattr(lock.time, "sleep", lambda _: leave(tmp_path, host="far-away"))
    with pytest.raises(lock.WorkDirBusyError, match="on far-away"):
        lock.take(str(tmp_path), holder="a run")


def test_a_lock_that_another_run_took_meanwhile_is_left_to_it(tmp_path, monkeypatch):
    """Also where that happens between the look at the file and its removal."""
    rename = os.rename

    def rename_late(source, target):
        leave(tmp_path, host="far-away")
        rename(source, target)

    held = lock.take(str(tmp_path), holder="a run")
    monkeypatch.setattr(lock.os, "rename", rename_late)
    held.release()
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]
    assert json.loads((tmp_path / "run.lock").read_text())["host"] == "far-away"


def test_a_forked_process_does_not_release_its_parents_lock(tmp_path):
    """Workers inherit it, and end before the run does."""
    held = lock.take(str(tmp_path), holder="a run")
    process = multiprocessing.get_context("fork").Process(target=held.release)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert (tmp_path / "run.lock").exists()
    held.release()
    assert list(tmp_path.iterdir()) == []


def test_machines_write_different_parts_of_one_plan(tmp_path):
    """Each part has its lock; a whole run and a part exclude each other."""
    parts = [lock.take(str(tmp_path), part, holder="a run") for part in (1, 2)]
    for part in (0, 2):
        with pytest.raises(lock.WorkDirBusyError):
            lock.take(str(tmp_path), part, holder="a run")
    for held in parts:
        held.release()

    whole = lock.take(str(tmp_path), holder="a run")
    with pytest.raises(lock.WorkDirBusyError):
        lock.take(str(tmp_path), 1, holder="a run")
    whole.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("only", "name"), [(["04", "05"], "run-part-2.lock"), (["03", "04"], "run.lock")]
)
def test_a_run_of_one_part_takes_the_lock_of_that_part(
    tmp_path, monkeypatch, only, name
):
    """As long as it does not plan, which is for all parts."""
    found = []
    monkeypatch.setattr(
        driver, "_run_notebook", lambda *_: found.extend(tmp_path.glob("*.lock"))
    )
    driver.run_recipe({"WORK_DIR": str(tmp_path), "PART": 2}, only)
    assert {path.name for path in found} == {name}
    assert not list(tmp_path.glob("*.lock"))


def _race(folder, barrier, outcomes, end):
    barrier.wait()
    try:
        taken = lock.take(folder, holder="a run")
    except lock.WorkDirBusyError:
        outcomes.put("refused")
        return
    outcomes.put("held")
    end.wait()
    taken.release()


def test_one_of_many_takes_a_lock_that_was_left_behind(tmp_path):
    """Several runs find it at the same moment."""
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        leave(tmp_path, process_started=1.0)
        barrier, outcomes, end = context.Barrier(6), context.Queue(), context.Event()
        arguments = (str(tmp_path), barrier, outcomes, end)
        processes = [context.Process(target=_race, args=arguments) for _ in range(6)]
        for process in processes:
            process.start()
        found = sorted(outcomes.get(timeout=30) for _ in processes)
        end.set()
        for process in processes:
            process.join()
        assert found == ["held", *["refused"] * 5]
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shell():
    """The shell of a notebook's kernel, in this process."""
    yield InteractiveShell.instance()
    notebook.release_lock()
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("end", ["notebook.account({'images': 1}, 1)", "1 / 0", "1 +"])
def test_a_notebook_by_hand_is_in_the_way_until_it_ends_or_fails(shell, tmp_path, end):
    """Its kernel stays; what comes after its last cell, or an interrupted one, is not blocked."""
    shell.user_ns |= DEFAULTS | {"WORK_DIR": str(tmp_path), "notebook": notebook}
    for _ in range(2):  # run again from its first cell
        assert shell.run_cell("notebook.start(globals())").success
        assert shell.run_cell("x = 1").success
        assert json.loads((tmp_path / "run.lock").read_text())["process"] == os.getpid()
    shell.run_cell(end)
    assert not (tmp_path / "run.lock").exists()


def test_the_notebooks_of_a_run_are_inside_its_lock(tmp_path, monkeypatch):
    """The driver tells its kernels so; one that only reads takes none by hand either."""
    held = lock.take(str(tmp_path), holder="a run")
    values = DEFAULTS | {"WORK_DIR": str(tmp_path)}
    with pytest.raises(lock.WorkDirBusyError):
        notebook.start(values)
    notebook.start({name: value for name, value in values.items() if name != "N_JOBS"})
    monkeypatch.setenv(lock.INSIDE, str(tmp_path))
    notebook.start(values)
    notebook.account({"images": 1}, 1)
    assert (tmp_path / "run.lock").exists()
    held.release()
