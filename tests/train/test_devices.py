"""What is trained on: found by name, and never another device in silence."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kaggle_tfr import session, train


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """The GPUs of a machine, which a test adds; its files are in a folder."""
    gpus = []
    strategy = tf.distribute.get_strategy()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: gpus)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: strategy)
    monkeypatch.setattr(session, "ROOT", str(tmp_path))
    return gpus


@pytest.mark.parametrize(
    ("count", "name"), list(enumerate(("CPU (", "one GPU", "2 GPUs")))
)
def test_the_best_device_is_taken(gpus, capsys, count, name):
    """Several GPUs, one, or the CPU; one line names it."""
    gpus += ["GPU"] * count

    found = train.find_devices()

    assert capsys.readouterr().out.startswith(f"Training on {name}")
    assert found.kind == ("gpu" if count else "cpu")
    assert found.count == max(count, 1)


def test_a_tpu_that_would_be_left_idle_is_an_error(gpus, tmp_path, capsys):
    """Its file shows it. The CPU can still be chosen."""
    (tmp_path / "dev/vfio/0").mkdir(parents=True)
    match = r"has a TPU \(.*dev/vfio/0\), which Keras.*KERAS_BACKEND=j"
    with pytest.raises(RuntimeError, match=match):
        train.find_devices("auto")
    with pytest.raises(RuntimeError, match="restart the session"):
        train.find_devices("tpu")

    assert train.find_devices("cpu").kind == "cpu"
    assert capsys.readouterr().out.startswith("Training on CPU (")


@pytest.mark.parametrize("wanted", ["tpu", "gpu"])
def test_a_device_that_is_not_there_is_an_error(monkeypatch, wanted):
    """The real search, on a machine without: nothing else is taken in its place."""
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: [])
    with pytest.raises(
        RuntimeError, match=f"DEVICE is '{wanted}', but Keras on tensorflow finds"
    ):
        train.find_devices(wanted)
    assert train.find_devices("cpu").count == 1
    with pytest.raises(ValueError, match="DEVICE cannot be 'npu'"):
        train.find_devices("npu")


def test_a_backend_that_comes_too_late_is_an_error(monkeypatch):
    """Keras reads KERAS_BACKEND on its import; after that a session must begin anew."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(
        RuntimeError, match="is 'jax', keras .* with 'tensorflow'.*Restart"
    ):
        train.find_devices("cpu")


def test_a_tpu_computes_in_bfloat16_with_float32_weights_and_logits():
    """The policy holds for models made in the scope, and for no other."""
    with train.Devices("tpu", "a TPU", 1).scope():
        convolution = keras.layers.Conv2D(4, 3)
        logits = keras.layers.Dense(3, dtype="float32")
        pooling = keras.layers.GlobalAveragePooling2D()
        model = keras.Sequential([convolution, pooling, logits])
        model.build((None, 32, 32, 3))

    assert convolution.compute_dtype == "bfloat16"
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert train.predict(model, np.zeros((2, 32, 32, 3), np.uint8)).dtype == np.float32
    assert keras.config.dtype_policy().name == "float32"
