"""Find pairs of near-duplicates: images whose perceptual hashes differ in few bits.

Images with equal hashes are searched as one image, because a dataset may contain the
same blank page a hundred thousand times. With rotations, the hashes of each image are
also compared with the hashes that each other image would have if it were mirrored or
rotated by right angles. `search` explains how near hashes are found.
"""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.blocks import list_slices
from kaggle_tfr.deduplicate.search import (
    MAX_PAIRS,
    match_codes,
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
    is_new: np.ndarray | None = None,
) -> pd.DataFrame:
    """Find all pairs of images within `max_bits` of 256 bits, one row per pair.

    hashes: of `load_hashes`.
    rotated_bits: radius for mirrored and rotated copies; None: they are not searched.
    is_new: bool (n,); with it, only pairs of which a or b is new are found.
    Raises: TooManyPairs: more than `limit` pairs of different hashes.
    Columns: a < b (row numbers of `hashes`); distance, the sum over the four hashes,
    and the distance in each (bits); orientation (EXIF), which rotates image b as image
    a is.

    If more than 20 images have equal hashes, the first is paired with each of them, and
    it alone with other images; the clusters are the same.
    Images of almost no texture have random hashes: they pair only if their files are
    equal.
    """
    words = take_words(hashes, rotated_bits)
    is_good = hashes["problem"].to_numpy() == ""
    members = _group_equal(hashes, words, is_good)
    searched = _choose_searched(members)
    is_new_group = _find_new_groups(members, searched, is_new)
    near = _search_orientations(
        words[searched],
        max_bits,
        rotated_bits,
        limit,
        is_new_group,
    )
    # Positions in `searched` become rows of `hashes`.
    near["a"] = searched[near["a"]]
    near["b"] = searched[near["b"]]
    if is_new is not None:
        members = _select_involved(members, near, is_new)
    candidates = _select_new(_expand_groups(members, near), is_new)
    return measure_pairs(words, candidates)


def find_fine_pairs(
    hashes: pd.DataFrame,
    fine_bits: int,
    max_bits: int,
    limit: int = MAX_PAIRS,
    is_new: np.ndarray | None = None,
) -> pd.DataFrame:
    """Find pairs within `fine_bits` of the fine hash and `max_bits` of the other four.

    Columns and is_new as in `find_pairs`. Of images with equal hashes only the first is
    searched.
    Raises: TooManyPairs: more than `limit` pairs by the fine hash.
    """
    words = take_words(hashes)
    is_good = hashes["problem"].to_numpy() == ""
    searched = _choose_searched(_group_equal(hashes, words, is_good))
    fine_words = hashes[[*FINE_HASH]].to_numpy(np.uint64)[searched]
    is_new_code = None if is_new is None else is_new[searched]
    a, b = near_pairs(words_to_codes(fine_words), fine_bits, limit, is_new_code)
    candidates = pd.DataFrame({"a": searched[a], "b": searched[b], "orientation": 1})
    pairs = measure_pairs(words, candidates)
    return pairs[pairs["distance"] <= max_bits]


def find_pairs_between(
    hashes: pd.DataFrame,
    others: pd.DataFrame,
    max_bits: int,
    rotated_bits: int | None = None,
) -> pd.DataFrame:
    """Find all pairs of an image and an image of another dataset, as `find_pairs`.

    hashes: of `load_hashes`. others: its columns except path and problem.
    Raises: TooManyPairs: more than 50 million pairs of different hashes.
    Columns: as of `find_pairs`, but a is a row of `hashes` and b a row of `others`.

    If more than 20 of `others` have equal hashes, the first 20 are listed. If more than
    20 of `hashes` have equal hashes, each of them is listed with the nearest 20 others.
    """
    words = take_words(hashes, rotated_bits)
    other_words = take_words(others, rotated_bits)
    is_good = hashes["problem"].to_numpy() == ""
    members = _group_equal(hashes, words, is_good)
    other_members = _group_equal(others, other_words, np.full(len(others), True))

    searched = _choose_searched(members)
    other_searched = _choose_searched(other_members)
    near = _match_orientations(
        words[searched],
        other_words[other_searched],
        max_bits,
        rotated_bits,
    )
    near["a"] = searched[near["a"]]
    near["b"] = other_searched[near["b"]]
    flat = _match_flat(hashes, members, others, other_members)

    # As rows of one table, the others come after the images.
    candidates = pd.concat([near, flat], ignore_index=True)
    candidates["b"] += len(hashes)
    pairs = measure_pairs(np.concatenate([words, other_words]), candidates)
    pairs["b"] -= len(hashes)
    return _expand_matches(pairs, members, other_members)


def take_words(
    hashes: pd.DataFrame,
    rotated_bits: int | None = None,
) -> np.ndarray:
    """Return the hashes that a search needs: uint64 (n, 4), with rotations (n, 10)."""
    columns = [*HASHES]
    if rotated_bits is not None:
        columns += ROTATION_BITS
    return hashes[columns].to_numpy(np.uint64)


def _find_new_groups(
    members: pd.DataFrame,
    searched: np.ndarray,
    is_new: np.ndarray | None,
) -> np.ndarray | None:
    """Return whether the group of each searched row has a new image, None without."""
    if is_new is None:
        return None
    return np.isin(searched, _list_new_groups(members, is_new))


def _list_new_groups(members: pd.DataFrame, is_new: np.ndarray) -> np.ndarray:
    """Return the first rows of the groups with a new image."""
    return members["first"][is_new[members["row"]]].unique()


def _select_involved(
    members: pd.DataFrame,
    near: pd.DataFrame,
    is_new: np.ndarray,
) -> pd.DataFrame:
    """Return the members of groups that are in a near pair or have a new image."""
    new_groups = _list_new_groups(members, is_new)
    involved = np.concatenate([near["a"], near["b"], new_groups])
    return members[members["first"].isin(involved)]


def _select_new(
    pairs: pd.DataFrame,
    is_new: np.ndarray | None,
) -> pd.DataFrame:
    """Return the pairs with a new image; all pairs if `is_new` is None."""
    if is_new is None:
        return pairs
    return pairs[is_new[pairs["a"]] | is_new[pairs["b"]]]


def _choose_searched(members: pd.DataFrame) -> np.ndarray:
    """Return the first row of each group of equal hashes with texture."""
    return members["first"][~members["is_flat"]].unique()


def _group_equal(
    hashes: pd.DataFrame,
    words: np.ndarray,
    is_good: np.ndarray,
) -> pd.DataFrame:
    """Return row, is_flat, and first (first row with equal hashes) of good images.

    For images of almost no texture it is the first row with an equal file.
    """
    is_flat = hashes["texture"].to_numpy() < FLAT
    words = np.where(is_flat[:, None], 0, words)
    row = np.flatnonzero(is_good)
    repeated = row[_may_repeat(words[row])]
    key = pd.DataFrame(words[repeated])
    key["digest"] = np.where(is_flat, hashes["digest"], "")[repeated]
    key["is_flat"] = is_flat[repeated]

    groups = key.assign(row=repeated).groupby([*key], sort=False)
    first = np.arange(len(hashes))
    first[repeated] = groups["row"].transform("min")
    return pd.DataFrame({"row": row, "is_flat": is_flat[row], "first": first[row]})


def _may_repeat(words: np.ndarray) -> np.ndarray:
    """Return which rows may have an equal row: bool (n,). All rows that have are True.

    Most rows have none, and are found by one number instead of by all words.
    """
    mix = np.zeros(len(words), np.uint64)
    for word in words.T:
        # An odd factor, from the golden ratio, spreads the bits.
        mix = (mix ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return pd.Series(mix).duplicated(keep=False).to_numpy()


def _search_orientations(
    words: np.ndarray,
    max_bits: int,
    rotated_bits: int | None,
    limit: int,
    is_new: np.ndarray | None,
) -> pd.DataFrame:
    """Return columns a < b, rows of words, and orientation; a pair may have several."""
    codes = words_to_codes(words)
    plain = np.ascontiguousarray(codes[:, :32])
    found = {1: near_pairs(plain, max_bits, limit, is_new)}
    if rotated_bits is not None:
        for orientation in range(2, 9):
            rotated = rotate_codes(codes, orientation)
            found[orientation] = near_pairs_between(
                plain,
                rotated,
                rotated_bits,
                is_new,
            )
    return _join_orientations(found)


def _match_orientations(
    words: np.ndarray,
    other_words: np.ndarray,
    max_bits: int,
    rotated_bits: int | None,
) -> pd.DataFrame:
    """Return columns a, b, orientation of near rows of words and of other words."""
    plain = np.ascontiguousarray(words_to_codes(words)[:, :32])
    other_codes = words_to_codes(other_words)
    other_plain = np.ascontiguousarray(other_codes[:, :32])
    found = {1: match_codes(plain, other_plain, max_bits)}
    if rotated_bits is not None:
        for orientation in range(2, 9):
            rotated = rotate_codes(other_codes, orientation)
            found[orientation] = match_codes(plain, rotated, rotated_bits)
    return _join_orientations(found)


def _join_orientations(found: dict[int, np.ndarray]) -> pd.DataFrame:
    """Return columns a, b, orientation of the pairs of each orientation, (2, m)."""
    tables = [
        pd.DataFrame({"a": a, "b": b, "orientation": orientation})
        for orientation, (a, b) in found.items()
    ]
    return pd.concat(tables, ignore_index=True)


def _match_flat(
    hashes: pd.DataFrame,
    members: pd.DataFrame,
    others: pd.DataFrame,
    other_members: pd.DataFrame,
) -> pd.DataFrame:
    """Return a, b, orientation of groups of equal files of almost no texture."""
    tables = []
    for end, table, groups in (("a", hashes, members), ("b", others, other_members)):
        first = groups["first"][groups["is_flat"]].unique()
        digest = table["digest"].to_numpy()[first]
        tables.append(pd.DataFrame({end: first, "digest": digest}))
    pairs = tables[0].merge(tables[1], on="digest")
    return pairs[["a", "b"]].assign(orientation=1)


def _expand_matches(
    pairs: pd.DataFrame,
    members: pd.DataFrame,
    other_members: pd.DataFrame,
) -> pd.DataFrame:
    """Return the pairs of all rows of the groups whose first rows are paired.

    See `find_pairs_between` for groups of more than `MAX_EQUAL`.
    """
    position = other_members.groupby("first").cumcount()
    listed = other_members[position < MAX_EQUAL]
    listed = listed.rename(columns={"row": "row_b", "first": "b"})
    pairs = pairs.merge(listed[["row_b", "b"]], on="b")
    pairs = pairs.sort_values(["a", "distance", "row_b"], ignore_index=True)

    size = members["first"].value_counts()
    crowds = size.index[size > MAX_EQUAL]
    is_listed = pairs.groupby("a").cumcount() < MAX_EQUAL
    pairs = pairs[is_listed | ~pairs["a"].isin(crowds)]

    images = members.rename(columns={"row": "row_a", "first": "a"})
    pairs = pairs.merge(images[["row_a", "a"]], on="a")
    pairs = pairs.assign(a=pairs["row_a"], b=pairs["row_b"])
    pairs = pairs.drop(columns=["row_a", "row_b"])
    return pairs.sort_values(["a", "b"], ignore_index=True)


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
        rotated_bits = np.take(bits, BITS_BY_ORIENTATION[orientation - 1], axis=1)
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
            "a": np.minimum(ends["a"], ends["b"]),
            "b": np.maximum(ends["a"], ends["b"]),
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


def count_bits(words: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the bits between the images in rows a and b: int64 (n,).

    words: as for `measure_pairs`; of (n, 10), the nearest orientation of b counts.
    """
    orientations = range(1, 2 if words.shape[1] == len(HASHES) else 9)
    ends = pd.DataFrame({"a": np.minimum(a, b), "b": np.maximum(a, b)})
    candidates = pd.concat([ends.assign(orientation=number) for number in orientations])
    distance = measure_pairs(words, candidates).set_index(["a", "b"])["distance"]
    return distance.loc[pd.MultiIndex.from_frame(ends)].to_numpy()


def find_first(hashes: pd.DataFrame) -> np.ndarray:
    """Return the first row with equal hashes, -1 for images that cannot be read."""
    words = take_words(hashes, 20)
    is_good = hashes["problem"].to_numpy() == ""
    members = _group_equal(hashes, words, is_good)
    first = np.full(len(hashes), -1)
    first[members["row"]] = members["first"]
    return first
