"""Pairs of images by their hashes."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.scenes import scene

from kaggle_tfr.deduplicate.pairs import find_pairs, measure_pairs
from kaggle_tfr.images.hashing import FLAT, HASHES, hash_image
from kaggle_tfr.images.orientation import INVERSE, apply_orientation


def hashes_of(codes):
    """The table of `load_hashes` for these codes."""
    words = np.asarray(codes, np.uint8).view(">u8").astype(np.uint64)
    hashes = pd.DataFrame(dict(zip(HASHES, words.T, strict=True)))
    return hashes.assign(texture=FLAT, digest="", problem="")


@pytest.mark.parametrize("n", [0, 1, 2])
def test_hardly_any_images_are_no_special_case(n):
    """Two images give their pair; images without a hash are in no pair."""
    codes = np.zeros((n, 32), np.uint8)
    codes[1:, 0] = 7
    assert find_pairs(hashes_of(codes), 25)["distance"].tolist() == [3] * (n == 2)
    assert find_pairs(hashes_of(codes).assign(problem="broken"), 25).empty


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_pair_given_in_either_order_has_the_same_orientation(orientation):
    """It is the EXIF orientation that rotates the later row's image as the earlier."""
    first = np.asarray(scene(256, 256, seed=3).convert("L"))
    later = apply_orientation(first, INVERSE[orientation])
    assert np.array_equal(apply_orientation(later, orientation), first)
    words = []
    for pixels in (first, later):
        bits, _, turned_bits = hash_image(Image.fromarray(pixels.copy()))
        words.append(np.append(bits, turned_bits).view(">u8").astype(np.uint64))

    for a, b in ((0, 1), (1, 0)):
        candidates = pd.DataFrame({"a": a, "b": b, "orientation": range(1, 9)})
        found = measure_pairs(np.array(words), candidates)
        columns = ["a", "b", "orientation"]
        assert found[columns].to_numpy().tolist() == [[0, 1, orientation]]


def test_many_equal_hashes_are_one_cluster_and_not_five_billion_pairs():
    """Each of 100,000 is paired with the first alone; small groups are paired in full."""
    many, few = np.random.default_rng(0).integers(0, 256, (2, 32), np.uint8)
    near = many.copy()
    near[0] ^= 7
    codes = np.concatenate([np.tile(many, (100_000, 1)), np.tile(few, (4, 1)), [near]])
    found = find_pairs(hashes_of(codes), 25)
    assert len(found) == 99_999 + 6 + 1
    is_near = found["distance"] == 3
    assert found.loc[is_near, ["a", "b"]].to_numpy().tolist() == [[0, 100_004]]
    assert ((found["a"] >= 100_000) & (found["distance"] == 0)).sum() == 6
