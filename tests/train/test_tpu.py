"""05 and 06 run with the libraries of Kaggle's TPU image."""

import os
import sys

import pytest
from support.processes import ROOT, call_python


@pytest.mark.skipif(
    "TPU_PYTHON" not in os.environ, reason="`make test-kaggle` makes that environment"
)
@pytest.mark.parametrize(
    ("name", "text"),
    [("05_read_and_visualize", "classes"), ("06_train", "by JAX, replicas: 8")],
)
def test_the_accelerators_notebooks_run_on_the_tpu_image(
    sample, tmp_path, monkeypatch, name, text
):
    """05 and 06 run without the missing packages; 06 trains on eight devices of JAX."""
    python = os.path.abspath(os.environ["TPU_PYTHON"])
    monkeypatch.setattr(sys, "executable", python)
    command = ["-m", "papermill", f"{name}.ipynb", tmp_path / "out.ipynb"]
    command += ["-k", "python3", "-p", "WORK_DIR", sample / "work" / "sample"]
    done = call_python(
        *[*command, "-p", "BATCH_SIZE", 2],
        cwd=ROOT / "notebooks",
        KERAS_BACKEND="jax",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert text in (tmp_path / "out.ipynb").read_text()
