"""What it costs when copies of a picture lie in two folds: the experiment of 07."""

import numpy as np
import pandas as pd

from kaggle_tfr.train.devices import predict
from kaggle_tfr.train.training import build_model


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
