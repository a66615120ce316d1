"""Plots of folds: the images of each class, and the lesson on twelve images."""

from collections.abc import Collection, Mapping, Sequence
from string import ascii_uppercase

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kaggle_tfr.figures.canvas import name_rows, new_plot, set_log_ticks
from kaggle_tfr.figures.grids import cut_square
from kaggle_tfr.figures.style import BLUE, GREY, MANY_CLASSES, RED, styled
from kaggle_tfr.figures.words import (
    NO_LABEL,
    count_classes,
    count_of,
    list_marks,
    list_names,
    shorten,
)

NEVER_VALIDATES = "train, never\nvalidates"
BAR_LENGTH = 0.5  # of the longest bar in a column of a table of counts
FOLD_COLORS = ("#31688e", "#35b779", "#f2b134")  # none is red
FOLD_INKS = ("white", "black", "black")  # of numbers that are readable on these colours


@styled
def plot_folds(table: pd.DataFrame, label_columns: Sequence[str] = ()) -> Figure | None:
    """Plot images per class and fold, or print a line where all images are in one.

    For more than 40 classes: how far each is from its share of each fold, in images.
    table: rows with split, fold and label_name. label_columns: of images that may have
    several labels; one row of the figure is one label then.
    """
    has_label = table["label_name"] != ""
    table = table[has_label | (table["split"] != "test")]
    counts = _count_by_fold(table, label_columns)
    classes = count_classes(table["label_name"], label_columns)
    if counts.shape[1] < 2:
        print(f"No folds: {count_of(len(table), 'image')} of {classes} in one")
        return None

    # Test images, and training images that never validate beside folds, have no share
    # that they should have.
    has_folds = (table["fold"] >= 0).any()
    noun = "fold" if has_folds else "split"
    without_share = ["test", NEVER_VALIDATES] if has_folds else ["test"]
    compared = counts.drop(columns=without_share, errors="ignore")
    title = f"{classes} × {count_of(compared.shape[1], noun)}: "
    excess = _subtract_fair_shares(compared)
    incomplete = _find_incomplete(compared)
    if len(incomplete):
        title += _describe_incomplete(compared.loc[incomplete], noun)
    else:
        furthest = np.abs(excess).max()
        title += f"none is off its share by more than {furthest:.1f} images"

    if len(counts) > MANY_CLASSES:
        return _plot_excess(excess, title)
    figure = _plot_count_bars(counts, compared.columns, title)
    label = "images"
    if len(incomplete):
        label += f"; red: none, so no score of this {noun} covers the class"
    figure.axes[0].set_xlabel(label, loc="left")
    return figure


def _find_incomplete(counts: pd.DataFrame) -> pd.Index:
    """Return the classes (rows) that are missing from some folds, but not from all."""
    is_missing = counts.min(axis=1) == 0
    is_present = counts.max(axis=1) > 0
    return counts.index[is_missing & is_present]


def _describe_incomplete(counts: pd.DataFrame, noun: str) -> str:
    """Return which classes (rows) are missing, and of a single one also from where.

    >>> counts = pd.DataFrame({"fold 0": [2], "fold 1": [0], "fold 2": [0]}, ["cat"])
    >>> _describe_incomplete(counts, "fold")
    'cat is missing from folds 1 and 2'
    """
    if len(counts) > 1:
        return f"{list_names(counts.index)} are missing from a {noun}"

    places = counts.columns[counts.iloc[0] == 0].str.removeprefix("fold ")
    *others, last = places.str.replace(NEVER_VALIDATES, "train")
    listed = f"{', '.join(others)} and {last}" if others else last
    if noun == "fold":
        listed = f"folds {listed}" if others else f"fold {listed}"
    return f"{list_names(counts.index)} is missing from {listed}"


def _count_by_fold(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Count images by class or label (rows, largest first) and fold (columns)."""
    split_names = table["split"].replace("train", NEVER_VALIDATES)
    fold_names = "fold " + table["fold"].astype(str)
    columns = fold_names.where(table["fold"] >= 0, split_names)
    if label_columns:
        counts = list_marks(table, label_columns).groupby(columns).sum().T
    else:
        names = table["label_name"].replace("", NO_LABEL)
        counts = pd.crosstab(names, columns)
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    return counts.iloc[order]


def _subtract_fair_shares(counts: pd.DataFrame) -> np.ndarray:
    """Return how many images each cell (class × fold) has more than its fair share."""
    images = counts.to_numpy()
    class_totals = images.sum(axis=1)
    fold_shares = images.sum(axis=0) / max(1, images.sum())
    return images - np.outer(class_totals, fold_shares)


def _plot_excess(excess: np.ndarray, title: str) -> Figure:
    figure, axis = new_plot(7, 3.2, title)
    axis.hist(excess.ravel(), bins=61, color=BLUE, log=True)
    axis.set(xlabel="images more than its share", ylabel="classes × folds")
    set_log_ticks(axis.yaxis)
    return figure


def _plot_count_bars(
    counts: pd.DataFrame, compared: Collection[str], title: str
) -> Figure:
    """Plot a table of counts with a bar in each cell, as long as the count.

    compared: columns where a class that other columns have is in red if it is missing.
    """
    width = max(7.0, 2.2 + 0.85 * counts.shape[1])
    height = 1.1 + 0.3 * max(len(counts), 2)
    figure, axis = new_plot(width, height, title)
    unit = BAR_LENGTH / max(counts.to_numpy().max(initial=0), 1)
    incomplete = _find_incomplete(counts[[*compared]])
    for (row, column), count in np.ndenumerate(counts.to_numpy()):
        is_compared = counts.columns[column] in compared
        is_missing = is_compared and not count and counts.index[row] in incomplete
        bar_color = BLUE if is_compared else GREY
        axis.barh(row, unit * count, 0.6, left=column, color=bar_color)
        if is_missing:
            axis.barh(row, 0.9, 0.9, left=column, color=RED, alpha=0.15)
        axis.text(
            column + unit * count + 0.04,
            row,
            f"{count:,}",
            va="center",
            color=RED if is_missing else "black",
            fontweight="bold" if is_missing else "normal",
        )
    name_rows(axis, counts.index)
    axis.set_xticks(range(counts.shape[1]), counts.columns.astype(str), ha="left")
    axis.xaxis.tick_top()
    axis.xaxis.set_label_position("bottom")
    axis.set_xlim(-0.02, counts.shape[1])
    axis.set_ylim(len(counts) - 0.5, -0.5)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    return figure


def draw_counts(axis: Axes, counts: pd.DataFrame, *, by_row: bool = True) -> None:
    """Draw a table of numbers; the darker a cell, the larger its share.

    by_row: the share of the row, otherwise of the whole table.
    """
    totals = counts.sum(axis=1)
    if not by_row:
        totals[:] = totals.sum()
    shares = counts.div(totals.clip(lower=1), axis=0).to_numpy()
    axis.imshow(
        shares,
        aspect="auto",
        cmap="Blues",
        vmin=0,
        # A half of the colours, so that black numbers are readable on each of them.
        vmax=2 * shares.max(initial=0),
    )
    for (row, column), count in np.ndenumerate(counts.to_numpy()):
        axis.text(
            column,
            row,
            f"{count:,}",
            ha="center",
            va="center",
            fontsize=9,
        )
    axis.set_xticks(range(counts.shape[1]), counts.columns.astype(str))
    name_rows(axis, counts.index)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


@styled
def plot_fold_strip(
    images: Sequence[np.ndarray],
    example: pd.DataFrame,
    folds: Mapping[str, Sequence[np.ndarray]],
) -> Figure:
    """Plot a row of images with their clusters, and a row of folds for each splitter.

    A cluster that is in several folds is framed in red.
    images: uint8 (height, width, 3). example: label_name and cluster of each image; the
        images of a class, and those of a cluster, are neighbours.
    folds: by splitter, the rows of each of at most three folds.
    """
    groups = example.groupby("cluster").indices.values()
    clusters = [np.asarray(rows) for rows in groups if len(rows) > 1]
    fold_numbers = {name: _number_folds(rows) for name, rows in folds.items()}
    n_split = [_count_split(clusters, numbers) for numbers in fold_numbers.values()]
    title = (
        f"{next(iter(folds))} splits {n_split[0]} of {len(clusters)} clusters of "
        f"copies, the other splitters {max(n_split[1:]) or 'none'}"
    )
    bottom = 1.55 + 1.7 * len(folds)
    figure, axis = new_plot(7.4, 0.6 * (bottom + 1.65), title)
    left = _draw_classes(axis, images, example["label_name"])
    for letter, rows in zip(ascii_uppercase, clusters, strict=False):
        _draw_bracket(axis, left[rows], letter)
    for number, (name, numbers) in enumerate(fold_numbers.items()):
        top = 2.1 + 1.7 * number
        _draw_fold_row(axis, top, left, numbers, clusters)
        _name_fold_row(axis, top, name, numbers, clusters)
    caption = (
        "The number is the fold in which an image validates. Red: copies of it are in "
        "other folds,\nso the model has been trained on what it is tested with."
    )
    axis.text(0.03, bottom + 0.1, caption, fontsize=10, va="top")
    axis.set_xlim(left[0], left[-1] + 1)
    axis.set_ylim(bottom + 0.8, -0.5)
    axis.set(aspect="equal", xticks=[], yticks=[], frame_on=False)
    return figure


def _number_folds(folds: Sequence[np.ndarray]) -> np.ndarray:
    """Return the fold of each row: int (n,). folds: the rows of each fold."""
    numbers = np.repeat(range(len(folds)), [len(rows) for rows in folds])
    return numbers[np.argsort(np.concatenate(folds))]


def _count_split(clusters: Sequence[np.ndarray], fold_numbers: np.ndarray) -> int:
    """Count the clusters, arrays of rows, that are in several folds."""
    return sum(len(set(fold_numbers[rows])) > 1 for rows in clusters)


def _draw_classes(
    axis: Axes, images: Sequence[np.ndarray], label_names: pd.Series
) -> np.ndarray:
    """Draw numbered images in a row, classes a third of an image apart, with names.

    Returns the left edge of each image: float (n,); an image is 1 wide.
    """
    codes, names = pd.factorize(label_names)
    left = np.arange(len(images)) + codes / 3
    for number, (start, image) in enumerate(zip(left, images, strict=True)):
        axis.imshow(cut_square(image), extent=(start + 0.03, start + 0.97, 0.97, 0.03))
        axis.text(
            start + 0.09,
            0.1,
            str(number),
            fontsize=9,
            va="top",
            bbox={"color": "white", "pad": 1.5},
        )
    for code, name in enumerate(names):
        middle = left[codes == code].mean() + 0.5
        text = shorten(str(name or NO_LABEL), 30)
        axis.text(middle, -0.12, text, fontsize=12, ha="center")
    return left


def _draw_bracket(axis: Axes, left: np.ndarray, letter: str) -> None:
    """Draw a bracket with a letter below neighbouring images."""
    start = left[0] + 0.1
    end = left[-1] + 0.9
    axis.plot([start, start, end, end], [1.04, 1.14, 1.14, 1.04], color="black")
    axis.text((start + end) / 2, 1.24, letter, fontsize=11, ha="center", va="top")


def _draw_fold_row(
    axis: Axes,
    top: float,
    left: np.ndarray,
    fold_numbers: np.ndarray,
    clusters: Sequence[np.ndarray],
) -> None:
    """Draw a square in the colour of its fold below each image, and frame clusters."""
    for start, fold in zip(left, fold_numbers, strict=True):
        color = FOLD_COLORS[fold]
        axis.add_patch(Rectangle((start + 0.1, top + 0.1), 0.8, 0.7, color=color))
        axis.text(
            start + 0.5,
            top + 0.45,
            str(fold),
            color=FOLD_INKS[fold],
            fontsize=12,
            fontweight="bold",
            ha="center",
            va="center_baseline",
        )
    for rows in clusters:
        is_split = len(set(fold_numbers[rows])) > 1
        frame = Rectangle(
            (left[rows[0]] + 0.06, top),
            len(rows) - 0.12,
            0.9,
            fill=False,
            edgecolor=RED if is_split else GREY,
            linewidth=2.5 if is_split else 1,
        )
        axis.add_patch(frame)


def _name_fold_row(
    axis: Axes,
    top: float,
    name: str,
    fold_numbers: np.ndarray,
    clusters: Sequence[np.ndarray],
) -> None:
    """Write the splitter above its row of folds, their sizes, and what it splits."""
    sizes = " + ".join(map(str, np.bincount(fold_numbers)))
    n_split = _count_split(clusters, fold_numbers)
    text = axis.text(0.03, top - 0.12, name, fontsize=11, fontweight="bold")
    axis.annotate(f"   {sizes} images", (1, 0), xycoords=text, fontsize=11, va="bottom")
    verdict = f"{n_split} of {len(clusters)} clusters in several folds"
    if not n_split:
        verdict = "each cluster in one fold"
    axis.annotate(
        verdict,
        (1, top - 0.12),
        xycoords=("axes fraction", "data"),
        color=RED if n_split else "black",
        fontsize=11,
        ha="right",
    )
