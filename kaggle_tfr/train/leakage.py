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
    model = build_model(pictures.shape[1:3], int(labels.max()) + 1, seed=seed)
    model.optimizer.build(model.trainable_variables)
    # To compile a new model for each fold would take longer than the training.
    variables = [*model.variables, *model.optimizer.variables]
    initial_values = [np.array(variable) for variable in variables]
    is_right = np.zeros(len(labels), bool)
    for fold in np.unique(folds):
        for variable, value in zip(variables, initial_values, strict=True):
            variable.assign(value)
        held_out = folds == fold
        model.fit(pictures[~held_out], labels[~held_out], batch_size, epochs, verbose=0)
        predicted = predict(model, pictures[held_out]).argmax(axis=-1)
        is_right[held_out] = predicted == labels[held_out]
    return is_right


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
    repeats, n_images = gains.shape
    share = float(gains.mean())
    residuals = pd.Series(gains.mean(axis=0) - share)
    cluster_sums = residuals.groupby(np.asarray(clusters)).sum()
    n_clusters = len(cluster_sums)
    variance = (cluster_sums**2).sum() / n_images**2 * n_clusters / (n_clusters - 1)
    variance += gains.mean(axis=1).var(ddof=1) / repeats
    margin = 1.96 * float(np.sqrt(variance))
    return share, share - margin, share + margin
