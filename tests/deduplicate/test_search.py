"""Near pairs of codes: always those of brute force, whatever the tables are."""

from collections import Counter

import numpy as np
import pytest

from kaggle_tfr.deduplicate import search
from kaggle_tfr.deduplicate.search import TooManyPairs, choose_keys, near_pairs


def draw_codes(seed, n, spread):
    """Draw codes around three centres, as skewed as can be: some bits never change."""
    rng = np.random.default_rng(seed)
    centres = rng.random((3, 256)) < rng.random(256) ** 2
    bits = centres[rng.integers(0, 3, n)]
    flips = rng.random((n, 256)) < spread
    return np.packbits(bits ^ flips, axis=1)


def compare_all(codes, radius):
    """Return the rows a < b of near codes, one row after the other."""
    found = []
    for a, code in enumerate(codes):
        differing = np.bitwise_count(codes[a + 1 :] ^ code).sum(axis=1)
        found += [[a, a + 1 + b] for b in np.flatnonzero(differing <= radius)]
    return found


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
    [(0, 25), (1, 25), (300, 0), (300, 25), (300, 70), (300, 256)],
)
def test_all_sizes_and_radii_give_the_pairs_of_brute_force(n, radius):
    """Opposite codes, which differ in all 256 bits, included."""
    codes = draw_codes(n, n, 0.1)
    codes[:100] = codes[-100:] ^ draw_codes(1, len(codes[:100]), 0.05)
    codes[3:5] = codes[7:8] ^ 255

    found = near_pairs(codes, radius)

    assert found.T.tolist() == compare_all(codes, radius)


def test_a_radius_that_takes_in_everything_names_the_parameter_to_lower(monkeypatch):
    """The error comes before the pairs fill the memory."""
    codes = draw_codes(0, 200, 0.2)
    n_pairs = 200 * 199 // 2

    monkeypatch.setattr(search, "MAX_PAIRS", n_pairs)
    assert near_pairs(codes, 256).shape == (2, n_pairs)
    monkeypatch.setattr(search, "MAX_PAIRS", n_pairs - 1)
    with pytest.raises(TooManyPairs, match="MAX_BITS.*lower"):
        near_pairs(codes, 256)
