"""A dataset from a script; `test_chain` compares its files with the notebooks'."""

import pytest
from support.processes import call_python

import kaggle_tfr
from kaggle_tfr import parallel, storage


def test_nothing_is_written_or_locked_after_a_wrong_start(tmp_path, monkeypatch):
    """A parameter in lower case is unknown, and no cluster is at this address."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match='Did you mean "IMAGE_SIZE"'):
        kaggle_tfr.build_dataset(WORK_DIR="work", image_size=64)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(parallel, "WAIT_SECONDS", 1)
    scheduler = "tcp://127.0.0.1:1"
    with pytest.raises(OSError, match=scheduler):
        kaggle_tfr.build_dataset(WORK_DIR="work", BACKEND="dask", SCHEDULER=scheduler)
    with storage.lock_work_dir(str(tmp_path / "work")):
        pass


def test_an_import_of_the_package_imports_no_library():
    """It is quick; what a dataset needs is imported when it is built."""
    code = "import kaggle_tfr, sys; print({'pandas', 'numpy', 'yaml'} & {*sys.modules})"
    assert call_python("-c", code).stdout == "set()\n"
