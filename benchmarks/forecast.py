"""How often the forecast's interval holds the truth, and how often parts are too large.

python -m benchmarks.forecast [--n N] [--draws N] [--json]

Sizes of images are drawn from skewed distributions, and records differ from their
predicted sizes by a factor, which may depend on the size. No image is converted: the
sizes of the sample are looked up. Columns: shares of draws whose interval holds the
truth, and whose three random parts are all below their bounds; half of the interval,
relative to the truth; how far the bound of a part is above its expected bytes.
"""

import argparse
import json
from unittest import mock

import numpy as np
import pandas as pd

from kaggle_tfr import parallel
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.plan.forecast import forecast_groups, make_forecast
from kaggle_tfr.schema import load_schema

SIZES = ("log-normal", "very skewed", "zipf", "giants")
RECODED = ImageSettings(None, "none", quality=80)
SAMPLES = (500, 100, 30)  # of 10,000 images at most 500


def draw_sizes(name, n, rng):
    """Return the pixels of n images in random order: float (n,)."""
    spread = {"log-normal": 1.0, "very skewed": 2.0, "giants": 0.5}
    if name == "zipf":
        return rng.permutation(1e9 / np.arange(1, n + 1) ** 0.9)
    pixels = np.exp(rng.normal(11, spread[name], n))
    if name == "giants":
        pixels[:5] = pixels.sum() * np.array([0.05, 0.04, 0.03, 0.02, 0.01])
    return rng.permutation(pixels)


def draw_table(pixels, noise, trend, rng):
    """Return a table of images, and the true bytes of their records.

    The images are BMP files, which do not pass through.
    """
    side = np.sqrt(pixels).round().clip(8)
    n_bytes = (side**2 * np.exp(rng.normal(-1, 0.5, len(side)))).round() + 400
    table = pd.DataFrame({"height": side, "width": side, "n_bytes": n_bytes})
    table = table.astype(int).assign(format="BMP", orientation=1)
    ratio = (pixels / np.median(pixels)) ** trend
    factor = 0.5 * ratio * np.exp(rng.normal(0, noise, len(side)))
    table["bytes"] = 600 + side * np.sqrt(n_bytes) * factor
    return table


def look_up(_function, rows, **_options):
    """Return the bytes of each row's record."""
    return [row["bytes"] for row in rows]


def forecast_draws(table, n_draws, sample):
    """Yield a forecast of the table for each of `n_draws` samples."""
    schema = load_schema("default")
    with (
        mock.patch.object(parallel, "run", look_up),
        mock.patch("kaggle_tfr.plan.forecast.MAX_SAMPLE", sample),
    ):
        for seed in range(n_draws):
            yield make_forecast(table, schema, RECODED, seed=seed)


def measure(table, n_draws, sample, n_parts=3):
    """Return the figures of one row of the table that is printed."""
    truth = table["bytes"].sum()
    figures = []
    for seed, forecast in enumerate(forecast_draws(table, n_draws, sample)):
        total = forecast_groups(forecast, np.zeros(len(table))).loc[0]
        part = np.random.default_rng(seed).permutation(len(table)) % n_parts
        parts = forecast_groups(forecast, part)
        margin = total["bytes_high"] - total["expected"]
        figures.append(
            {
                "covered": abs(total["expected"] - truth) <= margin,
                "parts fit": (
                    table["bytes"].groupby(part).sum() <= parts["bytes_high"]
                ).all(),
                "half width": margin / truth,
                "part margin": (parts["bytes_high"] / parts["expected"]).max() - 1,
            }
        )
    return pd.DataFrame(figures).mean()


def main():
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=10_000, help="images")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name in SIZES:
        for noise, trend in ((0.3, 0), (0.6, 0), (0.2, 0.25), (0.2, -0.25)):
            rng = np.random.default_rng(1)
            table = draw_table(draw_sizes(name, options.n, rng), noise, trend, rng)
            for sample in SAMPLES:
                row = {"sizes": name, "noise": noise, "trend": trend, "sample": sample}
                rows.append(row | measure(table, options.draws, sample).to_dict())
    if options.json:
        print(json.dumps(rows))
    else:
        print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
