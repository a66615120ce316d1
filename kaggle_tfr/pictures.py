"""Which pictures to show, and the pictures, loaded small."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kaggle_tfr.images import RefusedImage, read_pixels
from kaggle_tfr.storage import read_bytes

MISSING = np.full((64, 64, 3), 230, np.uint8)  # a light square in place of what cannot be read


def sample_per_class(images: pd.DataFrame, count: int, classes: int = 8) -> pd.DataFrame:
    """Up to `count` good images of each of the `classes` largest classes, the same every time."""
    good = images[images["problem"] == ""]
    largest = good["label_name"].value_counts().index[:classes]
    rows = [good[good["label_name"] == name].head(count) for name in largest]
    return pd.concat(rows) if rows else good


def load_pictures(paths: Sequence[str], side: int = 256) -> list[np.ndarray]:
    """uint8 (h, w, 3) arrays, decoded as small as `side` pixels allows; grey where unreadable."""
    return [_load_picture(path, side) for path in paths]


def _load_picture(path: str, side: int) -> np.ndarray:
    try:
        return read_pixels(read_bytes(path), at_least=(side, side))
    except (OSError, RefusedImage):
        return MISSING
