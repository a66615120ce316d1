"""The interval of the inflation contains the planted truth."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KNeighborsClassifier

from kaggle_tfr import train
from kaggle_tfr.plan import assign_folds


def simulate(seed, share=0.5, gain=0.6, n=300, repeats=3):
    """Simulate networks that have memorised copies: (leaky, honest, clusters, truth).

    Each image has its own chance of a right answer, shared by its copy. With the copy
    in training, a share `gain` of the wrong answers is right too. A whole repeat may
    be better or worse.
    """
    rng = np.random.default_rng(seed)
    copied = rng.random(n) < share
    clusters = np.append(np.arange(n), np.flatnonzero(copied))
    chance = rng.beta(2, 2, n)[clusters]
    leaky_luck, honest_luck = rng.random((2, repeats, n))
    leaky_mood, honest_mood = rng.normal(0, 0.02, (2, repeats, 1))
    known_chance = chance + copied[clusters] * gain * (1 - chance)
    leaky = leaky_luck[:, clusters] < known_chance + leaky_mood
    honest = honest_luck[:, clusters] < chance + honest_mood

    share_of_rows_with_a_copy = 2 * share / (1 + share)
    mean_chance = 0.5
    truth = share_of_rows_with_a_copy * gain * mean_chance
    return leaky, honest, clusters, truth


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9])
def test_the_interval_contains_the_planted_inflation(share):
    """In at least 19 of 20 seeds, and it is not so wide that it would hold anything."""
    contains_truth = []
    widths = []
    for seed in range(20):
        *answers, truth = simulate(seed, share)
        _, low, high = train.estimate_inflation(*answers)
        contains_truth.append(low <= truth <= high)
        widths.append(high - low)

    assert sum(contains_truth) >= 19
    assert np.median(widths) < 0.16


def make_copied_data(seed, n_images=300, share=0.4):
    """Return features, and a table with exact copies: labels are random.

    A nearest neighbour guesses right for half of the images without a copy.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n_images)
    images = pd.DataFrame({"label": labels, "split": "train"})
    table, copied = train.plant_copies(images, share, seed)
    features = rng.normal(size=(n_images, 8))
    return np.concatenate([features, features[copied]]), table


@pytest.mark.parametrize("share", [0, 0.1, 0.5])
def test_a_share_of_the_images_gets_a_copy(share):
    """Each copy has the label of its original, and is in a cluster with it."""
    features, table = make_copied_data(0, share=share)

    clusters = table["cluster"].to_numpy()
    has_copy = train.find_copies(clusters)

    assert has_copy.mean() == pytest.approx(share, abs=0.005)
    assert table.groupby("cluster")["label"].nunique().max() == 1
    assert len(features) == len(table)
    assert len(np.unique(clusters)) == 300


def test_a_nearest_neighbour_gains_from_each_torn_pair():
    """The gain is the chance that a copy is in another fold, times the wrong answers.

    With 5 folds and two classes it is 0.4 of the images with a copy; the interval
    contains this in 19 of 20 seeds at least.
    """
    neighbour = KNeighborsClassifier(1)
    assign = partial(assign_folds, n_folds=5)
    contains_truth = []
    for seed in range(20):
        features, table = make_copied_data(seed)
        found = train.measure_inflation(
            neighbour, features, table, assign, seeds=range(seed, seed + 2)
        )
        of_all = found.loc["all images"]
        of_copies = found.loc["images with a copy"]
        contains_truth.append(of_all["low"] <= 0.4 * 0.4 <= of_all["high"])
        assert of_copies["gain"] == pytest.approx(0.4, abs=0.13)

    assert sum(contains_truth) >= 19


def test_only_images_with_a_copy_change_their_fold():
    """So nothing else differs between the two scores; without copies, nothing does."""
    folds = np.arange(60) % 5
    clusters = np.append(np.arange(50), np.arange(10))
    has_copy = train.find_copies(clusters)

    torn = train.tear_clusters(folds, clusters, seed=0)

    assert (torn[~has_copy] == folds[~has_copy]).all()
    assert (torn[has_copy] != folds[has_copy]).any()
    assert set(torn) == set(folds)
    assert (train.tear_clusters(folds, np.arange(60), seed=0) == folds).all()


def test_an_image_is_classified_by_a_model_that_did_not_learn_from_it():
    """Grey levels separate the classes; a class of one fold alone is never right."""
    labels = np.repeat([0, 1], 24)
    features = np.array([[20.0], [230.0]])[labels]
    folds = np.arange(48) % 3
    neighbour = KNeighborsClassifier(1)

    right = train.score_folds(neighbour, features, labels, folds)
    alone = train.score_folds(
        neighbour, features, labels, np.where(labels == 1, 0, 1 + folds)
    )

    assert right.shape == (48,)
    assert right.all()
    assert not alone[labels == 1].any()


def test_one_class_is_an_error():
    """There is nothing to learn, and nothing to gain."""
    with pytest.raises(
        ValueError, match="at least two classes, and found 3 of 1. Run 01"
    ):
        train.check_classes(pd.Series([4, 4, 4]))
