"""A plot of folds: the images of each class in each of them."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kaggle_tfr.figures.grids import WIDTH
from kaggle_tfr.figures.style import BLUE, GREY, RED
from kaggle_tfr.figures.words import shorten

MANY_CLASSES = 40  # more names than this do not fit beside bars
OTHER_PLACES = ("test", "train only")  # may lack classes


def plot_folds(counts: pd.DataFrame) -> Figure:
    """Plot the number of images of each class in each fold and split.

    Each column of `counts` is a plot with a bar for each class. A red 0 is a class that
    a fold or a split lacks. Of more than 40 classes, the ten largest and the ten
    smallest are drawn; the title counts all.
    counts: of classes (rows, the largest first) in folds and splits (columns).
    """
    # "test" and "train only" need not have images of every class.
    compared = counts.drop(columns=[*OTHER_PLACES], errors="ignore")
    n_lacking = (compared == 0).any(axis=1).sum()
    title = f"Classes that a fold or a split lacks: {n_lacking:,} of {len(counts):,}"
    if len(counts) > MANY_CLASSES:
        largest = counts.head(10)
        counts = pd.concat([largest, counts.tail(10)])
    n_rows, n_columns = counts.shape
    # In inches: 2.2 for the names of classes, then the plots.
    width = max(WIDTH, 2.2 + 0.85 * n_columns)
    figure = Figure((width, 1.2 + 0.25 * n_rows))
    axes, *_ = figure.subplots(
        1,
        n_columns,
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    axes[0].set_yticks(range(n_rows), map(shorten, counts.index))
    axes[0].invert_yaxis()
    for axis, place in zip(axes, counts, strict=True):
        _draw_column(axis, counts[place])
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _draw_column(axis: Axes, column: pd.Series) -> None:
    """Draw a bar with its number for each class, and the fold or split as title.

    In "test" and "train only", which need not have images of every class, bars are
    grey, and a 0 is not red.
    column: the number of images of each class.
    """
    place = str(column.name)
    is_compared = not place.startswith(OTHER_PLACES)
    bars = axis.barh(range(len(column)), column, color=BLUE if is_compared else GREY)
    numbers = column.map("{:,}".format)
    for label in axis.bar_label(bars, numbers, padding=3):
        if is_compared and label.get_text() == "0":
            label.set_color(RED)
    axis.set_title(place)
    axis.set_frame_on(False)
    axis.tick_params(length=0, labelbottom=False)
