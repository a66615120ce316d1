"""Pictures side by side under their titles; each function returns one closed Figure."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from kaggle_tfr.plots import new_figure, styled


@styled
def plot_grid(
    pictures: Sequence[np.ndarray],
    titles: Sequence[str],
    *,
    columns: int = 6,
    title: str = "",
    colors: Sequence[str] = (),
) -> Figure:
    """Pictures in rows, each under its title.

    pictures: uint8 (h, w, 3) arrays of any sizes.
    colors: of the titles, one a picture.
    """
    if not len(pictures):
        return _plot_nothing(title)
    columns = max(1, min(columns, len(pictures)))
    rows = -(-len(pictures) // columns)
    figure, axes = new_figure(rows, columns, 1.6 * columns + 0.2, 1.85 * rows + 0.4)
    for axis in axes.flat:
        axis.set_axis_off()
    for index, (axis, picture, text) in enumerate(zip(axes.flat, pictures, titles, strict=False)):
        axis.imshow(picture)
        color = colors[index] if len(colors) else "black"
        axis.set_title(text, fontsize=7.5, fontweight="normal", loc="center", color=color)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def _plot_nothing(title: str) -> Figure:
    figure, ((axis,),) = new_figure(1, 1, 4, 0.6)
    axis.set_axis_off()
    axis.text(0, 0.5, f"{title}: none" if title else "none", va="center")
    return figure


@styled
def plot_pairs(
    pictures: Sequence[tuple[np.ndarray, np.ndarray]],
    titles: Sequence[tuple[str, str]],
    *,
    title: str = "",
    pairs_a_row: int = 3,
) -> Figure:
    """Pairs of pictures side by side, each half under its own title.

    pictures: pairs of uint8 (h, w, 3) arrays.
    titles: (left, right), for instance id, label and distance.
    """
    if not len(pictures):
        return _plot_nothing(title)
    pairs_a_row = max(1, min(pairs_a_row, len(pictures)))
    rows = -(-len(pictures) // pairs_a_row)
    gap = [1, 1, 0.12] * pairs_a_row
    figure, axes = new_figure(
        rows,
        3 * pairs_a_row,
        3.6 * pairs_a_row,
        1.6 * rows + 0.4,
        gridspec_kw={"width_ratios": gap},
    )
    for axis in axes.flat:
        axis.set_axis_off()
    for index, (pair, texts) in enumerate(zip(pictures, titles, strict=True)):
        row, first = divmod(index, pairs_a_row)
        for half in (0, 1):
            axis = axes[row, 3 * first + half]
            axis.imshow(pair[half])
            axis.set_title(texts[half], fontsize=7.5, fontweight="normal", loc="center")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


@styled
def plot_masks(picture: np.ndarray, masks: Mapping[str, np.ndarray], title: str = "") -> Figure:
    """A picture and, beside it, the picture under each mask that is not empty.

    picture: uint8 (h, w, 3); masks: name → uint8 (h, w), 0 outside.
    """
    named = {name: mask for name, mask in masks.items() if np.any(mask)}
    figure, axes = new_figure(1, 1 + len(named), 2.8 * (1 + len(named)), 2.4)
    for axis in axes.flat:
        axis.set_axis_off()
        axis.imshow(picture)
    axes[0, 0].set_title(title, fontsize=8)
    for axis, (name, mask) in zip(axes[0, 1:], named.items(), strict=True):
        axis.imshow(np.ma.masked_equal(mask, 0), cmap="autumn", alpha=0.5)
        axis.set_title(name, fontsize=8)
    return figure
