"""A small network to begin with, its input, and its errors."""

from __future__ import annotations

import time
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaggle_tfr.parameters import as_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import keras
    import tensorflow as tf

    from kaggle_tfr.read.batches import MeanStd
else:
    from kaggle_tfr.session import keras

# Red, green, blue, of images scaled to 0…1. Source: ImageNet's training set, as
# torchvision and the landmark notebooks use them.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


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
    seed: int = 0,
) -> keras.Model:
    """Build a small, compiled convolutional network: images to logits (batch, classes).

    It learns the bundled sample in a minute on two cores; use a pretrained network for
    your data. No layer is random (the reader flips images), so an exported model gives
    the same logits twice.
    """
    keras.utils.set_random_seed(seed)
    blocks = [_build_block(filters) for filters in (16, 32, 64, 96)]
    layers = [
        keras.Input((*as_size(image_size), 3), dtype="uint8"),
        normalization(),
        *chain.from_iterable(blocks),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(classes, dtype="float32"),
    ]
    model = keras.Sequential(layers, name="small_network")
    _compile(model)
    return model


def _build_block(filters: int) -> list[keras.Layer]:
    """Return the layers that halve the sides of an image and find its features."""
    return [
        keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False),
        # Few steps to average over: an epoch of the sample has only a dozen.
        keras.layers.BatchNormalization(momentum=0.8),
        keras.layers.Activation("relu"),
    ]


def _compile(model: keras.Model) -> None:
    """Set the optimizer, the loss and the metrics of a classifier that gives logits."""
    cross_entropy = keras.metrics.SparseCategoricalCrossentropy(
        "cross_entropy", from_logits=True
    )
    model.compile(
        optimizer=keras.optimizers.Adam(3e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # Weighted by the mask of validation batches. Keras's own val_loss is not a
        # mean over the images: it divides by the padding too.
        weighted_metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            cross_entropy,
        ],
    )


def count_confusions(model: keras.Model, batches: tf.data.Dataset) -> pd.DataFrame:
    """Count validation images by (true, predicted) class; int64 columns, sorted.

    The third column is `images`. Only pairs that occur are rows, so memory does not
    grow with the number of classes.
    """
    columns = ["true", "predicted"]
    pairs = [
        pd.DataFrame({"true": labels, "predicted": predicted}, dtype=np.int64)
        for _, labels, predicted in _classify(model, batches)
    ]
    return pd.concat(pairs).groupby(columns).size().reset_index(name="images")


def _classify(
    model: keras.Model, batches: tf.data.Dataset
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (images, labels, predicted classes) of each validation batch, unpadded."""
    for images, labels, mask in batches.as_numpy_iterator():
        predicted = predict(model, images).argmax(axis=-1)
        is_image = mask > 0
        yield images[is_image], labels[is_image], predicted[is_image]


def list_mistakes(
    model: keras.Model,
    batches: tf.data.Dataset,
    classes: Sequence[Any],
    count: int = 12,
) -> tuple[list[np.ndarray], list[str]]:
    """Return the first `count` misclassified images and titles "true → predicted".

    No batch after the last of them is read.
    """
    mistakes = []
    titles = []
    for image, true, predicted in islice(_find_mistakes(model, batches), count):
        mistakes.append(image)
        titles.append(f"{classes[true]} → {classes[predicted]}")
    return mistakes, titles


def _find_mistakes(
    model: keras.Model, batches: tf.data.Dataset
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield each misclassified image with its true and its predicted class."""
    for images, labels, predicted in _classify(model, batches):
        for row in np.flatnonzero(predicted != labels):
            yield images[row], labels[row], predicted[row]


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
