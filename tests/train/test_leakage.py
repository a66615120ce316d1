"""The interval of the inflation contains the planted truth; scores are a network's."""

import numpy as np
import pytest

from kaggle_tfr import train


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


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
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


def test_without_copies_nothing_is_added():
    """The interval contains 0 if no image has a copy."""
    contains_zero = []
    for seed in range(20):
        *answers, _ = simulate(seed, share=0.0)
        _, low, high = train.estimate_inflation(*answers)
        contains_zero.append(low <= 0 <= high)

    assert sum(contains_zero) >= 19


def test_an_image_is_classified_by_a_network_that_did_not_learn_from_it():
    """Grey levels separate the classes, and the same seed gives the same answers."""
    labels = np.repeat([0, 1], 24)
    grey_levels = np.array([20, 230], np.uint8)[labels]
    pictures = np.broadcast_to(grey_levels[:, None, None, None], (48, 8, 8, 3))
    folds = np.arange(48) % 3
    options = {"epochs": 12, "batch_size": 8, "seed": 0}

    right = train.score_folds(pictures, labels, folds, **options)
    again = train.score_folds(pictures, labels, folds, **options)

    assert right.shape == (48,)
    assert right.mean() > 0.9
    assert (right == again).all()
    # A class that is in one fold alone is unknown to the network that judges it.
    folds_apart = np.where(labels == 1, 0, 1 + folds)
    alone = train.score_folds(pictures, labels, folds_apart, **options)
    assert not alone[labels == 1].any()
