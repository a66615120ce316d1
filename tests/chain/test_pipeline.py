"""A dataset from a script: the files that the notebooks write."""

import pytest
from support.chain import make_input
from support.forks import fork_kernels
from support.plans import digests
from support.processes import call_python

import kaggle_tfr
from kaggle_tfr import run, storage


def test_a_script_writes_what_the_notebooks_write(tmp_path, monkeypatch):
    """Every table and shard has the same bytes, so a notebook can resume the work."""
    monkeypatch.chdir(tmp_path)
    make_input("petals", tmp_path / "photos")
    values = {"NAME": "flora", "INPUT_DIR": "photos", "IMAGE_SIZE": 64, "N_FOLDS": 2}
    values |= {"SECOND_LOOK": True, "MEAN_RGB": True}
    shards = kaggle_tfr.build_dataset(**values)
    assert shards["file"].tolist() == ["flora-f0-000-30.tfrec", "flora-f1-000-30.tfrec"]

    values["INPUT_DIR"] = str(tmp_path / "photos")
    with fork_kernels():
        run.run_recipe({**values, "WORK_DIR": "notebooks"}, ["01", "02", "03", "04"])

    by_notebooks = digests(tmp_path / "notebooks")
    by_script = digests(tmp_path / "work/flora")
    changed = {name for name in by_script if by_script[name] != by_notebooks[name]}
    assert changed <= {"findings.json"}  # cells note more


def test_nothing_is_written_or_locked_after_a_wrong_start(tmp_path, monkeypatch):
    """A parameter in lower case is unknown, and no cluster is at this address."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match='Did you mean "IMAGE_SIZE"'):
        kaggle_tfr.build_dataset(WORK_DIR="work", image_size=64)
    assert list(tmp_path.iterdir()) == []
    scheduler = "tcp://127.0.0.1:1"
    with pytest.raises(OSError, match=scheduler):
        kaggle_tfr.build_dataset(WORK_DIR="work", BACKEND="dask", SCHEDULER=scheduler)
    with storage.lock_work_dir(str(tmp_path / "work")):
        pass


def test_an_import_of_the_package_imports_no_library():
    """It is quick; what a dataset needs is imported when it is built."""
    code = "import kaggle_tfr, sys; print({'pandas', 'numpy', 'yaml'} & {*sys.modules})"
    assert call_python("-c", code).stdout == "set()\n"
