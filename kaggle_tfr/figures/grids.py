"""Plots of images in rows, of their hashes, and of their masks."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kaggle_tfr.figures.canvas import new_figure, new_plot
from kaggle_tfr.figures.style import (
    CAPTION_SIZE,
    CHARACTER_WIDTH,
    GREY,
    RED,
    TITLE_INCHES,
    styled,
)
from kaggle_tfr.figures.words import count_of, wrap

RED_LEVELS = (192, 57, 43)  # the same, of pixels
BOLD_WIDTH = 0.8  # share of the characters that fit in bold
CAPTION_INCHES = 0.175  # height of a line of a caption


@styled
def plot_grid(
    images: Sequence[np.ndarray | None],
    titles: Sequence[str],
    *,
    columns: int = 4,
    title: str = "",
    gap: float = 0.0,
    side: float = 1.45,
    color: str | Sequence[str] = "black",
    row_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
) -> Figure | None:
    """Plot images, uint8 (height, width, 3), in rows, each above its title.

    images: None leaves a place empty.
    gap: after every second column, as a share of a column. side: inches of an image.
    color: of the images' titles, one for all or one for each. row_names, column_names:
    written once, at the left and at the top.
    """
    if not len(images):
        print(title)
        return None

    columns = min(columns, len(images))
    longest = _fit_characters(side) - 1  # a space between neighbours
    texts = [wrap(str(text), longest) for text in titles]
    heights = _measure_rows(images, texts, columns, side)
    widths = np.ones(columns)
    if gap:
        widths = np.insert(widths, range(2, columns, 2), gap)
    # A long title needs its space above few images, too.
    width = max(side * widths.sum(), min(6.0, TITLE_INCHES * len(title)))
    lines_above = _count_lines([wrap(title, int(width / TITLE_INCHES))])
    lines_above += bool(column_names)
    figure, axes = new_figure(
        width,
        sum(heights) + CAPTION_INCHES * (0.5 + lines_above),
        title,
        rows=len(heights),
        columns=len(widths),
        width_ratios=widths,
        height_ratios=heights,
        subplot_kw={"xticks": [], "yticks": [], "frame_on": False},
    )
    grid = axes[:, widths == 1]
    colors = [color] * len(images) if isinstance(color, str) else color
    for axis, image, text, ink in zip(
        grid.ravel(), images, texts, colors, strict=False
    ):
        if image is not None:
            _draw_image(axis, image, text, ink)
    _write_names(grid, row_names, column_names, _fit_characters(BOLD_WIDTH * side))
    return figure


def _measure_rows(
    images: Sequence[np.ndarray | None],
    texts: Sequence[str],
    columns: int,
    side: float,
) -> list[float]:
    """Return the height of each row of images with their captions, in inches."""
    heights = []
    for first in range(0, len(images), columns):
        tallest = _find_tallest(images[first : first + columns])
        n_lines = _count_lines(texts[first : first + columns])
        heights.append(side * tallest + CAPTION_INCHES * (0.5 + n_lines))
    return heights


def _write_names(
    grid: np.ndarray,
    row_names: Sequence[str],
    column_names: Sequence[str],
    longest: int,
) -> None:
    """Write names above the first row and beside the first column.

    grid: axes (rows, columns). longest: characters of a line.
    """
    for axis, name in zip(grid[0], column_names, strict=False):
        axis.set_title(wrap(name, longest), fontsize=CAPTION_SIZE, loc="center")
    for axis, name in zip(grid[:, 0], row_names, strict=False):
        axis.set_ylabel(
            wrap(name, longest),
            fontsize=CAPTION_SIZE,
            fontweight="bold",
        )


def _fit_characters(inches: float) -> int:
    """Return how many characters of a caption fit."""
    return int(inches * 72 / (CAPTION_SIZE * CHARACTER_WIDTH))


def _find_tallest(images: Sequence[np.ndarray | None]) -> float:
    """Return the largest ratio of height to width, 1.3 at most."""
    shapes = [image.shape for image in images if image is not None]
    return min(1.3, max(height / width for height, width, _ in shapes))


def _count_lines(texts: Sequence[str]) -> int:
    """Return the lines of the longest text, 0 if all texts are empty."""
    return max((len(text.splitlines()) for text in texts), default=0)


def _draw_image(axis: Axes, image: np.ndarray, title: str, color: str) -> None:
    """Draw an image above its title."""
    axis.imshow(image)
    axis.set_anchor("N")  # the images of a row begin on one line
    axis.set_frame_on(True)
    axis.spines[:].set(visible=True, color=GREY, linewidth=0.3)
    axis.set_xlabel(title, color=color, fontsize=CAPTION_SIZE, labelpad=2)


def plot_pairs(
    images: Sequence[tuple[np.ndarray, ...]],
    titles: Sequence[tuple[str, ...]],
    title: str = "",
) -> Figure | None:
    """Plot pairs of images, uint8 (height, width, 3), each above its own title.

    Two pairs are in a row.
    """
    return plot_grid(
        list(chain(*images)),
        list(chain(*titles)),
        title=title,
        gap=0.12,
        side=1.6,
    )


def plot_bits(
    images: Mapping[str, Any],
    bits: Mapping[str, Sequence[np.ndarray]],
    hash_names: Sequence[str],
) -> Figure | None:
    """Plot three images in rows, each with its hashes; bits that differ are red.

    images: arrays or Pillow's, by name: an image, its copy, and another image. bits:
    bool (8, 8) for each hash, by the same names.
    """
    stacks = [np.stack(hashes) for hashes in bits.values()]
    is_red = np.array([stack != stacks[0] for stack in stacks])
    _, of_copy, of_other = is_red.sum(axis=(1, 2, 3))
    title = f"{of_copy} of {is_red[0].size} bits differ between an image and its copy"
    title += f", {of_other} between it and another image (red)"

    tiles: list[np.ndarray] = []
    captions: list[str] = []
    for image, stack, red in zip(images.values(), stacks, is_red, strict=True):
        squares = np.repeat(stack[..., None] * np.uint8(200) + np.uint8(30), 3, -1)
        squares[red] = RED_LEVELS
        tiles += [np.asarray(image), *squares]
        counts = [f"{count} of 64" for count in red.sum(axis=(1, 2))]
        captions += ["", *(counts if red.any() else [""] * len(counts))]
    return plot_grid(
        tiles,
        captions,
        columns=1 + len(hash_names),
        side=1.15,
        title=title,
        row_names=list(images),
        column_names=["", *hash_names],
    )


@styled
def plot_wall(
    images: Sequence[np.ndarray], is_linked: Sequence[bool], title: str
) -> Figure | None:
    """Plot images as small squares, eight in a row.

    images: uint8 RGB, their middle squares are drawn. is_linked: whether a red line
    joins each image with the image before it.
    """
    if not len(images):
        print(title)
        return None

    columns = min(8, len(images))
    rows = -(-len(images) // columns)
    figure, axis = new_plot(6, 0.4 + 6 * rows / columns, title)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        extent = (column + 0.02, column + 0.98, row + 0.98, row + 0.02)
        axis.imshow(cut_square(image), extent=extent)
        if is_linked[number]:
            level = row + 0.9
            axis.plot([column, column + 0.5], [level] * 2, color=RED, linewidth=5)
            before, last_column = divmod(number - 1, columns)
            level = before + 0.9
            ends = [last_column + 0.5, last_column + 1]
            axis.plot(ends, [level] * 2, color=RED, linewidth=5)
    axis.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[], frame_on=False)
    return figure


def cut_square(image: np.ndarray) -> np.ndarray:
    """Return the middle square of an image."""
    height, width = image.shape[:2]
    side = min(height, width)
    top = (height - side) // 2
    left = (width - side) // 2
    return image[top : top + side, left : left + side]


def plot_masks(image: np.ndarray, masks: Mapping[str, np.ndarray]) -> Figure | None:
    """Plot an image, (height, width, 3), and again under each of its masks.

    masks: uint8 (height, width), by label; one that is all 0 is left out.
    """
    highlighted = (image // 2 + np.array([127, 60, 0])).astype(np.uint8)
    covered = {
        name: np.where(mask[..., None], highlighted, image)
        for name, mask in masks.items()
        if np.any(mask)
    }
    title = f"The image of one record, and {count_of(len(covered), 'mask')} over it"
    return plot_grid(
        [image, *covered.values()],
        ["", *covered],
        title=title,
        columns=5,
        side=2.6,
    )
