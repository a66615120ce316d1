"""Draw the marks that diseases leave on leaves."""

from dataclasses import dataclass

from kaggle_tfr_sample.drawing import Colors, Field, Look, color, mix, ramp, read_tile

HEALTHY = "healthy"


@dataclass(frozen=True)
class Marks:
    """The marks of a disease: spots around points, or trails.

    frequency: of the texture that places them. radius: as a multiple of the mean
    distance of spots. patches: how much the radius varies. rough: how uneven an edge
    is. blur: its width. halo: how far the leaf is yellow around a mark. dark, light:
    colours. opacity: from 0 to 1. bump: height.
    """

    frequency: float
    radius: float
    patches: float
    rough: float
    blur: float
    halo: float
    dark: Colors
    light: Colors
    opacity: float
    bump: float
    is_trail: bool = False


YELLOW = color(0.52, 0.46, 0.06)
DISEASES = {
    "blight": Marks(
        frequency=0.26,
        radius=0.20,
        patches=0.16,
        rough=0.03,
        blur=0.03,
        halo=0.22,
        dark=color(0.04, 0.02, 0.01),
        light=color(0.28, 0.17, 0.09),
        opacity=1.0,
        bump=-0.004,
    ),
    "mildew": Marks(
        frequency=0.40,
        radius=0.30,
        patches=0.22,
        rough=0.10,
        blur=0.45,
        halo=0.01,
        dark=color(0.55, 0.58, 0.53),
        light=color(0.80, 0.82, 0.78),
        opacity=0.92,
        bump=0.002,
    ),
    "miner": Marks(
        frequency=0.9,
        radius=0.0,
        patches=0.16,
        rough=0.03,
        blur=0.05,
        halo=0.1,
        dark=color(0.50, 0.48, 0.30),
        light=color(0.78, 0.77, 0.58),
        opacity=0.95,
        bump=0.004,
        is_trail=True,
    ),
    "rust": Marks(
        frequency=0.85,
        radius=0.27,
        patches=0.12,
        rough=0.05,
        blur=0.08,
        halo=0.25,
        dark=color(0.22, 0.05, 0.005),
        light=color(0.80, 0.27, 0.02),
        opacity=1.0,
        bump=0.004,
    ),
}


def infect(
    name: str,
    severity: float,
    colors: Colors,
    height: Field,
    places: tuple[Field, Field],
    look: Look,
) -> tuple[Colors, Field]:
    """Return the colours and the height of a leaf that has a disease.

    name: of `DISEASES`, or "healthy". severity: from 0 to 1. places: on the leaf.
    """
    if name == HEALTHY:
        return colors, height
    marks = DISEASES[name]
    x, y = places
    patches = read_tile(look.smooth, x, y, 0.4)
    rough = read_tile(look.rough, x, y, 1.5)
    if marks.is_trail:
        distance = abs(read_tile(look.smooth, y, x, marks.frequency))
    else:
        distance = read_tile(look.cells, x, y, marks.frequency)

    radius = marks.radius * (0.8 + 0.5 * severity)
    depth = radius - distance + marks.patches * patches + marks.rough * rough
    mark = ramp(depth, 0, marks.blur)
    tone = ramp(depth + 0.06 * rough, 0, 0.3)
    colors = mix(colors, YELLOW, 0.8 * ramp(depth, -marks.halo, 0))
    colors = mix(colors, mix(marks.dark, marks.light, tone), marks.opacity * mark)
    return colors, height + marks.bump * mark * (1 + 0.3 * rough)
