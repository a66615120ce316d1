"""Draw textured surfaces: places in a photograph, noise, colours and relief.

A photograph shows a plane. Places on it are complex numbers: 0 is the middle of the
photograph, whose short side is 1 long. Fields are float32 (height, width); colours are
linear, 1 is white, float32 (3, height, width), because NumPy is faster so.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator
from scipy import fft

TILE = 128  # pixels a side of a texture, which repeats
N_CELLS = 160  # in a texture

# First numbers of seeds, so that no two uses share random numbers.
STREAMS = {"scene": 1, "leaf": 2, "grain": 3, "size": 4, "plant": 7}

Field = np.ndarray
Places = np.ndarray  # of pixels, complex64 (height, width)
Colors = np.ndarray  # of pixels, or one colour, (3, 1, 1)


@dataclass(frozen=True)
class Look:
    """How surfaces look: the direction and strength of the light, and textures.

    The last row and column of a texture are the first ones again. smooth, rough: noise
    of mean 0 and deviation 1. cells: the distance to the nearest of `N_CELLS` points,
    as a multiple of the mean distance of points.
    """

    light: complex
    smooth: Field
    rough: Field
    cells: Field

    def light_up(self, height: Field, step: complex) -> Field:
        """Return the light on a relief; a plane has 1.

        height: in lengths of the plane. step: from a pixel to the next one.
        """
        direction = self.light / step
        right = direction.real
        down = direction.imag
        kernel = np.array([[0, down, 0], [right, -right - down, 0], [0, 0, 0]])
        return 1 + cv2.filter2D(height, -1, kernel)


def make_rng(use: str, *seed: int) -> Generator:
    """Return random numbers. use: of `STREAMS`."""
    return np.random.default_rng([STREAMS[use], *seed])


def turn(angle: float) -> complex:
    """Return the direction at an angle in radians."""
    return complex(np.exp(1j * angle))


def find_step(places: Places) -> complex:
    """Return the vector from a pixel to the next one of its row."""
    return complex(places[0, 1] - places[0, 0])


def make_look(rng: Generator) -> Look:
    """Return a random light and random textures."""
    light = rng.uniform(0.6, 1.1) * turn(rng.uniform(0, 7))
    frequency = np.hypot(fft.fftfreq(TILE)[:, None], fft.rfftfreq(TILE))
    frequency = np.maximum(frequency, 1 / TILE).astype(np.float32)
    white = rng.random((TILE, TILE), np.float32) - 0.5
    rough = fft.rfft2(white) / frequency
    smooth = rough / frequency
    textures = [_make_noise(smooth), _make_noise(rough), _make_cells(rng)]
    closed = [np.pad(texture, (0, 1), mode="wrap") for texture in textures]
    return Look(light, *closed)


def _make_noise(spectrum: np.ndarray) -> Field:
    """Return the noise that has a spectrum."""
    noise = fft.irfft2(spectrum)
    noise -= noise.mean()
    return noise / noise.std()


def _make_cells(rng: Generator) -> Field:
    """Return distances to random points."""
    is_empty = np.ones((TILE, TILE), np.uint8)
    is_empty[*rng.integers(TILE, size=(2, N_CELLS))] = 0
    repeated = np.pad(is_empty, TILE // 4, mode="wrap")
    distance = cv2.distanceTransform(repeated, cv2.DIST_L2, 5)
    inner = slice(TILE // 4, -TILE // 4)
    return distance[inner, inner] * np.float32(N_CELLS**0.5 / TILE)


def read_tile(tile: Field, places: Places, frequency: float) -> Field:
    """Return the values of a texture that repeats `frequency` times in a length."""
    # OpenCV can repeat a texture too, in eight times the time.
    position = (frequency * places).view(np.float32).reshape(*places.shape, 2)
    position -= np.floor(position)
    position *= TILE
    # Its types do not know that the second map may be None.
    return cv2.remap(tile, position, None, cv2.INTER_LINEAR)  # type: ignore[call-overload]


def ramp(values: Field, low: float, high: float) -> Field:
    """Return 0 up to `low`, 1 from `high`, and a line between them."""
    return np.clip((values - low) * (1 / (high - low)), 0, 1)


def color(red: float, green: float, blue: float) -> Colors:
    """Return one colour."""
    return np.array([red, green, blue], np.float32)[:, None, None]


def mix(dark: Colors, light: Colors, tone: Field) -> Colors:
    """Return colours from dark, of tone 0, to light, of tone 1."""
    colors = tone * (light - dark)
    colors += dark
    return colors


def blend(colors: Colors, others: Colors, share: Field) -> None:
    """Replace a share of the colours in place."""
    for number, other in enumerate(others):
        colors[number] += share * (other - colors[number])
