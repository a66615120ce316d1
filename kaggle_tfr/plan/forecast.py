"""Totals from a stratified sample, with an interval that holds the truth."""

import gzip
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy import stats

from kaggle_tfr import parallel, storage
from kaggle_tfr.images.colour import RefusedImage
from kaggle_tfr.images.convert import ImageSettings, convert, output_size

CONFIDENCE = 0.999


STRATUM = 25  # images sampled from each stratum of similar predicted size


@dataclass(frozen=True)
class Forecast:
    """Bytes and seconds to expect; `low` and `high` bound the mean with a confidence of 99.9 %.

    bytes_per_image, low, high: of a whole record, in bytes.
    seconds_per_image, seconds_low, seconds_high: of one worker; `workers` ran side by side.
    n_exact: originals that pass through, whose bytes are known; n_sampled: images measured.
    strata: one row a stratum (rows, sampled, ratio, spread, upper), the first for the exact ones.
    """

    n_images: int
    n_exact: int
    n_sampled: int
    bytes_per_image: float
    low: float
    high: float
    seconds_per_image: float
    seconds_low: float
    seconds_high: float
    workers: float
    quantile: float
    strata: pd.DataFrame = field(repr=False, compare=False)

    @property
    def total_bytes(self) -> int:
        """Expected bytes of all records."""
        return round(self.bytes_per_image * self.n_images)

    @property
    def total_bytes_high(self) -> int:
        """Upper bound of the bytes of all records."""
        return round(self.high * self.n_images)

    @property
    def total_seconds(self) -> float:
        """Expected time to write everything with the workers that measured the sample."""
        return self.seconds_per_image * self.n_images / self.workers

    def summary(self) -> dict[str, int | float]:
        """What does not depend on the clock, as numbers that JSON can hold."""
        return {
            "n_images": self.n_images,
            "n_exact": self.n_exact,
            "n_sampled": self.n_sampled,
            "bytes_per_image": round(self.bytes_per_image, 1),
            "low": round(self.low, 1),
            "high": round(self.high, 1),
        }


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


def draw_sample(labels, stratum, seed: int, exact_rows: int, sample: int) -> np.ndarray:
    """Sorted positions of the sample: in each stratum one of every run of rows, sorted by label."""
    rng = np.random.default_rng(seed)
    inside = [np.flatnonzero(stratum == number) for number in range(stratum.max() + 1)]
    share = -(-sample // max(1, sum(len(rows) > 0 for rows in inside[1:])))
    chosen = []
    for number, rows in enumerate(inside):
        wanted = min(len(rows), share if number else exact_rows)
        rows = rows[np.lexsort((rng.random(len(rows)), labels[rows]))]  # noqa: PLW2901
        edges = np.linspace(0, len(rows), wanted + 1).astype(int)
        chosen += [rows[rng.integers(a, b)] for a, b in pairwise(edges)]
    return np.sort(np.asarray(chosen, int))


def estimate(known, size, stratum, upper, *, at, y, begin, end) -> Forecast:
    """The forecast from rows `at` that were measured: `y` bytes, from `begin` to `end` seconds.

    Source: separate ratio estimator, Cochran, Sampling Techniques (1977), section 6.10.
    """
    seconds, extra = end - begin, y - known[at]
    typical = extra.sum() / size[at].sum()
    rows = []
    for number in range(len(upper)):
        inside, drawn = stratum == number, stratum[at] == number
        row = _describe_stratum(size[inside], size[at][drawn], extra[drawn], typical * (number > 0))
        row["total"] = known[inside].sum() + row["ratio"] * size[inside].sum()
        took = seconds[drawn] if drawn.any() else seconds
        row["seconds"] = took.mean()
        row["seconds_spread"] = took.std(ddof=1) if len(took) > 1 else took.mean()
        rows.append(row | {"upper": upper[number]})
    strata = pd.DataFrame(rows)
    n = len(known)
    mean, half, quantile = _interval(strata, "spread", strata.total.sum() / n)
    took, more, _ = _interval(strata, "seconds_spread", (strata.rows * strata.seconds).sum() / n)
    wall = max(end.max() - begin.min(), 1e-9)
    return Forecast(
        n_images=n,
        n_exact=int((stratum == 0).sum()),
        n_sampled=len(at),
        bytes_per_image=float(mean),
        low=float(max(mean - half, 0)),
        high=float(mean + half),
        seconds_per_image=float(took),
        seconds_low=float(max(took - more, 0)),
        seconds_high=float(took + more),
        workers=float(max(1.0, seconds.sum() / wall)),
        quantile=float(quantile),
        strata=strata,
    )


def _describe_stratum(size, drawn_size, extra, typical: float) -> dict[str, float]:
    """Rows, sampled, ratio of bytes to size, and the spread of one row around it, in bytes.

    typical: the ratio where nothing was drawn.
    """
    n, m = len(size), len(extra)
    ratio = extra.sum() / drawn_size.sum() if m else typical
    if m > 1:
        spread = np.sqrt(np.sum((extra - ratio * drawn_size) ** 2) / (m - 1))
    else:
        # One image tells nothing of the spread: half its size is a guess on the safe side.
        spread = 0.0 if m >= n else 0.5 * abs(ratio) * size.mean()
    return {"rows": n, "sampled": m, "ratio": ratio, "spread": spread}


def _interval(strata: pd.DataFrame, spread: str, mean: float) -> tuple[float, float, float]:
    """Mean, half width of its interval and quantile of t, by Satterthwaite's degrees of freedom."""
    n, m = strata.rows.to_numpy(float), strata.sampled.to_numpy(float)
    variance = n**2 * (1 - m / np.maximum(n, 1)) * strata[spread].to_numpy() ** 2 / m.clip(1)
    freedom = variance.sum() ** 2 / max(np.sum(variance**2 / (m - 1).clip(1)), 1e-300)
    quantile = stats.t.ppf(0.5 + CONFIDENCE / 2, min(max(freedom, 3), 10_000))
    return mean, quantile * np.sqrt(variance.sum()) / n.sum(), quantile


RECORD_FRAME_BYTES = 16  # length, its CRC and the data's CRC around each record


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
    measure = partial(_measure_records, settings=settings, encode=encode, compression=compression)
    rows = table.loc[chosen].drop(columns=["problem", "note"], errors="ignore")
    found = [
        row
        for block in parallel.run(measure, parallel.blocks(rows, 8), label="Sampling sizes")
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


def _measure_records(rows: pd.DataFrame, *, settings, encode, compression) -> list[tuple]:
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
        frame = RECORD_FRAME_BYTES if encode else 0
        found.append((at, len(record) + frame, begin, time.time()))
    return found
