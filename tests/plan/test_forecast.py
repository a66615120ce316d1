"""Forecasts hold the truth, and parts fit before the first byte is written."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from support.plans import make_images, plan_images

from kaggle_tfr import parallel
from kaggle_tfr.parameters import make_settings
from kaggle_tfr.plan.plan import SIDECAR_FILES, PlanSettings, list_layouts


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
            "cluster": -1,
            "label": np.arange(n) % 3,
            "fold": np.arange(n) % folds,
        }
    )


def look_up(_, rows, **__):
    """Return what measuring would: the bytes of each record."""
    return [row["bytes"] for row in rows]


def plan_sizes(table, work, n_shards=0, **parameters):
    """Return the plan of records whose sizes are known, and its table."""
    with mock.patch.object(parallel, "run", look_up):
        return plan_images(table, work, size=0, n_shards=n_shards, **parameters)


@pytest.mark.parametrize("n_draws", [8, pytest.param(200, marks=pytest.mark.heavy)])
def test_parts_of_very_unequal_sizes_fit_and_the_interval_holds_the_truth(
    tmp_path, n_draws
):
    """In all draws no part is too large, and at most one interval in 100 is wrong.

    The largest file weighs thousands of small ones.
    """
    rng = np.random.default_rng(1)
    sizes = np.exp(rng.normal(10, 1.2, 10_000))
    sizes[:5] = sizes.sum() * np.array([0.05, 0.04, 0.03, 0.02, 0.01])
    table = make_table(sizes, 5, np.exp(rng.normal(0, 0.3, len(sizes))))
    limit_bytes = int(0.45 * table["bytes"].sum())
    n_right = 0
    for seed in range(n_draws):
        whole, rows = plan_sizes(
            table, tmp_path, seed=seed, part_limit_gb=limit_bytes / 1e9
        )
        mean, high = whole.forecast.values()
        n_right += abs(table["bytes"].mean() - mean) <= high - mean
        assert high < 1.1 * mean
        assert 3 <= whole.n_parts <= 4
        parts = rows.groupby("part")["bytes"]
        assert parts.sum().max() <= whole.shard_limit_bytes
        # A record has a row in two tables, and a line in an index.
        assert whole.shard_limit_bytes < limit_bytes - 300 * parts.size().max()
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


@pytest.mark.parametrize("total_gb", [0.3, 4, 18.5])
@pytest.mark.parametrize("folds", [1, 15])
def test_shards_weigh_between_100_and_400_megabytes(tmp_path, total_gb, folds):
    """Where the data allow it, in as few parts as that takes."""
    table = make_table(np.full(3000, total_gb * 1e9 / 3000), folds, 1)
    plan, _ = plan_sizes(table, tmp_path)
    n_shards = len(plan.shards)
    assert plan.n_parts <= 1 + total_gb // 12
    # Kaggle's files, and those of other tools.
    assert n_shards / plan.n_parts + SIDECAR_FILES <= 50 - 5
    if n_shards > folds * plan.n_parts:
        assert 100e6 <= total_gb * 1e9 / n_shards <= 405e6


def test_a_part_s_limit_of_files_is_of_those_at_its_top():
    """Test shards share one folder, so any number of them counts as one file."""
    counts = pd.Series({("test", -1): 900, ("train", 0): 900})

    settings = make_settings(PlanSettings, {"MAX_PART_FILES": 24})
    _, n_shards = next(list_layouts(counts, 36e8, settings))
    assert n_shards.to_dict() == dict.fromkeys(counts.index, 9)

    settings = replace(settings, max_part_files=23)
    _, fewer = next(list_layouts(counts, 36e8, settings))
    assert fewer.to_dict() == dict.fromkeys(counts.index, 5)


def test_impossible_limits_are_an_error(tmp_path):
    """It contains all limits with their values."""
    table = make_table(np.full(20, 500_000), 3, 1)
    message = "do not fit PART_LIMIT_GB = 0.008, .* N_SHARDS = 3"

    with pytest.raises(ValueError, match=message):
        plan_sizes(table, tmp_path, part_limit_gb=0.008, n_shards=3)
