"""Images in rows, with captions, headings and names of rows; pairs of images."""

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image, ImageOps

from kaggle_tfr.figures.style import (
    BLUE,
    CHARACTER_INCHES,
    GREY,
    ORANGE,
    TITLE_CHARACTERS,
)
from kaggle_tfr.figures.words import shorten
from kaggle_tfr.images.orientation import apply_orientation

WIDTH = 7.2  # inches of a figure
GAP = 0.08  # between images, as a share of their width; within a group half as much
CAPTION = ("image_id", "split", "label_name")  # of an image of a pair
MOST_PAIRS = 12  # of a figure
LINE = 0.165  # inches of a line of text


def load(path: str, side: int = 400) -> np.ndarray:
    """Return an image of any format as people see it: upright, uint8 RGB.

    The shape is (height, width, 3). A file that cannot be read is a grey square.
    path: of a file, or of an image in a record ("x.tfrec#17"). side: pixels of the
    longer side, at most.
    """
    from kaggle_tfr.images.convert import load_pixels  # training machines lack cv2

    image = Image.fromarray(load_pixels(path, side))
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.asarray(image)


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
    captions: one for each image, of one or more lines; colors: theirs.
    columns: number of images of each row, a multiple of `together`.
    together: 2 for pairs, which are close to each other. headings: above each image or
    group. row_names: to the left of each row. square: cut each image to its middle
    square.
    Without images, a line is printed, and the result is None.
    """
    if not len(images):
        print("There is nothing to show.")
        return None

    pixels = [_to_rgb(image, square=square) for image in images]
    above = _measure_text(headings)  # in inches
    gap = above + _measure_text(captions)
    figure = _make_figure(pixels, columns, together, gap)
    axes = figure.axes
    _call_each(Axes.imshow, axes, pixels, interpolation="lanczos")
    _call_each(Axes.set_title, axes[::together], headings)
    _call_each(Axes.set_ylabel, axes[::columns], row_names, fontweight="bold")
    _add_captions(axes, captions, colors, WIDTH / columns)
    _add_title(figure, title, above)
    return figure


def _add_title(figure: Figure, title: str, above: float) -> None:
    """Write a title, `above` inches above a figure, in lines as wide as the figure."""
    figure.suptitle(
        textwrap.fill(title, TITLE_CHARACTERS),
        x=0,
        # The height of a figure is 1.
        y=1 + above / figure.get_figheight(),
        ha="left",
        va="bottom",
    )


def _call_each(
    method: Callable[..., Any], objects: Sequence[Any], values: Any, **options: Any
) -> None:
    """Call `method(object, value)` for each object with its value, in order.

    If there are fewer values than objects, such as no captions, the other objects are
    left as they are. options: of each call.
    """
    for each, value in zip(objects, values, strict=False):
        method(each, value, **options)


def _add_captions(
    axes: Sequence[Axes],
    captions: Sequence[str],
    colors: Sequence[str],
    width: float,
) -> None:
    """Write captions below images that are `width` inches wide; cut longer lines.

    colors: of the captions, black without.
    """
    longest = int(width / CHARACTER_INCHES)
    for axis, caption in zip(axes, captions, strict=False):
        lines = [shorten(line, longest) for line in caption.split("\n")]
        axis.set_xlabel("\n".join(lines))
    _call_each(Text.set_color, [axis.xaxis.label for axis in axes], colors)


def _make_figure(
    images: Sequence[np.ndarray],
    columns: int,
    together: int,
    gap: float,
) -> Figure:
    """Return a figure with an empty plot for each image; its `axes` have their order.

    A row is as high as its highest image.
    columns: images of a row; `together` of them are a group, with a smaller space.
    gap: inches between the rows. Titles and labels may be outside the figure's edges.
    """
    heights = _measure_rows(images, columns)
    figure = Figure((WIDTH, sum(heights) + gap * (len(heights) - 1)))
    figure.set_layout_engine("none")
    grid = figure.add_gridspec(
        len(heights),
        columns // together,
        left=0,
        right=1,
        bottom=0,
        top=1,
        wspace=GAP,
        hspace=gap / np.mean(heights),  # Matplotlib's unit is the mean height of rows
        height_ratios=heights,
    )
    # Each call adds the plots of a group to `figure.axes`.
    for group in range(math.ceil(len(images) / together)):
        grid[group].subgridspec(1, together, wspace=GAP / 2).subplots()
    for axis in figure.axes:
        # "S": lower images of a row are at its bottom, above their captions.
        axis.set(xticks=[], yticks=[], anchor="S")
        axis.spines[:].set(visible=True, color=GREY, linewidth=0.3)
    return figure


def _measure_rows(images: Sequence[np.ndarray], columns: int) -> list[float]:
    """Return the height in inches of the highest image of each row, as displayed.

    All images are displayed with the same width; their shapes in pixels differ.
    """
    # WIDTH is that of the figure in inches, GAP the space as a share of a column.
    width = (1 - GAP) * WIDTH / columns
    heights = [width / image.shape[1] * image.shape[0] for image in images]
    starts = range(0, len(images), columns)
    return [max(heights[start : start + columns]) for start in starts]


def _to_rgb(pixels: Any, *, square: bool) -> np.ndarray:
    """Return an image as uint8 RGB, (height, width, 3).

    pixels: Pillow's image or a uint8 array, also in grey. square: whether to return
    only the middle square.
    """
    image = Image.fromarray(np.asarray(pixels)).convert("RGB")
    if square:
        side = min(image.size)
        image = ImageOps.fit(image, (side, side))
    return np.asarray(image)


def _measure_text(texts: Sequence[str]) -> float:
    """Return the height of the text with the most lines and a small margin, in inches.

    Without texts it is the margin.
    """
    # LINE is the height of a line.
    return LINE * (0.6 + max((text.count("\n") + 1 for text in texts), default=0))


def plot_pairs(pairs: pd.DataFrame, title: str = "") -> Figure | None:
    """Plot the first pairs: both images with id, split and label, below their distance.

    At most 12 pairs are drawn. The second image is rotated or mirrored to look like the
    first one. Captions have two colours if the labels contradict each other.
    pairs: rows of `deduplicate.Found.pairs`.
    """
    images: list[np.ndarray] = []
    captions: list[str] = []
    colors: list[str] = []
    pairs = pairs.head(MOST_PAIRS)
    for pair in pairs.to_dict("records"):
        # An image without a label, "", contradicts no other one.
        labels = {pair["label_name_a"], pair["label_name_b"]} - {""}
        colors += [BLUE, ORANGE] if len(labels) == 2 else ["black", "black"]
        # Orientations as in EXIF: 1 changes nothing, and the pair's is that of image b.
        for end, orientation in (("a", 1), ("b", pair["orientation"])):
            image = load(pair[f"path_{end}"])
            images.append(apply_orientation(image, orientation))
            captions.append("\n".join(pair[f"{name}_{end}"] for name in CAPTION))
    return plot_images(
        images,
        captions,
        colors=colors,
        together=2,
        headings=pairs["bits"].map("{} of 256 bits".format).tolist(),
        title=title,
    )
