"""Find pairs of near-duplicates: images whose perceptual hashes differ in few bits.

Images with equal hashes are searched as one image, because a dataset may contain the
same blank page a hundred thousand times. The first is paired with each of the others,
and it alone with other images: the clusters are those of all pairs. With rotations, the
hashes of each image are also compared with the hashes that each other image would have
if it were mirrored or rotated by right angles. `search` explains how near hashes are
found.

The hashes of crops and of framed or recoloured copies differ in 26 to 70 of 256 bits.
So do those of many pairs of different images, and their number grows with the square
of the number of images. SECOND_LOOK = "auto" verifies the likeliest of them. Its limits
were measured on 4,317 photographs of flowers and on 15 copies of each of 1,000
photographs: see docs/duplicates.md.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.search import TooManyPairs, near_pairs
from kaggle_tfr.images.hashing import (
    BITS_BY_ORIENTATION,
    FINE_HASH,
    FLAT,
    HASHES,
    ROTATION_BITS,
)

CANDIDATE_BITS = 70
MAX_IMAGES = 50_000  # their hashes are compared, all with all, in half a minute
MAX_VERIFIED = 100_000  # pairs, in minutes: 0.5 ms each, and 7 ms for each image

Rows = np.ndarray | pd.Series  # row numbers


def find_candidates(
    hashes: pd.DataFrame, settings: DuplicateSettings
) -> tuple[pd.DataFrame, DuplicateSettings]:
    """Find the pairs within MAX_BITS, and farther ones that SECOND_LOOK verifies.

    hashes: of `load_hashes`.
    Return the pairs, as `find_pairs` does, and the settings, whose second_look is which
    pairs beyond MAX_BITS are among them: "all" within 70 bits, "nearest" for the
    likeliest of them, "" for none. The caller verifies these by their geometry. "auto"
    adds none for over 50,000 images, and none if there are over 10 million pairs.
    Raises: TooManyPairs: over 10 million pairs within MAX_BITS, or for True within 70.
    """
    radius = max(settings.max_bits, CANDIDATE_BITS)
    search = partial(find_pairs, hashes, rotated_bits=settings.rotated_bits)
    if settings.second_look is True:
        return search(radius), replace(settings, second_look="all")

    if settings.second_look == "auto":
        if len(hashes) <= MAX_IMAGES:
            with suppress(TooManyPairs):
                return _choose_likeliest(search(radius), hashes, settings)
        print(
            f'SECOND_LOOK = "auto" verifies nothing: {len(hashes):,} images have too '
            "many candidates. For over 50,000 images, SECOND_LOOK = True verifies up "
            "to 10 million pairs, however long it takes."
        )
    return search(settings.max_bits), replace(settings, second_look="")


def _choose_likeliest(
    pairs: pd.DataFrame,
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
) -> tuple[pd.DataFrame, DuplicateSettings]:
    """Return the near pairs and the likeliest others, as `find_candidates` does.

    The likeliest are the `MAX_VERIFIED` (100,000) pairs for which this is lowest: twice
    the distance of the four hashes, plus the bits that differ in the fine hash.
    pairs: of `find_pairs`, which have row numbers of `hashes`.
    """
    far_pairs = pairs[~are_near(pairs, settings)]
    fine_words = hashes[[*FINE_HASH]].to_numpy(np.uint64)
    # uint64 (n, 4), whose bits are 1 where the fine hashes differ.
    differing = fine_words[far_pairs["a"]] ^ fine_words[far_pairs["b"]]
    fine_distance = np.bitwise_count(differing).sum(axis=1)
    bits = 2 * far_pairs["distance"] + fine_distance
    left_out = bits.sort_values(kind="stable").index[MAX_VERIFIED:]
    print(
        f"SECOND_LOOK verifies the likeliest {len(bits) - len(left_out):,} of "
        f"{len(bits):,} pairs within {CANDIDATE_BITS} bits."
    )
    chosen = pairs.drop(index=left_out).reset_index(drop=True)
    return chosen, replace(settings, second_look="nearest" if len(left_out) else "all")


def are_near(pairs: pd.DataFrame, settings: DuplicateSettings) -> np.ndarray:
    """Return which pairs count without verification: bool (n,).

    They are within MAX_BITS, or, if b is mirrored or rotated, within a smaller radius.
    """
    is_rotated = pairs["orientation"] != 1
    radius = np.where(is_rotated, settings.rotated_bits, settings.max_bits)
    return pairs["distance"].to_numpy() <= radius


def find_pairs(
    hashes: pd.DataFrame,
    max_bits: int,
    rotated_bits: int = -1,
) -> pd.DataFrame:
    """Find all pairs of images within `max_bits` of 256 bits, one row per pair.

    hashes: of `load_hashes`.
    rotated_bits: radius for mirrored and rotated copies; -1: they are not searched.
    Raises: TooManyPairs: see `near_pairs`.
    Columns: a < b (row numbers of `hashes`); distance, the sum over the four hashes
    (bits); orientation (EXIF), which rotates image b as image a is. Sorted by a and b.

    Images with equal hashes are paired with the first of them, and it alone with other
    images. Images of almost no texture have random hashes: they pair only if their
    files are equal.
    """
    codes = read_codes(hashes)
    rows = np.arange(len(hashes))
    first = find_first(hashes)  # -1 for unreadable images, which have no pairs
    is_copy = (first >= 0) & (first < rows)
    tables = [_list_pairs(codes, np.stack([first[is_copy], rows[is_copy]]), 1)]

    # The first images with equal hashes, without those of almost no texture.
    searched = rows[(first == rows) & (hashes["texture"] >= FLAT)]
    # Orientation 1 alone, or all eight.
    for orientation in range(1, 2 if rotated_bits < 0 else 9):
        radius = max_bits if orientation == 1 else rotated_bits
        near = _search(codes, searched, orientation, radius)
        tables.append(_list_pairs(codes, near, orientation))
    # Of several orientations of one pair, the nearest counts.
    pairs = pd.concat(tables).sort_values(["a", "b", "distance", "orientation"])
    return pairs.drop_duplicates(["a", "b"], ignore_index=True)


def _search(
    codes: np.ndarray,
    rows: np.ndarray,
    orientation: int,
    radius: int,
) -> np.ndarray:
    """Find pairs a < b of these rows that are near when b is rotated: int64 (2, n).

    codes: of `read_codes`, of all images. rows: row numbers, ascending. orientation:
    EXIF's, 1 to 8; 1 does not rotate. radius: in bits of 256.
    """
    plain = _rotate(codes[rows], 1)
    if orientation == 1:
        return rows[near_pairs(plain, radius)]
    # One search of both. Below, b counts from the first rotated code: a pair of two
    # plain codes has b < 0, one of two rotated codes b < a, so a < b leaves mixed ones,
    # and of these only those whose second image is rotated.
    both = np.concatenate([plain, _rotate(codes[rows], orientation)])
    a, b = near_pairs(both, radius)
    b -= len(plain)
    return rows[np.stack([a, b])[:, a < b]]


def _list_pairs(codes: np.ndarray, ends: np.ndarray, orientation: int) -> pd.DataFrame:
    """Return pairs as a table: a, b, distance (bits), and orientation, which all share.

    ends: int64 (2, n), the row numbers in `codes` of both images of each pair.
    """
    pairs = pd.DataFrame(ends.T, columns=["a", "b"])
    distance = _count_differing(codes, ends[0], ends[1], orientation)
    return pairs.assign(distance=distance, orientation=orientation)


def read_codes(hashes: pd.DataFrame) -> np.ndarray:
    """Return the hashes and the bits for their rotations: uint8 (n, 80).

    The first 32 columns are the four hashes, which `max_bits` counts. hashes: of
    `load_hashes`, a row per image.
    """
    words = hashes[[*HASHES, *ROTATION_BITS]].to_numpy(np.uint64)  # ten of 64 bits
    # The highest byte of each word first, as the bits were packed.
    return words.astype(">u8", order="C").view(np.uint8)


def find_first(hashes: pd.DataFrame) -> np.ndarray:
    """Return for each row the first row with equal hashes, int64 (n,).

    It is the row itself if there is no earlier one, and -1 for unreadable images. For
    images of almost no texture, whose hashes are noise, it is the first row with an
    equal file.
    hashes: of `load_hashes`.
    """
    codes = read_codes(hashes).view("S80").ravel()  # one value per image
    key = np.where(hashes["texture"] < FLAT, hashes["digest"], codes.astype(object))
    key[hashes["problem"] != ""] = None  # in no group, so NaN below
    rows = pd.Series(range(len(hashes)))
    first = rows.groupby(key, sort=False).transform("first")
    return first.fillna(-1).to_numpy(np.int64)


def count_bits(codes: np.ndarray, a: Rows, b: Rows) -> np.ndarray:
    """Return how many of the 256 bits differ between rows a and b: int64 (len(a),).

    codes: of `read_codes`, a row for each image: uint8 (images, 80), of which 32 are
    the hashes and 48 those of its rotated copies. With 80, the nearest of eight
    orientations of b counts; with the first 32 only, b is not rotated.
    """
    orientations = range(1, 2 if codes.shape[1] == 32 else 9)
    distances = [_count_differing(codes, a, b, number) for number in orientations]
    return np.min(distances, axis=0)


def _count_differing(
    codes: np.ndarray,
    a: Rows,
    b: Rows,
    orientation: int,
) -> np.ndarray:
    """Return how many bits differ between rows a and b: int64 (len(a),).

    codes: of `read_codes`. orientation: of EXIF, by which the images b are mirrored or
    rotated; the images a are not.
    """
    codes_a = _rotate(codes[a], 1)
    codes_b = _rotate(codes[b], orientation)
    return np.bitwise_count(codes_a ^ codes_b).sum(axis=1, dtype=np.int64)


def _rotate(codes: np.ndarray, orientation: int) -> np.ndarray:
    """Return the four hashes that the images have when rotated: uint8 (n, 32).

    codes: of `read_codes`; the first 32 columns suffice for orientation 1.
    """
    if orientation == 1:
        return np.ascontiguousarray(codes[:, :32])
    # Of the 640 bits of `codes`, the 256 that are the hashes in this orientation.
    positions = BITS_BY_ORIENTATION[orientation - 1]
    bits = np.unpackbits(codes, axis=1)
    return np.packbits(bits[:, positions], axis=1)
