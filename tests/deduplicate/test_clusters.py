from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from scipy.cluster.hierarchy import DisjointSet

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.display import load_pairs, pairs_of_clusters
from kaggle_tfr.deduplicate.outcomes import choose_rows, count_outcomes
from kaggle_tfr.parameters import PARAMETERS

SEEDS = st.integers(0, 2**32 - 1)
KEEP, CONFLICTS = (
    st.sampled_from(PARAMETERS[name].choices) for name in ("KEEP", "CONFLICTS")
)


def make_images(labels, sizes=10, **columns):
    """Pictures a, b, c, … with the labels and, unless told, the same size; "test" is no label."""
    names = [chr(97 + i) for i in range(len(labels))]
    images = pd.DataFrame(
        {"image_id": names, "path": names, "label_name": labels, "width": sizes}
    )
    images["split"] = np.where(images["label_name"] == "test", "test", "train")
    images["label_name"] = images["label_name"].replace("test", "")
    images["label"] = pd.factorize(images["label_name"].replace("", None), sort=True)[0]
    return images.assign(problem="", height=10, n_bytes=1000, **columns)


def make_pairs(*pairs):
    return pd.DataFrame(pairs, columns=["a", "b", "distance"])


def kept(clusters):
    return clusters["image_id"][clusters["keep"]].tolist()


def test_the_largest_is_kept_whatever_the_order():
    """Of three copies that of most pixels stays, and each other says whose duplicate it is."""
    images, pairs = (
        make_images(["x"] * 4, [10, 10, 30, 20]),
        make_pairs((0, 1, 3), (1, 2, 4)),
    )
    clusters = find_clusters(images, pairs)
    reasons = ["duplicate of c by way of b", "duplicate of c", "kept: largest of 3"]
    assert clusters["image_id"].tolist() == ["a", "b", "c"]
    assert clusters["reason"].tolist() == reasons
    assert clusters[["distance", "steps"]].to_numpy().tolist() == [
        [3, 2],
        [4, 1],
        [0, 0],
    ]


def test_pixels_then_bytes_then_name_decide():
    """Equal pictures: more bytes win; equal bytes: the first name."""
    images, pairs = make_images(["x"] * 3), make_pairs((0, 1, 0), (1, 2, 0))
    assert kept(find_clusters(images.iloc[::-1], pairs)) == ["a"]
    images.loc[1, "n_bytes"] = 2000
    assert kept(find_clusters(images, pairs)) == ["b"]
    assert kept(find_clusters(images, pairs, keep="first")) == ["a"]


@pytest.mark.parametrize(
    ("labels", "conflicts", "expected"),
    [
        (["rose", "tulip", "tulip"], "drop", []),
        (["rose", "tulip", "tulip"], "majority", ["b"]),
        (["rose", "tulip", "tulip"], "keep", ["a"]),
        (["rose", "tulip", "lily"], "majority", []),
        (["tulip", "tulip", "tulip"], "drop", ["a"]),
        (["rose", "", "rose"], "drop", ["a"]),
        (["fish|sugar", "sugar|fish", ""], "drop", ["a"]),
        (["fish|sugar", "fish", "fish"], "drop", []),
    ],
)
def test_conflicts_decides_what_is_kept_of_several_labels(labels, conflicts, expected):
    """No label agrees with each; several labels of an image are compared as sets."""
    images = make_images(labels, [30, 20, 10])
    rules = {"kind": "multi" if "|" in labels[0] else "single", "conflicts": conflicts}
    clusters = find_clusters(images, make_pairs((0, 1, 2), (1, 2, 2)), **rules)
    assert kept(clusters) == expected


def test_a_chain_far_beyond_the_radius_is_flagged():
    """Five pictures in a row, each like the next: the last is four steps from the one kept."""
    chain = [(i, i + 1, 20) for i in range(4)]
    clusters = find_clusters(
        make_images(["x"] * 8), make_pairs(*chain, (5, 6, 20), (6, 7, 20))
    )
    assert clusters["steps"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert clusters["chain"].tolist() == [True] * 5 + [False] * 3


def test_only_accepted_pairs_make_clusters():
    """Candidates that verification refused connect nothing, and none at all is no special case."""
    images, pairs = make_images(["x"] * 4), make_pairs((0, 1, 60), (2, 3, 60))
    one = find_clusters(images, pairs.assign(accepted=[True, False]))
    none = find_clusters(images, pairs.assign(accepted=False))
    assert one["image_id"].tolist() == ["a", "b"]
    assert none.empty
    assert list(none) == list(one)


@pytest.mark.parametrize(
    "setting", [{"keep": "biggest"}, {"conflicts": "vote"}, {"leaks": "no"}]
)
def test_an_unknown_rule_is_refused_by_name(setting):
    """The error names the parameter and what it may be."""
    with pytest.raises(
        ValueError, match=r"(KEEP|CONFLICTS|LEAKS) is '.+'\..*It can be"
    ):
        find_clusters(make_images(["x"]), make_pairs(), **setting)


@settings(max_examples=12)
@given(SEEDS, KEEP, CONFLICTS)
def test_every_cluster_keeps_one_or_none_or_all(seed, keep, conflicts):
    """Any pairs, any labels: one picture a cluster stays, none after a conflict, all by "all"."""
    rng = np.random.default_rng(seed)
    images = make_images(rng.choice(list("xyz"), 300).tolist())
    drawn = np.unique(np.sort(rng.integers(0, 300, (rng.integers(0, 300), 2))), axis=0)
    pairs = make_pairs(*[(a, b, (a + b) % 30) for a, b in drawn.tolist() if a < b])

    clusters = find_clusters(images, pairs, keep=keep, conflicts=conflicts)

    sets = DisjointSet(images["image_id"])
    for a, b in drawn:
        sets.merge(images["image_id"][a], images["image_id"][b])
    expected = [tied for tied in sets.subsets() if len(tied) > 1]
    groups = clusters.groupby("cluster")
    assert sorted(map(sorted, expected)) == sorted(
        sorted(g["image_id"]) for _, g in groups
    )
    assert clusters["cluster"].drop_duplicates().tolist() == list(range(len(expected)))
    for _, rows in groups:
        clash, n_kept = len(set(rows["label_name"])) > 1, rows["keep"].sum()
        most = len(rows) if keep == "all" else 1
        assert rows["conflict"].all() == clash
        assert n_kept <= most if clash and conflicts != "keep" else n_kept == most
    assert clusters["reason"].str.match("kept: |duplicate of |conflict: ").all()
    assert (clusters["reason"].str.startswith("kept: ") == clusters["keep"]).all()


def test_a_test_image_stays_and_drops_nobody():
    """The largest of a cluster, it is kept beside the best labelled one, and has no vote."""
    images = make_images(["rose", "test", "rose", "test", "test", "rose", "test"], 10)
    images.loc[[1, 2], "width"] = 40, 20
    images.loc[[1, 6], "label"] = 7  # class folders came with these
    clusters = find_clusters(
        images, make_pairs((0, 1, 9), (1, 2, 8), (3, 4, 1), (5, 6, 2))
    )
    always, though = "test image: always kept", ", though test image {} shows the same"
    assert clusters["cluster"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert clusters["reason"].tolist() == [
        "duplicate of c by way of b",
        always,
        "kept: largest of 2" + though.format("b"),
        always,
        always,
        "kept: largest of 1" + though.format("g"),
        always,
    ]
    assert kept(clusters) == ["b", "c", "d", "e", "f", "g"]
    assert not clusters["conflict"].any()


@pytest.mark.parametrize(
    ("conflicts", "expected"), [("drop", "bc"), ("majority", "bcde")]
)
def test_labels_are_compared_without_test_images(conflicts, expected):
    """A test image ends no tie and is in no conflict; two labels that it joins are one."""
    images = make_images(["rose", "test", "test", "tulip", "tulip"])
    pairs = make_pairs((0, 1, 2), (1, 2, 0), (2, 3, 2), (3, 4, 9))
    clusters = find_clusters(images, pairs, keep="all", conflicts=conflicts)
    assert "".join(kept(clusters)) == expected
    assert clusters["conflict"].tolist() == [True, False, False, True, True]


def test_leaks_that_are_dropped_are_accounted_for():
    """LEAKS = "drop" leaves out what shows a test image; lines exist where they count something."""
    names = [
        "rose",
        "test",
        "tulip",
        "test",
        "rose",
        "rose",
        "lily",
        "rose",
        "lily",
        "test",
    ]
    images, leak = make_images(names), "leak: test image b shows the same"
    images.loc[[3, 7], "problem"] = "truncated"
    pairs = make_pairs((0, 1, 3), (1, 2, 3), (4, 5, 0), (8, 9, 1))
    clusters = find_clusters(images, pairs, leaks="drop")
    assert clusters["reason"][:3].tolist() == [leak, "test image: always kept", leak]
    assert choose_rows(images, clusters)["image_id"].tolist() == ["b", "e", "g", "j"]
    labelled = {
        "written": 2,
        "duplicates dropped": 1,
        "conflicts dropped": 0,
        "leaks dropped": 3,
    }
    test = {"test images": 2, "test images rejected": 1}
    assert count_outcomes(images, clusters) == labelled | {"rejected": 1} | test

    reported = count_outcomes(images, find_clusters(images, pairs))
    labelled = {"written": 3, "duplicates dropped": 1, "conflicts dropped": 2}
    assert reported == labelled | {"rejected": 1} | test
    images, nothing = images[images["split"] == "train"], clusters.head(0)
    expected = {
        "written": 6,
        "duplicates dropped": 0,
        "conflicts dropped": 0,
        "rejected": 1,
    }
    assert count_outcomes(images, nothing) == expected


def test_a_name_may_be_a_test_images_and_a_labelled_ones():
    """Both folders have a 1.jpg: what becomes of one says nothing of the other."""
    images = make_images(["rose", "rose", "test"]).assign(
        image_id=["1.jpg", "2.jpg", "1.jpg"]
    )
    clusters = find_clusters(images, make_pairs((0, 1, 3)), keep="first", leaks="drop")
    images["width"] = 10
    rows = choose_rows(images.assign(width=[1, 2, 3]), clusters)
    assert rows[["width", "cluster"]].to_numpy().tolist() == [[1, 0], [3, -1]]


@settings(max_examples=12)
@given(SEEDS, KEEP, CONFLICTS)
def test_labelled_images_are_resolved_as_if_alone(seed, keep, conflicts):
    """Whatever test images join, the same labelled ones stay as where they are paired directly."""
    rng = np.random.default_rng(seed)
    images = make_images(
        rng.choice(["x", "y", "test"], 200).tolist(), rng.integers(5, 9, 200)
    )
    drawn = np.sort(rng.integers(0, 200, (rng.integers(0, 200), 2)))
    pairs = make_pairs(
        *[(a, b, (a + b) % 30) for a, b in np.unique(drawn, axis=0) if a < b]
    )
    rules = {"keep": keep, "conflicts": conflicts}
    clusters = find_clusters(images, pairs, **rules)

    test = clusters["split"] == "test"
    labelled = images[images["split"] != "test"].reset_index(drop=True)
    row = pd.Series(labelled.index, labelled["image_id"])
    groups = [
        row[g["image_id"]].tolist() for _, g in clusters[~test].groupby("cluster")
    ]
    direct = [(a, b, 1) for rows in groups for a, b in pairwise(rows)]
    alone = find_clusters(labelled, make_pairs(*direct), **rules)
    single = [labelled["image_id"][rows[0]] for rows in groups if len(rows) == 1]
    assert clusters["keep"][test].all()
    assert sorted(kept(clusters[~test])) == sorted([*kept(alone), *single])


def test_the_main_sources_picture_is_kept_first():
    """Before size and order; among a source's own the size decides as ever."""
    images = make_images(["x"] * 4, [30, 10, 20, 40], source=[1, 0, 0, 2])
    pairs = make_pairs((0, 1, 1), (1, 2, 1), (2, 3, 1))
    assert kept(find_clusters(images, pairs)) == ["c"]
    assert kept(find_clusters(images, pairs, keep="first")) == ["b"]


def test_conflicts_between_sources_name_them():
    """In the reason and in a figure's titles, which also say what is no training image."""
    images = make_images(
        ["rose", "tulip", "test", "lily", "rose"], source=[0, 1, 0, 1, 1]
    )
    clusters = find_clusters(images, make_pairs((0, 1, 4), (1, 2, 5), (3, 4, 6)))
    said = "conflict: rose (source 0), tulip (source 1)"
    assert clusters["reason"].drop(2).tolist() == [
        said,
        said,
        *["conflict: lily, rose"] * 2,
    ]
    _, titles = load_pairs(
        images, pairs_of_clusters(images, clusters[clusters["conflict"]])
    )
    assert titles == [
        ("a\nrose (source 0)", "b: 4 bits\ntulip (source 1)"),
        ("d\nlily", "e: 6 bits\nrose"),
    ]
    images = images.drop(columns="source").assign(
        split=["train", "validation", "test", "train", "train"]
    )
    _, titles = load_pairs(images, make_pairs((2, 1, 5)))
    assert titles == [("c\n(test)", "b: 5 bits\ntulip (validation)")]


def test_a_plan_of_no_image_is_refused():
    """Where conflicts dropped all, the outcomes and the parameters to change are named."""
    images = make_images(["rose", "lily"])
    clusters = find_clusters(images, make_pairs((0, 1, 0)))
    with pytest.raises(ValueError, match=r"of 2: 2 conflicts dropped\. Set CONFLICTS"):
        choose_rows(images, clusters)


def test_the_image_kept_is_shown_first_with_the_sizes():
    """Also where a copy with equal hashes is listed before it."""
    images = make_images(["rose", "rose", "lily"], [10, 20, 30])
    found = pairs_of_clusters(
        images, find_clusters(images, make_pairs((0, 1, 0))), by="keep"
    )
    assert found.to_numpy().tolist() == [[1, 0, 0]]
    _, titles = load_pairs(images, found, outcomes=("kept", "dropped"))
    assert titles == [("b\nkept 20 × 10", "a: 0 bits\ndropped 10 × 10")]


def test_a_conflict_is_shown_with_the_distance_of_its_pair():
    """Also where the larger picture comes second, and where a rejected row repeats an id."""
    images = make_images(["rose", "tulip", "rose"], [10, 20, 10]).assign(
        image_id=["a", "b", "a"]
    )
    images.loc[2, "problem"] = "listed twice: the first row counts"
    clusters = find_clusters(images, make_pairs((0, 1, 7)))
    found = pairs_of_clusters(images, clusters)
    assert found.to_numpy().tolist() == [[1, 0, 7]]
