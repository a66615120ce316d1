import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kaggle_tfr.deduplicate import pairs
from kaggle_tfr.deduplicate.pairs import Design, list_tables, near_pairs


def all_pairs(codes, radius):
    """Brute force by whole numbers, which shares nothing with the code under test."""
    numbers = [int.from_bytes(code.tobytes(), "big") for code in codes]
    return {
        (a, b): (x ^ y).bit_count()
        for b, y in enumerate(numbers)
        for a, x in enumerate(numbers[:b])
        if (x ^ y).bit_count() <= radius
    }


def as_dict(found):
    a, b, distance = (values.tolist() for values in found)
    return dict(zip(zip(a, b, strict=True), distance, strict=True))


def crowded_codes(seed, n, spread):
    """Codes around a few centres, some bits of which never change: as skewed as can be."""
    rng = np.random.default_rng(seed)
    centres = rng.random((3, 256)) < rng.random(256) ** 2
    bits = centres[rng.integers(0, 3, n)] ^ (rng.random((n, 256)) < spread)
    return np.packbits(bits, axis=1)


@st.composite
def designs(draw):
    radius = draw(st.integers(0, 30))
    in_key = draw(st.integers(1, 4))
    n_blocks = draw(st.integers(max(16, radius + in_key), 64))
    n_groups = n_blocks if in_key == 1 else (n_blocks - radius - 1) // (in_key - 1)
    return radius, Design(n_blocks, max(1, n_groups), in_key)


@settings(max_examples=60, deadline=None)
@given(designs(), st.integers(0, 2**32 - 1))
def test_whatever_bits_differ_some_table_does_not_see_it(drawn, seed):
    """
    The pigeonhole principle: `radius` changed blocks leave the key of one table untouched.
    """
    radius, design = drawn
    changed = set(np.random.default_rng(seed).permutation(design.n_blocks)[:radius].tolist())

    assert any(changed.isdisjoint(table) for table in list_tables(design))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 25), st.sampled_from([0.0, 0.01, 0.04, 0.2]))
def test_tables_find_exactly_what_brute_force_finds(seed, radius, spread):
    """
    No pair is missed, added or counted twice, with equal codes and bits that never change.
    """
    codes = crowded_codes(seed, 40, spread)
    design = Design(44, (43 - radius) // 2, 3)
    words, blocks = pairs.arrange(codes, design)
    pieces = [
        pairs.search_table(words, blocks, table, radius=radius) for table in list_tables(design)
    ]

    found = pairs._gather(pieces, codes, radius)

    assert as_dict(found) == all_pairs(codes, radius)


@pytest.mark.parametrize("radius", [4, 25])
def test_twenty_thousand_skewed_codes_give_the_pairs_of_brute_force(radius):
    """
    At a size where tables pay, they find what faiss finds by comparing all with all.
    """
    rng = np.random.default_rng(radius)
    codes = np.packbits(rng.random((20_000, 256)) < rng.beta(2, 2, 256), axis=1)
    for row in range(300):
        flipped = np.zeros(256, np.uint8)
        flipped[rng.permutation(256)[: row % 30]] = 1
        codes[-row - 1] = codes[row] ^ np.packbits(flipped)

    assert pairs.choose_design(len(codes), radius) is not None
    ours = near_pairs(codes, radius)
    expected = pairs._gather(pairs._compare_all(codes, radius), codes, radius)

    assert as_dict(ours) == as_dict(expected)
    assert len(ours[0]) >= 10 * (radius + 1)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_hardly_any_codes_are_no_special_case(n):
    """
    None, one and two codes give no pair or the one pair.
    """
    codes = np.zeros((n, 32), np.uint8)

    assert len(near_pairs(codes, 25)[0]) == (n == 2)


def test_a_radius_that_takes_in_everything_is_refused_by_name(monkeypatch):
    """
    Instead of filling the memory, the error says which parameter to lower.
    """
    monkeypatch.setattr(pairs, "MAX_PAIRS", 1000)
    codes = crowded_codes(0, 200, 0.2)

    with pytest.raises(ValueError, match="MAX_BITS.*lower"):
        near_pairs(codes, 200)
