"""Draw textured surfaces: places in a photograph, noise, colours and relief.

A photograph shows a plane. Places on it are complex numbers: 0 is the middle of the
photograph, whose short side is 1 long. Fields are float32 (height, width); colours are
linear, 1 is white, float32 (3, height, width), because NumPy is faster so.
"""

from dataclasses import dataclass
from typing import Self

import cv2
import numpy as np
from numpy.random import Generator
from scipy import fft

TILE = 256  # pixels a side of a texture, which repeats
N_CELLS = 160  # in a texture

# First numbers of seeds, so that no two uses share random numbers.
STREAMS = {"scene": 1, "leaf": 2, "grain": 3, "size": 4, "plant": 7}

Field = np.ndarray
Colors = np.ndarray  # of pixels, or one colour, (3, 1, 1)


@dataclass(frozen=True)
class Frame:
    """The part of the plane that an image shows.

    origin: the place of its first pixel. step: from a pixel to the next one of its row.
    """

    height: int
    width: int
    origin: complex
    step: complex

    def shrink(self, factor: int) -> Self:
        """Return the same part in fewer pixels."""
        return type(self)(
            self.height // factor,
            self.width // factor,
            self.origin,
            self.step * factor,
        )

    def crop(self, rows: slice, columns: slice) -> Self:
        """Return a part of this frame."""
        corner = complex(columns.start, rows.start)
        height = rows.stop - rows.start
        width = columns.stop - columns.start
        return type(self)(height, width, self.origin + self.step * corner, self.step)

    def measure(self, base: complex = 0, unit: complex = 1) -> tuple[Field, Field]:
        """Return x and y of each pixel: from `base` along `unit`, and across it."""
        start = np.complex64((self.origin - base) / unit)
        step = np.complex64(self.step / unit)
        column = np.arange(self.width, dtype=np.float32)
        row = np.arange(self.height, dtype=np.float32)[:, None]
        x = (start.real + step.real * column) - step.imag * row
        y = (start.imag + step.imag * column) + step.real * row
        return x, y


@dataclass(frozen=True)
class Look:
    """How surfaces look: the direction and strength of the light, and textures.

    Textures repeat after `TILE` pixels. smooth, rough: noise of mean 0 and deviation 1.
    cells: the distance to the nearest of `N_CELLS` points, as a multiple of the mean
    distance of points.
    """

    light: complex
    smooth: Field
    rough: Field
    cells: Field

    def light_up(self, height: Field, frame: Frame) -> Field:
        """Return the light on a relief; a plane has 1. height: in units of the plane."""
        direction = np.complex64(self.light / frame.step)
        right = direction.real
        down = direction.imag
        kernel = np.array([[0, down, 0], [right, -right - down, 0], [0, 0, 0]])
        return 1 + cv2.filter2D(height, -1, kernel)


def make_rng(use: str, *seed: int) -> Generator:
    """Return random numbers. use: of `STREAMS`."""
    return np.random.default_rng([STREAMS[use], *seed])


def make_look(rng: Generator) -> Look:
    """Return a random light and random textures."""
    light = rng.uniform(0.6, 1.1) * turn(rng.uniform(0, 7))
    frequency = np.hypot(fft.fftfreq(TILE)[:, None], fft.rfftfreq(TILE))
    frequency = np.maximum(frequency, 1 / TILE).astype(np.float32)
    white = rng.random((TILE, TILE), np.float32) - 0.5
    rough = fft.rfft2(white) / frequency
    smooth = rough[::-1] / frequency
    return Look(light, _make_noise(smooth), _make_noise(rough), _make_cells(rng))


def turn(angle: float) -> complex:
    """Return the direction at an angle in radians."""
    return complex(np.exp(1j * angle))


def _make_noise(spectrum: np.ndarray) -> Field:
    """Return the noise that has a spectrum."""
    noise = fft.irfft2(spectrum)
    noise -= noise.mean()
    return _close(noise / noise.std())


def _make_cells(rng: Generator) -> Field:
    """Return distances to random points."""
    rows, columns = rng.integers(TILE, size=(2, N_CELLS))
    is_empty = np.ones((TILE, TILE), np.uint8)
    is_empty[rows, columns] = 0
    margin = TILE // 8
    repeated = np.pad(is_empty, margin, mode="wrap")
    distance = cv2.distanceTransform(repeated, cv2.DIST_L2, 5)
    inner = slice(margin, -margin)
    return _close(distance[inner, inner] * np.float32(N_CELLS**0.5 / TILE))


def _close(tile: Field) -> Field:
    """Repeat the first row and column at the end."""
    return np.pad(tile, (0, 1), mode="wrap")


def read_tile(tile: Field, x: Field, y: Field, frequency: float) -> Field:
    """Return the values of a tile that repeats `frequency` times in a length of 1."""
    # OpenCV can repeat a tile too, in eight times the time.
    column = _repeat(x, frequency)
    row = _repeat(y, frequency)
    return cv2.remap(tile, column, row, cv2.INTER_LINEAR)


def _repeat(x: Field, frequency: float) -> Field:
    """Return the rows or columns of a tile, float32 from 0 to TILE."""
    position = frequency * x
    position -= np.floor(position)
    position *= TILE
    return position


def ramp(values: Field, low: float, high: float) -> Field:
    """Return 0 up to `low`, 1 from `high`, and a line between them."""
    share = (values - low) * (1 / (high - low))
    return np.clip(share, 0, 1, out=share)


def color(red: float, green: float, blue: float) -> Colors:
    """Return one colour."""
    return np.array([red, green, blue], np.float32)[:, None, None]


def mix(colors: Colors, others: Colors, share: Field) -> Colors:
    """Return colours of which a share is replaced by others."""
    return colors + share * (others - colors)
