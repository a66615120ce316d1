"""Draw photographs of leaves: backdrop, leaf, shadow, light and grain."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.diseases import HEALTHY
from kaggle_tfr_sample.drawing import (
    Colors,
    Field,
    Frame,
    Look,
    color,
    make_look,
    make_rng,
    mix,
    ramp,
    read_tile,
    turn,
)
from kaggle_tfr_sample.leaves import Leaf, Plant, grow_leaf, grow_plant, paint_leaf

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
    plant = grow_plant(subject.plant)
    rng = make_rng("scene", subject.seed)
    leaf_rng = make_rng("leaf", subject.seed)
    look = make_look(rng)
    frame = _frame_view(view, height, width)
    paint_backdrop = rng.choice([_paint_foliage, _paint_soil, _paint_wood])
    photo = paint_backdrop(frame, rng, plant, look)

    leaf = grow_leaf(plant, subject.disease, leaf_rng, view.wind)
    colors, cover = paint_leaf(frame, leaf, look)
    stem = _paint_stem(frame, leaf)
    photo *= _cast_shadow(np.maximum(cover, stem), frame, look.light)
    photo = mix(photo, plant.greens[2], 0.9 * stem)
    photo = mix(photo, colors, cover)
    grain_rng = make_rng("grain", subject.seed, view.number)
    return _develop(photo * _light_up(frame, rng, look), rng, grain_rng)


def _frame_view(view: View, height: int, width: int) -> Frame:
    """Return what the camera sees."""
    step = turn(view.angle) / (view.zoom * min(height, width))
    middle = complex(width - 1, height - 1) / 2
    return Frame(height, width, view.shift - step * middle, step)


def _paint_foliage(frame: Frame, rng: Generator, plant: Plant, look: Look) -> Colors:
    """Return another leaf of the plant, out of focus, and spots of light."""
    small = frame.shrink(max(1, min(frame.height, frame.width) // BLURRED))
    x, y = small.measure(unit=turn(rng.uniform(0, 7)))
    cloud = read_tile(look.smooth, x, y, 0.5)
    dark, light = FOLIAGE[rng.integers(len(FOLIAGE))]
    colors = mix(dark, light, ramp(0.5 * x + 0.2 * cloud, -0.6, 0.6))
    leaf, cover = paint_leaf(small, grow_leaf(plant, HEALTHY, rng), look)
    colors = mix(colors, leaf, 0.6 * cover)

    blurred = cv2.GaussianBlur(colors.transpose(1, 2, 0), (0, 0), 2.5)
    spots = read_tile(look.cells, x, y, 0.4) - 0.1 * cloud
    lights = ramp(spots, 0.25, 0.2) * ramp(cloud, 0, 2)
    blurred += 0.3 * cv2.GaussianBlur(lights, (0, 0), 0.7)[..., None]
    size = (frame.width, frame.height)
    large = cv2.resize(blurred, size, interpolation=cv2.INTER_CUBIC)
    return np.ascontiguousarray(large.transpose(2, 0, 1))


def _paint_soil(frame: Frame, rng: Generator, plant: Plant, look: Look) -> Colors:
    """Return earth with stones."""
    x, y = frame.measure()
    smooth = read_tile(look.smooth, x, y, 0.8)
    rough = read_tile(look.rough, x, y, 2.0)
    x += 0.02 * smooth + 0.005 * rough
    y -= 0.02 * smooth - 0.005 * rough
    frequency = rng.uniform(0.5, 1.3)
    stone = ramp(read_tile(look.cells, x, y, frequency), 0.8, 0)
    crumb = ramp(read_tile(look.cells, x, y, 3.3 * frequency), 0.8, 0)
    bump = np.sqrt(stone) + 0.3 * np.sqrt(crumb)
    shade = look.light_up(0.025 / frequency * bump + 0.002 * rough, frame)
    dark, light = SOIL[rng.integers(len(SOIL))]
    tone = 0.35 * bump + 0.12 * smooth + 0.10 * rough
    return mix(dark, light, tone) * np.clip(shade, 0.2, 1.7)


def _paint_wood(frame: Frame, rng: Generator, plant: Plant, look: Look) -> Colors:
    """Return a table of wooden boards."""
    x, y = frame.measure(unit=turn(rng.uniform(0, 7)))
    position = y / np.float32(rng.uniform(0.22, 0.5))
    number = np.floor(position)
    x += 3.7 * number
    bent = y + 0.03 * read_tile(look.smooth, x, y, 0.6)
    grain = read_tile(look.rough, 0.08 * x, bent, 2.0)
    rings = np.sin(60 * bent + 3 * np.sin(5 * x))
    tone = 0.5 + 0.13 * grain + 0.07 * rings + 0.15 * np.sin(5 * number)
    gap = ramp(abs(position - number - 0.5), 0.48, 0.5)
    dark, light = WOOD[rng.integers(len(WOOD))]
    return mix(dark, light, tone) * (1 - 0.85 * gap)


def _paint_stem(frame: Frame, leaf: Leaf) -> Field:
    """Return the cover of the stem."""
    end = leaf.leaflets[-1]
    x, y = frame.measure(end.base, end.vector)
    pixels = leaf.length / abs(frame.step)
    return ramp(pixels * (0.016 - abs(y)), -0.5, 0.5) * (x < 0)


def _cast_shadow(cover: Field, frame: Frame, light: complex) -> Field:
    """Return the light that is left behind a leaf."""
    move = -0.03 * light / frame.step
    shift = np.array([[1, 0, move.real], [0, 1, move.imag]]) / 4
    size = (frame.width // 4, frame.height // 4)
    small = cv2.warpAffine(cover, shift, size, borderMode=cv2.BORDER_REPLICATE)
    blurred = cv2.GaussianBlur(small, (0, 0), 0.006 / abs(frame.step))
    return 1 - 0.6 * cv2.resize(blurred, (frame.width, frame.height))


def _light_up(frame: Frame, rng: Generator, look: Look) -> Field:
    """Return less light in the corners, and the shade of other leaves."""
    x, y = frame.measure()
    dapple = read_tile(look.smooth, x, y, 0.3)
    light = 1 - rng.uniform(0.1, 0.6) * (x * x + y * y)
    return light * (1 + rng.uniform(0, 0.4) * np.clip(2 * dapple, -1, 1))


def _develop(photo: Colors, rng: Generator, grain_rng: Generator) -> np.ndarray:
    """Return 8-bit colours, with the balance, exposure and grain of a camera."""
    warmth = rng.uniform(-0.12, 0.12)
    exposure = 1.4 * np.exp(rng.uniform(-0.35, 0.45))
    grain = grain_rng.random(photo.shape[1:], np.float32) - 0.5
    darkness = np.exp(-exposure * color(1 + warmth, 1, 1 - warmth) * photo)
    level = np.sqrt(np.maximum(1 - darkness, 0)) + 0.03 * grain
    return cv2.merge([cv2.convertScaleAbs(c, alpha=255) for c in level])
