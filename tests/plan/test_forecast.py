"""Forecasts hold the truth, and parts fit before the first byte is written."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.plans import make_images

from kaggle_tfr.images.convert import ImageSettings, convert
from kaggle_tfr.plan.forecast import draw_sample, estimate, forecast, make_strata, predict
from kaggle_tfr.plan.plan import (
    SIDECAR_FILES,
    make_forecast,
    make_plan,
    shards_per_group,
    sidecar_bytes,
)
from kaggle_tfr.schema import load_schema

WHOLE = ImageSettings(None, "none")
EVERY_PASSES = ImageSettings((10_000, 10_000))
KAGGLE_FILES = 50


def made_table(n_bytes, folds=1, *, labels=None, side=100):
    """A table of JPEG files that are not there, with these sizes."""
    n = len(n_bytes)
    table = pd.DataFrame({"image_id": [f"{i:07d}" for i in range(n)], "path": "", "split": "train"})
    table = table.assign(n_bytes=n_bytes, height=side, width=side, format="JPEG", orientation=1)
    table = table.assign(label=0 if labels is None else labels, label_name="x", cluster=-1)
    table = table.assign(fold=np.arange(n) % folds)
    table.attrs = {"kind": "single", "classes": ["x"], "label_columns": []}
    return table


def forecast_made(table, image, true_bytes, seed, sample=400):
    """The forecast of a table whose records' sizes are given, not measured."""
    known, size, exact = predict(table, image)
    stratum, upper = make_strata(size, exact, sample)
    at = draw_sample(table["label"].to_numpy(), stratum, seed, 50, sample)
    clock = np.arange(len(at))
    return estimate(
        known, size, stratum, upper, at=at, y=true_bytes[at], begin=clock, end=clock + 1
    )


def count_held(table, image, true_bytes, seeds=100):
    """In how many seeds the interval holds the true mean, and its mean half width over that."""
    truth, held, widths = true_bytes.mean(), 0, []
    for seed in range(seeds):
        found = forecast_made(table, image, true_bytes, seed)
        held += found.low <= truth <= found.high
        widths.append((found.high - found.low) / 2 / truth)
    return held, np.mean(widths)


@pytest.fixture(scope="module")
def flowers(data_dir):
    paths = sorted((data_dir / "flowers").glob("*/*.jpg"))
    table = made_table([path.stat().st_size for path in paths], side=128)
    label = pd.factorize(np.array([path.parent.name for path in paths]))[0]
    return table.assign(path=[str(path) for path in paths], label=label)


def test_the_interval_holds_the_truth_on_flowers(flowers):
    """
    In at least 95 of 100 seeds, and it is narrow: under 2 % of the mean each way.
    """
    image = ImageSettings((96, 96), quality=80)
    few = flowers.iloc[::2]
    truth = np.array([len(convert(open(p, "rb").read(), image).data) for p in few["path"]])  # noqa: SIM115

    held, width = count_held(few, image, truth)

    assert held >= 95
    assert width < 0.02


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_the_interval_holds_the_truth_on_very_unequal_sizes(spread):
    """
    Log-normal sizes: the largest image weighs hundreds of typical ones, and is always measured.
    """
    rng = np.random.default_rng(1)
    n = 5000
    side = np.exp(rng.normal(6, spread / 2, n)).clip(20, 60_000).round()
    n_bytes = (side**2 * np.exp(rng.normal(-1, 0.5, n))).round() + 400
    table = made_table(n_bytes).assign(height=side, width=side)
    image = ImageSettings((40, 40), "stretch")
    truth = np.sqrt(n_bytes / side**2) * 3000 * np.exp(rng.normal(0, 0.3, n)) + 300

    held, width = count_held(table, image, truth)
    assert held >= 95
    assert width < 0.1

    image = ImageSettings(None, "none", pass_through=False)
    truth = n_bytes * np.exp(rng.normal(0, 0.2, n))
    assert truth.max() > 20 * truth.mean()
    held, width = count_held(table, image, truth)
    assert held >= 95
    assert width < 0.1


def test_originals_that_pass_through_are_counted_not_sampled(tmp_path):
    """
    With resize "none" the forecast is the sum of the files' sizes, without any interval.
    """
    table = make_images(tmp_path, 30)

    found = forecast(table, WHOLE)

    assert found.n_exact == 30
    assert found.total_bytes == found.total_bytes_high == table["n_bytes"].sum()
    assert found.low == found.high


def test_a_record_s_own_fields_are_part_of_the_forecast(tmp_path):
    """
    Names, labels and frames around the image are counted: the files' true sizes lie inside.
    """
    table = make_images(tmp_path, 30)
    schema = load_schema("default", table)

    found = make_forecast(table, schema=schema, image=WHOLE)

    per_image = found.bytes_per_image - table["n_bytes"].mean()
    assert 16 + 30 < per_image < 16 + 120
    assert found.seconds_low <= found.seconds_per_image <= found.seconds_high


def test_an_empty_table_and_a_vanished_input_say_so(tmp_path):
    """
    Nothing to plan, or nothing readable, is an error with a way out.
    """
    table = make_images(tmp_path, 4)
    for path in table["path"]:
        open(path, "w").close()

    with pytest.raises(ValueError, match="no image to plan"):
        forecast(table.iloc[:0], WHOLE)
    with pytest.raises(ValueError, match=r"all 4 images of the sample were refused.*01_explore"):
        forecast(table, ImageSettings((8, 8)))


def check_fit(plan, table, weight, *, limit_bytes, max_part_files, beside):
    """Every image is in one part, and no part passes the limits by its true weight."""
    assert len(plan.shards) == table.groupby(["part", "split", "fold", "shard"]).ngroups
    row_bytes, fixed = beside
    for part, rows in table.groupby("part"):
        shards = [shard for shard in plan.shards if shard.part == part]
        shards_bytes = weight[rows["image_id"].astype(int)].sum()
        assert shards_bytes + len(rows) * row_bytes + fixed <= limit_bytes
        assert len(shards) + SIDECAR_FILES + rows["split"].nunique() <= max_part_files
    counts = table.groupby(["split", "fold", "part"]).size()
    shards_of = table.groupby(["split", "fold", "part"])["shard"].nunique()
    for group in set(counts.index.droplevel("part")):
        # Parts take whole shards, equal to within one record.
        per_shard = counts[group] / shards_of[group]
        assert per_shard.max() - per_shard.min() <= 1
        assert shards_of[group].max() - shards_of[group].min() <= 1


sizes = st.lists(st.integers(200, 2_000_000), min_size=20, max_size=300)


def fit_one(n_bytes, folds, share, files, noise):
    """Plans a made table and checks the parts, when any plan can satisfy the limits."""
    n_bytes = np.array(n_bytes)
    table = made_table(n_bytes, folds, labels=np.arange(len(n_bytes)) % 3)
    image = EVERY_PASSES if noise is None else ImageSettings((100, 100), "stretch")
    weight = n_bytes.astype(float)
    if noise is not None:
        weight = weight * np.exp(np.random.default_rng(noise).normal(0, 0.3, len(weight)))
    found = forecast_made(table, image, weight, seed=0)
    row_bytes, fixed = sidecar_bytes(table, 3 * folds * 20)
    limit = share * weight.sum() + len(table) * row_bytes + fixed
    try:
        plan, dealt = make_plan(
            table, found, name="x", schema=load_schema("default", table), image=image,
            n_folds=folds, shard_mb=1, max_part_files=files, part_limit_gb=limit / 1e9,
        )  # fmt: skip
    except ValueError as error:
        assert "PART_LIMIT_GB" in str(error) or "MAX_PART_FILES" in str(error)  # noqa: PT017
        assume(False)
    beside = sidecar_bytes(table, len(plan.shards))
    check_fit(plan, dealt, weight, limit_bytes=limit, max_part_files=files, beside=beside)
    # A single part is refused only where its upper bound passes the limit.
    assert plan.n_parts > 1 or found.total_bytes <= limit


cases = given(
    sizes, st.integers(1, 6), st.floats(0.15, 1.3), st.integers(14, 60),
    st.none() | st.integers(0, 99),
)  # fmt: skip
quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@settings(max_examples=40, deadline=None, suppress_health_check=quiet)
@cases
def test_no_part_passes_its_limit(n_bytes, folds, share, files, noise):
    """
    Whatever the sizes, exact or sampled: parts fit, are fair, and hold every image once.
    """
    fit_one(n_bytes, folds, share, files, noise)


@pytest.mark.heavy
@settings(max_examples=1000, deadline=None, suppress_health_check=quiet)
@cases
def test_no_part_passes_its_limit_in_a_thousand_cases(n_bytes, folds, share, files, noise):
    """
    As above, a thousand times.
    """
    fit_one(n_bytes, folds, share, files, noise)


def groups(*counts):
    return {("train", fold): count for fold, count in enumerate(counts)}


@pytest.mark.parametrize("total_gb", [0.3, 1, 4, 9, 15, 18.5])
@pytest.mark.parametrize("folds", [1, 5, 15])
def test_shards_weigh_between_100_and_400_megabytes(total_gb, folds):
    """
    Where the data allow it, in as few parts as that takes.
    """
    weights = groups(*[total_gb * 1e9 / folds] * folds)
    counts = groups(*[100_000] * folds)
    for n_parts in range(1, 10):
        wanted = shards_per_group(weights, counts, n_parts)
        if wanted:
            break
    total = sum(wanted.values())

    assert n_parts <= 1 + total_gb // 12
    assert total / n_parts + SIDECAR_FILES + 1 <= KAGGLE_FILES - 5
    if total > folds * n_parts:
        assert all(100e6 <= weights[group] / wanted[group] <= 405e6 for group in wanted)


def test_a_number_of_shards_is_dealt_by_size():
    """
    Sixteen shards over three folds of 10, 20 and 50 images: 2, 4 and 10.
    """
    assert shards_per_group(groups(1, 1, 1), groups(10, 20, 50), 1, n_shards=16) == groups(2, 4, 10)


def test_images_per_shard_are_a_most():
    """
    3,000 a shard of 7,000 images are three shards.
    """
    assert shards_per_group(groups(1), groups(7000), 1, shard_images=3000) == groups(3)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"n_shards": 2}, r"N_SHARDS = 2, but there are 3 folds"),
        ({"max_part_files": 9}, r"MAX_PART_FILES = 9 leaves 1 .*Raise MAX_PART_FILES"),
    ],
)
def test_impossible_wishes_name_the_parameter(choice, message):
    """
    The error says which parameter cannot hold, and what would.
    """
    with pytest.raises(ValueError, match=message):
        shards_per_group(groups(1, 1, 1), groups(10, 10, 10), 1, **choice)


def test_a_limit_smaller_than_an_image_is_refused(tmp_path):
    """
    No number of parts helps then; the error says so and names the limit.
    """
    table = made_table([500_000] * 20)
    found = forecast_made(table, EVERY_PASSES, np.full(20, 500_000.0), 0)

    with pytest.raises(ValueError, match=r"PART_LIMIT_GB = 0.0003"):
        make_plan(
            table, found, name="x", schema=load_schema("default", table), image=EVERY_PASSES,
            part_limit_gb=0.0003, n_folds=1,
        )  # fmt: skip
