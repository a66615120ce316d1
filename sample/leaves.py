"""Draw leaves with stems, veins and relief."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.diseases import infect
from kaggle_tfr_sample.drawing import (
    Colors,
    Field,
    Frame,
    Look,
    color,
    make_rng,
    mix,
    ramp,
    read_tile,
    turn,
)

# Dark, light and vein.
GREENS = (
    (color(0.02, 0.06, 0.01), color(0.17, 0.34, 0.05), color(0.42, 0.52, 0.16)),
    (color(0.012, 0.045, 0.015), color(0.09, 0.25, 0.07), color(0.30, 0.42, 0.19)),
    (color(0.06, 0.10, 0.01), color(0.36, 0.48, 0.05), color(0.58, 0.61, 0.20)),
)
SKY = color(0.9, 0.95, 1.0)  # which a leaf reflects
OUTLINE = 4096  # widths


@dataclass(frozen=True)
class Form:
    """How leaflets are arranged: in pairs along a stem, and one at its end.

    spacing: of pairs. spread: the angle of the first pair. taper: how much smaller that
    of the last one is. size: of a leaflet. Lengths are those of the leaf.
    """

    n_pairs: int = 0
    spacing: float = 0.0
    spread: float = 0.0
    taper: float = 1.0
    size: float = 1.0


SIMPLE = Form()
FORMS = (
    SIMPLE,
    SIMPLE,
    Form(n_pairs=1, spacing=0.03, spread=1.35, size=0.65),
    Form(n_pairs=2, spacing=0.03, spread=2.1, size=0.62),
    Form(n_pairs=3, spacing=0.26, spread=1.05, taper=0.3, size=0.46),
)


@dataclass(frozen=True)
class Plant:
    """What all leaves of a plant have in common.

    half_width: of a leaflet of length 1. base, tip: exponents that shape its ends.
    n_teeth, tooth: along each edge, and their size. n_veins, slant: on each side, and
    how much they lean. gloss: from 0. greens: dark, light and vein.
    """

    form: Form
    half_width: float
    base: float
    tip: float
    n_teeth: int
    tooth: float
    n_veins: int
    slant: float
    gloss: float
    greens: tuple[Colors, Colors, Colors]


@dataclass(frozen=True)
class Leaflet:
    """A leaflet: its place, its vector to the tip, and the bend of its midrib.

    offset: in the textures.
    """

    base: complex
    vector: complex
    bend: float
    offset: float


@dataclass(frozen=True)
class Leaf:
    """A leaf of a plant. length: of its leaflets. severity: of its disease."""

    plant: Plant
    leaflets: list[Leaflet]
    length: float
    disease: str
    severity: float


def grow_plant(number: int) -> Plant:
    """Return a plant; each number is another."""
    rng = make_rng("plant", number)
    return Plant(
        form=FORMS[rng.integers(len(FORMS))],
        half_width=rng.uniform(0.2, 0.36),
        base=rng.uniform(0.4, 0.75),
        tip=rng.uniform(0.7, 1.25),
        n_teeth=int(rng.integers(10, 30)),
        tooth=rng.choice([0, 0.05, 0.1]),
        n_veins=int(rng.integers(6, 12)),
        slant=rng.uniform(0.5, 1.2),
        gloss=rng.uniform(0.2, 1.2),
        greens=GREENS[rng.integers(len(GREENS))],
    )


def grow_leaf(plant: Plant, disease: str, rng: Generator, wind: float = 0.0) -> Leaf:
    """Return a leaf near the middle."""
    form = plant.form
    length = rng.uniform(0.85, 1.4)
    severity = rng.uniform(0, 1)
    vector = length * turn(rng.uniform(0, 7) + 0.5 * wind)
    middle = complex(*rng.uniform(-0.14, 0.14, 2))
    bend = rng.uniform(-0.25, 0.25) + wind

    leaflets = []
    start = -0.5 if form == SIMPLE else -0.5 * form.n_pairs * form.spacing - 0.12
    for pair in range(form.n_pairs + 1):
        spread = form.spread * (1 - form.taper * pair / max(1, form.n_pairs))
        sides = (-1, 1) if pair < form.n_pairs else (0,)
        for side in sides:
            angle = side * spread + rng.normal(0, 0.07) * (1 + wind)
            leaflet = Leaflet(
                base=middle + vector * (start + pair * form.spacing),
                vector=form.size * vector * turn(angle),
                bend=bend + rng.uniform(-0.12, 0.12),
                offset=rng.uniform(0, 9),
            )
            leaflets.append(leaflet)
    return Leaf(plant, leaflets, form.size * length, disease, severity)


def paint_leaf(frame: Frame, leaf: Leaf, look: Look) -> tuple[Colors, Field]:
    """Return the colours of a leaf, and its cover: 1 where it is, 0 where it is not."""
    plant = leaf.plant
    pixels = leaf.length / abs(frame.step)
    u, v, t, margin, offset = _lay_out(frame, leaf)
    x = leaf.length * u + offset
    y = leaf.length * v
    smooth = read_tile(look.smooth, x, y, 1.1)
    rough = read_tile(look.rough, x, y, 1.1)
    net = ramp(read_tile(look.cells, x, y, 2.0), 0.5, 0.9)
    ribs, to_vein = _find_ribs(plant, u, v, t, smooth, pixels)

    tone = 0.42 + 0.11 * smooth + 0.09 * rough + 0.12 * net
    dark, light, vein = plant.greens
    colors = mix(mix(dark, light, tone), vein, 0.75 * ribs)
    height = (0.13 * to_vein - 0.05 * ribs) / plant.n_veins
    height += 0.012 * smooth + 0.0012 * rough - 0.0016 * net
    height += plant.half_width * (0.10 * np.sqrt(t) - 0.14 * t * t)
    colors, height = infect(
        leaf.disease, leaf.severity, colors, height, (x, y), look
    )

    shade = look.light_up(1.2 * leaf.length * height, frame)
    np.clip(shade, 0.25, 1.6, out=shade)
    shade *= 0.7 + 0.3 * ramp(margin, 0, 0.015)
    shine = plant.gloss * np.square(np.maximum(shade - 0.95, 0))
    cover = ramp(pixels * margin, -0.6, 0.6)
    return colors * shade + SKY * shine, cover


def _lay_out(frame: Frame, leaf: Leaf) -> Field:
    """Return u, v, t, margin and offset, (5, height, width).

    u, v: places along the midrib and across it. t: |v| as a share of the half width.
    margin: how far inside of the edge. offset: in the textures.
    """
    fields = np.zeros((5, frame.height, frame.width), np.float32)
    fields[3] = -1
    outline = _draw_outline(leaf.plant)
    reach = leaf.plant.half_width + 0.1
    for leaflet in leaf.leaflets:
        middle = leaflet.base + leaflet.vector * complex(0.5, 0.2 * leaflet.bend)
        part = _find_part(frame, middle, leaf.length * np.hypot(0.5, reach))
        u, v = frame.crop(*part).measure(leaflet.base, leaflet.vector)
        v -= leaflet.bend * u * (1 - u)
        index = (OUTLINE * u).astype(np.int32)
        half_width = outline.take(index, mode="clip")
        distance = abs(v)
        margin = half_width - distance
        t = distance / np.maximum(half_width, 0.001)
        offset = np.full_like(u, leaflet.offset)
        below = fields[:, *part]
        is_visible = margin > np.minimum(below[3], 0)
        np.copyto(below, [u, v, t, margin, offset], where=is_visible)
    return fields


def _find_part(frame: Frame, middle: complex, radius: float) -> tuple[slice, slice]:
    """Return the rows and columns that contain a circle."""
    pixel = (middle - frame.origin) / frame.step
    reach = radius / abs(frame.step)
    rows = np.clip([pixel.imag - reach, pixel.imag + reach], 0, frame.height)
    columns = np.clip([pixel.real - reach, pixel.real + reach], 0, frame.width)
    return slice(*rows.astype(int)), slice(*columns.astype(int))


def _draw_outline(plant: Plant) -> Field:
    """Return half the width of a leaflet along its midrib, float32 (OUTLINE,)."""
    u = np.linspace(0, 1, OUTLINE, dtype=np.float32)
    half_width = u**plant.base * (1 - u) ** plant.tip
    half_width *= plant.half_width / half_width.max()
    tooth = plant.n_teeth * u % 1 - 0.5
    half_width *= 1 - plant.tooth * tooth * np.sin(np.pi * u)
    half_width[[0, -1]] = -0.1  # a leaflet ends
    return half_width


def _find_ribs(
    plant: Plant, u: Field, v: Field, t: Field, smooth: Field, pixels: float
) -> tuple[Field, Field]:
    """Return midrib and veins, 1 in their middle, and distances to the next vein.

    The distances are 0 on a vein, and 0.5 between two of them. pixels: a length.
    """
    distance = abs(v)
    position = u - plant.slant * distance * (1 - 0.3 * t) + 0.004 * np.sign(v)
    position = plant.n_veins * position + 0.1 * smooth
    to_vein = 0.5 - abs(position - np.floor(position) - 0.5)
    vein_width = 0.045 + 0.9 * plant.n_veins / pixels
    vein = ramp(to_vein, vein_width, 0) * (1 - 0.7 * t)
    midrib = ramp(distance / (0.016 * (1.2 - u) + 0.7 / pixels), 1, 0)
    return np.maximum(0.8 * vein, midrib), to_vein
