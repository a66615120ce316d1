"""The folds of a dataset that grows: what cannot be kept is an error or is named."""

import numpy as np
import pandas as pd
import pytest

from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.plan import check_leakage, count_by_fold, drop_between, note_folds
from kaggle_tfr.schema import Labels

CLUSTER_COLUMNS = ["image_id", "cluster", "keep", "reason", "split", "conflict"]
NO_CLUSTERS = pd.DataFrame(columns=CLUSTER_COLUMNS).astype({"keep": bool})


def list_rows(n_earlier, n_new, n_folds=3):
    """Earlier images in turn in each fold, then new ones; no two are related."""
    n = n_earlier + n_new
    rows = pd.DataFrame({"image_id": [f"{k}.jpg" for k in range(n)]})
    is_earlier = np.arange(n) < n_earlier
    return rows.assign(
        path=rows["image_id"],
        split="train",
        label=np.arange(n) % 2,
        label_name=(np.arange(n) % 2).astype(str),
        cluster=-1,
        source=0,
        earlier=np.where(is_earlier, "same", ""),
        earlier_fold=np.where(is_earlier, np.arange(n) % n_folds, -1),
        earlier_part=is_earlier.astype(int),
    )


def test_earlier_images_of_one_group_in_two_folds_are_an_error():
    """Neither can move, and the group must not be in two folds."""
    rows = list_rows(6, 3).assign(patient=["p", "p", *"abcdefg"])
    message = "'patient' has a group 'p' whose images are in fold 0 and fold 1"
    with pytest.raises(ValueError, match=message):
        drop_between(rows, NO_CLUSTERS, "patient")

    rows = list_rows(6, 3).assign(override_group=[None, "g", "g"] + [None] * 6)
    message = "OVERRIDES has a group 'g' whose images are in fold 1 and fold 2"
    with pytest.raises(ValueError, match=message):
        drop_between(rows, NO_CLUSTERS)


def test_a_new_image_that_connects_two_groups_is_dropped():
    """It is a copy of an image of one fold, and of the patient of another."""
    rows = list_rows(3, 2).assign(patient=list("pqrpt"))
    rows["cluster"] = [-1, 0, -1, 0, -1]
    clusters = rows.loc[[1, 3]].assign(keep=True, reason="kept: all", conflict=False)

    kept, changed = drop_between(rows, clusters[CLUSTER_COLUMNS], "patient")

    assert kept["image_id"].tolist() == ["0.jpg", "1.jpg", "2.jpg", "4.jpg"]
    changed = changed.set_index("image_id")
    assert changed["keep"].to_dict() == {"1.jpg": True, "3.jpg": False}
    reason = "between folds: its group has images in two earlier folds"
    assert changed.loc["3.jpg", "reason"] == reason


def test_an_extra_image_does_not_validate_with_its_group():
    """Images of MORE_INPUTS train in every fold, so it is dropped, unless they may."""
    rows = list_rows(3, 2).assign(patient=list("pqrpt"))
    rows["source"] = [0, 0, 0, 1, 1]

    kept, changed = drop_between(rows, NO_CLUSTERS, "patient")
    allowed, _ = drop_between(rows, NO_CLUSTERS, "patient", extra_in_validation=True)

    assert kept["image_id"].tolist() == ["0.jpg", "1.jpg", "2.jpg", "4.jpg"]
    [reason] = changed["reason"]
    assert reason.startswith("between folds: images of MORE_INPUTS train in every fold")
    assert len(allowed) == 5


def test_copies_among_earlier_images_are_reported(capsys):
    """An earlier plan may have allowed them; they stay, and new ones are an error."""
    rows = list_rows(3, 3)
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**63, (len(rows), len(ALL_HASHES)), np.uint64)
    hashes = pd.DataFrame(values, columns=list(ALL_HASHES)).assign(
        path=rows["path"], texture=np.float32(60)
    )
    hashes.loc[1, list(ALL_HASHES)] = hashes.loc[0, list(ALL_HASHES)]
    folded = rows.assign(fold=np.arange(6) % 3)

    checks = check_leakage(folded, hashes=hashes, max_bits=25)

    note_folds(folded, count_by_fold(folded, Labels()), checks, 25)
    sizes, sample = capsys.readouterr().out.splitlines()
    text = "3 folds of 2, 2 and 2 images. Test and earlier images aside, no cluster"
    assert text in sizes
    assert sample.startswith("! 6 of 6 images were compared with all others")
    assert "without a test image: 1. They are images of earlier parts" in sample
    hashes.loc[4, list(ALL_HASHES)] = hashes.loc[0, list(ALL_HASHES)]
    with pytest.raises(ValueError, match="sampled_pairs_across_folds"):
        check_leakage(folded, hashes=hashes, max_bits=25)
