"""Set and inspect this process and its machine; an import changes nothing.

TensorFlow and Keras read their settings when they are imported, so this package imports
both by `tf` and `keras` below: on first use, after `prepare`.
"""

import importlib
import math
import os
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kaggle_tfr.storage import limit_bucket_cache

ROOT = "/"  # of the folders sys and dev
SESSION_HOURS = 12  # of a Kaggle session with a CPU or GPU
TPU_SESSION_HOURS = 9
RESERVE_HOURS = 0.75  # to check the part, and for Kaggle to save up to 20 GB of output
# Set by the driver for its kernels: "1" where a terminal shows what they print.
TERMINAL = "KAGGLE_TFR_TERMINAL"


def prepare() -> None:
    """Set what TensorFlow and Keras read when they are imported; call it before.

    TensorFlow logs errors only and reads buckets with little memory. Keras uses JAX on
    a machine with a TPU, else TensorFlow. Existing environment variables stay.
    """
    limit_bucket_cache()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "keras" in sys.modules:  # which has read its setting
        return
    backend = "jax" if find_spec("jax") and find_tpu_signs() else "tensorflow"
    if os.environ.setdefault("KERAS_BACKEND", backend) == "jax":
        # TensorFlow only reads then, and would take all memory of a GPU.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def count_cores() -> int:
    """Return the cores that this process may use, by affinity and container quota.

    joblib.cpu_count() does the same; reading has to work without joblib.
    Source: Linux's documentation of control groups, version 2.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # "max": there is no quota
        limits = Path(ROOT, "sys/fs/cgroup/cpu.max").read_text().split()
        quota, period = map(int, limits)
        cores = min(cores, math.ceil(quota / period))
    return cores


def find_tpu_signs() -> list[str]:
    """Return what shows that this machine has a TPU, an empty list without one.

    Only files are inspected: the chip serves one process at a time.
    Source: Cloud TPU's device files, and Kaggle's TPU image, which sets ISTPUVM.
    """
    signs = ["ISTPUVM=1"] if os.environ.get("ISTPUVM") == "1" else []
    for pattern in ("dev/accel[0-9]*", "dev/vfio/[0-9]*"):
        signs += sorted(map(str, Path(ROOT).glob(pattern)))
    return signs


def session_hours() -> int:
    """Return the hours that a Kaggle session on a machine like this one may take."""
    return TPU_SESSION_HOURS if find_tpu_signs() else SESSION_HOURS


def hours_left() -> float:
    """Return the hours left for work in this Kaggle session; inf outside Kaggle."""
    started = os.environ.get("KAGGLE_TFR_STARTED")  # set by a kernel's first cell
    if os.environ.get("KAGGLE_KERNEL_RUN_TYPE") != "Batch" or not started:
        return float("inf")
    hours_used = (time.time() - float(started)) / 3600
    return session_hours() - RESERVE_HOURS - hours_used


def find_shell() -> Any:
    """Return the IPython shell that runs this process's code, None without one."""
    # Programs other than a notebook's kernel may have imported IPython too.
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


class _LazyModule:
    """A module that is imported, after `prepare`, when one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # an inspection
            raise AttributeError(name)
        if self._name not in sys.modules:
            prepare()
        return getattr(importlib.import_module(self._name), name)


tf: Any = _LazyModule("tensorflow")
keras: Any = _LazyModule("keras")
