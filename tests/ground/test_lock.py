"""One run at a time works in a WORK_DIR: who gets the lock, and what is left."""

import errno
import fcntl
import multiprocessing
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell

from kaggle_tfr import driver, lock, notebook
from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import DEFAULTS

HOLD = """
import sys
from kaggle_tfr import lock
held = lock.take(sys.argv[1], holder="a run")
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


def take(folder, part=0):
    return lock.take(str(folder), part, holder="a run")


def try_to_take(folder, part=0):
    """Take a lock and release it again; an error shows who has it."""
    take(folder, part).release()


def test_a_second_run_stops_at_once(other, tmp_path, capsys):
    """Its error names process, machine and time, and no notebook has run."""
    holder = (tmp_path / "run.lock").read_text()
    process = f"a run, process {other.pid} on {socket.gethostname()}, since 20"

    assert main(["run", "sample", "-p", "WORK_DIR", str(tmp_path)]) == 1

    error = capsys.readouterr().err
    assert holder.startswith(process)
    assert f"'{tmp_path}' is in use by {holder}. " in error
    assert "choose another WORK_DIR" in error
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]
    assert (tmp_path / "run.lock").read_text() == holder


def test_the_run_after_a_killed_one_takes_over(other, tmp_path):
    """The lock ends with its process, whether or not the parent has waited for that."""
    other.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE
    assert (tmp_path / "run.lock").exists()

    try_to_take(tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "\0" * 100, "a run, process 1 on far-away"])
def test_a_file_without_a_lock_is_taken_over(tmp_path, text):
    """A full disk, a power cut or a copied WORK_DIR leaves the file, but no lock."""
    (tmp_path / "run.lock").write_text(text)

    held = take(tmp_path)

    holder = (tmp_path / "run.lock").read_text()
    assert holder.startswith(f"a run, process {os.getpid()} on ")
    held.release()
    assert list(tmp_path.iterdir()) == []


def test_every_name_of_a_folder_is_the_same_work_dir(other, tmp_path, monkeypatch):
    """A relative path, one with "~" and a symbolic link lead to the same lock."""
    link = tmp_path.parent / "link"
    link.symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("HOME", str(tmp_path.parent))

    for name in (str(link), tmp_path.name, f"~/{tmp_path.name}"):
        values = DEFAULTS | {"WORK_DIR": name}
        with pytest.raises(lock.WorkDirBusyError, match=f"process {other.pid} on"):
            notebook.start("01_explore", values)


def test_a_file_system_without_locks_is_no_error(tmp_path, monkeypatch):
    """The run works there without a lock, and leaves no file."""

    def fail(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", fail)

    try_to_take(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_removed_before_it_is_locked_is_created_again(
    tmp_path, monkeypatch
):
    """The last holder may remove its file between the new run's open and its lock."""
    flock = fcntl.flock
    removals = [tmp_path / "run.lock"]

    def remove_first(file, mode):
        if removals:
            removals.pop().unlink()
        flock(file, mode)

    monkeypatch.setattr(lock.fcntl, "flock", remove_first)
    held = take(tmp_path)

    with pytest.raises(lock.WorkDirBusyError):
        try_to_take(tmp_path)
    held.release()
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_does_not_release_its_parents_lock(tmp_path):
    """Workers inherit it, and end before the run does."""
    held = take(tmp_path)
    process = multiprocessing.get_context("fork").Process(target=held.release)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert (tmp_path / "run.lock").exists()
    held.release()
    assert list(tmp_path.iterdir()) == []


def test_machines_write_different_parts_of_one_plan(tmp_path):
    """Each part has its lock; a whole run and a part exclude each other."""
    parts = [take(tmp_path, part) for part in (1, 2)]
    for part in (0, 2):
        with pytest.raises(lock.WorkDirBusyError):
            take(tmp_path, part)
    for held in parts:
        held.release()

    whole = take(tmp_path)
    with pytest.raises(lock.WorkDirBusyError):
        take(tmp_path, 1)
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
    monkeypatch.setattr("kaggle_tfr.report.write_chapter", lambda *_: None)
    driver.run_recipe({"WORK_DIR": str(tmp_path), "PART": 2}, only)
    assert {path.name for path in found} == {name}
    assert not list(tmp_path.glob("*.lock"))


@pytest.fixture
def shell():
    """The shell of a notebook's kernel, in this process."""
    yield InteractiveShell.instance()
    notebook.end()
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("end", ["notebook.account({'images': 1}, 1)", "1 / 0", "1 +"])
def test_a_notebook_by_hand_has_the_lock_until_it_ends_or_fails(shell, tmp_path, end):
    """After its last cell or an error nothing is blocked, though its kernel runs."""
    shell.user_ns |= DEFAULTS | {"WORK_DIR": str(tmp_path), "notebook": notebook}
    for _ in range(2):  # run again from its first cell
        assert shell.run_cell('notebook.start("01_explore", globals())').success
        assert shell.run_cell("x = 1").success
        holder = (tmp_path / "run.lock").read_text()
        assert holder.startswith(f"a notebook, process {os.getpid()} on ")
    shell.run_cell(end)
    assert not (tmp_path / "run.lock").exists()


def test_the_notebooks_of_a_run_are_inside_its_lock(tmp_path, monkeypatch):
    """The driver sets a variable for its kernels; notebooks that read take no lock."""
    held = take(tmp_path)
    values = DEFAULTS | {"WORK_DIR": str(tmp_path)}
    with pytest.raises(lock.WorkDirBusyError):
        notebook.start("01_explore", values)
    notebook.start(
        "01_explore",
        {name: value for name, value in values.items() if name != "N_JOBS"},
    )
    monkeypatch.setenv(lock.INSIDE, str(tmp_path))
    notebook.start("01_explore", values)
    notebook.account({"images": 1}, 1)
    assert (tmp_path / "run.lock").exists()
    held.release()
