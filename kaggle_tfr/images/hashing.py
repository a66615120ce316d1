"""Perceptual hashes of an image, used to find near-duplicates.

Four hashes of 64 bits decide which images are the same. A fine perceptual hash of 256
bits proposes pairs whose geometry is verified.
"""

import math

import numpy as np

from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation
from kaggle_tfr.images.thumbnails import make_thumbnails

HASHES = ("average", "perceptual", "difference", "wavelet")
# More bits, which the hashes of the mirrored or rotated image need: the perceptual hash
# of the image mirrored along x, along y and along both; and whether the image darkens
# to the right, brightens downwards and darkens downwards.
ROTATION_BITS = (
    "perceptual_x",
    "perceptual_y",
    "perceptual_xy",
    "darker",
    "brighter_down",
    "darker_down",
)
FINE_HASH = ("fine_1", "fine_2", "fine_3", "fine_4")  # 64 of its bits each
ALL_HASHES = (*HASHES, *ROTATION_BITS, *FINE_HASH)
FLAT = 4.0  # grey levels of 255; empty skies and blank pages have less texture

# The signs of 8 × 8 cosines in the image and its mirror images along x, y and both:
# odd frequencies change theirs.
_SIGNS_X = np.tile([1.0, -1.0], 4)
_SIGNS_Y = _SIGNS_X[:, None]
MIRROR_SIGNS = np.stack(
    np.broadcast_arrays(1.0, _SIGNS_X, _SIGNS_Y, _SIGNS_X * _SIGNS_Y)
)


def _list_cosines(size: int, count: int) -> np.ndarray:
    """Return the lowest `count` cosines of the transform: float64 (count, size).

    They are whole numbers of 65,536ths: float64 holds their sums exactly.
    """
    frequency = np.arange(count)[:, None]
    position = np.arange(size) + 0.5
    cosines = np.cos(np.pi / size * frequency * position)
    return np.rint(cosines * (1 << 16))


COSINES = _list_cosines(32, 8)
FINE_COSINES = _list_cosines(64, 16)

# The parts of a plane of 32 × 32 pixels: a constant, a slope to the right and a slope
# downwards. Whole numbers, so that all sums are exact.
_SLOPE = 2.0 * np.arange(32) - 31
PLANE = np.stack(np.broadcast_arrays(np.ones((32, 32)), _SLOPE, _SLOPE[:, None]))
PLANE = PLANE.reshape(3, -1)
PLANE_POWER = (PLANE**2).sum(axis=1)


def hash_image(luma: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the bits of `ALL_HASHES`, uint8 (112,), and the texture in grey levels.

    luma: of `check_image`, uint8 (height, width). The hashes of the whole image would
    differ from these in less than one bit of 256 on average.
    texture: the standard deviation of a thumbnail from the best plane. The hashes of
    images with hardly any texture are noise.
    Source: imagehash, `average_hash`, `phash`, `dhash`, `whash`.
    """
    thumbnails = make_thumbnails(luma)
    small = thumbnails.small
    to_right = np.diff(thumbnails.wide, axis=1)
    downwards = np.diff(thumbnails.high, axis=0)
    cosines = _transform(thumbnails.medium, COSINES)
    fine_cosines = _transform(thumbnails.large, FINE_COSINES)
    perceptual, *mirrored = _exceed_median(cosines * MIRROR_SIGNS)
    [wavelet] = _exceed_median(thumbnails.wavelets[None])
    [fine] = _exceed_median(fine_cosines[None])
    bits = [
        small.ravel() * small.size > small.sum(),  # average
        perceptual,
        (to_right > 0).ravel(),  # difference
        wavelet,
        *mirrored,
        (to_right < 0).ravel(),
        (downwards > 0).ravel(),
        (downwards < 0).ravel(),
        fine,
    ]
    packed = np.packbits(np.concatenate(bits))
    return packed, _measure_texture(thumbnails.medium)


def _transform(thumbnail: np.ndarray, cosines: np.ndarray) -> np.ndarray:
    """Return the lowest frequencies of the cosine transform along both sides."""
    return cosines @ thumbnail.astype(np.float64) @ cosines.T


def _exceed_median(values: np.ndarray) -> np.ndarray:
    """Return which values are above the median of their matrix: bool (n, h * w).

    values: (n, h, w), an even number in each matrix. np.median takes four times as
    long.
    """
    rows = values.reshape(len(values), -1)
    middle = rows.shape[1] // 2
    ordered = np.sort(rows, axis=1)
    median = (ordered[:, middle - 1] + ordered[:, middle]) / 2
    return rows > median[:, None]


def _measure_texture(thumbnail: np.ndarray) -> float:
    """Return the standard deviation from the best plane of a thumbnail (32, 32)."""
    pixels = thumbnail.ravel().astype(np.float64)
    sums = PLANE @ pixels
    # The parts of a plane are orthogonal: their powers add up.
    power_of_plane = np.sum(sums**2 / PLANE_POWER)
    power = pixels @ pixels - power_of_plane
    return math.sqrt(max(0.0, power / len(pixels)))


def _find_bits(orientation: int) -> np.ndarray:
    """Return which 256 of the 640 bits are the hashes in an orientation."""
    change = ORIENTATIONS[orientation]
    positions = np.arange(640).reshape(10, 8, 8)
    cosines = positions[[1, 4, 5, 6]]  # plain, mirrored along x, y, both
    # Brighter and darker to the right, brighter and darker downwards.
    differences = positions[[2, 7, 8, 9]]
    if change.transposes:
        cosines = cosines[[0, 2, 1, 3]].swapaxes(1, 2)
        differences = differences[2:]

    mirror = change.reverses_columns + 2 * change.reverses_rows
    difference = differences[int(change.reverses_columns)]
    bits = [
        apply_orientation(positions[0], orientation),  # average
        cosines[mirror],
        apply_orientation(difference, orientation),
        apply_orientation(positions[3], orientation),  # wavelet
    ]
    return np.reshape(bits, 256)


# (8, 256): for each orientation, the positions of its hashes among the 640 bits of
# `HASHES` and `ROTATION_BITS`.
BITS_BY_ORIENTATION = np.stack([_find_bits(number) for number in ORIENTATIONS])
