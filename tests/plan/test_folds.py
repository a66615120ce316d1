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
    fold_report,
    stratified_group_split,
)

QUICK = settings(max_examples=60, deadline=None)


def make_table(labels, clusters=None, **columns):
    table = pd.DataFrame({"label": labels, "cluster": -1, "split": "train"})
    if clusters is not None:
        table["cluster"] = clusters
    table["label_name"] = "class " + table["label"].astype(str)
    return table.assign(**columns)


@st.composite
def tables(draw):
    n = draw(st.integers(8, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.integers(0, draw(st.integers(1, 6)), n)
    clusters = rng.integers(-1, draw(st.integers(4, 40)), n)
    groups = rng.integers(0, draw(st.integers(6, 40)), n).astype(object)
    groups[rng.random(n) < 0.3] = None
    split = np.where(rng.random(n) < draw(st.sampled_from([0, 0.2])), "test", "train")
    return make_table(labels, clusters, patient=groups, split=split)


def is_whole(table, column):
    known = table[table[column].notna() & (table[column] != -1)]
    places = known[[column, "split", "fold"]].drop_duplicates()
    return not places[column].duplicated().any()


@QUICK
@given(tables(), st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.integers(0, 9))
def test_no_cluster_and_no_group_is_ever_split(table, n_folds, validation_size, seed):
    """
    Whatever the labels, clusters, patients and folds: no row lost, none of a kind apart.
    """
    settings_ = {"n_folds": n_folds, "seed": seed, "validation_size": validation_size}
    try:
        dealt = assign_folds(table, group_column="patient", **settings_)
    except ValueError:
        # Too few clusters for so many folds, which a test of its own asks for by message.
        reject()

    assert dealt.drop(columns=["split", "fold"]).equals(table.drop(columns="split"))
    assert is_whole(dealt, "cluster")
    assert is_whole(dealt, "patient")
    assert ((dealt["fold"] >= 0) == (dealt["split"] == "train")).all()
    assert dealt["fold"].max() < n_folds
    proof = check_leakage(dealt, group_column="patient")
    assert proof["clusters_across_folds"] == proof["groups_across_folds"] == 0
    assert dealt.equals(assign_folds(table, group_column="patient", **settings_))


@QUICK
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=6, max_size=60),
    st.integers(2, 5),
    st.integers(0, 9),
)
def test_a_class_differs_between_folds_by_its_largest_cluster_at_most(clusters, n_folds, seed):
    """
    Class counts are as even as clusters allow: with pictures on their own, to within one.
    """
    labels = np.concatenate([[label] * size for label, size in clusters])
    numbers = np.repeat(np.arange(len(clusters)), [size for _, size in clusters])

    dealt = assign_folds(make_table(labels, numbers), n_folds=n_folds, seed=seed)

    for label, rows in dealt.groupby("label"):
        counts = np.bincount(rows["fold"], minlength=n_folds)
        assert np.ptp(counts) <= max(size for other, size in clusters if other == label)


@QUICK
@given(st.lists(st.integers(0, 5), min_size=10, max_size=80), st.integers(2, 5))
def test_pictures_on_their_own_are_dealt_to_within_one(labels, n_folds):
    """
    Rare classes too: a class of three is in three different folds.
    """
    dealt = assign_folds(make_table(labels), n_folds=n_folds, seed=0)

    counts = pd.crosstab(dealt["label"], dealt["fold"]).reindex(
        columns=range(n_folds), fill_value=0
    )
    assert np.ptp(counts.to_numpy(), axis=1).max() <= 1
    assert np.ptp(counts.sum().to_numpy()) <= max(1, len(set(labels)))


def test_one_large_cluster_is_made_up_for_by_the_small_ones():
    """
    Five pictures in one cluster and five alone are two folds of five, not of seven and three.
    """
    dealt = assign_folds(make_table([0] * 10, [7] * 5 + [-1] * 5), n_folds=2, seed=0)

    assert sorted(np.bincount(dealt["fold"])) == [5, 5]


def test_a_patient_ties_clusters_and_a_cluster_ties_patients():
    """
    Rows tied only by way of a third row stay together.
    """
    table = make_table([0] * 6, [1, 1, -1, -1, -1, -1], patient=["a", "b", "b", "c", "d", None])

    for seed in range(8):
        dealt = assign_folds(table, n_folds=3, seed=seed, group_column="patient")
        assert len(set(dealt["fold"][:3])) == 1


def test_a_cluster_over_given_splits_goes_to_the_smaller():
    """
    The test set stays whole, and its near-duplicate leaves train.
    """
    table = make_table([0] * 6, [3, -1, -1, -1, 3, -1], split=["train"] * 4 + ["test"] * 2)

    dealt = assign_folds(table, n_folds=2, seed=0)

    assert dealt["split"].tolist() == ["test", "train", "train", "train", "test", "test"]
    assert (dealt["fold"] >= 0).tolist() == [False, True, True, True, False, False]


def test_the_held_out_share_is_that_of_every_class():
    """
    A validation size of 30 % takes 30 of 100 and 6 of 20, and leaves a single picture in train.
    """
    table = make_table([0] * 100 + [1] * 20 + [2])

    dealt = assign_folds(table, n_folds=1, seed=3, validation_size=0.3)

    held_out = dealt[dealt["split"] == "validation"]["label"].value_counts().to_dict()
    assert held_out == {0: 30, 1: 6}
    assert set(dealt["fold"][dealt["split"] == "train"]) == {0}


def test_labels_of_many_are_dealt_evenly_and_by_cluster():
    """
    Of every label each fold has its quarter, within a few, though images have several labels.
    """
    rng = np.random.default_rng(0)
    drawn = (rng.random((800, 4)) < [0.5, 0.2, 0.1, 0.05]).astype("int8")
    marks = pd.DataFrame(drawn, columns=[*"abcd"])
    table = make_table([0] * 800, rng.integers(0, 500, 800)).join(marks)

    dealt = assign_folds(table, n_folds=4, seed=0, label_columns=[*"abcd"])

    shares = dealt.groupby("fold")[[*"abcd"]].sum() / marks.sum()
    assert is_whole(dealt, "cluster")
    assert np.abs(shares - 0.25).max(axis=None) < 0.06
    codes = table.assign(**{name: np.where(marks[name], "1 3", "") for name in "abcd"})
    again = assign_folds(codes, n_folds=4, seed=0, label_columns=[*"abcd"])
    assert again["fold"].equals(dealt["fold"])


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"n_folds": 9}, "N_FOLDS lower"),
        ({"n_folds": 2, "validation_size": 1.0}, "VALIDATION_SIZE is 1.0"),
        ({"n_folds": 2, "group_column": "site"}, "no column 'site'.*GROUP_COLUMN"),
    ],
)
def test_what_cannot_be_dealt_is_refused_by_name(settings_, message):
    """
    The error names the parameter and what to set.
    """
    with pytest.raises(ValueError, match=message):
        assign_folds(make_table([0, 0, 1, 1]), seed=0, **settings_)


def test_one_line_says_which_classes_are_not_in_every_fold():
    """
    The rare class is named, with how many folds there are.
    """
    dealt = assign_folds(make_table([0] * 10 + [1] * 3), n_folds=5, seed=0)

    assert describe_rare_classes(dealt).startswith("1 of 2 classes")
    assert describe_rare_classes(dealt).endswith("5 folds: class 1")
    assert "Every class" in describe_rare_classes(dealt[dealt["label"] == 0])


def test_the_proof_sees_what_is_wrong():
    """
    A cluster over two folds, a skewed class and a pair across folds are each counted.
    """
    table = make_table([0, 0, 1, 1], [5, 5, -1, -1], fold=[0, 1, 0, 1], path=[*"abcd"])
    words = {name: np.uint64([1, 3, 1 << 60, 0]) for name in ("average", "perceptual")}
    words |= {name: np.uint64([0, 0, 2**64 - 1, 2**63]) for name in ("difference", "wavelet")}
    hashes = pd.DataFrame({"path": [*"abcd"], "texture": [9.0, 9, 9, 1], "problem": ""} | words)

    proof = check_leakage(table, hashes=hashes, max_bits=2)

    assert proof["clusters_across_folds"] == 1
    assert proof["max_share_deviation"] == 0
    # a and b are two bits apart, seen from both; d is too flat to tell anything.
    assert proof["sampled_pairs_across_folds"] == 2
    assert check_leakage(table.assign(fold=[0, 0, 1, 1]))["max_share_deviation"] == 0.5
    assert fold_report(table).to_numpy().tolist() == [[1, 1], [1, 1]]


@QUICK
@given(st.lists(st.integers(0, 4), min_size=12, max_size=90), st.integers(1, 5), st.integers(1, 3))
def test_shards_hold_the_same_of_everything_to_within_one(labels, n_shards, n_parts):
    """
    Nothing lost, nothing twice; sizes and class counts of a fold's shards differ by one at most.
    """
    table = assign_folds(make_table(labels), n_folds=2, seed=0)
    numbers = {("train", 0): n_shards, ("train", 1): n_shards}

    dealt = assign_shards(table, numbers, n_parts, seed=1)

    for _, rows in dealt.groupby("fold"):
        sizes = rows["shard"].value_counts()
        assert sorted(sizes.index) == list(range(n_shards))
        assert np.ptp(sizes.to_numpy()) <= 1
        counts = pd.crosstab(rows["label"], rows["shard"]).to_numpy()
        assert np.ptp(counts, axis=1).max() <= 1
        for _, shard in rows.groupby("shard"):
            assert sorted(shard["position"]) == list(range(len(shard)))
            assert len(set(shard["part"])) == 1
    assert dealt["part"].between(1, n_parts).all()
    assert dealt.equals(assign_shards(table, numbers, n_parts, seed=1))


def test_every_part_gets_as_many_shards_of_each_fold():
    """
    Six shards a fold are three for each of two parts, so each part is a small copy of the whole.
    """
    table = assign_folds(make_table([0] * 60), n_folds=3, seed=0)

    dealt = assign_shards(table, {("train", fold): 6 for fold in range(3)}, 2, seed=0)

    shards = dealt.drop_duplicates(["fold", "shard"])
    assert (pd.crosstab(shards["fold"], shards["part"]) == 3).all(axis=None)


def test_more_shards_than_images_is_refused():
    """
    The error names the split, the fold and the parameters to change.
    """
    table = assign_folds(make_table([0] * 4), n_folds=2, seed=0)

    with pytest.raises(ValueError, match="2 images of split 'train', fold 0.*N_SHARDS lower"):
        assign_shards(table, {("train", 0): 3, ("train", 1): 1}, seed=0)


def test_dealing_to_unequal_shares_counts_images_not_clusters():
    """
    Of clusters of three pictures, a quarter of the pictures goes to the small bin.
    """
    from scipy.sparse import csr_matrix

    group = np.repeat(np.arange(40), 3)
    bins = stratified_group_split(
        group, csr_matrix(np.ones((120, 1))), np.array([0.75, 0.25]), seed=0
    )

    assert np.bincount(bins).tolist() == [90, 30]


def test_both_ways_of_dealing_single_pictures_are_as_even(monkeypatch):
    """
    With more classes than StratifiedKFold is asked for, every class is still within one.
    """
    monkeypatch.setattr(folds, "MANY_CLASSES", 2)
    labels = np.repeat(np.arange(30), np.arange(1, 31))

    dealt = assign_folds(make_table(labels), n_folds=4, seed=0)

    counts = pd.crosstab(dealt["label"], dealt["fold"])
    assert np.ptp(counts.to_numpy(), axis=1).max() <= 1
    assert np.ptp(counts.sum().to_numpy()) <= 1
