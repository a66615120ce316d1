"""Choose the images with which 03 explains folds and resizing, by rule."""

from collections.abc import Iterable
from itertools import cycle, islice
from operator import itemgetter

import cv2
import numpy as np
import pandas as pd
from PIL import Image

from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.images.convert import ImageSettings, load_pixels

N_IMAGES = 12  # of the example of folds
# The most copies of the clusters of a class. With a single image, they fill three folds
# almost equally.
MAX_COPIES = (3, 2)
MAX_CANDIDATES = 12  # images that are decoded at their full size
MAX_SCALE = 1 / 3  # at exactly a half, `cv2.resize` is the mean of four pixels
FULL_SIZE = 100_000  # pixels: no side of a JPEG is longer


def choose_fold_example(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """Return twelve images of two classes, with two clusters of copies in each class.

    The classes are those with most copies, which need not be kept. Where a class has
    too few copies or images, images are repeated.
    clusters: of `load_clusters`. Columns: label, label_name, split ("train"), path, and
        cluster, from 0; an image without a copy has a number for itself.
    """
    good = match_clusters(images, clusters)
    good = good[good["problem"] == ""]
    labelled = good[good["split"] != "test"]
    table = labelled if len(labelled) else good
    n_copies = (table["cluster"] >= 0).groupby(table["label_name"]).sum()
    names = n_copies.sort_values(ascending=False, kind="stable").index[:2]

    rows = list[int]()
    numbers = list[int]()
    for name in names:
        of_class = table[table["label_name"] == name]
        for group in _choose_groups(of_class, N_IMAGES // len(names)):
            numbers += [len(set(numbers))] * len(group)
            rows += group
    example = table.loc[rows, ["label", "label_name", "path"]]
    example = example.assign(split="train", cluster=numbers)
    return example.reset_index(drop=True)


def _choose_groups(of_class: pd.DataFrame, n_images: int) -> list[list[int]]:
    """Return clusters of two or three rows, then single rows, `n_images` in all."""
    is_copy = of_class["cluster"] >= 0
    copies = of_class[is_copy].groupby("cluster").indices
    clusters = [of_class.index[is_copy][rows].tolist() for rows in copies.values()]
    clusters.sort(key=len, reverse=True)
    singles = of_class.index[~is_copy].tolist()

    groups = list[list[int]]()
    candidates = cycle([*clusters, *([row] for row in singles)])
    for max_copies, cluster in zip(MAX_COPIES, candidates, strict=False):
        n_copies = min(max(len(cluster), 2), max_copies)
        groups.append(_repeat(cluster, n_copies))
    n_left = n_images - sum(map(len, groups))
    others = [row for row in singles if [row, row] not in groups]
    others += [cluster[0] for cluster in clusters[len(MAX_COPIES) :]]
    return groups + [[row] for row in _repeat(others or groups[0], n_left)]


def _repeat(values: Iterable, count: int) -> list:
    """Return the first `count` values, from the start again where there are fewer."""
    return list(islice(cycle(values), count))


def load_textured(
    rows: pd.DataFrame, image: ImageSettings
) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the image in which aliasing is worst, and the size to shrink it to.

    Of the largest files in the most frequent format, it is the one in which plain
    `cv2.resize` loses most against a mean over areas.
    The image is uint8 (height, width, 3), red first. The size is (width, height): the
    short side of `image`, but at most a third of the image.
    """
    common = rows[rows["format"] == rows["format"].mode()[0]]
    largest = common.nlargest(MAX_CANDIDATES, "n_bytes")
    candidates = (_measure_aliasing(path, image) for path in largest["path"])
    _, pixels, size = max(candidates, key=itemgetter(0))
    return pixels, size


def _measure_aliasing(
    path: str, image: ImageSettings
) -> tuple[float, np.ndarray, tuple[int, int]]:
    """Return the loss of plain `cv2.resize` in dB, the pixels and the smaller size.

    Both ways to resize are compared with Lanczos's filter.
    """
    (pixels,) = load_pixels([path], side=FULL_SIZE)
    size = _find_smaller_size(pixels, image)
    resized = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS)
    reference = np.asarray(resized)
    averaged = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    plain = cv2.resize(pixels, size)
    loss = cv2.PSNR(reference, averaged) - cv2.PSNR(reference, plain)
    return loss, pixels, size


def _find_smaller_size(pixels: np.ndarray, image: ImageSettings) -> tuple[int, int]:
    """Return (width, height) with the short side of the records, or a third."""
    height, width, _ = pixels.shape
    scale = MAX_SCALE
    if image.size:
        scale = min(scale, min(image.size) / min(height, width))
    return max(1, round(width * scale)), max(1, round(height * scale))
