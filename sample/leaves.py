"""Draw leaves with stems, veins, relief and the marks of diseases."""

import cmath
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.drawing import (
    Color,
    Colors,
    Field,
    blend,
    blur,
    light_relief,
    make_rng,
    pick,
    ramp,
    read_texture,
)

# Dark, middle and vein.
GREENS = (
    "1f3317 51782c 9db15c",
    "1c331c 3c6633 87a166",
    "334317 7a922c bdc266",
    "2c4328 63804a a9b485",
    "39391c 6c6f33 ada15f",
)
# Leaflets, those behind first: places along the leaf, turns in radians, and lengths.
PAIRS = [(0.22 * pair - 0.48, 1.05 - 0.1 * pair, 0.42) for pair in range(4)]
PAIRS += [(place + 0.02, -turn, length) for place, turn, length in PAIRS]
FIVE = [(-0.1, turn, 0.8 - 0.1 * abs(turn)) for turn in (-2, 2, -1, 1, 0)]
THREE = [(-0.2, turn, 0.66) for turn in (1.35, -1.35, 0)]
ONE = [(-0.5, 0, 1)]
FORMS = (ONE, ONE, ONE, THREE, FIVE, [*PAIRS, (0.3, 0, 0.5)])
OUTLINE = 2000  # widths


@dataclass(frozen=True)
class Marks:
    """How a disease looks: spots around the places where a texture is 0.

    frequency: of the texture. size: of the spots. growth: of them with severity.
    roughness: of their outlines. halo: the colour around them. palette: of the spots.
    """

    texture: str
    frequency: float
    size: float
    growth: float
    roughness: float
    halo: Color
    palette: str


YELLOW = (0.5, 0.43, 0.07)
PALE = (0.45, 0.5, 0.4)
DARK = (0.2, 0.2, 0.05)
BARK = "2c1c14 725539 c0a884"
POWDER = "a8afa4 d4dad0 eef2ea"
TRAIL = "98956a ccd0aa e0e2c8"
SPORES = "55260f c06a1e eca53c"
DISEASES = {
    "blight": Marks("cells", 0.30, 0.28, 0.25, 0.05, YELLOW, BARK),
    "mildew": Marks("cells", 0.45, 0.15, 0.50, 0.14, PALE, POWDER),
    "miner": Marks("smooth", 0.6, 0.10, 0.10, 0.02, DARK, TRAIL),
    "rust": Marks("cells", 0.85, 0.14, 0.16, 0.04, YELLOW, SPORES),
}


class Plant:
    """What all leaves of a plant have in common; each number is another plant.

    half_width: of a leaflet of length 1; outline: at `OUTLINE` + 1 places of its
    midrib. n_veins: on each side. greens:
    a palette.
    """

    def __init__(self, number: int) -> None:
        rng = make_rng("plant", number)
        self.form = FORMS[rng.integers(len(FORMS))]
        self.half_width = rng.uniform(0.22, 0.42) / len(self.form) ** 0.25
        self.n_veins = int(rng.integers(6, 13))
        self.greens = GREENS[rng.integers(len(GREENS))]

        u = np.linspace(0, 1, OUTLINE + 1, dtype=np.float32)
        half_width = u ** rng.uniform(0.4, 0.75) * (1 - u) ** rng.uniform(0.7, 1.25)
        tooth = rng.uniform(10, 30) * u % 1 - 0.5
        half_width *= 1 - 0.13 * max(0, rng.uniform(-0.5, 1)) * tooth
        self.outline = half_width * (self.half_width / half_width.max())


@dataclass(frozen=True)
class Leaflet:
    """A leaflet: its place, its vector to the tip, the bend of its midrib.

    seed: of what is random. marks: of a disease. severity: of it, up to 1.
    """

    base: complex
    vector: complex
    bend: float
    seed: int
    marks: Marks
    severity: float


@dataclass(frozen=True)
class Canvas:
    """What leaves are painted on. light: its direction, in pixels. cover: of leaves."""

    places: Field
    light: complex
    colors: Colors
    cover: Field

    @property
    def step(self) -> complex:
        """From a pixel to the next one of its row."""
        return complex(self.places[0, 1] - self.places[0, 0])

    def paste(self, colors: Colors, cover: Field) -> None:
        """Lay an image on the canvas."""
        blend(self.colors, colors, cover)
        np.maximum(self.cover, cover, out=self.cover)


def paint_leaf(
    canvas: Canvas, plant: Plant, rng: Generator, disease: str = "", wind: float = 0
) -> None:
    """Draw a leaf. wind: how much it bends the leaf."""
    severity = rng.uniform(0.3, 1)
    vector = cmath.rect(rng.uniform(0.85, 1.5), rng.uniform(0, 7) + 0.5 * wind)
    middle = complex(*rng.uniform(-0.16, 0.16, 2))
    bend = rng.uniform(-0.25, 0.25) + wind
    _paint_stem(canvas, plant, middle + vector * plant.form[-1][0], vector)
    for place, turn, length in plant.form:
        sway = 0.2 * wind + rng.uniform(-0.1, 0.1)
        leaflet = Leaflet(
            middle + vector * place,
            vector * cmath.rect(length, turn + sway),
            bend,
            int(rng.integers(1 << 30)),
            DISEASES.get(disease),  # type: ignore[arg-type]
            severity,
        )
        _paint_leaflet(canvas, plant, leaflet)


def _paint_stem(canvas: Canvas, plant: Plant, end: complex, vector: complex) -> None:
    """Draw the stem of a leaf."""
    stem = (end - canvas.places) * (1 / vector)
    across = np.minimum(100 * np.abs(stem.imag), 1)
    cover = np.minimum((1 - across) * abs(0.01 * vector / canvas.step), 1)
    cover *= (stem.real > 0) & (stem.real < 1.5)
    canvas.paste(pick(plant.greens, 0.8 - 0.3 * across), cover)


def _paint_leaflet(canvas: Canvas, plant: Plant, leaflet: Leaflet) -> None:
    """Draw a leaflet, and its shadow on what is below."""
    canvas = _crop(canvas, leaflet)
    if min(canvas.places.shape) < 3:
        return
    rng = np.random.default_rng(leaflet.seed)
    offset = complex(*rng.uniform(0, 1, 2))
    pixels = abs(leaflet.vector / canvas.step)

    places = (canvas.places - leaflet.base) * (1 / leaflet.vector)
    smooth = read_texture("smooth", places, 1.3, offset)
    rough = read_texture("rough", places, 1.1, offset)
    u = np.clip(places.real, 0, 1)
    v = places.imag - leaflet.bend * u * (1 - u) + 0.008 * smooth
    left, right = rng.uniform(1, 1.5, 2)
    v *= np.where(v > 0, np.float32(left), np.float32(right))  # halves are folded
    margin = plant.outline[(OUTLINE * u).astype(np.int32)] - np.abs(v)

    ribs, to_vein = _find_ribs(plant, u, v, pixels)
    t = np.abs(v) * (1 / plant.half_width)
    tone = 0.46 + 0.07 * smooth + 0.05 * rough + 0.42 * ribs - 0.05 * t
    colors = pick(plant.greens, tone)
    height = (0.019 * to_vein - 0.007 * ribs) * (7 / plant.n_veins)
    height += plant.half_width * (0.05 * np.sqrt(t) - 0.18 * t * t)
    height += 0.012 * smooth + 0.001 * rough
    if leaflet.marks:
        _draw_marks(leaflet, places, colors, height)

    shade = 0.92 + light_relief(1.3 * abs(leaflet.vector) * height, canvas.light)
    shade = np.clip(shade, 0.25, 1.6) * (0.8 + 0.2 * ramp(margin, 0, 0.012))
    colors *= shade
    colors += 0.6 * np.square(np.maximum(shade - 0.95, 0))
    cover = np.clip(0.8 * pixels * margin + 0.5, 0, 1)
    if len(plant.form) > 1:
        canvas.colors[:] *= 1 - 0.6 * blur(cover, 0.015 * pixels) * canvas.cover
    canvas.paste(colors, cover)


def _crop(canvas: Canvas, leaflet: Leaflet) -> Canvas:
    """Return the part of a canvas that may contain a leaflet."""
    middle = (leaflet.base - canvas.places[0, 0] + 0.5 * leaflet.vector) / canvas.step
    reach = 0.6 * abs(leaflet.vector / canvas.step)
    center = np.array([middle.imag, middle.real])
    top, left = np.maximum(center - reach, 0).astype(int)
    bottom, right = np.maximum(center + reach, 0).astype(int)
    part = np.s_[top:bottom, left:right]
    colors = canvas.colors[:, *part]
    return Canvas(canvas.places[part], canvas.light, colors, canvas.cover[part])


def _find_ribs(plant: Plant, u: Field, v: Field, pixels: float) -> tuple[Field, Field]:
    """Return midrib and veins, 1 in their middle, and distances to the next vein.

    The distances are 0 on a vein, and 0.5 between two. pixels: the leaflet's length.
    """
    distance = np.abs(v)
    t = distance * (1 / plant.half_width)
    position = plant.n_veins * (u - 0.85 * distance * (1 - 0.3 * t))
    position += 0.45 * (v > 0)
    to_vein = np.abs(position - np.rint(position))
    vein = ramp(-to_vein, -0.045 - 0.9 * plant.n_veins / pixels, 0)
    midrib = np.maximum(1 - distance / (0.016 * (1.2 - u) + 0.7 / pixels), 0)
    return np.maximum(0.8 * vein * ramp(-t, -1.05, -0.2), midrib), to_vein


def _draw_marks(leaflet: Leaflet, places: Field, colors: Colors, height: Field) -> None:
    """Draw the marks of a disease."""
    marks = leaflet.marks
    places = abs(leaflet.vector) * places + leaflet.seed % 97
    rough = read_texture("rough", places, 2)
    spots = marks.size + marks.growth * leaflet.severity + marks.roughness * rough
    spots -= np.abs(read_texture(marks.texture, places, marks.frequency))
    blend(colors, marks.halo, 0.8 * ramp(spots, -0.25, 0))
    spot = ramp(spots, 0, 20 * marks.roughness**2)
    tone = 0.2 + 1.3 * spots + 0.12 * rough + 0.13 * np.cos(60 * spots)
    blend(colors, pick(marks.palette, tone), 0.95 * spot)
    height += 0.002 * spot * (1 + 0.5 * rough)
