"""Forecast the size of records from a sample of images.

The images are sorted by predicted size, and one is drawn of each quantile of the bytes:
its chance is in proportion to its size. The mean ratio of measured to predicted sizes
is extrapolated; its bound is the largest error of many means of resampled ratios.
Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 6.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil, prod
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import parallel
from kaggle_tfr.images.convert import (
    PASSED_FORMATS,
    ImageSettings,
    convert,
    output_size,
)
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.records import FRAME_BYTES, DamagedRecord, read_image_bytes
from kaggle_tfr.schema import RecordSchema, encode

MIN_SAMPLE = 30  # images
BLOCK = 8  # images of one task
N_RESAMPLED = 1000  # no error in so many is larger: 99.9 % confidence
RECORD_BYTES = 200  # what a record has besides its image, roughly

Array = np.ndarray


@dataclass(frozen=True)
class Forecast:
    """The size of records.

    n_sampled: images measured. size: bytes_per_image, with 99.9 % confidence from low
    to high. rows: for `forecast_groups`, one per image, in the order of the table.
    """

    n_sampled: int
    size: dict[str, float]
    rows: pd.DataFrame


def make_forecast(
    table: pd.DataFrame,
    schema: RecordSchema,
    image: ImageSettings,
    *,
    seed: int = 0,
    sample: int = 1000,
) -> Forecast:
    """Forecast the records of a table by converting about `sample` of its images.

    Compression by GZIP is not counted: it gains next to nothing.
    table: columns image_id, path, label, height, width, n_bytes, format, orientation.
    Raises: ValueError: there is no image, or every image of the sample is rejected.
    """
    if table.empty:
        raise ValueError(
            "There is no image to plan. See rejects.csv and duplicates.parquet."
        )
    # A twentieth of the time that writing takes, but never too few images: a few large
    # ones may make up most of the bytes.
    n_images = min(sample, max(MIN_SAMPLE, len(table) // 20))
    rng = np.random.default_rng(seed)
    known, sizes = predict(table, image)
    chance = n_images * sizes / sizes.sum()
    by_size = np.argsort(chance, kind="stable")
    place = chance[by_size].cumsum() + rng.random()
    # Large and small chances have their share; a row with 1 or more is always drawn.
    drawn = by_size[np.diff(np.floor(place), prepend=0) > 0]

    blocks = parallel.blocks(table.iloc[drawn], BLOCK)
    measure = partial(_measure, schema, image)
    results = parallel.run(measure, blocks, label="Sampling sizes")
    n_bytes = np.concatenate([*results])
    if not n_bytes.any():
        raise ValueError(
            f"All {len(drawn)} images of the sample were rejected. If the input has "
            "changed, run 01_explore again."
        )
    rows = extrapolate(known, chance, drawn, n_bytes, rng)
    total = forecast_groups(rows, np.zeros(len(rows)))[["expected", "bytes_high"]]
    mean, high = (total.to_numpy()[0] / len(rows)).tolist()
    size = {"bytes_per_image": mean, "low": 2 * mean - high, "high": high}
    return Forecast(len(drawn), size, rows)


def predict(table: pd.DataFrame, image: ImageSettings) -> tuple[Array, Array]:
    """Predict the sizes of records: float (n,), twice.

    First the bytes of an original that passes through, else 0; then the size of what
    the record has beyond them, in proportion to other records.
    """
    sides = zip(table["height"], table["width"], strict=True)
    after = np.array([prod(output_size(*pair, image)) for pair in sides])
    before = table["height"] * table["width"]
    is_passed = table["format"].isin(PASSED_FORMATS.get(image.resize, ()))
    is_passed &= (after == before) & (table["orientation"] == 1)
    sizes = after * np.sqrt(table["n_bytes"] / before)
    known = np.where(is_passed, table["n_bytes"], 0)
    return known, np.where(is_passed, 0, sizes) + RECORD_BYTES


def _measure(
    schema: RecordSchema, image: ImageSettings, rows: pd.DataFrame
) -> list[int]:
    """Return the bytes of each record, 0 for a rejected image."""
    sizes = []
    row: Any
    for row in rows.to_dict("records"):
        size = 0
        with suppress(RejectedImage, DamagedRecord):
            encoded = convert(read_image_bytes(row["path"]), image)
            size = FRAME_BYTES + len(encode(row, encoded, schema, image))
        sizes.append(size)
    return sizes


def extrapolate(
    known: Array,
    chance: Array,
    drawn: Array,
    n_bytes: Array,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return the rows of a forecast from the sizes of those that were drawn."""
    ratios = (n_bytes - known[drawn]) / chance[drawn]
    # A row that is drawn for sure stands for no other one.
    weights = 1 - chance[drawn].clip(max=0.999)
    n = ceil(weights.sum())
    means = rng.choice(ratios, (N_RESAMPLED, n), p=weights / weights.sum()).mean(axis=1)
    expected = known + means.mean() * chance
    expected[drawn] = n_bytes
    spread = np.abs(means - means.mean()).max() * chance
    spread[drawn] = 0
    return pd.DataFrame(
        {"count": 1, "expected": expected, "spread": spread, "variance": n * spread**2}
    )


def forecast_groups(rows: pd.DataFrame, keys: Any) -> pd.DataFrame:
    """Forecast groups of rows: `count`, `expected` bytes, and their bound
    `bytes_high`.

    rows: of a Forecast. keys: what pandas groups them by, such as columns of the table.
    A group is a random share of the rows, and may weigh more than the mean: the mean
    ratio is uncertain, and so is that of each image. Both may be low.
    """
    groups = rows.groupby(keys).sum()
    high = groups["expected"] + groups["spread"] + np.sqrt(groups["variance"])
    return groups.assign(bytes_high=np.ceil(high).astype(int))
