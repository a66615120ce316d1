"""Every plot of the notebooks.

Each function returns one closed Figure, so that a notebook shows it once, or None after
it has printed a line where there is nothing to draw.
"""

from kaggle_tfr.figures.canvas import new_figure, save_figure
from kaggle_tfr.figures.explore import (
    plot_class_balance,
    plot_counts,
    plot_distances,
    plot_giveaways,
    plot_sizes,
)
from kaggle_tfr.figures.folds import plot_fold_strip, plot_folds
from kaggle_tfr.figures.grids import cut_square, load, plot_images
from kaggle_tfr.figures.plan import plot_source_check
from kaggle_tfr.figures.style import RED, styled
from kaggle_tfr.figures.training import (
    plot_inflation,
    plot_leakage,
    plot_learning,
    plot_predictions,
)
from kaggle_tfr.figures.words import (
    count_classes,
    count_drawn,
    count_of,
    list_marks,
    list_names,
    shorten,
)

__all__ = [
    "RED",
    "count_classes",
    "count_drawn",
    "count_of",
    "cut_square",
    "list_marks",
    "list_names",
    "load",
    "new_figure",
    "plot_class_balance",
    "plot_counts",
    "plot_distances",
    "plot_fold_strip",
    "plot_folds",
    "plot_giveaways",
    "plot_images",
    "plot_inflation",
    "plot_leakage",
    "plot_learning",
    "plot_predictions",
    "plot_sizes",
    "plot_source_check",
    "save_figure",
    "shorten",
    "styled",
]
