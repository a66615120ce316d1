"""The rows that are kept, and the counts of what happened to all images."""

import pandas as pd
import pytest
from support.splits import make_pairs

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.outcomes import choose_rows, count_outcomes


def make_images(*names):
    """Return images of one size, labelled with their names; "test" is no label."""
    images = pd.DataFrame({"label_name": names})
    is_test = images["label_name"] == "test"
    images["image_id"] = list("abcdefghij")[: len(names)]
    images["split"] = is_test.map({True: "test", False: "train"})
    images["label"] = pd.factorize(images["label_name"])[0]
    images.loc[is_test, ["label", "label_name"]] = -1, ""
    sizes = {"height": 10, "width": 10, "n_bytes": 1000}
    return images.assign(path="", problem="", **sizes)


@pytest.fixture
def leaking_images():
    """Ten images; the second shows the same as the first and the third."""
    first_half = ["rose", "test", "tulip", "test", "rose"]
    second_half = ["rose", "lily", "rose", "lily", "test"]
    images = make_images(*first_half, *second_half)
    images.loc[[3, 7], "problem"] = "truncated"
    return images


@pytest.fixture
def leaking_pairs():
    return make_pairs(
        (0, 1, 3),
        (1, 2, 3),
        (4, 5, 0),
        (8, 9, 1),
    )


def test_dropped_leaks_are_counted(leaking_images, leaking_pairs):
    """LEAKS = "drop" drops each labelled image that shows the same as a test image."""
    clusters = find_clusters(leaking_images, leaking_pairs, leaks="drop")

    rows = choose_rows(leaking_images, clusters)

    leak = "leak: test image b shows the same"
    kept = "test image: always kept"
    assert clusters["reason"][:3].tolist() == [leak, kept, leak]
    assert "".join(rows["image_id"]) == "begj"
    assert count_outcomes(leaking_images, clusters) == {
        "labelled records": 2,
        "test records": 2,
        "duplicates dropped": 1,
        "conflicts dropped": 0,
        "leaks dropped": 3,
        "rejected": 2,
    }


def test_reported_leaks_are_records(leaking_images, leaking_pairs):
    """The count of dropped leaks is absent where no leak is dropped."""
    clusters = find_clusters(leaking_images, leaking_pairs)

    assert count_outcomes(leaking_images, clusters) == {
        "labelled records": 3,
        "test records": 2,
        "duplicates dropped": 1,
        "conflicts dropped": 2,
        "rejected": 2,
    }


def test_without_clusters_and_test_images_four_counts_remain(leaking_images):
    """An empty table of clusters is no special case."""
    labelled = leaking_images[leaking_images["split"] == "train"]
    clusters = find_clusters(leaking_images, make_pairs())

    assert count_outcomes(labelled, clusters) == {
        "labelled records": 6,
        "duplicates dropped": 0,
        "conflicts dropped": 0,
        "rejected": 1,
    }


def test_a_test_image_may_have_the_id_of_a_labelled_image():
    """Where both folders have a 1.jpg, the outcome of one does not affect the other."""
    images = make_images("rose", "rose", "test")
    images["image_id"] = ["1.jpg", "2.jpg", "1.jpg"]
    clusters = find_clusters(images, make_pairs((0, 1, 3)), keep="first")

    rows = choose_rows(images, clusters)

    assert rows["image_id"].tolist() == ["1.jpg", "1.jpg"]
    assert rows["split"].tolist() == ["train", "test"]
    assert rows["cluster"].tolist() == [0, -1]


def test_a_plan_without_an_image_is_an_error():
    """If all images conflict, the error names the outcomes and parameters to change."""
    images = make_images("rose", "lily")
    clusters = find_clusters(images, make_pairs((0, 1, 0)))
    message = r"of 2: 2 conflicts dropped\. Set CONFLICTS"

    with pytest.raises(ValueError, match=message):
        choose_rows(images, clusters)
