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
# Each eighth of a side has one mean for the wavelets, four pixels of the thumbnail of
# 32 and eight of that of 64. They depend on few pixels of the image, so each eighth is
# multiplied on its own, which takes half the time of a single product.
EIGHTHS = 8
MEAN = 0
MEDIUM = slice(1, 5)
LARGE = slice(5, 13)
PIXELS_OF_EIGHTH = 13
# The thumbnails of 8 and 9 pixels depend on all pixels.
EIGHT = slice(0, 8)
NINE = slice(8, 17)


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

    All are whole numbers, (pixels of the side, pixels of thumbnails).

    coarse: float32 (length, 17), for the thumbnails of 8 and 9 pixels.
    means: float64 (length, 8), for the wavelets.
    eighths: for each eighth of the thumbnails, the pixels of the side that have weights
        in it, and these weights, float32 (pixels, 13).
    """

    coarse: np.ndarray
    means: np.ndarray
    eighths: list[tuple[slice, np.ndarray]]


def make_thumbnails(luma: np.ndarray) -> Thumbnails:
    """Shrink an image, uint8 (height, width), to the thumbnails."""
    height, width = luma.shape
    # The wavelets of `imagehash.whash` begin with a square of this side.
    exponent = min(height, width).bit_length() - 1
    wavelet_side = max(EIGHTHS, 1 << exponent)
    of_columns = weigh_pixels(width, wavelet_side)
    of_rows = weigh_pixels(height, wavelet_side)
    pixels = luma.astype(np.float32)
    pixels -= MIDDLE

    coarse_rows = _round(pixels @ of_columns.coarse)
    coarse = _round(of_rows.coarse.T @ coarse_rows) + MIDDLE

    sums = np.empty((height, EIGHTHS, PIXELS_OF_EIGHTH), np.float32)
    for eighth, (reach, weights) in enumerate(of_columns.eighths):
        sums[:, eighth] = pixels[:, reach] @ weights
    fine_rows = _round(sums).reshape(height, -1)
    squares = np.empty((EIGHTHS, PIXELS_OF_EIGHTH, fine_rows.shape[1]), np.float32)
    for eighth, (reach, weights) in enumerate(of_rows.eighths):
        squares[eighth] = weights.T @ fine_rows[reach]
    fine = _round(squares).reshape(EIGHTHS, PIXELS_OF_EIGHTH, EIGHTHS, -1) + MIDDLE

    return Thumbnails(
        small=coarse[EIGHT, EIGHT],
        wide=coarse[EIGHT, NINE],
        high=coarse[NINE, EIGHT],
        medium=fine[:, MEDIUM, :, MEDIUM].reshape(32, 32),
        large=fine[:, LARGE, :, LARGE].reshape(64, 64),
        wavelets=of_rows.means.T @ sums[:, :, MEAN],
    )


def _round(sums: np.ndarray) -> np.ndarray:
    """Return whole grey levels minus `MIDDLE`, as Pillow rounds and limits them."""
    levels = sums * np.float32(1 / ONE)
    np.rint(levels, out=levels)
    return np.clip(levels, -MIDDLE, MIDDLE - 1, out=levels)


@lru_cache(128)  # 0.4 kB a pixel
def weigh_pixels(length: int, wavelet_side: int) -> Weights:
    """Return the weights of a side of `length` pixels.

    wavelet_side: a power of 2, from which wavelets compute eight means.
    """
    coarse = [weigh_by_lanczos(length, 8), weigh_by_lanczos(length, 9)]
    of_wavelets = weigh_by_lanczos(length, wavelet_side)
    means = of_wavelets.reshape(EIGHTHS, -1, length).mean(axis=1)
    means = _round_weights(means)
    fine = [
        means[:, None],
        _round_weights(weigh_by_lanczos(length, 32)).reshape(EIGHTHS, -1, length),
        _round_weights(weigh_by_lanczos(length, 64)).reshape(EIGHTHS, -1, length),
    ]
    return Weights(
        coarse=_round_weights(np.concatenate(coarse)).T,
        means=means.T.astype(np.float64),
        eighths=[_cut_reach(eighth) for eighth in np.concatenate(fine, axis=1)],
    )


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


def _cut_reach(weights: np.ndarray) -> tuple[slice, np.ndarray]:
    """Return the pixels from the first to the last with a weight, and the weights."""
    pixels = np.flatnonzero(weights.any(axis=0))
    reach = slice(int(pixels[0]), int(pixels[-1]) + 1)
    return reach, np.ascontiguousarray(weights[:, reach].T)
