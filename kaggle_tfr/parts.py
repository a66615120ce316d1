"""Bytes and seconds to expect, and how many parts and shards make every part fit."""

import gzip
import time
from collections.abc import Callable, Mapping
from functools import partial
from math import ceil

import numpy as np
import pandas as pd

from kaggle_tfr import progress, storage
from kaggle_tfr.images import ImageSettings, RefusedImage, convert, output_size
from kaggle_tfr.sampling import STRATUM, Forecast, draw_sample, estimate, make_strata

FRAME_BYTES = 16  # length, its CRC and the data's CRC around each record
LARGEST_SHARD_MB = 400
# schema.json, labels.json, labels.txt, plan.json, shards.csv, rejects.csv and stats.json; a CSV a
# split comes on top. Five of Kaggle's 50 stay free by default: TFDS's two files and its class
# names, the index folder (uploaded as one archive) and a cover picture.
SIDECAR_FILES = 7


def forecast(
    table: pd.DataFrame,
    settings: ImageSettings,
    *,
    seed: int = 0,
    sample: int = 1000,
    compression: str = "",
    encode: Callable[[Mapping, object], bytes] | None = None,
) -> Forecast:
    """Bytes and seconds a record, from about `sample` images taken the whole way to a record.

    table: columns image_id, path, height, width, n_bytes, format. Images are drawn from strata of
    similar predicted size, spread over the labels; those that pass through are known exactly, and
    only a few of them are read, for their time and for what the record adds.
    encode: `encode(row, converted)` gives the record; without it the image's bytes are counted.

    Raises:
        ValueError: no image to forecast, or every image of the sample was refused.
    """
    if not len(table):
        raise ValueError("there is no image to plan. Look into rejects.csv and duplicates.parquet.")
    table = table.reset_index(drop=True)
    known, size, exact = predict(table, settings)
    # A small dataset is not converted twice for the sake of its forecast.
    sample = min(sample, max(200, len(table) // 10))
    stratum, upper = make_strata(size, exact, sample)
    chosen = draw_sample(table.label.to_numpy(), stratum, seed, min(sample, 2 * STRATUM), sample)
    measure = partial(_measure, settings=settings, encode=encode, compression=compression)
    rows = table.loc[chosen].drop(columns=["problem", "note"], errors="ignore")
    found = [
        row
        for block in progress.run(measure, progress.blocks(rows, 8), label="Sampling sizes")
        for row in block
    ]
    if not found:
        raise ValueError(
            f"all {len(chosen)} images of the sample were refused, the first is "
            f"'{table.path[chosen[0]]}'. Has the input changed since 01_explore? Run it again."
        )
    at, y, begin, end = (np.asarray(column) for column in zip(*sorted(found), strict=True))
    return estimate(known, size, stratum, upper, at=at.astype(int), y=y, begin=begin, end=end)


def forecast_groups(
    table: pd.DataFrame, settings: ImageSettings, found: Forecast, by: list[str]
) -> pd.DataFrame:
    """Expected bytes (`expected`) and their upper bound (`high`) of each group of rows.

    A group is a random share of the whole, so its images may weigh more than the mean: the
    bound allows for that too.
    """
    known, size, exact = predict(table, settings)
    strata = found.strata
    index = np.where(exact, 0, 1 + np.searchsorted(strata.upper.to_numpy()[1:-1], size))
    frame = table[by].assign(
        stratum=index, rows=1, expected=known + strata.ratio.to_numpy()[index] * size
    )
    cells = frame.groupby([*by, "stratum"], observed=True)[["rows", "expected"]].sum()
    cells = cells.reset_index()
    whole = strata.iloc[cells.stratum].reset_index(drop=True)
    rows, spread = cells.rows, whole.spread
    mean = rows**2 * (1 - whole.sampled / whole.rows) * spread**2 / whole.sampled.clip(1)
    share = rows * (1 - (rows / whole.rows).clip(upper=1)) * spread**2
    cells["variance"] = mean + share
    total = cells.groupby(by, observed=True)[["expected", "variance"]].sum()
    total["high"] = total.expected + found.quantile * np.sqrt(total.variance)
    return total[["expected", "high"]]


def sidecar_bytes(table: pd.DataFrame, n_shards: int) -> tuple[float, int]:
    """Bytes beside the shards: for each image (its CSV row and index line), and once a part."""
    columns = [name for name in table.columns if name not in ("path", "problem", "note")]
    head = table[columns].sample(min(len(table), 500), random_state=0)
    row = len(head.to_csv(index=False, header=False).encode()) / max(1, len(head))
    return 1.5 * row + 100, (64 << 10) + 600 * n_shards


def shards_per_group(
    weights: Mapping[tuple[str, int], float],
    counts: Mapping[tuple[str, int], int],
    n_parts: int,
    *,
    max_part_files: int = 45,
    shard_mb: float = 200,
    n_shards: int = 0,
    shard_images: int = 0,
) -> dict[tuple[str, int], int] | None:
    """Shards of each (split, fold), or None when `n_parts` parts cannot hold them.

    weights, counts: expected bytes and images of each (split, fold).
    n_shards, shard_images: ask for so many shards in all, or images a shard at most; else shards
    are near `shard_mb` × 10⁶ bytes, and grow to 400 MB before there are more parts.
    max_part_files: files at the top of a part, those beside the shards included.

    Raises:
        ValueError: no number of parts can satisfy this.
    """
    room = max_part_files - SIDECAR_FILES - len({split for split, _ in counts})
    if len(counts) > room:
        raise ValueError(
            f"{len(counts)} folds need a shard each in every part, but MAX_PART_FILES = "
            f"{max_part_files} leaves {room} beside the part's own files. "
            "Raise MAX_PART_FILES, or lower N_FOLDS."
        )
    if n_shards:
        wanted = _apportion(counts, n_shards)
    elif shard_images:
        wanted = {group: ceil(count / shard_images) for group, count in counts.items()}
    if n_shards or shard_images:
        fits = sum(ceil(shards / n_parts) for shards in wanted.values()) <= room
        return wanted if fits else None
    largest_mb = max(shard_mb, LARGEST_SHARD_MB)
    for target_mb in np.linspace(shard_mb, largest_mb, 41):
        megabytes = {group: weight / n_parts / 1e6 for group, weight in weights.items()}
        each = {
            group: max(1, round(weight / target_mb), ceil(weight / largest_mb))
            for group, weight in megabytes.items()
        }
        if sum(each.values()) <= room:
            return {group: min(counts[group], each[group] * n_parts) for group in counts}
    return None


def _apportion(counts: Mapping[tuple[str, int], int], n_shards: int) -> dict[tuple[str, int], int]:
    """`n_shards` over the groups: one each, the others one by one to the fullest shards.

    Source: Adams' method of apportionment (smallest divisors), by its priority numbers.
    """
    if n_shards < len(counts) or n_shards > sum(counts.values()):
        raise ValueError(
            f"N_SHARDS = {n_shards}, but there are {len(counts)} folds with "
            f"{sum(counts.values())} images, and a shard holds images of one fold, at least one. "
            "Set N_SHARDS between these two, or N_FOLDS = 0."
        )
    shards = dict.fromkeys(counts, 1)
    for _ in range(n_shards - len(counts)):
        shards[max(shards, key=lambda group: counts[group] / shards[group])] += 1
    return shards


def predict(
    table: pd.DataFrame, settings: ImageSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes known for sure, relative size of what is to be encoded, and which rows are exact."""
    height, width, n_bytes = (
        table[name].to_numpy(float) for name in ("height", "width", "n_bytes")
    )
    pairs = pd.MultiIndex.from_arrays([table.height, table.width])
    codes, unique = pairs.factorize()
    sizes = np.array([output_size(h, w, settings) for h, w in unique], float).reshape(-1, 2)[codes]
    same = (sizes[:, 0] == height) & (sizes[:, 1] == width)
    kept = {"none": ("JPEG", "PNG"), "short_side": ("JPEG",)}.get(settings.resize, ())
    kept = kept if settings.resize == "none" or settings.format == "JPEG" else ()
    upright = table.orientation.to_numpy() == 1 if "orientation" in table else True
    exact = same & table.format.isin(kept).to_numpy() & upright & settings.pass_through
    density = n_bytes / np.maximum(height * width, 1)
    size = sizes.prod(axis=1) * np.sqrt(np.maximum(density, 1e-3))
    return np.where(exact, n_bytes, 0.0), np.where(exact, 1.0, size), exact


def _measure(rows: pd.DataFrame, *, settings, encode, compression) -> list[tuple]:
    """(position, bytes of the record, begin, end) of each image that is not refused."""
    found = []
    for at, row in zip(rows.index, rows.to_dict("records"), strict=True):
        begin = time.time()
        try:
            converted = convert(storage.read_bytes(row["path"]), settings)
        except RefusedImage:
            continue
        record = encode(row, converted) if encode else converted.data
        if compression:
            record = gzip.compress(record, 6)
        frame = FRAME_BYTES if encode else 0
        found.append((at, len(record) + frame, begin, time.time()))
    return found
