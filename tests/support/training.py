"""Run the cells of 06 in this process, or in one with other devices.

python -m support.training WAY WORK_DIR PART, where WAY is "jax" (on eight devices) or
"mirrored" (by TensorFlow on two replicas, without the packages that Kaggle's TPU image
lacks).
"""

import json
import logging
import sys
from pathlib import Path

from support.notebooks import run_notebook

SIZES = {"TRAIN_SIZE": 32, "BATCH_SIZE": 8, "EPOCHS": 1}
MISSING = "fastprogress imagehash cv2 sklearn scipy joblib papermill dask"


def run_training(work, until="", **values):
    """Return the names that 06 leaves. until: the id of the last cell to run."""
    return run_notebook("06", {**SIZES, "WORK_DIR": str(work), **values}, until)


def train_by_jax(work, part):
    """Train on eight devices; save how often the step was compiled."""
    import jax

    compiled = []
    watch = logging.Handler()
    watch.emit = lambda record: compiled.append(record.getMessage())
    logging.getLogger("jax").addHandler(watch)
    logging.getLogger("jax").propagate = False
    jax.config.update("jax_log_compiles", True)
    save_facts(work, part, compiled)


def train_mirrored(work, part):
    """Train on two replicas; packages that the TPU image lacks cannot be imported."""
    for name in MISSING.split():
        sys.modules[name] = None
    import tensorflow as tf

    from kaggle_tfr import train

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    train.find_devices = lambda _: train.Devices("gpu", "two", 2, mirrored)
    save_facts(work, part, [])


def save_facts(work, part, compiled):
    """Run 06 and save what only its process knows."""
    names = run_training(work, TFREC_DIRS=[part], DEVICE="cpu")
    steps = [line for line in compiled if "Compiling" in line and "train_step" in line]
    facts = {
        "devices": names["devices"].count,
        "histories": names["histories"],
        "compiles": len(steps),
    }
    Path(work, "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    way, work_dir, part_dir = sys.argv[1:]
    {"jax": train_by_jax, "mirrored": train_mirrored}[way](work_dir, part_dir)
