import sys

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings
from scipy.sparse import csr_matrix

from kaggle_tfr.plan.fold_checks import (
    check_leakage,
    compare_shares,
    find_missing_classes,
)
from kaggle_tfr.plan.folds import (
    assign_folds,
    assign_shards,
    count_moved,
    describe_moved,
    stratified_group_split,
)

QUICK = settings(max_examples=25, deadline=None)


def make_table(labels, clusters=-1, **columns):
    table = pd.DataFrame({"label": labels, "split": "train"}).assign(
        cluster=clusters, **columns
    )
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
    source = (rng.random(n) < draw(st.sampled_from([0, 0.1]))).astype(int)
    return make_table(labels, clusters, patient=groups, split=split, source=source)


def is_whole(table, column):
    rows = table[
        table[column].notna() & (table[column] != -1) & (table["split"] != "test")
    ]
    return rows.groupby(column)[["split", "fold"]].nunique().eq(1).all(axis=None)


@settings(max_examples=15, deadline=None)
@given(
    tables(),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3]),
    st.integers(0, 9),
    st.booleans(),
)
def test_no_cluster_and_no_group_is_ever_split(
    table, n_folds, validation_size, seed, extra
):
    """Whatever the labels, clusters, patients and folds: no row lost, none of a kind apart."""
    same = {"n_folds": n_folds, "seed": seed, "validation_size": validation_size}
    same |= {"group_column": "patient", "extra_in_validation": extra}
    try:
        folded = assign_folds(table, **same)
    except ValueError:
        reject()  # too few clusters for so many folds

    assert folded.drop(columns=["split", "fold"]).equals(table.drop(columns="split"))
    assert all(is_whole(folded, column) for column in ("cluster", "patient"))
    assert ((folded["split"] == "test") == (table["split"] == "test")).all()
    train, validates = folded["split"] == "train", folded["fold"] >= 0
    assert not (validates & ~train).any()
    if extra or n_folds == 1 or not table["source"].any():
        assert (validates == train).all()
    if not extra:
        kept = folded[(folded["source"] > 0) & (folded["split"] != "test")]
        assert (kept["split"] == "train").all()
        assert set(kept["fold"]) <= {0 if n_folds == 1 else -1}
    assert folded["fold"].max() < n_folds
    leakage = check_leakage(folded, group_column="patient")
    assert leakage["clusters_across_folds"] == leakage["groups_across_folds"] == 0
    assert folded.equals(assign_folds(table, **same))


def clustered(seed, n, largest):
    """(table of one-class clusters, largest cluster of each class)."""
    rng = np.random.default_rng(seed)
    labels, sizes = (
        rng.integers(0, rng.integers(1, 30), n),
        rng.integers(1, largest + 1, n),
    )
    table = make_table(np.repeat(labels, sizes), np.repeat(np.arange(n), sizes))
    return table, pd.Series(sizes).groupby(labels).max()


@QUICK
@pytest.mark.parametrize("largest", [1, 5])
@given(st.integers(6, 60), st.integers(2, 5), st.integers(0, 99))
def test_a_class_differs_between_folds_by_its_largest_cluster_at_most(
    largest, n, n_folds, seed
):
    """Class counts are as even as clusters allow; without clusters, these and all to within one."""
    table, largest_of = clustered(seed, n, largest)
    folded = assign_folds(table, n_folds=n_folds, seed=seed)

    count = (
        pd.crosstab(folded["label"], folded["fold"])
        .reindex(columns=range(n_folds))
        .fillna(0)
    )
    assert (np.ptp(count, axis=1) <= largest_of).all()
    assert largest > 1 or np.ptp(count.sum()) <= 1


@QUICK
@pytest.mark.parametrize("largest", [1, 5])
@given(st.integers(6, 200), st.sampled_from([0.02, 0.1, 0.3, 0.7]), st.integers(0, 99))
def test_what_is_held_out_is_what_was_asked_within_one(largest, n, share, seed):
    """In all, of a class, and of all classes of one size: within one image, or cluster."""
    table, _ = clustered(seed, n, largest)
    folded = assign_folds(table, n_folds=1, seed=seed, validation_size=share)

    held_out, of_class = (
        folded["split"] == "validation",
        table.groupby("label")["label"],
    )
    off = (held_out - share).groupby(table["label"]).sum()
    assert abs(off.sum()) <= largest + 1e-9
    assert (off.abs() <= largest).all()
    if largest == 1:
        assert (off.groupby(of_class.size()).sum().abs() < 1 + 1e-9).all()


def test_each_image_is_held_out_by_chance():
    """Of ten images of a class each, two or three; over many seeds each in a quarter of all."""
    rules = {"n_folds": 1, "validation_size": 0.25}
    folded = [
        assign_folds(make_table(range(10)), seed=seed, **rules) for seed in range(100)
    ]
    held_out = np.array([table["split"] == "validation" for table in folded])
    assert set(held_out.sum(axis=1)) == {2, 3}
    # Five standard deviations about 25 of 100.
    assert np.abs(held_out.sum(axis=0) - 25).max() < 22


def test_folds_do_not_repeat_the_draw_of_what_is_held_out():
    """With one seed, half of the images held out and one of two folds are two different draws."""
    table = make_table([0] * 200)
    held_out = (
        assign_folds(table, n_folds=1, seed=0, validation_size=0.5)["split"]
        == "validation"
    )
    second_fold = assign_folds(table, n_folds=2, seed=0)["fold"] == 1
    assert held_out.sum() == second_fold.sum() == 100
    # Five standard deviations about 50 of 100.
    assert abs((held_out & second_fold).sum() - 50) < 18


def test_every_band_of_a_long_tail_has_its_share():
    """20,000 images, most of them in classes of 2 to 25: each band within 10 %, all within one."""
    rng = np.random.default_rng(0)
    sizes = rng.permutation(
        np.repeat([1, 3, 9, 20, 70, 700], [200, 1500, 500, 300, 40, 3])
    )
    table = make_table(np.repeat(np.arange(len(sizes)), sizes))
    held_out = assign_folds(table, n_folds=1, seed=1, validation_size=0.05)
    shares = compare_shares(table, held_out, 0.05)
    assert shares["classes"].tolist() == [200, 1500, 800, 40, 3, 2543]
    assert shares["images"].tolist() == [200, 4500, 10_500, 2800, 2100, 20_100]
    assert shares["asked"].tolist() == [10, 225, 525, 140, 105, 1005]
    assert ((shares["validation"] / shares["asked"]).sub(1).abs() < 0.1).all()
    assert abs(shares.loc["all", "validation"] - 1005) <= 1
    other = assign_folds(table, n_folds=1, seed=2, validation_size=0.05)
    small = table["label"].map(table["label"].value_counts()) <= 5
    chosen = [
        set(t["label"][small & (t["split"] == "validation")]) for t in (held_out, other)
    ]
    assert len(chosen[0] & chosen[1]) < len(chosen[0]) / 2

    shares = compare_shares(table, assign_folds(table, n_folds=5, seed=1))
    assert list(shares) == [
        "classes",
        "images",
        *(f"fold {n}" for n in range(5)),
        "in every fold",
    ]
    assert shares.filter(like="fold ").sub(0.2).abs().max(axis=None) < 0.005
    assert shares["in every fold"].tolist() == [0, 0, 800, 40, 3, 843]


def test_classes_that_a_fold_or_validation_lacks_are_named_with_their_images():
    """Test images and images without a label do not count; other sources count for train only."""
    rows = [(0, "train", 0), (0, "train", 1), (0, "validation", -1), (1, "train", 1),
            (1, "train", 1), (1, "train", -1), (2, "validation", -1), (3, "test", -1),
            (-1, "train", 0), (1, "test", -1)]  # fmt: skip
    label, split, fold = zip(*rows, strict=True)
    folded = make_table(label, split=split, fold=fold)
    missing = find_missing_classes(folded)
    assert missing.to_dict("records") == [
        {"class": "class 1", "images": 3, "missing_from": "fold 0, validation"},
        {"class": "class 2", "images": 1, "missing_from": "train"},
    ]
    marks = folded.assign(ship=["1 3", "", *[""] * 8], oil=[1, 0, 1, 1, *[0] * 6])
    missing = find_missing_classes(marks, label_columns=["ship", "oil"])
    assert missing.to_dict("records") == [
        {"class": "ship", "images": 1, "missing_from": "fold 1, validation"}
    ]
    # Nobody validates on classes where neither folds nor a validation split were made.
    assert find_missing_classes(folded[folded["split"] == "train"].assign(fold=0)).empty


def test_single_images_balance_one_large_cluster():
    """Five pictures in one cluster and five alone are two folds of five, not of seven and three."""
    folded = assign_folds(make_table([0] * 10, [7] * 5 + [-1] * 5), n_folds=2, seed=0)
    assert sorted(np.bincount(folded["fold"])) == [5, 5]


def test_a_cluster_over_given_splits_goes_to_the_smaller():
    """The given validation set stays whole, and its near-duplicate leaves train."""
    split = ["train"] * 4 + ["validation"] * 2
    folded = assign_folds(
        make_table([0] * 6, [3, -1, -1, -1, 3, -1], split=split), n_folds=2, seed=0
    )
    assert folded["split"].tolist() == ["validation", *split[1:]]


def test_images_that_leave_their_given_split_are_counted_by_direction():
    """By clusters and groups, but not what VALIDATION_SIZE holds out, nor test images."""
    split = ["train"] * 6 + ["validation"] * 3 + ["test"] * 2
    table = make_table([0] * 11, [3, 3, -1, -1, 4, -1, 3, -1, 5, 4, 5], split=split)
    table["site"] = [*"abcdefgh", "d", "j", "k"]
    rules = {"n_folds": 1, "seed": 0, "group_column": "site"}
    moved = count_moved(table, group_column="site")
    assert moved.to_numpy().tolist() == [["train", "validation", 3]]
    folded = assign_folds(table, **rules)
    assert (folded["split"] != table["split"]).sum() == 3
    held_out = assign_folds(table, validation_size=0.5, **rules)
    assert (held_out["split"] != table["split"]).sum() > 3
    assert describe_moved(moved) == (
        "Images move to the split of other images of their cluster or group: "
        "3 from train to validation."
    )
    assert describe_moved(count_moved(table.assign(cluster=-1))).startswith(
        "Every image stays"
    )


@pytest.mark.parametrize("column", ["cluster", "patient"])
def test_test_images_stay_in_test_and_pull_no_other_row(column):
    """A cluster or group over test and train leaves both where they are, and train's together."""
    split = ["test"] * 4 + ["train"] * 8
    table = make_table([-1] * 4 + [0] * 8, split=split).assign(
        **{column: [5, 5, 6, -1] * 3}
    )
    folded = assign_folds(
        table, n_folds=2, seed=0, group_column="patient" * (column != "cluster")
    )
    assert folded["split"].tolist() == split
    assert folded["fold"][:4].tolist() == [-1] * 4
    assert folded["fold"][4:].between(0, 1).all()
    assert is_whole(folded, column)
    shards = {("test", -1): 2, ("train", 0): 1, ("train", 1): 1}
    planned = assign_shards(folded, shards, 1, seed=0)
    assert sorted(planned["shard"][:4]) == [0, 0, 1, 1]


def test_other_sources_never_validate_unless_asked():
    """Their images, and a cluster with one of them, train in every fold; shares are of others."""
    table = make_table([0] * 40, source=[0] * 30 + [1] * 10)
    table.loc[[0, 1, 30], "cluster"] = 7
    rules = {"n_folds": 4, "seed": 0, "validation_size": 0.25}
    folded = assign_folds(table, **rules)
    assert (folded["split"] == "validation").sum() == 7
    always = folded[(folded["split"] == "train") & (folded["fold"] == -1)]
    assert always.index.tolist() == [0, 1, *range(30, 40)]
    shares = compare_shares(table, folded, 0.25)
    assert shares.loc["all", ["images", "asked", "validation"]].tolist() == [28, 7, 7]
    assert assign_folds(table, n_folds=1, seed=0)["fold"].tolist() == [0] * 40

    folded = assign_folds(table, extra_in_validation=True, **rules)
    assert (folded["split"] == "validation").sum() == 10
    assert (folded["fold"][folded["split"] == "train"] >= 0).all()
    with pytest.raises(ValueError, match=r"0 clusters.*EXTRA_IN_VALIDATION"):
        assign_folds(table.assign(source=1), n_folds=4, seed=0)


def test_the_held_out_share_is_that_of_every_class():
    """A validation size of 30 % takes 30 of 100 and 6 of 20."""
    folded = assign_folds(
        make_table([0] * 100 + [1] * 20), n_folds=1, seed=3, validation_size=0.3
    )
    held_out = folded[folded["split"] == "validation"]["label"].value_counts().to_dict()
    assert held_out == {0: 30, 1: 6}
    assert set(folded["fold"][folded["split"] == "train"]) == {0}


def test_without_iterative_stratification_only_several_labels_say_what_to_attach(
    monkeypatch,
):
    """Kaggle's image has none: one label an image does without, several name the way out."""
    monkeypatch.setitem(sys.modules, "iterstrat.ml_stratifiers", None)
    labels, shares = csr_matrix(np.eye(3)[np.arange(30) % 3]), np.full(3, 1 / 3)
    bins = stratified_group_split(np.arange(30), labels, shares, 0)
    assert np.bincount(bins).tolist() == [10, 10, 10]
    with pytest.raises(ImportError, match=r"iterative-stratification.*docs/kaggle\.md"):
        stratified_group_split(np.arange(30), labels, shares, 0, multilabel=True)


def test_multi_label_images_are_spread_evenly_and_by_cluster():
    """Of every label each fold has its quarter, within a few, though images have several labels."""
    rng = np.random.default_rng(0)
    drawn = (rng.random((800, 4)) < [0.5, 0.2, 0.1, 0.05]).astype("int8")
    marks = pd.DataFrame(drawn, columns=[*"abcd"])
    table = make_table([0] * 800, rng.integers(0, 500, 800)).join(marks)
    codes = table.assign(**{name: np.where(marks[name], "1 3", "") for name in "abcd"})
    same = {"seed": 0, "label_columns": [*"abcd"]}
    folded = assign_folds(table, n_folds=4, **same)
    held_out = (
        assign_folds(table, n_folds=1, validation_size=0.3, **same)["split"]
        == "validation"
    )

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
    ],
)
def test_impossible_folds_name_the_parameter(settings_, message):
    """The error contains the parameter's value or name, and what to set."""
    table = make_table([0, 0, 1, 1])

    with pytest.raises(ValueError, match=message):
        assign_folds(table, seed=0, **settings_)


def test_the_leakage_check_counts_what_is_wrong():
    """A cluster over two folds, a skewed class, a pair across folds; test images' apart."""
    table = make_table([0, 0, 1, 1], [5, 5, -1, -1], fold=[0, 1, 0, 1], path=[*"abcd"])
    words = {name: np.uint64([1, 3, 1 << 60, 0]) for name in ("average", "perceptual")}
    words |= {
        name: np.uint64([0, 0, 2**64 - 1, 2**63]) for name in ("difference", "wavelet")
    }
    hashes = pd.DataFrame(
        {"path": [*"abcd"], "texture": [9.0, 9, 9, 1], "problem": ""} | words
    )

    # a and b are two bits apart, seen from both; d is too flat to tell anything.
    wrong = "leak into one another: clusters_across_folds 1, sampled_pairs_across_folds 2. Run 02_d"
    with pytest.raises(ValueError, match=wrong):
        check_leakage(table, hashes=hashes, max_bits=2)
    together = table.assign(fold=[0, 0, 1, 1])
    leakage = check_leakage(together, hashes=hashes, max_bits=2)
    assert leakage["clusters_across_test"] == leakage["sampled_pairs_with_test"] == 0
    assert leakage["max_share_deviation"] == 0.5
    assert check_leakage(table.assign(cluster=-1))["max_share_deviation"] == 0

    tests = table.assign(split=["train", "test", "train", "test"], fold=[0, -1, 1, -1])
    leakage = check_leakage(tests, hashes=hashes, max_bits=2)
    assert (
        leakage["clusters_across_folds"] == leakage["sampled_pairs_across_folds"] == 0
    )
    assert leakage["clusters_across_test"] == 1
    assert leakage["sampled_pairs_with_test"] == 2


@QUICK
@given(
    st.lists(st.integers(0, 4), min_size=12, max_size=60),
    st.integers(1, 5),
    st.integers(1, 3),
)
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
@pytest.mark.parametrize(
    "clusters", [-1, np.arange(200) // 10 * 5 + np.arange(200) % 5]
)
def test_a_single_label_column_is_stratified_by_yes_and_no(yes, no, clusters):
    """Of 40 ships in 200 pictures each of five folds has eight, and the held-out 20 % too."""
    ships = np.where(np.arange(200) % 5 == 0, yes, no)
    table = make_table([0] * 200, clusters, ship=ships)
    same = {"seed": 0, "label_columns": ["ship"]}
    folded = assign_folds(table, n_folds=5, **same)
    held_out = assign_folds(table, n_folds=1, validation_size=0.2, **same)

    assert (
        pd.crosstab(folded["ship"], folded["fold"]).to_numpy() == [[32] * 5, [8] * 5]
    ).all()
    assert (held_out["split"] == "validation").groupby(ships).sum().tolist() == [32, 8]
