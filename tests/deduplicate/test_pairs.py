"""Pairs of images by their hashes."""

import numpy as np
import pandas as pd
import pytest
from support.scenes import scene

from kaggle_tfr.deduplicate.pairs import find_pairs, measure_pairs
from kaggle_tfr.images.hashing import FLAT, HASHES, hash_image
from kaggle_tfr.images.orientation import INVERSE, apply_orientation


def make_hashes(codes):
    """Return the table of `load_hashes` for these codes."""
    words = codes.view(">u8").astype(np.uint64)
    hashes = pd.DataFrame(words, columns=[*HASHES])
    return hashes.assign(texture=FLAT, digest="", problem="")


def test_two_images_are_one_pair():
    """Three different bits are a distance of 3."""
    codes = np.zeros((2, 32), np.uint8)
    codes[1, 0] = 0b111

    pairs = find_pairs(make_hashes(codes), 25)

    found = pairs[["a", "b", "distance"]]
    assert found.to_numpy().tolist() == [[0, 1, 3]]


@pytest.mark.parametrize("n_images", [0, 1, 2])
def test_images_without_a_hash_are_in_no_pair(n_images):
    """A table without a good image has no pairs, and neither has a single image."""
    hashes = make_hashes(np.zeros((n_images, 32), np.uint8))

    assert find_pairs(hashes.assign(problem="broken"), 25).empty
    assert find_pairs(hashes.head(1), 25).empty


def hash_pixels(pixels):
    """Return the words of `HASHES` and `ROTATION_BITS` of a grey image."""
    bits, _ = hash_image(pixels)
    return bits[:80].view(">u8").astype(np.uint64)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("a", "b"),
    [(0, 1), (1, 0)],
)
def test_the_order_of_a_pair_does_not_change_its_orientation(a, b, orientation):
    """It is the EXIF orientation that rotates the later row's image as the earlier."""
    grey = scene(256, 256, seed=3).convert("L")
    first = np.asarray(grey)
    second = apply_orientation(first, INVERSE[orientation])
    words = np.array([hash_pixels(first), hash_pixels(second)])
    candidates = pd.DataFrame({"a": a, "b": b, "orientation": range(1, 9)})

    pairs = measure_pairs(words, candidates)

    assert np.array_equal(apply_orientation(second, orientation), first)
    ends = pairs[["a", "b", "orientation"]]
    assert ends.to_numpy().tolist() == [[0, 1, orientation]]


def test_many_equal_hashes_are_one_cluster_and_not_five_billion_pairs():
    """Each of 100,000 is paired with the first alone; a small group in full."""
    rng = np.random.default_rng(0)
    frequent, rare = rng.integers(
        0,
        256,
        (2, 32),
        np.uint8,
    )
    near = frequent.copy()
    near[0] ^= 0b111
    codes = np.array([frequent] * 100_000 + [rare] * 4 + [near])

    pairs = find_pairs(make_hashes(codes), 25)

    assert len(pairs) == 99_999 + 6 + 1
    near_pairs = pairs[pairs["distance"] == 3]
    ends = near_pairs[["a", "b"]]
    assert ends.to_numpy().tolist() == [[0, 100_004]]
    is_rare = pairs["a"] >= 100_000
    assert pairs["distance"][is_rare].tolist() == [0] * 6
