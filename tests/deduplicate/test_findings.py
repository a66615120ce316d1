"""The findings of 02: copies, conflicts, leaks, and what other datasets contain."""

import pandas as pd
import pytest
from support.splits import make_codes, make_images, make_pairs

from kaggle_tfr.deduplicate.clusters import find_clusters, find_leaks
from kaggle_tfr.deduplicate.findings import Found, note_findings
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings

NOTHING = pd.DataFrame({"dataset": [], "keep": []})


@pytest.fixture
def list_notes(capsys):
    """Return the lines that are printed for images with these pairs."""

    def run(images, pairs, **rules):
        codes = make_codes(*[0] * len(images))
        clusters = find_clusters(images, pairs, codes, DuplicateSettings(**rules))
        leaks = find_leaks(clusters, codes)
        tables = (images, pairs, clusters, leaks, NOTHING, NOTHING)
        capsys.readouterr()
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
    images = make_images("train", "train", "train", "test")
    images["label"] = [0, 1, 0, 1]

    _, conflicts, _ = list_notes(images, make_pairs("01", "23"))

    assert conflicts.startswith(
        "! Labels disagree in 2 of 2 clusters of near-duplicates (4 images). CONFLICTS "
        "drops 2 of them"
    )
