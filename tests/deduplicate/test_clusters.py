"""Clusters of near-duplicates: which images are kept, and the reason for each."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from support import splits

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.parameters import PARAMETERS

SEEDS = st.integers(0, 2**32 - 1)
KEEP = st.sampled_from(PARAMETERS["KEEP"].choices)
CONFLICTS = st.sampled_from(PARAMETERS["CONFLICTS"].choices)
BEST = "kept: best of its copies"


def make_images(labels, sizes=10, **columns):
    """Return images a, b, c, … with these labels and widths.

    "" and "test" are not labels.
    """
    names = [chr(97 + row) for row in range(len(labels))]
    images = splits.make_images(*["test" if x == "test" else "train" for x in labels])
    images = images.assign(image_id=names, path=names, width=sizes)
    images["label_name"] = pd.Series(labels).replace("test", "")
    named = images["label_name"].replace("", None)
    images["label"] = pd.factorize(named, sort=True)[0]
    return images.assign(**columns)


def make_pairs(*names):
    """Return pairs of rows by the names of their images, such as "ab"."""
    return splits.make_pairs(*[(ord(a) - 97, ord(b) - 97) for a, b in names])


def decide(images, pairs, places=None, **rules):
    """Return the clusters of images that are all near, or at these places."""
    codes = splits.make_codes(*(places or [0] * len(images)))
    return find_clusters(images, pairs, codes, DuplicateSettings(**rules))


def draw_pairs(rng, n_images):
    """Return up to `n_images` different pairs of rows."""
    n_pairs = rng.integers(0, n_images)
    ends = np.sort(rng.integers(0, n_images, (n_pairs, 2)))
    pairs = pd.DataFrame(np.unique(ends, axis=0), columns=["a", "b"])
    return pairs[pairs["a"] < pairs["b"]]


def kept_ids(clusters):
    """Return the ids of the images kept, as one string."""
    return "".join(clusters["image_id"][clusters["keep"]])


def test_the_largest_image_is_kept_whatever_the_order():
    """The distance of the others is that to the image kept."""
    images = make_images(["x"] * 4, [10, 10, 30, 20])

    clusters = decide(images, make_pairs("ab", "bc"), [0, 3, 7, 90])

    assert "".join(clusters["image_id"]) == "abc"
    assert clusters["distance"].tolist() == [7, 4, 0]
    assert clusters["reason"].tolist() == [
        "duplicate",
        "duplicate",
        BEST,
    ]


def test_pixels_then_bytes_then_name_decide():
    """Of images of equal size, the one of more bytes is kept, then the first name."""
    images = make_images(["x"] * 3)
    pairs = make_pairs("ab", "bc")

    assert kept_ids(decide(images[::-1].reset_index(drop=True), pairs)) == "a"
    images.loc[1, "n_bytes"] = 200
    assert kept_ids(decide(images, pairs)) == "b"
    assert kept_ids(decide(images, pairs, keep="first")) == "a"


def test_an_image_of_the_main_source_is_kept_first():
    """The source decides before the size; within a source the size decides."""
    images = make_images(["x"] * 4, [30, 10, 20, 40], source=[1, 0, 0, 2])
    pairs = make_pairs("ab", "bc", "cd")

    assert kept_ids(decide(images, pairs)) == "c"
    assert kept_ids(decide(images, pairs, keep="first")) == "b"


def test_of_a_slow_fade_several_images_are_kept():
    """Each image is within 50 bits of one that is kept; the cluster stays one."""
    images = make_images(["x"] * 20, [*range(20, 0, -1)])
    places = [12 * number for number in range(20)]
    names = [f"{a}{b}" for a, b in pairwise(images["image_id"])]

    clusters = decide(images, make_pairs(*names), places)

    kept = np.array(places)[clusters["keep"]]
    assert kept.tolist() == [0, 60, 120, 180]
    assert clusters["cluster"].unique().tolist() == [0]
    assert set(clusters["reason"]) == {BEST, "duplicate"}
    assert clusters["distance"].max() <= 50


def test_a_far_copy_that_is_confirmed_is_dropped():
    """A crop, by its geometry; also if the image kept has the hash of its original."""
    images = make_images(["x"] * 3, [20, 30, 10])

    assert kept_ids(decide(images, make_pairs("ab", "ac"), [0, 0, 60])) == "b"
    assert kept_ids(decide(images, make_pairs("ab", "ac"), [0, 1, 60])) == "bc"
    assert kept_ids(decide(images, make_pairs("ab", "ac", "bc"), [0, 1, 60])) == "b"


@pytest.mark.parametrize(
    ("labels", "conflicts", "expected"),
    [
        ("rose, tulip, tulip", "drop", ""),
        ("rose, tulip, tulip", "majority", "b"),
        ("rose, tulip, tulip", "keep", "a"),
        ("rose, tulip, lily", "majority", ""),
        ("tulip, tulip, tulip", "drop", "a"),
        ("rose, , rose", "drop", "a"),
    ],
)
def test_conflicts_decides_which_image_of_several_labels_is_kept(
    labels, conflicts, expected
):
    """An image without a label agrees with all images."""
    images = make_images(labels.split(", "), [30, 20, 10])

    clusters = decide(images, make_pairs("ab", "bc"), conflicts=conflicts)

    assert kept_ids(clusters) == expected
    is_conflict = clusters["reason"] == "conflict"
    assert is_conflict.any() == (clusters["conflict"].any() and conflicts != "keep")


@settings(max_examples=12)
@given(SEEDS, KEEP, CONFLICTS)
def test_every_cluster_keeps_at_most_one_image_unless_all_are_kept(
    seed, keep, conflicts
):
    """Any pairs and labels: one image is kept, or none after a conflict."""
    rng = np.random.default_rng(seed)
    images = make_images(rng.choice(list("xyz"), 300).tolist())
    pairs = draw_pairs(rng, 300)

    clusters = decide(images, pairs, keep=keep, conflicts=conflicts)

    cluster = clusters["cluster"]
    assert (cluster[pairs["a"]].to_numpy() == cluster[pairs["b"]].to_numpy()).all()
    numbers = cluster.drop_duplicates().tolist()
    assert numbers == list(range(len(numbers)))
    for _, members in clusters.groupby("cluster"):
        is_conflict = len(set(members["label_name"])) > 1
        assert members["conflict"].all() == is_conflict
        most = len(members) if keep == "all" else 1
        n_kept = members["keep"].sum()
        if is_conflict and conflicts != "keep":
            assert n_kept <= most
        else:
            assert n_kept == most
    assert (clusters["reason"].str.startswith("kept: ") == clusters["keep"]).all()


@settings(max_examples=12)
@given(SEEDS, KEEP, CONFLICTS)
def test_labelled_images_are_resolved_as_if_there_were_no_test_images(
    seed, keep, conflicts
):
    """The labelled images kept are those of clusters of direct pairs between them."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["x", "y", "test"], 200).tolist()
    images = make_images(labels, rng.integers(5, 9, 200))
    rules = {"keep": keep, "conflicts": conflicts}

    clusters = decide(images, draw_pairs(rng, 200), **rules)

    is_test = clusters["split"] == "test"
    assert clusters["keep"][is_test].all()
    assert not clusters["conflict"][is_test].any()
    labelled = images[images["split"] != "test"].reset_index(drop=True)
    row = pd.Series(labelled.index, labelled["image_id"])
    ends = []
    single = []
    for _, ids in clusters[~is_test].groupby("cluster")["image_id"]:
        ends += pairwise(row[ids])
        if len(ids) == 1:
            single += ids.tolist()
    pairs = pd.DataFrame(ends, columns=["a", "b"], dtype=int)
    direct = decide(labelled, pairs, **rules)
    expected = [*single, *direct["image_id"][direct["keep"]]]
    found = clusters["image_id"][clusters["keep"] & ~is_test]
    assert sorted(found) == sorted(expected)
