"""Draw photographs of leaves: backdrop, leaf, shadow, light and grain."""

import cmath
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.drawing import (
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
from kaggle_tfr_sample.leaves import Canvas, Plant, paint_leaf

FOLIAGE = (
    "172417 334c2c 5f7843",
    "24281a 585f33 9d9d66",
    "242c33 4c5c58 95a5a5",
    "392c24 66583e a59572",
    "808780 b4bfb1 e4eae1",
)
SOIL = ("241e1a 58483c 8c7866", "2c1f1a 72513c a18269", "2c2c2c 6c6966 a5a19b")
PAPER = (
    "ababab c6c6c4 dbdbda",
    "393e48 555c66 727a87",
    "8c7863 a5927a bfaf97",
    "141417 1f1f22 39393c",
    "586c82 7890a7 a1b8c9",
)
BOARDS = ("39281c 78583e ad8c69", "3e3c39 7d7872 b1aba3", "241c17 48362c 725848")
BLURRED = 100  # pixels of the short side of a backdrop that is out of focus


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
    """A leaf to photograph. disease: see `leaves.DISEASES`. seed: of what is random."""

    disease: str
    plant: int
    seed: int


@dataclass(frozen=True)
class Scene:
    """What the camera sees. ground: the places in textures. light: see `Canvas`."""

    places: Field
    ground: Field
    light: complex

    def read(self, texture: str, frequency: float) -> Field:
        """Return a texture of the ground."""
        return read_texture(texture, self.ground, frequency)


def take_photo(subject: Subject, height: int, width: int, view: View) -> np.ndarray:
    """Return a photograph, uint8 (height, width, 3): red, green, blue.

    The same arguments give the same pixels, and another size the same photograph.
    """
    plant = Plant(subject.plant)
    rng = make_rng("scene", subject.seed)
    step = cmath.rect(1 / (view.zoom * min(height, width)), view.angle)
    x = step * (np.arange(width) - (width - 1) / 2) + view.shift
    y = 1j * step * (np.arange(height) - (height - 1) / 2)
    places = x.astype(np.complex64) + y.astype(np.complex64)[:, None]
    light = cmath.rect(rng.uniform(0.6, 1.1), rng.uniform(0, 7)) / step
    # Each photograph has its own part of the textures.
    ground = places * cmath.rect(1, rng.uniform(0, 7)) + complex(*rng.uniform(0, 9, 2))

    scene = Scene(places, ground, light)
    colors = _paint_backdrop(scene, rng, plant)
    leaf = Canvas(places, light, np.zeros_like(colors), np.zeros_like(colors[0]))
    leaf_rng = make_rng("leaf", subject.seed)
    paint_leaf(leaf, plant, leaf_rng, subject.disease, view.wind)
    depth = rng.uniform(0.01, 0.05)
    move = np.array([[1, 0, -depth * light.real], [0, 1, -depth * light.imag]])
    shadow = cv2.warpAffine(blur(leaf.cover, depth / abs(step)), move, (width, height))
    colors *= 1 - 0.6 * shadow
    blend(colors, leaf.colors, leaf.cover)

    colors *= 1 - rng.uniform(0.1, 0.6) * np.square(np.abs(places))  # darker corners
    colors *= 1 + rng.uniform(0, 0.2) * scene.read("smooth", 0.31)
    return _develop(colors, rng, make_rng("grain", subject.seed, view.number))


def _paint_backdrop(scene: Scene, rng: Generator, plant: Plant) -> Colors:
    """Return other leaves in half of all photographs, else a surface."""
    surfaces = (_paint_soil, _paint_boards, _paint_paper)
    number = rng.integers(2 * len(surfaces))
    if number < len(surfaces):
        return surfaces[number](scene, rng)
    height, width = scene.places.shape
    stride = min(height, width) // BLURRED
    small = Scene(
        scene.places[::stride, ::stride],
        scene.ground[::stride, ::stride],
        scene.light / stride,
    )
    blurred = _paint_foliage(small, rng, plant)
    return np.array([cv2.resize(channel, (width, height)) for channel in blurred])


def _paint_foliage(scene: Scene, rng: Generator, plant: Plant) -> list[Field]:
    """Return other leaves of the plant, out of focus, and spots of light."""
    colors = _paint_gradient(scene, rng.choice(FOLIAGE))
    cover = np.zeros_like(colors[0])
    for _ in range(rng.integers(1, 3)):
        moved = 1.2 * scene.places + complex(*rng.uniform(-0.6, 0.6, 2))
        leaves = Canvas(moved, scene.light, colors.copy(), cover)
        paint_leaf(leaves, plant, rng)
        blend(colors, leaves.colors, 0.6)
    lights = ramp(-scene.read("cells", 0.35), -0.25, -0.15)
    lights *= ramp(scene.read("smooth", 0.9), 0.4, 2.5)
    radius = BLURRED * rng.uniform(0.01, 0.035)
    return [blur(c, radius) + lights * (0.2 + 0.5 * c.max()) for c in colors]


def _paint_paper(scene: Scene, rng: Generator) -> Colors:
    """Return a sheet of paper."""
    relief = light_relief(0.0006 * scene.read("rough", 9), scene.light)
    return _paint_gradient(scene, rng.choice(PAPER)) * (1 + relief)


def _paint_soil(scene: Scene, rng: Generator) -> Colors:
    """Return earth with stones."""
    smooth = scene.read("smooth", 0.8)
    rough = scene.read("rough", 2)
    bent = scene.ground + (0.015 - 0.015j) * smooth + (0.005 + 0.005j) * rough
    frequency = rng.uniform(0.5, 1.3)
    stones = ramp(read_texture("cells", bent, frequency), 0, 0.7)
    crumbs = ramp(read_texture("cells", bent, 3.3 * frequency), 0, 0.7)
    stone = np.sqrt(1 - stones * stones)
    crumb = np.sqrt(1 - crumbs * crumbs)
    height = (0.03 * stone + 0.008 * crumb) / frequency + 0.0022 * rough
    shade = np.clip(0.95 + light_relief(height, 0.9 * scene.light), 0.2, 1.7)
    shade *= 0.3 + 0.7 * ramp(stone + 0.6 * crumb, 0, 0.8)
    tone = 0.42 + 0.12 * smooth + 0.1 * rough + 0.15 * stone
    return pick(rng.choice(SOIL), tone) * shade


def _paint_boards(scene: Scene, rng: Generator) -> Colors:
    """Return a table of wooden boards."""
    along, across = scene.ground.real, scene.ground.imag
    number, position = np.divmod(across * rng.uniform(2, 4.5), 1)
    bent = across + 0.03 * scene.read("smooth", 0.6)
    fibres = 0.16 * (along + 3.7 * np.sin(12.9 * number)) + 2j * bent
    tone = 0.5 + 0.13 * read_texture("rough", fibres, 1)
    tone += 0.07 * np.cos(60 * bent + 4 * read_texture("smooth", fibres, 0.5))
    gap = ramp(np.abs(position - 0.5), 0.482, 0.497)
    return pick(rng.choice(BOARDS), tone) * (1 - 0.85 * gap)


def _paint_gradient(scene: Scene, palette: str) -> Colors:
    """Return colours that change slowly."""
    tone = 0.5 + 0.4 * scene.places.real + 0.17 * scene.read("smooth", 0.3)
    return pick(palette, tone)


def _develop(colors: Colors, rng: Generator, grain_rng: Generator) -> np.ndarray:
    """Return 8-bit colours, with the balance, exposure and grain of a camera."""
    warmth = rng.uniform(-0.12, 0.12)
    exposure = rng.uniform(0.9, 1.9)
    grain = rng.uniform(0.01, 0.04) * (grain_rng.random(colors[0].shape, "f4") - 0.5)
    gains = exposure * np.array([1 + warmth, 1, 1 - warmth], np.float32)
    levels = np.sqrt(1 - np.exp(-gains[:, None, None] * np.maximum(colors, 0))) + grain
    return cv2.convertScaleAbs(np.maximum(cv2.merge([*levels]), 0), alpha=255)
