"""Measure how much duplicates across folds inflate a score: the experiment of 07."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kaggle_tfr.train.model import build_model, predict


def score_folds(
    pictures: np.ndarray,
    labels: np.ndarray,
    folds: np.ndarray,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
) -> np.ndarray:
    """Return whether a network trained on the other folds classifies each image right.

    pictures: uint8 (n, height, width, 3). labels: int (n,) from 0. folds: int (n,).
    Returns bool (n,).
    """
    n_classes = int(labels.max()) + 1
    model = build_model(pictures.shape[1:3], n_classes, seed=seed)
    model.optimizer.build(model.trainable_variables)
    initial_state = model.get_state_tree(value_format="numpy_array")
    predicted = np.empty_like(labels)
    for fold in np.unique(folds):
        # To compile a new model for each fold would take longer than the training.
        model.set_state_tree(initial_state)
        held_out = folds == fold
        model.fit(
            pictures[~held_out],
            labels[~held_out],
            batch_size=batch_size,
            epochs=epochs,
            verbose=0,
        )
        logits = predict(model, pictures[held_out])
        predicted[held_out] = logits.argmax(axis=-1)
    return predicted == labels


def estimate_inflation(
    leaky: np.ndarray, honest: np.ndarray, clusters: np.ndarray
) -> tuple[float, float, float]:
    """Return (share, low, high): the accuracy gained by leaky folds, 95 % interval.

    leaky, honest: bool (repeats, n) of `score_folds`, for the same n images and at
    least 2 repeats. clusters: int (n,); the copies of an image succeed and fail
    together, so they count as one observation. The variance between repeats is added,
    because all images of a repeat share its folds and first weights.
    Source: Cameron and Miller, "A Practitioner's Guide to Cluster-Robust Inference"
    (2015).
    """
    gains = leaky.astype(float) - honest
    share = float(gains.mean())
    gains_of_repeats = gains.mean(axis=1)
    gains_of_images = gains.mean(axis=0)
    variance = gains_of_repeats.var(ddof=1) / len(gains)
    variance += _cluster_variance(gains_of_images, clusters)
    margin = 1.96 * float(np.sqrt(variance))
    return share, share - margin, share + margin


def _cluster_variance(values: np.ndarray, clusters: np.ndarray) -> float:
    """Return the variance of the mean of values that are alike in a cluster."""
    residuals = pd.Series(values - values.mean())
    sums = residuals.groupby(np.asarray(clusters)).sum()
    n_clusters = len(sums)
    correction = n_clusters / (n_clusters - 1)
    return (sums**2).sum() / len(values) ** 2 * correction
