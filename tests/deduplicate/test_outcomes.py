"""Rows that are kept, counts of what happened to all images, and the findings."""

import pandas as pd
import pytest
from support.splits import decide, make_codes, make_images, make_pairs

from kaggle_tfr.deduplicate.clusters import find_leaks
from kaggle_tfr.deduplicate.findings import Found, note_findings
from kaggle_tfr.deduplicate.outcomes import choose_rows, count_outcomes

NOTHING = pd.DataFrame({"dataset": [], "keep": []})


@pytest.mark.parametrize(
    ("leaks", "kept", "counts"),
    [
        (
            "report",
            "te1 tr4 tr5 te8",
            {
                "labelled records": 2,
                "test records": 2,
                "duplicates dropped": 1,
                "conflicts dropped": 2,
                "rejected": 2,
            },
        ),
        (
            "drop",
            "te1 tr5 te8",
            {
                "labelled records": 1,
                "test records": 2,
                "duplicates dropped": 1,
                "leaks dropped": 3,
                "rejected": 2,
            },
        ),
    ],
)
def test_each_image_is_counted_once(leaks, kept, counts):
    """LEAKS = "drop" drops each labelled image in a cluster with a test image.

    Of nine images two are rejected; the others have two leaks, two labels and a copy.
    """
    splits = ["train", "test", "train", "test", *["train"] * 4, "test"]
    images = make_images(*splits, label=[0, -1, 1, -1, 0, 2, 2, 2, -1])
    images.loc[[3, 7], "problem"] = "truncated"
    clusters = decide(images, make_pairs("01", "12", "48", "56"), leaks=leaks)

    rows = choose_rows(images, clusters)

    assert " ".join(rows["image_id"]) == kept
    assert count_outcomes(images, clusters) == counts
    assert sum(counts.values()) == len(images)


def test_a_plan_without_an_image_is_an_error():
    """If all images conflict, the error names the outcomes and parameters to change."""
    images = make_images("train", "train", label=[0, 1])
    clusters = decide(images, make_pairs("01"))
    with pytest.raises(ValueError, match=r"conflicts dropped': 2.* Set CONFLICTS"):
        choose_rows(images, clusters)


@pytest.fixture
def list_notes(capsys):
    """Return a function that returns the lines printed for images with these pairs."""

    def run(images, pairs, **rules):
        clusters = decide(images, pairs, **rules)
        leaks = find_leaks(clusters, make_codes(*[0] * len(images)))
        tables = (images, pairs, clusters, leaks, NOTHING, NOTHING)
        note_findings(Found(*tables, counts={}), NOTHING)
        return capsys.readouterr().out.splitlines()

    return run


def test_images_without_a_copy_have_ticks(list_notes):
    """Nothing is connected, so nothing leaks."""
    assert list_notes(make_images("train", "test"), make_pairs()) == [
        "✓ 0 of 2 images have a near-duplicate (0 clusters).",
        "✓ No image has a copy in another split.",
    ]


def test_copies_are_counted_in_each_pair_of_splits(list_notes):
    """Leaks are for the reader to decide on while they are kept."""
    images = make_images("train", "train", "train", "test", "test", "validation")

    copies, conflicts, *leaks = list_notes(images, make_pairs("01", "13", "24", "45"))
    *_, dropped = list_notes(images, make_pairs("01", "13"), leaks="drop")

    assert copies == "· 6 of 6 images have a near-duplicate (2 clusters)."
    assert conflicts == "✓ None of 2 clusters of near-duplicates has two labels."
    assert [leak.split(". LEAKS")[0] for leak in leaks] == [
        "! Copies in test and train: 2 of 2 and 3 of 3 images",
        "· Copies in test and validation: 1 of 2 and 1 of 1 images",
        "· Copies in validation and train: 1 of 1 and 1 of 3 images",
    ]
    assert dropped.startswith("· Copies in test and train: 1 of 2 and 2 of 3")


def test_labels_of_test_images_disagree_too(list_notes):
    """A test image with another label than its copy is a conflict, which is kept."""
    images = make_images("train", "train", "train", "test", label=[0, 1, 0, 1])

    _, conflicts, _ = list_notes(images, make_pairs("01", "23"))

    assert conflicts.startswith(
        "! Labels disagree in 2 of 2 clusters of near-duplicates (4 images). CONFLICTS "
        "drops 2 of them"
    )
