"""Ready for a TPU without having one: everything XLA compiles, once, and nothing else is needed."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from support.readers import make_record, write_part

from kaggle_tfr.figures import plot_confusion, plot_learning
from kaggle_tfr.read.batches import count_steps, find_shards, read_batches
from kaggle_tfr.train import training
from kaggle_tfr.train.training import (
    IMAGENET,
    build_model,
    count_confusions,
    normalization,
    strategy,
)

SIZE = {"image_size": 32, "batch_size": 8}
# A process as on Kaggle's TPU image, with two devices.
TWO_DEVICES = """
import sys
for name in ["fastprogress", "imagehash", "cv2", "sklearn", "faiss", "scipy", "joblib"]:
    sys.modules[name] = None
import json
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from kaggle_tfr.read.batches import find_shards, read_batches
from kaggle_tfr.train.training import build_model, strategy
shards = find_shards(sys.argv[1])
mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
batches = mirrored.distribute_datasets_from_function(
    lambda context: read_batches(
        shards, image_size=32, batch_size=context.get_per_replica_batch_size(8), context=context
    )
)
@tf.function
def keep(labels, mask):
    return tf.where(mask > 0, labels, -1)
seen = []
for images, labels, mask in batches:
    for part in mirrored.experimental_local_results(mirrored.run(keep, (labels, mask))):
        assert part.shape == (4,), part.shape
        seen += [int(n) for n in part if n >= 0]
print(json.dumps(sorted(seen)))
"""


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """A part of 42 records in two folds; dark pictures are of class 0, bright ones of class 1."""
    records = [make_record(n) for n in range(0, 252, 6)]
    shards = {"a-f0.tfrec": (0, records[::2]), "a-f1.tfrec": (1, records[1::2])}
    return write_part(tmp_path_factory.mktemp("part"), shards)


@pytest.fixture(scope="module")
def shards(part):
    return find_shards(part)


def run_compiled(batches, count):
    """How often a compiled training step was traced over `count` batches."""
    traces = []
    weights = tf.Variable(tf.zeros([3, 2]))

    @tf.function(jit_compile=True)
    def step(images, labels):
        traces.append(images.shape)
        assert images.shape.is_fully_defined()
        assert labels.shape.is_fully_defined()
        with tf.GradientTape() as tape:
            pixels = tf.reduce_mean(tf.cast(images, tf.float32) / 255, [1, 2])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels // 128, pixels @ weights)
            loss = tf.reduce_mean(losses)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    losses = [float(step(batch[0], batch[1])) for batch in batches.take(count)]
    assert np.isfinite(losses).all()
    return len(traces)


@pytest.mark.parametrize("where", ["random", "center", "pad"])
@pytest.mark.parametrize("mode", [True, False])
def test_xla_compiles_a_step_once(shards, where, mode):
    """
    All batches, the last one of validation too, have one static shape: one trace serves them.
    """
    batches = read_batches(shards, training=mode, where=where, **SIZE)

    assert all(spec.shape.is_fully_defined() for spec in batches.element_spec)
    assert run_compiled(batches, 12) == 1


def test_a_short_last_batch_would_be_noticed(shards):
    """
    The check above fails for the usual reader, which ends with a batch of another size.
    """
    batches = read_batches(shards, **SIZE).unbatch().batch(10)

    assert not batches.element_spec[0].shape.is_fully_defined()
    assert run_compiled(batches, 12) == 2


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("bfloat16", 1e-2)])
def test_normalisation_is_the_textbook_formula(dtype, error):
    """
    (pixel / 255 − mean) / std, in either precision, and the same compiled.
    """
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    expected = (pixels / 255 - np.array(IMAGENET[0])) / np.array(IMAGENET[1])

    layer = normalization(dtype=dtype)
    compiled = tf.function(layer, jit_compile=True)(tf.constant(pixels))

    assert compiled.dtype.name == dtype
    for found in (layer(pixels), compiled):
        assert np.abs(np.asarray(tf.cast(found, tf.float64)) - expected).max() <= error


def test_normalisation_takes_the_statistics_of_a_part(tmp_path):
    """
    stats.json counts in grey levels: a picture of just the mean becomes 0, one deviation more 1.
    """
    stats = {"mean": dict.fromkeys("RGB", 100), "std": dict.fromkeys("RGB", 50)}
    (tmp_path / "stats.json").write_text(json.dumps(stats))
    pixels = np.array([[[[100, 100, 100], [150, 150, 150]]]], np.uint8)

    found = normalization(str(tmp_path))(pixels)

    assert np.allclose(found[0, 0, :, 0], [0, 1], atol=1e-5)
    with pytest.raises(ValueError, match="Divide numbers of 0…255 by 255"):
        normalization(((120, 110, 100), (60, 60, 60)))


def test_padding_does_not_count_in_evaluation(shards):
    """
    With the mask as sample weight Keras's accuracy is that of the real images alone.
    """
    model = build_model(32, 252)
    few = read_batches(shards, image_size=32, batch_size=16)
    confusions = count_confusions(model, few, 252)

    accuracy = model.evaluate(few, verbose=0, return_dict=True)["accuracy"]

    assert confusions.sum() == 42
    assert accuracy == pytest.approx(np.trace(confusions) / 42)


def test_a_model_trains_on_the_endless_batches(shards):
    """
    A few epochs on uint8 batches lower the loss, and their curves and confusions can be drawn.
    """
    model = build_model(32, 252, stats=((0.5,) * 3, (0.5,) * 3), learning_rate=1e-2)
    steps = count_steps(shards, 8, training=True)
    history = model.fit(
        read_batches(shards, training=True, seed=0, **SIZE),
        validation_data=read_batches(shards, **SIZE),
        steps_per_epoch=steps,
        epochs=3,
        shuffle=False,  # the reader has done it
        verbose=0,
    ).history

    assert steps == 42 // 8
    assert history["loss"][-1] < history["loss"][0]
    figure = plot_learning(history)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["Accuracy", "Loss"]
    figure = plot_confusion(np.array([[3, 1], [0, 4]]), ["dark", "bright"])
    assert [text.get_text() for text in figure.axes[0].texts] == ["3", "1", "0", "4"]


def test_two_devices_share_a_pass_and_no_missing_library_is_needed(part, root):
    """
    Under a mirrored strategy two replicas see every image once, with only what the TPU image has.
    """
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES, part],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == list(range(0, 252, 6))


@pytest.fixture
def machine(monkeypatch):
    """A machine whose TPUs and GPUs a test decides; the TPU addresses that were tried."""
    tried = []

    def resolve(tpu):
        tried.append(tpu)
        if tpu not in machine.tpus:
            raise ValueError("no TPU")
        return tpu

    class machine:  # noqa: N801
        tpus, addresses = (), tried

        @staticmethod
        def has(gpus):
            monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU"] * gpus)

    one = tf.distribute.get_strategy()
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolve)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda _: None)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", lambda _: None)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda _: one)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: one)
    for name in training.TPU_ADDRESSES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TPU_NAME", "10.0.0.2")
    machine.has(0)
    return machine


@pytest.mark.parametrize(
    ("tpus", "gpus", "said"),
    [
        (["local"], 2, "TPU (local)"),
        (["10.0.0.2"], 2, "TPU (10.0.0.2)"),
        ([], 2, "2 GPUs"),
        ([], 1, "one GPU"),
        ([], 0, "CPU ("),
    ],
)
def test_the_best_device_is_taken(machine, capsys, tpus, gpus, said):
    """
    The machine's TPU, the environment's, several GPUs, one, the CPU; one line says which.
    """
    machine.tpus = tpus
    machine.has(gpus)

    strategy()

    assert capsys.readouterr().out.startswith(f"Training on {said}")
    assert machine.addresses == (["local"] if tpus == ["local"] else ["local", "10.0.0.2"])


def test_the_real_search_for_a_tpu_ends_at_the_cpu(capsys, monkeypatch):
    """
    Without a TPU or GPU nothing fails and nothing waits.
    """
    for name in training.TPU_ADDRESSES:
        monkeypatch.delenv(name, raising=False)
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")

    assert strategy().num_replicas_in_sync == 1
    assert "CPU" in capsys.readouterr().out
