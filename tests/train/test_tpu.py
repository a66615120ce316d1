"""05 and 06 run with the libraries of Kaggle's TPU image."""

import os
import sys
from pathlib import Path
from unittest import mock

import pytest
from support.processes import call_python

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.fixture(scope="module")
def work(request):
    """The sample's parts, where `make test-kaggle` has made that environment."""
    if "TPU_PYTHON" not in os.environ:
        pytest.skip("TPU_PYTHON is not set: `make test-kaggle` makes that environment")
    return request.getfixturevalue("sample") / "work" / "sample"


@pytest.mark.parametrize(
    "name", [path.stem for path in sorted(NOTEBOOKS.glob("0[56]_*.ipynb"))]
)
def test_the_accelerators_notebooks_run_on_the_tpu_image(work, name, tmp_path):
    """05 and 06 run without the missing packages; 06 trains on eight devices of JAX."""
    python = str(Path(os.environ["TPU_PYTHON"]).absolute())
    command = ["-m", "papermill", f"{name}.ipynb", tmp_path / "out.ipynb"]
    command += ["-k", "python3", "-p", "WORK_DIR", work]
    command += ["-p", "BATCH_SIZE", "2"] if name.startswith("06") else []
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    with mock.patch.object(sys, "executable", python):
        done = call_python(*command, cwd=NOTEBOOKS, KERAS_BACKEND="jax", **flags)
    assert done.returncode == 0, done.stderr[-2000:]
    text = "by JAX, replicas: 8" if name.startswith("06") else "classes"
    assert text in (tmp_path / "out.ipynb").read_text()
