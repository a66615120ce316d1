"""New plots, and the names and numbers beside their axes."""

from collections.abc import Collection
from typing import Any

import matplotlib.pyplot as plt
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from kaggle_tfr.figures.style import TITLE_INCHES
from kaggle_tfr.figures.words import shorten, wrap


def new_plot(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    """Make a closed figure with one plot. width, height: in inches."""
    figure, axis = plt.subplots(figsize=(width, height))
    plt.close(figure)
    figure.suptitle(
        wrap(title, int(width / TITLE_INCHES)),
        x=0.01,
        ha="left",
        fontsize=10,
        fontweight="bold",
    )
    return figure, axis


def set_log_ticks(axis: Axis) -> None:
    """Label 1, 2, 5, 10, 20, 50 … on a logarithmic axis, as plain numbers."""
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter(ticker.NullFormatter())


def name_rows(axis: Axes, names: Collection[Any]) -> None:
    labels = [shorten(str(name)) for name in names]
    axis.set_yticks(range(len(labels)), labels)
