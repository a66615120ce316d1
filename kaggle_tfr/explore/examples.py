"""Choose the images that the figures of 01 show."""

import numpy as np
import pandas as pd

from kaggle_tfr.explore.quality import FAULTS
from kaggle_tfr.figures import cut_square
from kaggle_tfr.figures.words import NO_LABEL
from kaggle_tfr.images.convert import Pixels, load_pixels, read_truncated
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.records import read_image_bytes

N_CANDIDATES = 60
MOST_CLASSES = 8


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
    order = np.argsort(colors)[::-1]
    return _put_repeats_last(sharpest.iloc[order], "label_name").head(count)


def load_per_class(
    labelled: pd.DataFrame, count: int
) -> tuple[list[Pixels | None], list[str]]:
    """Load `count` images of each of the eight largest classes, and their names.

    labelled: good images. They are chosen at random, and cut to their middle squares,
    so that all rows have the same height. A class with fewer images has None in place
    of the others.
    """
    largest = labelled["label_name"].value_counts().head(MOST_CLASSES)
    shuffled = labelled.sample(frac=1, random_state=0)
    tiles: list[Pixels | None] = []
    for name in largest.index:
        is_of_class = shuffled["label_name"] == name
        paths = shuffled["path"][is_of_class].head(count)
        tiles += map(cut_square, load_pixels(list(paths), side=160))
        tiles += [None] * (count - len(paths))
    return tiles, [str(name) or NO_LABEL for name in largest.index]


def list_extremes(
    rated: pd.DataFrame, count: int
) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Return the `count` images with the lowest values of each measure, lowest first.

    They come with a caption for each image, and the names of the measures. A copy, with
    an equal average hash, is left out while there are others.
    rated: of `rate_images`.
    """
    tables = []
    captions: list[str] = []
    for fault in FAULTS:
        lowest = rated.sort_values(fault.column, kind="stable")
        distinct = _put_repeats_last(lowest, "average").head(count)
        tables.append(distinct)
        values = distinct[fault.column]
        captions += [f"{value:.2f}, limit {fault.limit:g}" for value in values]
    measures = [fault.column for fault in FAULTS]
    return pd.concat(tables), captions, measures


def _put_repeats_last(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Move the rows that repeat a value of the column to the end."""
    is_repeat = table[column].duplicated()
    return pd.concat([table[~is_repeat], table[is_repeat]])


def load_damaged(rejected: pd.DataFrame, most: int) -> tuple[list[Pixels], list[str]]:
    """Load what most libraries show of damaged JPEG files, and their ids and problems.

    Files of which nothing can be seen are left out.
    """
    is_damaged = rejected["problem"].str.match("truncated|damaged")
    columns = rejected.loc[is_damaged, ["image_id", "path", "problem"]]
    tiles: list[Pixels] = []
    captions: list[str] = []
    for image_id, path, problem in columns.to_numpy():
        if len(tiles) == most:
            break
        try:
            data = read_image_bytes(path)
            tiles.append(read_truncated(data))
        except (OSError, RejectedImage):
            continue
        captions.append(f"{image_id}\n{problem}")
    return tiles, captions
