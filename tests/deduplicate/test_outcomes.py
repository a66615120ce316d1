"""The rows that are kept, the counts of what happened to all images, and the files."""

import pytest
from support.splits import make_codes, make_images, make_pairs

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.outcomes import (
    DuplicateSettings,
    choose_rows,
    count_outcomes,
)


@pytest.fixture
def images():
    """Nine images with two leaks, two labels, a copy, and two rejected ones."""
    images = make_images(*["train", "test", "train", "test"], *["train"] * 4, "test")
    images["label"] = [0, -1, 1, -1, 0, 2, 2, 2, -1]
    images.loc[[3, 7], "problem"] = "truncated"
    return images


def decide(images, pairs, **rules):
    return find_clusters(
        images, pairs, make_codes(*[0] * len(images)), DuplicateSettings(**rules)
    )


@pytest.mark.parametrize(
    ("leaks", "kept", "counts"),
    [
        ("report", "te1 tr4 tr5 te8", (2, 2, 1, 2, 0, 2)),
        ("drop", "te1 tr5 te8", (1, 2, 1, 0, 3, 2)),
    ],
)
def test_each_image_is_counted_once(images, leaks, kept, counts):
    """LEAKS = "drop" drops each labelled image in a cluster with a test image."""
    clusters = decide(images, make_pairs("01", "12", "48", "56"), leaks=leaks)

    rows = choose_rows(images, clusters)

    assert " ".join(rows["image_id"]) == kept
    names = ("labelled records", "test records", "duplicates dropped")
    names += ("conflicts dropped", "leaks dropped", "rejected")
    expected = dict(zip(names, counts, strict=True))
    found = count_outcomes(images, clusters)
    assert found == {name: n for name, n in expected.items() if n}
    assert sum(found.values()) == len(images)


def test_a_plan_without_an_image_is_an_error():
    """If all images conflict, the error names the outcomes and parameters to change."""
    images = make_images("train", "train").assign(label=[0, 1])
    clusters = decide(images, make_pairs("01"))
    with pytest.raises(ValueError, match=r"conflicts dropped': 2.* Set CONFLICTS"):
        choose_rows(images, clusters)
