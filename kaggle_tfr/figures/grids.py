"""Images in rows, with captions, headings and names of rows."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from kaggle_tfr.figures.style import CHARACTER_INCHES, GREY, TITLE_CHARACTERS
from kaggle_tfr.figures.words import shorten

WIDTH = 7.2  # inches of a figure
GAP = 0.08  # between images, as a share of their width; within a group half as much
LINE = 0.165  # inches of a line of text


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
    """Plot images in rows, each above its caption.

    images: Pillow's or uint8 arrays, (height, width, 3) or (height, width).
    columns: the images of each row, a multiple of `together`. colors: of the captions.
    together: 2 for pairs, which are close to each other. headings: above each image or
    group. square: cut each image to its middle square.
    """
    if not len(images):
        print("There is nothing to show.")
        return None

    pixels = [_to_rgb(image) for image in images]
    if square:
        pixels = [cut_square(image) for image in pixels]
    above = _measure_text(headings)
    figure = _make_figure(pixels, columns, together, above + _measure_text(captions))
    figure.suptitle(
        textwrap.fill(title, TITLE_CHARACTERS),
        x=0,
        y=1 + above / figure.get_figheight(),
        ha="left",
        va="bottom",
    )
    for axis, image in zip(figure.axes, pixels, strict=False):
        axis.imshow(image, interpolation="lanczos")
    _add_captions(figure.axes, captions, colors, WIDTH / columns)
    for axis, heading in zip(figure.axes[::together], headings, strict=False):
        axis.set_title(heading)
    for axis, name in zip(figure.axes[::columns], row_names, strict=False):
        axis.set_ylabel(name, fontweight="bold")
    return figure


def _add_captions(
    axes: Sequence[Axes], captions: Sequence[str], colors: Sequence[str], width: float
) -> None:
    """Write captions below images that are `width` inches wide."""
    longest = int(width / CHARACTER_INCHES)
    for axis, caption in zip(axes, captions, strict=False):
        lines = [shorten(line, longest) for line in caption.split("\n")]
        axis.set_xlabel("\n".join(lines))
    for axis, color in zip(axes, colors, strict=False):
        axis.xaxis.label.set_color(color)


def _make_figure(
    images: Sequence[np.ndarray], columns: int, together: int, gap: float
) -> Figure:
    """Return a figure with a plot for each image, in rows as high as their images.

    gap: inches between the rows. Titles and labels may be outside the figure's edges.
    """
    heights = _measure_rows(images, columns)
    total = sum(heights) + gap * (len(heights) - 1)
    figure = Figure((WIDTH, total))
    figure.set_layout_engine("none")
    grid = figure.add_gridspec(
        len(heights),
        columns // together,
        left=0,
        right=1,
        bottom=0,
        top=1,
        wspace=GAP,
        hspace=gap / np.mean(heights),
        height_ratios=heights,
    )
    for group in range(math.ceil(len(images) / together)):
        grid[group].subgridspec(1, together, wspace=GAP / 2).subplots()
    for axis in figure.axes:
        axis.set(xticks=[], yticks=[], anchor="S")
        axis.spines[:].set(visible=True, color=GREY, linewidth=0.3)
    return figure


def _measure_rows(images: Sequence[np.ndarray], columns: int) -> list[float]:
    """Return the height of the highest image of each row, in inches."""
    width = (1 - GAP) * WIDTH / columns
    heights = [width * image.shape[0] / image.shape[1] for image in images]
    starts = range(0, len(images), columns)
    return [max(heights[start : start + columns]) for start in starts]


def _to_rgb(image: Any) -> np.ndarray:
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else np.dstack([pixels] * 3)


def _measure_text(texts: Sequence[str]) -> float:
    """Return the height of the longest text with a small margin, in inches."""
    return LINE * (0.6 + max((text.count("\n") + 1 for text in texts), default=0))
