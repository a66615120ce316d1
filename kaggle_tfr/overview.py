"""Plans as tables that people read: settings, shards, limits, what was written."""

import shutil
from collections.abc import Sequence

import pandas as pd

from kaggle_tfr.images import ImageSettings
from kaggle_tfr.plan import Plan
from kaggle_tfr.sampling import Forecast

SESSION_HOURS = 12  # of a Kaggle CPU session


def image_settings(
    image_size: int | Sequence[int], resize: str, *, resample: str, quality: int, chroma: str
) -> ImageSettings:
    """The settings of the image path from the notebook's parameters.

    image_size: pixels, one for both sides or [height, width]; of no use when resize is "none".
    """
    both = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    size = None if resize == "none" else both
    return ImageSettings(size, resize, quality=quality, resample=resample, subsampling=chroma)


def list_planned(plan: Plan) -> pd.DataFrame:
    """One row a shard of the plan: part, split, fold, count, MB at most, file."""
    rows = [
        {
            "part": shard.part,
            "split": shard.split,
            "fold": shard.fold,
            "count": shard.count,
            "mb_at_most": shard.bytes_high / 1e6,
            "file": plan.file_name(shard),
        }
        for shard in plan.shards
    ]
    return pd.DataFrame(rows)


def compare_with_limits(plan: Plan, found: Forecast, folder: str) -> pd.DataFrame:
    """What is expected (value, low, high) against each limit, a row a limit, for `plot_limits`."""
    counts = pd.Series([shard.count for shard in plan.shards]).groupby(
        [shard.part for shard in plan.shards]
    )
    fullest = counts.sum().max()
    each = {"value": found.bytes_per_image, "low": found.low, "high": found.high}
    seconds = (found.seconds_per_image, found.seconds_low, found.seconds_high)
    hours = [value * fullest / found.workers / 3600 for value in seconds]
    name = f"fullest of {plan.n_parts} parts, GB" if plan.n_parts > 1 else "the one part, GB"
    rows = {
        name: {key: value * fullest / 1e9 for key, value in each.items()}
        | {"limit": plan.part_limit_bytes / 1e9}
    }
    if "://" not in folder:
        total = {key: value * found.n_images / 1e9 for key, value in each.items()}
        rows["all parts on this disk, GB"] = total | {"limit": shutil.disk_usage(folder).free / 1e9}
    time = dict(zip(("value", "low", "high"), hours, strict=True))
    rows["hours to write a part here"] = time | {"limit": SESSION_HOURS}
    return pd.DataFrame.from_dict(rows, orient="index")


def compare_with_plan(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """The written shards with the bytes that were forecast for them at most (bytes_high)."""
    planned = pd.DataFrame(
        [(s.part, s.split, s.fold, s.index, s.bytes_high) for s in plan.shards],
        columns=["part", "split", "fold", "shard", "bytes_high"],
    )
    return shards.merge(planned, on=["part", "split", "fold", "shard"], how="left")


def compare_parts(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """GB of each written part, its forecast's interval and its limit, for `plot_limits`."""
    parts = shards.groupby("part").agg(value=("bytes", "sum"), count=("count", "sum"))
    rows = pd.DataFrame(
        {
            "value": parts["value"] / 1e9,
            "low": parts["count"] * plan.forecast["low"] / 1e9,
            "high": parts["count"] * plan.forecast["high"] / 1e9,
            "limit": plan.part_limit_bytes / 1e9,
        }
    )
    return rows.set_index(pd.Index([f"part {number}, GB" for number in parts.index]))
