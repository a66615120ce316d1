"""Figures of a plan and of what became of it; each function returns one closed Figure."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from kaggle_tfr.plots import BLUE, MANY_CLASSES, ORANGE, RED, new_figure, styled


@styled
def plot_folds(table: pd.DataFrame) -> Figure:
    """Images per fold and class: equal columns in a row mean a fair split.

    table: columns split, fold, label_name; one row an image.
    """
    group = _group_names(table)
    counts = pd.crosstab(table["label_name"], group)
    counts = counts.loc[counts.sum(axis=1).sort_values(ascending=False).index]
    if len(counts) > MANY_CLASSES:
        return _plot_many_folds(counts)
    height = 1.1 + 0.3 * max(len(counts), 2)
    figure, ((axis,),) = new_figure(1, 1, max(5.0, 2.2 + 0.65 * counts.shape[1]), height)
    shares = counts.div(counts.sum(axis=1), axis=0).to_numpy()
    axis.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=max(shares.max() * 1.3, 0.01))
    for (row, column), count in np.ndenumerate(counts.to_numpy()):
        color = "white" if shares[row, column] > 0.65 * shares.max() * 1.3 else "black"
        axis.text(column, row, f"{count:,}", ha="center", va="center", fontsize=8, color=color)
    axis.set_xticks(range(counts.shape[1]), counts.columns)
    axis.set_yticks(range(len(counts)), counts.index.astype(str))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    axis.set_title("Images per class and fold")
    return figure


@styled
def _plot_many_folds(counts: pd.DataFrame) -> Figure:
    figure, ((axis,),) = new_figure(1, 1, 7, 3.2)
    shares = counts.div(counts.sum(axis=1), axis=0)
    ranks = np.arange(1, len(counts) + 1)
    for column in shares:
        axis.plot(ranks, shares[column], linewidth=0.7, label=str(column), alpha=0.8)
    axis.set(
        xscale="log",
        xlabel="class, by rank",
        ylabel="share of the class in the fold",
        title=f"Share of each of {len(counts):,} classes per fold",
    )
    if counts.shape[1] <= 10:
        axis.legend(ncols=5, fontsize=7)
    return figure


def _group_names(table: pd.DataFrame) -> pd.Series:
    """'fold 0' inside the training split, the split's name outside."""
    fold = "fold " + table["fold"].astype(str)
    return fold.where(table["fold"] >= 0, table["split"])


@styled
def plot_shards(shards: pd.DataFrame) -> Figure:
    """Records per shard, a bar each, coloured by fold: equal heights mean equal work.

    shards: columns split, fold, part, count; one row a shard.
    """
    figure, ((axis,),) = new_figure(1, 1, 8, 3)
    groups = _group_names(shards)
    colors = plt.get_cmap("viridis")(np.linspace(0.15, 0.85, max(groups.nunique(), 2)))
    for color, (name, rows) in zip(colors, shards.groupby(groups.to_numpy()), strict=False):
        places = np.flatnonzero(groups.to_numpy() == name)
        axis.bar(places, rows["count"], color=color, width=0.85, label=name)
    parts = shards["part"].nunique()
    axis.set(
        xlabel="shard",
        ylabel="records",
        title=f"{len(shards):,} shards in {parts} part{'s' if parts > 1 else ''}",
    )
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if groups.nunique() <= 20:
        axis.legend(ncols=1, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


@styled
def plot_limits(rows: pd.DataFrame, title: str) -> Figure:
    """Bars with their uncertainty against a limit each.

    rows: index = what is measured, columns value, low, high, limit in one unit, and text, which
        stands beside the bar.
    """
    figure, ((axis,),) = new_figure(1, 1, 7, 0.9 + 0.42 * max(len(rows), 2))
    share = rows[["value", "low", "high"]].div(rows["limit"], axis=0) * 100
    fits = rows["high"] <= rows["limit"]
    axis.barh(rows.index, share["value"], color=np.where(fits, BLUE, RED))
    spread = [share["value"] - share["low"], share["high"] - share["value"]]
    axis.errorbar(
        share["value"],
        range(len(rows)),
        xerr=np.clip(spread, 0, None),
        fmt="none",
        ecolor="black",
        capsize=3,
        linewidth=0.9,
    )
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
    """Bytes of each shard, and the bound that was planned for it.

    shards: columns bytes and bytes_high; one row a shard.
    """
    figure, ((axis,),) = new_figure(1, 1, 8, 2.8)
    places = np.arange(len(shards))
    axis.bar(places, shards["bytes"] / 1e6, color=BLUE, width=0.85, label="written")
    axis.scatter(
        places, shards["bytes_high"] / 1e6, marker="_", color=ORANGE, s=120, label="at most"
    )
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="shard", ylabel="MB", title=title)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
