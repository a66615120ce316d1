"""A dataset that grows three times, with planted copies of what it has already."""

import numpy as np
import pytest
from support.growing import N_GROWTHS, grow

from kaggle_tfr.images.hashing import FLAT, HASHES

MAX_BITS = 25


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """A dataset, and its three growths."""
    return grow(tmp_path_factory.mktemp("grown"))


@pytest.fixture(params=range(1, N_GROWTHS + 1))
def growth(steps, request):
    """A growth, and the records before it."""
    return steps[request.param], steps[request.param - 1].records


def test_no_earlier_image_moves_and_no_earlier_byte_changes(growth):
    """Each record has its split, fold and label in folds.csv, and its part is equal."""
    step, records = growth
    before, after = step.earlier
    assert before == after
    assert sum(map(len, before)) > 10 * len(before)

    rows = step.folds[step.folds["reason"].str.startswith("earlier: part")]
    assert len(rows) == len(records)
    rows = records.merge(rows, on="image_id", suffixes=("", "_now"))
    assert (rows["split"] == rows["split_now"]).all()
    assert (rows["fold"] == rows["fold_now"]).all()
    rows = rows[rows["split"] != "test"]
    assert (rows["label_name"] == rows["label_name_now"]).all()


def test_every_planted_image_has_its_outcome(growth):
    """Copies of earlier images are dropped, also if the images are gone."""
    step, _ = growth
    reasons = step.folds.set_index("image_id")["reason"]
    found = reasons.loc[list(step.outcomes)].to_dict()
    expected = step.outcomes
    assert [name for name in found if not found[name].startswith(expected[name])] == []


def test_no_cluster_is_in_two_folds(growth):
    """Neither by folds.csv, nor by a comparison of all records with all others."""
    step, _ = growth
    members = step.folds[(step.folds["cluster"] >= 0) & (step.folds["split"] != "test")]
    places = members.groupby("cluster")[["split", "fold"]].nunique()
    assert (places == 1).all(axis=None)

    records = step.records
    is_compared = (records["split"] != "test") & (records["texture"] >= FLAT)
    words = records.loc[is_compared, [*HASHES]].to_numpy(np.uint64)
    fold = records["fold"][is_compared].to_numpy()
    for row in range(len(words)):
        distance = np.bitwise_count(words ^ words[row]).sum(axis=1)
        assert (fold[distance <= MAX_BITS] == fold[row]).all()


def test_the_accounting_closes(growth):
    """Every input image and every record of an image that is gone is counted once."""
    step, records = growth
    counts = step.accounting.drop("total")
    assert counts.sum() == step.accounting["total"] == len(step.folds)
    assert counts["in earlier parts"] == len(records)
    n_new = counts["labelled records"] + counts["test records"]
    assert len(step.records) == len(records) + n_new
