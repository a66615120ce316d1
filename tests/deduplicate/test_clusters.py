"""Clusters of near-duplicates: which images are kept, and the reason for each."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from support.splits import decide, make_codes, make_images, make_pairs

from kaggle_tfr.deduplicate.clusters import find_leaks
from kaggle_tfr.parameters import PARAMETERS

KEEP = st.sampled_from(PARAMETERS["KEEP"].choices)
CONFLICTS = st.sampled_from(PARAMETERS["CONFLICTS"].choices)
BEST = "kept: best of its copies"
THREE = ["train"] * 3


def list_kept(clusters):
    """Return the rows of the images kept."""
    return clusters.index[clusters["keep"]].tolist()


def test_the_largest_image_is_kept_whatever_the_order():
    """The distance of the others is that to the image kept."""
    images = make_images(*THREE, "train", width=[10, 10, 30, 20])

    clusters = decide(images, make_pairs("01", "12"), [0, 3, 7, 90])

    assert clusters["image_id"].tolist() == ["tr0", "tr1", "tr2"]
    assert clusters["distance"].tolist() == [7, 4, 0]
    assert clusters["reason"].tolist() == ["duplicate", "duplicate", BEST]


def test_pixels_then_bytes_then_name_decide():
    """Of images of equal size, the one of more bytes is kept, then the first name."""
    images = make_images(*THREE, image_id=["c", "b", "a"])
    pairs = make_pairs("01", "12")

    assert list_kept(decide(images, pairs)) == [2]
    images.loc[1, "n_bytes"] = 200
    assert list_kept(decide(images, pairs)) == [1]
    images.loc[2, "height"] = 11
    assert list_kept(decide(images, pairs)) == [2]
    assert list_kept(decide(images, pairs, keep="first")) == [0]


def test_an_image_of_the_main_source_is_kept_first():
    """The source decides before the size; within a source the size decides."""
    images = make_images(*THREE, "train", width=[30, 10, 20, 40], source=[1, 0, 0, 2])
    pairs = make_pairs("01", "12", "23")

    assert list_kept(decide(images, pairs)) == [2]
    assert list_kept(decide(images, pairs, keep="first")) == [1]


def test_of_a_slow_fade_several_images_are_kept():
    """Each image is within 50 bits of one that is kept; the cluster stays one."""
    places = range(0, 252, 10)
    numbers = range(len(places))
    images = make_images(*["train"] * len(places), width=numbers[::-1])

    clusters = decide(images, make_pairs(*pairwise(numbers)), places)

    assert list_kept(clusters) == [0, 6, 12, 18, 24]
    assert clusters["cluster"].unique().tolist() == [0]
    assert set(clusters["reason"]) == {BEST, "duplicate"}
    assert clusters["distance"].max() == 50


def test_a_far_copy_that_is_confirmed_is_dropped():
    """A crop, by its geometry; also if the image kept has the hash of its original."""
    images = make_images(*THREE, width=[20, 30, 10])
    pairs = make_pairs("01", "02")

    assert list_kept(decide(images, pairs, [0, 0, 60])) == [1]
    assert list_kept(decide(images, pairs, [0, 1, 60])) == [1, 2]
    pairs = make_pairs("01", "02", "12")
    assert list_kept(decide(images, pairs, [0, 1, 60])) == [1]
    # Two equal crops, of which only the first has been compared with others.
    pairs = make_pairs("01", "02")
    assert list_kept(decide(images, pairs, [60, 0, 60])) == [1]


@pytest.mark.parametrize(
    ("labels", "conflicts", "kept"),
    [
        ([0, 1, 1], "drop", []),
        ([0, 1, 1], "majority", [1]),
        ([0, 1, 1], "keep", [0]),
        ([0, 1, 2], "majority", []),
        ([1, 1, 1], "drop", [0]),
        ([0, -1, 0], "drop", [0]),
    ],
)
def test_conflicts_decides_which_image_of_several_labels_is_kept(
    labels, conflicts, kept
):
    """An image without a label agrees with all images."""
    images = make_images(*THREE, width=[30, 20, 10], label=labels)

    clusters = decide(images, make_pairs("01", "12"), conflicts=conflicts)

    assert list_kept(clusters) == kept
    is_conflict = clusters["reason"] == "conflict"
    assert is_conflict.any() == (clusters["conflict"].any() and conflicts != "keep")


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), KEEP, CONFLICTS)
def test_every_cluster_keeps_at_most_one_image_unless_all_are_kept(
    seed, keep, conflicts
):
    """Any pairs and labels: one labelled image is kept, or none after a conflict.

    Test images connect clusters and are kept, but decide nothing: the labelled images
    of a cluster have the same fate if they are connected directly.
    """
    rng = np.random.default_rng(seed)
    splits = rng.choice(["train", "train", "test"], 300)
    label = np.where(splits == "test", -1, rng.integers(0, 3, 300))
    images = make_images(*splits, label=label, width=rng.integers(5, 9, 300))
    ends = rng.integers(0, 300, (rng.integers(0, 300), 2))
    pairs = make_pairs(*[pair for pair in ends if pair[0] != pair[1]])
    rules = {"keep": keep, "conflicts": conflicts}

    clusters = decide(images, pairs, **rules)

    cluster = clusters["cluster"]
    assert cluster[pairs["a"]].tolist() == cluster[pairs["b"]].tolist()
    assert cluster.unique().tolist() == [*range(cluster.nunique())]
    is_test = clusters["split"] == "test"
    assert clusters["keep"][is_test].all()
    assert not clusters["conflict"][is_test].any()

    labelled = clusters[~is_test]
    direct = []
    for _, members in labelled.groupby("cluster"):
        direct += pairwise(members.index)
        is_conflict = len(set(images["label"][members.index])) > 1
        assert members["conflict"].all() == is_conflict
        most = len(members) if keep == "all" else 1
        n_kept = members["keep"].sum()
        if is_conflict and conflicts != "keep":
            assert n_kept <= most
        else:
            assert n_kept == most
    is_kept = labelled["reason"].str.startswith("kept: ")
    assert is_kept.equals(labelled["keep"])
    by_labelled = decide(images, make_pairs(*direct), **rules)
    dropped = clusters["image_id"][~clusters["keep"]]
    assert dropped.equals(by_labelled["image_id"][~by_labelled["keep"]])


LEAK = ["image_id_a", "split_a", "image_id", "split", "distance", "keep"]


def test_a_leak_has_its_images_in_the_order_of_their_splits():
    """test_id is the image of the later split; keep is the outcome of the other one."""
    images = make_images("train", "validation", "test", "train")
    places = (0, 5, 11, 90)
    clusters = decide(images, make_pairs("01", "12"), places, keep="first")

    leaks = find_leaks(clusters, make_codes(*places))

    assert leaks[LEAK].to_numpy().tolist() == [
        ["va1", "validation", "tr0", "train", 5, True],
        ["te2", "test", "va1", "validation", 6, False],
        ["te2", "test", "tr0", "train", 11, True],
    ]


def test_twenty_thousand_blank_pages_are_not_a_hundred_million_leaks():
    """Each image is listed with the first image of the other split alone."""
    images = make_images(*["test", "train"] * 10_000)
    star = pd.DataFrame({"a": 0, "b": range(1, 20_000)})

    leaks = find_leaks(decide(images, star), make_codes(*[0] * 20_000))

    assert len(leaks) == 19_999
    assert set(leaks["image_id_a"][leaks["image_id"] != "tr1"]) == {"te0"}
