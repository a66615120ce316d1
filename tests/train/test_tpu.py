"""Training is ready for TPUs: XLA compiles each step once, without other packages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support.readers import make_record, write_part

from kaggle_tfr import train
from kaggle_tfr.figures import plot_learning
from kaggle_tfr.read import count_steps, find_shards, read_batches

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
SIZE = {"image_size": 32, "batch_size": 8}
# A process as on Kaggle's TPU image; prints imported modules and the labels it read.
TPU_IMAGE = """
import importlib, json, pkgutil, sys
missing = "fastprogress imagehash cv2 sklearn faiss scipy joblib papermill dask"
for name in missing.split():
    sys.modules[name] = None
import kaggle_tfr.read
names = [f"kaggle_tfr.{name}" for name in
         "figures notebook parameters naming schema shards storage train".split()]
room = kaggle_tfr.read
modules = pkgutil.iter_modules(room.__path__, room.__name__ + ".")
names += [module.name for module in modules]
for name in names:
    importlib.import_module(name)
print(names)
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from kaggle_tfr.read.batches import read_batches
from kaggle_tfr.shards import find_shards
from kaggle_tfr.train import build_model, predict_records
shards = find_shards(sys.argv[1])
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
batches = read_batches(shards, image_size=32, batch_size=8)
batches = mirrored.experimental_distribute_dataset(batches)
@tf.function
def keep(labels, mask):
    return tf.where(mask > 0, labels, -1)
seen = []
for images, labels, mask in batches:
    for part in mirrored.experimental_local_results(mirrored.run(keep, (labels, mask))):
        assert part.shape == (4,), part.shape
        seen += [int(n) for n in part if n >= 0]
with mirrored.scope():
    model = build_model(32, 252)
table = predict_records(model, shards, image_size=32, batch_size=16).table
judged = table["label"].tolist()
print(json.dumps([sorted(seen), sorted(judged)]))
"""


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """A part of 42 records in two folds; the class is the grey level."""
    records = [make_record(n) for n in range(0, 252, 6)]
    shards = {"a-f0.tfrec": (0, records[::2]), "a-f1.tfrec": (1, records[1::2])}
    return write_part(tmp_path_factory.mktemp("part"), shards)


@pytest.fixture(scope="module")
def shards(part):
    return find_shards(part)


def test_xla_compiles_a_step_once(shards):
    """All batches, also the last one of validation, have one static shape."""
    weights = tf.Variable(tf.zeros([3, 2]))

    @tf.function(jit_compile=True)
    def step(images, labels):
        with tf.GradientTape() as tape:
            pixels = tf.reduce_mean(tf.cast(images, tf.float32) / 255, [1, 2])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels // 128, pixels @ weights
            )
        weights.assign_sub(0.1 * tape.gradient(losses, weights))
        return losses

    for mode in (True, False):
        batches = read_batches(shards, training=mode, **SIZE)
        assert all(spec.shape.is_fully_defined() for spec in batches.element_spec)
        assert all(np.isfinite(step(*batch[:2])).all() for batch in batches.take(12))
    assert step.experimental_get_tracing_count() == 1


OTHER_STATISTICS = [0.3, 0.4, 0.5], [0.2, 0.1, 0.4]


@pytest.mark.parametrize(
    ("arguments", "statistics"),
    [([], train.IMAGENET), ([OTHER_STATISTICS], OTHER_STATISTICS)],
)
def test_normalisation_is_the_textbook_formula(arguments, statistics):
    """(pixel / 255 − mean) / std in float32, and the same compiled.

    Statistics of grey levels are an error.
    """
    mean, std = map(np.array, statistics)
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    expected = (pixels / 255 - mean) / std
    layer = train.normalization(*arguments)
    compiled = tf.function(layer, jit_compile=True)(tf.constant(pixels))
    assert compiled.dtype.name == "float32"
    for found in (layer(pixels), compiled):
        assert np.abs(np.asarray(tf.cast(found, tf.float64)) - expected).max() <= 1e-5
    with pytest.raises(ValueError, match="Divide numbers of 0…255 by 255"):
        train.normalization((255 * mean, 255 * std))


def test_a_model_trains_on_the_endless_batches(shards):
    """Epochs on uint8 batches lower the loss; padding counts in no metric."""
    model = train.build_model(32, 252)
    steps, seconds = count_steps(shards, 8, training=True), []
    training, validation = (
        read_batches(shards, training=kind, **SIZE) for kind in (True, False)
    )
    options = {
        "steps_per_epoch": steps,
        "validation_data": validation,
        "epochs": 3,
        "verbose": 0,
    }
    options |= {"callbacks": [train.time_epochs(seconds)], "shuffle": False}
    history = model.fit(training, **options).history

    assert steps == 42 // 8
    assert history["loss"][-1] < history["loss"][0]
    axes = plot_learning({0: history}, pd.Series([0, 1]), ["a", "b"]).axes
    assert [axis.get_ylabel() for axis in axes] == ["cross-entropy", "accuracy"]
    assert len(seconds) == 3

    batches = read_batches(shards, image_size=32, batch_size=16)
    table = train.predict_records(model, shards, image_size=32, batch_size=16).table
    right = (table["label"] == table["predicted"]).mean()
    evaluated = model.evaluate(batches, verbose=0, return_dict=True)
    assert len(table) == 42
    assert evaluated["accuracy"] == pytest.approx(right)
    assert evaluated["cross_entropy"] == pytest.approx(table["loss"].mean(), rel=1e-4)


def test_two_devices_share_a_pass_without_what_the_tpu_image_lacks(part):
    """Two mirrored replicas see every image once, and classify each once.

    The modules of reading and training are imported without the missing packages.
    """
    command = [sys.executable, "-c", TPU_IMAGE, part]
    options = {"cwd": NOTEBOOKS.parent, "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    imported, seen = done.stdout.splitlines()[-2:]
    assert all(f"kaggle_tfr.{name}" in imported for name in ("read.batches", "train"))
    assert json.loads(seen) == [list(range(0, 252, 6))] * 2


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """The sample's parts, where `make test-kaggle` has made that environment."""
    if "TPU_PYTHON" not in os.environ:
        pytest.skip("TPU_PYTHON is not set: `make test-kaggle` makes that environment")
    from support.chain import run_chain, write_small_sample

    folder = tmp_path_factory.mktemp("tpu") / "work"
    write_small_sample(folder / "sample")
    run_chain("sample", str(folder), INPUT_DIR=str(folder / "sample"))
    return folder


@pytest.mark.parametrize(
    "name", [path.stem for path in sorted(NOTEBOOKS.glob("0[56]_*.ipynb"))]
)
def test_the_accelerators_notebooks_run_on_the_tpu_image(work, name, tmp_path):
    """05 and 06 run without the missing packages; 06 trains on eight devices of JAX."""
    python = str(Path(os.environ["TPU_PYTHON"]).absolute())
    command = [python, "-m", "papermill", f"{name}.ipynb", str(tmp_path / "out.ipynb")]
    command += ["-k", "python3", "-p", "WORK_DIR", str(work)]
    command += ["-p", "BATCH_SIZE", "2"] if name.startswith("06") else []
    flags = {
        "PYTHONPATH": str(NOTEBOOKS.parent),
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    options = {
        "cwd": NOTEBOOKS,
        "env": os.environ | flags,
        "capture_output": True,
        "text": True,
    }
    done = subprocess.run(command, **options, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    text = "by JAX: 8 replicas" if name.startswith("06") else "classes"
    assert text in (tmp_path / "out.ipynb").read_text()
