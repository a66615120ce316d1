"""The picture of a whole run: images in, what was removed, and records out."""

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from matplotlib.text import Text
from PIL import Image

from kaggle_tfr.figures.style import (
    BLUE,
    CHARACTER_WIDTH,
    GREY,
    RED,
    StyledFigure,
    styled,
)
from kaggle_tfr.figures.words import count_of, join_words, shorten
from kaggle_tfr.storage import AnyPath, write_atomically

PURPLE = "#7d4e9e"
BROWN = "#b0561a"  # orange text would be too pale
DARK = "#3c4043"
PALE = 0.1  # opacity of the panel behind examples
KEPT = 0.25  # opacity of images that are kept
COLORS = {
    "rejected files": RED,
    "copies": BLUE,
    "label conflicts": BROWN,
    "leaks": PURPLE,
}
SINGULAR = {
    "rejected files": "rejected file",
    "copies": "copy",
    "label conflicts": "label conflict",
    "leaks": "leak",
}

# Inches. A README displays the picture at 100 pixels an inch or less.
MIN_WIDTH = 5.4
MARGIN = 0.15
END_WIDTH = 0.98  # of the first and the last column, at least
COLUMN_WIDTH = 1.1
GAP = 0.07  # between columns
PADDING = 0.05  # on both sides of an image
TITLE_HEIGHT = 0.66
LABEL_HEIGHT = 0.46  # above the bars
BARS_HEIGHT = 1.0
IMAGE_HEIGHT = 0.9
LINE_HEIGHT = 0.19
PANEL_HEIGHT = 2 * (IMAGE_HEIGHT + LINE_HEIGHT) + LINE_HEIGHT + 3 * GAP
ROW_HEIGHT = PANEL_HEIGHT + GAP + BARS_HEIGHT + LABEL_HEIGHT
NARROW = 4.9  # width of the picture for a telephone
DPI = 200
MAX_PIXELS = 1600  # of the width
FONT_SIZE = 9.0
NUMBER_SIZE = 17.0
SUBTITLE_SIZE = 10.0


@dataclass(frozen=True)
class Example:
    """Images that show a finding: one, or the image kept and its copy below it.

    images: uint8 RGB (height, width, 3). scale: of the second image's sides, beside
    those of the first. outline: of the second image in the first, as shares of its
    width and height, float (corners, 2).
    """

    heading: str
    images: tuple[np.ndarray, ...]
    captions: tuple[str, ...]
    scale: float = 1.0
    outline: np.ndarray | None = None


@dataclass(frozen=True)
class Step:
    """One finding and the images that it removes.

    is_kept: the images are only reported, and none is removed.
    lines: a list below the first example, such as the problems of rejected images.
    """

    name: str  # a key of COLORS, or another noun in the plural
    count: int
    is_kept: bool = False
    examples: Sequence[Example] = ()
    lines: Sequence[str] = ()

    @property
    def noun(self) -> str:
        """Return what the count counts, in the singular for 1."""
        return SINGULAR.get(self.name, self.name) if self.count == 1 else self.name

    def describe(self) -> str:
        """Return the count and its noun.

        >>> Step("copies", 1).describe(), Step("leaks", 1234).describe()
        ('1 copy', '1,234 leaks')
        """
        return f"{self.count:,} {self.noun}"

    @property
    def n_removed(self) -> int:
        """Return by how much the number of images falls."""
        return 0 if self.is_kept else self.count


@dataclass(frozen=True)
class Overview:
    """What happened to the images of a run.

    inputs, outputs: lines below the first and the last bar.
    """

    n_images: int
    n_records: int
    steps: Sequence[Step] = ()
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture, in inches from its left lower corner."""

    left: float
    bottom: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Return its right edge."""
        return self.left + self.width

    @property
    def top(self) -> float:
        """Return its upper edge."""
        return self.bottom + self.height

    @property
    def center(self) -> float:
        """Return its middle from left to right."""
        return self.left + self.width / 2


@dataclass(frozen=True)
class Scale:
    """Where numbers of images are drawn.

    first: the number at the lower end of the bars; more than 0 is a broken axis.
    last: the number at their upper end.
    bottom: the lower end, in inches.
    """

    first: float
    last: int
    bottom: float = 0.0

    def move(self, box: Box) -> "Scale":
        """Return the scale of the bar above a box."""
        return replace(self, bottom=box.top + GAP)

    def place(self, count: float) -> float:
        """Return the height of a number of images in the picture, in inches."""
        share = (count - self.first) / (self.last - self.first)
        return self.bottom + BARS_HEIGHT * share


@styled
def plot_overview(overview: Overview, max_width: float = np.inf) -> Figure | None:
    """Plot the waterfall of a run, and examples below the bar of each step.

    A run that removed and found nothing is a printed line.
    max_width: in inches; wider pictures have several rows of bars.
    Raises: ValueError: the steps do not lead from the images to the records.
    """
    levels = _count_levels(overview)
    title, subtitle = _write_titles(overview)
    if not overview.steps:
        print(title)
        return None

    columns = _place_columns(overview.steps, max_width)
    first, *boxes, last = columns
    width = max(box.right for box in columns) + MARGIN
    text_width = width - 2 * MARGIN
    n_characters = int(text_width * 72 / (SUBTITLE_SIZE * CHARACTER_WIDTH))
    subtitle_lines = textwrap.wrap(subtitle, n_characters)
    subtitle_height = len(subtitle_lines[1:]) * LINE_HEIGHT
    height = first.bottom + ROW_HEIGHT + TITLE_HEIGHT + subtitle_height

    figure, axis = _make_canvas(width, height)
    y = height - 0.33
    _write(axis, title, MARGIN, y, text_width, size=16, weight="bold")
    y -= 0.24
    for line in subtitle_lines:
        _write(axis, line, MARGIN, y, text_width, size=SUBTITLE_SIZE)
        y -= LINE_HEIGHT

    scale = _choose_scale(overview, levels)
    for step, level, box in zip(overview.steps, levels[:-1], boxes, strict=True):
        _draw_step(axis, box, scale.move(box), step, level)
    for level, box, following in zip(levels, columns, columns[1:], strict=False):
        _connect(axis, box, following, scale, level)
    _draw_end(axis, first, scale.move(first), overview.n_images, "images listed")
    _draw_end(axis, last, scale.move(last), overview.n_records, "records out")
    _write_list(axis, overview.inputs, first)
    _write_list(axis, overview.outputs, last)
    return figure


def _count_levels(overview: Overview) -> list[int]:
    """Return the number of images before each step and after the last one.

    Raises: ValueError: it does not end at the number of records.
    """
    removed = [-step.n_removed for step in overview.steps]
    levels = list(accumulate(removed, initial=overview.n_images))
    if levels[-1] != overview.n_records:
        terms = "".join(f" - {step.n_removed:,} {step.name}" for step in overview.steps)
        raise ValueError(
            f"The bars do not close: {overview.n_images:,} images{terms} = "
            f"{levels[-1]:,}, but {overview.n_records:,} records were written. Run "
            "04_write again."
        )
    return levels


def _write_titles(overview: Overview) -> tuple[str, str]:
    """Return the numbers in and out, and below them the findings."""
    title = (
        f"{count_of(overview.n_images, 'image')} listed, "
        f"{count_of(overview.n_records, 'record')} out"
    )
    removed = [step for step in overview.steps if not step.is_kept]
    reported = [step for step in overview.steps if step.is_kept]
    groups = {
        "removed": [step.describe() for step in removed if step.name in COLORS],
        "kept and reported": [step.describe() for step in reported],
    }
    findings = [
        f"{join_words(words)} {verb}" for verb, words in groups.items() if words
    ]
    findings += [step.describe() for step in removed if step.name not in COLORS]
    return title, "; ".join(findings)


def _make_canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a closed figure and its axes, whose units are inches."""
    dpi = min(DPI, MAX_PIXELS / width)
    figure = plt.figure(figsize=(width, height), dpi=dpi, FigureClass=StyledFigure)
    plt.close(figure)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(0, height), autoscale_on=False)
    axis.set(xticks=[], yticks=[])
    axis.set_axis_off()
    return figure, axis


def _choose_scale(overview: Overview, levels: Sequence[int]) -> Scale:
    """Return a scale in which the smallest bars are visible.

    The first and the last bar are cut where the steps remove less than half.
    """
    feet = [n - step.count for n, step in zip(levels[:-1], overview.steps, strict=True)]
    n_differing = max(1, overview.n_images - min(feet))
    first = overview.n_images - 1.3 * n_differing
    if n_differing > overview.n_images / 2:
        first = 0
    return Scale(first, overview.n_images)


def _place_columns(steps: Sequence[Step], max_width: float) -> list[Box]:
    """Return the boxes below the first bar, below each step, and below the last bar.

    A step has one column for each example. A box that is wider than the rest of its row
    begins the next one.
    """
    widths = []
    for step in steps:
        n_examples = max(1, len(step.examples))
        widths.append(n_examples * COLUMN_WIDTH)
    inner_width = sum(widths) + GAP * (len(widths) + 1)
    free_width = min(MIN_WIDTH, max_width) - 2 * MARGIN - inner_width
    end_width = max(END_WIDTH, free_width / 2)

    rows: list[list[float]] = [[]]
    for width in (end_width, *widths, end_width):
        row_width = sum(rows[-1]) + GAP * len(rows[-1]) + 2 * MARGIN
        if rows[-1] and row_width + width > max_width:
            rows.append([])
        rows[-1].append(width)

    boxes: list[Box] = []
    for number, row in enumerate(reversed(rows)):
        lefts = accumulate(row, lambda left, width: left + width + GAP, initial=MARGIN)
        bottom = MARGIN + number * ROW_HEIGHT
        row_boxes = [
            Box(left, bottom, width, PANEL_HEIGHT)
            for left, width in zip(lefts, row, strict=False)
        ]
        boxes = row_boxes + boxes
    return boxes


def _connect(axis: Axes, box: Box, following: Box, scale: Scale, level: int) -> None:
    """Draw the level between two bars; between rows, a short line at both."""
    lines = [(box, box.right, following.left)]
    if box.bottom != following.bottom:
        lines = [
            (box, box.right, box.right + GAP),
            (following, following.left - GAP, following.left),
        ]
    for column, start, end in lines:
        y = scale.move(column).place(level)
        axis.plot([start, end], [y, y], color=GREY, linewidth=1)


def _draw_end(axis: Axes, box: Box, scale: Scale, count: int, name: str) -> None:
    """Draw the first or the last bar."""
    top = scale.place(count)
    bar = Box(box.left, scale.bottom, box.width, top - scale.bottom)
    _draw_box(axis, bar, color=DARK)
    if scale.first > 0:
        _draw_break(axis, bar)
    _label_bar(axis, bar, f"{count:,}", name, DARK)


def _draw_box(axis: Axes, box: Box, **options: Any) -> None:
    corner = (box.left, box.bottom)
    axis.add_patch(Rectangle(corner, box.width, box.height, **options))


def _draw_break(axis: Axes, bar: Box) -> None:
    """Draw a white zigzag over a bar, which is cut there."""
    x = np.linspace(bar.left - 0.02, bar.right + 0.02, 13)
    y = bar.bottom + 0.12 + 0.03 * (-1) ** np.arange(13)
    axis.plot(x, y, color="white", linewidth=2.5)


def _label_bar(axis: Axes, bar: Box, number: str, name: str, color: str) -> None:
    """Write a number, and what it counts, above a bar."""
    style: Any = {"color": color, "ha": "center"}
    y = bar.top + 0.06
    _write(axis, name, bar.center, y, bar.width, **style)
    y += 0.16
    style |= {"size": NUMBER_SIZE, "weight": "bold"}
    _write(axis, number, bar.center, y, bar.width, **style)


def _draw_step(
    axis: Axes,
    box: Box,
    scale: Scale,
    step: Step,
    level: int,
) -> None:
    """Draw the bar that hangs down from `level`, and in the box its examples."""
    color = COLORS.get(step.name, GREY)
    top = scale.place(level)
    foot = scale.place(level - step.count)
    bar = Box(box.left, foot, box.width, top - foot)
    if step.is_kept:
        kept = Box(box.left, scale.bottom, box.width, top - scale.bottom)
        _draw_box(axis, kept, color=DARK, alpha=KEPT, linewidth=0)
        if scale.first > 0:
            _draw_break(axis, kept)
        face = to_rgba(color, KEPT)
        _draw_box(axis, bar, facecolor=face, edgecolor=color, linestyle="--")
        _label_bar(axis, bar, f"{step.count:,}", f"{step.noun}, kept", color)
    else:
        _draw_box(axis, bar, color=color)
        _label_bar(axis, bar, f"−{step.count:,}", step.noun, color)
    if not step.examples and not step.lines:
        return

    _draw_box(axis, box, color=color, alpha=PALE, linewidth=0)
    y = box.top
    left = box.left
    for example in step.examples:
        column = Box(left, box.bottom, COLUMN_WIDTH, box.height)
        y = _draw_example(axis, column, example, color)
        left = column.right
    rest = Box(box.left, box.bottom, COLUMN_WIDTH, y - box.bottom)
    _write_list(axis, step.lines, rest)


def _draw_example(axis: Axes, box: Box, example: Example, color: str) -> float:
    """Draw the images of an example under its heading, each above its caption.

    Return where the last caption ends.
    """
    style: Any = {"ha": "center"}
    y = box.top - LINE_HEIGHT
    heading = example.heading
    _write(axis, heading, box.center, y, box.width, color=color, weight="bold", **style)

    drawn = []
    larger = max(1.0, example.scale)
    scales = (1 / larger, example.scale / larger)
    # One image has no second scale.
    for pixels, caption, scale in zip(
        example.images, example.captions, scales, strict=False
    ):
        y -= GAP
        drawn.append(_draw_image(axis, pixels, box, y, scale))
        y = drawn[-1].bottom - LINE_HEIGHT
        _write(axis, caption, box.center, y + 0.04, box.width, **style)
    if example.outline is not None:
        _draw_outline(axis, drawn[0], example.outline, color)
    return y


def _draw_outline(axis: Axes, box: Box, corners: np.ndarray, color: str) -> None:
    """Draw a polygon over an image; its corners are shares of width and height."""
    shares = corners.clip(0, 1)
    x = box.left + shares[:, 0] * box.width
    y = box.bottom + (1 - shares[:, 1]) * box.height
    for edge_color, linewidth in (("white", 3.5), (color, 1.8)):
        polygon = Polygon(np.stack([x, y], axis=1), fill=False)
        polygon.set(edgecolor=edge_color, linewidth=linewidth)
        axis.add_patch(polygon)


def _write_list(axis: Axes, lines: Sequence[str], box: Box) -> None:
    """Write lines of text from the top of a box, as many as it holds."""
    width = box.width - 2 * PADDING
    columns = int(width * 72 / (FONT_SIZE * 0.5))  # half as wide as high, at least
    y = box.top - GAP
    for line in lines:
        for piece in textwrap.wrap(line, columns, subsequent_indent="   "):
            y -= LINE_HEIGHT
            if y > box.bottom:
                _write(axis, piece, box.left + PADDING, y, width)


def _draw_image(
    axis: Axes,
    pixels: np.ndarray,
    column: Box,
    top: float,
    scale: float,
) -> Box:
    """Draw an image in the middle of a column, and return where it is.

    top: of the image, in inches. scale: 1 fills the width of the column or the height
    of an image.
    """
    height, width = pixels.shape[:2]
    max_width = column.width - 2 * PADDING
    inches = scale * min(max_width / width, IMAGE_HEIGHT / height)
    box = Box(
        column.center - inches * width / 2,
        top - inches * height,
        inches * width,
        inches * height,
    )
    axis.imshow(
        pixels,
        extent=(box.left, box.right, box.bottom, box.top),
        aspect="auto",
        interpolation="lanczos",
    )
    return box


def _write(
    axis: Axes,
    text: str,
    x: float,
    y: float,
    width: float,
    *,
    size: float = FONT_SIZE,
    color: str = DARK,
    **options: Any,
) -> None:
    """Write a line of text that is at most `width` inches wide.

    A large font becomes smaller, so that no digit is lost; then the middle is left out.
    """
    longest = 2 * len(text)  # wide characters have two columns
    drawn = axis.text(x, y, shorten(text, longest), fontsize=size, color=color)
    drawn.set(**options)
    while size > FONT_SIZE and _measure_width(axis, drawn) > width:
        size -= 1
        drawn.set_fontsize(size)
    while longest > 4 and _measure_width(axis, drawn) > width:
        longest -= 1
        drawn.set_text(shorten(text, longest))


def _measure_width(axis: Axes, text: Text) -> float:
    """Return how many inches wide a text is drawn."""
    extent = text.get_window_extent()
    return extent.transformed(axis.transData.inverted()).width


def save_overview(figure: Figure, path: AnyPath) -> None:
    """Save the picture as a PNG of 256 colours, at most 1,600 pixels wide."""
    png = io.BytesIO()
    figure.savefig(png, dpi="figure")
    small = io.BytesIO()
    image = Image.open(png).convert("RGB").quantize(256, kmeans=1)
    image.save(small, "PNG", optimize=True)
    write_atomically(path, small.getvalue())
