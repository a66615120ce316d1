"""Draw photographs of leaves: backdrop, leaf, shadow, light and grain."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.diseases import HEALTHY
from kaggle_tfr_sample.drawing import (
    Colors,
    Field,
    Look,
    Places,
    blend,
    color,
    find_step,
    make_look,
    make_rng,
    mix,
    ramp,
    read_tile,
    turn,
)
from kaggle_tfr_sample.leaves import grow_leaf, grow_plant, paint_leaf

# Dark and light.
FOLIAGE = (
    (color(0.01, 0.025, 0.01), color(0.12, 0.22, 0.07)),
    (color(0.03, 0.04, 0.05), color(0.32, 0.42, 0.44)),
    (color(0.06, 0.04, 0.02), color(0.42, 0.36, 0.20)),
)
SOIL = (
    (color(0.02, 0.012, 0.01), color(0.34, 0.21, 0.14)),
    (color(0.03, 0.03, 0.03), color(0.40, 0.38, 0.36)),
)
WOOD = (
    (color(0.04, 0.02, 0.01), color(0.42, 0.26, 0.14)),
    (color(0.05, 0.048, 0.045), color(0.48, 0.45, 0.41)),
)
LARGEST = 400  # pixels of the short side; larger photographs are enlarged
BLURRED = 60  # pixels of the short side of a backdrop that is out of focus


@dataclass(frozen=True)
class View:
    """How one photograph of a leaf differs from another of the same leaf.

    angle: of the camera, in radians. shift: in short sides. wind: how much it bends the
    leaf. number: of the photograph, which has its own grain.
    """

    angle: float = 0.0
    zoom: float = 1.0
    shift: complex = 0
    wind: float = 0.0
    number: int = 0


@dataclass(frozen=True)
class Subject:
    """A leaf to photograph.

    disease: of `DISEASES`, or "healthy". seed: of all that is random.
    """

    disease: str
    plant: int
    seed: int


def take_photo(
    subject: Subject, height: int, width: int, view: View | None = None
) -> np.ndarray:
    """Return a photograph, uint8 (height, width, 3): red, green, blue.

    The same arguments give the same pixels, and another size the same photograph.
    """
    view = view or View()
    rng = make_rng("scene", subject.seed)
    look = make_look(rng)
    factor = max(1, min(height, width) / LARGEST)
    step = factor * turn(view.angle) / (view.zoom * min(height, width))
    row = step * _count_pixels(round(height / factor))
    column = step * _count_pixels(round(width / factor))
    places = view.shift + column + 1j * row[:, None]

    paint_backdrop = rng.choice([_paint_foliage, _paint_soil, _paint_wood])
    photo = paint_backdrop(places, rng, look)
    plant = grow_plant(subject.plant)
    leaf = grow_leaf(plant, make_rng("leaf", subject.seed), view.wind)
    colors, cover = paint_leaf(places, leaf, subject.disease, look)
    photo *= _cast_shadow(cover, look.light / step)
    blend(photo, colors, cover)
    photo *= _shade(places, rng, look)
    grain_rng = make_rng("grain", subject.seed, view.number)
    grain = grain_rng.random((height, width), np.float32) - 0.5
    return _develop(photo, rng, 0.03 * grain)


def _count_pixels(count: int) -> Field:
    """Return numbers whose mean is 0."""
    return np.arange(count, dtype=np.float32) - (count - 1) / 2


def _paint_foliage(places: Places, rng: Generator, look: Look) -> Colors:
    """Return another leaf, out of focus, and spots of light."""
    height, width = places.shape
    factor = max(1, min(height, width) // BLURRED)
    small = np.ascontiguousarray(places[::factor, ::factor])
    turned = small * turn(rng.uniform(0, 7))
    cloud = read_tile(look.smooth, turned, 0.5)
    dark, light = FOLIAGE[rng.integers(len(FOLIAGE))]
    colors = mix(dark, light, 0.5 + 0.4 * turned.real + 0.15 * cloud)
    plant = grow_plant(rng.integers(1 << 30))
    leaf, cover = paint_leaf(small, grow_leaf(plant, rng), HEALTHY, look)
    blend(colors, leaf, 0.6 * cover)

    blurred = cv2.GaussianBlur(colors.transpose(1, 2, 0), (0, 0), 2.5)
    lights = ramp(read_tile(look.cells, turned, 0.4), 0.27, 0.18) * ramp(cloud, 0, 2)
    blurred += 0.3 * lights[..., None]
    large = cv2.resize(blurred, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.ascontiguousarray(large.transpose(2, 0, 1))


def _paint_soil(places: Places, rng: Generator, look: Look) -> Colors:
    """Return earth with stones."""
    smooth = read_tile(look.smooth, places, 0.8)
    rough = read_tile(look.rough, places, 3.0)
    bent = places + (0.015 - 0.015j) * smooth + (0.004 + 0.004j) * rough
    frequency = rng.uniform(0.5, 1.3)
    stone = ramp(read_tile(look.cells, bent, frequency), 0.7, 0)
    crumb = ramp(read_tile(look.cells, bent, 3.3 * frequency), 0.7, 0)
    bump = np.sqrt(stone) + 0.3 * np.sqrt(crumb)
    height = 0.03 / frequency * bump + 0.002 * rough
    shade = look.light_up(height, find_step(places))
    dark, light = SOIL[rng.integers(len(SOIL))]
    tone = 0.15 + 0.3 * bump + 0.12 * smooth + 0.10 * rough
    colors = mix(dark, light, np.maximum(tone, 0.05))
    colors *= np.clip(shade, 0.2, 1.7)
    return colors


def _paint_wood(places: Places, rng: Generator, look: Look) -> Colors:
    """Return a table of wooden boards."""
    turned = places * turn(rng.uniform(0, 7))
    position = turned.imag / rng.uniform(0.22, 0.5)
    number = np.floor(position)
    bent = turned + 3.7 * number
    bent += 0.03j * read_tile(look.smooth, bent, 0.6)
    grain = read_tile(look.rough, 0.08 * bent.real + 1j * bent.imag, 3.0)
    rings = np.sin(60 * bent.imag + 3 * np.sin(5 * bent.real))
    tone = 0.5 + 0.13 * grain + 0.07 * rings + 0.15 * np.sin(5 * number)
    gap = ramp(abs(position - number - 0.5), 0.48, 0.5)
    dark, light = WOOD[rng.integers(len(WOOD))]
    return mix(dark, light, tone - 0.5 * gap)


def _cast_shadow(cover: Field, light: complex) -> Field:
    """Return the light that is left behind a leaf. light: in pixels a length."""
    size = round(0.07 * abs(light))
    center = size * (0.5 + 0.5j - 0.35 * light / abs(light))
    anchor = (int(center.real), int(center.imag))
    return 1 - 0.6 * cv2.blur(cover, (size, size), anchor=anchor)


def _shade(places: Places, rng: Generator, look: Look) -> Field:
    """Return less light in the corners, and the shade of other leaves."""
    dapple = np.clip(2 * read_tile(look.smooth, places, 0.3), -1, 1)
    light = 1 - rng.uniform(0.1, 0.6) * np.square(abs(places))
    return light * (1 + rng.uniform(0, 0.4) * dapple)


def _develop(photo: Colors, rng: Generator, grain: Field) -> np.ndarray:
    """Return 8-bit colours of the size of the grain, as a camera does."""
    height, width = grain.shape
    warmth = rng.uniform(-0.12, 0.12)
    exposure = rng.uniform(1, 1.9)
    channels = []
    for channel, balance in zip(photo, (1 + warmth, 1, 1 - warmth), strict=True):
        light = 1 - np.exp(-exposure * balance * channel)
        level = np.sqrt(np.maximum(light, 0))
        level = cv2.resize(level, (width, height), interpolation=cv2.INTER_CUBIC)
        level += grain
        channels.append(cv2.convertScaleAbs(np.maximum(level, 0), alpha=255))
    return cv2.merge(channels)
