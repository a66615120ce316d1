"""Measure how bright and how sharp an image is, on the luma that is hashed."""

import cv2
import numpy as np

TILES = 3  # along each side; all pixels would take longer than the hashes
SIDE = 64  # pixels of a tile, at most


def measure_quality(luma: np.ndarray) -> tuple[float, float]:
    """Return the brightness and the sharpness, both in grey levels of 255.

    luma: of `check_image`, uint8 (height, width).
    brightness: the mean. sharpness: the root mean square of the Laplacian in the
    sharpest of nine tiles, so that a sharp flower on a blurred ground is sharp.
    """
    height, width = luma.shape
    powers = [
        _measure_edges(luma[top : top + SIDE, left : left + SIDE])
        for top in _place_tiles(height)
        for left in _place_tiles(width)
    ]
    # Rounded, because processors add in different orders.
    return round(cv2.mean(luma)[0], 2), round(max(powers) ** 0.5, 2)


def _place_tiles(length: int) -> list[int]:
    """Return where the tiles begin: at both edges, and evenly between."""
    room = max(0, length - SIDE)
    return [room * number // (TILES - 1) for number in range(TILES)]


def _measure_edges(tile: np.ndarray) -> float:
    """Return the mean of the squared Laplacian."""
    laplacian = cv2.Laplacian(tile, cv2.CV_16S)
    return cv2.norm(laplacian, cv2.NORM_L2SQR) / laplacian.size
