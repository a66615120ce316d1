"""Pairs of images by their hashes: always those of brute force."""

from collections import Counter

import numpy as np
import pytest
from support.scenes import scene
from support.splits import make_hashes

from kaggle_tfr.deduplicate import search
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.deduplicate.search import TooManyPairs, choose_keys, near_pairs
from kaggle_tfr.images.hashing import BITS_BY_ORIENTATION, FLAT, hash_images
from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation

INVERSE = {number: number for number in ORIENTATIONS} | {6: 8, 8: 6}


def count_differing(bits, other_bits):
    """Return the number of differing bits of each row and each other row: (n, m)."""
    signs = 1 - 2 * bits.astype(np.float32)
    other_signs = 1 - 2 * other_bits.astype(np.float32)
    return (256 - signs @ other_signs.T) // 2


def draw_bits(seed, n_images, n_bits, spread):
    """Draw bits around three centres, as skewed as can be: some bits never change."""
    rng = np.random.default_rng(seed)
    centres = rng.random((3, n_bits)) < rng.random(n_bits) ** 2
    flips = rng.random((n_images, n_bits)) < spread
    return centres[rng.integers(0, 3, n_images)] ^ flips


@pytest.mark.parametrize("n", [10_000, 1_000_000, 100_000_000])
@pytest.mark.parametrize("radius", [0, 4, 20, 25, 45, 70, 110])
def test_whatever_bits_differ_some_key_has_none_of_them(n, radius):
    """However maliciously as many bits as the radius are chosen."""
    keys = choose_keys(n, radius)
    for _ in range(radius):
        counts = Counter(bit for key in keys for bit in key)
        worst = max(counts, key=counts.get, default=-1)
        keys = [key for key in keys if worst not in key]
    assert keys


@pytest.mark.parametrize(
    ("n", "radius"),
    [(0, 25), (300, 0), (300, 70), (300, 256), (3000, 25)],
)
def test_all_sizes_and_radii_give_the_pairs_of_brute_force(n, radius):
    """Opposite codes, which differ in all 256 bits, included."""
    bits = draw_bits(n, n, 256, spread=0.1)
    bits[:100] = bits[-100:] ^ draw_bits(1, len(bits[:100]), 256, spread=0.05)
    bits[3:5] = ~bits[7:8]

    found = near_pairs(np.packbits(bits, axis=1), radius)

    is_near = count_differing(bits, bits) <= radius
    assert found.T.tolist() == np.argwhere(np.triu(is_near, 1)).tolist()


def test_a_radius_that_takes_in_everything_names_the_parameter_to_lower(monkeypatch):
    """The error comes before the pairs fill the memory."""
    codes = np.packbits(draw_bits(0, 200, 256, spread=0.2), axis=1)
    n_pairs = 200 * 199 // 2

    monkeypatch.setattr(search, "MAX_PAIRS", n_pairs)
    assert near_pairs(codes, 256).shape == (2, n_pairs)
    monkeypatch.setattr(search, "MAX_PAIRS", n_pairs - 1)
    with pytest.raises(TooManyPairs, match="MAX_BITS.*lower"):
        near_pairs(codes, 256)


def find_by_brute_force(hashes, bits, radii):
    """Return [a, b, distance, orientation] of the pairs of `find_pairs`."""
    is_flat = hashes["texture"] < FLAT
    firsts = {}
    found = []
    is_searched = np.zeros(len(hashes), bool)
    for row in np.flatnonzero(hashes["problem"] == ""):
        key = hashes["digest"][row] if is_flat[row] else bits[row].tobytes()
        first = firsts.setdefault(key, row)
        if first < row:
            found.append([first, row, 0, 1])
        is_searched[row] = first == row and not is_flat[row]

    nearest = np.full((len(bits), len(bits)), np.inf)
    orientations = np.zeros(nearest.shape, int)
    both_searched = np.triu(is_searched & is_searched[:, None], 1)
    for orientation, radius in enumerate(radii, 1):
        rotated = bits[:, BITS_BY_ORIENTATION[orientation - 1]]
        distance = count_differing(bits[:, :256], rotated)
        is_nearer = both_searched & (distance <= radius) & (distance < nearest)
        nearest[is_nearer] = distance[is_nearer]
        orientations[is_nearer] = orientation
    a, b = orientations.nonzero()
    found += np.stack([a, b, nearest[a, b], orientations[a, b]], axis=1).tolist()
    return sorted(found)


@pytest.mark.parametrize("rotated_bits", [-1, 20])
def test_pairs_are_those_of_brute_force(rotated_bits):
    """A sixth of the images is in a crowd of equal hashes, a sixth is a rotated copy.

    A tenth is flat, and pairs only if the files are equal. A tenth has a problem.
    """
    n_images = 3000
    rng = np.random.default_rng(0)
    bits = draw_bits(0, n_images, 640, spread=0.3)
    crowd = rng.random(n_images) < 1 / 6
    bits[crowd] = bits[rng.integers(0, 3, crowd.sum())]
    for row in np.flatnonzero(rng.random(n_images) < 1 / 6):
        original = bits[rng.integers(0, n_images)]
        copy = original[BITS_BY_ORIENTATION[rng.integers(0, 8)]]
        bits[row, :256] = copy ^ (rng.random(256) < rng.random() / 8)
    is_flat = rng.random(n_images) < 0.1
    digest = rng.integers(0, 6, n_images)
    bits[is_flat] = bits[digest[is_flat]]
    hashes = make_hashes(np.packbits(bits, axis=1)).assign(
        texture=np.where(is_flat, FLAT - 1, FLAT),
        digest=digest.astype(str),
        problem=np.where(rng.random(n_images) < 0.1, "broken", ""),
    )

    pairs = find_pairs(hashes, 25, rotated_bits)

    radii = [25] + [rotated_bits] * 7
    expected = find_by_brute_force(hashes, bits, radii)
    assert pairs.to_numpy().tolist() == expected
    assert len(expected) > 600


@pytest.mark.parametrize("orientation", range(2, 9))
def test_the_orientation_of_a_pair_rotates_the_later_image(orientation):
    """It is the EXIF orientation that rotates the later row's image as the earlier."""
    first = np.asarray(scene(256, 256, seed=3).convert("L"))
    second = apply_orientation(first, INVERSE[orientation])
    bits, _ = hash_images(np.stack([first, second]))

    pairs = find_pairs(make_hashes(bits), 25, 20)

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
