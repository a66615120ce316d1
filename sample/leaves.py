"""Draw leaves with stems, veins and relief."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import cv2
import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.diseases import HEALTHY, Blade, Disease, infect
from kaggle_tfr_sample.drawing import (
    Colors,
    Field,
    Frame,
    Look,
    Palette,
    blend,
    blur,
    light_relief,
    look_up,
    make_rng,
    pick,
    ramp,
    read_tile,
)

# Dark, middle and vein.
GREENS = (
    ((0.015, 0.04, 0.008), (0.10, 0.22, 0.03), (0.38, 0.48, 0.13)),
    ((0.012, 0.04, 0.012), (0.055, 0.16, 0.04), (0.28, 0.40, 0.16)),
    ((0.04, 0.07, 0.008), (0.23, 0.33, 0.03), (0.55, 0.58, 0.16)),
    ((0.03, 0.07, 0.025), (0.15, 0.25, 0.085), (0.44, 0.50, 0.27)),
    ((0.05, 0.05, 0.012), (0.18, 0.19, 0.04), (0.46, 0.40, 0.14)),
)
# Form: leaflets in proportion to those of a leaf that has one.
FORMS = {"one": 1.0, "three": 0.9, "five": 0.5, "pairs": 0.8}
COMMON_FORMS = ("one", "one", "one", "three", "five", "pairs")  # half of them: one
SKY = (0.9, 0.95, 1.0)  # which a leaf reflects
OUTLINE = 1024  # widths


@dataclass(frozen=True)
class Plant:
    """What all leaves of a plant have in common.

    form: of `FORMS`. half_width: of a leaflet of length 1. base, tip: exponents that
    shape its ends. n_teeth, tooth: along each edge, and their size. n_veins, slant: on
    each side, and how much they lean. gloss: from 0.
    """

    form: str
    half_width: float
    base: float
    tip: float
    n_teeth: int
    tooth: float
    n_veins: int
    slant: float
    gloss: float
    greens: Palette


@dataclass(frozen=True)
class Leaflet:
    """A leaflet: its place, its vector to the tip, and its shape.

    bend: of the midrib. folds: how much of the width of each half is visible.
    """

    base: complex
    vector: complex
    bend: float
    folds: tuple[float, float]
    seed: int


@dataclass(frozen=True)
class Stem:
    """The stem of a leaf."""

    start: complex
    end: complex
    thickness: float


@dataclass
class Layer:
    """An image of leaves. cover: 1 where a leaf is, 0 where none is."""

    frame: Frame
    colors: Colors
    cover: Field

    @classmethod
    def make(cls, frame: Frame) -> Self:
        """Return an empty layer."""
        size = (frame.height, frame.width)
        return cls(
            frame,
            colors=np.zeros((3, *size), np.float32),
            cover=np.zeros(size, np.float32),
        )


def grow_plant(number: int) -> Plant:
    """Return a plant; each number is another."""
    rng = make_rng("plant", number)
    form = str(rng.choice(COMMON_FORMS))
    greens = GREENS[rng.integers(len(GREENS))]
    return Plant(
        form=form,
        half_width=FORMS[form] * rng.uniform(0.22, 0.42),
        base=rng.uniform(0.4, 0.75),
        tip=rng.uniform(0.7, 1.25),
        n_teeth=int(rng.integers(10, 30)),
        tooth=float(rng.choice([0, 0.04, 0.09])) * rng.uniform(0.7, 1.2),
        n_veins=int(rng.integers(6, 13)),
        slant=rng.uniform(0.5, 1.2),
        gloss=rng.uniform(0.0, 0.5),
        greens=(rng.uniform(0.85, 1.15, 3) * greens).tolist(),
    )


def grow_leaf(
    plant: Plant, rng: Generator, wind: float = 0.0
) -> tuple[list[Leaflet], Stem]:
    """Return the leaflets of a leaf, those behind first, and its stem."""
    length = rng.uniform(0.85, 1.5)
    direction = np.exp(1j * (rng.uniform(0, 2 * np.pi) + 0.5 * wind))
    middle = complex(*rng.uniform(-0.16, 0.16, 2))
    bend = rng.uniform(-0.25, 0.25) + wind
    vector = length * direction

    leaflets = []
    for place, turn, share in _place_leaflets(plant.form, rng):
        sway = wind * rng.uniform(-0.3, 0.3)
        leaflet = Leaflet(
            base=middle + vector * place,
            vector=vector * share * np.exp(1j * (turn + sway)),
            bend=bend + rng.uniform(-0.12, 0.12),
            folds=(rng.uniform(0.65, 1), rng.uniform(0.65, 1)),
            seed=int(rng.integers(1 << 30)),
        )
        leaflets.append(leaflet)

    end = leaflets[-1].base
    start = end - vector * (1.5 if plant.form == "pairs" else 1.2)
    return leaflets, Stem(start, end, thickness=0.02 * length)


def _place_leaflets(
    form: str, rng: Generator
) -> Iterator[tuple[complex, float, float]]:
    """Yield place, turn in radians and length of leaflets, in lengths of the leaf."""
    if form == "one":
        yield -0.5, 0, 1
    elif form == "three":
        for turn in (1.35, -1.35, 0):
            place = -0.2 + 0.03 * np.exp(1j * turn)
            yield place, turn + rng.normal(0, 0.1), rng.uniform(0.6, 0.72)
    elif form == "five":
        spread = rng.uniform(0.75, 0.95)
        for turn in (-2.4, 2.4, -1.2, 1.2, 0):
            yield -0.1, spread * turn + rng.normal(0, 0.06), 0.8 - 0.08 * abs(turn)
    else:
        for pair in range(4):
            for side in (1, -1):
                turn = side * (1.05 - 0.1 * pair) + rng.normal(0, 0.08)
                yield -0.48 + 0.22 * pair + 0.02 * side, turn, 0.42
        yield 0.3, 0, 0.5


def paint_stem(layer: Layer, plant: Plant, stem: Stem, look: Look) -> None:
    """Draw a stem."""
    ends = np.array([stem.start, stem.end])
    part = _find_part(layer.frame, ends, margin=stem.thickness)
    if part is None:
        return
    frame = layer.frame.crop(*part)
    start, end = (_round(16 * pixel) for pixel in frame.find_pixels(ends))
    thickness = max(1, round(stem.thickness / frame.pixel))
    mask = np.zeros((frame.height, frame.width), np.uint8)
    cv2.line(mask, start, end, 255, thickness, cv2.LINE_AA, shift=4)
    cover = mask.astype(np.float32) / 255

    direction = stem.end - stem.start
    direction /= abs(direction)
    _, y = frame.measure(stem.end, direction)
    across = np.clip(y * (2 / stem.thickness), -1, 1)
    light = float((look.light / direction).imag)
    shade = 0.8 + 0.5 * light * across - 0.3 * across * across
    color = 0.6 * np.array(plant.greens[1]) + 0.5 * np.array(plant.greens[2])
    colors = [float(channel) * shade for channel in color]
    blend(layer.colors[:, *part], np.stack(colors), cover)
    np.maximum(layer.cover[part], cover, out=layer.cover[part])


def paint_leaflet(
    layer: Layer,
    plant: Plant,
    leaflet: Leaflet,
    look: Look,
    disease: Disease = HEALTHY,
) -> None:
    """Draw a leaflet."""
    reach = 1.15 * plant.half_width + 0.3 * abs(leaflet.bend)
    corners = [complex(u, v) for u in (-0.02, 1.02) for v in (-reach, reach)]
    places = leaflet.base + leaflet.vector * np.array(corners)
    part = _find_part(layer.frame, places)
    if part is None:
        return
    frame = layer.frame.crop(*part)
    rng = np.random.default_rng(leaflet.seed)
    pixels = float(abs(leaflet.vector)) / frame.pixel

    blade, margin = _lay_out(frame, plant, leaflet, look, rng)
    ribs = _draw_blade(blade, plant, pixels)
    infect(blade, disease, rng)
    shade = 0.92 + light_relief(
        1.3 * float(abs(leaflet.vector)) * blade.height, frame, look.light
    )
    np.clip(shade, 0.25, 1.6, out=shade)
    shade *= 0.8 + 0.2 * ramp(margin, 0, 0.012)
    shine = np.square(np.maximum(shade - 0.95, 0)) * (1 - 0.6 * ribs)
    blade.colors[:] *= shade
    for number, reflected in enumerate(SKY):
        blade.colors[number] += 2.5 * plant.gloss * reflected * shine

    cover = np.clip(0.8 * pixels * margin + 0.5, 0, 1)
    cover *= (blade.u > 0) & (blade.u < 1)
    _paste(layer, part, blade.colors, cover, 0.015 * pixels)


def _round(pixel: complex) -> tuple[int, int]:
    return round(pixel.real), round(pixel.imag)


def _find_part(
    frame: Frame, places: np.ndarray, margin: float = 0
) -> tuple[slice, slice] | None:
    """Return the rows and columns that contain places, None if they are outside."""
    pixels = frame.find_pixels(places)
    border = margin / frame.pixel
    top = max(0, int(pixels.imag.min() - border))
    bottom = min(frame.height, int(pixels.imag.max() + border) + 2)
    left = max(0, int(pixels.real.min() - border))
    right = min(frame.width, int(pixels.real.max() + border) + 2)
    if min(bottom - top, right - left) < 3:
        return None
    return slice(top, bottom), slice(left, right)


def _lay_out(
    frame: Frame, plant: Plant, leaflet: Leaflet, look: Look, rng: Generator
) -> tuple[Blade, Field]:
    """Return a blade without colours, and how far each pixel is inside of its edge."""
    textures = look.textures
    offset = rng.uniform(0, 1)
    u, v = frame.measure(leaflet.base, leaflet.vector)
    smooth = read_tile(textures.smooth, u, v, 1.3, offset)
    rough = read_tile(textures.rough, u, v, 1.1, offset)

    v -= float(leaflet.bend) * u * (1 - u)
    v += 0.008 * smooth
    left, right = leaflet.folds
    v *= np.where(v > 0, np.float32(1 / left), np.float32(1 / right))
    half_width = look_up(_draw_outline(plant, rng), u, np.zeros_like(u))
    distance = np.abs(v)
    blade = Blade(
        u=u,
        v=v,
        t=distance / np.maximum(half_width, 1e-3),
        smooth=smooth,
        rough=rough,
        colors=np.empty((3, *u.shape), np.float32),
        height=np.empty_like(u),
        half_width=plant.half_width,
        length=float(abs(leaflet.vector)),
        textures=textures,
        offset=offset,
    )
    return blade, half_width - distance


def _draw_outline(plant: Plant, rng: Generator) -> Field:
    """Return half the width of a leaflet along its midrib, float32 (1, OUTLINE)."""
    u = np.linspace(0, 1, OUTLINE)
    half_width = u**plant.base * (1 - u) ** plant.tip
    half_width *= plant.half_width / half_width.max()
    wobble = 0.25 * np.sin(9 * u + rng.uniform(0, 6))
    tooth = (plant.n_teeth * u + wobble) % 1 - 0.5
    fade = np.minimum(1, 6 * u) * np.minimum(1, 6 * (1 - u))
    half_width *= 1 - plant.tooth * tooth * fade
    bulges = rng.normal(0, 0.04, 9)
    half_width *= 1 + np.interp(u, np.linspace(0, 1, len(bulges)), bulges)
    return half_width.astype(np.float32)[None]


def _draw_blade(blade: Blade, plant: Plant, pixels: float) -> Field:
    """Draw a healthy blade; return where its ribs are. pixels: its length."""
    ribs, to_vein = _find_ribs(blade, plant, pixels)
    cells = read_tile(blade.textures.cells, blade.u, blade.v, 2.2, blade.offset)
    net = ramp(cells, 0.55, 0.9)

    tone = 0.46 + 0.07 * blade.smooth + 0.05 * blade.rough
    tone += 0.42 * ribs + 0.09 * net - 0.05 * blade.t
    blade.colors[:] = pick(plant.greens, tone)

    distance = np.abs(blade.v)
    height = (0.019 * to_vein - 0.007 * ribs) * (7 / plant.n_veins)
    height += 0.05 * np.sqrt(plant.half_width * distance)
    height -= 0.18 / plant.half_width * distance * distance
    height += 0.012 * blade.smooth + 0.0010 * blade.rough - 0.0016 * net
    blade.height[:] = height
    return ribs


def _find_ribs(blade: Blade, plant: Plant, pixels: float) -> tuple[Field, Field]:
    """Return midrib and veins, 1 in their middle, and distances to the next vein.

    The distances are 0 on a vein, and 0.5 between two of them.
    """
    u = blade.u
    distance = np.abs(blade.v)
    lean = plant.slant * distance * (1 - 0.3 / plant.half_width * distance)
    position = plant.n_veins * (u - lean) + 0.1 * blade.smooth
    position += np.where(blade.v > 0, np.float32(0), np.float32(0.45))
    to_vein = 0.5 - np.abs(position - np.floor(position) - 0.5)
    vein_width = 0.045 + 0.9 * plant.n_veins / pixels
    vein = np.maximum(1 - to_vein * (1 / vein_width), 0)
    vein *= ramp(-blade.t, -1.05, -0.2)
    midrib = np.maximum(1 - distance / (0.016 * (1.2 - u) + 0.7 / pixels), 0)
    return np.maximum(0.8 * vein, midrib), to_vein


def _paste(
    layer: Layer,
    part: tuple[slice, slice],
    colors: Colors,
    cover: Field,
    shadow_radius: float,
) -> None:
    """Lay a leaflet on a layer, with its shadow on what is below."""
    below = layer.cover[part]
    colors_below = layer.colors[:, *part]
    if below.max() > 0.1:
        shadow = blur(cover, max(0.8, shadow_radius))
        colors_below *= 1 - 0.6 * shadow * below
    blend(colors_below, colors, cover)
    np.maximum(below, cover, out=below)
