"""Figures that several notebooks need: images, pairs, folds.

Each function returns one Figure, which a cell shows as its last value, or None after it
has printed a line where there is nothing to draw.
"""

from kaggle_tfr.figures.folds import plot_folds
from kaggle_tfr.figures.grids import load, plot_images, plot_pairs
from kaggle_tfr.figures.style import RED, set_log_ticks
from kaggle_tfr.figures.words import shorten
