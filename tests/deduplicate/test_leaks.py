"""Leaks: clusters whose images are in two splits."""

import pandas as pd
from support.splits import make_codes, make_images, make_pairs

from kaggle_tfr.deduplicate.clusters import find_clusters, find_leaks
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings

COLUMNS = ["image_id_a", "split_a", "image_id", "split", "distance", "keep"]


def list_leaks(images, pairs, *places, **rules):
    codes = make_codes(*places)
    return find_leaks(
        find_clusters(images, pairs, codes, DuplicateSettings(**rules)), codes
    )


def test_a_leak_has_its_images_in_the_order_of_their_splits():
    """test_id is the image of the later split; keep is the outcome of the other one."""
    images = make_images("train", "validation", "test", "train")
    pairs = make_pairs("01", "12")

    leaks = list_leaks(images, pairs, 0, 5, 11, 90, keep="first")

    assert leaks[COLUMNS].to_numpy().tolist() == [
        ["va1", "validation", "tr0", "train", 5, True],
        ["te2", "test", "va1", "validation", 6, False],
        ["te2", "test", "tr0", "train", 11, True],
    ]


def test_twenty_thousand_blank_pages_are_not_a_hundred_million_leaks():
    """Each image is listed with the first image of the other split alone."""
    images = make_images(*["test", "train"] * 10_000)
    star = pd.DataFrame({"a": 0, "b": range(1, 20_000)})

    leaks = list_leaks(images, star, *[0] * 20_000)

    assert len(leaks) == 19_999
    assert set(leaks["image_id_a"][leaks["image_id"] != "tr1"]) == {"te0"}
