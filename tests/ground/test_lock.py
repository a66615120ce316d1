"""One run at a time works in a WORK_DIR: who gets the lock, and what is left."""

from unittest.mock import Mock

import pytest
from IPython.core.interactiveshell import InteractiveShell
from support.forks import CONTEXT, fork
from support.tasks import hold_lock

from kaggle_tfr import notebook, storage
from kaggle_tfr.__main__ import main
from kaggle_tfr.parameters import DEFAULTS


def list_locks(folder):
    return {path.name for path in folder.glob("*.lock")}


def test_a_second_run_stops_at_once(tmp_path, capsys):
    """A run that was killed blocks nobody, and what it left is removed."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    other = fork(hold_lock, str(tmp_path), sender)
    receiver.recv()

    assert main(["run", "sample", "-p", f"WORK_DIR={tmp_path}"]) == 1

    assert f"'{tmp_path}/run.lock' is locked by another" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [tmp_path / "run.lock"]
    other.kill()
    other.join()
    (tmp_path / f"a.json.{'0a' * 16}.tmp").write_text("half")
    with storage.lock_work_dir(str(tmp_path)):
        assert [*tmp_path.iterdir()] == [tmp_path / "run.lock"]
    assert not list(tmp_path.iterdir())


def test_a_notebook_by_hand_has_the_lock_until_it_ends(tmp_path):
    """After its last cell nothing is blocked, though its kernel runs."""
    shell = InteractiveShell.instance()
    try:
        shell.user_ns |= DEFAULTS | {"WORK_DIR": str(tmp_path), "notebook": notebook}
        for _ in range(2):  # run again from its first cell
            assert shell.run_cell('notebook.start("01_explore", globals())').success
            assert list_locks(tmp_path) == {"run.lock"}
        shell.run_cell("notebook.account({'images': 1}, 1)")
        assert not list_locks(tmp_path)
    finally:
        notebook.end()
        InteractiveShell.clear_instance()


def test_the_notebooks_of_a_run_are_inside_its_lock(tmp_path, monkeypatch):
    """The run sets a variable for its kernels; notebooks that read take no lock."""
    values = DEFAULTS | {"WORK_DIR": str(tmp_path)}
    of_reading = {name: value for name, value in values.items() if name != "N_JOBS"}
    with storage.lock_work_dir(str(tmp_path)):
        notebook.start("05_read_and_visualize", of_reading)
        with pytest.raises(RuntimeError, match="is locked"):
            notebook.start("01_explore", values)
        monkeypatch.setenv(storage.INSIDE, str(tmp_path))
        notebook.start("01_explore", values)
        notebook.account({"images": 1}, 1)
        assert list_locks(tmp_path) == {"run.lock"}


def test_a_lock_whose_file_stays_is_released(tmp_path, monkeypatch):
    """A disk that fails does not block the next run of this process."""
    path = str(tmp_path / "run.lock")
    with monkeypatch.context() as patch:
        patch.setattr(storage, "remove", Mock(side_effect=OSError("I/O error")))
        with pytest.raises(OSError, match="I/O"), storage.lock(path):
            pass
    with storage.lock(path):
        assert list_locks(tmp_path) == {"run.lock"}
