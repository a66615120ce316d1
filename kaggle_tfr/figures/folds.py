"""Plots of folds: the images of each class, and the lesson on twelve images."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kaggle_tfr.figures.canvas import name_rows, new_plot
from kaggle_tfr.figures.grids import WIDTH, cut_square
from kaggle_tfr.figures.style import BLUE, GREY, MANY_CLASSES, RED
from kaggle_tfr.figures.words import NO_LABEL, list_names, shorten
from kaggle_tfr.tables import count_of

NEVER_VALIDATES = "train, never\nvalidates"
BAR_LENGTH = 0.5  # of the longest bar in a column of a table of counts
FOLD_COLORS = ("#31688e", "#35b779", "#f2b134")  # none is red
FOLD_INKS = ("white", "black", "black")  # of numbers that are readable on these colours


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


def plot_fold_strip(
    images: Sequence[np.ndarray],
    example: pd.DataFrame,
    folds: Mapping[str, Sequence[np.ndarray]],
) -> Figure | None:
    """Plot a row of images with their clusters, and a row of folds for each splitter.

    A cluster that is in several folds is framed in red.
    images: uint8 (height, width, 3). example: label_name and cluster of each image; the
        images of a class, and those of a cluster, are neighbours.
    folds: by splitter, the rows of each of at most three folds; without one, a line is
        printed.
    """
    if not folds:
        print("There is nothing to show.")
        return None

    groups = example.groupby("cluster").indices.values()
    clusters = [np.asarray(rows) for rows in groups if len(rows) > 1]
    bottom = 1.55 + 1.7 * len(folds)
    figure, axis = new_plot(7.4, 0.6 * (bottom + 1.65), " ")
    left = _draw_classes(axis, images, example["label_name"])
    for letter, rows in zip(ascii_uppercase, clusters, strict=False):
        x = left[rows[0]] + 0.1, left[rows[-1]] + 0.9
        axis.plot(np.repeat(x, 2), [1.04, 1.14, 1.14, 1.04], color="black")
        axis.text(np.mean(x), 1.24, letter, fontsize=11, ha="center", va="top")
    n_split = [
        _draw_fold_row(axis, left, name, rows, clusters, top=2.1 + 1.7 * number)
        for number, (name, rows) in enumerate(folds.items())
    ]
    figure.texts[0].set_text(  # the title
        f"{next(iter(folds))} splits {n_split[0]} of {len(clusters)} clusters of "
        f"copies, the other splitters {max(n_split[1:]) or 'none'}"
    )
    caption = (
        "The number is the fold in which an image validates. Red: copies of it are in "
        "other folds,\nso the model has been trained on what it is tested with."
    )
    axis.text(0.03, bottom + 0.1, caption, fontsize=10, va="top")
    axis.set(xlim=(0, left[-1] + 1), ylim=(bottom + 0.8, -0.5), aspect="equal")
    axis.set_axis_off()
    return figure


def _draw_classes(
    axis: Axes, images: Sequence[np.ndarray], label_names: pd.Series
) -> np.ndarray:
    """Draw numbered images in a row, classes a third of an image apart, with names.

    Returns the left edge of each image: float (n,); an image is 1 wide.
    """
    codes, names = pd.factorize(label_names)
    left = np.arange(len(images)) + codes / 3
    box = {"color": "white", "pad": 1.5}
    for number, (start, image) in enumerate(zip(left, images, strict=True)):
        axis.imshow(cut_square(image), extent=(start + 0.03, start + 0.97, 0.97, 0.03))
        axis.text(start + 0.09, 0.1, str(number), fontsize=9, va="top", bbox=box)
    for code, name in enumerate(names):
        middle = left[codes == code].mean() + 0.5
        text = shorten(str(name or NO_LABEL), 30)
        axis.text(middle, -0.12, text, fontsize=12, ha="center")
    return left


def _draw_fold_row(
    axis: Axes,
    left: np.ndarray,
    name: str,
    folds: Sequence[np.ndarray],
    clusters: Sequence[np.ndarray],
    *,
    top: float,
) -> int:
    """Draw a splitter's folds in colours below the images; count the split clusters.

    folds: the rows of each fold.
    """
    fold_of = np.empty(len(left), int)
    for fold, rows in enumerate(folds):
        fold_of[rows] = fold
    colors = [FOLD_COLORS[fold] for fold in fold_of]
    bars = axis.bar(left + 0.5, 0.7, 0.8, top + 0.1, color=colors, edgecolor=colors)
    texts = axis.bar_label(bars, fold_of, label_type="center", size=12, weight="bold")
    for text, fold in zip(texts, fold_of, strict=True):
        text.set(color=FOLD_INKS[fold], va="center_baseline")

    n_split = 0
    for rows in clusters:
        is_split = len(set(fold_of[rows])) > 1
        n_split += is_split
        axis.bar(
            left[rows].mean() + 0.5,
            0.9,
            len(rows) - 0.12,
            top,
            fill=False,
            edgecolor=RED if is_split else GREY,
            linewidth=2.5 if is_split else 1,
        )

    sizes = " + ".join(str(len(rows)) for rows in folds)
    title = axis.text(0.03, top - 0.12, name, fontsize=11, fontweight="bold")
    axis.annotate(
        f"   {sizes} images", (1, 0), xycoords=title, fontsize=11, va="bottom"
    )
    verdict = f"{n_split} of {len(clusters)} clusters in several folds"
    axis.text(
        left[-1] + 1,
        top - 0.12,
        verdict if n_split else "each cluster in one fold",
        color=RED if n_split else "black",
        fontsize=11,
        ha="right",
    )
    return n_split
