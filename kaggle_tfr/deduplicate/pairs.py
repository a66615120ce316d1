"""Find pairs of near-duplicates: images whose perceptual hashes differ in few bits.

Images with equal hashes are searched as one image, because a dataset may contain the
same blank page a hundred thousand times. With rotations, the hashes of each image are
also compared with the hashes that each other image would have if it were mirrored or
rotated by right angles. `search` explains how near hashes are found.
"""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.search import SLICE, near_pairs, near_pairs_between
from kaggle_tfr.images.hashing import BITS_BY_ORIENTATION, FLAT, HASHES, ROTATION_BITS
from kaggle_tfr.images.orientation import INVERSE

MAX_EQUAL = 20  # images with equal hashes that are still paired each with each


def find_pairs(
    hashes: pd.DataFrame, max_bits: int, rotated_bits: int | None = None
) -> pd.DataFrame:
    """Find all pairs of images within `max_bits` of 256 bits, one row per pair.

    hashes: of `load_hashes`.
    rotated_bits: radius for mirrored and rotated copies; None: they are not searched.
    Columns: a < b (row numbers of `hashes`); distance and the distance in each hash
    (bits); orientation (EXIF), which rotates image b as image a is.

    If more than 20 images have equal hashes, each is paired with the first only, and
    the first with others; the clusters are the same. Images of almost no texture have
    random hashes: they pair only if their files are equal.
    """
    columns = HASHES if rotated_bits is None else (*HASHES, *ROTATION_BITS)
    words = hashes[[*columns]].to_numpy(np.uint64)
    members = _group_equal(hashes, words)

    searched = members.loc[~members["is_flat"], "first"].unique()
    near = _search_orientations(words[searched], max_bits, rotated_bits)
    near["first_a"] = searched[near["a"]]
    near["first_b"] = searched[near["b"]]
    candidates = _expand_groups(members, near[["first_a", "first_b", "orientation"]])
    return measure_pairs(words, candidates)


def _group_equal(hashes: pd.DataFrame, words: np.ndarray) -> pd.DataFrame:
    """Return row, is_flat, and first (first row with equal hashes) of good images.

    For images of almost no texture it is the first row with an equal file.
    """
    is_flat = hashes["texture"].to_numpy() < FLAT
    key = pd.DataFrame(np.where(is_flat[:, None], 0, words))
    key["digest"] = np.where(is_flat, hashes["digest"], "")
    key["is_flat"] = is_flat
    members = key.assign(row=np.arange(len(hashes)))
    members = members[(hashes["problem"] == "").to_numpy()]
    first = members.groupby([*key], sort=False)["row"].transform("min")
    return members[["row", "is_flat"]].assign(first=first)


def _search_orientations(
    words: np.ndarray, max_bits: int, rotated_bits: int | None
) -> pd.DataFrame:
    """Return columns a < b, rows of words, and orientation; a pair may have several."""
    codes = words_to_codes(words)
    plain_codes = np.ascontiguousarray(codes[:, :32])
    found = {1: near_pairs(plain_codes, max_bits)}
    if rotated_bits is not None:
        for orientation in range(2, 9):
            rotated_codes = rotate_codes(codes, orientation)
            found[orientation] = near_pairs_between(
                plain_codes, rotated_codes, rotated_bits
            )
    tables = [
        pd.DataFrame({"a": a, "b": b, "orientation": orientation})
        for orientation, (a, b) in found.items()
    ]
    return pd.concat(tables, ignore_index=True)


def words_to_codes(words: np.ndarray) -> np.ndarray:
    """Return the bytes of 64-bit hashes: uint8 (n, 8 k) of uint64 (n, k)."""
    return words.astype(">u8", order="C").view(np.uint8)


def rotate_codes(codes: np.ndarray, orientation: int) -> np.ndarray:
    """Return the hashes that the images have when rotated: uint8 (n, 32).

    codes: uint8 (n, 80), of the columns `HASHES` and `ROTATION_BITS`.
    """
    rotated = np.empty((len(codes), 32), np.uint8)
    for start in range(0, len(codes), SLICE):
        bits = np.unpackbits(codes[start : start + SLICE], axis=1)
        chosen = bits[:, BITS_BY_ORIENTATION[orientation - 1]]
        rotated[start : start + SLICE] = np.packbits(chosen, axis=1)
    return rotated


def _expand_groups(members: pd.DataFrame, near: pd.DataFrame) -> pd.DataFrame:
    """Return all pairs of rows in near groups and in the same group: a, b, orientation.

    A group is called after its first row: near has columns first_a, first_b.
    """
    size = members.groupby("first")["row"].transform("size")
    is_extra = (size > MAX_EQUAL) & (members["row"] != members["first"])
    extra = members[is_extra].rename(columns={"first": "a", "row": "b"})
    members = members.loc[~is_extra, ["row", "first"]]

    repeated = members["first"][members["first"].duplicated()].unique()
    equal = pd.DataFrame({"first_a": repeated, "first_b": repeated, "orientation": 1})
    pairs = pd.concat([near, equal])
    pairs = pairs.merge(members.set_axis(["a", "first_a"], axis=1))
    pairs = pairs.merge(members.set_axis(["b", "first_b"], axis=1))
    is_between = pairs["first_a"] != pairs["first_b"]
    pairs = pairs[is_between | (pairs["a"] < pairs["b"])]
    pairs = pd.concat([pairs, extra.assign(orientation=1)], ignore_index=True)
    return pairs[["a", "b", "orientation"]]


def measure_pairs(words: np.ndarray, candidates: pd.DataFrame) -> pd.DataFrame:
    """Measure the distances between rows a and b, b in an orientation, as `find_pairs`.

    words: uint64 (n, 4), or (n, 10) where there are other orientations than 1.
    candidates: columns a, b, orientation. Of a pair with several, the nearest remains.
    """
    candidates = candidates.reset_index(drop=True)
    bits = _count_differing_bits(words, candidates)
    is_swapped = candidates["a"] > candidates["b"]
    inverse = candidates["orientation"].map(INVERSE)
    measured = pd.DataFrame(
        {
            "a": candidates[["a", "b"]].min(axis=1),
            "b": candidates[["a", "b"]].max(axis=1),
            "distance": bits.sum(axis=1),
            **dict(zip(HASHES, bits.T, strict=True)),
            "orientation": candidates["orientation"].mask(is_swapped, inverse),
        }
    )
    measured = measured.sort_values(["a", "b", "distance", "orientation"])
    return measured.drop_duplicates(["a", "b"], ignore_index=True)


def _count_differing_bits(words: np.ndarray, candidates: pd.DataFrame) -> np.ndarray:
    """Return the distance of each candidate in each of the hashes: int64 (n, 4)."""
    bits = np.empty((len(candidates), len(HASHES)), np.int64)
    for orientation in np.unique(candidates["orientation"]).tolist():
        pairs = candidates[candidates["orientation"] == orientation]
        rows, position = np.unique(pairs["b"], return_inverse=True)
        rotated = words[rows, :4]
        if orientation > 1:
            codes = rotate_codes(words_to_codes(words[rows]), orientation)
            rotated = codes.view(">u8")
        bits[pairs.index] = np.bitwise_count(words[pairs["a"], :4] ^ rotated[position])
    return bits
