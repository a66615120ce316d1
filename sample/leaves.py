"""Draw leaves with stems, veins and relief."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.diseases import infect
from kaggle_tfr_sample.drawing import (
    Colors,
    Field,
    Look,
    Places,
    blend,
    color,
    find_step,
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
OUTLINE = 4096  # widths


@dataclass(frozen=True)
class Form:
    """How leaflets are arranged: in pairs along a stem, and one at its end.

    start: of the first pair. spacing: of pairs. spread: the angle of the first pair.
    taper: how much smaller that of the last one is. size: of a leaflet. Lengths are
    those of the leaf.
    """

    n_pairs: int
    start: float
    spacing: float
    spread: float
    taper: float
    size: float


SIMPLE = Form(n_pairs=0, start=-0.5, spacing=0, spread=0, taper=0, size=1)
TERNATE = Form(n_pairs=1, start=-0.15, spacing=0.03, spread=1.35, taper=1, size=0.65)
PALMATE = Form(n_pairs=2, start=-0.15, spacing=0.03, spread=2.1, taper=0.5, size=0.62)
PINNATE = Form(n_pairs=3, start=-0.5, spacing=0.26, spread=1.05, taper=0.1, size=0.46)
FORMS = (SIMPLE, SIMPLE, TERNATE, PALMATE, PINNATE)


@dataclass(frozen=True)
class Plant:
    """What all leaves of a plant have in common.

    half_width: of a leaflet of length 1. tip: an exponent, larger for a sharper one.
    n_teeth, tooth: along each edge, and their size. n_veins: on each side.
    gloss: from 0. greens: dark, light and vein.
    """

    form: Form
    half_width: float
    tip: float
    n_teeth: int
    tooth: float
    n_veins: int
    gloss: float
    greens: tuple[Colors, Colors, Colors]


@dataclass(frozen=True)
class Leaf:
    """A leaf of a plant.

    leaflets: base, and vector to the tip. bend: of their midribs. length: of each.
    """

    plant: Plant
    leaflets: list[tuple[complex, complex]]
    bend: float
    length: float


def grow_plant(number: int) -> Plant:
    """Return a plant; each number is another."""
    rng = make_rng("plant", number)
    return Plant(
        form=FORMS[rng.integers(len(FORMS))],
        half_width=rng.uniform(0.2, 0.36),
        tip=rng.uniform(0.7, 1.25),
        n_teeth=int(rng.integers(10, 30)),
        tooth=rng.uniform(0, 0.1),
        n_veins=int(rng.integers(6, 12)),
        gloss=rng.uniform(0.2, 1.2),
        greens=GREENS[rng.integers(len(GREENS))],
    )


def grow_leaf(plant: Plant, rng: Generator, wind: float = 0.0) -> Leaf:
    """Return a leaf near the middle."""
    form = plant.form
    length = rng.uniform(0.85, 1.4)
    vector = length * turn(rng.uniform(0, 7) + 0.5 * wind)
    base = complex(*rng.uniform(-0.14, 0.14, 2)) + form.start * vector
    bend = rng.uniform(-0.25, 0.25) + wind

    leaflets = []
    for pair in range(form.n_pairs):
        for side in (-1, 1):
            angle = side * form.spread * (1 - form.taper * pair)
            angle += rng.normal(0, 0.07)
            leaflets.append((base, form.size * vector * turn(angle)))
        base += form.spacing * vector
    leaflets.append((base, form.size * vector))
    return Leaf(plant, leaflets, bend, form.size * length)


def paint_leaf(
    places: Places, leaf: Leaf, disease: str, look: Look
) -> tuple[Colors, Field]:
    """Return the colours of a leaf, and its cover: 1 where it is, 0 where it is not."""
    plant = leaf.plant
    step = find_step(places)
    pixels = leaf.length / abs(step)
    on_leaflet, margin = _lay_out(places, leaf)
    on_leaf = leaf.length * on_leaflet
    smooth = read_tile(look.smooth, on_leaf, 1.1)
    rough = read_tile(look.rough, on_leaf, 1.6)

    distance = abs(on_leaflet.imag)
    t = distance / np.maximum(margin + distance, distance + 0.001)
    lean = 0.8 * distance * (1 - 0.3 * t)
    position = plant.n_veins * (on_leaflet.real - lean) + 0.1 * smooth
    to_vein = 0.5 - abs(position - np.floor(position) - 0.5)
    vein = ramp(to_vein, 0.045 + 0.9 * plant.n_veins / pixels, 0) * (0.8 - 0.6 * t)
    ribs = np.maximum(vein, ramp(distance, 0.012 + 0.7 / pixels, 0))

    dark, light, pale = plant.greens
    colors = mix(dark, light, 0.46 + 0.11 * smooth + 0.11 * rough)
    blend(colors, pale, 0.75 * ribs)
    height = (0.13 * to_vein - 0.05 * ribs) / plant.n_veins
    height += 0.012 * smooth + 0.0015 * rough
    height += plant.half_width * (0.10 * np.sqrt(t) - 0.14 * t * t)
    infect(disease, colors, height, on_leaf, look)

    shade = np.clip(look.light_up(1.2 * leaf.length * height, step), 0.25, 1.6)
    shade *= 0.7 + 0.3 * ramp(margin, 0, 0.015)
    shine = plant.gloss * np.square(np.maximum(shade - 0.95, 0))
    colors *= shade
    colors += shine
    return colors, ramp(pixels * margin, -0.6, 0.6)


def _lay_out(places: Places, leaf: Leaf) -> tuple[Places, Field]:
    """Return places on leaflets, and how far inside of an edge they are.

    A place on a leaflet is 0 at its base and 1 at its tip, and 3 more on the next one.
    """
    outline = _draw_outline(leaf.plant)
    base, vector = leaf.leaflets[-1]
    on_leaflet = (places - base) * (1 / vector)
    stem = 0.016 - abs(on_leaflet.imag)
    margin = np.where(on_leaflet.real < 0, stem, np.float32(-1))
    for number, (base, vector) in enumerate(leaf.leaflets):
        z = places - base
        z *= 1 / vector
        u = z.real
        v = z.imag - leaf.bend * u * (1 - u)
        index = (OUTLINE * u).astype(np.int32)
        inside = outline.take(index, mode="clip") - abs(v)
        is_visible = inside > np.minimum(margin, 0)
        np.copyto(on_leaflet.real, u + 3 * number, where=is_visible)
        np.copyto(on_leaflet.imag, v, where=is_visible)
        np.copyto(margin, inside, where=is_visible)
    return on_leaflet, margin


def _draw_outline(plant: Plant) -> Field:
    """Return half the width of a leaflet along its midrib, float32 (OUTLINE,)."""
    u = np.linspace(0, 1, OUTLINE, dtype=np.float32)
    half_width = u**0.6 * (1 - u) ** plant.tip
    half_width *= plant.half_width / half_width.max()
    tooth = plant.n_teeth * u % 1 - 0.5
    half_width *= 1 - plant.tooth * tooth * np.sin(np.pi * u)
    half_width[[0, -1]] = -0.1  # a leaflet ends
    return half_width
