"""Forecasts hold the truth, and parts fit before the first byte is written."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.plans import LABELS, make_images

from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.parameters import make_settings
from kaggle_tfr.plan import forecast as forecasts
from kaggle_tfr.plan.forecast import make_forecast
from kaggle_tfr.plan.plan import (
    SIDECAR_FILES,
    PlanSettings,
    make_plan,
    shards_per_group,
    sidecar_bytes,
)
from kaggle_tfr.schema import load_schema

WHOLE = ImageSettings(None, "none")


def choose(**parameters):
    values = {name.upper(): value for name, value in parameters.items()}
    return make_settings(PlanSettings, values)


def make_table(n_bytes, folds=1, *, labels=0, side=100):
    """Return a table of JPEG files with these sizes. The files do not exist."""
    n = len(n_bytes)
    return pd.DataFrame(
        {
            "image_id": [f"{number:07d}" for number in range(n)],
            "path": "",
            "split": "train",
            "n_bytes": n_bytes,
            "height": side,
            "width": side,
            "format": "JPEG",
            "orientation": 1,
            "label": labels,
            "label_name": "x",
            "cluster": -1,
            "fold": np.arange(n) % folds,
        }
    )


def forecast_sizes(table, image, true_bytes, seeds=(0,), sample=400):
    """Yield one forecast per seed, of records whose sizes are known."""
    predicted = forecasts.predict(table, image)
    edges = forecasts.cut_strata(predicted, sample)
    stratum = forecasts.number_strata(predicted, edges)
    labels = table["label"].to_numpy()
    for seed in seeds:
        chosen = forecasts.draw_sample(labels, stratum, seed, sample)
        begin = np.arange(len(chosen))
        columns = {"bytes": true_bytes[chosen], "begin": begin, "end": begin + 1}
        measured = pd.DataFrame(columns, chosen)
        yield forecasts.estimate(predicted, edges, measured)


def check_intervals(table, image, true_bytes, max_width, sample=400):
    """Check that 95 of 100 intervals hold the true mean, and that they are narrow."""
    truth = true_bytes.mean()
    n_right = 0
    widths = []
    for forecast in forecast_sizes(table, image, true_bytes, range(100), sample):
        _, low, high = forecast.size
        n_right += low <= truth <= high
        widths.append((high - low) / 2 / truth)
    assert n_right >= 95
    assert np.mean(widths) < max_width


@pytest.mark.parametrize(
    ("spread", "n", "sample", "max_width"),
    [
        (1.0, 5000, 400, 0.1),
        (2.0, 5000, 400, 0.1),
        (1.0, 160, 30, 0.3),
        (2.0, 600, 30, 0.3),
    ],
)
def test_the_interval_holds_the_truth_on_very_unequal_sizes(
    spread, n, sample, max_width
):
    """The sizes are log-normal: the largest image weighs hundreds of typical ones."""
    rng = np.random.default_rng(1)
    side = np.exp(rng.normal(6, spread / 2, n)).clip(20, 60_000).round()
    n_bytes = (side**2 * np.exp(rng.normal(-1, 0.5, n))).round() + 400
    table = make_table(n_bytes).assign(height=side, width=side)
    noise = np.exp(rng.normal(0, 0.3, n))
    small_records = np.sqrt(n_bytes / side**2) * 3000 * noise + 300
    large_records = n_bytes * np.exp(rng.normal(0, 0.2, n))
    assert large_records.max() > (20 if n > 600 else 6) * large_records.mean()

    stretched = ImageSettings((40, 40), "stretch")
    check_intervals(table, stretched, small_records, max_width, sample)
    recoded = ImageSettings(None, "none", pass_through=False)
    check_intervals(table, recoded, large_records, max_width, sample)


def test_originals_that_pass_through_are_counted_and_not_estimated(tmp_path):
    """A sample of 30 shows what a record adds: the interval is under a byte wide."""
    table = make_images(tmp_path, 120)
    schema = load_schema("default", table)

    forecast = make_forecast(table, schema, WHOLE)

    assert (forecast.n_exact, forecast.n_sampled) == (120, 30)
    seconds, least_seconds, most_seconds = forecast.seconds
    assert least_seconds <= seconds <= most_seconds
    _, low, high = forecast.size
    # A record adds its frame, the image's id and four numbers, each with its name.
    assert 16 + 30 < low - table["n_bytes"].mean() < 16 + 120
    assert high - low < 1
    assert make_forecast(table, schema, WHOLE).size == forecast.size


def test_nothing_to_plan_and_vanished_images_are_errors(tmp_path):
    """The messages contain what to do."""
    table = make_images(tmp_path, 4)
    schema = load_schema("default", table)
    for path in table["path"]:
        open(path, "w").close()

    with pytest.raises(ValueError, match=r"There is no image to plan.*rejects\.csv"):
        make_forecast(table.iloc[:0], schema, WHOLE)
    rejected = r"All 4 images of the sample were rejected.*01_explore"
    with pytest.raises(ValueError, match=rejected):
        make_forecast(table, schema, ImageSettings((8, 8)))


def plan_sizes(table, forecast, **parameters):
    schema = load_schema("default", table, LABELS)
    return make_plan(table, forecast, LABELS, schema, choose(**parameters))


def check_parts(n_bytes, folds, share, max_files, noise):
    """Check that parts fit, are fair samples, and hold every image once.

    share: of all bytes, the limit of a part. noise: a seed for sizes that differ from
        the forecast; None: originals pass through, and their sizes are known.
    """
    weights = np.array(n_bytes, float)
    table = make_table(n_bytes, folds, labels=np.arange(len(n_bytes)) % 3)
    if noise is None:
        size = {"image_size": 10_000}
    else:
        size = {"image_size": 100, "resize": "stretch"}
        rng = np.random.default_rng(noise)
        weights *= np.exp(rng.normal(0, 0.3, len(weights)))
    (forecast,) = forecast_sizes(table, choose(**size).image, weights)
    row_bytes, fixed_bytes = sidecar_bytes(table, 3 * folds * 20)
    limit_bytes = share * weights.sum() + len(table) * row_bytes + fixed_bytes
    try:
        plan, planned = plan_sizes(
            table,
            forecast,
            n_folds=folds,
            max_part_files=max_files,
            part_limit_gb=limit_bytes / 1e9,
            shard_mb=1,
            **size,
        )
    except ValueError as error:
        names = ("PART_LIMIT_GB", "MAX_PART_FILES")
        assert any(name in str(error) for name in names)  # noqa: PT017
        assume(False)

    assert sorted(planned["image_id"]) == sorted(table["image_id"])
    # A single part is rejected only where its upper bound exceeds the limit.
    assert plan.n_parts > 1 or forecast.size[0] * len(table) <= limit_bytes
    row_bytes, fixed_bytes = sidecar_bytes(table, len(plan.shards))
    for part, rows in planned.groupby("part"):
        n_shards = sum(shard.part == part for shard in plan.shards)
        assert n_shards + SIDECAR_FILES + rows["split"].nunique() <= max_files
        shard_bytes = weights[rows["image_id"].astype(int)].sum()
        assert shard_bytes + len(rows) * row_bytes + fixed_bytes <= limit_bytes
    check_shares(planned, len(plan.shards))


def check_shares(planned, n_shards):
    """Check that parts take whole shards, equal to within one record."""
    counts = planned.pivot_table("shard", "fold", "part", ["size", "nunique"])
    shards = counts["nunique"]
    assert shards.sum(axis=None) == n_shards
    assert (np.ptp(shards, axis=1) <= 1).all()
    assert (np.ptp(counts["size"] / shards, axis=1) <= 1).all()


cases = given(
    n_bytes=st.lists(st.integers(200, 2_000_000), min_size=20, max_size=150),
    folds=st.integers(1, 6),
    share=st.floats(0.15, 1.3),
    max_files=st.integers(14, 60),
    noise=st.none() | st.integers(0, 99),
)
slow_checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
quick = hypothesis_settings(
    max_examples=10, deadline=None, suppress_health_check=slow_checks
)
thorough = hypothesis_settings(quick, max_examples=1000)
test_no_part_exceeds_its_limit = quick(cases(check_parts))
test_no_part_exceeds_its_limit_in_a_thousand_cases = pytest.mark.heavy(
    thorough(cases(check_parts))
)


def make_groups(*counts, expected=0.0):
    """Return one row per fold, as `forecast_groups` does."""
    index = pd.MultiIndex.from_product(
        [["train"], range(len(counts))], names=["split", "fold"]
    )
    return pd.DataFrame({"count": counts, "expected": expected}, index)


@pytest.mark.parametrize("total_gb", [0.3, 1, 4, 9, 15, 18.5])
@pytest.mark.parametrize("folds", [1, 5, 15])
def test_shards_weigh_between_100_and_400_megabytes(total_gb, folds):
    """Where the data allow it, in as few parts as that takes."""
    weight = total_gb * 1e9 / folds
    groups = make_groups(*[100_000] * folds, expected=weight)
    tried = (shards_per_group(groups, n_parts, choose()) for n_parts in range(1, 10))
    n_parts, wanted = next((n, wanted) for n, wanted in enumerate(tried, 1) if wanted)
    total = sum(wanted.values())
    assert n_parts <= 1 + total_gb // 12
    assert (
        total / n_parts + SIDECAR_FILES + 1 <= 50 - 5
    )  # Kaggle's files, and those of other tools
    if total > folds * n_parts:
        assert all(100e6 <= weight / shards <= 405e6 for shards in wanted.values())


def test_a_part_s_limit_of_files_is_of_those_at_its_top():
    """Test shards share one folder, so any number of them counts as one file."""
    places = pd.MultiIndex.from_tuples(
        [("train", 0), ("test", -1)], names=["split", "fold"]
    )
    groups = pd.DataFrame({"count": 900, "expected": 900e6}, places)
    by_size = choose(shard_mb=100, max_part_files=23)
    by_number = choose(shard_images=100, max_part_files=23)

    for chosen in (by_size, by_number):
        assert shards_per_group(groups, 1, chosen) == {("train", 0): 9, ("test", -1): 9}
    assert shards_per_group(groups, 1, replace(by_number, max_part_files=22)) is None


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"n_shards": 2}, r"N_SHARDS = 2, but there are 3 folds"),
        (
            {"max_part_files": 12},
            r"MAX_PART_FILES = 12 leaves 1 .*Raise MAX_PART_FILES",
        ),
        ({"part_limit_gb": 0.0003}, r"PART_LIMIT_GB = 0.0003: one record alone"),
        (
            {"part_limit_gb": 0.008, "n_shards": 3},
            r"need 2 parts, but fold 0 of 'train' has 1",
        ),
    ],
)
def test_impossible_limits_name_the_parameter(choice, message):
    """The error contains the parameter, its value, and what to change."""
    table = make_table([500_000] * 20, 3)
    (forecast,) = forecast_sizes(
        table, choose(image_size=10_000).image, np.full(20, 500_000.0)
    )

    with pytest.raises(ValueError, match=message):
        plan_sizes(table, forecast, image_size=10_000, **choice)
