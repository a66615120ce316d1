"""07, cell by cell: what is torn, and an interval that contains the planted truth."""

import numpy as np
import pandas as pd
import pytest
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
    contains_gain = []
    contains_zero = []
    for seed in range(40):
        names = run_cells("07-12", SEED=seed, **simulate(seed))
        with_copy, without_copy, everything = names["gains"].to_dict("records")
        contains_gain.append(with_copy["low"] <= GAIN / 2 <= with_copy["high"])
        contains_zero.append(without_copy["low"] <= 0 <= without_copy["high"])
        counts = [with_copy["images"], without_copy["images"]]
        assert sum(counts) == everything["images"] == len(names["has_copy"])

    assert sum(contains_gain) >= 34
    assert sum(contains_zero) >= 34


@pytest.fixture
def rows():
    """Images of two classes; every third cluster is a triple."""
    clusters = np.repeat(np.arange(60), [3, 1, 1] * 20)
    return pd.DataFrame({"cluster": clusters, "split": "train", "label": clusters % 2})


def test_only_images_with_a_copy_leave_their_cluster(rows):
    """The other images have the same fold twice; whole clusters have one fold."""
    has_copy = rows["cluster"].duplicated(keep=False).to_numpy()
    settings = {"N_FOLDS": 5, "SEED": 0, "GROUP_COLUMN": ""}
    clusters = rows["cluster"]

    names = run_cells(
        "07-05", plan=plan, rows=rows, has_copy=has_copy, clusters=clusters, **settings
    )

    folds = names["folds"]
    assert folds.loc[~has_copy, "torn"].equals(folds.loc[~has_copy, "whole"])
    assert names["in_two"]["clusters in two folds or more"]["whole"] == 0
    assert names["in_two"]["clusters in two folds or more"]["torn"] >= 15
