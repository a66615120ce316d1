"""The eight orientations of EXIF: their names, and applying one.

An orientation is a number from 1 (upright) to 8. It describes how to change the stored
pixels so that the image is upright: first transpose, then reverse rows and columns.
"""

import numpy as np

Size = tuple[int, int]  # two sides of an image, in pixels; height and width in convert

ORIENTATIONS = {
    1: "upright",
    2: "mirrored",
    3: "rotated 180°",
    4: "upside down",
    5: "transposed",
    6: "rotated 90° clockwise",
    7: "transversed",
    8: "rotated 90° counterclockwise",
}
TRANSPOSED = (5, 6, 7, 8)
ROWS_REVERSED = (3, 4, 7, 8)  # top to bottom, after transposing
COLUMNS_REVERSED = (2, 3, 6, 7)  # left to right, after transposing


def apply_orientation(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return a view of the pixels (rows, columns, …), changed by an orientation.

    orientation: 1 to 8. That of EXIF makes the stored pixels upright. Rows and columns
    are first transposed, then reversed, each if the orientation needs it.
    """
    if orientation in TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    if orientation in ROWS_REVERSED:
        pixels = pixels[::-1]
    if orientation in COLUMNS_REVERSED:
        pixels = pixels[:, ::-1]
    return pixels


def transpose_size(size: Size, orientation: int) -> Size:
    """Return the two sides of an image, swapped if an orientation (5 to 8) does so."""
    return size[::-1] if orientation in TRANSPOSED else size
