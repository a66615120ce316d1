"""The folds of a dataset that grows: what cannot be kept is dropped or is named."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.splits import make_codes, make_hashes

from kaggle_tfr.parameters import make_settings
from kaggle_tfr.plan import PlanSettings, assign_folds, check_leakage
from kaggle_tfr.plan.folded import compare_sample
from kaggle_tfr.plan.step import drop_between

COLUMNS = {"cluster": int, "distance": int, "keep": bool, "reason": str}
CLUSTERS = pd.DataFrame(columns=[*COLUMNS]).astype(COLUMNS)
VALIDATES = {"split": ["validation", *["train"] * 4], "fold": [-1, 1, 2, -1, -1]}
PATIENTS = make_settings(PlanSettings, {"GROUP_COLUMN": "patient"})


def list_rows(n_earlier, n_new, **columns):
    """Earlier images in turn in each of three folds, then new ones."""
    number = np.arange(n_earlier + n_new)
    is_earlier = number < n_earlier
    rows = {
        "path": number.astype(str),
        "split": "train",
        "label": number % 2,
        "cluster": -1,
        "source": 0,
        "part": is_earlier.astype(int),
        "fold": np.where(is_earlier, number % 3, -1),
    }
    return pd.DataFrame(rows).assign(**columns)


@pytest.mark.parametrize(
    ("columns", "n_allowed"),
    [
        ({"cluster": [-1, 0, -1, 0, -1]}, 4),
        ({"source": [0, 0, 0, 1, 1]}, 5),
        ({"source": [0, 0, 0, 1, 1], **VALIDATES}, 5),
    ],
)
def test_a_new_image_between_two_folds_is_dropped(columns, n_allowed, capsys):
    """It is of one fold's patient, and a copy of another's image, or of MORE_INPUTS.

    Images of MORE_INPUTS train in every fold, unless they may validate.
    """
    rows = list_rows(3, 2, patient=list("pqrpt"), **columns)
    kept, changed = drop_between(rows, CLUSTERS, PATIENTS)
    assert kept.index.tolist() == [0, 1, 2, 4]
    assert "! 1 new images are dropped" in capsys.readouterr().out
    assert changed.loc[3].tolist() == [-1, False, "between folds"]  # new: no distance
    settings = replace(PATIENTS, extra_in_validation=True)
    assert len(drop_between(rows, CLUSTERS, settings)[0]) == n_allowed


def test_records_of_one_cluster_or_group_in_two_folds_stay():
    """Their new copies are dropped."""
    rows = list_rows(4, 4, cluster=[0, 0, 1, -1, 0, 1, -1, -1])
    rows["patient"] = list("abccdefc")

    kept, _ = drop_between(rows, CLUSTERS, PATIENTS)
    folded = assign_folds(kept, n_folds=3, seed=0, group_column="patient")

    assert kept.index.tolist() == [0, 1, 2, 3, 6]
    assert folded["fold"][:4].tolist() == [0, 1, 2, 0]
    check_leakage(folded, group_column="patient")
    folded.loc[6, ["patient", "fold"]] = ["a", 2]
    with pytest.raises(ValueError, match="1 clusters or groups"):
        check_leakage(folded, group_column="patient")


def test_new_images_go_where_earlier_ones_lack():
    """Together they are spread as if the earlier ones had come first."""
    rows = list_rows(30, 60, fold=[0] * 30 + [None] * 60)
    folded = assign_folds(rows, n_folds=3, seed=0)
    assert folded["fold"].value_counts().to_dict() == {0: 30, 1: 30, 2: 30}


def test_copies_among_earlier_images_are_no_error():
    """An earlier plan may have allowed them; they stay, and new ones are an error."""
    folded = list_rows(3, 3).assign(fold=np.arange(6) % 3)
    hashes = make_hashes(make_codes(0, 0, 60, 120, 180, 240))
    assert compare_sample(folded, hashes, 25, [])["sampled_images"] == 3

    hashes = make_hashes(make_codes(0, 0, 60, 120, 0, 240))
    with pytest.raises(ValueError, match="1 pairs of near-duplicates"):
        compare_sample(folded, hashes, 25, [])
