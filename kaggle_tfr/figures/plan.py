"""Plots of records beside their sources."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from kaggle_tfr.figures.grids import plot_images as plot_grid


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
