"""Find pairs of near-duplicates: images whose perceptual hashes differ in few bits.

Images with equal hashes are searched as one image, because a dataset may contain the
same blank page a hundred thousand times. With rotations, the hashes of each image are
also compared with the hashes that each other image would have if it were mirrored or
rotated by right angles. `search` explains how near hashes are found.
"""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.search import (
    MAX_PAIRS,
    list_slices,
    near_pairs,
    near_pairs_between,
)
from kaggle_tfr.images.hashing import (
    BITS_BY_ORIENTATION,
    FINE_HASH,
    FLAT,
    HASHES,
    ROTATION_BITS,
)
from kaggle_tfr.images.orientation import INVERSE

MAX_EQUAL = 20  # images with equal hashes that are still paired each with each


def find_pairs(
    hashes: pd.DataFrame,
    max_bits: int,
    rotated_bits: int | None = None,
    limit: int = MAX_PAIRS,
) -> pd.DataFrame:
    """Find all pairs of images within `max_bits` of 256 bits, one row per pair.

    hashes: of `load_hashes`.
    rotated_bits: radius for mirrored and rotated copies; None: they are not searched.
    Raises: TooManyPairs: more than `limit` pairs of different hashes.
    Columns: a < b (row numbers of `hashes`); distance, the sum over the four hashes,
    and the distance in each (bits); orientation (EXIF), which rotates image b as image
    a is.

    If more than 20 images have equal hashes, the first is paired with each of them, and
    it alone with other images; the clusters are the same.
    Images of almost no texture have random hashes: they pair only if their files are
    equal.
    """
    columns = [*HASHES]
    if rotated_bits is not None:
        columns += ROTATION_BITS
    words = hashes[columns].to_numpy(np.uint64)
    members = _group_equal(hashes, words)
    searched = _choose_searched(members)
    near = _search_orientations(words[searched], max_bits, rotated_bits, limit)
    # Positions in `searched` become rows of `hashes`.
    near["a"] = searched[near["a"]]
    near["b"] = searched[near["b"]]
    candidates = _expand_groups(members, near)
    return measure_pairs(words, candidates)


def find_fine_pairs(
    hashes: pd.DataFrame,
    fine_bits: int,
    max_bits: int,
    limit: int = MAX_PAIRS,
) -> pd.DataFrame:
    """Find pairs within `fine_bits` of the fine hash and `max_bits` of the other four.

    Columns as in `find_pairs`. Of images with equal hashes only the first is searched.
    Raises: TooManyPairs: more than `limit` pairs by the fine hash.
    """
    words = hashes[[*HASHES]].to_numpy(np.uint64)
    searched = _choose_searched(_group_equal(hashes, words))
    fine_words = hashes[[*FINE_HASH]].to_numpy(np.uint64)
    a, b = near_pairs(words_to_codes(fine_words[searched]), fine_bits, limit)
    candidates = pd.DataFrame({"a": searched[a], "b": searched[b], "orientation": 1})
    pairs = measure_pairs(words, candidates)
    return pairs[pairs["distance"] <= max_bits]


def _choose_searched(members: pd.DataFrame) -> np.ndarray:
    """Return the first row of each group of equal hashes with texture."""
    return members["first"][~members["is_flat"]].unique()


def _group_equal(
    hashes: pd.DataFrame,
    words: np.ndarray,
) -> pd.DataFrame:
    """Return row, is_flat, and first (first row with equal hashes) of good images.

    For images of almost no texture it is the first row with an equal file.
    """
    is_flat = hashes["texture"].to_numpy() < FLAT
    words = np.where(is_flat[:, None], 0, words)
    key = pd.DataFrame(words)
    key["digest"] = np.where(is_flat, hashes["digest"], "")
    key["is_flat"] = is_flat

    is_good = hashes["problem"].to_numpy() == ""
    members = key.assign(row=key.index)[is_good]
    row = members.groupby([*key], sort=False)["row"]
    members = members.assign(first=row.transform("min"))
    return members[["row", "is_flat", "first"]]


def _search_orientations(
    words: np.ndarray,
    max_bits: int,
    rotated_bits: int | None,
    limit: int,
) -> pd.DataFrame:
    """Return columns a < b, rows of words, and orientation; a pair may have several."""
    codes = words_to_codes(words)
    plain = np.ascontiguousarray(codes[:, :32])
    found = {1: near_pairs(plain, max_bits, limit)}
    if rotated_bits is not None:
        for orientation in range(2, 9):
            rotated = rotate_codes(codes, orientation)
            found[orientation] = near_pairs_between(plain, rotated, rotated_bits)
    tables = [
        pd.DataFrame({"a": a, "b": b, "orientation": orientation})
        for orientation, (a, b) in found.items()
    ]
    return pd.concat(tables, ignore_index=True)


def words_to_codes(words: np.ndarray) -> np.ndarray:
    """Return the bytes of 64-bit hashes: uint8 (n, 8 k) of uint64 (n, k)."""
    return words.astype(">u8", order="C").view(np.uint8)


def rotate_codes(
    codes: np.ndarray,
    orientation: int,
) -> np.ndarray:
    """Return the hashes that the images have when rotated: uint8 (n, 32).

    codes: uint8 (n, 80), of the columns `HASHES` and `ROTATION_BITS`.
    """
    rotated = np.empty((len(codes), 32), np.uint8)
    for rows in list_slices(len(codes)):
        bits = np.unpackbits(codes[rows], axis=1)
        rotated_bits = bits[:, BITS_BY_ORIENTATION[orientation - 1]]
        rotated[rows] = np.packbits(rotated_bits, axis=1)
    return rotated


def _expand_groups(
    members: pd.DataFrame,
    near: pd.DataFrame,
) -> pd.DataFrame:
    """Return all pairs of rows in near groups and in the same group: a, b, orientation.

    near: columns a, b (the first rows of two groups) and orientation. Of a group of
    more than 20, the first row alone is paired with other groups.
    """
    size = members.groupby("first")["row"].transform("size")
    is_first = members["row"] == members["first"]
    is_extra = (size > MAX_EQUAL) & ~is_first
    extra = members[is_extra].rename(columns={"first": "a", "row": "b"})
    pairs = _pair_members(members[~is_extra], near)
    pairs = pd.concat([pairs, extra.assign(orientation=1)])
    return pairs[["a", "b", "orientation"]]


def _pair_members(
    members: pd.DataFrame,
    near: pd.DataFrame,
) -> pd.DataFrame:
    """Return the pairs of rows in two near groups or in one group: a, b, orientation.

    members: row, and first, the first row of its group. near: pairs of groups, by their
    first rows. a may come after b.
    """
    first = members["first"]
    repeated = first[first.duplicated()].unique()
    same_group = pd.DataFrame({"a": repeated, "b": repeated, "orientation": 1})
    pairs = pd.concat([near, same_group])
    for end in ("a", "b"):
        new_names = {"row": f"row_{end}", "first": end}
        pairs = pairs.merge(members.rename(columns=new_names), on=end)
    is_between = pairs["a"] != pairs["b"]
    is_ascending = pairs["row_a"] < pairs["row_b"]
    pairs = pairs[is_between | is_ascending]
    return pairs.assign(a=pairs["row_a"], b=pairs["row_b"])


def select_accepted(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the accepted pairs, or all pairs if they are not verified."""
    return pairs[pairs["accepted"]] if "accepted" in pairs else pairs


def measure_pairs(
    words: np.ndarray,
    candidates: pd.DataFrame,
) -> pd.DataFrame:
    """Measure the distances between rows a and b, b in an orientation, as `find_pairs`.

    words: uint64 (n, 4), or (n, 10) where there are other orientations than 1.
    candidates: columns a, b, orientation. Of a pair with several, the nearest remains.
    """
    candidates = candidates.reset_index(drop=True)
    ends = candidates[["a", "b"]]
    orientation = candidates["orientation"]
    inverse = orientation.map(INVERSE)
    bits = _count_differing_bits(words, candidates)
    measured = pd.DataFrame(
        {
            "a": ends.min(axis=1),
            "b": ends.max(axis=1),
            "distance": bits.sum(axis=1),
            **dict(zip(HASHES, bits.T, strict=True)),
            "orientation": orientation.mask(ends["a"] > ends["b"], inverse),
        }
    )
    measured = measured.sort_values(["a", "b", "distance", "orientation"])
    return measured.drop_duplicates(["a", "b"], ignore_index=True)


def _count_differing_bits(
    words: np.ndarray,
    candidates: pd.DataFrame,
) -> np.ndarray:
    """Return the distance of each candidate in each of the hashes: int64 (n, 4)."""
    shape = (len(candidates), len(HASHES))
    bits = np.empty(shape, np.int64)
    for orientation in candidates["orientation"].unique().tolist():
        pairs = candidates[candidates["orientation"] == orientation]
        plain = words[pairs["a"], :4]
        rotated = _rotate_words(words[pairs["b"]], orientation)
        bits[pairs.index] = np.bitwise_count(plain ^ rotated)
    return bits


def _rotate_words(
    words: np.ndarray,
    orientation: int,
) -> np.ndarray:
    """Return the hashes that the images have when rotated: 64 bits (n, 4)."""
    if orientation == 1:
        return words[:, :4]
    return rotate_codes(words_to_codes(words), orientation).view(">u8")
