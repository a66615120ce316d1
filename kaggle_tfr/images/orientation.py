"""The eight orientations of EXIF: their names, inverses, and applying one.

An orientation is a number from 1 (upright) to 8. It describes how to change the stored
pixels so that the image is upright: first transpose, then reverse rows and columns.
"""

from dataclasses import dataclass

import numpy as np

Size = tuple[int, int]  # two sides of an image, in pixels; height and width in convert


@dataclass(frozen=True)
class Orientation:
    """How an orientation changes the stored pixels. Transposing comes first."""

    name: str
    transposes: bool  # swaps height and width
    reverses_rows: bool  # top to bottom
    reverses_columns: bool  # left to right


ORIENTATIONS = {
    1: Orientation("upright", False, False, False),
    2: Orientation("mirrored", False, False, True),
    3: Orientation("rotated 180°", False, True, True),
    4: Orientation("upside down", False, True, False),
    5: Orientation("transposed", True, False, False),
    6: Orientation("rotated 90° clockwise", True, False, True),
    7: Orientation("transversed", True, True, True),
    8: Orientation("rotated 90° counterclockwise", True, True, False),
}
INVERSE = {number: number for number in ORIENTATIONS} | {6: 8, 8: 6}


def apply_orientation(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return a view of the pixels (rows, columns, …), changed by an orientation."""
    change = ORIENTATIONS[orientation]
    if change.transposes:
        pixels = pixels.swapaxes(0, 1)
    if change.reverses_rows:
        pixels = pixels[::-1]
    if change.reverses_columns:
        pixels = pixels[:, ::-1]
    return pixels


def transpose_size(size: Size, orientation: int) -> Size:
    """Return the two sides of an image, swapped if an orientation transposes it."""
    return size[::-1] if ORIENTATIONS[orientation].transposes else size
