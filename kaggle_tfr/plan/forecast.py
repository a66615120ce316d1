"""Forecast the size of records from a sample of images.

An image is drawn with a chance in proportion to its predicted size. The mean ratio of
measured to predicted sizes is extrapolated; its bound is the largest error of many
means with random weights.
Source: Rubin, "The Bayesian Bootstrap" (1981).
"""

from contextlib import suppress
from functools import partial
from math import prod
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
from kaggle_tfr.schema import RecordSchema, Row, encode

MIN_SAMPLE = 100  # images
MAX_SAMPLE = 1000
N_RESAMPLED = 1000  # no error in so many is larger: 99.9 % confidence
RECORD_BYTES = 200  # what a record has besides its image, roughly


def make_forecast(
    table: pd.DataFrame,
    schema: RecordSchema,
    image: ImageSettings,
    seed: int,
) -> pd.DataFrame:
    """Forecast the bytes of each record by converting a sample of the images.

    The mean ratio of measured to predicted bytes in the sample is applied to all other
    images. Return a row per image, with the index of the table, for `forecast_groups`.
    Columns: count, 1; expected, in bytes, without GZIP, which gains next to nothing;
    spread, in bytes: a bound for the error of the mean ratio, which all images share;
    variance, in bytes²: the square of a bound for the image's own difference from the
    mean ratio. Both are 0 for the images of the sample.
    table: columns image_id, path, label, height, width, n_bytes, format, orientation.
    Source: Rubin, "The Bayesian Bootstrap" (1981).
    """
    # A twentieth of the time that writing takes, but never too few images (at
    # least 100, at most 1,000): a few large ones may make up most of the bytes.
    n_images = min(MAX_SAMPLE, MIN_SAMPLE + len(table) // 20)
    rng = np.random.default_rng(seed)
    sizes = predict(table, image)
    chance = n_images * sizes / sizes.sum()  # above 1 for a few large images
    is_drawn = rng.random(len(table)) < chance

    measured = parallel.run(
        partial(measure_record, schema, image),
        table[is_drawn].to_dict("records"),
        label="Sampling sizes",
    )
    n_bytes = np.array([*measured])

    # `chance` is in proportion to the predicted bytes.
    ratios = n_bytes / chance[is_drawn]
    # A drawn row stands for 1 / chance - 1 rows like it that are not drawn. The sum of
    # their chances is 1 - chance, its weight; nearly 0 if it is drawn for sure.
    weights = 1 - chance[is_drawn].clip(upper=0.999)
    mean = np.average(ratios, weights=weights)
    # The Bayesian bootstrap: errors of 1,000 means with random weights. The largest is
    # the bound, with 99.9 % confidence.
    errors = rng.dirichlet(weights, N_RESAMPLED) @ (ratios - mean)
    expected = mean * chance
    spread = np.abs(errors).max() * chance
    # Images of the sample are measured, so they have no error.
    expected[is_drawn] = n_bytes
    spread[is_drawn] = 0
    return pd.DataFrame(
        {
            "count": 1,
            "expected": expected,
            "spread": spread,
            # The error of one of n ratios is √n times that of their mean. The sum of
            # the weights takes the place of n.
            "variance": weights.sum() * spread**2,
        }
    )


def predict(table: pd.DataFrame, image: ImageSettings) -> pd.Series:
    """Predict the sizes of records, right only in proportion to one another.

    `make_forecast` draws an image for its sample with a chance in this proportion.
    Return a series with the index of the table, roughly in bytes.
    table: see `make_forecast`.
    """
    sides = zip(table["height"], table["width"], strict=True)
    after = [prod(output_size(*pair, image)) for pair in sides]  # pixels
    before = table["height"] * table["width"]
    # As in `convert`: these formats, of the right size and upright, stay as they are.
    is_passed = table["format"].isin(PASSED_FORMATS.get(image.resize, ()))
    is_passed &= (before == after) & (table["orientation"] == 1)
    # After conversion the bytes of a pixel differ less: roughly as the square root.
    converted = np.sqrt(table["n_bytes"] / before) * after
    # `RECORD_BYTES`: roughly what a record has besides its image.
    return RECORD_BYTES + converted.mask(is_passed, table["n_bytes"])


def measure_record(schema: RecordSchema, image: ImageSettings, row: Row) -> int:
    """Return the bytes of a row's record in a shard, 0 for a rejected image."""
    with suppress(RejectedImage, DamagedRecord):
        encoded = convert(read_image_bytes(row["path"]), image)
        # With the length and the checksums around it.
        return FRAME_BYTES + len(encode(row, encoded, schema, image))
    return 0


def forecast_groups(rows: pd.DataFrame, keys: Any) -> pd.DataFrame:
    """Return the forecast of each group of rows, such as a shard or a part.

    Columns: count, images; expected, bytes; bytes_high (int), their upper bound. The
    index is that of the groups.
    rows: of `make_forecast`. keys: what pandas groups them by, such as columns of the
    table, whose order may be another: they are aligned by the index.
    """
    groups = rows.groupby(keys).sum()
    # The error of the mean is the same for all images, so it adds up. The other errors
    # are independent: their squares add up.
    high = groups["expected"] + groups["spread"] + np.sqrt(groups["variance"])
    return groups.assign(bytes_high=np.ceil(high).astype(int))
