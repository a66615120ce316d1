"""Perceptual hashes of an image, used to find near-duplicates.

Four hashes of 64 bits decide which images are the same. A fine perceptual hash of 256
bits proposes pairs whose geometry is verified.

The image is shrunk to thumbnails by products of matrices, because resampling is linear:
a pixel of a thumbnail is a weighted sum of the image's pixels. The filter is Lanczos's
with three lobes. As in Pillow, rows are shrunk first and rounded to whole grey levels,
then columns. The sums are exact, so that hashes do not depend on the machine, its
number of threads or the version of a library: a weight is a whole number of 65,536ths,
a pixel is a whole number from -128 to 127, and their sums stay below 2**8. float32
represents all multiples of 2**-16 up to there, in whatever order they are added.
"""

from functools import lru_cache

import numpy as np

from kaggle_tfr.images.orientation import (
    COLUMNS_REVERSED,
    ORIENTATIONS,
    ROWS_REVERSED,
    TRANSPOSED,
    apply_orientation,
)

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

ONE = 1 << 16  # the steps of weights
MIDDLE = 128  # the grey level that becomes 0
# Some pixels of a side, and their weights in some pixels of thumbnails: float32
# (pixels of thumbnails, pixels).
Block = tuple[slice, np.ndarray]
# The thumbnails of 8 and 9 pixels a side depend on all pixels. Of those of 32 and 64
# pixels and of the means for the wavelets, each eighth depends on few pixels and is
# multiplied on its own, which takes half the time: 1 mean, 4 pixels of 32 and 8 of 64.
EIGHTH = 13

# The signs of 8 × 8 cosines in the image and its mirror images along x, y and both:
# odd frequencies change theirs.
_SIGNS_X = np.tile([1.0, -1.0], 4)
_SIGNS_Y = _SIGNS_X[:, None]
MIRROR_SIGNS = np.stack(
    np.broadcast_arrays(1.0, _SIGNS_X, _SIGNS_Y, _SIGNS_X * _SIGNS_Y)
)


def _list_cosines(size: int, count: int) -> np.ndarray:
    """Return cosines of frequencies 0 to `count` - 1 over `size` pixels.

    Float64 (count, size), in whole numbers of 65,536ths: sums of products are exact.
    Multiplied with a thumbnail from both sides they are its discrete cosine transform
    (DCT-II), not normalized, at the lowest frequencies.
    """
    frequency = np.arange(count)[:, None]
    position = np.arange(size) + 0.5  # centres of pixels
    cosines = np.cos(np.pi / size * frequency * position)
    return np.rint(cosines * ONE)


COSINES = _list_cosines(32, 8)
FINE_COSINES = _list_cosines(64, 16)

# The parts of a plane of 32 × 32 pixels: a constant, a slope to the right and a slope
# downwards. They are orthogonal, and whole numbers, so that all sums are exact.
_ROWS_AND_COLUMNS = np.indices((32, 32)).reshape(2, -1)
_SLOPES = 2.0 * _ROWS_AND_COLUMNS - 31
PLANE = np.vstack([np.ones(32 * 32), _SLOPES[::-1]])
_POWERS = np.sum(PLANE**2, axis=1)


def hash_images(lumas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bits of `ALL_HASHES`, uint8 (n, 112), and textures in grey levels.

    The bits are packed: 14 hashes of 64 bits, 8 bytes each. Textures: float64 (n,).
    lumas: of `check_image`, uint8 (n, height, width): images of one size. The hashes of
    whole images would differ from these in less than one bit of 256 on average.
    texture: the standard deviation of a thumbnail from the best plane. The hashes of
    images with hardly any texture are noise.
    Source: imagehash, `average_hash`, `phash`, `dhash`, `whash`.
    """
    coarse, medium, large, wavelets = _make_thumbnails(lumas)
    # In `coarse`, 17 × 17, the thumbnail of 8 × 8 pixels is at the top left, that of
    # 8 × 9 (rows, columns) to its right, and that of 9 × 8 below it.
    small = coarse[:, :8, :8]
    to_right = np.diff(coarse[:, :8, 8:], axis=2)
    downwards = np.diff(coarse[:, 8:, :8], axis=1)
    # The 8 × 8 lowest frequencies of 32 × 32 pixels, and 16 × 16 of 64 × 64.
    cosines = COSINES @ medium @ COSINES.T
    fine_cosines = FINE_COSINES @ large @ FINE_COSINES.T
    # Of the image and its mirror images along x, y and both: (n, 4, 8, 8). In a mirror
    # image, odd frequencies have the other sign.
    perceptual = _exceed_median(cosines[:, None] * MIRROR_SIGNS)
    # In the order of `ALL_HASHES`.
    bits = [
        small > small.mean(axis=(1, 2), keepdims=True),  # average
        perceptual[:, 0],
        to_right > 0,  # difference
        _exceed_median(wavelets),
        perceptual[:, 1:],  # the first of `ROTATION_BITS`; the other three follow
        to_right < 0,
        downwards > 0,
        downwards < 0,
        _exceed_median(fine_cosines),  # `FINE_HASH`, 256 bits
    ]
    flat = [part.reshape(len(lumas), -1) for part in bits]
    return np.packbits(np.concatenate(flat, axis=1), axis=1), _measure_texture(medium)


def _exceed_median(values: np.ndarray) -> np.ndarray:
    """Return which values of each matrix (…, h, w) are above their median: bool.

    A matrix has an even number of values, so these are the values above the lower one
    of the two in the middle.
    """
    # np.median takes four times as long.
    ordered = np.sort(values.reshape(*values.shape[:-2], -1))
    middle = ordered.shape[-1] // 2
    return values > ordered[..., middle - 1, None, None]


def _measure_texture(thumbnails: np.ndarray) -> np.ndarray:
    """Return the standard deviation from the best plane of thumbnails (n, 32, 32).

    In grey levels, float64 (n,): 0 for one shade, and for an even slope of shades.
    """
    pixels = thumbnails.reshape(len(thumbnails), -1).astype(np.float64)
    # The three parts of a plane (`PLANE`) are orthogonal: each takes its share of the
    # sum of squares, and what is left is the deviation.
    sums = pixels @ PLANE.T
    powers_of_planes = np.sum(sums**2 / _POWERS, axis=1)
    powers = np.sum(pixels**2, axis=1) - powers_of_planes
    return (powers.clip(0) / pixels.shape[1]) ** 0.5


def _make_thumbnails(lumas: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return three thumbnails of each image, and its wavelets: (n, side, side) each.

    lumas: uint8 (n, height, width). The thumbnails are whole grey levels, float32: side
    17, those of 8 and 9 pixels together (rows and columns of 8, then of 9); 32; 64.
    Wavelets: float64, side 8: the low band of Haar's wavelets, which is the mean of
    each 64th of the image less `MIDDLE` (128), not rounded.
    """
    _, height, width = lumas.shape
    # The wavelets of `imagehash.whash` begin with a square of this side.
    exponent = min(height, width).bit_length() - 1
    wavelet_side = max(8, 1 << exponent)
    rows, means = _weigh_pixels(height, wavelet_side)
    # The means of columns are in the blocks as well: the first value of each eighth.
    columns, _ = _weigh_pixels(width, wavelet_side)
    pixels = lumas.astype(np.float32)
    pixels -= MIDDLE
    # The first block is that of the coarse thumbnail, the others are the eighths.
    coarse, _ = _shrink(pixels, rows[:1], columns[:1])
    fine, sums = _shrink(pixels, rows[1:], columns[1:])
    # An eighth of a side has `EIGHTH` (13) values: 1 mean, 4 pixels of 32, 8 pixels of
    # 64. `sums` have the means of columns, and `means` weigh the rows.
    wavelets = means @ sums[..., ::EIGHTH]
    eighths = fine.reshape(-1, 8, EIGHTH, 8, EIGHTH)
    medium = eighths[:, :, 1:5, :, 1:5].reshape(-1, 32, 32)
    large = eighths[:, :, 5:, :, 5:].reshape(-1, 64, 64)
    return coarse, medium, large, wavelets


def _shrink(
    pixels: np.ndarray, rows: list[Block], columns: list[Block]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the grey levels of thumbnails, and the sums after only the width shrinks.

    pixels: float32 (n, height, width), grey levels less `MIDDLE` (128). rows, columns:
    blocks of `_weigh_pixels`, each the slice of a side and its weights. Levels: whole
    numbers from 0 to 255, (n, rows, columns); sums: (n, height, columns), less `MIDDLE`
    and not rounded.
    """
    # The width first, then the height, as Pillow does.
    blocks = [pixels[..., reach] @ weights.T for reach, weights in columns]
    sums = np.concatenate(blocks, axis=2)
    levels = _round(sums)
    blocks = [weights @ levels[:, reach] for reach, weights in rows]
    return _round(np.concatenate(blocks, axis=1)) + MIDDLE, sums


def _round(sums: np.ndarray) -> np.ndarray:
    """Return whole grey levels less `MIDDLE`, limited to 0 to 255 as by Pillow.

    sums: grey levels less `MIDDLE` (128), so the limits are -128 and 127.
    """
    return np.rint(sums).clip(-MIDDLE, MIDDLE - 1)


@lru_cache(128)  # 0.4 kB a pixel
def _weigh_pixels(length: int, wavelet_side: int) -> tuple[list[Block], np.ndarray]:
    """Return the blocks of weights of a side, and the weights of its eighths' means.

    A block shrinks a side by a product: the slice of the pixels that have a weight, and
    the weights, float32 (rows, pixels in the slice). Nine blocks: that of the
    thumbnails of 8 and 9 pixels, 17 rows; then one for each eighth of the side, 13
    rows: its mean, its 4 pixels of 32, and its 8 pixels of 64. An eighth depends on few
    pixels, so these products are fast. Weights of means: float64 (8, length).
    length: of the side, in pixels.
    wavelet_side: a power of 2. The means are of the pixels of a thumbnail of this side,
    as imagehash makes it before its wavelets.
    """
    coarse = [_weigh_by_lanczos(length, size, size) for size in (8, 9)]
    means = _weigh_by_lanczos(length, wavelet_side, 8)
    fine = [_weigh_by_lanczos(length, size, size) for size in (32, 64)]
    by_eighth = [weights.reshape(8, -1, length) for weights in (means, *fine)]
    eighths = np.concatenate(by_eighth, axis=1)  # (8, 13, length)

    blocks = []
    for weights in (np.concatenate(coarse), *eighths):
        pixels = np.flatnonzero(weights.any(axis=0))
        reach = slice(pixels[0], pixels[-1] + 1)
        reached = weights[:, reach].astype(np.float32)
        blocks.append((reach, reached))
    return blocks, means


def _weigh_by_lanczos(length: int, size: int, n_means: int) -> np.ndarray:
    """Return the weights that shrink a side of `length` pixels to `n_means` values.

    Float64 (n_means, length): multiples of 1 / `ONE` (65,536), whose sum is 1 in each
    row. The side is shrunk to `size` pixels, and a value is the mean of `size` /
    `n_means` of them: of one if these are equal. Running sums are rounded, so that each
    error is taken back by the next weight: in a smooth image the errors cancel.
    Source: Pillow, `precompute_coeffs` in Resample.c.
    """
    scale = length / size
    stretch = max(1.0, scale)  # of the filter, only where the side is shrunk
    center = scale * (np.arange(size)[:, None] + 0.5)
    distance = (np.arange(length) + 0.5 - center) / stretch
    is_inside = np.abs(distance) < 3  # lobes
    taps = distance[is_inside]
    weights = np.zeros((size, length))
    weights[is_inside] = np.sinc(taps) * np.sinc(taps / 3)
    weights /= weights.sum(axis=1, keepdims=True)
    means = weights.reshape(n_means, -1, length).mean(axis=1)
    running_sums = np.cumsum(means, axis=1)
    rounded = np.rint(running_sums * ONE) / ONE
    return np.diff(rounded, axis=1, prepend=0)


def _find_bits(orientation: int) -> np.ndarray:
    """Return which bits of an image are its four hashes in another orientation.

    So a mirrored or rotated image need not be decoded and hashed again. Int (256,):
    positions among the 640 bits of `HASHES` and `ROTATION_BITS`: four hashes of the
    image, the perceptual ones of its three mirror images, and three more differences,
    64 bits each.
    orientation: of EXIF, which is applied to the image.
    """
    positions = np.arange(640).reshape(10, 8, 8)  # hashes, rows, columns
    cosines = positions[[1, 4, 5, 6]]  # plain, mirrored along x, y, both
    # Brighter and darker to the right, brighter and darker downwards.
    differences = positions[[2, 7, 8, 9]]
    if orientation in TRANSPOSED:
        # After transposing, the image mirrored along x is the one that was mirrored
        # along y, and "to the right" was "downwards".
        cosines = cosines[[0, 2, 1, 3]].swapaxes(1, 2)
        differences = differences[2:]

    # Reversed columns: what was darker to the right is brighter. `mirror`: the mirror
    # image in `cosines`, 1 for reversed columns, 2 for reversed rows, 3 for both.
    is_darker = int(orientation in COLUMNS_REVERSED)
    mirror = is_darker + 2 * (orientation in ROWS_REVERSED)
    bits = [
        apply_orientation(positions[0], orientation),  # average
        cosines[mirror],
        apply_orientation(differences[is_darker], orientation),
        apply_orientation(positions[3], orientation),  # wavelet
    ]
    return np.reshape(bits, 256)


# (8, 256): for each orientation, the positions of its hashes among the 640 bits of
# `HASHES` and `ROTATION_BITS`.
BITS_BY_ORIENTATION = np.stack([_find_bits(number) for number in ORIENTATIONS])
