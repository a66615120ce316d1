"""Leaks: pairs of near-duplicates whose images are in two splits."""

import json
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from support.splits import make_hashes, make_images, make_pairs

from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.leaks import count_copies, find_copies, find_leaks
from kaggle_tfr.deduplicate.outcomes import (
    LEAK_COLUMNS,
    DuplicateSettings,
    load_clusters,
    save_clusters,
)
from kaggle_tfr.deduplicate.pairs import find_pairs

SPLITS = ["train", "validation", "test"]
HEADER = "test_id,image_id,label_name,distance,test_split,split,keep,dataset"
SEEDS = st.integers(0, 2**32 - 1)


def draw_splits(seed, n_images):
    rng = np.random.default_rng(seed)
    return rng.choice(SPLITS, n_images, p=[0.6, 0.1, 0.3]).tolist()


def draw_codes(seed, n_centres, n_codes, changed_share):
    """Draw codes up to 6 bits from a few centres; the other codes equal a centre."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(
        0,
        256,
        (n_centres, 32),
        np.uint8,
    )
    codes = centres[rng.integers(0, n_centres, n_codes)]
    for column in (0, 9):
        flipped_bits = rng.integers(0, 8, n_codes, np.uint8)
        is_changed = rng.random(n_codes) < changed_share
        codes[:, column] ^= flipped_bits * is_changed
    return codes


def compare_all_pairs(codes, splits, radius):
    """Return bits by (row of the later split, row of the earlier one), by brute force.

    Test is the latest split.
    """
    differing = codes[:, None] ^ codes
    bits = np.bitwise_count(differing).sum(axis=2)
    rank = np.array([SPLITS.index(split) for split in splits])
    is_leak = (bits <= radius) & (rank[:, None] > rank)
    leaks = np.argwhere(is_leak).tolist()
    return {(a, b): bits[a, b] for a, b in leaks}


def find_leaks_of_codes(codes, splits, radius):
    images = make_images(*splits)
    pairs = find_pairs(make_hashes(codes), radius)
    return find_leaks(images, pairs, find_clusters(images, pairs))


@settings(max_examples=6)
@given(SEEDS, st.integers(0, 6))
def test_every_pair_between_two_splits_is_a_leak(seed, radius):
    """If no hash repeats over 20 times, the leaks are the pairs of brute force."""
    codes = draw_codes(seed, 20, 120, changed_share=1)
    splits = draw_splits(seed, 120)

    leaks = find_leaks_of_codes(codes, splits, radius)

    ends = zip(leaks["a"], leaks["b"], strict=True)
    found = dict(zip(ends, leaks["distance"], strict=True))
    assert found == compare_all_pairs(codes, splits, radius)
    assert len(found) == len(leaks)


def test_twenty_thousand_blank_pages_are_not_a_hundred_million_leaks():
    """Each image is listed with the first image of the other split alone."""
    splits = ["test", "train"] * 10_000
    codes = np.zeros((20_000, 32), np.uint8)

    leaks = find_leaks_of_codes(codes, splits, 25)

    assert len(leaks) == 19_999
    assert set(leaks["a"][leaks["b"] != 1]) == {0}


def test_a_pair_at_two_distances_is_listed_once_with_the_smaller_one():
    """Images with equal hashes may also be pairs in another orientation."""
    images = make_images(*["test", "train"] * 12)
    equal = [(0, row, 0) for row in range(1, 24)]
    pairs = make_pairs(*equal, (1, 2, 8))

    leaks = find_leaks(images, pairs, find_clusters(images, pairs))

    assert not leaks[["a", "b"]].duplicated().any()
    assert set(leaks["distance"]) == {0}


def test_a_validation_image_of_the_input_leaks_too():
    """test_id is the image of the later split; keep is the outcome of the other one."""
    images = make_images("train", "validation", "test")
    pairs = make_pairs((0, 1, 5), (1, 2, 6))
    clusters = find_clusters(images, pairs, keep="first")

    leaks = find_leaks(images, pairs, clusters)

    assert leaks[LEAK_COLUMNS].to_numpy().tolist() == [
        ["va1", "tr0", "rose", 5, "validation", "train", True, ""],
        ["te2", "va1", "rose", 6, "test", "validation", False, ""],
    ]


@pytest.fixture
def images():
    return make_images("train", "train", "test")


def save_leaks(images, pairs, work_dir, settings):
    clusters = find_clusters(images, pairs, keep="first")
    leaks = find_leaks(images, pairs, clusters)
    save_clusters(clusters, leaks, settings, str(work_dir))
    return (work_dir / "leaks.csv").read_text().splitlines()


@pytest.mark.parametrize(
    "pairs",
    [make_pairs((0, 1, 5)), make_pairs()],
)
def test_leaks_csv_has_its_header_although_nothing_leaks(images, pairs, tmp_path):
    """The header is there with and without a pair of two training images."""
    lines = save_leaks(images, pairs, tmp_path, DuplicateSettings())

    assert lines == [HEADER]


def test_settings_are_read_again_from_duplicates_json(images, tmp_path):
    """A file of an earlier version, without a newer setting, has its default."""
    expected = DuplicateSettings(leaks="drop")
    save_leaks(images, make_pairs((0, 1, 5)), tmp_path, expected)
    file = tmp_path / "duplicates.json"

    assert load_clusters(str(tmp_path))[1] == expected
    values = json.loads(file.read_text())
    assert values.pop("mirrored") is False
    file.write_text(json.dumps(values))
    assert load_clusters(str(tmp_path))[1] == expected


def test_without_clusters_the_error_names_the_step_to_run(tmp_path):
    """Step 03 needs the files of step 02 in the same WORK_DIR."""
    message = "Run 02_deduplicate with this WORK_DIR first"

    with pytest.raises(FileNotFoundError, match=message):
        load_clusters(str(tmp_path))


@settings(max_examples=6)
@given(SEEDS, st.integers(0, 6), st.sampled_from([1, 20]))
def test_every_image_with_a_copy_in_a_split_has_a_pair_there(seed, radius, n_centres):
    """Also in its own split, and if two splits are for validation."""
    codes = draw_codes(seed, n_centres, 120, changed_share=0.3)
    names = ["train", "val", "dev", "test"]
    splits = np.random.default_rng(seed).choice(names, 120)
    pairs = find_pairs(make_hashes(codes), radius)

    images = make_images(*splits)
    copies = find_copies(images, pairs[["a", "b", "distance"]])

    bits = np.bitwise_count(codes[:, None] ^ codes).sum(axis=2)
    np.fill_diagonal(bits, 999)
    expected = {(a, splits[b]) for a, b in np.argwhere(bits <= radius)}
    ends = list(zip(copies["a"], copies["b"], strict=True))
    found = {(a, splits[b]) for a, b in ends} | {(b, splits[a]) for a, b in ends}
    assert found == expected
    assert len(ends) == len(set(map(frozenset, ends)))
    assert (bits[copies["a"], copies["b"]] == copies["distance"]).all()
    order = {"test": 0, "dev": 1, "val": 2, "train": 3}
    assert all(order[splits[a]] <= order[splits[b]] for a, b in ends)
    counts = count_copies(images, copies).to_dict("records")
    n_copied = {(row["split"], row["other"]): row["images"] for row in counts}
    n_copied |= {(row["other"], row["split"]): row["other_images"] for row in counts}
    leaking = Counter((splits[a], split) for a, split in expected)
    assert {pair: count for pair, count in n_copied.items() if count} == leaking
