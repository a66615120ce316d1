"""07, cell by cell: what is torn, and an interval that contains the planted truth."""

import numpy as np
import pandas as pd
from support.cells import run_cells

from kaggle_tfr import plan

N_IMAGES = 300
N_DRAWS = 3
GAIN = 0.6  # of the wrong answers, right with a copy in another fold


def simulate(seed):
    """Return the answers of networks that have memorised half of the images.

    Each image has its own chance of a right answer, shared by its copy.
    """
    rng = np.random.default_rng(seed)
    copied = rng.random(N_IMAGES) < 0.5
    clusters = np.append(np.arange(N_IMAGES), np.flatnonzero(copied))
    has_copy = copied[clusters]
    chance = rng.beta(2, 2, N_IMAGES)[clusters]
    known_chance = chance + has_copy * GAIN * (1 - chance)
    tables = []
    for _ in range(N_DRAWS):
        torn, whole = rng.random((2, N_IMAGES))[:, clusters]
        columns = {
            "cluster": clusters,
            "is_apart": has_copy,
            "torn": (torn < known_chance).astype(float),
            "whole": (whole < chance).astype(float),
        }
        tables.append(pd.DataFrame(columns))
    return {"tables": tables, "has_copy": has_copy}


def test_the_intervals_contain_the_planted_gain():
    """In 34 of 40 simulations or more; without a copy, 0; the images are counted."""
    truth = [GAIN / 2, 0]
    is_inside = []
    for seed in range(40):
        names = run_cells("07-12", SEED=seed, **simulate(seed))
        groups = names["gains"].head(2)
        is_inside.append((groups["low"] <= truth) & (groups["high"] >= truth))
        counts = names["gains"]["images"].tolist()
        assert sum(counts[:2]) == counts[2] == len(names["has_copy"])

    assert (np.sum(is_inside, axis=0) >= 34).all()


def test_only_images_with_a_copy_leave_their_cluster():
    """The other images have the same fold twice; whole clusters have one fold."""
    clusters = pd.Series(np.repeat(np.arange(60), [3, 1, 1] * 20))  # triples
    has_copy = clusters.duplicated(keep=False).to_numpy()
    rows = {"cluster": clusters, "split": "train", "label": clusters % 2}

    names = run_cells(
        "07-05",
        plan=plan,
        rows=pd.DataFrame(rows),
        has_copy=has_copy,
        clusters=clusters,
        N_FOLDS=5,
        SEED=0,
        GROUP_COLUMN="",
    )

    folds = names["folds"]
    assert folds.loc[~has_copy, "torn"].equals(folds.loc[~has_copy, "whole"])
    n_torn, n_whole = names["in_two"].iloc[:, 0]
    assert n_whole == 0
    assert n_torn >= 15
