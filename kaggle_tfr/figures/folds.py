"""A plot of folds: the images of each class in each of them."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from kaggle_tfr.figures.canvas import name_rows, new_plot
from kaggle_tfr.figures.grids import WIDTH
from kaggle_tfr.figures.style import BLUE, GREY, MANY_CLASSES, RED
from kaggle_tfr.figures.words import list_names
from kaggle_tfr.tables import count_of

NEVER_VALIDATES = "train, never\nvalidates"
BAR_LENGTH = 0.5  # of the longest bar in a column of a table of counts


def plot_folds(counts: pd.DataFrame) -> Figure | None:
    """Plot images per class and fold, or print a line where all images are in one.

    Of more than 40 classes, the ten largest and the ten smallest are drawn.
    counts: of classes (rows, the largest first) in folds and splits (columns).
    """
    classes = count_of(len(counts), "class", "es")
    if counts.shape[1] < 2:
        print(f"There is one fold, for {classes}.")
        return None

    # Test images, and images that never validate, may lack a class.
    compared = counts.drop(columns=["test", NEVER_VALIDATES], errors="ignore")
    is_missing = compared == 0
    incomplete = counts.index[is_missing.any(axis=1)]
    noun = "fold" if "fold 0" in compared else "split"
    title = f"{classes}, each in every {noun}"
    if len(incomplete):
        title = f"{classes}; missing from a {noun} (red): {list_names(incomplete)}"
    if len(counts) > MANY_CLASSES:
        counts = pd.concat([counts.head(10), counts.tail(10)])
        is_missing = is_missing.loc[counts.index]
    return _draw_bars(counts, is_missing, title)


def _draw_bars(counts: pd.DataFrame, is_missing: pd.DataFrame, title: str) -> Figure:
    """Draw a table of counts with a bar in each cell, as long as the count.

    is_missing: bool, cells in red. Bars of columns that it lacks are grey.
    """
    n_rows, n_columns = counts.shape
    width = max(WIDTH, 2.2 + 0.85 * n_columns)
    figure, axis = new_plot(width, 0.8 + 0.3 * n_rows, title)
    unit = BAR_LENGTH / counts.to_numpy().max()
    for left, (name, column) in enumerate(counts.items()):
        color = BLUE if name in is_missing else GREY
        bars = axis.barh(range(n_rows), unit * column, 0.6, left=left, color=color)
        texts = axis.bar_label(bars, column.map("{:,}".format), padding=4)
        for row in np.flatnonzero(is_missing.get(name, ())):
            axis.barh(row, 0.9, 0.9, left=left, color=RED, alpha=0.15)
            texts[row].set_color(RED)
    name_rows(axis, counts.index)
    axis.set_xticks(range(n_columns), counts.columns, ha="left")
    axis.xaxis.tick_top()
    axis.set(xlim=(-0.02, n_columns), ylim=(n_rows - 0.5, -0.5))
    axis.set_frame_on(False)
    axis.tick_params(length=0)
    return figure
