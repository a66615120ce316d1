"""Mean and standard deviation of the colour channels, exact over all pixels."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
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

# Sums over images: "images", "pixels", the values "R", "G", "B", and their squares
# "RR", "GG", "BB". As Python's integers, which are exact.
Sums = Counter[str]
Stats = dict[Any, Sums]  # by split, or by part folder and split


def sum_channels(pixels: np.ndarray) -> Sums:
    """Return the exact sums of one uint8 image (height, width, 3)."""
    sums: Sums = Counter(images=1, pixels=pixels.size // 3)
    for name, channel in zip("RGB", cv2.split(pixels), strict=True):
        # OpenCV adds up in float64, which is exact here.
        sums[name] = round(cv2.sumElems(channel)[0])
        sums[name * 2] = round(cv2.norm(channel, cv2.NORM_L2SQR))
    return sums


def describe_sums(sums: Sums) -> dict[str, Any]:
    """Return {"mean": {"R", "G", "B"}, "std": {…}, "images", "pixels"}.

    Mean and population standard deviation are in grey levels from 0 to 255.
    """
    n = sums["pixels"]
    mean = {name: sums[name] / n for name in "RGB"}
    # Integers do not round: (n·Σx² − (Σx)²) / n² keeps every digit.
    std = {
        name: ((n * sums[name * 2] - sums[name] ** 2) / n**2) ** 0.5 for name in "RGB"
    }
    return {"mean": mean, "std": std, "images": sums["images"], "pixels": n}


def channel_stats_of_files(images: pd.DataFrame) -> Stats:
    """Return the sums over every pixel of image files, by split.

    images: columns `split` and `path`. Files that cannot be read are left out.
    """
    stats: Stats = defaultdict(Counter)
    sums_of_files = parallel.run(_sum_file, images["path"], label="Pixels of files")
    for split, sums in zip(images["split"], sums_of_files, strict=True):
        stats[split].update(sums)
    return stats


def _sum_file(path: str) -> Sums:
    # The writer reports images that were damaged after they were measured.
    with suppress(FileNotFoundError, RejectedImage, DamagedRecord):
        return sum_channels(read_pixels(read_image_bytes(path)))
    return Counter()


def save_stats(stats: Stats, part_dir: str) -> None:
    """Write stats.json of a part, and its line in SHA256SUMS.

    It has mean, std, images and pixels of train, or of all splits together if there is
    no train, and of each split.
    stats: by split.
    """
    path = f"{part_dir}/stats.json"
    splits = {split: describe_sums(stats[split]) for split in sorted(stats)}
    train = stats.get("train") or sum(stats.values(), Counter())
    _write_json(path, describe_sums(train) | {"splits": splits})
    sums = read_sums(part_dir) | {"stats.json": storage.sha256_of(path)}
    storage.write_atomically(f"{part_dir}/{SUMS}", format_sums(sums).encode())


def save_mean_rgb(stats: Stats, origin: str, work_dir: str) -> None:
    """Write mean_rgb/{split}_{origin}.json; origin: "files" or "records".

    Each file has the form of ImageNet's pipelines: {"R": …, "G": …, "B": …}.
    stats: by split.
    """
    for split, sums in stats.items():
        path = storage.join(work_dir, f"mean_rgb/{split}_{origin}.json")
        _write_json(path, describe_sums(sums)["mean"])


def _write_json(path: str, values: Mapping[str, Any]) -> None:
    text = json.dumps(values, indent=1) + "\n"
    storage.write_atomically(path, text.encode())
