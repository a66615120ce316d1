"""Pairs of images by their hashes."""

import numpy as np
import pandas as pd
import pytest
from support.brute_force import find_by_brute_force
from support.scenes import scene
from support.splits import make_hashes

from kaggle_tfr.deduplicate.pairs import find_first, find_pairs
from kaggle_tfr.images.hashing import (
    BITS_BY_ORIENTATION,
    FLAT,
    HASHES,
    ROTATION_BITS,
    hash_images,
)
from kaggle_tfr.images.orientation import INVERSE, apply_orientation


@pytest.mark.parametrize("orientation", range(2, 9))
def test_the_orientation_of_a_pair_rotates_the_later_image(orientation):
    """It is the EXIF orientation that rotates the later row's image as the earlier."""
    first = np.asarray(scene(256, 256, seed=3).convert("L"))
    second = apply_orientation(first, INVERSE[orientation])
    bits, _ = hash_images(np.stack([first, second]))
    words = bits[:, :80].copy().view(">u8").astype(np.uint64)
    hashes = pd.DataFrame(words, columns=[*HASHES, *ROTATION_BITS])
    hashes = hashes.assign(texture=FLAT, digest="", problem="")

    pairs = find_pairs(hashes, 25, 20)

    assert np.array_equal(apply_orientation(second, orientation), first)
    ends = pairs[["a", "b", "orientation"]]
    assert ends.to_numpy().tolist() == [[0, 1, orientation]]


def test_many_equal_hashes_are_one_cluster_and_not_five_billion_pairs():
    """Each of 100,000 is paired with the first alone, and it alone with others."""
    codes = np.zeros((100_001, 32), np.uint8)
    codes[100_000, 0] = 0b111

    pairs = find_pairs(make_hashes(codes), 25)

    assert (pairs["a"] == 0).all()
    assert pairs["b"].tolist() == [*range(1, 100_001)]
    assert pairs["distance"].tolist() == [0] * 99_999 + [3]


def draw_hashes(seed, n_images):
    """Return a table with crowds, copies in all orientations and images that are flat.

    A sixth of the images is in a crowd of equal hashes, a sixth is a rotated copy, a
    tenth is flat, a tenth has a problem.
    """
    rng = np.random.default_rng(seed)
    bits = rng.random((n_images, 640)) < rng.random(640) ** 2
    crowd = rng.random(n_images) < 1 / 6
    bits[crowd] = bits[rng.integers(0, 3, crowd.sum())]
    for row in np.flatnonzero(rng.random(n_images) < 1 / 6):
        original = bits[rng.integers(0, n_images)]
        copy = original[BITS_BY_ORIENTATION[rng.integers(0, 8)]]
        bits[row, :256] = copy ^ (rng.random(256) < rng.random() / 8)
    is_flat = rng.random(n_images) < 0.1
    digest = rng.integers(0, 6, n_images)
    bits[is_flat] = (rng.random((6, 640)) < 0.5)[digest[is_flat]]
    words = np.packbits(bits, axis=1).view(">u8").astype(np.uint64)
    return pd.DataFrame(words, columns=[*HASHES, *ROTATION_BITS]).assign(
        texture=np.where(is_flat, FLAT / 2, FLAT),
        digest=digest.astype(str),
        problem=np.where(rng.random(n_images) < 0.1, "broken", ""),
    )


@pytest.mark.parametrize("rotated_bits", [-1, 20])
def test_pairs_are_those_of_brute_force(rotated_bits):
    """With crowds, rotated copies, flat images and damaged ones."""
    hashes = draw_hashes(0, 4000)

    pairs = find_pairs(hashes, 25, rotated_bits)

    expected = find_by_brute_force(hashes, 25, rotated_bits)
    assert pairs.to_numpy().tolist() == expected
    assert len(expected) > 600


def test_images_without_texture_are_equal_if_their_files_are():
    """Their hashes are noise."""
    hashes = make_hashes(np.zeros((4, 32), np.uint8)).assign(digest=[*"abbc"])
    hashes["texture"] = [*[FLAT - 1] * 3, FLAT]

    assert find_first(hashes).tolist() == [0, 1, 1, 3]
