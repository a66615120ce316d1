"""Whether run-length codes count by columns: measured, and drawn."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from kaggle_tfr.figures.grids import plot_grid
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.images.masks import decode_mask, measure_comb
from kaggle_tfr.schema import Labels

COMBS = (
    "The masks look like combs: their codes may count by rows. If so, set RLE_ORDER: "
    "rows."
)
MOST_MASKS = 50  # that are measured
MANY_COMBS = 0.75  # of them: thin lines and noise look like combs in either order


def draw_masks(images: pd.DataFrame, labels: Labels) -> tuple[Figure | None, str]:
    """Plot three of a sample of masks over grey images; return a warning as well.

    labels: of masks. Each image of the sample has its longest code. The warning is ""
    if few masks look like combs. Square images do not count: a mask fits them in both
    orders.
    """
    masked = images[(images["problem"] == "") & (images["label_name"] != "")]
    sample = masked.sample(min(len(masked), MOST_MASKS), random_state=0)
    tiles = list[np.ndarray]()
    is_comb = []
    for row in sample.to_dict("records"):
        height = row["height"]
        width = row["width"]
        code = max((row[name] for name in labels.label_columns), key=len)
        if height != width:
            is_comb.append(measure_comb(code, height, width) > 0)
        if len(tiles) < 3:
            [pixels] = load_pixels([row["path"]], side=max(height, width))
            grey = pixels.mean(axis=2).astype(np.uint8)
            red = np.where(decode_mask(code, height, width), 255, grey)
            tiles.append(np.dstack([red, grey, grey]))

    warning = COMBS if sum(is_comb) > MANY_COMBS * len(is_comb) else ""
    title = f"{len(tiles)} masks: if they do not fit their images, change RLE_ORDER"
    return plot_grid(tiles, [""] * 3, title=warning or title, side=2.6), warning
