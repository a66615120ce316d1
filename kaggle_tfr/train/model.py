"""A network to begin with, its input, and its speed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from kaggle_tfr.parameters import as_size
from kaggle_tfr.read.batches import read_batches
from kaggle_tfr.train.weights import find_weights, load_backbone

if TYPE_CHECKING:
    from collections.abc import Sequence

    import keras
    import pandas as pd

    from kaggle_tfr.read.batches import MeanStd
else:
    from kaggle_tfr.session import keras

# Red, green, blue, of images scaled to 0…1. Source: ImageNet's training set, as
# torchvision and the landmark notebooks use them.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# Of Adam. A pretrained network forgets what it knows at the rate of a new one.
LEARNING_RATE = 3e-3
FINE_TUNING_RATE = 3e-4
SCALE_IMAGES = 512  # whose labels have nearly the mean and deviation of all

# Records that 06 does not train on, and what to do with them.
OTHER_LABELS = {
    "none": "have no labels; set LABEL_COLUMN in the recipe and run 01 to 05 again",
    "multi": "can have several labels; use another model, with a sigmoid for each",
    "masks": "have masks; use a segmentation model",
}


def check_labels(shards: pd.DataFrame) -> None:
    """Check that each labelled record has one class or quantity, which 06 can learn.

    shards: of `find_shards`. Raises: ValueError, with how to train on other labels.
    """
    labelled = shards[shards["split"] != "test"]
    for shard in labelled.to_dict("records"):
        schema = shard["schema"]
        has_labels = shard["labels"].classes or schema.kind == "number"
        kind = schema.kind if has_labels and schema.label_keys else "none"
        if kind in OTHER_LABELS:
            raise ValueError(
                "06_train trains a network that gives each image one label, but the "
                f"records in '{shard['folder']}' {OTHER_LABELS[kind]}. "
                "read.read_batches gives the images and their labels as arrays "
                "(docs/reading.md has examples)."
            )


def predict(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Return the outputs (batch, …) of uint8 images, split over the model's devices."""
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
    training: pd.DataFrame | None = None,
) -> keras.Model:
    """Build a compiled network: uint8 images to logits (batch, classes).

    training: for a quantity, which has 0 classes: shards whose labels have its mean
        and deviation. The output (batch, 1) starts there, and learns in their scale.
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
    outputs = keras.layers.Dense(max(1, classes), dtype="float32")(features)
    if training is not None and not classes:
        outputs = _scale_as(training)(outputs)
    model = keras.Model(inputs, outputs, name=name)
    _compile(model, FINE_TUNING_RATE if weights else LEARNING_RATE, classes)
    return model


def _scale_as(shards: pd.DataFrame) -> keras.Layer:
    """Return a layer from mean 0 and deviation 1 to those of the labels of shards."""
    batches = read_batches(shards, training=True, image_size=8, batch_size=SCALE_IMAGES)
    _, labels = next(batches.as_numpy_iterator())
    deviation = float(labels.std()) or 1.0
    return keras.layers.Rescaling(deviation, float(labels.mean()), dtype="float32")


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


def _compile(model: keras.Model, learning_rate: float, classes: int) -> None:
    """Set the optimizer, the loss and the metrics of logits, or of a quantity."""
    loss = keras.losses.MeanSquaredError()
    metrics = [keras.metrics.MeanAbsoluteError("error")]
    if classes:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        metrics = [
            keras.metrics.SparseCategoricalAccuracy("accuracy"),
            keras.metrics.SparseCategoricalCrossentropy(
                "cross_entropy", from_logits=True
            ),
        ]
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss=loss,
        # Weighted by the mask of validation batches. Keras's own val_loss is not a
        # mean over the images: it divides by the padding too.
        weighted_metrics=metrics,
    )
    model.optimizer.build(model.trainable_variables)  # part of what folds start from


def time_epochs(seconds: list[float]) -> keras.callbacks.Callback:
    """Return a callback that appends each epoch's seconds, without validation."""
    starts: list[float] = []
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: starts.append(time.perf_counter()),
        on_test_begin=lambda *_: seconds.append(time.perf_counter() - starts[-1]),
    )
