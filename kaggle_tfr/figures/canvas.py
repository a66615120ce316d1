"""New figures, their axes, and saving them."""

import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from kaggle_tfr.figures.style import TITLE_INCHES, StyledFigure
from kaggle_tfr.figures.words import shorten, wrap
from kaggle_tfr.storage import is_remote, write_atomically


def new_figure(
    width: float,
    height: float,
    title: str = "",
    *,
    rows: int = 1,
    columns: int = 1,
    **options: Any,
) -> tuple[Figure, np.ndarray]:
    """Make a closed figure with a title, and its axes (rows, columns).

    width, height: in inches. options: of `plt.subplots`.
    """
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(width, height),
        layout="constrained",
        squeeze=False,
        FigureClass=StyledFigure,
        **options,
    )
    plt.close(figure)
    text = wrap(title, int(width / TITLE_INCHES))
    figure.suptitle(
        text,
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    return figure, axes


def new_plot(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """Make a figure with one plot, of that size in inches."""
    figure, axes = new_figure(width, height, title)
    return figure, axes[0, 0]


def set_log_ticks(axis: Axis) -> None:
    """Label 1, 2, 5, 10, 20, 50 … on a logarithmic axis, as plain numbers."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter(ticker.NullFormatter())


def save_figure(figure: Figure | None, folder: str, name: str) -> Figure | None:
    """Save the figure as `folder/figures/name.png` in a local folder, and return it.

    figure: None, where a line was printed instead, removes the copy of an earlier run.
    The picture is cut as a notebook cuts it: with all texts, also those outside.
    """
    if is_remote(folder):
        return figure

    path = Path(folder) / "figures" / f"{name}.png"
    path.unlink(missing_ok=True)
    if figure:
        png = io.BytesIO()
        figure.savefig(png, bbox_inches="tight")
        write_atomically(path, png.getvalue())
    return figure


def name_rows(axis: Axes, names: Collection[Any]) -> None:
    labels = [shorten(str(name)) for name in names]
    axis.set_yticks(range(len(labels)), labels)
