"""Forecasts hold the truth, and parts fit before the first byte is written."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.plans import LABELS, make_images

from kaggle_tfr.images.convert import ImageSettings, convert
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
    return make_settings(
        PlanSettings, {name.upper(): value for name, value in parameters.items()}
    )


def made_table(n_bytes, folds=1, *, labels=0, side=100):
    """A table of JPEG files that are not there, with these sizes."""
    n = len(n_bytes)
    table = pd.DataFrame(
        {"image_id": [f"{i:07d}" for i in range(n)], "path": "", "split": "train"}
    )
    table = table.assign(
        n_bytes=n_bytes, height=side, width=side, format="JPEG", orientation=1
    )
    return table.assign(
        label=labels, label_name="x", cluster=-1, fold=np.arange(n) % folds
    )


def forecast_made(table, image, true_bytes, seeds=(0,), sample=400):
    """Forecasts, one a seed, of a table whose records' sizes are given, not measured."""
    predicted = forecasts.predict(table, image)
    upper = forecasts.cut_strata(predicted, sample)
    stratum = forecasts.number_strata(predicted, upper)
    for seed in seeds:
        at = forecasts.draw_sample(table["label"].to_numpy(), stratum, seed, sample)
        clock = np.arange(len(at))
        columns = {"bytes": true_bytes[at], "begin": clock, "end": clock + 1}
        measured = pd.DataFrame(columns, at)
        yield forecasts.estimate(predicted, upper, measured)


def check_held(table, image, true_bytes, largest_width, sample=400):
    """The interval holds the true mean in 95 of 100 seeds, and is narrow."""
    truth, made = (
        true_bytes.mean(),
        forecast_made(table, image, true_bytes, range(100), sample),
    )
    low, high = np.array([forecast.size[1:] for forecast in made]).T
    assert ((low <= truth) & (truth <= high)).sum() >= 95
    assert (high - low).mean() / 2 / truth < largest_width


def test_the_interval_holds_the_truth_on_flowers(data_dir):
    """In at least 95 of 100 seeds, and it is narrow: under 2 % of the mean each way."""
    paths = sorted((data_dir / "flowers").glob("*/*.jpg"))[::2]
    label = pd.factorize(np.array([path.parent.name for path in paths]))[0]
    table = made_table([path.stat().st_size for path in paths], labels=label, side=128)
    image = ImageSettings((96, 96), quality=80)
    truth = np.array([len(convert(path.read_bytes(), image).data) for path in paths])
    check_held(table, image, truth, largest_width=0.02)


@pytest.mark.parametrize(("spread", "n", "sample"), [(1.0, 5000, 400), (2.0, 5000, 400),
                                                     (1.0, 160, 30), (2.0, 600, 30)])  # fmt: skip
def test_the_interval_holds_the_truth_on_very_unequal_sizes(spread, n, sample):
    """Log-normal sizes: the largest image weighs hundreds of typical ones."""
    rng, width = np.random.default_rng(1), 0.1 if sample > 30 else 0.3
    side = np.exp(rng.normal(6, spread / 2, n)).clip(20, 60_000).round()
    n_bytes = (side**2 * np.exp(rng.normal(-1, 0.5, n))).round() + 400
    table = made_table(n_bytes).assign(height=side, width=side)
    small = np.sqrt(n_bytes / side**2) * 3000 * np.exp(rng.normal(0, 0.3, n)) + 300
    large = n_bytes * np.exp(rng.normal(0, 0.2, n))
    assert large.max() > (20 if n > 600 else 6) * large.mean()
    check_held(table, ImageSettings((40, 40), "stretch"), small, width, sample)
    whole = ImageSettings(None, "none", pass_through=False)
    check_held(table, whole, large, width, sample)


def test_originals_that_pass_through_are_counted_not_sampled(tmp_path):
    """Of them 30 are read, for what a record adds, so the interval is under a byte wide."""
    table = make_images(tmp_path, 120)
    schema = load_schema("default", table)
    found = make_forecast(table, schema, WHOLE)

    (_, low, high), seconds = found.size, found.seconds
    assert (found.n_exact, found.n_sampled) == (120, 30)
    assert seconds[1] <= seconds[0] <= seconds[2]
    # A record adds its frame, the image's id and four numbers, each with its name.
    assert 16 + 30 < low - table["n_bytes"].mean() < 16 + 120
    assert high - low < 1
    assert make_forecast(table, schema, WHOLE).size == found.size


def test_the_first_call_of_a_process_is_not_timed(tmp_path, monkeypatch, capsys):
    """Imports take a second once: the forecast of the time is that of the images after it.

    By a clock that stands still but for the first call, however busy the machine is.
    """
    table = make_images(tmp_path, 40)
    clock = mock.Mock()
    clock.time.return_value = 1000.0

    def convert_slowly(data, image):
        clock.time.return_value = 1002.0
        return convert(data, image)

    monkeypatch.setattr(forecasts, "time", clock)
    monkeypatch.setattr(forecasts, "convert", convert_slowly)
    forecasts._load_libraries.cache_clear()
    found = make_forecast(table, load_schema("default", table), ImageSettings((32, 32)))
    assert found.seconds == (0, 0, 0)
    assert f" {found.n_sampled}/{found.n_sampled} " in capsys.readouterr().err


def test_an_empty_table_and_a_vanished_input_say_so(tmp_path):
    """Nothing to plan, or nothing readable, is an error with a way out."""
    table = make_images(tmp_path, 4)
    schema = load_schema("default", table)
    for path in table["path"]:
        open(path, "w").close()

    with pytest.raises(ValueError, match="There is no image to plan"):
        make_forecast(table.iloc[:0], schema, WHOLE)
    with pytest.raises(
        ValueError, match=r"All 4 images of the sample were rejected.*01_explore"
    ):
        make_forecast(table, schema, ImageSettings((8, 8)))


def plan_made(table, forecast, **parameters):
    chosen, schema = choose(**parameters), load_schema("default", table, LABELS)
    return make_plan(table, forecast, LABELS, schema, chosen)


def check_parts(n_bytes, folds, share, files, noise):
    """Whatever the sizes, exact or sampled: parts fit, are fair, and hold every image once."""
    weight = np.array(n_bytes, float)
    table = made_table(n_bytes, folds, labels=np.arange(len(n_bytes)) % 3)
    size = (
        {"image_size": 10_000}
        if noise is None
        else {"image_size": 100, "resize": "stretch"}
    )
    if noise is not None:
        weight *= np.exp(np.random.default_rng(noise).normal(0, 0.3, len(weight)))
    (forecast,) = forecast_made(table, choose(**size).image, weight)
    row_bytes, fixed = sidecar_bytes(table, 3 * folds * 20)
    limit = share * weight.sum() + len(table) * row_bytes + fixed
    limits = {"max_part_files": files, "part_limit_gb": limit / 1e9, "shard_mb": 1}
    try:
        plan, planned = plan_made(table, forecast, n_folds=folds, **size, **limits)
    except ValueError as error:
        assert "PART_LIMIT_GB" in str(error) or "MAX_PART_FILES" in str(error)  # noqa: PT017
        assume(False)

    assert sorted(planned["image_id"]) == sorted(table["image_id"])
    # A single part is refused only where its upper bound passes the limit.
    assert plan.n_parts > 1 or forecast.size[0] * len(table) <= limit
    row_bytes, fixed = sidecar_bytes(table, len(plan.shards))
    for part, rows in planned.groupby("part"):
        n_shards = sum(shard.part == part for shard in plan.shards)
        assert n_shards + SIDECAR_FILES + rows["split"].nunique() <= files
        assert (
            weight[rows["image_id"].astype(int)].sum() + len(rows) * row_bytes + fixed
            <= limit
        )
    groups = planned.pivot_table("shard", "fold", "part", ["size", "nunique"])
    assert groups["nunique"].sum(axis=None) == len(plan.shards)
    # Parts take whole shards, equal to within one record.
    assert (np.ptp(groups["size"] / groups["nunique"], axis=1) <= 1).all()
    assert (np.ptp(groups["nunique"], axis=1) <= 1).all()


cases = given(
    st.lists(st.integers(200, 2_000_000), min_size=20, max_size=150),
    st.integers(1, 6), st.floats(0.15, 1.3), st.integers(14, 60), st.none() | st.integers(0, 99),
)  # fmt: skip
unchecked = [HealthCheck.too_slow, HealthCheck.filter_too_much]
quick, many = (
    hypothesis_settings(max_examples=n, deadline=None, suppress_health_check=unchecked)
    for n in (10, 1000)
)
test_no_part_passes_its_limit = quick(cases(check_parts))
test_no_part_passes_its_limit_in_a_thousand_cases = pytest.mark.heavy(
    many(cases(check_parts))
)


def groups(*counts, expected=0.0):
    index = pd.MultiIndex.from_product(
        [["train"], range(len(counts))], names=["split", "fold"]
    )
    return pd.DataFrame({"count": counts, "expected": expected}, index)


@pytest.mark.parametrize("total_gb", [0.3, 1, 4, 9, 15, 18.5])
@pytest.mark.parametrize("folds", [1, 5, 15])
def test_shards_weigh_between_100_and_400_megabytes(total_gb, folds):
    """Where the data allow it, in as few parts as that takes."""
    weight = total_gb * 1e9 / folds
    made = groups(*[100_000] * folds, expected=weight)
    tried = (shards_per_group(made, n_parts, choose()) for n_parts in range(1, 10))
    n_parts, wanted = next((n, wanted) for n, wanted in enumerate(tried, 1) if wanted)
    total = sum(wanted.values())
    assert n_parts <= 1 + total_gb // 12
    assert (
        total / n_parts + SIDECAR_FILES + 1 <= 50 - 5
    )  # Kaggle's files, and those of other tools
    if total > folds * n_parts:
        assert all(100e6 <= weight / shards <= 405e6 for shards in wanted.values())


def test_a_number_of_shards_or_of_images_in_one_is_kept():
    """Sixteen shards over 10, 20 and 50 images: 2, 4 and 10. Of 7,000, 3,000 each: three."""
    by_number = shards_per_group(groups(10, 20, 50), 1, choose(n_shards=16))
    assert by_number == {("train", 0): 2, ("train", 1): 4, ("train", 2): 10}
    assert shards_per_group(groups(7000), 1, choose(shard_images=3000)) == {
        ("train", 0): 3
    }


def test_a_part_s_limit_of_files_is_of_those_at_its_top():
    """Test shards share one folder, so any number of them counts as one file."""
    places = pd.MultiIndex.from_tuples(
        [("train", 0), ("test", -1)], names=["split", "fold"]
    )
    groups = pd.DataFrame({"count": 900, "expected": 900e6}, places)
    by_size = choose(shard_mb=100, max_part_files=21)
    by_number = choose(shard_images=100, max_part_files=21)

    for chosen in (by_size, by_number):
        assert shards_per_group(groups, 1, chosen) == {("train", 0): 9, ("test", -1): 9}
    assert shards_per_group(groups, 1, replace(by_number, max_part_files=20)) is None


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"n_shards": 2}, r"N_SHARDS = 2, but there are 3 folds"),
        (
            {"max_part_files": 10},
            r"MAX_PART_FILES = 10 leaves 1 .*Raise MAX_PART_FILES",
        ),
        ({"part_limit_gb": 0.0003}, r"PART_LIMIT_GB = 0.0003: one record alone"),
        (
            {"part_limit_gb": 0.008, "n_shards": 3},
            r"need 2 parts, but fold 0 of 'train' has 1",
        ),
    ],
)
def test_impossible_limits_name_the_parameter(choice, message):
    """The error says which parameter cannot hold, and what would."""
    table = made_table([500_000] * 20, 3)
    (forecast,) = forecast_made(
        table, choose(image_size=10_000).image, np.full(20, 500_000.0)
    )

    with pytest.raises(ValueError, match=message):
        plan_made(table, forecast, image_size=10_000, **choice)
