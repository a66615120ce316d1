"""Plots of folds: the images of each class, and the lesson on twelve images."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kaggle_tfr.figures.canvas import name_rows, new_plot
from kaggle_tfr.figures.grids import WIDTH, cut_square
from kaggle_tfr.figures.style import BLUE, GREY, MANY_CLASSES, RED
from kaggle_tfr.figures.words import NO_LABEL, list_marks, shorten
from kaggle_tfr.tables import count_of

NEVER_VALIDATES = "train, never\nvalidates"
BAR_LENGTH = 0.5  # of the longest bar in a column of a table of counts
FOLD_COLORS = ("#31688e", "#35b779", "#f2b134")  # none is red
FOLD_INKS = ("white", "black", "black")  # of numbers that are readable on these colours


def plot_folds(table: pd.DataFrame, label_columns: Sequence[str] = ()) -> Figure | None:
    """Plot images per class and fold, or print a line where all images are in one.

    Of more than 40 classes, the largest are shown.
    table: rows with split, fold and label_name. label_columns: of images that may have
    several labels; one row of the figure is one label then.
    """
    counts = _count_by_fold(table, label_columns)
    if counts.shape[1] < 2:
        print(f"No folds: all {count_of(len(table), 'image')} are in one.")
        return None

    is_fold = counts.columns.str.startswith(("fold", "validation"))
    n_missing = int((counts.loc[:, is_fold] == 0).any(axis=1).sum())
    title = f"Classes that are not in every fold: {n_missing:,} of {len(counts):,}"
    shown = counts.head(MANY_CLASSES)
    if len(shown) < len(counts):
        title += f" ({len(shown)} largest shown)"
    figure, axis = new_plot(WIDTH, 1.1 + 0.3 * len(shown), title)
    unit = BAR_LENGTH / max(shown.to_numpy().max(initial=0), 1)
    for (row, column), count in np.ndenumerate(shown.to_numpy()):
        color = BLUE if is_fold[column] else GREY
        text_color = RED if is_fold[column] and not count else "black"
        end = column + unit * count
        axis.barh(row, unit * count, 0.6, left=column, color=color)
        axis.text(end + 0.04, row, f"{count:,}", va="center", color=text_color)
    name_rows(axis, shown.index)
    axis.set_xticks(range(shown.shape[1]), shown.columns, ha="left")
    axis.xaxis.tick_top()
    axis.set(xlim=(-0.02, shown.shape[1]), ylim=(len(shown) - 0.5, -0.5))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    return figure


def _count_by_fold(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Count labelled images by class (rows, largest first) and fold (columns)."""
    table = table[(table["label_name"] != "") | (table["split"] != "test")]
    split_names = table["split"].replace("train", NEVER_VALIDATES)
    fold_names = "fold " + table["fold"].astype(str)
    columns = fold_names.where(table["fold"] >= 0, split_names)
    if label_columns:
        counts = list_marks(table, label_columns).groupby(columns).sum().T
    else:
        counts = pd.crosstab(table["label_name"].replace("", NO_LABEL), columns)
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    return counts.iloc[order]


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
