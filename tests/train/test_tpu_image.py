"""Notebooks for the accelerator, in an environment as poor as Kaggle's TPU image."""

import os
import subprocess
from pathlib import Path

import pytest
from support.chain import run_chain

from kaggle_tfr.explore.sample import write_sample

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.fixture(scope="module")
def python():
    """The python of that environment, which `make test-kaggle` makes."""
    path = os.environ.get("TPU_PYTHON", "")
    if not path:
        pytest.skip("TPU_PYTHON is not set: `make test-kaggle` makes that environment")
    return str(Path(path).absolute())


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tpu") / "work"
    write_sample(str(folder / "sample"))
    run_chain("sample", str(folder), INPUT_DIR=str(folder / "sample"))
    return folder


@pytest.mark.parametrize("name", [path.stem for path in sorted(NOTEBOOKS.glob("0[56]_*.ipynb"))])
def test_the_accelerators_notebooks_run_on_the_tpu_image(python, work, name, tmp_path):
    """
    05 and 06 need nothing that the image lacks: no fastprogress, imagehash, OpenCV or dask.
    """
    notebook = NOTEBOOKS / f"{name}.ipynb"
    command = [python, "-m", "papermill", str(notebook), str(tmp_path / "out.ipynb")]
    command += ["-k", "python3", "-p", "WORK_DIR", str(work)]
    done = subprocess.run(
        command, cwd=NOTEBOOKS, capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stderr[-2000:]
