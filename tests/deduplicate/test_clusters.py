import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from scipy.cluster.hierarchy import DisjointSet

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.parameters import PARAMETERS

SEEDS = st.integers(0, 2**32 - 1)
KEEP, CONFLICTS = (st.sampled_from(PARAMETERS[name].choices) for name in ("KEEP", "CONFLICTS"))


def make_images(labels, sizes=10):
    """Pictures a, b, c, … with the labels and, unless told, the same size."""
    names = [chr(97 + i) for i in range(len(labels))]
    images = pd.DataFrame({"image_id": names, "path": names, "label_name": labels, "width": sizes})
    images["label"] = pd.factorize(images["label_name"].replace("", None), sort=True)[0]
    return images.assign(split="train", problem="", height=10, n_bytes=1000)


def make_pairs(*pairs):
    return pd.DataFrame(pairs, columns=["a", "b", "distance"])


def kept(clusters):
    return clusters["image_id"][clusters["keep"]].tolist()


def test_the_largest_is_kept_whatever_the_order():
    """Of three copies that of most pixels stays, and each other says whose duplicate it is."""
    images, pairs = make_images(["x"] * 4, [10, 10, 30, 20]), make_pairs((0, 1, 3), (1, 2, 4))
    clusters = find_clusters(images, pairs)
    reasons = ["duplicate of c by way of b", "duplicate of c", "kept: largest of 3"]
    assert clusters["image_id"].tolist() == ["a", "b", "c"]
    assert clusters["reason"].tolist() == reasons
    assert clusters[["distance", "steps"]].to_numpy().tolist() == [[3, 2], [4, 1], [0, 0]]


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
    clusters = find_clusters(make_images(["x"] * 8), make_pairs(*chain, (5, 6, 20), (6, 7, 20)))
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


@pytest.mark.parametrize("setting", [{"keep": "biggest"}, {"conflicts": "vote"}])
def test_an_unknown_rule_is_refused_by_name(setting):
    """The error names the parameter and what it may be."""
    with pytest.raises(ValueError, match=r"(KEEP|CONFLICTS) is '(biggest|vote)'. It can be"):
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
    assert sorted(map(sorted, expected)) == sorted(sorted(g["image_id"]) for _, g in groups)
    assert clusters["cluster"].drop_duplicates().tolist() == list(range(len(expected)))
    for _, rows in groups:
        clash, n_kept = len(set(rows["label_name"])) > 1, rows["keep"].sum()
        most = len(rows) if keep == "all" else 1
        assert rows["conflict"].all() == clash
        assert n_kept <= most if clash and conflicts != "keep" else n_kept == most
    assert clusters["reason"].str.match("kept: |duplicate of |conflict: ").all()
    assert (clusters["reason"].str.startswith("kept: ") == clusters["keep"]).all()
