"""What training needs besides reader and devices: a small model, its errors, what leaks add."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.parameters import as_size
from kaggle_tfr.read.batches import MeanStd
from kaggle_tfr.train.devices import predict

# Red, green, blue, of pictures scaled to 0…1. Source: ImageNet's training set, as torchvision and
# the landmark notebooks use them.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def normalization(stats: str | MeanStd = IMAGENET, image_dtype: str = "uint8") -> keras.Layer:
    """A layer from uint8 pixels to float32 (pixel / 255 − mean) / std, one multiply-add.

    image_dtype: of the pixels; those of uint16 are divided by 65535.
    stats: (mean, std) of red, green and blue scaled to 0…1; or the folder of a stats.json, which
        holds them in grey levels. Raises: FileNotFoundError; ValueError: they are not that.
    """
    if isinstance(stats, str):
        held = json.loads(storage.read_bytes(storage.join(stats, "stats.json")))
        stats = [held["mean"][c] / 255 for c in "RGB"], [held["std"][c] / 255 for c in "RGB"]
    mean, std = np.asarray(stats, np.float64)
    if mean.shape != (3,) or std.min() <= 0 or max(mean.max(), std.max()) > 1:
        what = f"The mean {mean.tolist()} and deviation {std.tolist()} are not three numbers each"
        mend = "Divide numbers of 0…255 by 255; none may deviate by 0."
        raise ValueError(f"{what} of pixels scaled to 0…1. {mend}")
    factor, offset = 1 / (np.iinfo(image_dtype).max * std), -mean / std
    given = factor.tolist(), offset.tolist()
    return keras.layers.Rescaling(*given, dtype="float32", name="normalization")


def build_model(
    image_size: int | Sequence[int],
    classes: int,
    *,
    stats: str | MeanStd = IMAGENET,
    image_dtype: str = "uint8",
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> keras.Model:
    """A small convolutional network from images to float32 logits (batch, classes), compiled.

    It learns the bundled sample in a minute on two cores; swap in a pretrained one for your data.
    No layer of it is random: flips are the reader's, so what is exported answers the same twice.
    """
    keras.utils.set_random_seed(seed)
    given = keras.Input((*as_size(image_size), 3), dtype=image_dtype)
    layers = [given, normalization(stats, image_dtype)]
    for filters in (16, 32, 64, 96):
        layers += [
            keras.layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False),
            # Few steps to average over: an epoch of the sample has only a dozen.
            keras.layers.BatchNormalization(momentum=0.8),
            keras.layers.Activation("relu"),
        ]
    layers += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(classes, dtype="float32")]
    model = keras.Sequential(layers, name="small_network")
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # What makes the mask of validation batches count. Keras's own val_loss is no mean over
        # the images: it divides by the padding too.
        weighted_metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            keras.metrics.SparseCategoricalCrossentropy("cross_entropy", from_logits=True),
        ],
    )
    return model


def count_confusions(model: keras.Model, batches: tf.data.Dataset, classes: int) -> pd.DataFrame:
    """One row a pair of classes that occurs in validation batches: int64 true, predicted, images.

    Sorted. Memory is bounded by the pairs, for any number of classes.
    """
    pairs: Counter[int] = Counter()
    for images, labels, mask in batches.as_numpy_iterator():
        codes = labels.astype(np.int64) * classes + np.argmax(predict(model, images), axis=-1)
        pairs.update(codes[mask > 0].tolist())
    rows = [(*divmod(pair, classes), images) for pair, images in sorted(pairs.items())]
    return pd.DataFrame(rows, columns=["true", "predicted", "images"], dtype=np.int64)


def list_mistakes(
    model: keras.Model, batches: tf.data.Dataset, classes: Sequence[Any], count: int = 12
) -> tuple[list[np.ndarray], list[str]]:
    """(pictures, "true → predicted") of the first `count` mistakes; no later batch is read."""
    pictures, titles = list[np.ndarray](), list[str]()
    for images, labels, mask in batches.as_numpy_iterator():
        predicted = np.argmax(predict(model, images), axis=-1)
        for row in np.flatnonzero((predicted != labels) & (mask > 0))[: count - len(titles)]:
            pictures.append(images[row])
            titles.append(f"{classes[labels[row]]} → {classes[predicted[row]]}")
        if len(titles) == count:
            break
    return pictures, titles


def time_epochs(seconds: list[float]) -> keras.callbacks.Callback:
    """A callback that appends the seconds an epoch trained, up to where its validation begins."""
    starts: list[float] = []
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: starts.append(time.perf_counter()),
        on_test_begin=lambda *_: seconds.append(time.perf_counter() - starts[-1]),
    )


def compare_throughput(reader_speed: float, seconds: Sequence[float], images: int) -> pd.DataFrame:
    """Images/s of the reader, the first epoch and, median, the later ones, of `images` each."""
    first, later = seconds[0], float(np.median(seconds[1:] or seconds))
    names = ["reader alone", "first epoch, which compiles", "later epochs"]
    return pd.DataFrame({"images/s": [reader_speed, images / first, images / later]}, index=names)


def score_folds(
    pictures: np.ndarray,
    labels: np.ndarray,
    folds: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
) -> np.ndarray:
    """Bool (n,): whether a small network that learned from the other folds names a picture right.

    pictures: uint8 (n, height, width, 3). labels: int (n,) from 0. folds: int (n,).
    """
    model = build_model(pictures.shape[1:3], int(labels.max()) + 1, seed=seed)
    model.optimizer.build(model.trainable_variables)
    # To compile it anew for each fold would take longer than the training.
    variables = [*model.variables, *model.optimizer.variables]
    untrained, right = [np.array(one) for one in variables], np.zeros(len(labels), bool)
    for fold in np.unique(folds):
        for variable, value in zip(variables, untrained, strict=True):
            variable.assign(value)
        own = folds == fold
        model.fit(pictures[~own], labels[~own], batch_size, epochs, verbose=0)
        right[own] = (predict(model, pictures).argmax(axis=-1) == labels)[own]
    return right


def estimate_inflation(
    leaky: np.ndarray, honest: np.ndarray, clusters: np.ndarray
) -> tuple[float, float, float]:
    """(share, low, high): how many more answers are right with `leaky` folds, 95 % interval.

    leaky, honest: bool (repeats, n) of `score_folds`, the same n pictures, 2 repeats or more.
    clusters: int (n,); copies of a picture stand and fall together, so they count as one. What the
    repeats differ by is added to that, for they share folds and first weights.
    Source: Cameron and Miller, "A Practitioner's Guide to Cluster-Robust Inference" (2015).
    """
    more = leaky.astype(float) - honest
    share = float(more.mean())
    sums = pd.Series(more.mean(axis=0) - share).groupby(np.asarray(clusters)).sum()
    variance = (sums**2).sum() / more.shape[1] ** 2 * len(sums) / (len(sums) - 1)
    variance += more.mean(axis=1).var(ddof=1) / len(more)
    margin = 1.96 * float(np.sqrt(variance))
    return share, share - margin, share + margin
