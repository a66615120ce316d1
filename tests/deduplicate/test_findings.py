"""The findings of 02: copies, conflicts, leaks, and what other datasets contain."""

import pandas as pd
import pytest
from support.splits import make_images, make_pairs

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.compare import list_overlap
from kaggle_tfr.deduplicate.corrections import Corrections
from kaggle_tfr.deduplicate.findings import note_findings
from kaggle_tfr.deduplicate.leaks import find_leaks

OVERLAP = pd.DataFrame({"a": [0, 0], "distance": 3, "test_id": ["x.jpg", "y.jpg"]})
NO_OVERLAP = OVERLAP.head(0)


@pytest.fixture
def list_notes(capsys):
    """Return the lines that are printed for images with these pairs."""

    def run(images, pairs, overlap=NO_OVERLAP, datasets=(), **rules):
        clusters = find_clusters(images, pairs, **rules)
        corrected = Corrections(images, pairs, clusters, pd.DataFrame())
        leaks = find_leaks(images, pairs, clusters)
        copies = overlap.assign(dataset="a/b", test_split="train")
        others = pd.DataFrame({"dataset": datasets})
        overlap = list_overlap(images, copies, clusters)
        capsys.readouterr()
        note_findings(corrected, leaks, others, overlap)
        return capsys.readouterr().out.splitlines()

    return run


def test_images_without_a_copy_have_ticks(list_notes):
    """A dataset of one split cannot leak."""
    assert list_notes(make_images("train", "train"), make_pairs()) == [
        "✓ None of 2 images has a near-duplicate.",
        "✓ The input has one split, so no copy is in another one.",
    ]
    splits = ["train", "test", "validation"]
    *_, leaks = list_notes(make_images(*splits), make_pairs())
    text = "None of 2 test and validation images has a copy in another split."
    assert leaks == f"✓ {text}"


def test_copies_are_counted_in_each_split_and_between_splits(list_notes):
    """Leaks are for the reader to decide on while they are kept."""
    images = make_images("train", "train", "train", "test", "test", "validation")
    pairs = make_pairs((0, 1, 5), (1, 3, 5), (2, 4, 9), (4, 5, 9))

    copies, conflicts, leaks = list_notes(images, pairs)
    *_, dropped = list_notes(images, pairs.head(2), leaks="drop")

    assert copies == (
        "· 6 of 6 images have a near-duplicate (2 clusters). Copies in the same split: "
        "2 of 3 train images."
    )
    assert conflicts == "✓ None of 2 clusters of near-duplicates has two labels."
    assert leaks.startswith(
        "! 1 of 2 test images has a copy in validation (1 of 1 there). 2 of 2 test "
        "images have a copy in train (2 of 3 there). Copies are kept"
    )
    assert dropped.startswith("· 1 of 2 test images has a copy in train (1 of 3 there)")


def test_labels_of_test_images_disagree_too(list_notes):
    """A test image with another label than its copy is a conflict, which is kept.

    A rejected row with the id of one of these images is none.
    """
    images = make_images("train", "train", "train", "test", "train")
    images["label"] = [0, 1, 0, 1, 0]
    images.loc[4, ["image_id", "problem"]] = "tr0", "missing file"
    images["label_name"] = ["", "tulip", "", "tulip", ""]  # "": none of several labels

    _, conflicts, _ = list_notes(images, make_pairs((0, 1, 5), (2, 3, 5)))

    assert conflicts.startswith(
        "! Labels disagree in 2 of 2 clusters of near-duplicates (4 images). CONFLICTS "
        "drops 2 of them"
    )


def test_each_dataset_has_its_sentence(list_notes):
    """An image counts once, whatever number of copies it has there."""
    images = make_images("train", "train")

    *_, found, nothing = list_notes(images, make_pairs(), OVERLAP, ["a/b", "a/b", "c"])

    assert found.startswith("! 1 of 2 images is also in a/b (2 images). leaks.csv")
    assert nothing == "✓ None of 2 images is also in c (1 image)."
