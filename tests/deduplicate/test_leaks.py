"""Leaks: pairs of near-duplicates of which the halves are in two splits."""

import json

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.leaks import find_leaks
from kaggle_tfr.deduplicate.outcomes import (
    LEAK_COLUMNS,
    DuplicateSettings,
    load_clusters,
    save_clusters,
)
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.images.hashing import FLAT, HASHES

SPLITS = ["train", "validation", "test"]


def images_of(splits):
    """A picture for each split of the list, called t0, v1, … by split and row."""
    images = pd.DataFrame({"split": splits, "path": "", "problem": ""})
    images["image_id"] = [f"{split[0:2]}{row}" for row, split in enumerate(splits)]
    images["label"] = images["split"].map({"test": -1}).fillna(0).astype(int)
    images["label_name"] = images["label"].map({-1: "", 0: "rose"})
    return images.assign(height=10, width=10, n_bytes=100)


def draw_hashes(seed, n_centres, n, equal):
    """Hashes around some centres, up to 6 bits from them; most of a centre's equal it if asked."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 256, (n_centres, 32), np.uint8)
    codes = centres[rng.integers(0, n_centres, n)]
    codes[:, 0] ^= rng.integers(0, 8, n, np.uint8) * (
        rng.random(n) < (0.1 if equal else 1)
    )
    codes[:, 9] ^= rng.integers(0, 8, n, np.uint8) * (
        rng.random(n) < (0.1 if equal else 1)
    )
    return codes


def brute_force(codes, splits, radius):
    """{(row of the later split, row of the earlier one): bits}, all with all."""
    apart = np.bitwise_count(codes[:, None] ^ codes).sum(axis=2)
    rank = np.array([SPLITS.index(split) for split in splits])
    near = (apart <= radius) & (rank[:, None] > rank)
    return {(int(a), int(b)): int(apart[a, b]) for a, b in np.argwhere(near)}


def leaks_of(codes, splits, radius):
    words = codes.view(">u8").astype(np.uint64)
    images = images_of(splits)
    hashes = pd.DataFrame(dict(zip(HASHES, words.T, strict=True)))
    pairs = find_pairs(hashes.assign(texture=FLAT, digest="", problem=""), radius)
    return find_leaks(images, pairs, find_clusters(images, pairs))


@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_every_pair_between_two_splits_is_a_leak(seed, radius):
    """Where no hash repeats over 20 times, the leaks are those of brute force, each once."""
    codes = draw_hashes(seed, 20, 120, equal=False)
    splits = np.random.default_rng(seed).choice(SPLITS, 120, p=[0.6, 0.1, 0.3]).tolist()
    leaks = leaks_of(codes, splits, radius)
    found = leaks[["a", "b", "distance"]].to_numpy().tolist()
    expected = brute_force(codes, splits, radius)
    assert {(a, b): bits for a, b, bits in found} == expected
    assert len(found) == len(expected)


@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6), st.integers(1, 3))
def test_no_leak_is_lost_among_many_equal_hashes(seed, radius, n_centres):
    """Each image that brute force calls a leak is named with each other split it leaks to.

    There are no more rows than images times the hashes near theirs, times the splits.
    """
    codes = draw_hashes(seed, n_centres, 200, equal=True)
    splits = np.random.default_rng(seed).choice(SPLITS, 200, p=[0.6, 0.1, 0.3]).tolist()
    leaks = leaks_of(codes, splits, radius)
    expected = brute_force(codes, splits, radius)
    found = leaks[["a", "b", "distance"]].itertuples(index=False, name=None)
    assert all(expected[a, b] == bits for a, b, bits in found)
    for ends in ((0, 1), (1, 0)):
        leaking = {(pair[ends[0]], splits[pair[ends[1]]]) for pair in expected}
        pairs = leaks[["a", "b"]].to_numpy()[:, ends].tolist()
        assert {(one, splits[other]) for one, other in pairs} == leaking
    assert len(leaks) <= 200 * 2 * len(np.unique(codes, axis=0))


def test_twenty_thousand_blank_pages_are_not_a_hundred_million_leaks():
    """Of equal hashes each image is named once, with the first of the other split, and that one."""
    splits = ["test", "train"] * 10_000
    leaks = leaks_of(np.zeros((20_000, 32), np.uint8), splits, 25)
    assert len(leaks) == 19_999
    assert set(leaks["a"][leaks["b"] != 1]) == {0}


def test_a_validation_image_of_the_datas_own_leaks_too():
    """The later split's image is the test_id; keep says what the clusters do to the other."""
    images = images_of(["train", "validation", "test", "train"])
    pairs = pd.DataFrame(
        [[0, 1, 5], [1, 2, 6], [1, 3, 60]], columns=["a", "b", "distance"]
    )
    pairs["accepted"] = [True, True, False]
    leaks = find_leaks(images, pairs, find_clusters(images, pairs, keep="first"))
    assert leaks[LEAK_COLUMNS].to_numpy().tolist() == [
        ["va1", "tr0", "rose", 5, "validation", "train", True],
        ["te2", "va1", "rose", 6, "test", "validation", False],
    ]


def test_leaks_csv_is_written_always(tmp_path):
    """It has a header where nothing leaks, and only the columns that a person needs."""
    images = images_of(["train", "train", "test"])
    pairs = pd.DataFrame([[0, 1, 5]], columns=["a", "b", "distance"])
    with pytest.raises(
        FileNotFoundError, match="Run 02_deduplicate with this WORK_DIR first"
    ):
        load_clusters(str(tmp_path))
    for number, head in enumerate((1, 0)):
        clusters = find_clusters(images, pairs.head(head))
        leaks = find_leaks(images, pairs.head(head), clusters)
        save_clusters(clusters, leaks, DuplicateSettings(leaks="drop"), str(tmp_path))
        assert (tmp_path / "leaks.csv").read_text() == ",".join(LEAK_COLUMNS) + "\n", (
            number
        )
    assert load_clusters(str(tmp_path))[1] == DuplicateSettings(leaks="drop")
    values = json.loads((tmp_path / "duplicates.json").read_text())
    assert values.pop("mirrored") is False
    (tmp_path / "duplicates.json").write_text(
        json.dumps(values)
    )  # as earlier versions wrote it
    assert load_clusters(str(tmp_path))[1] == DuplicateSettings(leaks="drop")
    pairs.loc[1] = [1, 2, 7]
    clusters = find_clusters(images, pairs, keep="first")
    save_clusters(
        clusters,
        find_leaks(images, pairs, clusters),
        DuplicateSettings(),
        str(tmp_path),
    )
    rows = (tmp_path / "leaks.csv").read_text().splitlines()[1:]
    assert rows == ["te2,tr1,rose,7,test,train,False"]
