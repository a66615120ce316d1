"""Draw textured surfaces: places in a photograph, noise, colours and relief.

A photograph shows a plane. Places on it are complex numbers: 0 is the middle of the
photograph, whose short side is 1 long. Fields are float32 (height, width); colours are
linear, 1 is white, float32 (3, height, width), because NumPy is faster so.
"""

from collections.abc import Sequence
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
Colors = np.ndarray
Color = tuple[float, float, float]  # red, green, blue
Palette = Sequence[Color] | np.ndarray  # from dark to light


@dataclass(frozen=True)
class Frame:
    """The part of the plane that an image shows.

    origin: the place of its first pixel. step: from a pixel to the next one of its row.
    """

    height: int
    width: int
    origin: complex
    step: complex

    @property
    def pixel(self) -> float:
        """The distance of neighbouring pixels."""
        return float(abs(self.step))

    def shrink(self, short_side: int) -> Self:
        """Return the same part in fewer pixels."""
        factor = min(1.0, short_side / min(self.height, self.width))
        height = round(self.height * factor)
        width = round(self.width * factor)
        step = self.step * self.height / height
        return type(self)(height, width, self.origin, step)

    def crop(self, rows: slice, columns: slice) -> Self:
        """Return a part of this frame."""
        corner = complex(columns.start, rows.start)
        height = rows.stop - rows.start
        width = columns.stop - columns.start
        return type(self)(height, width, self.origin + self.step * corner, self.step)

    def find_pixels(self, places: np.ndarray) -> np.ndarray:
        """Return the pixels of places, columns + rows × i."""
        return (places - self.origin) / self.step

    def measure(self, base: complex = 0, unit: complex = 1) -> tuple[Field, Field]:
        """Return x and y of each pixel: from `base` along `unit`, and across it."""
        start = (self.origin - base) / unit
        step = self.step / unit
        column = np.arange(self.width)
        row = np.arange(self.height)[:, None]
        x_of_column = start.real + step.real * column
        y_of_column = start.imag + step.imag * column
        x = x_of_column.astype(np.float32) - (step.imag * row).astype(np.float32)
        y = y_of_column.astype(np.float32) + (step.real * row).astype(np.float32)
        return x, y


@dataclass(frozen=True)
class Textures:
    """Tiles of TILE × TILE pixels; their first row and column are also the last ones.

    smooth, rough: noise of mean 0 and deviation 1. cells: the distance to the nearest
    of `N_CELLS` points, as a multiple of the mean distance of points.
    """

    smooth: Field
    rough: Field
    cells: Field


@dataclass(frozen=True)
class Look:
    """How surfaces look: the direction of the light, its strength, and the textures."""

    light: complex
    textures: Textures


def make_rng(use: str, *seed: int) -> Generator:
    """Return random numbers. use: of `STREAMS`."""
    return np.random.default_rng([STREAMS[use], *seed])


def make_textures(rng: Generator) -> Textures:
    """Return random textures."""
    frequency = np.hypot(fft.fftfreq(TILE)[:, None], fft.rfftfreq(TILE))
    frequency[0, 0] = np.inf
    return Textures(
        smooth=_make_noise(rng, frequency**-2.0),
        rough=_make_noise(rng, frequency**-1.0),
        cells=_make_cells(rng),
    )


def _make_noise(rng: Generator, strength: np.ndarray) -> Field:
    """Return noise. strength: of each frequency."""
    white = rng.standard_normal((TILE, TILE), np.float32)
    spectrum = fft.rfft2(white) * strength.astype(np.float32)
    noise = fft.irfft2(spectrum)
    return _close(noise / noise.std())


def _make_cells(rng: Generator) -> Field:
    """Return distances to random points."""
    points = rng.integers(TILE, size=(2, N_CELLS))
    is_empty = np.ones((TILE, TILE), np.uint8)
    is_empty[points[0], points[1]] = 0
    margin = TILE // 8
    repeated = np.pad(is_empty, margin, mode="wrap")
    distance = cv2.distanceTransform(repeated, cv2.DIST_L2, 5)
    inner = np.s_[margin:-margin, margin:-margin]
    return _close(distance[inner] * np.float32(N_CELLS**0.5 / TILE))


def _close(tile: Field) -> Field:
    """Repeat the first row and column at the end."""
    return np.pad(tile, (0, 1), mode="wrap")


def read_tile(
    tile: Field, x: Field, y: Field, frequency: float, offset: float = 0
) -> Field:
    """Return the values of a tile that repeats `frequency` times in a length of 1."""
    # OpenCV can repeat a tile too, in eight times the time.
    column = _repeat(x, frequency, offset)
    row = _repeat(y, frequency, offset)
    return cv2.remap(tile, column, row, cv2.INTER_LINEAR)


def _repeat(x: Field, frequency: float, offset: float) -> Field:
    """Return the rows or columns of a tile, float32 from 0 to TILE."""
    position = frequency * x
    position += offset
    position -= np.floor(position)
    position *= TILE
    return position


def look_up(table: Field, x: Field, y: Field) -> Field:
    """Return the values of a table (rows, columns) at x and y, both from 0 to 1."""
    rows, columns = table.shape
    return cv2.remap(
        table,
        x * (columns - 1),
        y * (rows - 1),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )


def ramp(values: Field, low: float, high: float) -> Field:
    """Return 0 up to `low`, 1 from `high`, and a line between them."""
    share = (values - low) * float(1 / (high - low))
    return np.clip(share, 0, 1, out=share)


def pick(palette: Palette, tone: Field) -> Colors:
    """Return the colours of tones from 0 to 1."""
    tones = np.linspace(0, 1, 256)
    stops = np.linspace(0, 1, len(palette))
    number = cv2.convertScaleAbs(np.maximum(tone, 0), alpha=255)
    colors = np.empty((3, *tone.shape), np.float32)
    for channel, values in zip(colors, np.transpose(palette), strict=True):
        table = np.interp(tones, stops, values).astype(np.float32)
        cv2.LUT(number, table, dst=channel)
    return colors


def blend(colors: Colors, other: Colors | Color, share: Field) -> None:
    """Replace a share of the colours in place."""
    for number, channel in enumerate(other):
        colors[number] += share * (channel - colors[number])


def light_relief(height: Field, frame: Frame, light: complex) -> Field:
    """Return how much more light than a plane each pixel receives.

    height: in lengths of the plane.
    """
    direction = light / frame.step
    slope = np.zeros_like(height)
    slope[:, 1:] -= float(direction.real) * np.diff(height, axis=1)
    slope[1:] -= float(direction.imag) * np.diff(height, axis=0)
    return slope


def blur(field: Field, radius: float) -> Field:
    """Return a blurred field. radius: pixels."""
    height, width = field.shape
    factor = max(1, int(radius / 2))
    small = field
    if factor > 1:
        size = (max(1, width // factor), max(1, height // factor))
        small = cv2.resize(field, size, interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), max(0.3, float(radius / factor)))
    return cv2.resize(small, (width, height))
