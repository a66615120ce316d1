from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings

from kaggle_tfr.plan import folds
from kaggle_tfr.plan.folds import assign_folds, assign_shards, check_leakage

QUICK = settings(max_examples=25, deadline=None)


def make_table(labels, clusters=-1, **columns):
    table = pd.DataFrame({"label": labels, "split": "train"}).assign(cluster=clusters, **columns)
    return table.assign(label_name="class " + table["label"].astype(str))


@st.composite
def tables(draw):
    n = draw(st.integers(8, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.integers(0, draw(st.integers(1, 6)), n)
    clusters = rng.integers(-1, draw(st.integers(4, 40)), n)
    groups = rng.integers(0, draw(st.integers(6, 40)), n).astype(object)
    groups[rng.random(n) < 0.3] = None
    split = np.where(rng.random(n) < draw(st.sampled_from([0, 0.2])), "test", "train")
    return make_table(labels, clusters, patient=groups, split=split)


def is_whole(table, column):
    rows = table[table[column].notna() & (table[column] != -1)]
    return rows.groupby(column)[["split", "fold"]].nunique().eq(1).all(axis=None)


@settings(max_examples=15, deadline=None)
@given(tables(), st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.integers(0, 9))
def test_no_cluster_and_no_group_is_ever_split(table, n_folds, validation_size, seed):
    """Whatever the labels, clusters, patients and folds: no row lost, none of a kind apart."""
    same = {"n_folds": n_folds, "seed": seed, "validation_size": validation_size}
    same["group_column"] = "patient"
    try:
        folded = assign_folds(table, **same)
    except ValueError:
        reject()  # too few clusters for so many folds

    assert folded.drop(columns=["split", "fold"]).equals(table.drop(columns="split"))
    assert all(is_whole(folded, column) for column in ("cluster", "patient"))
    assert ((folded["fold"] >= 0) == (folded["split"] == "train")).all()
    assert folded["fold"].max() < n_folds
    leakage = check_leakage(folded, group_column="patient")
    assert leakage["clusters_across_folds"] == leakage["groups_across_folds"] == 0
    assert folded.equals(assign_folds(table, **same))


@QUICK
@pytest.mark.parametrize(("largest", "many_classes"), [(5, 9), (1, 9), (1, 2)])
@given(st.integers(6, 60), st.integers(2, 5), st.integers(0, 99))
def test_a_class_differs_between_folds_by_its_largest_cluster_at_most(
    largest, many_classes, n, n_folds, seed
):
    """Class counts are as even as clusters allow; without clusters, to within one."""
    rng = np.random.default_rng(seed)
    labels, sizes = rng.integers(0, 5, n), rng.integers(1, largest + 1, n)
    table = make_table(np.repeat(labels, sizes), np.repeat(np.arange(n), sizes))
    with mock.patch.object(folds, "MANY_CLASSES", many_classes):
        folded = assign_folds(table, n_folds=n_folds, seed=seed)

    count = pd.crosstab(folded["label"], folded["fold"]).reindex(columns=range(n_folds)).fillna(0)
    for label, row in count.iterrows():
        assert np.ptp(row) <= sizes[labels == label].max()
    assert largest > 1 or np.ptp(count.sum()) <= len(count)


def test_single_images_balance_one_large_cluster():
    """Five pictures in one cluster and five alone are two folds of five, not of seven and three."""
    folded = assign_folds(make_table([0] * 10, [7] * 5 + [-1] * 5), n_folds=2, seed=0)
    assert sorted(np.bincount(folded["fold"])) == [5, 5]


def test_a_cluster_over_given_splits_goes_to_the_smaller():
    """The test set stays whole, and its near-duplicate leaves train."""
    table = make_table([0] * 6, [3, -1, -1, -1, 3, -1], split=["train"] * 4 + ["test"] * 2)
    folded = assign_folds(table, n_folds=2, seed=0)
    assert folded["split"].tolist() == ["test", "train", "train", "train", "test", "test"]


def test_the_held_out_share_is_that_of_every_class():
    """A validation size of 30 % takes 30 of 100 and 6 of 20, and no picture of a single one."""
    table = make_table([0] * 100 + [1] * 20 + [2])

    folded = assign_folds(table, n_folds=1, seed=3, validation_size=0.3)
    held_out = folded[folded["split"] == "validation"]["label"].value_counts().to_dict()
    assert held_out == {0: 30, 1: 6}
    assert set(folded["fold"][folded["split"] == "train"]) == {0}


def test_multi_label_images_are_spread_evenly_and_by_cluster():
    """Of every label each fold has its quarter, within a few, though images have several labels."""
    rng = np.random.default_rng(0)
    drawn = (rng.random((800, 4)) < [0.5, 0.2, 0.1, 0.05]).astype("int8")
    marks = pd.DataFrame(drawn, columns=[*"abcd"])
    table = make_table([0] * 800, rng.integers(0, 500, 800)).join(marks)
    codes = table.assign(**{name: np.where(marks[name], "1 3", "") for name in "abcd"})
    same = {"seed": 0, "label_columns": [*"abcd"]}
    folded = assign_folds(table, n_folds=4, **same)
    held_out = assign_folds(table, n_folds=1, validation_size=0.3, **same)["split"] == "validation"

    assert is_whole(folded, "cluster")
    shares = folded.groupby("fold")[[*"abcd"]].sum() / marks.sum()
    assert np.abs(shares - 0.25).max(axis=None) < 0.06
    assert np.abs(marks[held_out].sum() / marks.sum() - 0.3).max() < 0.06
    assert assign_folds(codes, n_folds=4, **same)["fold"].equals(folded["fold"])


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"n_folds": 9}, "N_FOLDS lower"),
        ({"n_folds": 2, "validation_size": 1.0}, "VALIDATION_SIZE is 1.0"),
        ({"n_folds": 2, "group_column": "site"}, "no column 'site'.*GROUP_COLUMN"),
        ({"n_folds": 2}, "2 images of 'train', fold 0.*N_SHARDS lower"),
    ],
)
def test_impossible_folds_and_shards_are_refused_by_name(settings_, message):
    """The error names the parameter and what to set, and the split and fold that lack images."""
    table, shards = make_table([0, 0, 1, 1]), {("train", 0): 3, ("train", 1): 1}
    with pytest.raises(ValueError, match=message):
        assign_shards(assign_folds(table, seed=0, **settings_), shards, seed=0)


def test_one_line_says_which_classes_are_not_in_every_fold():
    """The rare class is named, with how many folds there are."""
    folded = assign_folds(make_table([0] * 10 + [1] * 3), n_folds=5, seed=0)
    line = folds.describe_rare_classes(folded)
    assert line.startswith("1 of 2 classes")
    assert line.endswith("5 folds: class 1")
    assert "Every class" in folds.describe_rare_classes(folded[folded["label"] == 0])


def test_the_leakage_check_counts_what_is_wrong():
    """A cluster over two folds, a skewed class and a pair across folds are each counted."""
    table = make_table([0, 0, 1, 1], [5, 5, -1, -1], fold=[0, 1, 0, 1], path=[*"abcd"])
    words = {name: np.uint64([1, 3, 1 << 60, 0]) for name in ("average", "perceptual")}
    words |= {name: np.uint64([0, 0, 2**64 - 1, 2**63]) for name in ("difference", "wavelet")}
    hashes = pd.DataFrame({"path": [*"abcd"], "texture": [9.0, 9, 9, 1], "problem": ""} | words)

    leakage = check_leakage(table, hashes=hashes, max_bits=2)
    assert leakage["clusters_across_folds"] == 1
    assert leakage["max_share_deviation"] == 0
    # a and b are two bits apart, seen from both; d is too flat to tell anything.
    assert leakage["sampled_pairs_across_folds"] == 2
    assert check_leakage(table.assign(fold=[0, 0, 1, 1]))["max_share_deviation"] == 0.5


@QUICK
@given(st.lists(st.integers(0, 4), min_size=12, max_size=60), st.integers(1, 5), st.integers(1, 3))
def test_shards_hold_the_same_of_everything_to_within_one(labels, n_shards, n_parts):
    """Nothing lost, nothing twice; sizes and class counts of a fold's shards differ by one."""
    table = assign_folds(make_table(labels), n_folds=2, seed=0)
    numbers = {("train", 0): n_shards, ("train", 1): n_shards}
    planned = assign_shards(table, numbers, n_parts, seed=1)

    for fold in range(2):
        rows = planned[planned["fold"] == fold]
        count = pd.crosstab(rows["label"], rows["shard"])
        assert list(count) == list(range(n_shards))
        assert np.ptp(count, axis=1).max() <= 1
        assert np.ptp(count.sum()) <= 1
        for _, of_shard in rows.groupby("shard"):
            assert sorted(of_shard["position"]) == list(range(len(of_shard)))
        parts = rows[["shard", "part"]].drop_duplicates()["part"]
        assert len(parts) == n_shards
        # Each part is a small copy of the whole.
        assert np.ptp(np.bincount(parts, minlength=n_parts + 1)[1:]) <= 1
    assert planned["part"].between(1, n_parts).all()
    assert planned.equals(assign_shards(table, numbers, n_parts, seed=1))


@pytest.mark.parametrize(("yes", "no"), [("1 3", ""), (1, 0)])
@pytest.mark.parametrize("clusters", [-1, np.arange(200) // 10 * 5 + np.arange(200) % 5])
def test_a_single_label_column_is_stratified_by_yes_and_no(yes, no, clusters):
    """Of 40 ships in 200 pictures each of five folds has eight, and the held-out 20 % too."""
    ships = np.where(np.arange(200) % 5 == 0, yes, no)
    table = make_table([0] * 200, clusters, ship=ships)
    same = {"seed": 0, "label_columns": ["ship"]}
    folded = assign_folds(table, n_folds=5, **same)
    held_out = assign_folds(table, n_folds=1, validation_size=0.2, **same)

    assert (pd.crosstab(folded["ship"], folded["fold"]).to_numpy() == [[32] * 5, [8] * 5]).all()
    assert (held_out["split"] == "validation").groupby(ships).sum().tolist() == [32, 8]
