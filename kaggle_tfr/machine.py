"""Which machine this is: what tells of a TPU, and the Keras backend for it, chosen on import.

Import it before TensorFlow, which imports keras; `notebook` and `read` do.
"""

import glob
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
    for vendor in sorted(glob.glob(os.path.join(ROOT, "sys/bus/pci/devices/*/vendor"))):
        kind = Path(vendor).with_name("class")
        if Path(vendor).read_text(encoding="ascii").strip() == GOOGLE and not (
            kind.is_file() and kind.read_text(encoding="ascii").startswith(("0x01", "0x02"))
        ):
            signs.append(f"{vendor}: {GOOGLE}")
    for pattern in ("dev/accel[0-9]*", "dev/vfio/[0-9]*"):
        signs += sorted(glob.glob(os.path.join(ROOT, pattern)))
    return signs


def choose_backend() -> None:
    """Sets KERAS_BACKEND where it is unset: jax on a machine with a TPU, else tensorflow.

    Keras reads it once, on its import: with that behind us, it is left alone.
    """
    if "keras" not in sys.modules:
        has_jax = find_spec("jax") is not None
        chosen = "jax" if has_jax and find_tpu_signs() else "tensorflow"
        if os.environ.setdefault("KERAS_BACKEND", chosen) == "jax":
            # TensorFlow only reads then, and would take all memory of a GPU.
            os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


choose_backend()
