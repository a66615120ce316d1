"""What a process has set: nothing by an import, everything by a call."""

import pkgutil

import pytest
from support.processes import ROOT, call_python

import kaggle_tfr

# Run in a fresh process: settings before and after the package's modules are
# imported. Other libraries are imported before.
CODE = """
import ctypes, importlib, os, sys
os.environ.pop("KERAS_BACKEND", None)
calls = []
ctypes.CDLL = lambda *_, **__: calls.append("a C library was opened")
import cv2, joblib, matplotlib.pyplot, pandas, PIL.Image, pyarrow.parquet, scipy.sparse
def settings():
    keras = sys.modules.get("keras")
    return {{
        "Pillow": PIL.Image.MAX_IMAGE_PIXELS, "OpenCV": cv2.getNumThreads(),
        "Keras": keras and (keras.config.backend(), keras.config.dtype_policy().name),
        "TensorFlow": "tensorflow" in sys.modules, "environment": dict(os.environ),
        "finders": list(sys.meta_path), "C": list(calls),
        "Matplotlib": dict(matplotlib.rcParams),
    }}
cv2.setNumThreads(2)
before = settings()
for name in {names}:
    importlib.import_module(name)
    after = settings()
    changed = [key for key in before if before[key] != after[key]]
    assert not changed, (name, changed)
"""


KEPT = ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL", "GCS_READ_CACHE_BLOCK_SIZE_MB")


def run_fresh(code, folder):
    """Run code in a fresh process, without what earlier tests have set in this one.

    TensorFlow, whose import takes seconds, and JAX are empty modules in the folder.
    """
    (folder / "tensorflow.py").write_text("import os\nkept = dict(os.environ)")
    (folder / "jax.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        for name in KEPT:
            patch.delenv(name, raising=False)
        return call_python("-c", code, cwd=folder, PYTHONPATH=f"{folder}:{ROOT}")


def list_modules():
    found = pkgutil.walk_packages(kaggle_tfr.__path__, "kaggle_tfr.")
    return [module.name for module in found if "__main__" not in module.name]


def test_imports_change_no_setting(tmp_path):
    """Libraries, the environment and Python's importers are as before."""
    names = list_modules()
    assert {"kaggle_tfr.train.weights", "kaggle_tfr.write.writer"} <= set(names)
    code = CODE.format(names=names)
    done = run_fresh(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_work_and_notebooks_have_their_settings(tmp_path):
    """OpenCV's one thread and glibc's limits where images are read; a quiet TensorFlow.

    In threads of this process, in other processes, and in a notebook.
    """
    code = """
import ctypes, os, threadpoolctl, warnings, cv2
from unittest import mock
from PIL.Image import DecompressionBombWarning
from kaggle_tfr import notebook, parallel
calls, library = [], mock.Mock()
library.mallopt = lambda *values: calls.append(values)
cv2.setNumThreads(2)
warnings.filterwarnings("error", category=DecompressionBombWarning)
load = ctypes.CDLL
def open_library(name, *options, **named):
    return load(name, *options, **named) if name else library
with mock.patch.object(ctypes, "CDLL", open_library):
    assert list(parallel.run(abs, [-1], label="x")) == [1]
assert (calls, cv2.getNumThreads()) == ([(-3, 32 << 20), (-1, 64 << 20)], 1)
assert {library["num_threads"] for library in threadpoolctl.threadpool_info()
    if library["user_api"] == "blas"} == {1}
warnings.warn("a large GIF", DecompressionBombWarning)  # it is ignored
parallel.use_backend(2, "loky")
threads = "__import__('cv2').getNumThreads()"
assert list(parallel.run(eval, [threads] * 3, label="x")) == [1] * 3
used = "__import__('kaggle_tfr.session').session.tf.kept"  # by code of this package
backend = f"{used} and __import__('os').environ['KERAS_BACKEND']"  # not set here yet
assert list(parallel.run(eval, [backend] * 3, label="x")) == ["tensorflow"] * 3
values = {"WORK_DIR": "work"}
notebook.start("01_explore", values)
kept = ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL", "GCS_READ_CACHE_BLOCK_SIZE_MB")
assert [os.environ[name] for name in kept] == ["tensorflow", "3", "4"]
"""
    done = run_fresh(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_tensorflow_is_imported_on_first_use_after_its_settings(tmp_path):
    """No other call is needed. On a machine with a TPU, Keras uses JAX."""
    code = """
import sys
from pathlib import Path
from kaggle_tfr import session
session.ROOT = Path(sys.path[1])
(session.ROOT / "dev" / "accel0").mkdir(parents=True)
assert "tensorflow" not in sys.modules
names = ["GCS_READ_CACHE_BLOCK_SIZE_MB", "KERAS_BACKEND", "TF_FORCE_GPU_ALLOW_GROWTH"]
assert [session.tf.kept[name] for name in names] == ["4", "jax", "true"]
"""
    done = run_fresh(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
