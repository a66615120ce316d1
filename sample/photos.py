"""Draw photographs of leaves: backdrop, leaf, shadow, light and grain."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.diseases import Disease
from kaggle_tfr_sample.drawing import (
    Colors,
    Field,
    Frame,
    Look,
    Palette,
    blend,
    blur,
    light_relief,
    make_rng,
    make_textures,
    pick,
    ramp,
    read_tile,
)
from kaggle_tfr_sample.leaves import (
    Layer,
    Leaflet,
    Plant,
    grow_leaf,
    grow_plant,
    paint_leaflet,
    paint_stem,
)

FOLIAGE = (
    ((0.008, 0.02, 0.008), (0.04, 0.09, 0.03), (0.14, 0.22, 0.07)),
    ((0.02, 0.025, 0.01), (0.12, 0.14, 0.04), (0.38, 0.38, 0.16)),
    ((0.02, 0.03, 0.04), (0.09, 0.13, 0.12), (0.34, 0.42, 0.42)),
    ((0.05, 0.03, 0.02), (0.16, 0.12, 0.06), (0.42, 0.34, 0.20)),
    ((0.25, 0.28, 0.25), (0.50, 0.56, 0.48), (0.80, 0.84, 0.78)),
)
SOIL = (
    ((0.02, 0.014, 0.01), (0.12, 0.08, 0.055), (0.30, 0.22, 0.16)),
    ((0.03, 0.015, 0.01), (0.20, 0.10, 0.055), (0.40, 0.26, 0.17)),
    ((0.03, 0.03, 0.03), (0.18, 0.17, 0.16), (0.42, 0.40, 0.37)),
)
PAPER = (
    ((0.45, 0.45, 0.45), (0.60, 0.60, 0.59), (0.74, 0.74, 0.73)),
    ((0.05, 0.06, 0.08), (0.11, 0.13, 0.16), (0.20, 0.23, 0.28)),
    ((0.30, 0.22, 0.15), (0.42, 0.33, 0.23), (0.56, 0.47, 0.35)),
    ((0.006, 0.006, 0.008), (0.015, 0.015, 0.018), (0.05, 0.05, 0.055)),
    ((0.12, 0.18, 0.26), (0.22, 0.32, 0.43), (0.40, 0.52, 0.62)),
)
BOARDS = (
    ((0.05, 0.025, 0.012), (0.22, 0.12, 0.06), (0.46, 0.30, 0.17)),
    ((0.06, 0.055, 0.05), (0.24, 0.22, 0.20), (0.48, 0.45, 0.41)),
    ((0.02, 0.012, 0.008), (0.08, 0.045, 0.03), (0.20, 0.12, 0.08)),
)
BLURRED = 120  # pixels of the short side of a backdrop that is out of focus


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

    disease: see `Disease`. seed: of all that is random.
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
    grain_rng = make_rng("grain", subject.seed, view.number)
    angle = rng.uniform(0, 2 * np.pi)
    light = np.exp(1j * angle) * rng.uniform(0.6, 1.1)
    look = Look(light, make_textures(rng))
    frame = _frame_view(view, height, width)
    photo = _paint_backdrop(frame, rng, plant, look)

    layer = Layer.make(frame)
    disease = Disease(subject.disease, leaf_rng.uniform(0.3, 1))
    leaflets, stem = grow_leaf(plant, leaf_rng, view.wind)
    paint_stem(layer, plant, stem, look)
    for leaflet in leaflets:
        paint_leaflet(layer, plant, leaflet, look, disease)
    _cast_shadow(photo, layer, light, rng)
    blend(photo, layer.colors, layer.cover)
    _light_up(photo, frame, rng, look)
    return _develop(photo, rng, grain_rng)


def _frame_view(view: View, height: int, width: int) -> Frame:
    """Return what the camera sees."""
    direction = np.exp(1j * view.angle)
    step = direction / (view.zoom * min(height, width))
    middle = complex(width - 1, height - 1) / 2
    return Frame(height, width, view.shift - step * middle, step)


def _paint_backdrop(frame: Frame, rng: Generator, plant: Plant, look: Look) -> Colors:
    """Return other leaves in half of all photographs, else a surface."""
    surfaces = (_paint_soil, _paint_paper, _paint_boards)
    number = rng.integers(2 * len(surfaces)) - len(surfaces)
    if number < 0:
        return _paint_foliage(frame, rng, plant, look)
    return surfaces[number](frame, rng, look)


def _paint_foliage(frame: Frame, rng: Generator, plant: Plant, look: Look) -> Colors:
    """Return other leaves of the plant, out of focus, and spots of light."""
    small = frame.shrink(BLURRED)
    layer = Layer.make(small)
    palette = _choose(FOLIAGE, rng) * rng.uniform(0.5, 1.2)
    colors = _paint_gradient(small, rng, palette, look)
    layer.colors[:] = colors
    for _ in range(rng.integers(2, 6)):
        turn = np.exp(1j * rng.uniform(0, 7))
        leaflet = Leaflet(
            base=complex(*rng.uniform(-0.8, 0.8, 2)),
            vector=rng.uniform(0.4, 1.1) * turn,
            bend=rng.uniform(-0.4, 0.4),
            folds=(rng.uniform(0.5, 1), rng.uniform(0.5, 1)),
            seed=int(rng.integers(1 << 30)),
        )
        paint_leaflet(layer, plant, leaflet, look)
    nearness = rng.uniform(0.3, 0.75)
    colors += nearness * (layer.colors - colors)

    radius = rng.uniform(0.01, 0.035) / small.pixel
    lights = _paint_lights(small, rng, 0.4 * radius)
    size = (frame.width, frame.height)
    channels = []
    for channel in colors:
        blurred = cv2.GaussianBlur(channel, (0, 0), radius)
        blurred += lights * (0.3 + 1.2 * blurred.max() - blurred)
        large = cv2.resize(blurred, size, interpolation=cv2.INTER_CUBIC)
        channels.append(large)
    return np.stack(channels)


def _paint_lights(frame: Frame, rng: Generator, radius: float) -> Field:
    """Return how bright spots of light are that are out of focus."""
    lights = np.zeros((frame.height, frame.width), np.uint8)
    for _ in range(rng.integers(10)):
        [middle] = frame.find_pixels(rng.uniform(-0.9, 0.9, (1, 2)) @ [1, 1j])
        center = (round(16 * middle.real), round(16 * middle.imag))
        size = round(16 * rng.uniform(0.02, 0.07) / frame.pixel)
        brightness = rng.uniform(20, 90)
        spot = np.zeros_like(lights)
        cv2.circle(spot, center, size, brightness, -1, cv2.LINE_AA, shift=4)
        lights += spot
    return cv2.GaussianBlur(lights.astype(np.float32) / 255, (0, 0), max(1, radius))


def _paint_soil(frame: Frame, rng: Generator, look: Look) -> Colors:
    """Return earth with stones."""
    textures = look.textures
    x, y = frame.measure()
    smooth = read_tile(textures.smooth, x, y, 0.8, 0.1)
    rough = read_tile(textures.rough, x, y, 2.0, 0.6)
    x += 0.015 * smooth + 0.005 * rough
    y -= 0.015 * smooth - 0.005 * rough
    frequency = rng.uniform(0.5, 1.3)
    stones = read_tile(textures.cells, x, y, frequency)
    crumbs = read_tile(textures.cells, x, y, 3.3 * frequency, 0.4)
    stone = np.sqrt(np.maximum(1 - 2.2 * stones * stones, 0))
    crumb = np.sqrt(np.maximum(1 - 2.2 * crumbs * crumbs, 0))

    height = (0.030 * stone + 0.008 * crumb) / frequency + 0.0022 * rough
    shade = 0.95 + light_relief(height, frame, 0.9 * look.light)
    np.clip(shade, 0.2, 1.7, out=shade)
    shade *= 0.3 + 0.7 * ramp(stone + 0.6 * crumb, 0.0, 0.8)
    tone = 0.42 + 0.12 * smooth + 0.10 * rough + 0.15 * stone
    return pick(_choose(SOIL, rng), tone) * shade


def _paint_paper(frame: Frame, rng: Generator, look: Look) -> Colors:
    """Return a sheet of paper."""
    textures = look.textures
    colors = _paint_gradient(frame, rng, _choose(PAPER, rng), look)
    x, y = frame.measure()
    height = 0.004 * read_tile(textures.smooth, x, y, 1.0)
    height += 0.0005 * read_tile(textures.rough, x, y, 9.0)
    colors *= 1 + light_relief(height, frame, 0.6 * look.light)
    return colors


def _paint_boards(frame: Frame, rng: Generator, look: Look) -> Colors:
    """Return a table of wooden boards."""
    textures = look.textures
    x, y = frame.measure(unit=np.exp(1j * rng.uniform(0, 7)))
    number, position = np.divmod(y * float(1 / rng.uniform(0.22, 0.5)), 1)
    x += 3.7 * np.sin(12.9 * number)
    bent = y + 0.03 * read_tile(textures.smooth, x, y, 0.6)
    grain = read_tile(textures.rough, 0.08 * x, bent, 2.0)
    waves = read_tile(textures.smooth, 0.3 * x, bent, 0.8)
    rings = np.cos(60 * bent + 4 * waves)

    tone = 0.5 + 0.13 * grain + 0.07 * rings + 0.12 * np.sin(5.1 * number)
    gap = ramp(np.abs(position - 0.5), 0.482, 0.497)
    return pick(_choose(BOARDS, rng), tone) * (1 - 0.85 * gap)


def _choose(palettes: tuple[Palette, ...], rng: Generator) -> np.ndarray:
    return np.array(palettes[rng.integers(len(palettes))])


def _paint_gradient(
    frame: Frame, rng: Generator, palette: np.ndarray, look: Look
) -> Colors:
    """Return colours that change slowly."""
    x, y = frame.measure(unit=np.exp(1j * rng.uniform(0, 7)))
    cloud = read_tile(look.textures.smooth, x, y, 0.3, rng.uniform(0, 1))
    return pick(palette, 0.5 + 0.4 * x + 0.17 * cloud)


def _cast_shadow(photo: Colors, layer: Layer, light: complex, rng: Generator) -> None:
    """Darken the backdrop behind the leaf."""
    step = layer.frame.step
    depth = rng.uniform(0.01, 0.05)
    shadow = blur(layer.cover, (0.02 + 0.5 * depth) / abs(step))
    move = -light / abs(light) * depth / step
    shift = np.array([[1, 0, move.real], [0, 1, move.imag]])
    size = (layer.frame.width, layer.frame.height)
    shadow = cv2.warpAffine(shadow, shift, size, borderMode=cv2.BORDER_REPLICATE)
    photo *= 1 - rng.uniform(0.45, 0.75) * shadow


def _light_up(photo: Colors, frame: Frame, rng: Generator, look: Look) -> None:
    """Darken the corners, and in half of all photographs the shade of other leaves."""
    x, y = frame.measure()
    light = 1 - rng.uniform(0.1, 0.6) * (x * x + y * y)
    if rng.random() < 0.5:
        dapple = read_tile(look.textures.smooth, x, y, 0.3, 0.77)
        light *= 1 + rng.uniform(0.1, 0.45) * np.clip(2 * dapple, -1, 1)
    photo *= light


def _develop(photo: Colors, rng: Generator, grain_rng: Generator) -> np.ndarray:
    """Return 8-bit colours, with the balance, exposure and grain of a camera."""
    warmth = rng.uniform(-0.12, 0.12)
    exposure = 1.3 * np.exp(rng.uniform(-0.35, 0.45))
    grain = grain_rng.random(photo.shape[1:], np.float32) - 0.5
    grain *= rng.uniform(0.01, 0.04)
    channels = []
    for channel, gain in zip(photo, (1 + warmth, 1, 1 - warmth), strict=True):
        darkness = cv2.exp(np.minimum(-float(exposure * gain) * channel, 0))
        level = cv2.sqrt(1 - darkness) + grain
        channels.append(cv2.convertScaleAbs(np.maximum(level, 0), alpha=255))
    return cv2.merge(channels)
