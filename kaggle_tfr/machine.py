"""Signs of a TPU, and the backend of Keras, chosen on import: before TensorFlow imports keras."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = "/"  # of the folders sys and dev
GOOGLE = "0x1ae0"  # PCI vendor, of network cards (class 0x02…) and disks (0x01…) as well


def find_tpu_signs() -> list[str]:
    """What tells of a TPU, by looking at files alone: the chip serves one process at a time.

    Source: JAX's `hardware_utils.py`, and Kaggle's TPU image, which sets ISTPUVM.
    """
    signs = ["ISTPUVM=1"] if os.environ.get("ISTPUVM") == "1" else []
    for vendor in sorted(Path(ROOT).glob("sys/bus/pci/devices/*/vendor")):
        kind = vendor.with_name("class")
        is_other = kind.is_file() and kind.read_text().startswith(("0x01", "0x02"))
        if vendor.read_text().strip() == GOOGLE and not is_other:
            signs.append(f"{vendor}: {GOOGLE}")
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


choose_backend()
