"""Find pairs of near-duplicates: images whose perceptual hashes differ in few bits.

Images with equal hashes are searched as one image, because a dataset may contain the
same blank page a hundred thousand times. The first is paired with each of the others,
and it alone with other images: the clusters are those of all pairs. With rotations, the
hashes of each image are also compared with the hashes that each other image would have
if it were mirrored or rotated by right angles. `search` explains how near hashes are
found.
"""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.search import MAX_PAIRS, near_pairs
from kaggle_tfr.images.hashing import BITS_BY_ORIENTATION, FLAT, HASHES, ROTATION_BITS

Rows = np.ndarray | pd.Series  # row numbers


def find_pairs(
    hashes: pd.DataFrame,
    max_bits: int,
    rotated_bits: int = -1,
    limit: int = MAX_PAIRS,
) -> pd.DataFrame:
    """Find all pairs of images within `max_bits` of 256 bits, one row per pair.

    hashes: of `load_hashes`.
    rotated_bits: radius for mirrored and rotated copies; -1: they are not searched.
    Raises: TooManyPairs: more than `limit` pairs of different hashes.
    Columns: a < b (row numbers of `hashes`); distance, the sum over the four hashes
    (bits); orientation (EXIF), which rotates image b as image a is. Sorted by a and b.

    Images with equal hashes are paired with the first of them, and it alone with other
    images. Images of almost no texture have random hashes: they pair only if their
    files are equal.
    """
    codes = read_codes(hashes)
    rows = np.arange(len(hashes))
    first = find_first(hashes)
    is_copy = (first >= 0) & (first < rows)
    copies = np.stack([first[is_copy], rows[is_copy]])
    searched = rows[(first == rows) & (hashes["texture"] >= FLAT)]
    plain = _rotate(codes[searched], 1)
    near = searched[near_pairs(plain, max_bits, limit)]
    tables = [_list_pairs(codes, np.hstack([copies, near]), 1)]
    for orientation in range(2, 2 if rotated_bits < 0 else 9):
        both = np.concatenate([plain, _rotate(codes[searched], orientation)])
        a, b = near_pairs(both, rotated_bits, limit)
        b -= len(plain)
        ends = searched[np.stack([a, b])[:, a < b]]
        tables.append(_list_pairs(codes, ends, orientation))
    pairs = pd.concat(tables).sort_values(["a", "b", "distance", "orientation"])
    return pairs.drop_duplicates(["a", "b"], ignore_index=True)


def _list_pairs(codes: np.ndarray, ends: np.ndarray, orientation: int) -> pd.DataFrame:
    """Return the table of pairs in an orientation. ends: int64 (2, n)."""
    pairs = pd.DataFrame(ends.T, columns=["a", "b"])
    distance = _count_differing(codes, ends[0], ends[1], orientation)
    return pairs.assign(distance=distance, orientation=orientation)


def read_codes(hashes: pd.DataFrame) -> np.ndarray:
    """Return the hashes and the bits for their rotations: uint8 (n, 80)."""
    words = hashes[[*HASHES, *ROTATION_BITS]].to_numpy(np.uint64)
    return words.astype(">u8", order="C").view(np.uint8)


def find_first(hashes: pd.DataFrame) -> np.ndarray:
    """Return the first row with equal hashes, int64 (n,); -1 for unreadable images.

    For images of almost no texture it is the first row with an equal file.
    """
    codes = read_codes(hashes).view("S80").ravel()
    is_flat = hashes["texture"] < FLAT
    key = np.where(is_flat, hashes["digest"], codes.astype(object))
    key[hashes["problem"] != ""] = None
    rows = pd.Series(range(len(hashes)))
    first = rows.groupby(key, sort=False).transform("first")
    return first.fillna(-1).to_numpy(np.int64)


def count_bits(codes: np.ndarray, a: Rows, b: Rows) -> np.ndarray:
    """Return the bits between the images in rows a and b: int64 (n,).

    codes: of `read_codes`; the nearest orientation of b counts. Of its first 32
    columns, the first orientation counts.
    """
    orientations = range(1, 2 if codes.shape[1] == 32 else 9)
    return np.min([_count_differing(codes, a, b, n) for n in orientations], axis=0)


def _count_differing(
    codes: np.ndarray, a: Rows, b: Rows, orientation: int
) -> np.ndarray:
    """Return the bits between rows a and rows b in this orientation: int64 (n,)."""
    differing = _rotate(codes[a], 1) ^ _rotate(codes[b], orientation)
    return np.bitwise_count(differing).sum(axis=1, dtype=np.int64)


def _rotate(codes: np.ndarray, orientation: int) -> np.ndarray:
    """Return the hashes that the images have when rotated: uint8 (n, 32)."""
    if orientation == 1:
        return np.ascontiguousarray(codes[:, :32])
    bits = np.unpackbits(codes, axis=1)[:, BITS_BY_ORIENTATION[orientation - 1]]
    return np.packbits(bits, axis=1)
