"""Near pairs of codes: always those of brute force, whatever the tables are."""

import sys
from itertools import combinations, product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from kaggle_tfr.deduplicate import blocks, lookup, search
from kaggle_tfr.deduplicate.lookup import Lookup, choose_lookup
from kaggle_tfr.deduplicate.search import (
    Design,
    TooManyPairs,
    choose_tables,
    match_codes,
    near_pairs,
    near_pairs_between,
)

SIX_GROUPS = Design(
    (8, 8, 7, 7, 7, 7),
    3,
)
NINE_GROUPS = Design(
    (5, 5, 5, 5, 5, 5, 5, 5, 4),
    3,
)


def near_by_design(codes, radius, design, limit=search.MAX_PAIRS):
    """Find near pairs by these tables, by brute force for None: a sorted list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "choose_tables", lambda *_: design)
        return near_pairs(codes, radius, limit).T.tolist()


def crowded_codes(seed, n, spread):
    """Draw codes around three centres, as skewed as can be: some bits never change."""
    rng = np.random.default_rng(seed)
    centres = rng.random((3, 256)) < rng.random(256) ** 2
    bits = centres[rng.integers(0, 3, n)]
    flips = rng.random((n, 256)) < spread
    return np.packbits(bits ^ flips, axis=1)


@pytest.mark.parametrize("n", [10_000, 1_000_000, 100_000_000])
def test_whatever_bits_differ_some_table_has_a_key_without_them(n):
    """`radius` different blocks always leave `key_size` equal blocks in one group."""
    for radius in range(0, 71, 5):
        design = choose_tables(n, radius)
        if design is None:
            continue
        n_needed = 0  # different blocks that leave no key in any group
        for size in design.group_sizes:
            n_needed += size - design.key_size + 1
        assert n_needed > radius


@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 25),
    st.sampled_from([0.0, 0.01, 0.04, 0.2]),
)
def test_tables_find_exactly_what_brute_force_finds(seed, radius, spread):
    """No pair is missed, added or repeated, although some bits never change."""
    codes = crowded_codes(seed, 40, spread)
    n_groups = (43 - radius) // 2
    groups = np.array_split(range(44), n_groups)
    design = Design(tuple(map(len, groups)), 3)

    found = near_by_design(codes, radius, design)

    numbers = [int(code.tobytes().hex(), 16) for code in codes]
    expected = []
    for (a, first), (b, second) in combinations(enumerate(numbers), 2):
        if (first ^ second).bit_count() <= radius:
            expected.append([a, b])
    assert found == expected


@pytest.mark.parametrize("design", [None, NINE_GROUPS])
def test_pairs_between_two_lists_of_codes_are_those_of_brute_force(monkeypatch, design):
    """Of a code and another code in a different order of bits, all pairs a < b."""
    rng = np.random.default_rng(1)
    bits = np.unpackbits(crowded_codes(2, 300, 0.04), axis=1)
    order = rng.permutation(256)
    flips = rng.random((100, 256)) < 0.05
    bits[100:200, order] = bits[:100] ^ flips
    other_bits = bits[:, order]
    codes = np.packbits(bits, axis=1)
    others = np.packbits(other_bits, axis=1)

    monkeypatch.setattr(search, "choose_tables", lambda *_: design)
    for module in (blocks, search):
        monkeypatch.setattr(module, "SLICE", 32)
    found = near_pairs_between(codes, others, 25)

    differing = bits[:, None] ^ other_bits
    is_near = differing.sum(axis=2, dtype=int) <= 25
    expected = np.argwhere(np.triu(is_near, 1))
    assert found.T.tolist() == expected.tolist()
    assert len(expected) > 90


@pytest.mark.parametrize("radius", [4, 25])
def test_ten_thousand_skewed_codes_give_the_pairs_of_brute_force(radius):
    """At a size where tables are chosen, they find what faiss finds by brute force."""
    rng = np.random.default_rng(radius)
    bits = rng.random((10_000, 256)) < rng.beta(2, 2, 256)
    codes = np.packbits(bits, axis=1)
    # Copies of 300 codes with 0 to 29 other bits.
    n_flips = np.arange(300) % 30
    order = rng.random((300, 256)).argsort(axis=1)
    flips = np.packbits(order < n_flips[:, None], axis=1)
    codes[-300:] = codes[:300] ^ flips

    assert choose_tables(len(codes), radius) is not None
    found = near_pairs(codes, radius).T.tolist()

    assert found == near_by_design(codes, radius, None)
    assert len(found) >= 10 * (radius + 1)


def near_by_lookup(codes, radius, lookup_tables, is_new, limit=search.MAX_PAIRS):
    """Find near pairs with a new code by these tables, by brute force for None."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MAX_NEW_SHARE", 1)
        patch.setattr(search, "choose_lookup", lambda *_: lookup_tables)
        # Several parts, of which some buckets are larger.
        patch.setattr(lookup, "MAX_ENTRIES", 1000)
        patch.setattr(lookup, "MAX_COMPARED", 5)
        return near_pairs(codes, radius, limit, is_new).T.tolist()


def keep_new(pairs, is_new):
    return [[a, b] for a, b in pairs if is_new[a] or is_new[b]]


def test_lookups_reach_every_difference_within_the_radius():
    """Not all blocks can differ in more bits than the keys of a table may."""
    for n_few, radius in product((100, 10_000, 1_000_000), range(0, 71, 5)):
        tables = choose_lookup(n_few, 1_500_000, radius)
        if tables is not None:
            assert tables.n_tables * (tables.n_flips + 1) > radius


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 0.01, 0.04, 0.2]),
    share=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    radius_and_tables=st.sampled_from(
        [
            (0, Lookup(1, 22, 0)),
            (5, Lookup(2, 11, 2)),
            (6, Lookup(7, 12, 0)),
            (20, Lookup(11, 22, 1)),
            (25, Lookup(13, 20, 1)),
            (25, Lookup(9, 9, 2)),
            (25, None),
        ]
    ),
)
def test_pairs_with_a_new_code_are_those_of_the_full_search(
    seed, spread, share, radius_and_tables
):
    """Whatever the tables are, and although some bits never change."""
    radius, tables = radius_and_tables
    codes = crowded_codes(seed, 60, spread)
    is_new = np.random.default_rng(seed).random(60) < share

    found = near_by_lookup(codes, radius, tables, is_new)

    assert found == keep_new(near_by_design(codes, radius, None), is_new)


@pytest.mark.parametrize("tables", [None, Lookup(13, 20, 1)])
@pytest.mark.parametrize(("n_codes", "n_others"), [(0, 9), (9, 0), (30, 90), (90, 30)])
def test_matches_of_two_lists_are_those_of_brute_force(
    monkeypatch, n_codes, n_others, tables
):
    """Whichever list is longer, a is a row of the first."""
    bits = np.unpackbits(crowded_codes(5, n_codes + n_others, 0.05), axis=1)
    monkeypatch.setattr(search, "choose_lookup", lambda *_: tables)
    codes = np.packbits(bits[:n_codes], axis=1)
    others = np.packbits(bits[n_codes:], axis=1)

    found = match_codes(codes, others, 25).T.tolist()

    differing = bits[:n_codes, None] ^ bits[n_codes:]
    is_near = differing.sum(axis=2, dtype=int) <= 25
    assert found == np.argwhere(is_near).tolist()


def test_the_limit_counts_pairs_with_a_new_code_only():
    """A crowd of old codes does not stop the search of a single new one."""
    codes = np.zeros((300, 32), np.uint8)
    is_new = np.arange(300) == 7

    assert len(near_by_lookup(codes, 25, Lookup(13, 20, 1), is_new, limit=299)) == 299
    with pytest.raises(TooManyPairs):
        near_by_lookup(codes, 25, Lookup(13, 20, 1), is_new, limit=298)


@pytest.mark.parametrize("radius", [0, 25, 110, 256])
def test_without_faiss_the_pairs_are_the_same(monkeypatch, radius):
    """Kaggle's image has no faiss: NumPy finds the same, opposite codes included."""
    codes = crowded_codes(radius, 302, 0.1)
    codes[-2] = 0
    codes[-1] = 255
    expected = near_by_design(codes, radius, None)

    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(search, "SLICE", 1 << 12)  # several blocks
    found = near_by_design(codes, radius, None)

    assert found == expected
    assert expected or radius == 0


def test_repeated_pairs_are_dropped_while_tables_are_searched():
    """With little memory for waiting pairs, the result is the same."""
    codes = crowded_codes(3, 60, 0.01)
    expected = near_by_design(codes, 12, None)

    found = near_by_design(codes, 12, SIX_GROUPS, limit=len(expected))

    assert found == expected


def test_a_radius_that_takes_in_everything_names_the_parameter_to_lower():
    """The error comes before the pairs fill the memory."""
    codes = crowded_codes(0, 200, 0.2)

    with pytest.raises(ValueError, match="MAX_BITS.*lower"):
        near_pairs(codes, 200, limit=1000)
