"""Keras on JAX (eight devices and one) and on TensorFlow gives equal numbers."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support.jax_training import CLASSES, SIDE, judge, train_on
from support.readers import make_example, make_picture, write_part

from kaggle_tfr import read, train

pytest.importorskip("jax", reason="the extra 'jax' is not installed")
COUNTS = (35, 1, 7, 36, 48)  # images of validation, in batches of 16


def make_records(count):
    """Yield records of four classes by grey level, with noise in the labels."""
    for number in range(count):
        label = number % CLASSES if number % 5 else (number + 1) % CLASSES
        image = make_picture(40 + 50 * (number % CLASSES) + number % 11)
        yield make_example(image=image, label=label, height=32, width=48)


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """A folder with ten batches of 16, initial weights, and a part per count."""
    folder = tmp_path_factory.mktemp("jax")
    for place, count in enumerate(COUNTS):
        write_part(
            folder / f"part-{place}", {"a.tfrec": (0, list(make_records(count)))}
        )
    records = list(make_records(40))
    shards = {"a.tfrec": (0, records[:19]), "b.tfrec": (1, records[19:])}
    write_part(folder / "folds", shards)
    shards = read.find_shards(folder / "part-4")
    data = read.read_batches(shards, image_size=SIDE, batch_size=16).repeat(4).take(10)
    images, labels, _ = map(np.stack, zip(*data.as_numpy_iterator(), strict=True))
    weights = train.build_model(SIDE, CLASSES).get_weights()
    named = {f"weight{n}": values for n, values in enumerate(weights)}
    np.savez(folder / "steps.npz", images=images, labels=labels, **named)
    return SimpleNamespace(folder=folder, batches=(images, labels), weights=weights)


@pytest.fixture(scope="module")
def process(root, steps):
    """What a process has seen that trained on eight devices of JAX, then on one."""
    flags = {"KERAS_BACKEND": "jax", "PYTHONPATH": f"{root}:{root / 'tests'}"}
    flags["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    flags["XLA_FLAGS"] += (
        " --xla_backend_optimization_level=0"  # compiled in half the time
    )
    call = [sys.executable, "-m", "support.jax_training", str(steps.folder)]
    options = {"env": os.environ | flags, "capture_output": True, "text": True}
    done = subprocess.run(call, check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "by JAX: 8 replicas" in done.stdout
    return json.loads((steps.folder / "result.json").read_text())


@pytest.fixture(params=[8, 1])
def on_jax(process, request):
    """What it has seen on so many devices."""
    return SimpleNamespace(**process[str(request.param)], devices=request.param)


@pytest.fixture(scope="module")
def on_tensorflow(steps):
    """(losses of the same steps, model) of this process."""
    return train_on(steps.batches, steps.weights, None)


@pytest.fixture(scope="module")
def rows(steps):
    """(pictures, labels) of each part, read one at a time."""
    found = []
    for place in range(len(COUNTS)):
        shards = read.find_shards(steps.folder / f"part-{place}")
        rows = read.read_batches(
            shards, image_size=SIDE, batch_size=1
        ).as_numpy_iterator()
        found.append(tuple(map(np.concatenate, zip(*rows, strict=True)))[:2])
    return found


def check_judged(found, rows):
    """Accuracy and cross-entropy are those of NumPy over the images."""
    model = train.build_model(SIDE, CLASSES)
    model.set_weights([np.array(values, np.float32) for values in found.weights])
    for place, (images, accuracy, cross_entropy, *confusions) in enumerate(
        found.judged
    ):
        pictures, labels = rows[place]
        logits = np.asarray(model(pictures), np.float64)
        right = int((logits.argmax(axis=1) == labels).sum())
        assert images == COUNTS[place] == len(labels)
        assert confusions == [images, right]
        assert accuracy == pytest.approx(right / images, abs=1e-6)
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        assert cross_entropy == pytest.approx(
            -logs[range(images), labels].mean(), rel=1e-4
        )


def test_both_backends_learn_the_same_from_equal_weights(on_jax, on_tensorflow):
    """The losses of ten steps differ by less than 0.001 on eight devices and one."""
    losses, _ = on_tensorflow

    assert len(on_jax.losses) == 10
    assert np.abs(np.subtract(on_jax.losses, losses)).max() < 1e-3
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


def test_each_device_gets_its_share_and_each_step_is_compiled_once(on_jax):
    """In ten epochs with validation and five evaluations; the device gets uint8."""
    assert on_jax.compiles == {"train_step": 1, "test_step": 1}
    assert on_jax.sends_uint8
    assert {tuple(shape) for shape in on_jax.shapes} == {
        (16 // on_jax.devices, SIDE, SIDE, 3)
    }


def test_validation_judges_every_image_once(rows, on_jax):
    """Padding counts in no metric, for any number of images and devices."""
    check_judged(on_jax, rows)


def test_validation_judges_every_image_once_on_tensorflow(steps, rows, on_tensorflow):
    """The same figures by the other backend."""
    model = on_tensorflow[1]
    judged = [
        judge(model, steps.folder / f"part-{place}", 16) for place in range(len(COUNTS))
    ]
    check_judged(SimpleNamespace(judged=judged, weights=model.get_weights()), rows)


def test_what_is_saved_and_exported_answers_as_the_trained_model(
    steps, process, on_tensorflow
):
    """JAX's file on TensorFlow, and TensorFlow's exports: logits within 1e-4."""
    images, model = steps.batches[0][0], on_tensorflow[1]
    model.export(steps.folder / "tensorflow", verbose=False)
    saved = keras.models.load_model(steps.folder / "model.keras")
    loaded = [
        tf.saved_model.load(str(steps.folder / name))
        for name in ("exported", "tensorflow")
    ]

    expected = process["1"]["logits"]
    assert np.abs(train.predict(saved, images) - expected).max() < 1e-4
    assert np.abs(loaded[0].serve(images) - expected).max() < 1e-4
    assert np.abs(loaded[1].serve(images) - train.predict(model, images)).max() < 1e-4
    assert np.array_equal(loaded[1].serve(images), loaded[1].serve(images))


def test_out_of_fold_predictions_of_jax_are_those_of_its_models_on_tensorflow(
    steps, on_jax
):
    """oof.npy has, for each image, what the saved model of its fold predicts.

    Both folds are trained by one compiled step.
    """
    out = steps.folder / f"folds-{on_jax.devices}"
    scores = np.load(out / "oof.npy")
    table = pd.read_csv(out / "oof.csv").set_index("image_id")
    shards = read.find_shards(steps.folder / "folds")

    assert scores.shape == (40, CLASSES)
    accuracies = []
    for fold, file in enumerate(["a.tfrec", "b.tfrec"]):
        model = keras.models.load_model(out / f"model-fold{fold}.keras")
        shard = shards[shards["fold"] == fold]
        data = read.read_batches(shard, image_size=SIDE, batch_size=1)
        rows = zip(*data.as_numpy_iterator(), strict=True)
        images, labels, _ = map(np.concatenate, rows)
        expected = np.asarray(keras.ops.softmax(train.predict(model, images)))
        names = [f"{file}#{number}" for number in range(len(images))]
        found = scores[table.index.get_indexer(names)]
        assert np.abs(found - expected).max() < 1e-4
        assert set(table.loc[names, "fold"]) == {fold}
        accuracies.append((expected.argmax(axis=1) == labels).mean())
    assert on_jax.oof[:2] == pytest.approx(accuracies)
    assert on_jax.fold_compiles == 1
