"""Shrink a grey image to the thumbnails that are hashed, by products of matrices.

Resampling is linear: a pixel of a thumbnail is a weighted sum of the image's pixels.
The filter is Lanczos's with three lobes. As in Pillow, rows are shrunk first and
rounded to whole grey levels, then columns.

The sums are exact, so that hashes do not depend on the machine, its number of threads
or the version of a library: a weight is a whole number of 65,536ths, a pixel is a whole
number from -128 to 127, and their sums stay below 2**24. float32 represents all whole
numbers up to there, in whatever order they are added.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

ONE = 1 << 16  # the sum of the weights of a thumbnail's pixel
MIDDLE = 128  # the grey level that becomes 0
LOBES = 3
# The rows of `Weights.matrix` that belong to thumbnails of 8, 9, 32 and 64 pixels, and
# to the means that wavelets compute.
EIGHT = slice(0, 8)
NINE = slice(8, 17)
WAVELETS = slice(17, 25)
MEDIUM = slice(25, 57)
LARGE = slice(57, 121)
# A pixel of a larger thumbnail depends on few pixels of the image. So these rows of the
# matrix are multiplied in groups, each with the pixels that any of its rows needs,
# which takes half the time of a single product.
BANDS = [
    slice(EIGHT.start, WAVELETS.stop),
    *[slice(start, start + 8) for start in range(MEDIUM.start, MEDIUM.stop, 8)],
    *[slice(start, start + 16) for start in range(LARGE.start, LARGE.stop, 16)],
]


@dataclass(frozen=True)
class Thumbnails:
    """Small versions of one image, float32 (height, width): whole grey levels.

    wavelets: float64 (8, 8), the low band of Haar's wavelets, which is the mean of each
        64th of the image, less `MIDDLE` and times 2**32, not rounded.
    """

    small: np.ndarray  # 8 × 8
    wide: np.ndarray  # 8 × 9
    high: np.ndarray  # 9 × 8
    medium: np.ndarray  # 32 × 32
    large: np.ndarray  # 64 × 64
    wavelets: np.ndarray


@dataclass(frozen=True)
class Weights:
    """How much each pixel of a side adds to each pixel of the thumbnails.

    matrix: float32 (121, length of the side), whole numbers.
    bands: for each of `BANDS`, the pixels of the side that have weights in it, and
        these weights, float32 (pixels, rows of the matrix).
    """

    matrix: np.ndarray
    bands: list[tuple[slice, np.ndarray]]


def make_thumbnails(luma: np.ndarray) -> Thumbnails:
    """Shrink an image, uint8 (height, width), to the thumbnails."""
    height, width = luma.shape
    # The wavelets of `imagehash.whash` begin with a square of this side.
    exponent = min(height, width).bit_length() - 1
    wavelet_side = max(8, 1 << exponent)
    rows = _shrink_rows(luma, weigh_pixels(width, wavelet_side))
    weights = weigh_pixels(height, wavelet_side).matrix

    wavelets = weights[WAVELETS].astype(np.float64) @ rows[:, WAVELETS]
    rounded = _round(rows)
    return Thumbnails(
        small=_shrink_columns(rounded[:, EIGHT], weights[EIGHT]),
        wide=_shrink_columns(rounded[:, NINE], weights[EIGHT]),
        high=_shrink_columns(rounded[:, EIGHT], weights[NINE]),
        medium=_shrink_columns(rounded[:, MEDIUM], weights[MEDIUM]),
        large=_shrink_columns(rounded[:, LARGE], weights[LARGE]),
        wavelets=wavelets,
    )


def _shrink_rows(luma: np.ndarray, weights: Weights) -> np.ndarray:
    """Return the sums of each row for all thumbnails: float32 (height, 121)."""
    pixels = luma.astype(np.float32)
    pixels -= MIDDLE
    sums = np.empty((len(pixels), len(weights.matrix)), np.float32)
    for band, (reach, weights_of_band) in zip(BANDS, weights.bands, strict=True):
        sums[:, band] = pixels[:, reach] @ weights_of_band
    return sums


def _shrink_columns(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the grey levels of a thumbnail."""
    return _round(weights @ rows) + np.float32(MIDDLE)


def _round(sums: np.ndarray) -> np.ndarray:
    """Return whole grey levels minus `MIDDLE`, as Pillow rounds and limits them."""
    levels = sums / np.float32(ONE)
    np.rint(levels, out=levels)
    return np.clip(levels, -MIDDLE, MIDDLE - 1, out=levels)


@lru_cache(128)  # 0.7 kB a pixel
def weigh_pixels(length: int, wavelet_side: int) -> Weights:
    """Return the weights of a side of `length` pixels.

    wavelet_side: a power of 2, from which wavelets compute eight means.
    """
    of_wavelets = weigh_by_lanczos(length, wavelet_side)
    weights = [
        weigh_by_lanczos(length, 8),
        weigh_by_lanczos(length, 9),
        of_wavelets.reshape(8, -1, length).mean(axis=1),
        weigh_by_lanczos(length, 32),
        weigh_by_lanczos(length, 64),
    ]
    matrix = _round_weights(np.concatenate(weights))
    return Weights(matrix, [_cut_band(matrix[band]) for band in BANDS])


def weigh_by_lanczos(length: int, size: int) -> np.ndarray:
    """Return the weights that shrink `length` pixels to `size`: float64 (size, length).

    Source: Pillow, `precompute_coeffs` in Resample.c.
    """
    scale = length / size
    stretch = max(1.0, scale)
    # The second half of the weights mirrors the first one.
    center = scale * (np.arange((size + 1) // 2)[:, None] + 0.5)
    first = (center - LOBES * stretch + 0.5).astype(int).clip(0)
    taps = np.arange(2 * int(LOBES * stretch) + 2)
    position = first + taps
    weights = _evaluate_lanczos((position + 0.5 - center) / stretch)
    weights[position >= length] = 0
    weights /= weights.sum(axis=1, keepdims=True)

    half = np.zeros((len(center), length + len(taps)))
    np.put_along_axis(half, position, weights, axis=1)
    half = half[:, :length]
    mirrored = half[: size // 2][::-1, ::-1]
    return np.concatenate([half, mirrored])


def _evaluate_lanczos(x: np.ndarray) -> np.ndarray:
    """Return sinc(x) sinc(x / 3) for |x| < 3, and 0 elsewhere."""
    angle = np.maximum(np.abs(x) * (np.pi / LOBES), 1e-9)  # 0 cannot divide
    sine = np.sin(angle)
    sine_of_triple = 3 * sine - 4 * sine**3
    return np.where(angle < np.pi, sine_of_triple * sine / (3 * angle**2), 0.0)


def _round_weights(weights: np.ndarray) -> np.ndarray:
    """Return weights as whole numbers whose sum is `ONE` in each row: float32.

    Their running sums are rounded, so that each error is taken back by the next weight:
    in a smooth image the errors cancel.
    """
    running_sums = np.cumsum(weights, axis=1)
    running_sums *= ONE
    np.rint(running_sums, out=running_sums)
    return np.diff(running_sums.astype(np.float32), axis=1, prepend=np.float32(0))


def _cut_band(weights: np.ndarray) -> tuple[slice, np.ndarray]:
    """Return the pixels from the first to the last with a weight, and the weights."""
    pixels = np.flatnonzero(weights.any(axis=0))
    reach = slice(int(pixels[0]), int(pixels[-1]) + 1)
    return reach, np.ascontiguousarray(weights[:, reach].T)
