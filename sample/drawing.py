"""Draw textured surfaces: noise, colours and relief.

Places are fields of complex numbers, complex64: 0 is the middle of a photograph,
whose short side is 1 long. Other fields are float32 (height, width); colours are
linear, 1 is white, float32 (3, height, width).
"""

from functools import cache

import cv2
import numpy as np
from numpy.random import Generator
from scipy import fft
from scipy.spatial import KDTree

TILE = 256  # pixels a side of a texture, which repeats
N_CELLS = 160  # in a texture

Field = np.ndarray
Colors = np.ndarray
Color = tuple[float, ...]


def make_rng(use: str, *seed: int) -> Generator:
    """Return random numbers, which no two uses share."""
    return np.random.default_rng([*use.encode(), *seed])


def read_texture(
    name: str, places: Field, frequency: float, offset: complex = 0
) -> Field:
    """Return a texture that repeats `frequency` times in a length of 1.

    smooth, rough: noise of mean 0 and deviation 1. cells: the distance to the nearest
    of random points, as a multiple of their mean distance.
    """
    position = (frequency * places + offset).view(np.float32)
    position -= np.floor(position)
    columns_rows = TILE * position.reshape(*places.shape, 2)
    return cv2.remap(  # type: ignore[call-overload]
        _make_tile(name), columns_rows, None, cv2.INTER_LINEAR
    )


@cache
def _make_tile(name: str) -> Field:
    """Return a texture; its first row and column are also the last ones."""
    rng = make_rng(name)
    if name == "cells":
        points = KDTree(rng.random((N_CELLS, 2)), boxsize=1)
        distance, _ = points.query(np.indices((TILE, TILE)).T / TILE)
        tile = distance * N_CELLS**0.5
    else:
        frequency = np.hypot(fft.fftfreq(TILE)[:, None], fft.rfftfreq(TILE))
        frequency[0, 0] = np.inf
        white = fft.rfft2(rng.standard_normal((TILE, TILE)))
        tile = fft.irfft2(white / frequency ** (2 if name == "smooth" else 1))
        tile /= tile.std()
    return np.pad(tile.astype(np.float32), (0, 1), mode="wrap")


def ramp(values: Field, low: float, high: float) -> Field:
    """Return 0 up to `low`, 1 from `high`, and a line between them."""
    return np.clip((values - low) * (1 / (high - low)), 0, 1)


def pick(palette: str, tone: Field) -> Colors:
    """Return the colours of tones from 0 to 1. palette: dark, middle, light in hex."""
    levels = np.frombuffer(bytes.fromhex(palette), np.uint8) / np.float32(255)
    table = cv2.resize(np.square(levels).reshape(1, 3, 3), (256, 1))
    number = cv2.convertScaleAbs(np.maximum(tone, 0), alpha=255)
    colors = np.empty((3, *tone.shape), np.float32)
    for channel, color in zip(cv2.split(table), colors, strict=True):
        cv2.LUT(number, channel, color)
    return colors


def blend(colors: Colors, other: Colors | Color, share: Field) -> None:
    """Replace a share of the colours in place."""
    for number, new in enumerate(other):
        colors[number] += share * (new - colors[number])


def light_relief(height: Field, light: complex) -> Field:
    """Return how much more light than a plane each pixel receives.

    height: in lengths of the plane. light: its direction, in pixels.
    """
    left, up = light.real, light.imag
    kernel = np.array([[0, up], [left, -left - up]])
    return cv2.filter2D(height, -1, kernel, None, (1, 1), 0, cv2.BORDER_REPLICATE)


def blur(image: np.ndarray, radius: float) -> np.ndarray:
    """Return a blurred image (height, width, …). radius: pixels."""
    size = 2 * round(2 * radius) + 1
    return cv2.stackBlur(image, (size, size))
