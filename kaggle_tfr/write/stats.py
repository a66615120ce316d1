"""Mean and standard deviation of the colour channels, exact over all pixels."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
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

BLOCK = 32  # files of one task

# Sums over images: "images", "pixels", the values "R", "G", "B", and their squares
# "RR", "GG", "BB".
Sums = Counter[str]
Stats = dict[str, Sums]  # by split


def sum_channels(pixels: np.ndarray) -> Sums:
    """Return the exact sums of one uint8 image (height, width, 3)."""
    totals = cv2.sumElems(pixels)  # OpenCV adds up in float64, which is exact here

    channels = cv2.split(pixels)
    sums: Sums = Counter(images=1, pixels=channels[0].size)
    for name, channel, total in zip("RGB", channels, totals, strict=False):
        squares = cv2.norm(channel, cv2.NORM_L2SQR)
        sums[name] = round(total)
        sums[name * 2] = round(squares)
    return sums


def describe_sums(sums: Sums) -> dict[str, Any]:
    """Return {"mean": {"R", "G", "B"}, "std": {…}, "images", "pixels"}.

    Mean and population standard deviation are in grey levels from 0 to 255.
    Raises: ValueError: there is no pixel.
    """
    n = sums["pixels"]
    if n == 0:
        raise ValueError("there is no pixel to average: no good image, or no record.")

    mean = {name: sums[name] / n for name in "RGB"}
    std = {name: _deviation(sums, name) for name in "RGB"}
    return {
        "mean": mean,
        "std": std,
        "images": sums["images"],
        "pixels": n,
    }


def _describe_train(stats: Mapping[str, Sums]) -> dict[str, Any]:
    """Describe the split "train", or all splits together if it is missing."""
    sums = stats.get("train") or sum(stats.values(), Counter())
    return describe_sums(sums)


def _deviation(sums: Sums, name: str) -> float:
    """Return the population standard deviation of a channel."""
    n = sums["pixels"]
    # Integers do not round: (n·Σx² − (Σx)²) / n² keeps every digit.
    numerator = n * sums[name * 2] - sums[name] ** 2
    return (numerator / n**2) ** 0.5


def channel_stats_of_files(images: pd.DataFrame) -> Stats:
    """Return the sums over every pixel of image files, by split.

    images: columns `split` and `path`. Files that cannot be read are left out.
    """
    columns = images[["split", "path"]]
    blocks = parallel.run(
        _sum_files,
        parallel.blocks(columns, BLOCK),
        label="Pixels of files",
        total=len(images),
        advance=lambda stats: sum(sums["images"] for sums in stats.values()),
    )
    return combine_stats(blocks)


def _sum_files(images: pd.DataFrame) -> Stats:
    """Return the sums over the pixels of a block of files, by split."""
    stats: Stats = defaultdict(Counter)
    for split, path in images.to_numpy():
        # The writer reports images that were damaged after they were measured.
        with suppress(FileNotFoundError, RejectedImage, DamagedRecord):
            data = read_image_bytes(path)
            pixels = read_pixels(data)
            stats[split].update(sum_channels(pixels))
    return stats


def combine_stats(parts: Iterable[Mapping[str, Sums]]) -> Stats:
    """Return the sums over the images of several parts, by split."""
    combined: Stats = defaultdict(Counter)
    for stats in parts:
        for split, sums in stats.items():
            combined[split].update(sums)
    return combined


def save_stats(stats: Mapping[str, Sums], path: str) -> None:
    """Write mean, std, images and pixels of train as JSON, and of each split.

    Without a split "train" the first four describe all splits together. In a part, the
    file's line in SHA256SUMS is updated.
    """
    splits = {}
    for split in sorted(stats):
        splits[split] = describe_sums(stats[split])
    _write_json(path, _describe_train(stats) | {"splits": splits})
    _update_checksum(path)


def _update_checksum(path: str) -> None:
    """Write the file's sha256 to SHA256SUMS beside it, if there is one."""
    part_dir, _, name = path.rpartition("/")
    checksums = read_sums(part_dir)
    if checksums:
        checksums[name] = storage.sha256_of(path)
        text = format_sums(checksums)
        storage.write_atomically(f"{part_dir}/{SUMS}", text.encode())


def _write_json(path: str, values: Mapping[str, Any]) -> None:
    text = json.dumps(values, indent=1) + "\n"
    storage.write_atomically(path, text.encode())


def save_mean_rgb(files: Stats, records: Stats, work_dir: str) -> list[str]:
    """Write mean_rgb/{split}_{files,records}.json and return the paths.

    Each file has the form of ImageNet's pipelines: {"R": …, "G": …, "B": …}.
    """
    paths = []
    origins = {"files": files, "records": records}
    for origin, stats in origins.items():
        for split, sums in sorted(stats.items()):
            path = storage.join(work_dir, f"mean_rgb/{split}_{origin}.json")
            description = describe_sums(sums)
            _write_json(path, description["mean"])
            paths.append(path)
    return paths
