"""Clusters of near-duplicates: which images are kept, and the reason for each."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from scipy.cluster.hierarchy import DisjointSet

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.parameters import PARAMETERS

SEEDS = st.integers(0, 2**32 - 1)
KEEP = st.sampled_from(PARAMETERS["KEEP"].choices)
CONFLICTS = st.sampled_from(PARAMETERS["CONFLICTS"].choices)


def make_images(labels, sizes=10, **columns):
    """Return images a, b, c, … with these labels and widths.

    "" and "test" are not labels.
    """
    names = [chr(97 + row) for row in range(len(labels))]
    images = pd.DataFrame(
        {
            "image_id": names,
            "path": names,
            "label_name": labels,
            "width": sizes,
            "height": 10,
            "n_bytes": 1000,
            "problem": "",
        }
    )
    is_test = images["label_name"] == "test"
    images["split"] = np.where(is_test, "test", "train")
    images["label_name"] = images["label_name"].replace("test", "")
    named = images["label_name"].replace("", None)
    images["label"] = pd.factorize(named, sort=True)[0]
    return images.assign(**columns)


def make_pairs(**bits):
    """Return pairs of rows by the names of their images: ab=3 is a and b, 3 bits."""
    rows = [(ord(a) - 97, ord(b) - 97) for a, b in bits]
    pairs = pd.DataFrame(
        rows,
        columns=["a", "b"],
        dtype=int,
    )
    pairs["distance"] = list(bits.values())
    return pairs


def draw_pairs(rng, n_images):
    """Return up to `n_images` different pairs of rows, 0 to 29 bits apart."""
    n_pairs = rng.integers(0, n_images)
    ends = np.sort(rng.integers(0, n_images, (n_pairs, 2)))
    pairs = pd.DataFrame(
        np.unique(ends, axis=0),
        columns=["a", "b"],
    )
    pairs["distance"] = pairs.sum(axis=1) % 30
    return pairs[pairs["a"] < pairs["b"]]


def kept_ids(clusters):
    """Return the ids of the images kept, as one string."""
    return "".join(clusters["image_id"][clusters["keep"]])


def test_the_largest_image_is_kept_whatever_the_order():
    """The two smaller copies name the image kept, and the way to it."""
    images = make_images(
        ["x"] * 4,
        [10, 10, 30, 20],
    )
    pairs = make_pairs(ab=3, bc=4)

    clusters = find_clusters(images, pairs)

    assert "".join(clusters["image_id"]) == "abc"
    assert clusters["distance"].tolist() == [3, 4, 0]
    assert clusters["steps"].tolist() == [2, 1, 0]
    assert clusters["reason"].tolist() == [
        "duplicate of c by way of b",
        "duplicate of c",
        "kept: largest of 3",
    ]


def test_pixels_then_bytes_then_name_decide():
    """Of images of equal size, the one of more bytes is kept, then the first name."""
    images = make_images(["x"] * 3)
    pairs = make_pairs(ab=0, bc=0)

    assert kept_ids(find_clusters(images.iloc[::-1], pairs)) == "a"
    images.loc[1, "n_bytes"] = 2000
    assert kept_ids(find_clusters(images, pairs)) == "b"
    assert kept_ids(find_clusters(images, pairs, keep="first")) == "a"


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
    pairs = make_pairs(ab=2, bc=2)

    clusters = find_clusters(images, pairs, conflicts=conflicts)

    assert kept_ids(clusters) == expected


@pytest.mark.parametrize("conflicts", ["drop", "majority"])
def test_the_reason_of_a_conflict_names_all_labels_of_the_cluster(conflicts):
    """The reason is the same whether the labels tie or one has the majority."""
    images = make_images(
        ["rose", "tulip", "tulip", "lily", "rose"],
        [9, 8, 7, 6, 5],
    )
    pairs = make_pairs(ab=2, bc=2, de=2)

    clusters = find_clusters(images, pairs, conflicts=conflicts)

    reason = clusters.set_index("image_id")["reason"]
    assert reason["a"] == "conflict: rose, tulip"
    assert set(reason[["d", "e"]]) == {"conflict: lily, rose"}


def test_a_chain_far_beyond_the_radius_is_flagged():
    """In a row of five similar images, the last is four steps from the one kept."""
    images = make_images(["x"] * 8)
    pairs = make_pairs(ab=20, bc=20, cd=20, de=20, fg=20, gh=20)

    clusters = find_clusters(images, pairs)

    assert clusters["steps"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert clusters["chain"].tolist() == [True] * 5 + [False] * 3


def test_equal_hashes_are_no_step():
    """A pair without a distance adds no step, but a direct pair is preferred to it."""
    images = make_images(["x"] * 3, [30, 20, 10])
    pairs = make_pairs(ab=3, ac=5, bc=0)

    clusters = find_clusters(images, pairs)
    clusters_without_direct_pair = find_clusters(images, pairs.drop(1))

    assert clusters["steps"].tolist() == [0, 1, 1]
    assert clusters["distance"].tolist() == [0, 3, 5]
    assert clusters_without_direct_pair["steps"].tolist() == [0, 1, 1]
    assert clusters_without_direct_pair["distance"].tolist() == [0, 3, 0]


def test_without_pairs_the_table_is_empty_and_has_the_same_columns():
    """It has no rows, as of a dataset without near-duplicates."""
    images = make_images(["x"] * 4)

    clusters = find_clusters(images, make_pairs(ab=60))
    no_clusters = find_clusters(images, make_pairs())

    assert no_clusters.empty
    assert list(no_clusters) == list(clusters)


def test_an_unknown_rule_is_an_error_that_names_the_parameter():
    """The error also lists the values that are allowed."""
    with pytest.raises(ValueError, match=r"KEEP is 'biggest'\..*It can be"):
        find_clusters(make_images(["x"]), make_pairs(), keep="biggest")


@settings(max_examples=12)
@given(SEEDS, KEEP, CONFLICTS)
def test_every_cluster_keeps_at_most_one_image_unless_all_are_kept(
    seed, keep, conflicts
):
    """Any pairs and labels: one image of a cluster is kept, or none after a conflict.

    Clusters are the connected components that SciPy's DisjointSet finds.
    """
    rng = np.random.default_rng(seed)
    images = make_images(rng.choice(list("xyz"), 300).tolist())
    pairs = draw_pairs(rng, 300)

    clusters = find_clusters(images, pairs, keep=keep, conflicts=conflicts)

    sets = DisjointSet(images["image_id"])
    for a, b in pairs[["a", "b"]].to_numpy():
        sets.merge(
            images["image_id"][a],
            images["image_id"][b],
        )
    expected = sorted(sorted(ids) for ids in sets.subsets() if len(ids) > 1)
    found = clusters.groupby("cluster")["image_id"].apply(sorted)
    assert sorted(found) == expected
    numbers = clusters["cluster"].drop_duplicates()
    assert numbers.tolist() == list(range(len(expected)))

    for _, members in clusters.groupby("cluster"):
        is_conflict = len(set(members["label_name"])) > 1
        assert members["conflict"].all() == is_conflict
        most = len(members) if keep == "all" else 1
        n_kept = members["keep"].sum()
        if is_conflict and conflicts != "keep":
            assert n_kept <= most
        else:
            assert n_kept == most
    reason = clusters["reason"]
    assert reason.str.match("kept: |duplicate of |conflict: ").all()
    assert (reason.str.startswith("kept: ") == clusters["keep"]).all()


def test_a_test_image_is_kept_and_drops_no_labelled_image():
    """The best labelled image is kept beside it, and its label has no vote."""
    images = make_images(["rose", "test", "rose", "test", "test", "rose", "test"])
    images.loc[[1, 2], "width"] = 40, 20
    images.loc[[1, 6], "label"] = 7  # as class folders of a test split have them
    pairs = make_pairs(ab=9, bc=8, de=1, fg=2)

    clusters = find_clusters(images, pairs)

    assert clusters["cluster"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert kept_ids(clusters) == "bcdefg"
    assert not clusters["conflict"].any()
    is_test = clusters["split"] == "test"
    assert set(clusters["reason"][is_test]) == {"test image: always kept"}
    assert clusters["reason"][~is_test].tolist() == [
        "duplicate of c by way of b",
        "kept: largest of 2",
        "kept: the only labelled image",
    ]


def test_the_last_image_after_overrides_is_not_the_largest_of_one():
    """The reason is that the user dropped the others."""
    clusters = find_clusters(
        make_images(["rose"] * 2), make_pairs(ab=2), dropped_rows=[0]
    )
    assert clusters["reason"].tolist() == [
        "override: dropped",
        "kept: the others are dropped by overrides",
    ]


@settings(max_examples=12)
@given(SEEDS, KEEP, CONFLICTS)
def test_labelled_images_are_resolved_as_if_there_were_no_test_images(
    seed, keep, conflicts
):
    """The labelled images kept are those of clusters of direct pairs between them."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["x", "y", "test"], 200).tolist()
    images = make_images(labels, rng.integers(5, 9, 200))
    pairs = draw_pairs(rng, 200)
    rules = {"keep": keep, "conflicts": conflicts}

    clusters = find_clusters(images, pairs, **rules)

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
    direct_pairs = pd.DataFrame(
        ends,
        columns=["a", "b"],
        dtype=int,
    )
    direct = find_clusters(labelled, direct_pairs.assign(distance=1), **rules)
    expected = [*single, *direct["image_id"][direct["keep"]]]
    found = clusters["image_id"][clusters["keep"] & ~is_test]
    assert sorted(found) == sorted(expected)


def test_an_image_of_the_main_source_is_kept_first():
    """The source decides before the size; within a source the size decides."""
    images = make_images(
        ["x"] * 4,
        [30, 10, 20, 40],
        source=[1, 0, 0, 2],
    )
    pairs = make_pairs(ab=1, bc=1, cd=1)

    assert kept_ids(find_clusters(images, pairs)) == "c"
    assert kept_ids(find_clusters(images, pairs, keep="first")) == "b"


def test_conflicts_between_sources_name_the_sources():
    """The reason contains the source of each label, and no image without a label."""
    images = make_images(
        ["rose", "tulip", ""],
        source=[0, 1, 1],
    )

    clusters = find_clusters(images, make_pairs(ab=4, bc=5))

    reason = "conflict: rose (source 0), tulip (source 1)"
    assert set(clusters["reason"]) == {reason}
