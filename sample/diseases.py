"""Draw the marks that diseases leave on leaves."""

from dataclasses import dataclass

from kaggle_tfr_sample.drawing import (
    Colors,
    Field,
    Look,
    Places,
    blend,
    color,
    mix,
    ramp,
    read_tile,
)


@dataclass(frozen=True)
class Marks:
    """The marks of a disease: spots around points, or trails.

    frequency: of the texture that places them. radius: of a mark. blur: the width of
    its edge. halo: how far the leaf is yellow around it. dark, light: from edge to
    middle.
    """

    frequency: float
    radius: float
    blur: float
    halo: float
    dark: Colors
    light: Colors
    is_trail: bool = False


HEALTHY = "healthy"
YELLOW = color(0.52, 0.46, 0.06)
DISEASES = {
    "blight": Marks(
        frequency=0.26,
        radius=0.3,
        blur=0.03,
        halo=0.2,
        dark=color(0.02, 0.01, 0.005),
        light=color(0.28, 0.17, 0.09),
    ),
    "mildew": Marks(
        frequency=0.36,
        radius=0.4,
        blur=0.5,
        halo=0.01,
        dark=color(0.45, 0.50, 0.46),
        light=color(0.66, 0.68, 0.66),
    ),
    "miner": Marks(
        frequency=0.8,
        radius=0.12,
        blur=0.04,
        halo=0.1,
        dark=color(0.40, 0.36, 0.20),
        light=color(0.86, 0.84, 0.62),
        is_trail=True,
    ),
    "rust": Marks(
        frequency=0.85,
        radius=0.28,
        blur=0.08,
        halo=0.25,
        dark=color(0.22, 0.05, 0.005),
        light=color(0.80, 0.27, 0.02),
    ),
}


def infect(
    disease: str, colors: Colors, height: Field, places: Places, look: Look
) -> None:
    """Draw a disease on the colours and the height of a leaf, in place.

    disease: of `DISEASES`, or "healthy". places: on the leaf.
    """
    if disease == HEALTHY:
        return
    marks = DISEASES[disease]
    patches = read_tile(look.smooth, places, 0.4)
    rough = read_tile(look.rough, places, 1.5)
    if marks.is_trail:
        distance = abs(read_tile(look.smooth, 1j * places, marks.frequency))
    else:
        distance = read_tile(look.cells, places, marks.frequency)

    depth = marks.radius * (1 + 0.35 * patches + 0.15 * rough) - distance
    mark = ramp(depth, 0, marks.blur)
    tone = ramp(depth + 0.06 * rough, 0, 0.3)
    blend(colors, YELLOW, 0.8 * ramp(depth, -marks.halo, 0))
    blend(colors, mix(marks.dark, marks.light, tone), 0.92 * mark)
    height += 0.003 * mark
