"""Images in rows, with captions, headings and names of rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from kaggle_tfr.figures.style import CHARACTER_WIDTH, GREY, TITLE_INCHES
from kaggle_tfr.figures.words import shorten, wrap

WIDTH = 7.2  # inches of a figure
GAP = 0.06  # inches between the images of a group; between groups twice as much
LINE = 0.165  # inches of a line of text
FONT_SIZE = 9.5
SMALLEST_CAPTION = 6  # characters, below the narrowest image


@dataclass(frozen=True)
class _Tile:
    """An image with its texts. width: at height 1. gap: inches to its right."""

    pixels: np.ndarray
    caption: str
    color: str
    heading: str
    width: float
    gap: float


def load(path: str, side: int = 400) -> np.ndarray:
    """Return an image of any format as people see it: upright, uint8 RGB.

    side: pixels of the longer side, at most. A file that cannot be read is grey.
    """
    from kaggle_tfr.images.convert import load_pixels  # training machines lack cv2

    image = Image.fromarray(load_pixels(path, side))
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)


def cut_square(image: np.ndarray) -> np.ndarray:
    """Return the middle square of an image."""
    height, width = image.shape[:2]
    side = min(height, width)
    top = (height - side) // 2
    left = (width - side) // 2
    return image[top : top + side, left : left + side]


def plot_images(
    images: Sequence[Any],
    captions: Sequence[str] = (),
    *,
    columns: int = 6,
    colors: Sequence[str] = (),
    together: int = 1,
    headings: Sequence[str] = (),
    row_names: Sequence[str] = (),
    square: bool = False,
    title: str = "",
) -> Figure | None:
    """Plot images in rows that fill the width, each above its caption.

    images: Pillow's or uint8 arrays, (height, width, 3) or (height, width).
    columns: squares that fit in a row; with `row_names`, the images of each row.
    colors: of the captions. together: 2 for pairs, which stay in one row. headings:
    above each image or group. square: cut each image to its middle square.
    """
    if not len(images):
        print("There is nothing to show.")
        return None

    missing = [""] * len(images)
    captions = [*captions, *missing]
    colors = [*colors, *["black"] * len(images)]
    headings = [*headings, *missing]
    groups: list[list[_Tile]] = []
    for number, image in enumerate(images):
        pixels = _to_rgb(image)
        if square:
            pixels = cut_square(pixels)
        group, place = divmod(number, together)
        if not place:
            groups.append([])
        tile = _Tile(
            pixels=pixels,
            caption=captions[number],
            color=colors[number],
            heading="" if place else headings[group],
            width=pixels.shape[1] / pixels.shape[0],
            gap=GAP if place < together - 1 else 2 * GAP,
        )
        groups[-1].append(tile)

    left = 2 * LINE if row_names else 0.0
    rows = _fill_rows(groups, columns, is_fixed=bool(row_names))
    heights = _choose_heights(rows, columns, WIDTH - left)
    above = [_measure_text(tile.heading for tile in row) for row in rows]
    below = [_measure_text(tile.caption for tile in row) for row in rows]
    title = wrap(title, int(WIDTH / TITLE_INCHES))
    bottom = sum(heights) + sum(above) + sum(below)
    total = bottom + _measure_text([title])
    figure = Figure(figsize=(WIDTH, total))
    figure.set_layout_engine("none")
    bold: dict[str, Any] = {"fontsize": FONT_SIZE, "fontweight": "bold"}
    figure.text(0, 1, title, va="top", **bold)
    for number, row in enumerate(rows):
        bottom -= above[number] + heights[number]
        _draw_row(figure, row, left, bottom, heights[number])
        name = _fit("".join(row_names[number : number + 1]), heights[number])
        middle = (bottom + heights[number] / 2) / total
        figure.text(0, middle, name, rotation=90, va="center", **bold)
        bottom -= below[number]
    return figure


def _fill_rows(
    groups: Sequence[list[_Tile]], columns: int, *, is_fixed: bool
) -> list[list[_Tile]]:
    """Return rows of groups that are about as wide as `columns` squares.

    is_fixed: rows have `columns` images, however wide.
    """
    rows: list[list[_Tile]] = []
    excess = 0.0  # of the last row's width
    for group in groups:
        width = len(group) if is_fixed else sum(tile.width for tile in group)
        if not rows or excess + width > -excess:
            rows.append([])
            excess = -float(columns)
        rows[-1] += group
        excess += width
    return rows


def _choose_heights(
    rows: Sequence[Sequence[_Tile]], columns: int, width: float
) -> list[float]:
    """Return the height of each row, so that it fills the width, in inches.

    The last row is not higher than the row before it.
    """
    heights = []
    highest = 1.15 * width / columns
    for row in rows:
        gaps = sum(tile.gap for tile in row[:-1])
        height = (width - gaps) / sum(tile.width for tile in row)
        if row is rows[-1]:
            height = min(height, highest)
        heights.append(height)
        highest = height
    return heights


def _draw_row(
    figure: Figure, row: Sequence[_Tile], left: float, bottom: float, height: float
) -> None:
    """Draw images side by side. left, bottom, height: in inches."""
    total = figure.get_figheight()
    for tile in row:
        width = height * tile.width
        place = (left / WIDTH, bottom / total, width / WIDTH, height / total)
        axis = figure.add_axes(place, xticks=[], yticks=[])
        axis.spines[:].set(visible=True, color=GREY, linewidth=0.3)
        axis.imshow(tile.pixels, aspect="auto", interpolation="lanczos")
        axis.set_title(
            tile.heading,
            loc="left",
            fontsize=FONT_SIZE,
            fontweight="bold",
            pad=3,
        )
        axis.set_xlabel(
            _fit(tile.caption, width),
            fontsize=FONT_SIZE,
            color=tile.color,
            labelpad=2,
        )
        left += width + tile.gap


def _to_rgb(image: Any) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else np.dstack([pixels] * 3)


def _measure_text(texts: Iterable[str]) -> float:
    """Return the height of the longest text with a small margin, in inches."""
    return LINE * (0.4 + max(len(text.splitlines()) for text in texts))


def _fit(text: str, inches: float) -> str:
    """Return the text with each line shortened to a width."""
    longest = int(inches * 72 / (CHARACTER_WIDTH * FONT_SIZE))
    lines = text.split("\n")
    return "\n".join(shorten(line, max(longest, SMALLEST_CAPTION)) for line in lines)
