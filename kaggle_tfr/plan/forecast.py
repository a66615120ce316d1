"""Forecast the size of records, and the time to make them, from a sample of images.

The images are put into strata of similar predicted size, a sample of each stratum is
converted, and the measured sizes are extrapolated: a separate ratio estimator.
Source: Cochran, Sampling Techniques (1977), section 6.10.
"""

import gzip
import io
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, pairwise
from math import ceil

import numpy as np
import pandas as pd
from PIL import Image
from scipy import stats

from kaggle_tfr import parallel
from kaggle_tfr.images.convert import (
    PASSED_FORMATS,
    ImageSettings,
    convert,
    output_size,
)
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.records import FRAME_BYTES, DamagedRecord, read_image_bytes
from kaggle_tfr.schema import RecordSchema, encode, load_schema

CONFIDENCE = 0.999
MAX_STRATA = 20
MIN_PER_STRATUM = 5  # sampled images
MIN_SAMPLE = 30  # images
MAX_EXACT = 50  # sampled images whose bytes are known before
# One thread loads the libraries, while no other thread of the process measures.
_loading = threading.Lock()

Array = np.ndarray
Interval = tuple[float, float, float]  # the mean, and bounds with 99.9 % confidence


@dataclass(frozen=True)
class Forecast:
    """The mean size of a record in bytes, and the seconds of one worker for it.

    n_exact: originals that pass through, whose bytes are known.
    n_sampled: images measured.
    workers: how many of them worked at the same time.
    quantile: of Student's t, the half width of an interval in standard errors.
    edges: see `cut_strata`.
    strata: see `_fit_ratios`; the first row is for the originals that pass through.
    """

    n_images: int
    n_exact: int
    n_sampled: int
    size: Interval
    seconds: Interval
    workers: float
    quantile: float
    edges: Array = field(repr=False, compare=False)
    strata: pd.DataFrame = field(repr=False, compare=False)


def make_forecast(
    table: pd.DataFrame,
    schema: RecordSchema,
    image: ImageSettings,
    *,
    compression: str = "",
    seed: int = 0,
    sample: int = 1000,
) -> Forecast:
    """Forecast the records of a table by converting about `sample` of its images.

    table: columns image_id, path, label, height, width, n_bytes, format, orientation.
    Raises: ValueError: there is no image, or every image of the sample is rejected.
    """
    if not len(table):
        raise ValueError(
            "There is no image to plan. See rejects.csv and duplicates.parquet."
        )
    table = table.reset_index(drop=True)
    # A twentieth of the time that writing takes, but never too few images: a few large
    # ones may make up most of the bytes.
    sample = min(sample, max(MIN_SAMPLE, len(table) // 20))
    predicted = predict(table, image)
    edges = cut_strata(predicted, sample)
    stratum = number_strata(predicted, edges)
    chosen = draw_sample(table["label"].to_numpy(), stratum, seed, sample)
    measured = _measure(table.loc[chosen], schema, image, compression)
    if measured.empty:
        raise ValueError(
            f"All {len(chosen)} images of the sample were rejected, the first is "
            f"'{table['path'][chosen[0]]}'. If the input has changed, run 01_explore "
            "again."
        )
    return estimate(predicted, edges, measured)


def predict(table: pd.DataFrame, image: ImageSettings) -> pd.DataFrame:
    """Predict the sizes of records, relative to each other.

    Columns: exact, whether the original passes through; known, its bytes, else 0;
    size, proportional within a stratum to the bytes of a record beyond `known`.
    """
    before = table[["height", "width"]]
    after = _predict_sides(before, image)
    exact = table["format"].isin(PASSED_FORMATS.get(image.resize, ()))
    exact &= (after == before.to_numpy()).all(axis=1)
    exact &= image.pass_through
    exact &= table["orientation"] == 1

    bytes_per_pixel = table["n_bytes"] / before.prod(axis=1).clip(1)
    size = after.prod(axis=1) * np.sqrt(bytes_per_pixel.clip(1e-3))
    return pd.DataFrame(
        {
            "exact": exact,
            "known": table["n_bytes"].where(exact, 0.0).astype(float),
            "size": size.mask(exact, 1.0),
        }
    )


def _predict_sides(sides: pd.DataFrame, image: ImageSettings) -> Array:
    """Return height and width in the record: float (n, 2). sides: of the originals."""
    codes, distinct = pd.MultiIndex.from_frame(sides).factorize()
    outputs = [output_size(height, width, image) for height, width in distinct]
    return np.array(outputs, float).reshape(-1, 2)[codes]


def cut_strata(predicted: pd.DataFrame, sample: int) -> Array:
    """Return the sizes that separate the strata, in ascending order.

    The strata hold equal sums of sizes. Exact rows are in a stratum of their own.
    """
    sizes = np.sort(predicted["size"][~predicted["exact"]])
    if not len(sizes):
        return sizes
    running_total = np.cumsum(sizes)
    n_strata = min(MAX_STRATA, sample // MIN_PER_STRATUM)
    cuts = np.linspace(0, running_total[-1], n_strata + 1)[1:-1]
    return np.unique(sizes[np.searchsorted(running_total, cuts)])


def number_strata(predicted: pd.DataFrame, edges: Array) -> Array:
    """Return the stratum of each row, 0 for exact rows. edges: of `cut_strata`."""
    number = 1 + np.searchsorted(edges, predicted["size"])
    return np.where(predicted["exact"], 0, number)


def draw_sample(labels: Array, stratum: Array, seed: int, sample: int) -> Array:
    """Return the sorted positions of a sample.

    In each stratum the rows are sorted by label and cut into runs, and one row of each
    run is drawn: the sample has all labels in their shares.
    """
    rng = np.random.default_rng(seed)
    counts = np.bincount(stratum)
    n_strata = max(1, int(np.count_nonzero(counts[1:])))
    per_stratum = ceil(sample / n_strata)
    chosen = list[int]()
    for number, count in enumerate(counts):
        rows = np.flatnonzero(stratum == number)
        wanted = per_stratum if number else min(sample, MAX_EXACT)
        tie_breaker = rng.random(count)
        by_label = rows[np.lexsort((tie_breaker, labels[rows]))]
        chosen += _draw_from_runs(by_label, min(count, wanted), rng)
    return np.sort(np.asarray(chosen, int))


def _draw_from_runs(rows: Array, n_runs: int, rng: np.random.Generator) -> list[int]:
    """Cut the rows into runs of equal length; draw a row of each."""
    edges = np.linspace(0, len(rows), n_runs + 1).astype(int)
    return [rows[rng.integers(start, stop)] for start, stop in pairwise(edges)]


def _measure(
    table: pd.DataFrame,
    schema: RecordSchema,
    image: ImageSettings,
    compression: str,
) -> pd.DataFrame:
    """Convert images; columns bytes (of a record), begin, end (seconds), by row."""
    rows = list(zip(table.index, table.to_dict("records"), strict=True))
    measure = partial(
        _measure_block,
        schema=schema,
        image=image,
        compression=compression,
    )
    blocks = parallel.run(
        measure,
        parallel.blocks(rows, 8),
        label="Sampling sizes",
        total=len(rows),
        advance=len,
    )
    columns = ["row", "bytes", "begin", "end"]
    measured = pd.DataFrame(chain.from_iterable(blocks), columns=columns)
    return measured.set_index("row").sort_index()


def _measure_block(
    rows: list[tuple[int, dict]],
    schema: RecordSchema,
    image: ImageSettings,
    compression: str,
) -> list[tuple[int, int, float, float]]:
    """Return row, bytes, begin and end of each image that is not rejected."""
    with _loading:
        _load_libraries()
    measured = []
    for number, row in rows:
        begin = time.time()
        with suppress(RejectedImage, DamagedRecord):
            data = read_image_bytes(row["path"])
            record = encode(row, convert(data, image), schema, image)
            if compression:
                record = gzip.compress(record, 6)
            size = FRAME_BYTES + len(record)
            measured.append((number, size, begin, time.time()))
    return measured


@cache
def _load_libraries() -> None:
    """Make a record: the first of a process takes seconds, mostly for imports."""
    original = io.BytesIO()
    Image.new("RGB", (600, 600)).save(original, "JPEG")
    settings = ImageSettings((300, 300))
    image = convert(original.getvalue(), settings)
    encode({"label": 0, "image_id": ""}, image, load_schema("default"), settings)


def estimate(predicted: pd.DataFrame, edges: Array, measured: pd.DataFrame) -> Forecast:
    """Return the forecast from measured images; see `predict` and `_measure`."""
    stratum = number_strata(predicted, edges)
    n_strata = len(edges) + 2
    extra_bytes = measured["bytes"] - predicted["known"].loc[measured.index]
    strata = _fit_ratios(extra_bytes, predicted["size"], stratum, n_strata)
    size, quantile = _interval(strata, predicted["known"].sum())

    seconds = measured["end"] - measured["begin"]
    ones = pd.Series(1.0, predicted.index)
    times = _fit_ratios(seconds, ones, stratum, n_strata)
    seconds_each, _ = _interval(times)
    return Forecast(
        n_images=len(predicted),
        n_exact=int(strata["rows"][0]),
        n_sampled=len(measured),
        size=size,
        seconds=seconds_each,
        workers=_count_workers(measured),
        quantile=quantile,
        edges=edges,
        strata=strata,
    )


def _count_workers(measured: pd.DataFrame) -> float:
    """Return the mean number of images that were measured at the same time."""
    seconds = measured["end"] - measured["begin"]
    elapsed = measured["end"].max() - measured["begin"].min()
    return max(1.0, float(seconds.sum() / max(elapsed, 1e-9)))


def _fit_ratios(
    y: pd.Series,
    x: pd.Series,
    stratum: Array,
    n_strata: int,
) -> pd.DataFrame:
    """Return one row per stratum: rows, sampled, ratio, total and spread.

    ratio: of y to x; without a sample, that of all strata. total: of y, in all rows.
    spread: standard deviation of y about ratio * x. A single image does not show it:
    half the mean is a guess on the safe side.
    y: of the sample, by row. x, stratum: of all rows.
    """
    drawn = stratum[y.index]
    drawn_x = x.loc[y.index]
    n_rows = np.bincount(stratum, minlength=n_strata)
    n_sampled = np.bincount(drawn, minlength=n_strata)

    ratio = np.full(n_strata, y.sum() / drawn_x.sum())
    sums_y = np.bincount(drawn, y, n_strata)
    sums_x = np.bincount(drawn, drawn_x, n_strata)
    np.divide(
        sums_y,
        sums_x,
        out=ratio,
        where=n_sampled > 0,
    )
    total = ratio * np.bincount(stratum, x, n_strata)

    deviation = y - ratio[drawn] * drawn_x
    squares = np.bincount(drawn, deviation**2, n_strata)
    spread = np.sqrt(squares / (n_sampled - 1).clip(1))
    mean = np.abs(total) / n_rows.clip(1)
    return pd.DataFrame(
        {
            "rows": n_rows,
            "sampled": n_sampled,
            "ratio": ratio,
            "total": total,
            "spread": np.where(n_sampled > 1, spread, mean / 2),
        }
    )


def _interval(strata: pd.DataFrame, known: float = 0.0) -> tuple[Interval, float]:
    """Return the interval of the mean of all rows, and the quantile of t behind it.

    known: the sum of what is not estimated.
    """
    n_rows = strata["rows"].sum()
    variances = _find_variance(strata, strata["rows"])
    quantile = _find_quantile(variances, strata["sampled"])
    mean = float((known + strata["total"].sum()) / n_rows)
    margin = float(quantile * np.sqrt(variances.sum()) / n_rows)
    return (mean, max(mean - margin, 0.0), mean + margin), quantile


def _find_quantile(variances: pd.Series, n_sampled: pd.Series) -> float:
    """Return the quantile of t for a sum over strata with these variances.

    The degrees of freedom are Satterthwaite's. Source: Cochran, section 5.4.
    """
    freedoms = (n_sampled - 1).clip(1)
    per_freedom = (variances**2 / freedoms).sum()
    freedom = variances.sum() ** 2 / max(per_freedom, 1e-300)
    freedom = np.clip(freedom, 3, 10_000)
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))


def _find_variance(strata: pd.DataFrame, count: pd.Series) -> pd.Series:
    """Return the variance of the sum of `count` rows of each stratum, taken at random.

    count: of all rows, or of a group such as a part; not of the measured sample.
    The mean of the stratum is uncertain, and so is which of its rows are taken.
    Source: Cochran, theorem 5.3.
    """
    n_rows = strata["rows"].clip(1)
    unsampled = 1 - strata["sampled"] / n_rows
    of_mean = unsampled * strata["spread"] ** 2 / strata["sampled"].clip(1)
    of_draw = count * (1 - count / n_rows) * strata["spread"] ** 2
    return count**2 * of_mean + of_draw


def forecast_groups(
    table: pd.DataFrame,
    image: ImageSettings,
    forecast: Forecast,
    by: list[str],
) -> pd.DataFrame:
    """Forecast each group of rows: `count`, `expected` bytes and their bound `high`.

    A group is a random share of the table, and may weigh more than the mean.
    """
    predicted = predict(table, image)
    stratum = number_strata(predicted, forecast.edges)
    ratio = forecast.strata["ratio"].to_numpy()[stratum]
    rows = table[by].assign(stratum=stratum, count=1)
    rows["expected"] = predicted["known"] + ratio * predicted["size"]
    cells = rows.groupby([*by, "stratum"], observed=True).sum()
    cells["variance"] = _find_variance(
        cells.join(forecast.strata, on="stratum"), cells["count"]
    )

    groups = cells.groupby(by, observed=True).sum()
    margin = forecast.quantile * np.sqrt(groups.pop("variance"))
    return groups.assign(high=groups["expected"] + margin)
