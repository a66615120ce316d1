"""Mean and standard deviation of the colour channels, exact over all pixels."""

from collections import defaultdict
from contextlib import suppress
from typing import Any

import cv2
import numpy as np
import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.images.convert import read_pixels
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.records import DamagedRecord, read_image_bytes
from kaggle_tfr.shards import SUMS, format_sums, read_sums
from kaggle_tfr.write.journal import write_json

# Sums over images: images, pixels, the values of each channel, and their squares.
# As int64, which is exact.
COLUMNS = ["images", "pixels", *"RGB", "RR", "GG", "BB"]


def sum_channels(pixels: np.ndarray) -> np.ndarray:
    """Return `COLUMNS` of one uint8 RGB image (height, width, 3): int64 (8,).

    They are 1 image, its pixels, the sum of each channel, and the sum of its squares.
    """
    # OpenCV adds up in float64, which is exact here.
    totals = cv2.sumElems(pixels)[:3]
    squares = [cv2.norm(channel, cv2.NORM_L2SQR) for channel in cv2.split(pixels)]
    return np.rint([1, pixels.size // 3, *totals, *squares]).astype(np.int64)


def describe_sums(sums: pd.Series) -> dict[str, Any]:
    """Return {"mean": {"R", "G", "B"}, "std": {…}, "images", "pixels"}.

    Mean and population standard deviation are in grey levels from 0 to 255.
    sums: images, pixels, R, G, B, RR, GG, BB (`COLUMNS`), with these names.
    """
    # Python's integers do not round: (n·Σx² − (Σx)²) / n² keeps every digit.
    exact = sums.astype(object)
    n = exact["pixels"]  # values of each channel
    totals = exact["R":"B"]
    variance = (n * exact["RR":].to_numpy() - totals**2) / n**2
    return {
        "mean": (totals / n).to_dict(),
        "std": (variance**0.5).to_dict(),
        "images": exact["images"],
        "pixels": n,
    }


def channel_stats_of_files(images: pd.DataFrame) -> pd.DataFrame:
    """Return the sums of the pixels of image files, one row per split.

    They give the mean and standard deviation of each channel, see `describe_sums`.
    Columns, int64: images (number of files), pixels, the sums of the values R, G, B,
    and of their squares RR, GG, BB.
    images: columns `split` and `path`. A file that cannot be read is left out; a split
    without a readable file has no row.
    """
    stats: Any = defaultdict(int)
    sums_of_files = parallel.run(_sum_file, images["path"], label="Pixels of files")
    for split, sums in zip(images["split"], sums_of_files, strict=True):
        stats[split] += sums  # 0 for a file that cannot be read
    return pd.DataFrame(stats, COLUMNS).T.query("images > 0")


def _sum_file(path: str) -> Any:
    """Return the sums of `sum_channels` of an image file, 0 if it cannot be read."""
    # No error: the writer reports images that were damaged after 01 read them.
    with suppress(FileNotFoundError, RejectedImage, DamagedRecord):
        return sum_channels(read_pixels(read_image_bytes(path)))
    return 0


def save_stats(stats: pd.DataFrame, part_dir: str) -> None:
    """Write stats.json of a part, and its line in SHA256SUMS.

    At its top it has mean, std, images and pixels of train, or of all splits together
    if there is no train; in "splits" those of each split.
    stats: `COLUMNS`, a row for each split.
    """
    path = f"{part_dir}/stats.json"
    splits = {split: describe_sums(sums) for split, sums in stats.iterrows()}
    train = splits.get("train") or describe_sums(stats.sum())
    write_json(path, train | {"splits": splits})
    # SHA256SUMS was written with the part, before its pixels were known.
    sums = read_sums(part_dir) | {"stats.json": storage.sha256_of(path)}
    storage.write_atomically(f"{part_dir}/{SUMS}", format_sums(sums))


def save_mean_rgb(stats: pd.DataFrame, origin: str, work_dir: str) -> None:
    """Write mean_rgb/{split}_{origin}.json; origin: "files" or "records".

    Each file has the form of ImageNet's pipelines: {"R": …, "G": …, "B": …}, from 0
    to 255.
    stats: `COLUMNS`, a row for each split.
    """
    for split, sums in stats.iterrows():
        path = storage.join(work_dir, f"mean_rgb/{split}_{origin}.json")
        write_json(path, describe_sums(sums)["mean"])
