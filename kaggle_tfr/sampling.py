"""Totals from a stratified sample, with an interval that holds the truth."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy import stats

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
