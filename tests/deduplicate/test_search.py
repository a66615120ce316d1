"""Near pairs of codes: always those of brute force, whatever the tables are."""

import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kaggle_tfr.deduplicate import search
from kaggle_tfr.deduplicate.search import (
    Design,
    choose_tables,
    near_pairs,
    near_pairs_between,
)

SIX_GROUPS = Design((8, 8, 7, 7, 7, 7), 3)
NINE_GROUPS = Design((5, 5, 5, 5, 5, 5, 5, 5, 4), 3)


def near_by_design(codes, radius, design):
    """Find near pairs by these tables, by brute force for None: a sorted list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "choose_tables", lambda *_: design)
        return near_pairs(codes, radius).T.tolist()


def crowded_codes(seed, n, spread):
    """Draw codes around three centres, as skewed as can be: some bits never change."""
    rng = np.random.default_rng(seed)
    centres = rng.random((3, 256)) < rng.random(256) ** 2
    bits = centres[rng.integers(0, 3, n)] ^ (rng.random((n, 256)) < spread)
    return np.packbits(bits, axis=1)


@pytest.mark.parametrize("n", [10_000, 1_000_000, 100_000_000])
def test_whatever_bits_differ_some_table_has_a_key_without_them(n):
    """`radius` different blocks always leave `key_size` equal blocks in one group."""
    for radius in range(0, 71, 5):
        design = choose_tables(n, radius)
        if design is not None:
            most_spread = [size - design.key_size + 1 for size in design.group_sizes]
            assert sum(most_spread) > radius


def test_every_choice_of_blocks_of_a_group_is_a_key():
    """Worked by hand: groups of three blocks and of two, keys of two blocks."""
    assert Design((3, 2), 2).list_keys() == [(0, 1), (0, 2), (1, 2), (3, 4)]


@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 25),
    st.sampled_from([0.0, 0.01, 0.04, 0.2]),
)
def test_tables_find_exactly_what_brute_force_finds(seed, radius, spread):
    """No pair is missed, added or repeated, with equal codes and bits that never change."""
    codes = crowded_codes(seed, 40, spread)
    numbers = [int.from_bytes(code.tobytes(), "big") for code in codes]
    close = [[(x ^ y).bit_count() <= radius for y in numbers] for x in numbers]
    n_groups = (43 - radius) // 2
    sizes = tuple(map(len, np.array_split(np.arange(44), n_groups)))
    found = near_by_design(codes, radius, Design(sizes, 3))
    assert found == np.argwhere(np.triu(close, 1)).tolist()


@pytest.mark.parametrize("design", [None, NINE_GROUPS])
def test_pairs_between_two_lists_of_codes_are_those_of_brute_force(monkeypatch, design):
    """Of a code and another code in a different order of bits, all pairs a < b."""
    rng = np.random.default_rng(1)
    bits = np.unpackbits(crowded_codes(2, 300, 0.04), axis=1)
    order = rng.permutation(256)
    copies = bits[:100] ^ (rng.random((100, 256)) < 0.05)
    bits[100:200, order] = copies
    others = bits[:, order]
    distances = (bits[:, None] ^ others).sum(axis=2, dtype=int)

    monkeypatch.setattr(search, "choose_tables", lambda *_: design)
    monkeypatch.setattr(search, "SLICE", 32)
    found = near_pairs_between(
        np.packbits(bits, axis=1), np.packbits(others, axis=1), 25
    )

    assert found.T.tolist() == np.argwhere(np.triu(distances <= 25, 1)).tolist()
    assert found.shape[1] > 90


@pytest.mark.parametrize("radius", [4, 25])
def test_ten_thousand_skewed_codes_give_the_pairs_of_brute_force(radius):
    """At a size where tables are chosen, they find what faiss finds by brute force."""
    rng = np.random.default_rng(radius)
    codes = np.packbits(rng.random((10_000, 256)) < rng.beta(2, 2, 256), axis=1)
    flips = rng.random((300, 256)).argsort(axis=1) < np.arange(300)[:, None] % 30
    codes[-300:] = codes[:300] ^ np.packbits(flips, axis=1)
    assert choose_tables(len(codes), radius) is not None
    found = near_pairs(codes, radius).T.tolist()
    assert found == near_by_design(codes, radius, None)
    assert len(found) >= 10 * (radius + 1)


@pytest.mark.parametrize("radius", [0, 25, 110, 256])
def test_without_faiss_the_pairs_are_the_same(monkeypatch, radius):
    """Kaggle's image has no faiss: NumPy finds the same, opposite codes included."""
    codes = np.concatenate(
        [crowded_codes(radius, 300, 0.1), np.zeros((2, 32), np.uint8)]
    )
    codes[-1] = 255
    expected = near_by_design(codes, radius, None)
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(search, "SLICE", 1 << 12)  # several blocks
    assert near_by_design(codes, radius, None) == expected
    assert expected or radius == 0


def test_repeated_pairs_are_dropped_while_tables_are_searched(monkeypatch):
    """With little memory for waiting pairs, the result is the same."""
    codes = crowded_codes(3, 60, 0.01)
    expected = near_by_design(codes, 12, None)
    monkeypatch.setattr(search, "MAX_PAIRS", len(expected))
    assert near_by_design(codes, 12, SIX_GROUPS) == expected


def test_a_radius_that_takes_in_everything_names_the_parameter_to_lower(monkeypatch):
    """The error comes before the pairs fill the memory."""
    monkeypatch.setattr(search, "MAX_PAIRS", 1000)
    with pytest.raises(ValueError, match="MAX_BITS.*lower"):
        near_pairs(crowded_codes(0, 200, 0.2), 200)
