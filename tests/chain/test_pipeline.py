"""A dataset from a script: three lines, and the files that the notebooks write."""

import re

import pytest
from support.chain import make_input
from support.forks import fork_kernels
from support.plans import digests
from support.processes import call_python

import kaggle_tfr
from kaggle_tfr import run, storage


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    make_input("petals", folder)
    return str(folder)


def test_three_lines_write_what_the_notebooks_write(photos, tmp_path, root):
    """Every table and shard has the same bytes, so a notebook can resume the work."""
    more = {"IMAGE_SIZE": 64, "N_FOLDS": 2, "SECOND_LOOK": True, "MEAN_RGB": True}
    page = (root / "docs" / "python.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    arguments = ", ".join(f"{name}={value!r}" for name, value in more.items())
    (tmp_path / "photos").symlink_to(photos)
    changed = code.replace("IMAGE_SIZE=256", arguments)
    done = call_python("-c", changed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "flora-f1-000-30.tfrec" in done.stdout

    places = {
        "INPUT_DIR": str(tmp_path / "photos"),
        "WORK_DIR": str(tmp_path / "notebooks"),
    }
    values = {"NAME": "flora", **more, **places}
    with fork_kernels():
        run.run_recipe(values, ["01", "02", "03", "04"])

    by_notebooks = digests(tmp_path / "notebooks")
    by_script = digests(tmp_path / "work" / "flora")
    changed = {name for name in by_script if by_script[name] != by_notebooks[name]}
    assert changed <= {"findings.json"}  # cells note more


def test_an_unknown_parameter_is_an_error_with_the_near_miss(tmp_path, monkeypatch):
    """Also in lower case, and before anything is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match='Did you mean "IMAGE_SIZE"'):
        kaggle_tfr.build_dataset(WORK_DIR="work", image_size=64)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_start_releases_the_work_folder(tmp_path):
    """Another run may use WORK_DIR after an error, too."""
    work = str(tmp_path / "work")
    with pytest.raises(OSError, match="tcp://127.0.0.1:1"):
        kaggle_tfr.build_dataset(
            WORK_DIR=work, BACKEND="dask", SCHEDULER="tcp://127.0.0.1:1"
        )
    with storage.lock_work_dir(work):
        pass


def test_an_import_of_the_package_imports_no_library():
    """It is quick; what a dataset needs is imported when it is built."""
    code = "import kaggle_tfr, sys; print({'pandas', 'numpy', 'yaml'} & {*sys.modules})"
    assert call_python("-c", code).stdout == "set()\n"
