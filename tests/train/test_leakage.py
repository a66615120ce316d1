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
    chance, luck = rng.beta(2, 2, n)[clusters], rng.random((2, repeats, n))
    mood = rng.normal(0, 0.02, (2, repeats, 1))
    known = chance + copied[clusters] * gain * (1 - chance)
    leaky, honest = (
        luck[k][:, clusters] < (known, chance)[k] + mood[k] for k in (0, 1)
    )
    of_both = 2 * share / (1 + share)  # of the rows, those with a copy
    return leaky, honest, clusters, of_both * gain * 0.5  # a chance is 0.5 on average


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_interval_holds_the_planted_inflation(share):
    """In at least 19 of 20 seeds, and it is not so wide that it would hold anything."""
    held, widths = 0, []
    for seed in range(20):
        *answers, truth = simulate(seed, share)
        _, low, high = train.estimate_inflation(*answers)
        held += low <= truth <= high
        widths.append(high - low)
    assert held >= 19
    assert np.median(widths) < 0.16


def test_without_copies_nothing_is_added():
    """The interval holds 0 where both ways are one."""
    held = [
        train.estimate_inflation(*simulate(seed, share=0.0)[:3]) for seed in range(20)
    ]
    assert sum(low <= 0 <= high for _, low, high in held) >= 19


def test_a_picture_is_judged_by_a_network_that_did_not_learn_from_it():
    """Grey levels separate the classes, and the same seed gives the same answers."""
    pictures = np.repeat([20, 230], 24)[:, None, None, None] + np.zeros((1, 8, 8, 3))
    pictures, labels = pictures.astype(np.uint8), np.repeat([0, 1], 24)
    folds = np.arange(48) % 3
    options = {"epochs": 12, "batch_size": 8, "seed": 0}
    right = train.score_folds(pictures, labels, folds, **options)
    again = train.score_folds(pictures, labels, folds, **options)
    assert right.shape == (48,)
    assert right.mean() > 0.9
    assert (right == again).all()
    # A class that is in one fold alone is unknown to the network that judges it.
    alone = train.score_folds(
        pictures, labels, np.where(labels == 1, 0, 1 + folds), **options
    )
    assert not alone[labels == 1].any()
