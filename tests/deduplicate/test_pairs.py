"""Pairs of images by their hashes."""

import numpy as np
import pandas as pd
import pytest
from support.scenes import scene
from support.splits import make_hashes

from kaggle_tfr.deduplicate.pairs import (
    find_fine_pairs,
    find_pairs,
    find_pairs_between,
    measure_pairs,
)
from kaggle_tfr.images.hashing import (
    ALL_HASHES,
    BITS_BY_ORIENTATION,
    FLAT,
    HASHES,
    hash_image,
)
from kaggle_tfr.images.orientation import INVERSE, apply_orientation


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


def draw_hashes(seed, n_images):
    """Return a table with crowds, copies in all orientations and images that are flat.

    A sixth of the images is in a crowd of equal hashes, a sixth is a rotated copy, a
    tenth is flat, a tenth has a problem.
    """
    rng = np.random.default_rng(seed)
    centres = rng.random((4, 896)) < rng.random(896) ** 2
    bits = centres[rng.integers(0, 4, n_images)]
    bits ^= rng.random((n_images, 896)) < 0.03
    crowd = rng.random(n_images) < 1 / 6
    bits[crowd] = bits[rng.integers(0, 3, crowd.sum())]
    for row in np.flatnonzero(rng.random(n_images) < 1 / 6):
        original = bits[rng.integers(0, n_images)]
        bits[row, :256] = original[BITS_BY_ORIENTATION[rng.integers(0, 8)]]
    is_flat = rng.random(n_images) < 0.1
    digest = rng.integers(0, 6, n_images)
    bits[is_flat] = (rng.random((6, 896)) < 0.5)[digest[is_flat]]
    words = np.packbits(bits, axis=1).view(">u8").astype(np.uint64)
    return pd.DataFrame(words, columns=[*ALL_HASHES]).assign(
        texture=np.where(is_flat, FLAT / 2, FLAT),
        digest=digest.astype(str),
        problem=np.where(rng.random(n_images) < 0.1, "broken", ""),
    )


def select_new(pairs, is_new):
    has_new = is_new[pairs["a"]] | is_new[pairs["b"]]
    return pairs[has_new].reset_index(drop=True)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("rotated_bits", [None, 20])
@pytest.mark.parametrize("seed", [0, 1])
def test_pairs_with_a_new_image_are_those_of_the_full_search(seed, rotated_bits, share):
    """With crowds, rotated copies, flat images and damaged ones, old and new."""
    hashes = draw_hashes(seed, 300)
    is_new = np.random.default_rng(seed).random(300) < share

    found = find_pairs(hashes, 25, rotated_bits, is_new=is_new)
    by_fine_hash = find_fine_pairs(hashes, 30, 70, is_new=is_new)

    expected = find_pairs(hashes, 25, rotated_bits)
    pd.testing.assert_frame_equal(found, select_new(expected, is_new))
    expected = find_fine_pairs(hashes, 30, 70)
    assert len(expected) > 100
    pd.testing.assert_frame_equal(
        by_fine_hash.reset_index(drop=True),
        select_new(expected, is_new),
    )


@pytest.mark.parametrize("first_is_new", [False, True])
def test_every_new_image_of_a_crowd_is_paired_with_the_crowd(first_is_new):
    """A crowd of old images gives no pairs of its own."""
    codes = np.zeros((1000, 32), np.uint8)
    codes[400:] = 255
    is_new = np.isin(np.arange(1000), [0 if first_is_new else 5, 7, 9])

    pairs = find_pairs(make_hashes(codes), 25, is_new=is_new)

    assert (pairs["a"] == 0).all()
    partners = pairs["b"].tolist()
    assert partners == ([*range(1, 400)] if first_is_new else [5, 7, 9])


def unpack_hashes(table):
    words = table[[*ALL_HASHES]].to_numpy().astype(">u8", order="C")
    return np.unpackbits(words.view(np.uint8), axis=1)


def list_nearest(hashes, others, max_bits, rotated_bits):
    """Return [a, b, distance, orientation] of pairs between two tables, one by one."""
    bits = unpack_hashes(hashes)
    other_bits = unpack_hashes(others)
    found = []
    for a, b in np.ndindex(len(hashes), len(others)):
        rotated = other_bits[b][BITS_BY_ORIENTATION]
        distances = (bits[a, :256] ^ rotated).sum(axis=1, dtype=int).tolist()
        n_flat = [hashes["texture"][a], others["texture"][b]].count(FLAT / 2)
        if hashes["problem"][a] or n_flat == 1:
            continue
        if n_flat == 2:
            if hashes["digest"][a] == others["digest"][b]:
                found.append([a, b, distances[0], 1])
            continue
        radii = [max_bits] + [rotated_bits] * 7
        near = [
            (distance, orientation)
            for orientation, distance in enumerate(distances, 1)
            if distance <= radii[orientation - 1]
        ]
        if near:
            found.append([a, b, *min(near)])
    return found


@pytest.mark.parametrize(("n_images", "n_others"), [(40, 150), (150, 40), (40, 0)])
@pytest.mark.parametrize("rotated_bits", [-1, 20])
def test_pairs_between_two_datasets_are_those_of_brute_force(
    n_images, n_others, rotated_bits
):
    """Each pair has the nearest orientation; flat images pair by their digest."""
    table = draw_hashes(2, n_images + n_others)
    hashes = table[:n_images]
    others = table[n_images:].drop(columns="problem").reset_index(drop=True)

    pairs = find_pairs_between(
        hashes,
        others,
        25,
        rotated_bits if rotated_bits > 0 else None,
    )

    found = pairs[["a", "b", "distance", "orientation"]].to_numpy().tolist()
    assert found == list_nearest(hashes, others, 25, rotated_bits)
    assert pairs["distance"].equals(pairs[[*HASHES]].sum(axis=1))
    assert len(found) > 300 or n_others == 0


def test_crowds_of_two_datasets_list_twenty_others_for_each_image():
    """Those are the nearest; of equally near ones those that come first."""
    codes = np.zeros((5_030, 32), np.uint8)
    codes[5_000:, 0] = 0b1  # thirty images that differ in one bit
    hashes = make_hashes(codes)
    others = hashes.drop(columns="problem")

    # Thirty others in one bit of distance, then ten with equal hashes.
    reversed_others = others[4_990:][::-1].reset_index(drop=True)
    pairs = find_pairs_between(hashes[:5_000], reversed_others, 9)

    assert len(pairs) == 5_000 * 20
    of_last = pairs[pairs["a"] == 4_999]
    assert of_last["b"].tolist() == [*range(10), *range(30, 40)]
    assert of_last["distance"].tolist() == [1] * 10 + [0] * 10

    pairs = find_pairs_between(hashes[4_999:5_001], others, 9)

    assert pairs.groupby("a").size().tolist() == [40, 40]
    of_first = pairs["b"][pairs["a"] == 0].tolist()
    assert of_first == [*range(20), *range(5_000, 5_020)]
