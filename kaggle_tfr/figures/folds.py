"""A plot of folds: the images of each class in each of them."""

import textwrap

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kaggle_tfr.figures.grids import WIDTH
from kaggle_tfr.figures.style import BLUE, GREY, RED, TITLE_CHARACTERS
from kaggle_tfr.figures.words import list_names, shorten

MANY_CLASSES = 40  # more names than this do not fit beside bars


def plot_folds(counts: pd.DataFrame) -> Figure | None:
    """Plot images per class and fold, or print a line where all images are in one.

    Of more than 40 classes, the ten largest and the ten smallest are drawn.
    counts: of classes (rows, the largest first) in folds and splits (columns).
    """
    if counts.shape[1] < 2:
        print(f"All images are in one fold. Classes: {len(counts):,}.")
        return None

    # Without folds the splits are compared. Test images may lack a class.
    compared = counts.filter(regex="^fold ")
    if compared.empty:
        compared = counts.drop(columns="test", errors="ignore")
    incomplete = counts.index[(compared == 0).any(axis=1)]
    n_complete = len(counts) - len(incomplete)
    title = f"Classes in every fold or split: {n_complete:,} of {len(counts):,}"
    if len(incomplete):
        title += f"; not (red): {list_names(incomplete)}"
    if len(counts) > MANY_CLASSES:
        counts = pd.concat([counts.head(10), counts.tail(10)])
    figure = _draw_bars(counts, compared.columns)
    figure.suptitle(textwrap.fill(title, TITLE_CHARACTERS), x=0.01, ha="left")
    return figure


def _draw_bars(counts: pd.DataFrame, compared: pd.Index) -> Figure:
    """Draw bars for each column of a table of counts, side by side.

    compared: the columns in which a 0 is red. The bars of the others are grey.
    """
    n_rows, n_columns = counts.shape
    width = max(WIDTH, 2.2 + 0.85 * n_columns)
    size = (width, 1.2 + 0.25 * n_rows)
    figure = Figure(size)
    axes = figure.subplots(1, n_columns, sharex=True, sharey=True)
    axes[0].set_yticks(range(n_rows), map(shorten, counts.index))
    axes[0].invert_yaxis()
    for axis, (name, column) in zip(axes, counts.items(), strict=True):
        _draw_column(axis, column, is_compared=name in compared)
        axis.set_title(name)
        axis.set_frame_on(False)
        axis.tick_params(length=0, labelbottom=False)
    return figure


def _draw_column(axis: Axes, column: pd.Series, *, is_compared: bool) -> None:
    """Draw a bar with its number for each value."""
    bars = axis.barh(range(len(column)), column, color=BLUE if is_compared else GREY)
    numbers = axis.bar_label(bars, column.map("{:,}".format), padding=3)
    for number, count in zip(numbers, column, strict=True):
        if is_compared and not count:
            number.set_color(RED)
