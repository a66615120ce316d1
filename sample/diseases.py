"""Draw the marks that diseases leave on the blade of a leaf.

A blade is measured along its midrib, u from 0 to 1, and across it, v.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from kaggle_tfr_sample.drawing import (
    Color,
    Colors,
    Field,
    Textures,
    blend,
    look_up,
    pick,
    ramp,
    read_tile,
)

COLUMNS = 256  # of a table over a blade
BARK = ((0.06, 0.03, 0.015), (0.20, 0.11, 0.05), (0.44, 0.33, 0.20))
SPORES = ((0.16, 0.05, 0.01), (0.42, 0.15, 0.02), (0.66, 0.30, 0.05))
CHLOROSIS: Color = (0.49, 0.45, 0.08)
POWDER: Color = (0.66, 0.69, 0.64)


@dataclass(frozen=True)
class Blade:
    """The visible pixels of a leaf, and how they look.

    u, v: their places. t: |v|, as a share of the half width. smooth, rough: noise.
    colors, height: to be changed in place; lengths are those of the leaf.
    half_width, length: of the leaf. offset: in the textures.
    """

    u: Field
    v: Field
    t: Field
    smooth: Field
    rough: Field
    colors: Colors
    height: Field
    half_width: float
    length: float
    textures: Textures
    offset: float

    def read_fine(self, frequency: float) -> Field:
        """Return rough noise of a higher frequency."""
        return read_tile(self.textures.rough, self.u, self.v, frequency, self.offset)

    def read_table(self, table: Field) -> Field:
        """Return a table over the blade, whose half width is above and below."""
        y = self.v * (0.5 / self.half_width) + 0.5
        return look_up(table, self.u, y)


@dataclass(frozen=True)
class Disease:
    """A disease of `DISEASES`, or "healthy". severity: from 0 to 1."""

    name: str
    severity: float = 0.0


HEALTHY = Disease("healthy")


def infect(blade: Blade, disease: Disease, rng: Generator) -> None:
    """Draw a disease on a blade."""
    if disease.name != HEALTHY.name:
        DISEASES[disease.name](blade, disease.severity, rng)


def _draw_blight(blade: Blade, severity: float, rng: Generator) -> None:
    """Draw a few large dead spots with rings and yellow edges."""
    count = int(1 + 7 * severity * min(1.2, blade.length))
    spots = _make_spots(blade, rng, count, 0.06, 0.10 + 0.10 * severity)
    fine = blade.read_fine(5.0)
    spots += 0.13 * blade.smooth + 0.08 * blade.rough + 0.04 * fine

    rings = np.cos(24 * spots + blade.rough)
    tone = 0.28 + 0.42 * spots + 0.09 * rings + 0.10 * fine
    dead = ramp(spots, 0.02, 0.09)
    edge = ramp(spots, 0.0, 0.06) * ramp(-spots, -0.2, -0.08)
    blend(blade.colors, CHLOROSIS, 0.75 * ramp(spots, -0.55, 0.05))
    blend(blade.colors, pick(BARK, tone), dead)
    blend(blade.colors, BARK[0], 0.6 * edge)

    blade.height[:] += 0.002 * dead * blade.rough
    blade.height[:] -= 0.012 * ramp(spots, -0.1, 0.3)


def _draw_mildew(blade: Blade, severity: float, rng: Generator) -> None:
    """Draw white powder."""
    count = 1 + int((3 + 11 * severity) * min(1.2, blade.length))
    spots = _make_spots(blade, rng, count, 0.05, 0.16)
    spots += 0.25 * blade.smooth + 0.18 * blade.rough + 0.10 * blade.read_fine(6.0)

    grain = blade.read_fine(17.0)
    powder = (0.45 + 0.5 * severity) * ramp(spots, -0.15, 0.9)
    share = np.clip(powder * (1 + 0.15 * grain), 0, 0.92)
    blend(blade.colors, POWDER, share)
    blade.height[:] += 0.0008 * powder * grain


def _draw_miner(blade: Blade, severity: float, rng: Generator) -> None:
    """Draw the pale trails of larvae that live inside a leaf."""
    trails = blade.read_table(_make_trails(blade, rng, int(1 + 3 * severity)))
    trails += 0.0006 * blade.rough
    trail = ramp(trails, -0.002, 0.004)
    blend(blade.colors, (0.62, 0.64, 0.42), 0.9 * trail)
    blend(blade.colors, (0.20, 0.14, 0.05), 0.6 * ramp(trails, 0.008, 0.012))
    blade.height[:] += 0.006 * trail


def _draw_rust(blade: Blade, severity: float, rng: Generator) -> None:
    """Draw many small orange spots with yellow halos."""
    count = 3 + int((15 + 90 * severity) * blade.length**2)
    scale = 1 / max(0.5, blade.length)
    spots = _make_spots(blade, rng, count, 0.010 * scale, 0.024 * scale)
    fine = blade.read_fine(5.0)
    spots += 0.2 * fine + 0.1 * blade.rough

    spot = ramp(spots, 0.05, 0.25)
    blend(blade.colors, CHLOROSIS, 0.6 * ramp(spots, -1.4, 0.0))
    blend(blade.colors, pick(SPORES, 0.5 + 0.25 * fine), spot)
    blend(blade.colors, (0.10, 0.035, 0.01), 0.7 * ramp(spots, 0.6, 0.85))
    blade.height[:] += 0.004 * spot * (1 + 0.3 * fine)


def _make_spots(
    blade: Blade, rng: Generator, count: int, smallest: float, largest: float
) -> Field:
    """Return 1 in the middle of random spots, 0 on their edges, and less outside.

    smallest, largest: radius.
    """
    rows = max(24, round(2 * COLUMNS * blade.half_width))
    table = np.full((rows, COLUMNS), -4, np.float32)
    row, column = np.ogrid[:rows, :COLUMNS]
    for _ in range(count):
        radius = COLUMNS * np.exp(rng.uniform(np.log(smallest), np.log(largest)))
        middle_column = COLUMNS * rng.uniform(0.05, 0.95)
        middle_row = rows * rng.uniform(0.08, 0.92)
        reach = int(2.6 * radius) + 1
        part_rows = _cut_slice(middle_row, reach)
        part_columns = _cut_slice(middle_column, reach)
        down = row[part_rows] - middle_row
        right = column[:, part_columns] - middle_column
        values = 1 - np.hypot(right, down) / radius
        part = table[part_rows, part_columns]
        np.maximum(part, values, out=part, casting="same_kind")
    return blade.read_table(table)


def _cut_slice(middle: float, reach: int) -> slice:
    first = max(0, int(middle) - reach)
    return slice(first, int(middle) + reach)


def _make_trails(blade: Blade, rng: Generator, count: int) -> Field:
    """Return a table of how far inside of random winding trails its places are."""
    columns = 2 * COLUMNS
    rows = max(24, round(2 * columns * blade.half_width))
    is_empty = np.ones((rows, columns), np.uint8)
    for _ in range(count):
        turns = np.convolve(rng.normal(0, 0.16, 150), 0.8 ** np.arange(20), "same")
        path = np.cumsum(0.007 * np.exp(1j * np.cumsum(turns)))
        middle = complex(rng.uniform(0.25, 0.75), rng.uniform(-0.2, 0.2))
        path += middle - path.mean()
        y = np.clip(path.imag * 0.5 / blade.half_width + 0.5, 0.15, 0.85)
        points = np.stack([path.real * columns, y * rows], axis=1)
        cv2.polylines(is_empty, [points.astype(np.int32)], isClosed=False, color=0)
    distance = cv2.distanceTransform(is_empty, cv2.DIST_L2, 5)
    return 0.013 - distance * (1 / columns)


DISEASES = {
    "blight": _draw_blight,
    "mildew": _draw_mildew,
    "miner": _draw_miner,
    "rust": _draw_rust,
}
