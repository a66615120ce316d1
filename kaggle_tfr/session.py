"""Settings of this process. A call makes them; an import changes nothing.

TensorFlow and Keras read their settings when they are imported, so the modules of this package
import both by `tf` and `keras` below: on first use, after `prepare`.
"""

import importlib
import os
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kaggle_tfr.storage import limit_bucket_cache

ROOT = "/"  # of the folders sys and dev
# Google's PCI vendor number; its network cards (class 0x02…) and disks (0x01…) have it too.
GOOGLE_VENDOR = "0x1ae0"
SESSION_HOURS = 12  # of a Kaggle session with a CPU or GPU
TPU_SESSION_HOURS = 9
TERMINAL = (
    "KAGGLE_TFR_TERMINAL"  # set by the driver: "1" where a terminal shows its output
)
RESERVE_HOURS = 0.75  # to check the part, and for Kaggle to save up to 20 GB of output


def prepare() -> None:
    """Set what TensorFlow and Keras read when they are imported; call it before.

    They start without messages, read buckets with little memory, and Keras gets the backend that
    fits this machine. What the environment already has stays.
    """
    choose_backend()
    limit_bucket_cache()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def count_cores() -> int:
    """The cores that this process may use: a container's quota and the affinity count.

    joblib.cpu_count() does the same; reading has to do without joblib.
    Source: Linux's documentation of control groups, versions 2 and 1.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    groups = Path(ROOT, "sys/fs/cgroup")
    files = ["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]
    for names in files:
        with suppress(OSError, ValueError):  # "max": there is no quota
            texts = " ".join((groups / name).read_text() for name in names)
            quota, period = map(int, texts.split())
            if quota > 0 and period > 0:
                cores = min(cores, -(-quota // period))
    return max(cores, 1)


def find_tpu_signs() -> list[str]:
    """What tells of a TPU, by looking at files alone: the chip serves one process at a time.

    Source: JAX's `hardware_utils.py`, and Kaggle's TPU image, which sets ISTPUVM.
    """
    signs = ["ISTPUVM=1"] if os.environ.get("ISTPUVM") == "1" else []
    for vendor in sorted(Path(ROOT).glob("sys/bus/pci/devices/*/vendor")):
        kind = vendor.with_name("class")
        is_other = kind.is_file() and kind.read_text().startswith(("0x01", "0x02"))
        if vendor.read_text().strip() == GOOGLE_VENDOR and not is_other:
            signs.append(f"{vendor}: {GOOGLE_VENDOR}")
    for pattern in ("dev/accel[0-9]*", "dev/vfio/[0-9]*"):
        signs += sorted(map(str, Path(ROOT).glob(pattern)))
    return signs


def choose_backend() -> None:
    """Sets KERAS_BACKEND where it is unset: jax on a machine with a TPU, else tensorflow."""
    if "keras" not in sys.modules:  # which reads it once, on its import
        chosen = "jax" if find_spec("jax") and find_tpu_signs() else "tensorflow"
        if os.environ.setdefault("KERAS_BACKEND", chosen) == "jax":
            # TensorFlow only reads then, and would take all memory of a GPU.
            os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def session_hours() -> int:
    """How long a Kaggle session on a machine like this one may take."""
    return TPU_SESSION_HOURS if find_tpu_signs() else SESSION_HOURS


def hours_left() -> float:
    """Hours of work until the session's end, less what closing down takes; inf outside Kaggle."""
    began = os.environ.get("KAGGLE_TFR_STARTED")  # set by the first cell of a kernel
    if os.environ.get("KAGGLE_KERNEL_RUN_TYPE") != "Batch" or not began:
        return float("inf")
    return session_hours() - RESERVE_HOURS - (time.time() - float(began)) / 3600


class _Lazy:
    """A module that is imported, after `prepare`, when one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if (
            name.startswith("__") and name != "__version__"
        ):  # inspection imports nothing
            raise AttributeError(name)
        if self._name not in sys.modules:
            prepare()
        return getattr(importlib.import_module(self._name), name)


tf: Any = _Lazy("tensorflow")
keras: Any = _Lazy("keras")
