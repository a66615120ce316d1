"""Plots of limits, of JPEG qualities, and of records beside their sources."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kaggle_tfr.figures.canvas import new_plot
from kaggle_tfr.figures.grids import plot_images as plot_grid
from kaggle_tfr.figures.style import BLUE, GREY, ORANGE, RED, styled


@styled
def plot_limits(rows: pd.DataFrame, title: str) -> Figure | None:
    """Plot bars as shares of their limits; pale: to the upper end of the uncertainty.

    Where all are below 2 % of the limit, the texts are printed instead.
    rows: columns value, high, limit (one unit) and text, the label of the bar.
    """
    percent = 100 * rows[["value", "high"]].div(rows["limit"], axis=0)
    fits = rows["high"] <= rows["limit"]
    too_large = ", ".join(rows.index[~fits])
    title += f": too much for {too_large}" if too_large else ": all within"
    if percent["high"].max() < 2:
        print(title, *(rows.index + ": " + rows["text"]), sep="\n")
        return None

    # The texts are beside the axis, where no line crosses them.
    figure, axis = new_plot(8, 1 + 0.5 * len(rows), title)
    colors = np.where(fits, BLUE, RED)
    highest = percent.max(axis=1)
    axis.barh(rows.index, highest, 0.55, color=colors, alpha=0.4)
    axis.barh(rows.index, percent["value"], 0.55, color=colors)
    axis.axvline(100, color=ORANGE, linewidth=2)
    axis.set_yticks(range(len(rows)), rows.index + "\n" + rows["text"])
    axis.set_xlim(0, max(110, highest.max() * 1.05))
    axis.set_xlabel("% of the limit (orange line)")
    axis.invert_yaxis()
    return figure


@styled
def plot_quality(
    curve: pd.DataFrame, quality: int, resized: Mapping[str, float]
) -> Figure:
    """Plot PSNR against bytes of one image at several JPEG qualities.

    curve: columns quality (ascending), bytes, and psnr in dB. quality: the one that is
        chosen, which is in the curve.
    resized: PSNR of ways to resize, by their names; each is a horizontal line.
    """
    chosen = curve[curve["quality"] == quality].iloc[0]
    title = (
        f"Quality {quality}: {chosen['bytes'] / 1000:,.1f} kB, {chosen['psnr']:.1f} dB"
    )
    higher = curve[curve["quality"] > quality].head(1)
    for better in higher.itertuples():
        title += (
            f"; quality {better.quality}: {better.bytes / chosen['bytes']:.1f} × the "
            f"bytes, {better.psnr - chosen['psnr']:+.1f} dB"
        )
    figure, axis = new_plot(7, 3.6, title)
    kilobytes = curve["bytes"] / 1000
    axis.plot(kilobytes, curve["psnr"], "o-", color=BLUE, label="JPEG, by its quality")
    axis.plot(
        chosen["bytes"] / 1000,
        chosen["psnr"],
        "o",
        color=ORANGE,
        markersize=10,
        label=f"QUALITY = {quality}",
    )
    for label, x, y in zip(curve["quality"], kilobytes, curve["psnr"], strict=True):
        axis.annotate(
            f"{label:.0f}",
            (x, y),
            xytext=(0, -14),
            textcoords="offset points",
        )
    axis.margins(y=0.15)
    highest = max(resized, key=resized.__getitem__, default="")
    for name, decibels in resized.items():
        text = f"{name}, {decibels:.1f} dB"
        _draw_level(axis, text, decibels, curve, is_above=name == highest)
    axis.set_xlim(0)
    axis.set_xlabel("size of the file, kB")
    axis.set_ylabel("PSNR, dB; higher is closer")
    axis.plot([], [], "--", color=GREY, label="a way to resize")
    figure.legend(loc="outside lower left", ncols=3)
    return figure


def _draw_level(
    axis: Axes, text: str, decibels: float, curve: pd.DataFrame, *, is_above: bool
) -> None:
    """Draw a line at a PSNR, with a text and the quality that gives the same PSNR.

    is_above: whether the text is above its line. Of two lines that are close, only the
        upper one has room there.
    """
    psnr = curve["psnr"]
    if psnr.min() < decibels < psnr.max():
        quality = np.interp(decibels, psnr, curve["quality"])
        text += f", as quality {quality:.0f}"
    axis.axhline(decibels, color=GREY, linestyle="--", zorder=0)
    # The curve rises: high lines have room at the left, low ones at the right.
    is_high = decibels > (psnr.min() + psnr.max()) / 2
    axis.annotate(
        text,
        (0.01 if is_high else 0.99, decibels),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4 if is_above else -4),
        textcoords="offset points",
        ha="left" if is_high else "right",
        va="bottom" if is_above else "top",
    )


def _format_psnr(decibels: float) -> str:
    """Return a PSNR with its unit.

    >>> _format_psnr(38.25), _format_psnr(float("inf"))
    ('38.2 dB', 'equal pixels')
    """
    return f"{decibels:.1f} dB" if np.isfinite(decibels) else "equal pixels"


def plot_source_check(
    examples: Sequence[tuple[np.ndarray, np.ndarray]],
    compared: pd.DataFrame,
    title: str,
) -> Figure | None:
    """Plot sources, their records, and the records with red and blue swapped.

    examples, compared: of `load_source_examples`: source and record of each row, which
        has the columns image_id, psnr and psnr_swapped, in dB.
    """
    rows = [(source, record, record[..., ::-1]) for source, record in examples]
    values = compared[["image_id", "psnr", "psnr_swapped"]].to_numpy()
    captions = [
        (image_id, _format_psnr(psnr), _format_psnr(swapped))
        for image_id, psnr, swapped in values
    ]
    return plot_grid(
        list(chain(*rows)),
        list(chain(*captions)),
        columns=3,
        title=title,
        side=2.3,
        column_names=["source", "record", "red and blue swapped"],
    )
