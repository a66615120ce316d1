"""Choose the images that the figures of 01 show."""

import numpy as np
import pandas as pd

from kaggle_tfr.explore.quality import FAULTS
from kaggle_tfr.figures import cut_square
from kaggle_tfr.figures.words import NO_LABEL
from kaggle_tfr.images.convert import load_pixels, read_truncated
from kaggle_tfr.images.hashing import HASHES
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.records import read_image_bytes

N_CANDIDATES = 60
WIDEST = 1.6  # ratio of the sides of an image in a lesson
MOST_CLASSES = 8
SAME_BITS = 25  # of 256: near-duplicates, as by the default of MAX_BITS


def choose_examples(images: pd.DataFrame, count: int = 1) -> pd.DataFrame:
    """Return good images for a lesson, the most colourful first, each of another class.

    They are chosen among 60 images that are sharper than half of all, neither dark nor
    narrow. Images of one class follow where there are fewer classes than `count`.
    """
    good = images[(images["problem"] == "") & (images["split"] != "test")]
    ratio = good["width"] / good["height"]
    is_clear = good["brightness"].between(60, 200) & ratio.between(1 / WIDEST, WIDEST)
    clear = good[is_clear] if is_clear.sum() >= count else good
    sharp = clear[clear["sharpness"] >= clear["sharpness"].median()]
    candidates = sharp if len(sharp) >= count else clear
    candidates = candidates.sample(min(N_CANDIDATES, len(candidates)), random_state=0)

    pixels = load_pixels(list(candidates["path"]), side=64)
    candidates = candidates.assign(color=[measure_color(image) for image in pixels])
    candidates = candidates.sort_values("color", ascending=False, kind="stable")
    rank_in_class = candidates.groupby("label_name").cumcount()
    order = np.argsort(rank_in_class, kind="stable")
    return candidates.iloc[order].head(count).drop(columns="color")


def measure_color(pixels: np.ndarray) -> float:
    """Return how colourful an image is, from 0 for a grey one to about 150.

    Source: Hasler and Süsstrunk, Measuring colourfulness in natural images, 2003.
    """
    red, green, blue = np.moveaxis(pixels.astype(np.float32), -1, 0)
    from_red_to_green = red - green
    from_yellow_to_blue = (red + green) / 2 - blue
    deviation = np.hypot(from_red_to_green.std(), from_yellow_to_blue.std())
    mean = np.hypot(from_red_to_green.mean(), from_yellow_to_blue.mean())
    return float(deviation + 0.3 * mean)


def load_per_class(
    images: pd.DataFrame, count: int
) -> tuple[list[np.ndarray | None], list[str]]:
    """Load `count` good images of each of the eight largest classes, and their names.

    They are spread over the rows of the class, and cut to their middle squares, so that
    all rows have the same height. A class with fewer images has None in place of the
    others.
    """
    good = images[(images["problem"] == "") & (images["split"] != "test")]
    largest = good["label_name"].value_counts().head(MOST_CLASSES)
    tiles: list[np.ndarray | None] = []
    for name, n_images in largest.items():
        positions = np.unique(np.arange(count) * n_images // count)
        paths = good["path"][good["label_name"] == name].iloc[positions]
        tiles += map(cut_square, load_pixels(list(paths), side=160))
        tiles += [None] * (count - len(positions))
    return tiles, [str(name) or NO_LABEL for name in largest.index]


def list_extremes(
    rated: pd.DataFrame, count: int
) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Return the `count` most extreme images of each fault, worst first.

    They come with a caption for each image, and a superlative for each fault. A
    near-duplicate of a displayed image is left out while there are others.
    rated: of `rate_images`.
    """
    count = min(count, len(rated))
    tables = []
    captions: list[str] = []
    for fault in FAULTS:
        worst = _choose_distinct(rated.nsmallest(8 * count, fault.column), count)
        tables.append(worst)
        captions += map(fault.caption.format, worst[fault.column])
    return pd.concat(tables), captions, [fault.superlative for fault in FAULTS]


def _choose_distinct(rated: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return the first `count` rows that are not near-duplicates, then the others."""
    words = rated[[*HASHES]].to_numpy(np.uint64)
    distinct = list[int]()
    similar = list[int]()
    for position, hashes in enumerate(words):
        bits = np.bitwise_count(words[distinct] ^ hashes).sum(axis=1)
        is_similar = (bits <= SAME_BITS).any()
        (similar if is_similar else distinct).append(position)
    return rated.iloc[sorted((distinct + similar)[:count])]


def load_damaged(
    rejected: pd.DataFrame, most: int
) -> tuple[list[np.ndarray], list[str]]:
    """Load what most libraries show of damaged JPEG files, and their ids and problems.

    Files of which nothing can be seen are left out.
    """
    is_damaged = rejected["problem"].str.match("truncated|damaged")
    tiles: list[np.ndarray] = []
    captions: list[str] = []
    columns = rejected.loc[is_damaged, ["image_id", "path", "problem"]]
    for image_id, path, problem in columns.to_numpy():
        if len(tiles) == most:
            break
        try:
            tiles.append(read_truncated(read_image_bytes(path)))
        except (OSError, RejectedImage):
            continue
        captions.append(f"{image_id}\n{problem}")
    return tiles, captions
