"""One run at a time works in a WORK_DIR: who gets the lock, and what is left."""

import errno
import os
import socket
import subprocess
import sys
from unittest import mock

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kaggle_tfr import lock, notebook, run
from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import DEFAULTS

HOLD = """
import sys, time
from kaggle_tfr import lock
held = lock.take(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_run_stops_at_once(tmp_path, root, capsys):
    """Its error names process, machine and time; a killed process blocks nobody."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root)
    assert other.stdout.readline() == b"held\n"

    assert main(["run", "sample", "-p", f"WORK_DIR={tmp_path}"]) == 1

    holder = (tmp_path / "run.lock.tmp").read_text()
    assert holder.startswith(f"process {other.pid} on {socket.gethostname()}, since 20")
    error = capsys.readouterr().err
    assert f"'{tmp_path}' is in use. Wait" in error
    assert f"'{tmp_path}/run.lock' is locked by {holder}." in error
    assert {path.name for path in tmp_path.iterdir()} == {"run.lock", "run.lock.tmp"}

    other.kill()
    other.wait()
    lock.take(str(tmp_path)).close()
    assert list(tmp_path.iterdir()) == []


def test_machines_write_different_parts_of_one_plan(tmp_path):
    """Each part has its lock; a whole run and a part exclude each other."""
    work = str(tmp_path)
    with lock.take(work, 1), lock.take(work, 2):
        for part in (0, 2):
            with pytest.raises(RuntimeError, match="is in use"):
                lock.take(work, part)
    with lock.take(work), pytest.raises(RuntimeError, match="is in use"):
        lock.take(work, 1)
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
        run, "_run_notebook", lambda *_: found.extend(tmp_path.glob("*.lock"))
    )
    monkeypatch.setattr(run, "write_chapter", lambda *_: None)
    run.run_recipe({"WORK_DIR": str(tmp_path), "PART": 2}, only)
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
        holder = (tmp_path / "run.lock.tmp").read_text()
        assert holder.startswith(f"process {os.getpid()} on ")
    shell.run_cell(end)
    assert not (tmp_path / "run.lock").exists()


def test_the_notebooks_of_a_run_are_inside_its_lock(tmp_path, monkeypatch):
    """The run sets a variable for its kernels; notebooks that read take no lock."""
    values = DEFAULTS | {"WORK_DIR": str(tmp_path)}
    of_reading = {name: value for name, value in values.items() if name != "N_JOBS"}
    with lock.take(str(tmp_path)):
        notebook.start("05_read_and_visualize", of_reading)
        with pytest.raises(RuntimeError, match="is in use"):
            notebook.start("01_explore", values)
        monkeypatch.setenv(lock.INSIDE, str(tmp_path))
        notebook.start("01_explore", values)
        notebook.account({"images": 1}, 1)
        assert (tmp_path / "run.lock").exists()


def test_a_lock_ends_even_if_its_file_cannot_be_removed(tmp_path, monkeypatch):
    """Such as on a disk that fails for a moment."""
    with pytest.raises(OSError, match="disk"), monkeypatch.context() as patch:  # noqa: SIM117
        with lock.take(str(tmp_path)):
            patch.setattr(os, "remove", mock.Mock(side_effect=OSError("disk")))
    lock.take(str(tmp_path)).close()


def test_without_flock_the_lock_file_is_that_of_the_library(tmp_path):
    """It then finds out by itself whether the process of the lock lives."""
    error = OSError(errno.ENOSYS, "Function not implemented")
    with (
        mock.patch("fcntl.flock", side_effect=error),
        pytest.warns(UserWarning, match="flock"),
        lock.take(str(tmp_path)),
    ):
        assert "process" not in (tmp_path / "run.lock").read_text()
    assert list(tmp_path.iterdir()) == []
