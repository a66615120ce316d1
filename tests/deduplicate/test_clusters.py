import hypothesis.strategies as st
import pandas as pd
import pytest
from hypothesis import given, settings

from kaggle_tfr.deduplicate.clusters import find_clusters


def make_images(labels, sizes=(), kind="single"):
    """Pictures a, b, c, … with the labels and, unless told, the same size."""
    n = len(labels)
    images = pd.DataFrame({"image_id": [chr(97 + i) for i in range(n)], "label_name": labels})
    images["path"], images["split"], images["problem"] = images["image_id"] + ".jpg", "train", ""
    images["label"] = pd.factorize(images["label_name"], sort=True)[0]
    images.loc[images["label_name"] == "", "label"] = -1
    images["height"], images["width"], images["n_bytes"] = 10, sizes or [10] * n, 1000
    images.attrs["kind"] = kind
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


def test_keeping_all_drops_nothing_but_still_names_the_clusters():
    """
    KEEP="all" leaves every copy, with the cluster that holds it in one fold.
    """
    clusters = find_clusters(make_images(["x"] * 4), make_pairs((0, 3, 1), (1, 2, 1)), keep="all")

    assert clusters["keep"].all()
    assert clusters["cluster"].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("labels", "conflicts", "expected"),
    [
        (["rose", "tulip", "tulip"], "drop", []),
        (["rose", "tulip", "tulip"], "majority", ["b"]),
        (["rose", "tulip", "tulip"], "keep", ["a"]),
        (["rose", "tulip", "lily"], "majority", []),
        (["tulip", "tulip", "tulip"], "drop", ["a"]),
        (["rose", "", "rose"], "drop", ["a"]),
    ],
)
def test_a_cluster_of_several_labels_is_settled_by_the_policy(labels, conflicts, expected):
    """
    Drop loses all, majority the minority or, where none is, all; an image without label agrees.
    """
    images = make_images(labels, [30, 20, 10])

    clusters = find_clusters(images, make_pairs((0, 1, 2), (1, 2, 2)), conflicts=conflicts)

    assert kept(clusters) == expected
    reasons = clusters["reason"][~clusters["keep"]]
    assert reasons.str.startswith(("conflict: ", "duplicate of ")).all()


def test_sets_of_labels_are_compared_as_sets():
    """
    "fish|sugar" and "sugar|fish" agree; "fish" alone does not.
    """
    pairs = make_pairs((0, 1, 2))

    same = find_clusters(make_images(["fish|sugar", "sugar|fish"], kind="multi"), pairs)
    other = find_clusters(make_images(["fish|sugar", "fish"], kind="multi"), pairs)

    assert not same["conflict"].any()
    assert other["conflict"].all()


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
    After a second look the candidates it refused tie nothing.
    """
    pairs = make_pairs((0, 1, 60), (2, 3, 60)).assign(accepted=[True, False])

    assert find_clusters(make_images(["x"] * 4), pairs)["image_id"].tolist() == ["a", "b"]


def test_no_pairs_make_an_empty_table_with_all_columns():
    """
    A dataset without duplicates is no special case.
    """
    clusters = find_clusters(make_images(["x", "y"]), make_pairs())

    assert len(clusters) == 0
    assert {"image_id", "cluster", "distance", "keep", "reason"} <= set(clusters)


@pytest.mark.parametrize("setting", [{"keep": "biggest"}, {"conflicts": "vote"}])
def test_an_unknown_rule_is_refused_by_name(setting):
    """
    The error names the parameter and what it may be.
    """
    with pytest.raises(ValueError, match=r"(KEEP|CONFLICTS) is '(biggest|vote)'. Set it to one of"):
        find_clusters(make_images(["x"]), make_pairs(), **setting)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from("xyz"), min_size=2, max_size=20),
    st.data(),
    st.sampled_from(["largest", "first", "all"]),
    st.sampled_from(["drop", "majority", "keep"]),
)
def test_every_cluster_keeps_one_or_none_or_all(labels, data, keep, conflicts):
    """
    Any pairs, any labels: one picture a cluster stays, or none after a conflict, or all with
    KEEP="all"; each row has a reason, and clusters are those of a walk over the pairs.
    """
    row = st.integers(0, len(labels) - 1)
    drawn = data.draw(st.sets(st.tuples(row, row).filter(lambda p: p[0] < p[1]), max_size=15))
    pairs = make_pairs(*[(a, b, a + b) for a, b in sorted(drawn)])

    clusters = find_clusters(make_images(labels), pairs, keep=keep, conflicts=conflicts)

    tied = {i: {i} for i in range(len(labels))}
    for a, b in drawn:
        union = tied[a] | tied[b]
        tied.update(dict.fromkeys(union, union))
    expected = {
        frozenset("abcdefghijklmnopqrst"[i] for i in t) for t in tied.values() if len(t) > 1
    }
    assert {frozenset(rows) for _, rows in clusters.groupby("cluster")["image_id"]} == expected
    for _, rows in clusters.groupby("cluster"):
        settled = not rows["conflict"].any() or conflicts == "keep"
        if keep == "all":
            assert rows["keep"].all() or not settled
        else:
            assert rows["keep"].sum() == 1 if settled else rows["keep"].sum() <= 1
    assert clusters["reason"].str.match("kept: |duplicate of |conflict: ").all()
