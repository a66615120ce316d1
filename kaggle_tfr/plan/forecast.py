"""Totals from a stratified sample, with an interval that holds the truth."""

import gzip
import io
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise

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
from kaggle_tfr.schema import RecordSchema, encode

STRATUM = (
    5  # images, or more, sampled from each of up to 20 strata of similar predicted size
)
FEWEST, MOST_EXACT = 30, 50  # images of a sample; of them those whose bytes are known
# The first record of a process takes seconds, most of them for imports: one of a plain image is
# made untimed, and no other thread measures meanwhile.
_warming_up, _is_warm = threading.Lock(), threading.Event()
Array = np.ndarray
Interval = tuple[
    float, float, float
]  # a mean, and bounds that hold it with 99.9 % confidence


@dataclass(frozen=True)
class Forecast:
    """Bytes of a whole record, and seconds of one worker for it; `workers` ran side by side.

    n_exact: originals that pass through, whose bytes are known; n_sampled: images measured.
    strata: one row a stratum (rows, sampled, ratio, spread, upper), the first for the exact ones.
    """

    n_images: int
    n_exact: int
    n_sampled: int
    size: Interval
    seconds: Interval
    workers: float
    quantile: float
    strata: pd.DataFrame = field(repr=False, compare=False)


def cut_strata(predicted: pd.DataFrame, sample: int) -> Array:
    """Upper ends of the strata: first the exact rows', then such that each weighs the same."""
    sizes = np.sort(predicted["size"][~predicted["exact"]])
    if not len(sizes):
        return np.array([np.inf])
    weight = np.cumsum(sizes)
    cuts = np.linspace(0, weight[-1], max(1, min(20, sample // STRATUM)) + 1)[1:-1]
    return np.concatenate(
        [[0], np.unique(sizes[np.searchsorted(weight, cuts)]), [np.inf]]
    )


def number_strata(predicted: pd.DataFrame, upper: Array) -> Array:
    return np.where(
        predicted["exact"], 0, 1 + np.searchsorted(upper[1:-1], predicted["size"])
    )


def draw_sample(labels: Array, stratum: Array, seed: int, sample: int) -> Array:
    """Sorted positions of the sample: in each stratum one of every run of rows, sorted by label."""
    rng = np.random.default_rng(seed)
    inside = [np.flatnonzero(stratum == number) for number in range(stratum.max() + 1)]
    share = -(-sample // max(1, sum(len(rows) > 0 for rows in inside[1:])))
    chosen = []
    for number, rows in enumerate(inside):
        wanted = min(len(rows), share if number else min(sample, MOST_EXACT))
        by_label = rows[np.lexsort((rng.random(len(rows)), labels[rows]))]
        edges = np.linspace(0, len(rows), wanted + 1).astype(int)
        chosen += [by_label[rng.integers(a, b)] for a, b in pairwise(edges)]
    return np.sort(np.asarray(chosen, int))


def estimate(predicted: pd.DataFrame, upper: Array, measured: Array) -> Forecast:
    """The forecast from measured images (n, 4): row, bytes, and seconds at the begin and the end.
    Source: separate ratio estimator, Cochran, Sampling Techniques (1977), section 6.10.
    """
    known, size = predicted["known"].to_numpy(), predicted["size"].to_numpy()
    stratum = number_strata(predicted, upper)
    at, y, begin, end = measured.T
    at, seconds = at.astype(int), end - begin
    n, m = (np.bincount(rows, minlength=len(upper)) for rows in (stratum, stratum[at]))
    ratio, spread = _fit_ratios(y - known[at], size[at], stratum[at], m)
    ratio[0] *= (
        m[0] > 0
    )  # where no exact one was read, nothing is known of what a record adds
    # One image tells nothing of the spread: half its size is a guess on the safe side.
    guess = np.where(
        m < n, np.abs(ratio) / 2 * np.bincount(stratum, size, len(n)) / n.clip(1), 0
    )
    spread = np.where(m > 1, spread, guess)
    took, took_spread = _fit_ratios(seconds, np.ones(len(at)), stratum[at], m)
    interval, quantile = _interval(n, m, (known + ratio[stratum] * size).sum(), spread)
    took_interval, _ = _interval(
        n, m, (n * took).sum(), np.where(m > 1, took_spread, took)
    )
    workers = float(max(1.0, seconds.sum() / max(end.max() - begin.min(), 1e-9)))
    strata = {"rows": n, "sampled": m, "ratio": ratio, "spread": spread, "upper": upper}
    counts = len(known), int(n[0]), len(at)
    return Forecast(
        *counts, interval, took_interval, workers, quantile, pd.DataFrame(strata)
    )


def _fit_ratios(y: Array, x: Array, stratum: Array, m: Array) -> tuple[Array, Array]:
    """Of y to x in each stratum, that of all where nothing was drawn; and the spread about it."""
    add_up, typical = (
        partial(np.bincount, minlength=len(m)),
        np.full(len(m), y.sum() / x.sum()),
    )
    ratio = np.divide(add_up(stratum, y), add_up(stratum, x), out=typical, where=m > 0)
    off = add_up(stratum, (y - ratio[stratum] * x) ** 2)
    return ratio, np.sqrt(off / (m - 1).clip(1))


def _interval(
    n: Array, m: Array, total: float, spread: Array
) -> tuple[Interval, float]:
    """Of `total` over strata of n rows, m drawn; and t's quantile by Satterthwaite's freedom."""
    variance = n**2 * (1 - m / n.clip(1)) * spread**2 / m.clip(1)
    freedom = variance.sum() ** 2 / max(np.sum(variance**2 / (m - 1).clip(1)), 1e-300)
    quantile = float(stats.t.ppf(0.5 + 0.999 / 2, min(max(freedom, 3), 10_000)))
    mean, half = (
        float(total / n.sum()),
        float(quantile * np.sqrt(variance.sum()) / n.sum()),
    )
    return (mean, max(mean - half, 0.0), mean + half), quantile


def make_forecast(
    table: pd.DataFrame,
    schema: RecordSchema,
    image: ImageSettings,
    *,
    compression: str = "",
    seed: int = 0,
    sample: int = 1000,
) -> Forecast:
    """Bytes and seconds a record, from about `sample` images taken the whole way to a record.

    table: columns image_id, path, label, height, width, n_bytes, format.
    Raises: ValueError for no image to forecast, or if every image of the sample was refused.
    """
    if not len(table):
        raise ValueError(
            "there is no image to plan. Look into rejects.csv and duplicates.parquet."
        )
    table = table.reset_index(drop=True)
    # A twentieth of what writing will take; fewer tell too little where a few images weigh most.
    sample = min(sample, max(FEWEST, len(table) // 20))
    predicted = predict(table, image)
    upper = cut_strata(predicted, sample)
    chosen = draw_sample(
        table["label"].to_numpy(), number_strata(predicted, upper), seed, sample
    )
    rows = (
        table.loc[chosen]
        .drop(columns=["problem", "note"], errors="ignore")
        .to_dict("records")
    )
    measure = partial(
        _measure_records, schema=schema, image=image, compression=compression
    )
    items = parallel.blocks(list(zip(chosen, rows, strict=True)), 8)
    shown: dict = {"label": "Sampling sizes", "total": len(chosen), "advance": len}
    measured = sorted(chain.from_iterable(parallel.run(measure, items, **shown)))
    if not measured:
        first = f"the first is '{table['path'][chosen[0]]}'"
        mend = "Has the input changed since 01_explore? Run it again."
        raise ValueError(
            f"all {len(chosen)} images of the sample were refused, {first}. {mend}"
        )
    return estimate(predicted, upper, np.array(measured))


def _warm_up(row: dict, schema: RecordSchema, image: ImageSettings) -> None:
    """Make a record of this row with a plain image in place of its own, which is not opened."""
    plain_image = io.BytesIO()
    Image.new("RGB", (600, 600)).save(plain_image, "JPEG")
    with suppress(RejectedImage, ValueError):
        encode(row, convert(plain_image.getvalue(), image), schema, image)


def _measure_records(
    rows: list[tuple[int, dict]],
    schema: RecordSchema,
    image: ImageSettings,
    compression: str,
) -> list[tuple[int, int, float, float]]:
    """Row, bytes, begin and end in seconds of each image that is not refused."""
    with _warming_up:
        if not _is_warm.is_set():
            _warm_up(rows[0][1], schema, image)
            _is_warm.set()
    measured = []
    for at, row in rows:
        begin = time.time()
        with suppress(RejectedImage, DamagedRecord):
            data = read_image_bytes(row["path"])
            record = encode(row, convert(data, image), schema, image)
            size = FRAME_BYTES + len(
                gzip.compress(record, 6) if compression else record
            )
            measured.append((at, size, begin, time.time()))
    return measured


def forecast_groups(
    table: pd.DataFrame, image: ImageSettings, forecast: Forecast, by: list[str]
) -> pd.DataFrame:
    """Rows (`count`), `expected` bytes and their upper bound (`high`) of each group of rows.

    The bound allows for a group, a random share of the whole, to weigh more than the mean.
    """
    predicted, strata = predict(table, image), forecast.strata
    index = number_strata(predicted, strata["upper"].to_numpy())
    expected = (
        predicted["known"] + strata["ratio"].to_numpy()[index] * predicted["size"]
    )
    frame = table[by].assign(stratum=index, count=1, expected=expected)
    cells = (
        frame.groupby([*by, "stratum"], observed=True).sum().join(strata, on="stratum")
    )
    n, rows, m, spread = (
        cells[name] for name in ("count", "rows", "sampled", "spread")
    )
    of_mean = n**2 * (1 - m / rows) * spread**2 / m.clip(1)
    cells["variance"] = of_mean + n * (1 - (n / rows).clip(upper=1)) * spread**2
    total = cells.groupby(by, observed=True)[["count", "expected", "variance"]].sum()
    total["high"] = total["expected"] + forecast.quantile * np.sqrt(total["variance"])
    return total.drop(columns="variance")


def predict(table: pd.DataFrame, image: ImageSettings) -> pd.DataFrame:
    """Bytes `known` for sure, relative `size` of what is to be encoded, which rows are `exact`."""
    given, n_bytes = table[["height", "width"]], table["n_bytes"].to_numpy(float)
    codes, unique = pd.MultiIndex.from_frame(given).factorize()
    sizes = np.array([output_size(h, w, image) for h, w in unique], float).reshape(
        -1, 2
    )[codes]
    same = (sizes == given.to_numpy()).all(axis=1)
    upright = table["orientation"].to_numpy() == 1 if "orientation" in table else True
    known = table["format"].isin(PASSED_FORMATS.get(image.resize, ())).to_numpy()
    exact = same & known & upright & image.pass_through
    density = n_bytes / given.to_numpy(float).prod(axis=1).clip(1)
    size = sizes.prod(axis=1) * np.sqrt(density.clip(1e-3))
    columns = {
        "known": np.where(exact, n_bytes, 0.0),
        "size": np.where(exact, 1.0, size),
    }
    return pd.DataFrame(columns, table.index).assign(exact=exact)
