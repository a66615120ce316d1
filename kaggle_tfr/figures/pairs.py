"""Pairs of near-duplicates: side by side, and moved onto each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from kaggle_tfr.figures.grids import cut_square, load, plot_images
from kaggle_tfr.figures.style import BLUE, ORANGE
from kaggle_tfr.images.orientation import apply_orientation

CAPTION = ("image_id", "split", "label_name")
SQUARES = 5  # of a chequerboard, in a row


def plot_pairs(pairs: pd.DataFrame, most: int = 12, title: str = "") -> Figure | None:
    """Plot the first pairs: both images with id, split and label, below their distance.

    pairs: rows of `deduplicate.Found.pairs`. The second image is rotated as the first
    one is. Two labels that contradict each other have two colours.
    """
    images: list[np.ndarray] = []
    captions: list[str] = []
    colors: list[str] = []
    headings: list[str] = []
    for pair in pairs.head(most).to_dict("records"):
        images.append(load(pair["path_a"]))
        images.append(apply_orientation(load(pair["path_b"]), pair["orientation"]))
        captions += [
            "\n".join(pair[f"{name}_{side}"] for name in CAPTION) for side in "ab"
        ]
        labels = {pair["label_name_a"], pair["label_name_b"]} - {""}
        colors += [BLUE, ORANGE] if len(labels) == 2 else ["black", "black"]
        headings.append(f"{pair['bits']} of 256 bits")
    return plot_images(
        images,
        captions,
        colors=colors,
        together=2,
        headings=headings,
        title=title,
    )


def plot_aligned(pairs: pd.DataFrame, headings: Sequence[str]) -> Figure | None:
    """Plot each pair as three squares: a; b moved onto a; and a chequerboard of both.

    Edges run on across the squares where both images contain the same. White is
    outside b. A pair without a transform is not moved, only cut to the shape of a.
    """
    tiles: list[np.ndarray] = []
    captions: list[str] = []
    for pair in pairs.to_dict("records"):
        image = load(pair["path_a"])
        first = cut_square(image)
        second = cut_square(_move(image, pair))
        rows, columns = np.indices(first.shape[:2]) * SQUARES // len(first)
        is_second = (rows + columns) % 2 == 1
        tiles += [first, second, np.where(is_second[..., None], second, first)]
        numbers = f"bits: {pair['bits']}\nmatches: {pair['matches']}"
        captions += [pair["image_id_a"], pair["image_id_b"], numbers]
    return plot_images(tiles, captions, together=3, headings=headings)


def _move(image: np.ndarray, pair: Any) -> np.ndarray:
    """Return image b of a pair on the grid of image a."""
    other = Image.fromarray(load(pair["path_b"]))
    size = image.shape[1::-1]  # width, height
    if pair["transform"] is None:
        return np.asarray(ImageOps.fit(other, size))

    matrix = np.vstack([pair["transform"], (0, 0, 1)])
    matrix[:2] *= min(size)  # its unit is the short side
    matrix[:2, :2] /= min(other.size)
    onto_b = np.linalg.inv(matrix)[:2]  # as Pillow takes it
    moved = other.transform(
        size,
        Image.Transform.AFFINE,
        onto_b.ravel().tolist(),
        Image.Resampling.BICUBIC,
        fillcolor="white",
    )
    return np.asarray(moved)
