import sys

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from PIL import Image
from support.scenes import scene

from kaggle_tfr.deduplicate import pairs
from kaggle_tfr.deduplicate.pairs import (
    count_by_radius,
    examples_around,
    find_pairs,
    near_pairs,
)
from kaggle_tfr.images.hashing import HASHES, hash_picture
from kaggle_tfr.images.header import turn


def near_by_design(codes, radius, design):
    """The pairs that `near_pairs` finds with this design of its tables, as a sorted list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "choose_design", lambda *_: design)
        return near_pairs(codes, radius)[1:].T.tolist()


def hashes_of(codes):
    words = np.asarray(codes, np.uint8).view(">u8").astype(np.uint64)
    return pd.DataFrame(dict(zip(HASHES, words.T, strict=True)))


@pytest.mark.parametrize("n", [10_000, 1_000_000, 100_000_000])
def test_whatever_bits_differ_some_table_does_not_see_it(n):
    """The `radius` blocks that hit most groups leave `in_key` blocks of one group untouched."""
    for radius in range(0, 71, 5):
        if design := pairs.choose_design(n, radius):
            assert sum(len(group) - design[1] + 1 for group in design[0]) > radius


def crowded_codes(seed, n, spread):
    """Codes around a few centres, some bits of which never change: as skewed as can be."""
    rng = np.random.default_rng(seed)
    centres = rng.random((3, 256)) < rng.random(256) ** 2
    bits = centres[rng.integers(0, 3, n)] ^ (rng.random((n, 256)) < spread)
    return np.packbits(bits, axis=1)


@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 25),
    st.sampled_from([0.0, 0.01, 0.04, 0.2]),
)
def test_tables_find_exactly_what_brute_force_finds(seed, radius, spread):
    """No pair is missed, added or counted twice, with equal codes and bits that never change."""
    codes = crowded_codes(seed, 40, spread)
    numbers = [int.from_bytes(code.tobytes(), "big") for code in codes]
    close = [[(x ^ y).bit_count() <= radius for y in numbers] for x in numbers]
    design = np.array_split(np.arange(44), (43 - radius) // 2), 3
    assert (
        near_by_design(codes, radius, design) == np.argwhere(np.triu(close, 1)).tolist()
    )


@pytest.mark.parametrize("design", [None, (np.array_split(np.arange(44), 9), 3)])
def test_turned_codes_are_compared_as_exactly(design):
    """Under each of three orders of bits all pairs a < b that brute force finds, and no other."""
    rng = np.random.default_rng(1)
    bits = np.unpackbits(crowded_codes(2, 300, 0.04), axis=1)
    turns = np.stack([np.arange(256), np.arange(256)[::-1], rng.permutation(256)])
    for number in (1, 2):
        copies = bits[:100] ^ (rng.random((100, 256)) < 0.05)
        bits[100 * number : 100 * number + 100, turns[number]] = copies
    apart = np.stack(
        [(bits[:, None] ^ bits[:, turn]).sum(axis=2, dtype=int) for turn in turns]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "choose_design", lambda *_: design)
        patch.setattr(pairs, "SLICE", 32)
        found = near_pairs(np.packbits(bits, axis=1), 25, turns)
    assert found.T.tolist() == np.argwhere(np.triu(apart <= 25, 1)).tolist()
    assert (np.bincount(found[0]) > 90).all()


@pytest.mark.parametrize("radius", [4, 25])
def test_ten_thousand_skewed_codes_give_the_pairs_of_brute_force(radius):
    """At a size where tables pay, they find what faiss finds by comparing all with all."""
    rng = np.random.default_rng(radius)
    codes = np.packbits(rng.random((10_000, 256)) < rng.beta(2, 2, 256), axis=1)
    flips = rng.random((300, 256)).argsort(axis=1) < np.arange(300)[:, None] % 30
    codes[-300:] = codes[:300] ^ np.packbits(flips, axis=1)
    assert pairs.choose_design(len(codes), radius) is not None
    found = near_pairs(codes, radius)[1:].T.tolist()
    assert found == near_by_design(codes, radius, None)
    assert len(found) >= 10 * (radius + 1)


@pytest.mark.parametrize("radius", [0, 25, 110, 256])
def test_without_faiss_the_pairs_are_the_same(monkeypatch, radius):
    """Kaggle's image has none: NumPy finds by itself what faiss finds, blanks and opposites too."""
    codes = np.concatenate(
        [crowded_codes(radius, 300, 0.1), np.zeros((2, 32), np.uint8)]
    )
    codes[-1] = 255
    expected = near_by_design(codes, radius, None)
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(pairs, "SLICE", 1 << 12)  # several blocks
    assert near_by_design(codes, radius, None) == expected
    assert expected or radius == 0


@pytest.mark.parametrize("n", [0, 1, 2])
def test_hardly_any_pictures_are_no_special_case(n):
    """None, one and two give no pair or the one pair; files without a hash pair with nothing."""
    codes = np.zeros((n, 32), np.uint8)
    codes[1:, 0] = 7
    assert find_pairs(hashes_of(codes), 25)["distance"].tolist() == [3] * (n == 2)
    assert find_pairs(hashes_of(codes).assign(problem="broken"), 25).empty


@pytest.mark.parametrize("way", range(1, 9))
def test_a_pair_given_in_either_order_has_the_same_orientation(way):
    """EXIF's, by which the later row's picture is turned as the earlier one's is."""
    first = np.asarray(scene(256, 256, seed=3).convert("L"))
    later = turn(first, {6: 8, 8: 6}.get(way, way))
    assert np.array_equal(turn(later, way), first)
    hashed = [hash_picture(Image.fromarray(pixels.copy())) for pixels in (first, later)]
    words = np.array(
        [np.append(bits, turned).view(">u8") for bits, _, turned in hashed]
    )
    words = words.astype(np.uint64)

    for a, b in ((0, 1), (1, 0)):
        every_way = np.arange(8)
        found = pairs.measure_pairs(words, every_way, np.full(8, a), np.full(8, b))
        assert found[["a", "b", "orientation"]].to_numpy().tolist() == [[0, 1, way]]


def test_a_radius_that_takes_in_everything_is_refused_by_name(monkeypatch):
    """Instead of filling the memory, the error says which parameter to lower."""
    monkeypatch.setattr(pairs, "MAX_PAIRS", 1000)
    with pytest.raises(ValueError, match="MAX_BITS.*lower"):
        near_pairs(crowded_codes(0, 200, 0.2), 200)


def test_a_hundred_thousand_equal_hashes_are_one_cluster_and_not_five_billion_pairs():
    """Each is paired with the first alone, the first with its neighbours; small groups in full."""
    many, few = np.random.default_rng(0).integers(0, 256, (2, 32), np.uint8)
    near = many ^ np.eye(1, 32, dtype=np.uint8)[0] * np.uint8(7)
    codes = np.concatenate([np.tile(many, (100_000, 1)), np.tile(few, (4, 1)), [near]])
    found = find_pairs(hashes_of(codes), 25)
    assert len(found) == 99_999 + 6 + 1
    assert found.loc[found["distance"] == 3, ["a", "b"]].to_numpy().tolist() == [
        [0, 100_004]
    ]
    assert ((found["a"] >= 100_000) & (found["distance"] == 0)).sum() == 6


def test_the_table_of_radii_counts_pairs_and_agreement():
    """Worked by hand: three pairs, the second between two labels, and one with a test image."""
    images = pd.DataFrame({"label": [0, 0, 1, 1, -1]})
    found = pd.DataFrame(
        {"a": [0, 1, 2, 2], "b": [1, 2, 3, 4], "distance": [0, 7, 9, 9]}
    )
    table = count_by_radius(images, found, [0, 5, 9])
    rows = [[0, 1, 1, 1, 1], [5, 1, 1, 0, np.nan], [9, 4, 2 / 3, 3, 0.5]]
    assert list(table) == ["radius", "pairs", "agree", "new", "new_agree"]
    np.testing.assert_allclose(table, rows)


def test_examples_come_from_both_sides_of_the_radius():
    """The two nearest the radius within it, then the two nearest beyond it."""
    found = pd.DataFrame({"distance": [3, 25, 26, 10, 40, 24]})
    examples = [half["distance"].tolist() for half in examples_around(found, 25, 2)]
    assert examples == [[25, 24], [26, 40]]
