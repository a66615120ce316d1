from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings

from kaggle_tfr.plan import folds
from kaggle_tfr.plan.folds import (
    assign_folds,
    assign_shards,
    check_leakage,
    describe_rare_classes,
)

QUICK = settings(max_examples=25, deadline=None)


def make_table(labels, clusters=None, **columns):
    table = pd.DataFrame({"label": labels, "cluster": -1, "split": "train"})
    if clusters is not None:
        table["cluster"] = clusters
    table["label_name"] = "class " + table["label"].astype(str)
    return table.assign(**columns)


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
    rows = zip(table[column], table["split"], table["fold"], strict=True)
    places = {row for row in rows if row[0] not in (-1, None)}
    return len(places) == len({value for value, *_ in places})


@settings(max_examples=15, deadline=None)
@given(tables(), st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.integers(0, 9))
def test_no_cluster_and_no_group_is_ever_split(table, n_folds, validation_size, seed):
    """Whatever the labels, clusters, patients and folds: no row lost, none of a kind apart."""
    settings_ = {"n_folds": n_folds, "seed": seed, "validation_size": validation_size}
    try:
        folded = assign_folds(table, group_column="patient", **settings_)
    except ValueError:
        # Too few clusters for so many folds, which a test of its own asks for by message.
        reject()

    assert folded.drop(columns=["split", "fold"]).equals(table.drop(columns="split"))
    assert is_whole(folded, "cluster")
    assert is_whole(folded, "patient")
    assert ((folded["fold"] >= 0) == (folded["split"] == "train")).all()
    assert folded["fold"].max() < n_folds
    leakage = check_leakage(folded, group_column="patient")
    assert leakage["clusters_across_folds"] == leakage["groups_across_folds"] == 0
    assert folded.equals(assign_folds(table, group_column="patient", **settings_))


@QUICK
@pytest.mark.parametrize(("largest", "many_classes"), [(5, 9), (1, 9), (1, 2)])
@given(st.integers(6, 60), st.integers(2, 5), st.integers(0, 99))
def test_a_class_differs_between_folds_by_its_largest_cluster_at_most(
    largest, many_classes, n, n_folds, seed
):
    """
    Class counts are as even as clusters allow; without clusters, to within one, also where there
    are more classes than StratifiedKFold is asked for.
    """
    rng = np.random.default_rng(seed)
    labels, sizes = rng.integers(0, 5, n), rng.integers(1, largest + 1, n)
    table = make_table(np.repeat(labels, sizes), np.repeat(np.arange(n), sizes))

    with mock.patch.object(folds, "MANY_CLASSES", many_classes):
        folded = assign_folds(table, n_folds=n_folds, seed=seed)

    count = np.zeros((5, n_folds), int)
    np.add.at(count, (folded["label"], folded["fold"]), 1)
    for label in range(5):
        assert np.ptp(count[label]) <= sizes[labels == label].max(initial=0)
    assert largest > 1 or np.ptp(count.sum(axis=0)) <= len(set(labels))


def test_single_images_balance_one_large_cluster():
    """Five pictures in one cluster and five alone are two folds of five, not of seven and three."""
    folded = assign_folds(make_table([0] * 10, [7] * 5 + [-1] * 5), n_folds=2, seed=0)

    assert sorted(np.bincount(folded["fold"])) == [5, 5]


def test_a_patient_joins_clusters_and_a_cluster_joins_patients():
    """Rows joined only by way of a third row stay together."""
    table = make_table([0] * 6, [1, 1, -1, -1, -1, -1], patient=["a", "b", "b", "c", "d", None])

    for seed in range(8):
        folded = assign_folds(table, n_folds=3, seed=seed, group_column="patient")
        assert len(set(folded["fold"][:3])) == 1


def test_a_cluster_over_given_splits_goes_to_the_smaller():
    """The test set stays whole, and its near-duplicate leaves train."""
    table = make_table([0] * 6, [3, -1, -1, -1, 3, -1], split=["train"] * 4 + ["test"] * 2)

    folded = assign_folds(table, n_folds=2, seed=0)

    assert folded["split"].tolist() == ["test", "train", "train", "train", "test", "test"]
    assert (folded["fold"] >= 0).tolist() == [False, True, True, True, False, False]


def test_the_held_out_share_is_that_of_every_class():
    """
    A validation size of 30 % takes 30 of 100 and 6 of 20, and leaves a single picture in train.
    """
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
    same = {"seed": 0, "label_columns": [*"abcd"]}

    folded = assign_folds(table, n_folds=4, **same)

    shares = folded.groupby("fold")[[*"abcd"]].sum() / marks.sum()
    assert is_whole(folded, "cluster")
    assert np.abs(shares - 0.25).max(axis=None) < 0.06
    codes = table.assign(**{name: np.where(marks[name], "1 3", "") for name in "abcd"})
    again = assign_folds(codes, n_folds=4, **same)
    assert again["fold"].equals(folded["fold"])
    held_out = assign_folds(table, n_folds=1, validation_size=0.3, **same)
    shares = marks[held_out["split"] == "validation"].sum() / marks.sum()
    assert np.abs(shares - 0.3).max() < 0.06


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"n_folds": 9}, "N_FOLDS lower"),
        ({"n_folds": 2, "validation_size": 1.0}, "VALIDATION_SIZE is 1.0"),
        ({"n_folds": 2, "group_column": "site"}, "no column 'site'.*GROUP_COLUMN"),
    ],
)
def test_impossible_folds_are_refused_by_name(settings_, message):
    """The error names the parameter and what to set."""
    with pytest.raises(ValueError, match=message):
        assign_folds(make_table([0, 0, 1, 1]), seed=0, **settings_)


def test_one_line_says_which_classes_are_not_in_every_fold():
    """The rare class is named, with how many folds there are."""
    folded = assign_folds(make_table([0] * 10 + [1] * 3), n_folds=5, seed=0)

    assert describe_rare_classes(folded).startswith("1 of 2 classes")
    assert describe_rare_classes(folded).endswith("5 folds: class 1")
    assert "Every class" in describe_rare_classes(folded[folded["label"] == 0])


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
    """
    Nothing lost, nothing twice; sizes and class counts of a fold's shards differ by one at most.
    """
    table = assign_folds(make_table(labels), n_folds=2, seed=0)
    numbers = {("train", 0): n_shards, ("train", 1): n_shards}

    planned = assign_shards(table, numbers, n_parts, seed=1)

    for fold in range(2):
        rows = planned[planned["fold"] == fold]
        count = np.zeros((5, n_shards), int)
        np.add.at(count, (rows["label"], rows["shard"]), 1)
        assert np.ptp(count, axis=1).max() <= 1
        sizes = count.sum(axis=0)
        assert np.ptp(sizes) <= 1
        positions = {(shard, i) for shard, size in enumerate(sizes) for i in range(size)}
        assert set(zip(rows["shard"], rows["position"], strict=True)) == positions
        of_shards = dict(zip(rows["shard"], rows["part"], strict=True))
        assert (rows["shard"].map(of_shards) == rows["part"]).all()
        # Each part is a small copy of the whole.
        assert np.ptp([list(of_shards.values()).count(1 + part) for part in range(n_parts)]) <= 1
    assert planned["part"].between(1, n_parts).all()
    assert planned.equals(assign_shards(table, numbers, n_parts, seed=1))


def test_more_shards_than_images_is_refused():
    """The error names the split, the fold and the parameters to change."""
    table = assign_folds(make_table([0] * 4), n_folds=2, seed=0)

    with pytest.raises(ValueError, match="2 images of split 'train', fold 0.*N_SHARDS lower"):
        assign_shards(table, {("train", 0): 3, ("train", 1): 1}, seed=0)


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
