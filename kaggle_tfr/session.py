"""Set and inspect this process and its machine; an import changes nothing.

TensorFlow and Keras read their settings when they are imported, so this package imports
both by `tf` and `keras` below: on first use, after `prepare`.
"""

import importlib
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = "/"  # of the folder dev
SESSION_HOURS = 12  # of a Kaggle session without a TPU
RESERVE_HOURS = 0.75  # to check the part, and for Kaggle to save up to 20 GB of output
# Set by the driver for its kernels: "1" where a terminal shows what they print.
TERMINAL = "KAGGLE_TFR_TERMINAL"


def prepare() -> None:
    """Set what TensorFlow and Keras read when they are imported; call it before.

    TensorFlow logs errors only, and allocates 4 MiB for each object of a bucket that it
    opens instead of 64 MiB. Keras uses JAX on a machine with a TPU, else TensorFlow.
    Existing environment variables stay.
    """
    os.environ.setdefault("GCS_READ_CACHE_BLOCK_SIZE_MB", "4")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "keras" in sys.modules:  # which has read its setting
        return
    backend = "jax" if find_spec("jax") and find_tpu_signs() else "tensorflow"
    if os.environ.setdefault("KERAS_BACKEND", backend) == "jax":
        # TensorFlow only reads then, and would take all memory of a GPU.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def count_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    joblib knows the quota of a container. A machine that only trains may lack joblib:
    then all cores of the machine count.
    """
    try:
        from joblib import cpu_count
    except ImportError:
        return os.cpu_count() or 1
    return cpu_count()


def find_tpu_signs() -> list[str]:
    """Return the device files of a TPU, [] if this machine has none.

    The TPU itself is not used: it serves one process at a time.
    Source: Cloud TPU's device files.
    """
    devices = Path(ROOT, "dev")
    files = [*devices.glob("accel[0-9]*"), *devices.glob("vfio/[0-9]*")]
    return sorted(map(str, files))


def hours_left() -> float:
    """Return the hours left for work in this Kaggle session; inf outside Kaggle.

    The time to verify and save the output is not included. In a session in which a
    person runs the cells, it is inf, too.
    """
    # Seconds since 1970, set by the cell of a kernel that contains the package.
    started = os.environ.get("KAGGLE_TFR_STARTED")
    if os.environ.get("KAGGLE_KERNEL_RUN_TYPE") != "Batch" or not started:
        return float("inf")
    hours_used = (time.time() - float(started)) / 3600
    return SESSION_HOURS - RESERVE_HOURS - hours_used


def find_shell() -> Any:
    """Return the IPython shell that runs this process's code, None without one."""
    # Programs other than a notebook's kernel may have imported IPython too.
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


class _LazyModule:
    """A module that is imported, after `prepare`, when one of its names is used."""

    def __init__(self, name: str) -> None:
        """Keep the name of the module; nothing is imported yet."""
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Return what the module has by this name; import it if necessary."""
        if self._name not in sys.modules:
            prepare()  # it must come before the import
        return getattr(importlib.import_module(self._name), name)


tf: Any = _LazyModule("tensorflow")
keras: Any = _LazyModule("keras")
