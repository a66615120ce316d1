"""Forecasts hold the truth, and parts fit before the first byte is written."""

from unittest import mock

import numpy as np
import pandas as pd
import pytest
from support.plans import LABELS, NOTHING, make_images, plan_images

from kaggle_tfr import parallel
from kaggle_tfr.parameters import make_settings
from kaggle_tfr.plan.plan import SIDECAR_FILES, PlanSettings, list_layouts, make_plan
from kaggle_tfr.schema import load_schema
from kaggle_tfr.shards import PlanId


def choose(**parameters):
    values = {name.upper(): value for name, value in parameters.items()}
    return make_settings(PlanSettings, values)


def make_table(n_bytes, folds, ratios):
    """Return a table of BMP files with these sizes, which do not exist.

    bytes: of their records, those of the files times `ratios`.
    """
    n = len(n_bytes)
    side = np.sqrt(n_bytes).astype(int)
    return pd.DataFrame(
        {
            "image_id": np.arange(n).astype(str),
            "path": "",
            "split": "train",
            "bytes": np.ceil(n_bytes * ratios),
            "n_bytes": n_bytes,
            "height": side,
            "width": side,
            "format": "BMP",
            "orientation": 1,
            "label": np.arange(n) % 3,
            "fold": np.arange(n) % folds,
        }
    )


def look_up(_, rows, **__):
    """Return what measuring would: the bytes of each record."""
    return [row["bytes"] for row in rows]


def plan_sizes(table, **parameters):
    """Return the plan of records whose sizes are known, and its table."""
    schema = load_schema("default", table.assign(cluster=-1), LABELS)
    settings = choose(resize="none", **parameters)
    with mock.patch.object(parallel, "run", look_up):
        return make_plan(
            table,
            LABELS,
            schema,
            settings,
            earlier=PlanId(),
            **NOTHING,
        )


def draw_sizes(name, rng):
    """Return the bytes of 10,000 files: the largest weighs thousands of small ones."""
    if name == "zipf":
        return rng.permutation(3e8 / np.arange(1, 10_001))
    sizes = np.exp(rng.normal(10, 1.2, 10_000))
    sizes[:5] = sizes.sum() * np.array([0.05, 0.04, 0.03, 0.02, 0.01])
    return sizes


@pytest.mark.parametrize("n_draws", [8, pytest.param(200, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("name", ["zipf", "log-normal with giants"])
def test_parts_of_very_unequal_sizes_fit_and_the_interval_holds_the_truth(
    name, n_draws
):
    """In all draws no part is too large, and at most one interval in 100 is wrong."""
    rng = np.random.default_rng(1)
    sizes = draw_sizes(name, rng)
    table = make_table(sizes, 5, np.exp(rng.normal(0, 0.3, len(sizes))))
    limit_gb = 0.45 * table["bytes"].sum() / 1e9
    n_right = 0
    for seed in range(n_draws):
        whole, rows = plan_sizes(table, seed=seed, part_limit_gb=limit_gb)
        mean, high = whole.forecast.values()
        n_right += abs(table["bytes"].mean() - mean) <= high - mean
        assert high < 1.1 * mean
        assert 3 <= whole.n_parts <= 4  # the largest file has a tenth of the bytes
        assert rows.groupby("part")["bytes"].sum().max() <= whole.shard_limit_bytes
        assert whole.shard_limit_bytes < limit_gb * 1e9
        assert set(rows["image_id"]) == set(table["image_id"])
    assert n_right >= 0.99 * n_draws


def test_originals_that_pass_through_are_forecast_by_their_size(tmp_path):
    """To a quarter of a per cent, also where their images are not measured."""
    table = make_images(tmp_path, 120)

    plan, _ = plan_images(table, tmp_path, size=0)

    mean, high = plan.forecast.values()
    # A record adds its frame, the image's id and four numbers, each with its name.
    assert 16 + 30 < mean - table["n_bytes"].mean() < 16 + 120
    assert high < 1.0025 * mean
    assert plan_images(table, tmp_path, size=0)[0] == plan


@pytest.mark.parametrize("total_gb", [0.3, 4, 9, 18.5])
@pytest.mark.parametrize("folds", [1, 5, 15])
def test_shards_weigh_between_100_and_400_megabytes(total_gb, folds):
    """Where the data allow it, in as few parts as that takes."""
    table = make_table(np.full(3000, total_gb * 1e9 / 3000), folds, 1)
    plan, _ = plan_sizes(table)
    weight = total_gb * 1e9 / folds
    n_shards = len(plan.shards)
    assert plan.n_parts <= 1 + total_gb // 12
    # Kaggle's files, and those of other tools.
    assert n_shards / plan.n_parts + SIDECAR_FILES <= 50 - 5
    if n_shards > folds * plan.n_parts:
        assert 100e6 <= weight / n_shards * folds <= 405e6


def test_a_part_s_limit_of_files_is_of_those_at_its_top():
    """Test shards share one folder, so any number of them counts as one file."""
    counts = pd.Series({("test", -1): 900, ("train", 0): 900})

    _, n_shards = next(list_layouts(counts, 36e8, choose(max_part_files=24)))
    assert n_shards.to_dict() == dict.fromkeys(counts.index, 9)

    _, fewer = next(list_layouts(counts, 36e8, choose(max_part_files=23)))
    assert fewer.to_dict() == dict.fromkeys(counts.index, 5)


def test_impossible_limits_name_the_parameter():
    """The error contains all limits, and their values."""
    limits = {"part_limit_gb": 0.008, "n_shards": 3}
    table = make_table(np.full(20, 500_000), 3, 1)

    with pytest.raises(ValueError, match="do not fit PART_LIMIT_GB") as error:
        plan_sizes(table, **limits)
    for name, value in limits.items():
        assert f"{name.upper()} = {value:g}" in str(error.value)
