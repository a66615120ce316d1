"""Measure how much duplicates across folds inflate a score: the experiment of 07."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable


class Classifier(Protocol):
    """A classifier in the form of scikit-learn."""

    def fit(self, features: np.ndarray, labels: np.ndarray) -> Any: ...
    def predict(self, features: np.ndarray) -> np.ndarray: ...


class AssignFolds(Protocol):
    """A function that adds the column fold to a table, as `plan.assign_folds`."""

    def __call__(self, table: pd.DataFrame, *, seed: int) -> pd.DataFrame: ...


def check_classes(labels: pd.Series) -> None:
    """Check that the images have two classes or more. Raises: ValueError."""
    n_classes = labels.nunique()
    if n_classes < 2:
        raise ValueError(
            "07_leakage needs labelled images of at least two classes, and found "
            f"{len(labels):,} of {n_classes}. Run 01 and 02 with more images."
        )


def measure_inflation(
    classifier: Classifier,
    features: np.ndarray,
    table: pd.DataFrame,
    assign: AssignFolds,
    seeds: Iterable[int],
) -> pd.DataFrame:
    """Compare folds that no cluster crosses with the same folds after `tear_clusters`.

    features: float (n, …). table: n rows with label, split and cluster, and
    what `assign` needs. seeds: one for each repeat, 2 or more.
    Returns a row for "all images", and one for "images with a copy" if there are two
    clusters or more. Columns: random folds and cluster folds, accuracy from 0 to 1;
    gain, what random folds add; low and high, its 95 % interval. The accuracies are
    rounded to 0.001, and gain is their difference, so that displayed numbers add up.
    """
    labels = table["label"].to_numpy()
    clusters = table["cluster"].to_numpy()
    leaky = []
    honest = []
    for seed in seeds:
        cluster_folds = assign(table, seed=seed)["fold"].to_numpy()
        torn_folds = tear_clusters(cluster_folds, clusters, seed)
        honest.append(score_folds(classifier, features, labels, cluster_folds))
        leaky.append(score_folds(classifier, features, labels, torn_folds))

    has_copy = find_copies(clusters)
    judged = {"all images": np.full(len(table), fill_value=True)}
    if len(np.unique(clusters[has_copy])) > 1:
        judged["images with a copy"] = has_copy
    rows = {
        name: _summarize(
            np.array(leaky)[:, chosen],
            np.array(honest)[:, chosen],
            clusters[chosen],
        )
        for name, chosen in judged.items()
    }
    return pd.DataFrame(rows).T


def _summarize(
    leaky: np.ndarray, honest: np.ndarray, clusters: np.ndarray
) -> dict[str, float]:
    """Return a row of `measure_inflation`."""
    _, low, high = estimate_inflation(leaky, honest, clusters)
    random_folds = round(float(leaky.mean()), 3)
    cluster_folds = round(float(honest.mean()), 3)
    return {
        "random folds": random_folds,
        "cluster folds": cluster_folds,
        "gain": round(random_folds - cluster_folds, 3),
        "low": low,
        "high": high,
    }


def find_copies(clusters: np.ndarray) -> np.ndarray:
    """Return whether each image shares its cluster with another one, bool (n,)."""
    return pd.Series(clusters).duplicated(keep=False).to_numpy()


def tear_clusters(folds: np.ndarray, clusters: np.ndarray, seed: int) -> np.ndarray:
    """Return the folds after each image that has a copy has drawn its own at random.

    A random split does the same to copies. All other images stay, so that two scores
    differ by the copies alone. If the folds keep groups of other images together, an
    image that has a copy leaves its group, too.
    """
    has_copy = find_copies(clusters)
    torn = folds.copy()
    rng = np.random.default_rng(seed)
    torn[has_copy] = rng.choice(folds, np.count_nonzero(has_copy))
    return torn


def score_folds(
    classifier: Classifier,
    features: np.ndarray,
    labels: np.ndarray,
    folds: np.ndarray,
) -> np.ndarray:
    """Return whether a model fitted on the other folds classifies each image right.

    features: float (n, …). labels, folds: int (n,). Returns bool (n,).
    """
    predicted = np.empty_like(labels)
    for fold in np.unique(folds):
        held_out = folds == fold
        classifier.fit(features[~held_out], labels[~held_out])
        predicted[held_out] = classifier.predict(features[held_out])
    return predicted == labels


def plant_copies(
    table: pd.DataFrame, share: float, seed: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """Copy images, so that a share of all images has a near-duplicate.

    table: n images with label and split, none of which has a copy.
    share: of the images in the returned table, from 0 to 1.
    Returns the table with the copies below the images, each in a cluster with its
    original, and the positions of the originals that were copied, int (n_copies,).
    """
    n_images = len(table)
    n_copies = round(share * n_images / (2 - share))  # 2 c / (n + c) is the share
    rng = np.random.default_rng(seed)
    originals = rng.choice(n_images, n_copies, replace=False)
    with_clusters = table.assign(cluster=np.arange(n_images))
    copies = with_clusters.iloc[originals]
    return pd.concat([with_clusters, copies], ignore_index=True), originals


def estimate_inflation(
    leaky: np.ndarray, honest: np.ndarray, clusters: np.ndarray
) -> tuple[float, float, float]:
    """Return (share, low, high): the accuracy gained by leaky folds, 95 % interval.

    leaky, honest: bool (repeats, n) of `score_folds`, for the same n images and at
    least 2 repeats. clusters: int (n,); the copies of an image succeed and fail
    together, so they count as one observation. The variance between repeats is added,
    because all images of a repeat share its folds.
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
