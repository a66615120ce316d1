"""Plots of 01 and 02: classes, sizes, giveaways, distances."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kaggle_tfr.figures.canvas import name_rows, new_figure, new_plot, set_log_ticks
from kaggle_tfr.figures.style import BLUE, GREY, MANY_CLASSES, ORANGE, RED, styled
from kaggle_tfr.figures.words import (
    NO_LABEL,
    count_classes,
    count_of,
    list_marks,
    shorten,
)
from kaggle_tfr.parameters import as_size


@styled
def plot_class_balance(label_names: pd.Series, labels: pd.DataFrame) -> Figure | None:
    """Plot images per class, largest first: bars, or a curve for many classes.

    labels: the label columns of images that may have several, and then a bar is a
    label; no column otherwise.
    """
    images = count_of(len(label_names), "image")
    columns = labels.columns.tolist()
    title = f"{images} of {count_classes(label_names, columns)}"
    if label_names.empty:
        print(f"{title}: there is nothing to draw")
        return None

    if columns:
        marks = list_marks(labels, columns)
        counts = marks.sum().sort_values(ascending=False)
    else:
        counts = label_names.replace("", NO_LABEL).value_counts()
    title += f", {counts.min():,} to {counts.max():,} each"
    title += f", median {counts.median():,.0f}"
    if len(counts) <= MANY_CLASSES:
        return plot_counts(counts, title, "images")

    figure, axis = new_plot(7, 3.2, title)
    ranks = np.arange(1, len(counts) + 1)
    axis.loglog(ranks, counts.to_numpy(), color=BLUE)
    axis.set(xlabel="rank of the class", ylabel="images")
    set_log_ticks(axis.xaxis)
    set_log_ticks(axis.yaxis)
    return figure


@styled
def plot_sizes(
    images: pd.DataFrame, image_size: int | Sequence[int] = ()
) -> Figure | None:
    """Plot width against height of good images, and a histogram of aspect ratios.

    The axes are logarithmic: small images have room beside large ones.

    image_size: of the records to write, one number or [height, width]; drawn as lines.
    """
    good = images[images["problem"] == ""]
    if good.empty:
        print("There is no good image, so there are no sizes to draw")
        return None

    title = ""
    size = as_size(image_size) if image_size else ()
    if size:
        height, width = size
        n_smaller = ((good["height"] < height) | (good["width"] < width)).sum()
        n_images = count_of(len(good), "image")
        title = (
            f"{n_smaller:,} of {n_images} have a side below IMAGE_SIZE = {image_size}"
        )
    figure, axes = new_figure(6, 7, title, rows=2, height_ratios=[2, 1])
    _draw_widths_and_heights(axes[0, 0], good, size)
    if size:
        _draw_image_size(axes[0, 0], size)
    _draw_aspect_ratios(axes[1, 0], good["width"] / good["height"])
    return figure


def _draw_widths_and_heights(
    axis: Axes, images: pd.DataFrame, size: Sequence[int]
) -> None:
    """Draw a point for each image, in a frame that contains `size`, too."""
    sides = images[["width", "height"]]
    shortest = sides.min(axis=1)
    least = shortest.min()
    most = shortest.max()
    title = f"Short sides of {least:,.0f} to {most:,.0f} pixels"
    if least == most:
        title = f"All short sides have {most:,.0f} pixels"

    sample = sides.sample(min(len(sides), 20_000), random_state=0)
    axis.scatter(
        sample["width"],
        sample["height"],
        s=9,
        alpha=0.35,
        color=BLUE,
    )
    axis.set(xscale="log", yscale="log")
    axis.axline((1, 1), (10, 10), color=GREY, linestyle=":")
    drawn = [*sides.min(), *sides.max(), *size]
    limits = (min(drawn) / 1.1, max(drawn) * 1.1)
    axis.set(xlim=limits, ylim=limits)
    set_log_ticks(axis.xaxis)
    set_log_ticks(axis.yaxis)
    axis.set_title(title)
    axis.set_xlabel("width, pixels")
    axis.set_ylabel("height, pixels")


def _draw_image_size(axis: Axes, size: Sequence[int]) -> None:
    """Draw the size of the records, (height, width), as two lines."""
    height, width = size
    axis.axhline(height, color=ORANGE, label="IMAGE_SIZE")
    axis.axvline(width, color=ORANGE)
    axis.legend()


def _draw_aspect_ratios(axis: Axes, ratios: pd.Series) -> None:
    """Draw a histogram of width divided by height, from 1:4 to 4:1."""
    bins = np.geomspace(1 / 4, 4, 41).tolist()
    axis.hist(ratios.clip(1 / 4, 4), bins=bins, color=BLUE)
    axis.axvline(1, color=GREY, linestyle=":")
    axis.set(xscale="log", xlabel="width : height", ylabel="images")
    axis.set_xticks(
        [1 / 4, 1 / 2, 1, 2, 4],
        ["≤ 1:4", "1:2", "1:1", "2:1", "≥ 4:1"],
    )
    axis.minorticks_off()
    axis.locator_params("y", integer=True)
    wide = (ratios > 1).mean()
    tall = (ratios < 1).mean()
    title = f"{wide:.0%} are wide, {tall:.0%} are tall"
    if wide == tall == 0:
        title = "All are square"
    axis.set_title(title)


@styled
def plot_giveaways(
    above: pd.DataFrame, facts: pd.DataFrame, targets: Mapping[str, pd.Series]
) -> Figure | None:
    """Plot the best fact of each target by class, one below the other.

    above: target, fact, score and chance of scores above chance, the best first. facts:
    a column for each fact of the files. targets: the classes of the images, by name.
    """
    best = above[above["fact"].isin(facts.columns)].drop_duplicates("target")
    if best.empty:
        print("No single fact of the files is above chance: there is nothing to draw")
        return None

    heights = [0.9 + 0.32 * targets[name].nunique() for name in best["target"]]
    figure, axes = new_figure(7, sum(heights), rows=len(best), height_ratios=heights)
    for axis, row in zip(axes[:, 0], best.itertuples(), strict=True):
        shares = f"{row.score:.0%} right, by chance {row.chance:.0%}"
        axis.set_title(f"By {row.fact}, a file {row.target}: {shares}")
        classes = targets[str(row.target)]
        table = pd.DataFrame({"class": classes, "value": facts[row.fact]}).dropna()
        if pd.api.types.is_numeric_dtype(table["value"]):
            _draw_values(axis, table)
        else:
            _draw_shares(axis, table)
        axis.invert_yaxis()
    return figure


def _draw_values(axis: Axes, table: pd.DataFrame) -> None:
    """Draw the spread of a number in each class: all, the middle half, the median."""
    names = table["class"].value_counts().index
    groups = [table["value"][table["class"] == name].to_numpy() for name in names]
    positions = list(range(len(groups)))
    boxes = axis.boxplot(
        groups,
        positions=positions,
        orientation="horizontal",
        whis=(5, 95),
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        medianprops={"color": ORANGE, "linewidth": 2},
    )
    for box in boxes["boxes"]:
        box.set(facecolor=BLUE, alpha=0.6, edgecolor=BLUE)
    name_rows(axis, names)
    axis.xaxis.set_major_formatter("{x:,.10g}")
    axis.set_xlabel("line: nine tenths of the class; box: half of it; orange: median")


def _draw_shares(axis: Axes, table: pd.DataFrame) -> None:
    """Draw the share of each text in each class, from left to right."""
    names = table["class"].value_counts().index
    frequent = table["value"].value_counts().index[:4]
    values = table["value"].where(table["value"].isin(frequent), "other")
    shares = pd.crosstab(table["class"], values, normalize="index").loc[names]
    colors = [BLUE, ORANGE, GREY, RED, "#6b4c9a"]
    starts = np.zeros(len(shares))
    for value, color in zip(shares, colors, strict=False):
        widths = 100 * shares[value].to_numpy()
        label = shorten(str(value) or "(none)", 24)
        axis.barh(range(len(shares)), widths, left=starts, color=color, label=label)
        starts += widths
    name_rows(axis, names)
    axis.set(xlim=(0, 100), xlabel="% of the class")
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))


@styled
def plot_counts(
    counts: Mapping[str, int] | pd.Series, title: str, xlabel: str
) -> Figure:
    """Plot named counts as horizontal bars, in their order."""
    counts = pd.Series(counts, dtype=float)
    figure, axis = new_plot(6, 0.9 + 0.28 * max(len(counts), 2), title)
    bars = axis.barh(range(len(counts)), counts.to_numpy(), color=BLUE)
    axis.bar_label(bars, fmt="{:,.0f}", padding=3)
    name_rows(axis, counts.index)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.locator_params("x", integer=True)
    axis.set_xlabel(xlabel)
    return figure


@styled
def plot_distances(distances: pd.Series, max_bits: int) -> Figure | None:
    """Plot a histogram of the bits of 256 in which pairs differ, with the radius."""
    inside = distances[distances <= max_bits]
    outside = distances[distances > max_bits]
    pairs = count_of(len(inside), "pair")
    title = f"{pairs} within {max_bits} bits, {len(outside):,} beyond"
    if distances.empty:
        print(title)
        return None

    figure, axis = new_plot(6, 3, title)
    longest = max(distances.max(), max_bits)
    axis.hist(
        [inside, outside],
        bins=np.arange(-0.5, longest + 1.5).tolist(),
        stacked=True,
        color=[BLUE, GREY],
    )
    axis.locator_params("y", integer=True)
    if axis.get_ylim()[1] > 200:
        axis.set_yscale("symlog", linthresh=10)
        axis.yaxis.set_major_formatter("{x:,.0f}")
    axis.axvline(max_bits + 0.5, color=ORANGE, label=f"MAX_BITS = {max_bits}")
    axis.legend()
    axis.set(xlabel="differing bits of 256", ylabel="pairs")
    return figure
