"""A network to begin with, its input, and its speed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaggle_tfr.parameters import as_size
from kaggle_tfr.train.weights import find_weights, load_backbone

if TYPE_CHECKING:
    from collections.abc import Sequence

    import keras

    from kaggle_tfr.read.batches import MeanStd
else:
    from kaggle_tfr.session import keras

# Red, green, blue, of images scaled to 0…1. Source: ImageNet's training set, as
# torchvision and the landmark notebooks use them.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# Of Adam. A pretrained network forgets what it knows at the rate of a new one.
LEARNING_RATE = 3e-3
FINE_TUNING_RATE = 3e-4

# Records that 06 does not train on, and what to do with them.
OTHER_LABELS = {
    "none": "have no labels; set LABEL_COLUMN in the recipe and run 01 to 05 again",
    "multi": "can have several labels; use another model, with a sigmoid for each",
    "masks": "have masks; use a segmentation model",
}


def check_labels(shards: pd.DataFrame) -> None:
    """Check that each labelled record has one class, which is what 06 trains.

    shards: of `find_shards`. Raises: ValueError, with how to train on other labels.
    """
    labelled = shards[shards["split"] != "test"]
    columns = [labelled[name] for name in ("folder", "schema", "labels")]
    for folder, schema, labels in zip(*columns, strict=True):
        has_labels = labels.classes and schema.label_keys
        kind = schema.kind if has_labels else "none"
        if kind in OTHER_LABELS:
            raise ValueError(
                "06_train trains a network that gives each image one class, but the "
                f"records in '{folder}' {OTHER_LABELS[kind]}. read.read_batches gives "
                "the images and their labels as arrays (docs/reading.md has examples)."
            )


def predict(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Return the logits (batch, …) of uint8 images, split over the model's devices."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        layout = distribution.get_data_layout(images.shape)
        images = keras.distribution.distribute_tensor(images, layout)
    # With a TensorFlow strategy every replica returns the whole batch, one by one.
    return np.asarray(model.predict_on_batch(images))[: len(images)]


def normalization(mean_std: MeanStd = IMAGENET) -> keras.Layer:
    """Return a layer that turns uint8 pixels into float32 (pixel / 255 − mean) / std.

    mean_std: of red, green and blue scaled to 0…1.
    Raises: ValueError: the numbers are not a mean and a deviation.
    """
    mean, std = np.asarray(mean_std, np.float64)
    if mean.shape != (3,) or std.min() <= 0 or max(mean.max(), std.max()) > 1:
        raise ValueError(
            f"The mean {mean.tolist()} and deviation {std.tolist()} are not three "
            "numbers each of pixels scaled to 0…1. Divide numbers of 0…255 by 255; no "
            "deviation may be 0."
        )
    return keras.layers.Rescaling(
        (1 / (255 * std)).tolist(),
        (-mean / std).tolist(),
        dtype="float32",
        name="normalization",
    )


def build_model(
    image_size: int | Sequence[int],
    classes: int,
    *,
    weights: str = "",
    seed: int = 0,
) -> keras.Model:
    """Build a compiled network: uint8 images to logits (batch, classes).

    weights: "" for a small network that learns from nothing, or what `find_weights`
        takes: a pretrained network gets a new last layer, and all layers are trained.
    Neither has a random layer of ours (the reader flips images), so an exported model
    gives the same logits twice.
    Raises: as `find_weights` and `load_backbone`.
    """
    keras.utils.set_random_seed(seed)
    size = as_size(image_size)
    inputs = keras.Input((*size, 3), dtype="uint8")
    if weights:
        backbone = load_backbone(find_weights(weights), size)
        features = backbone(inputs)
        name = f"{backbone.name}_classifier"
    else:
        features = _add_small_network(inputs)
        name = "small_network"
    logits = keras.layers.Dense(classes, dtype="float32")(features)
    model = keras.Model(inputs, logits, name=name)
    _compile(model, FINE_TUNING_RATE if weights else LEARNING_RATE)
    return model


def copy_state(model: keras.Model) -> dict:
    """Return the weights and the optimizer's state, for `model.set_state_tree`.

    Folds that start from it train the same compiled step again: to compile a new model
    for each fold can take longer than the training.
    """
    return model.get_state_tree(value_format="numpy_array")


def _add_small_network(inputs: keras.KerasTensor) -> keras.KerasTensor:
    """Return the features (batch, 96) of images, by four convolutions."""
    features = normalization()(inputs)
    for filters in (16, 32, 64, 96):
        for layer in _build_block(filters):
            features = layer(features)
    return keras.layers.GlobalAveragePooling2D()(features)


def _build_block(filters: int) -> list[keras.Layer]:
    """Return the layers that halve the sides of an image and find its features."""
    return [
        keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False),
        # Few steps to average over: an epoch of the sample has only a dozen.
        keras.layers.BatchNormalization(momentum=0.8),
        keras.layers.Activation("relu"),
    ]


def _compile(model: keras.Model, learning_rate: float) -> None:
    """Set the optimizer, the loss and the metrics of a classifier that gives logits."""
    cross_entropy = keras.metrics.SparseCategoricalCrossentropy(
        "cross_entropy", from_logits=True
    )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # Weighted by the mask of validation batches. Keras's own val_loss is not a
        # mean over the images: it divides by the padding too.
        weighted_metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            cross_entropy,
        ],
    )
    model.optimizer.build(model.trainable_variables)  # part of what folds start from


def time_epochs(seconds: list[float]) -> keras.callbacks.Callback:
    """Return a callback that appends each epoch's seconds, without validation."""
    starts: list[float] = []
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: starts.append(time.perf_counter()),
        on_test_begin=lambda *_: seconds.append(time.perf_counter() - starts[-1]),
    )


def compare_throughput(
    reader_speed: float, seconds: Sequence[float], images: int
) -> pd.DataFrame:
    """Return images/s of the reader, the first epoch and the later epochs (median).

    seconds: of each epoch. images: number of images of an epoch.
    """
    speeds = {
        "reader alone": reader_speed,
        "first epoch, which compiles": images / seconds[0],
        "later epochs": images / float(np.median(seconds[1:] or seconds)),
    }
    return pd.Series(speeds).to_frame("images/s")
