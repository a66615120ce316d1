"""Figures: each function returns one closed Figure, so that a notebook shows it once."""

from collections.abc import Mapping, Sequence
from contextlib import ContextDecorator
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from kaggle_tfr.images.header import squeeze

BLUE, ORANGE, GREY, RED = "#31688e", "#e07b39", "#9aa0a6", "#c0392b"
MANY_CLASSES = 40  # more names than this do not fit beside bars
STYLE: Any = dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.grid"), False)
STYLE |= {"figure.dpi": 110, "font.size": 9, "legend.frameon": False}
STYLE |= {"axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"}
# A decorator: the function plots in this module's style.
styled: ContextDecorator = plt.rc_context(STYLE)  # type: ignore[assignment]  # its stub says less


def new_figure(
    rows: int, columns: int, width: float, height: float, *, whole: Any = "", **options: Any
) -> tuple[Figure, np.ndarray]:
    """(Figure, axes of shape (rows, columns)), inches; closed, so a notebook shows it once.

    whole: "x" or "y", the axis with ticks at whole numbers only.
    """
    options |= {"figsize": (width, height), "layout": "constrained", "squeeze": False}
    figure, axes = plt.subplots(rows, columns, **options)
    for axis in axes.flat if whole else ():
        axis.locator_params(whole, integer=True)
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
    if len(counts) <= MANY_CLASSES:
        return plot_counts(counts, title, "images")
    figure, ((axis,),) = new_figure(1, 1, 7, 3.2)
    axis.loglog(np.arange(1, len(counts) + 1), counts.to_numpy(), color=BLUE)
    axis.set(xlabel="class, by rank", ylabel="images", title=f"{title} ({len(counts):,})")
    return figure


@styled
def plot_sizes(images: pd.DataFrame, sides: int = 0) -> Figure:
    """Width against height of good images, their aspect ratios; `sides`: target, 0 for none."""
    good = images[images["problem"] == ""]
    shown = good.sample(min(len(good), 20_000), random_state=0)
    figure, ((left, right),) = new_figure(1, 2, 9, 3.6, whole="y")
    left.scatter(shown["width"], shown["height"], s=8, alpha=0.35, color=BLUE, linewidths=0)
    longest = float(max(good["width"].max(), good["height"].max(), 1)) * 1.05
    left.plot([0, longest], [0, longest], color=GREY, linewidth=0.8, linestyle=":")
    if sides:
        left.axvline(sides, color=ORANGE, linewidth=1, label=f"target {sides} px")
        left.axhline(sides, color=ORANGE, linewidth=1)
        left.legend(loc="lower right")
    left.set(xlabel="width, pixels", ylabel="height, pixels", xlim=(0, longest), ylim=(0, longest))
    left.set_title(f"Sizes of {len(good):,} images")
    right.hist(good["width"] / good["height"], bins=40, color=BLUE)
    right.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    right.set(xlabel="width / height", ylabel="images", title="Aspect ratios")
    return figure


@styled
def plot_counts(counts: Mapping[str, int] | pd.Series, title: str, xlabel: str) -> Figure:
    """Horizontal bars of named counts, in the order given."""
    counts = pd.Series(counts, dtype="int64")
    figure, ((axis,),) = new_figure(1, 1, 7, 0.9 + 0.28 * max(len(counts), 2), whole="x")
    bars = axis.barh(counts.index.astype(str), counts.to_numpy(), color=BLUE)
    axis.bar_label(bars, fmt="{:,.0f}", padding=3)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set(xlabel=xlabel, title=title)
    return figure


@styled
def plot_histogram(values: pd.Series, title: str, xlabel: str) -> Figure:
    """A histogram with its median drawn in and named."""
    figure, ((axis,),) = new_figure(1, 1, 7, 2.6, whole="y")
    axis.hist(values, bins=min(40, max(5, len(values) // 3)), color=BLUE)
    if len(values):
        label = f"median {values.median():,.1f}"
        axis.axvline(values.median(), color=ORANGE, linewidth=1.2, label=label)
        axis.legend()
    axis.set(xlabel=xlabel, ylabel="images", title=title)
    return figure


@styled
def plot_distances(distances: pd.Series, max_bits: int) -> Figure:
    """A histogram of the bits of 256 in which pairs differ, with the radius drawn in."""
    figure, ((axis,),) = new_figure(1, 1, 7, 3, whole="y")
    edges = np.arange(-0.5, max(int(distances.max()) if len(distances) else 0, max_bits) + 1.5)
    inside, outside = distances[distances <= max_bits], distances[distances > max_bits]
    axis.hist(inside, bins=edges, color=BLUE, label=f"within MAX_BITS: {len(inside):,} pairs")
    if len(outside):
        axis.hist(outside, bins=edges, color=GREY, label=f"beyond it: {len(outside):,} pairs")
    axis.axvline(max_bits + 0.5, color=ORANGE, linewidth=1.2)
    if len(distances) and axis.get_ylim()[1] > 200:
        axis.set_yscale("symlog", linthresh=10)
    axis.set(xlabel="differing bits of 256", ylabel="pairs", title="How far apart the pairs are")
    axis.legend()
    return figure


@styled
def plot_grid(
    pictures: Sequence[np.ndarray],
    titles: Sequence[str],
    *,
    columns: int = 6,
    title: str = "",
    gap: float = 0.0,
    side: float = 1.7,
) -> Figure:
    """Pictures (uint8 or uint16 (h, w, 3), any sizes) in rows, each under its title.

    gap: after every second column, as a share of a column. side: inches for a picture.
    """
    columns = min(columns, max(1, len(pictures)))
    rows = max(1, -(-len(pictures) // columns))
    ratios = [1.0, 1.0, gap] * max(1, columns // 2) if gap else [1.0] * columns
    size = (side * sum(ratios), side * rows + 0.4) if len(pictures) else (4, 0.4)
    figure, axes = new_figure(rows, len(ratios), *size, width_ratios=ratios)
    for axis in axes.flat:
        axis.set_axis_off()
    cells = axes[:, np.equal(ratios, 1)].ravel()
    for axis, picture, text in zip(cells, pictures, titles, strict=False):
        axis.imshow(squeeze(picture))
        axis.set_title(text, fontsize=7.5, fontweight="normal", loc="center", y=1.0)
    if title or not len(pictures):
        said = title if len(pictures) else f"{title}: none".lstrip(": ")
        figure.suptitle(said, x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def plot_pairs(
    pictures: Sequence[tuple[np.ndarray, ...]], titles: Sequence[tuple[str, ...]], title: str = ""
) -> Figure:
    """Pairs of pictures (uint8 (h, w, 3)) side by side, each half under its own title."""
    return plot_grid([*chain(*pictures)], [*chain(*titles)], title=title, gap=0.12)


def plot_masks(picture: np.ndarray, masks: Mapping[str, np.ndarray], title: str = "") -> Figure:
    """A picture, (h, w, 3), and again under each mask, uint8 (h, w), that is not all 0."""
    named = {name: mask[..., None] for name, mask in masks.items() if np.any(mask)}
    picture = squeeze(picture)
    lit = (picture // 2 + np.array([127, 60, 0])).astype(np.uint8)
    covered = [np.where(mask, lit, picture) for mask in named.values()]
    return plot_grid([picture, *covered], [title, *named], columns=5, side=2.6)


@styled
def plot_folds(table: pd.DataFrame) -> Figure:
    """Images per class and fold (rows with split, fold, label_name): equal columns are fair."""
    table = table[(table["split"] != "test") | (table["label_name"].astype(str) != "")]
    counts = pd.crosstab(table["label_name"], _name_folds(table))
    counts = counts.loc[counts.sum(axis=1).sort_values(ascending=False).index]
    shares = counts.div(counts.sum(axis=1), axis=0).to_numpy()
    if len(counts) > MANY_CLASSES:
        figure, ((axis,),) = new_figure(1, 1, 7, 3.2)
        ranks = np.arange(1, len(counts) + 1)
        axis.plot(ranks, shares, linewidth=0.7, label=counts.columns.astype(str), alpha=0.8)
        axis.set(xscale="log", xlabel="class, by rank", ylabel="share of the class in the fold")
        axis.set_title(f"Share of each of {len(counts):,} classes per fold")
        if counts.shape[1] <= 10:
            axis.legend(ncols=5, fontsize=7)
        return figure
    size = max(5.0, 2.2 + 0.65 * counts.shape[1]), 1.1 + 0.3 * max(len(counts), 2)
    figure, ((axis,),) = new_figure(1, 1, *size)
    _draw_counts(axis, counts, shares, darkest=max(shares.max() * 1.3, 0.01))
    axis.set_title("Images per class and fold")
    return figure


def _draw_counts(axis: Axes, counts: pd.DataFrame, shares: np.ndarray, darkest: float) -> AxesImage:
    """A table of numbers, coloured by their shares from 0 to `darkest`."""
    image = axis.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=darkest)
    for (row, column), count in np.ndenumerate(counts.to_numpy()):
        color = "white" if shares[row, column] > 0.65 * darkest else "black"
        axis.text(column, row, f"{count:,}", ha="center", va="center", fontsize=8, color=color)
    axis.set_xticks(range(counts.shape[1]), counts.columns.astype(str))
    axis.set_yticks(range(len(counts)), counts.index.astype(str))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    return image


def _name_folds(table: pd.DataFrame) -> pd.Series:
    """'fold 0' inside the training split, the split's name outside, and what never validates."""
    fold = "fold " + table["fold"].astype(str)
    others = table["split"].replace("train", "train, never\nvalidates")
    return fold.where(table["fold"] >= 0, others)


@styled
def plot_shards(shards: pd.DataFrame) -> Figure:
    """Records per shard (rows with split, fold, part, count), a bar each, coloured by fold."""
    figure, ((axis,),) = new_figure(1, 1, 8, 3, whole="x")
    groups = _name_folds(shards)
    colors = plt.get_cmap("viridis")(np.linspace(0.15, 0.85, max(groups.nunique(), 2)))
    for color, (name, rows) in zip(colors, shards.groupby(groups.to_numpy()), strict=False):
        places = np.flatnonzero(groups.to_numpy() == name)
        axis.bar(places, rows["count"], color=color, width=0.85, label=name)
    parts = shards["part"].nunique()
    axis.set_title(f"{len(shards):,} shards in {parts} part{'s' if parts > 1 else ''}")
    axis.set(xlabel="shard", ylabel="records")
    if groups.nunique() <= 20:
        axis.legend(ncols=1, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


@styled
def plot_limits(rows: pd.DataFrame, title: str) -> Figure:
    """Bars, each with its uncertainty, limit and text (columns value, low, high, limit, text)."""
    figure, ((axis,),) = new_figure(1, 1, 7, 0.9 + 0.42 * max(len(rows), 2))
    share = rows[["value", "low", "high"]].div(rows["limit"], axis=0) * 100
    fits = rows["high"] <= rows["limit"]
    axis.barh(rows.index, share["value"], color=np.where(fits, BLUE, RED))
    spread = [share["value"] - share["low"], share["high"] - share["value"]]
    look: Any = {"fmt": "none", "ecolor": "black", "capsize": 3, "linewidth": 0.9}
    axis.errorbar(share["value"], range(len(rows)), xerr=np.clip(spread, 0, None), **look)
    for place, row in enumerate(rows.itertuples()):
        axis.text(share["high"].iloc[place] + 2, place, row.text, va="center")
    axis.axvline(100, color=ORANGE, linewidth=1.2, label="limit")
    axis.set_xlim(0, max(130.0, float(share["high"].max()) * 1.4))
    axis.invert_yaxis()
    axis.set(xlabel="% of the limit", title=title)
    axis.legend(loc="lower right")
    return figure


@styled
def plot_written(shards: pd.DataFrame, title: str = "Written against the forecast") -> Figure:
    """Bytes of each shard, and the bound planned for it (columns bytes and bytes_high)."""
    figure, ((axis,),) = new_figure(1, 1, 8, 2.8, whole="x")
    places, megabytes = np.arange(len(shards)), shards[["bytes", "bytes_high"]] / 1e6
    axis.bar(places, megabytes["bytes"], color=BLUE, width=0.85, label="written")
    axis.scatter(places, megabytes.bytes_high, marker="_", color=ORANGE, s=120, label="at most")
    axis.set(xlabel="shard", ylabel="MB", title=title)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


@styled
def plot_learning(history: Mapping[str, Sequence[float]]) -> Figure:
    """Each metric by epoch, training and validation, of the history of `model.fit`."""
    names = [name for name in history if f"val_{name}" in history]
    # Keras divides the loss of validation by the padding too.
    names = [name for name in names if name != "loss"] or names
    figure, axes = new_figure(1, len(names), 3.9 * len(names), 2.9, whole="x")
    for axis, name in zip(axes.flat, names, strict=True):
        epochs = np.arange(1, len(history[name]) + 1)
        axis.plot(epochs, history[name], ".-", color=GREY, label="training")
        axis.plot(epochs, history[f"val_{name}"], ".-", color=BLUE, label="validation")
        limits = {"xlim": (0.5, len(epochs) + 0.5), "ylim": (0, None)}
        axis.set(title=name.capitalize().replace("_", " "), xlabel="epoch", **limits)
        axes.flat[0].legend()
    return figure


@styled
def plot_confusion(confusions: pd.DataFrame, classes: Sequence[Any]) -> Figure:
    """True class by predicted class: the share of each row as colour, images as numbers.

    confusions: columns true, predicted (indices of `classes`), images; one row a pair that occurs.
    Of more than 40 classes those of the most frequent wrong pairs are shown.
    """
    wrong = confusions[confusions["true"] != confusions["predicted"]]
    wrong = wrong.sort_values("images", ascending=False, kind="stable")
    worst = pd.unique(wrong[["true", "predicted"]].to_numpy().ravel())[:MANY_CLASSES]
    several = len(classes) > MANY_CLASSES
    shown = sorted(worst.tolist()) if several else list(range(len(classes)))
    counts = confusions.pivot_table("images", "true", "predicted", aggfunc="sum")
    counts = counts.reindex(index=shown, columns=shown).fillna(0).astype("int64")
    all_of = confusions.groupby("true")["images"].sum().reindex(shown).fillna(0).clip(lower=1)
    shares = counts.div(all_of, axis=0).to_numpy()
    names = [str(classes[number]) for number in shown]
    counts = counts.set_axis(names, axis=0).set_axis(names, axis=1)
    side = min(12, 2 + 0.55 * max(len(names), 6))
    figure, ((axis,),) = new_figure(1, 1, side + 1.2, side)
    image = _draw_counts(axis, counts, shares, darkest=1.0)
    figure.colorbar(image, ax=axis, label="share of the true class", shrink=0.8)
    axis.tick_params(axis="x", rotation=90 if len(names) > 8 else 0)
    what = f": {len(names)} of {len(classes):,} classes, the most confused" if several else ""
    axis.set(xlabel="predicted", ylabel="true", title=f"Confusions in validation{what}")
    return figure
