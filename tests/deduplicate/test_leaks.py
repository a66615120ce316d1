"""Leaks: clusters whose images are in two splits."""

from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pandas as pd
from hypothesis import given, settings
from support.splits import make_codes, make_images, make_pairs

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.leaks import count_leaks, find_leaks
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


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_every_image_of_a_leak_is_listed_and_counted(seed):
    """With each other split of its cluster, also if two splits are for validation."""
    rng = np.random.default_rng(seed)
    splits = rng.choice(["train", "val", "dev", "test"], 60)
    cluster = rng.integers(0, 25, 60)
    clusters = pd.DataFrame({"split": splits, "cluster": cluster, "keep": True})
    clusters["image_id"] = clusters.index.astype(str)
    clusters["label_name"] = ""
    use = clusters["split"].replace({"val": "validation", "dev": "validation"})

    leaks = find_leaks(clusters, make_codes(*[0] * 60))
    counts = count_leaks(leaks)

    ends = leaks[["image_id_a", "image_id"]].astype(int).to_numpy().tolist()
    ends += [(b, a) for a, b in ends]
    together = np.argwhere(cluster[:, None] == cluster)
    expected = {(a, use[b]) for a, b in together if use[a] != use[b]}
    assert {(a, use[b]) for a, b in ends} == expected

    n_copied = Counter(
        (splits[a], split) for a, split in {(a, splits[b]) for a, b in ends}
    )
    for row in counts.to_dict("records"):
        assert row["images"] == n_copied.pop((row["split_a"], row["split"]))
        assert row["other_images"] == n_copied.pop((row["split"], row["split_a"]))
    assert not n_copied
