"""Figures: each function returns one closed Figure, so that a notebook shows it once."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

BLUE, ORANGE, GREY, RED, GREEN = "#31688e", "#e07b39", "#9aa0a6", "#c0392b", "#35825b"
MANY_CLASSES = 40  # more names than this do not fit beside bars
STYLE = {
    "figure.dpi": 110,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "legend.frameon": False,
}


def styled(plot):
    """A function that plots in the house's style; for use as a decorator."""
    return plt.rc_context(STYLE)(plot)


def new_figure(rows: int, columns: int, width: float, height: float, **options):
    """(Figure, axes of shape (rows, columns)), inches; closed, so a notebook shows it once."""
    figure, axes = plt.subplots(
        rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **options
    )
    plt.close(figure)
    return figure, axes


def save_figure(figure: Figure, folder: str, name: str) -> Figure:
    """The figure itself, after a copy went to `folder/figures/name.png` (local folders only)."""
    if "://" not in str(folder):
        path = Path(folder) / "figures" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    return figure


@styled
def plot_class_balance(label_names: pd.Series, title: str = "Images per class") -> Figure:
    """Bars of images per class, largest first; a curve over ranks when there are many classes."""
    counts = label_names.value_counts()
    if len(counts) > MANY_CLASSES:
        figure, ((axis,),) = new_figure(1, 1, 7, 3.2)
        axis.loglog(np.arange(1, len(counts) + 1), counts.to_numpy(), color=BLUE)
        axis.set(xlabel="class, by rank", ylabel="images", title=f"{title} ({len(counts):,})")
        return figure
    figure, ((axis,),) = new_figure(1, 1, 7, 0.9 + 0.26 * max(len(counts), 2))
    bars = axis.barh(counts.index.astype(str), counts.to_numpy(), color=BLUE)
    axis.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=3)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set(xlabel="images", title=title)
    return figure


@styled
def plot_sizes(images: pd.DataFrame, sides: int = 0) -> Figure:
    """Width against height of every good image, and the spread of their aspect ratios.

    sides: the target in pixels, drawn as a line; 0 for none.
    """
    good = images[images["problem"] == ""]
    shown = good.sample(min(len(good), 20_000), random_state=0)
    figure, ((left, right),) = new_figure(1, 2, 9, 3.6)
    left.scatter(shown["width"], shown["height"], s=8, alpha=0.35, color=BLUE, linewidths=0)
    longest = float(max(good["width"].max(), good["height"].max(), 1)) * 1.05
    left.plot([0, longest], [0, longest], color=GREY, linewidth=0.8, linestyle=":")
    if sides:
        left.axvline(sides, color=ORANGE, linewidth=1, label=f"target {sides} px")
        left.axhline(sides, color=ORANGE, linewidth=1)
        left.legend(loc="lower right")
    left.set(
        xlabel="width, pixels",
        ylabel="height, pixels",
        title=f"Sizes of {len(good):,} images",
        xlim=(0, longest),
        ylim=(0, longest),
    )
    aspect = good["width"] / good["height"]
    right.hist(aspect, bins=40, color=BLUE)
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    right.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    right.set(xlabel="width / height", ylabel="images", title="Aspect ratios")
    return figure


@styled
def plot_counts(counts: Mapping[str, int] | pd.Series, title: str, xlabel: str) -> Figure:
    """Horizontal bars of named counts, in the order given."""
    counts = pd.Series(counts, dtype="int64")
    names, values = counts.index.astype(str), counts.to_numpy()
    figure, ((axis,),) = new_figure(1, 1, 7, 0.9 + 0.28 * max(len(names), 2))
    bars = axis.barh(names, values, color=BLUE)
    axis.bar_label(bars, labels=[f"{value:,}" for value in values], padding=3)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axis.set(xlabel=xlabel, title=title)
    return figure


@styled
def plot_histogram(values: pd.Series, title: str, xlabel: str) -> Figure:
    """A histogram with its median drawn in and named."""
    figure, ((axis,),) = new_figure(1, 1, 7, 2.6)
    axis.hist(values, bins=min(40, max(5, len(values) // 3)), color=BLUE)
    if len(values):
        middle = values.median()
        axis.axvline(middle, color=ORANGE, linewidth=1.2, label=f"median {middle:,.1f}")
        axis.legend()
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel=xlabel, ylabel="images", title=title)
    return figure


@styled
def plot_distances(distances: pd.Series, max_bits: int) -> Figure:
    """A histogram of the bits in which pairs differ, with the radius drawn in.

    distances: bits of 256, one a pair, up to the largest distance looked at.
    """
    figure, ((axis,),) = new_figure(1, 1, 7, 3)
    edges = np.arange(-0.5, max(int(distances.max()) if len(distances) else 0, max_bits) + 1.5)
    inside, outside = distances[distances <= max_bits], distances[distances > max_bits]
    axis.hist(inside, bins=edges, color=BLUE, label=f"within MAX_BITS: {len(inside):,} pairs")
    if len(outside):
        axis.hist(outside, bins=edges, color=GREY, label=f"beyond it: {len(outside):,} pairs")
    axis.axvline(max_bits + 0.5, color=ORANGE, linewidth=1.2)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    if len(distances) and axis.get_ylim()[1] > 200:
        axis.set_yscale("symlog", linthresh=10)
    axis.set(xlabel="differing bits of 256", ylabel="pairs", title="How far apart the pairs are")
    axis.legend()
    return figure
