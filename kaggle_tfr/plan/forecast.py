"""Totals from a stratified sample, with an interval that holds the truth."""

import gzip
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from kaggle_tfr import parallel, storage
from kaggle_tfr.images.colour import RefusedImage
from kaggle_tfr.images.convert import ImageSettings, convert, output_size
from kaggle_tfr.schema import RecordSchema, encode_row

CONFIDENCE = 0.999
STRATUM = 25  # images sampled from each stratum of similar predicted size
MEASURED = ["at", "bytes", "begin", "end"]  # of an image in the sample


class Interval(NamedTuple):
    """A mean, and bounds that hold it with a confidence of 99.9 %."""

    expected: float
    low: float
    high: float


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

    def summary(self) -> dict[str, float]:
        """What does not depend on the clock, as numbers that JSON can hold."""
        counts = {"n_images": self.n_images, "n_exact": self.n_exact, "n_sampled": self.n_sampled}
        names = ("bytes_per_image", "low", "high")
        return counts | {k: round(v, 1) for k, v in zip(names, self.size, strict=True)}


def make_strata(size: np.ndarray, exact: np.ndarray, sample: int) -> tuple[np.ndarray, np.ndarray]:
    """Stratum of each row and the strata's upper ends: each weighs the same, so giants get read."""
    if exact.all():
        return np.zeros(len(size), int), np.array([np.inf])
    ordered = np.sort(size[~exact])
    weight = np.cumsum(ordered)
    cuts = np.linspace(0, weight[-1], max(1, min(20, sample // STRATUM)) + 1)[1:-1]
    upper = np.append(np.unique(ordered[np.searchsorted(weight, cuts)]), np.inf)
    stratum = np.where(exact, 0, 1 + np.searchsorted(upper[:-1], size))
    return stratum, np.insert(upper, 0, 0.0)


def draw_sample(labels: np.ndarray, stratum: np.ndarray, seed: int, sample: int) -> np.ndarray:
    """Sorted positions of the sample: in each stratum one of every run of rows, sorted by label."""
    rng = np.random.default_rng(seed)
    inside = [np.flatnonzero(stratum == number) for number in range(stratum.max() + 1)]
    share = -(-sample // max(1, sum(len(rows) > 0 for rows in inside[1:])))
    chosen = []
    for number, rows in enumerate(inside):
        wanted = min(len(rows), share if number else min(sample, 2 * STRATUM))
        rows = rows[np.lexsort((rng.random(len(rows)), labels[rows]))]  # noqa: PLW2901
        edges = np.linspace(0, len(rows), wanted + 1).astype(int)
        chosen += [rows[rng.integers(a, b)] for a, b in pairwise(edges)]
    return np.sort(np.asarray(chosen, int))


def estimate(
    known: np.ndarray,
    size: np.ndarray,
    stratum: np.ndarray,
    upper: np.ndarray,
    measured: pd.DataFrame,
) -> Forecast:
    """The forecast from measured images: their row (`at`), `bytes`, and seconds `begin` to `end`.

    Source: separate ratio estimator, Cochran, Sampling Techniques (1977), section 6.10.
    """
    at, y, begin, end = (measured[name].to_numpy() for name in MEASURED)
    seconds, extra, drawn = end - begin, y - known[at], stratum[at]
    add_up = partial(np.bincount, minlength=len(upper))
    n, m = add_up(stratum), add_up(drawn)
    # Where nothing was drawn: the ratio of all, and none for the exact ones.
    typical = np.where(np.arange(len(n)) > 0, extra.sum() / size[at].sum(), 0.0)
    ratio = np.divide(add_up(drawn, extra), add_up(drawn, size[at]), out=typical, where=m > 0)
    # One image tells nothing of the spread: half its size is a guess on the safe side.
    guess = np.where(m < n, np.abs(ratio) / 2 * add_up(stratum, size) / n.clip(1), 0)
    off = add_up(drawn, (extra - ratio[drawn] * size[at]) ** 2)
    spread = np.where(m > 1, np.sqrt(off / (m - 1).clip(1)), guess)
    took = np.divide(add_up(drawn, seconds), m, out=np.full(len(n), seconds.mean()), where=m > 0)
    off = add_up(drawn, (seconds - took[drawn]) ** 2)
    took_spread = np.where(m > 1, np.sqrt(off / (m - 1).clip(1)), took)
    total = (known + ratio[stratum] * size).sum()
    interval, quantile = _interval(n, m, total, spread)
    strata = {"rows": n, "sampled": m, "ratio": ratio, "spread": spread, "upper": upper}
    return Forecast(
        n_images=len(known),
        n_exact=int(n[0]),
        n_sampled=len(at),
        size=interval,
        seconds=_interval(n, m, (n * took).sum(), took_spread)[0],
        workers=float(max(1.0, seconds.sum() / max(end.max() - begin.min(), 1e-9))),
        quantile=quantile,
        strata=pd.DataFrame(strata),
    )


def _interval(
    n: np.ndarray, m: np.ndarray, total: float, spread: np.ndarray
) -> tuple[Interval, float]:
    """The mean of `total`, and the quantile of t, by Satterthwaite's degrees of freedom.

    n, m, spread: rows of each stratum, how many of them were drawn, and the spread of one.
    """
    variance = n**2 * (1 - m / n.clip(1)) * spread**2 / m.clip(1)
    freedom = variance.sum() ** 2 / max(np.sum(variance**2 / (m - 1).clip(1)), 1e-300)
    quantile = float(stats.t.ppf(0.5 + CONFIDENCE / 2, min(max(freedom, 3), 10_000)))
    mean, half = float(total / n.sum()), float(quantile * np.sqrt(variance.sum()) / n.sum())
    return Interval(mean, max(mean - half, 0.0), mean + half), quantile


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

    table: columns image_id, path, height, width, n_bytes, format. Images are drawn from strata of
    similar predicted size, spread over the labels; those that pass through are known exactly, and
    only a few of them are read, for their time and for what the record adds.

    Raises: ValueError for no image to forecast, or if every image of the sample was refused.
    """
    if not len(table):
        raise ValueError("there is no image to plan. Look into rejects.csv and duplicates.parquet.")
    table = table.reset_index(drop=True)
    known, size, exact = predict(table, image)
    # A small dataset is not converted twice for the sake of its forecast.
    sample = min(sample, max(200, len(table) // 10))
    stratum, upper = make_strata(size, exact, sample)
    chosen = draw_sample(table["label"].to_numpy(), stratum, seed, sample)
    rows = table.loc[chosen].drop(columns=["problem", "note"], errors="ignore").to_dict("records")
    measure = partial(_measure_records, schema=schema, image=image, compression=compression)
    items = parallel.blocks(list(zip(chosen, rows, strict=True)), 8)
    results = parallel.run(measure, items, label="Sampling sizes")
    measured = sorted(row for block in results for row in block)
    if not measured:
        raise ValueError(
            f"all {len(chosen)} images of the sample were refused, the first is "
            f"'{table['path'][chosen[0]]}'. Has the input changed since 01_explore? Run it again."
        )
    return estimate(known, size, stratum, upper, pd.DataFrame(measured, columns=MEASURED))


def _measure_records(
    rows: Sequence[tuple[int, dict]], schema: RecordSchema, image: ImageSettings, compression: str
) -> list[tuple[int, int, float, float]]:
    """The values of `MEASURED` for each image that is not refused."""
    from kaggle_tfr.shards import FRAME_BYTES

    measured = []
    for at, row in rows:
        begin = time.time()
        try:
            converted = convert(storage.read_bytes(row["path"]), image)
        except RefusedImage:
            continue
        record = encode_row(row, converted, schema, image)
        if compression:
            record = gzip.compress(record, 6)
        measured.append((at, len(record) + FRAME_BYTES, begin, time.time()))
    return measured


def forecast_groups(
    table: pd.DataFrame, image: ImageSettings, forecast: Forecast, by: list[str]
) -> pd.DataFrame:
    """Expected bytes (`expected`) and their upper bound (`high`) of each group of rows.

    A group is a random share of the whole, so its images may weigh more than the mean: the
    bound allows for that too.
    """
    known, size, exact = predict(table, image)
    strata = forecast.strata
    index = np.where(exact, 0, 1 + np.searchsorted(strata.upper.to_numpy()[1:-1], size))
    frame = table[by].assign(
        stratum=index, rows=1, expected=known + strata.ratio.to_numpy()[index] * size
    )
    cells = frame.groupby([*by, "stratum"], observed=True).sum().reset_index()
    whole = strata.iloc[cells.stratum].reset_index(drop=True)
    rows, spread = cells.rows, whole.spread
    of_mean = rows**2 * (1 - whole.sampled / whole.rows) * spread**2 / whole.sampled.clip(1)
    of_share = rows * (1 - (rows / whole.rows).clip(upper=1)) * spread**2
    cells["variance"] = of_mean + of_share
    total = cells.groupby(by, observed=True)[["expected", "variance"]].sum()
    total["high"] = total.expected + forecast.quantile * np.sqrt(total.variance)
    return total[["expected", "high"]]


def predict(table: pd.DataFrame, image: ImageSettings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes known for sure, relative size of what is to be encoded, and which rows are exact."""
    height, width, n_bytes = table[["height", "width", "n_bytes"]].to_numpy(float).T
    codes, unique = pd.MultiIndex.from_frame(table[["height", "width"]]).factorize()
    sizes = np.array([output_size(h, w, image) for h, w in unique], float).reshape(-1, 2)[codes]
    same = (sizes[:, 0] == height) & (sizes[:, 1] == width)
    small = ["JPEG"] if image.format == "JPEG" else []
    kept = {"none": ["JPEG", "PNG"], "short_side": small}.get(image.resize, [])
    upright = table["orientation"].to_numpy() == 1 if "orientation" in table else True
    exact = same & table["format"].isin(kept).to_numpy() & upright & image.pass_through
    density = n_bytes / np.maximum(height * width, 1)
    size = sizes.prod(axis=1) * np.sqrt(np.maximum(density, 1e-3))
    return np.where(exact, n_bytes, 0.0), np.where(exact, 1.0, size), exact
