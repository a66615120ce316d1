import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from kaggle_tfr.deduplicate.clusters import find_clusters


def make_images(labels, sizes=()):
    """Pictures a, b, c, … with the labels and, unless told, the same size."""
    n = len(labels)
    images = pd.DataFrame({"image_id": [chr(97 + i) for i in range(n)], "label_name": labels})
    images["path"], images["split"], images["problem"] = images["image_id"] + ".jpg", "train", ""
    images["label"] = pd.factorize(images["label_name"], sort=True)[0]
    images.loc[images["label_name"] == "", "label"] = -1
    images["height"], images["width"], images["n_bytes"] = 10, sizes or [10] * n, 1000
    return images


def make_pairs(*pairs):
    return pd.DataFrame(pairs, columns=["a", "b", "distance"])


def kept(clusters):
    return clusters["image_id"][clusters["keep"]].tolist()


def test_the_largest_is_kept_whatever_the_order():
    """
    Of three copies the one of most pixels stays, and each other says whose duplicate it is.
    """
    images, pairs = make_images(["x"] * 4, [10, 10, 30, 20]), make_pairs((0, 1, 3), (1, 2, 4))

    clusters = find_clusters(images, pairs)

    assert clusters["image_id"].tolist() == ["a", "b", "c"]
    assert clusters["reason"].tolist() == [
        "duplicate of c by way of b",
        "duplicate of c",
        "kept: largest of 3",
    ]
    assert clusters["distance"].tolist() == [3, 4, 0]
    assert clusters["steps"].tolist() == [2, 1, 0]


def test_pixels_then_bytes_then_name_decide():
    """
    Equal pictures: more bytes win; equal bytes: the first name.
    """
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
    """
    Drop loses all, majority the minority or, where none is, all; an image without label agrees, and
    several labels of one image are compared as sets.
    """
    images = make_images(labels, [30, 20, 10])
    rules = {"kind": "multi" if "|" in labels[0] else "single", "conflicts": conflicts}

    clusters = find_clusters(images, make_pairs((0, 1, 2), (1, 2, 2)), **rules)

    assert kept(clusters) == expected
    reasons = clusters["reason"][~clusters["keep"]]
    assert reasons.str.startswith(("conflict: ", "duplicate of ")).all()


def test_a_chain_far_beyond_the_radius_is_flagged():
    """
    Five pictures in a row, each like the next: the last is four steps from the one kept.
    """
    chain = [(i, i + 1, 20) for i in range(4)]
    clusters = find_clusters(make_images(["x"] * 8), make_pairs(*chain, (5, 6, 20), (6, 7, 20)))

    assert clusters["steps"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert clusters["chain"].tolist() == [True] * 5 + [False] * 3


def test_only_accepted_pairs_make_clusters():
    """
    After geometric verification the candidates that it refused connect nothing; a dataset without
    duplicates is no special case.
    """
    images, pairs = make_images(["x"] * 4), make_pairs((0, 1, 60), (2, 3, 60))

    one = find_clusters(images, pairs.assign(accepted=[True, False]))
    none = find_clusters(images, pairs.assign(accepted=False))

    assert one["image_id"].tolist() == ["a", "b"]
    assert len(none) == 0
    assert {"image_id", "cluster", "distance", "keep", "reason"} <= set(none)


@pytest.mark.parametrize("setting", [{"keep": "biggest"}, {"conflicts": "vote"}])
def test_an_unknown_rule_is_refused_by_name(setting):
    """
    The error names the parameter and what it may be.
    """
    with pytest.raises(ValueError, match=r"(KEEP|CONFLICTS) is '(biggest|vote)'. Set it to one of"):
        find_clusters(make_images(["x"]), make_pairs(), **setting)


@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["largest", "first", "all"]),
    st.sampled_from(["drop", "majority", "keep"]),
)
def test_every_cluster_keeps_one_or_none_or_all(seed, keep, conflicts):
    """
    Any pairs, any labels: one picture a cluster stays, or none after a conflict, or all with
    KEEP="all"; each row has a reason, and clusters are those of a walk over the pairs.
    """
    rng = np.random.default_rng(seed)
    n = 300
    a, b = rng.integers(0, n, (2, rng.integers(0, n))).tolist()
    drawn = sorted({(min(pair), max(pair)) for pair in zip(a, b, strict=True) if len({*pair}) > 1})
    pairs = make_pairs(*[(a, b, (a + b) % 30) for a, b in drawn])
    images = make_images(rng.choice(list("xyz"), n).tolist())

    clusters = find_clusters(images, pairs, keep=keep, conflicts=conflicts)

    tied = {i: {i} for i in range(n)}
    for a, b in drawn:
        union = tied[a] | tied[b]
        tied.update(dict.fromkeys(union, union))
    expected = {frozenset(images["image_id"][list(t)]) for t in tied.values() if len(t) > 1}
    assert {frozenset(rows) for _, rows in clusters.groupby("cluster")["image_id"]} == expected
    numbers = clusters["cluster"].drop_duplicates().tolist()
    assert numbers == list(range(len(expected)))
    for _, rows in clusters.groupby("cluster"):
        assert rows["conflict"].all() == (len(set(rows["label_name"])) > 1)
        n_kept = rows["keep"].sum()
        if not rows["conflict"].any() or conflicts == "keep":
            assert n_kept == (len(rows) if keep == "all" else 1)
        else:
            assert n_kept <= (1 if keep != "all" else len(rows))
    assert clusters["reason"].str.match("kept: |duplicate of |conflict: ").all()
