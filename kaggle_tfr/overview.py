"""Plans as tables that people read: settings, shards, limits, what was written."""

import shutil
from collections.abc import Sequence

import pandas as pd

from kaggle_tfr.images import ImageSettings
from kaggle_tfr.plan import Plan
from kaggle_tfr.sampling import Forecast

SESSION_HOURS = 12  # of a Kaggle CPU session


def image_settings(image_size: int | Sequence[int], resize: str, **choices) -> ImageSettings:
    """The settings of the image path from the notebook's parameters.

    image_size: pixels, one for both sides or [height, width]; of no use when resize is "none".
    choices: the other fields of `ImageSettings`.
    """
    both = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    size = None if resize == "none" else both
    return ImageSettings(size, resize, **choices)


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


def list_forecast(found: Forecast) -> pd.DataFrame:
    """What a record and all records take: expected, and the interval's ends."""
    size = (found.bytes_per_image, found.low, found.high)
    seconds = (found.seconds_per_image, found.seconds_low, found.seconds_high)
    n = found.n_images
    rows = {
        "bytes a record": [f"{value:,.0f}" for value in size],
        "bytes in all": [say_bytes(value * n) for value in size],
        "time a record, one worker": [f"{value * 1e3:,.1f} ms" for value in seconds],
        f"time in all, {found.workers:.1f} workers": [
            say_seconds(value * n / found.workers) for value in seconds
        ],
    }
    table = pd.DataFrame.from_dict(
        rows, orient="index", columns=["expected", "at least", "at most"]
    )
    table.columns.name = f"{found.n_sampled:,} sampled, {found.n_exact:,} pass through"
    return table


def compare_with_limits(plan: Plan, found: Forecast, folder: str) -> pd.DataFrame:
    """What is expected (value, low, high) against each limit, a row a limit, for `plot_limits`."""
    counts = pd.Series([shard.count for shard in plan.shards])
    fullest = counts.groupby([shard.part for shard in plan.shards]).sum().max()
    size = (found.bytes_per_image, found.low, found.high)
    seconds = (found.seconds_per_image, found.seconds_low, found.seconds_high)
    name = f"fullest of {plan.n_parts} parts" if plan.n_parts > 1 else "the one part"
    rows = {name: _against(size, fullest, plan.part_limit_bytes, say_bytes)}
    if "://" not in folder:
        free = shutil.disk_usage(folder).free
        rows["all parts on this disk"] = _against(size, found.n_images, free, say_bytes)
    limit = SESSION_HOURS * 3600
    rows["time to write a part"] = _against(seconds, fullest / found.workers, limit, say_seconds)
    return pd.DataFrame.from_dict(rows, orient="index")


def _against(each: Sequence[float], times: float, limit: float, say) -> dict:
    value, low, high = (number * times for number in each)
    text = f"{say(value)}, at most {say(high)}, of {say(limit)}"
    return {"value": value, "low": low, "high": high, "limit": limit, "text": text}


def say_bytes(size: float) -> str:
    """'8.8 MB' for 8 812 345: three digits and a decimal unit, as disks and Kaggle count.

    >>> say_bytes(8_812_345), say_bytes(19e9), say_bytes(512)
    ('8.81 MB', '19 GB', '512 B')
    """
    for unit, bytes_each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= bytes_each:
            return f"{size / bytes_each:.3g} {unit}"
    return f"{size:.0f} B"


def say_seconds(seconds: float) -> str:
    """'12 h' for 43 200: the largest unit that gives one or more.

    >>> say_seconds(43_200), say_seconds(90), say_seconds(0.7)
    ('12 h', '1.5 min', '0.7 s')
    """
    for unit, each in (("h", 3600), ("min", 60)):
        if seconds >= each:
            return f"{seconds / each:.3g} {unit}"
    return f"{seconds:.2g} s"


def compare_with_plan(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """The written shards with the bytes that were forecast for them at most (bytes_high)."""
    planned = pd.DataFrame(
        [(s.part, s.split, s.fold, s.index, s.bytes_high) for s in plan.shards],
        columns=["part", "split", "fold", "shard", "bytes_high"],
    )
    return shards.merge(planned, on=["part", "split", "fold", "shard"], how="left")


def compare_parts(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """Bytes of each written part, its forecast's interval and its limit, for `plot_limits`."""
    rows = {}
    for part, table in shards.groupby("part"):
        size, count = table["bytes"].sum(), table["count"].sum()
        low, high = plan.forecast["low"] * count, plan.forecast["high"] * count
        text = f"{say_bytes(size)}, forecast {say_bytes(low)} to {say_bytes(high)}"
        limits = {"value": size, "low": low, "high": high, "limit": plan.part_limit_bytes}
        rows[f"part {part}"] = limits | {"text": text}
    return pd.DataFrame.from_dict(rows, orient="index")
