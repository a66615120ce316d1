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
from kaggle_tfr.images.orientation import INVERSE

SLICE = 1 << 15  # codes that are rotated at a time: each of their bits takes a byte


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
    Columns: a < b (row numbers of `hashes`); distance, the sum over the four hashes
    (bits); orientation (EXIF), which rotates image b as image a is. Sorted by a and b.

    Images with equal hashes are paired with the first of them, and it alone with other
    images. Images of almost no texture have random hashes: they pair only if their
    files are equal.
    """
    words = read_words(hashes)
    rows = np.arange(len(hashes))
    first = find_first(hashes)
    is_copy = (first >= 0) & (first < rows)
    copies = pd.DataFrame({"a": first[is_copy], "b": rows[is_copy], "orientation": 1})
    searched = rows[(first == rows) & (hashes["texture"] >= FLAT)]
    radii = {1: max_bits}
    if rotated_bits is not None:
        radii |= dict.fromkeys(range(2, 9), rotated_bits)

    tables = [copies]
    for orientation, radius in radii.items():
        a, b = searched[_search(words[searched], orientation, radius, limit)]
        tables.append(pd.DataFrame({"a": a, "b": b, "orientation": orientation}))
    return measure_pairs(words, pd.concat(tables, ignore_index=True))


def _search(words: np.ndarray, orientation: int, radius: int, limit: int) -> np.ndarray:
    """Return the near rows a < b, b in an orientation: int64 (2, m)."""
    plain = np.ascontiguousarray(words[:, :4])
    if orientation == 1:
        return near_pairs(plain.view(np.uint8), radius, limit)
    both = np.concatenate([plain, _rotate_words(words, orientation)])
    a, b = near_pairs(both.view(np.uint8), radius, limit)
    b -= len(plain)
    # Two plain codes or two rotated ones do not remain: both lists have n rows.
    is_pair = a < b
    return np.stack([a[is_pair], b[is_pair]])


def read_words(hashes: pd.DataFrame) -> np.ndarray:
    """Return the hashes and the bits for their rotations: uint64 (n, 10)."""
    columns = [*HASHES, *ROTATION_BITS]
    return np.ascontiguousarray(hashes[columns].to_numpy(np.uint64))


def find_first(hashes: pd.DataFrame) -> np.ndarray:
    """Return the first row with equal hashes, int64 (n,); -1 for unreadable images.

    For images of almost no texture it is the first row with an equal file.
    """
    codes = read_words(hashes).view("S80").ravel()
    is_flat = hashes["texture"] < FLAT
    key = np.where(is_flat, hashes["digest"], codes.astype(object))
    key[hashes["problem"] != ""] = None
    number = pd.Series(pd.factorize(key)[0])
    first_rows = number[number >= 0].drop_duplicates().index
    # The number of None is -1.
    return np.append(first_rows, -1)[number]


def measure_pairs(words: np.ndarray, candidates: pd.DataFrame) -> pd.DataFrame:
    """Measure the distances between rows a and b, b in an orientation, as `find_pairs`.

    words: uint64 (n, 4), or (n, 10) where there are other orientations than 1.
    candidates: columns a, b, orientation. Of a pair with several, the nearest remains.
    """
    a = candidates["a"].to_numpy()
    b = candidates["b"].to_numpy()
    orientation = candidates["orientation"].to_numpy()
    distance = np.zeros(len(candidates), np.int64)
    for number in np.unique(orientation).tolist():
        rows = np.flatnonzero(orientation == number)
        rotated = _rotate_words(words[b[rows]], number)
        distance[rows] = np.bitwise_count(words[a[rows], :4] ^ rotated).sum(axis=1)

    inverse = candidates["orientation"].map(INVERSE)
    pairs = pd.DataFrame(
        {
            "a": np.minimum(a, b),
            "b": np.maximum(a, b),
            "distance": distance,
            "orientation": np.where(a < b, orientation, inverse),
        }
    )
    pairs = pairs.sort_values(["a", "b", "distance", "orientation"])
    return pairs.drop_duplicates(["a", "b"], ignore_index=True)


def _rotate_words(words: np.ndarray, orientation: int) -> np.ndarray:
    """Return the hashes that the images have when rotated: uint64 (n, 4)."""
    if orientation == 1:
        return words[:, :4]
    chosen_bits = BITS_BY_ORIENTATION[orientation - 1]
    rotated = np.empty((len(words), 4), ">u8")
    for start in range(0, len(words), SLICE):
        rows = slice(start, start + SLICE)
        bits = np.unpackbits(words[rows].astype(">u8").view(np.uint8), axis=1)
        rotated_bits = np.take(bits, chosen_bits, axis=1)
        rotated[rows] = np.packbits(rotated_bits, axis=1).view(">u8")
    return rotated.astype(np.uint64)


def count_bits(words: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the bits between the images in rows a and b: int64 (n,).

    words: as for `measure_pairs`; of (n, 10), the nearest orientation of b counts.
    """
    orientations = range(1, 2 if words.shape[1] == len(HASHES) else 9)
    ends = pd.DataFrame({"a": np.minimum(a, b), "b": np.maximum(a, b)})
    candidates = pd.concat([ends.assign(orientation=number) for number in orientations])
    distance = measure_pairs(words, candidates).set_index(["a", "b"])["distance"]
    return distance.loc[pd.MultiIndex.from_frame(ends)].to_numpy()
