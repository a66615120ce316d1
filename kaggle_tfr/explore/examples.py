"""Choose and load images for the figures of several notebooks."""

from contextlib import suppress

import numpy as np
import pandas as pd

from kaggle_tfr.images.convert import Pixels, load_pixels, read_truncated
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.records import read_image_bytes

N_CANDIDATES = 60


def choose_examples(images: pd.DataFrame, count: int = 1) -> pd.DataFrame:
    """Return good images for a lesson, the most colourful first, each of another class.

    They are chosen among the 60 sharpest images. Images of one class follow where there
    are fewer classes than `count`.
    """
    is_good = images["problem"] == ""
    is_test = images["split"] == "test"
    good = images[is_good & ~is_test]
    sharpest = good.nlargest(N_CANDIDATES, "sharpness")

    pixels = load_pixels(list(sharpest["path"]), side=64)
    # The more a pixel's red, green and blue differ, the more colour it has.
    colors = [np.ptp(image, axis=-1).mean() for image in pixels]
    colorful = sharpest.iloc[np.argsort(colors)[::-1]]
    is_repeat = colorful["label_name"].duplicated()
    return pd.concat([colorful[~is_repeat], colorful[is_repeat]]).head(count)


def load_damaged(rejected: pd.DataFrame, most: int) -> tuple[list[Pixels], list[str]]:
    """Load what most libraries show of damaged JPEG files, and their ids and problems.

    Files of which nothing can be seen are left out.
    """
    is_damaged = rejected["problem"].str.match("truncated|damaged")
    tiles: list[Pixels] = []
    captions: list[str] = []
    for row in rejected[is_damaged].itertuples():
        if len(tiles) < most:
            with suppress(OSError, RejectedImage):
                tiles.append(read_truncated(read_image_bytes(str(row.path))))
                captions.append(f"{row.image_id}\n{row.problem}")
    return tiles, captions
