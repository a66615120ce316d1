"""From a forecast and the limits of a part to the plan, and tables that show it."""

import hashlib
import json
import shutil
from dataclasses import asdict, replace
from math import ceil, floor
from typing import Any, cast

import numpy as np
import pandas as pd

from kaggle_tfr.notebook import SESSION_HOURS
from kaggle_tfr.parallel import package_versions
from kaggle_tfr.paths import check_template
from kaggle_tfr.plan.folds import assign_shards
from kaggle_tfr.plan.forecast import Forecast, forecast_groups
from kaggle_tfr.plan.plan import ORDER, Plan, PlanSettings, Shard, format_bytes, number_shards
from kaggle_tfr.schema import Labels, RecordSchema

# schema.json, labels.json, labels.txt, plan.json, shards.csv, rejects.csv and stats.json; a CSV a
# split comes on top. Five of Kaggle's 50 stay free by default: TFDS's two files and its class
# names, the index folder (uploaded as one archive) and a cover picture.
SIDECAR_FILES = 7


def make_plan(
    table: pd.DataFrame,
    forecast: Forecast,
    labels: Labels,
    schema: RecordSchema,
    settings: PlanSettings,
) -> tuple[Plan, pd.DataFrame]:
    """The plan and its table, which gains shard, part and position, in the order of the records.

    table: the images to write, with split and fold; forecast: of this table and schema.
    Raises: ValueError if no number of parts satisfies the limits, or SHARD_NAME cannot name shards.
    """
    check_template(settings.shard_name)
    table, shard_limit_bytes = _fit_parts(table, forecast, settings)
    image, n_parts, versions = settings.image, int(table["part"].max()), package_versions()
    plan = Plan(labels, schema, image, settings, n_parts, shard_limit_bytes, versions=versions)
    bounds = forecast_groups(table, image, forecast, ORDER[:-1]).reset_index()
    bounds["bytes_high"] = np.ceil(bounds["high"]).astype(int)
    bounds = bounds.rename(columns={"shard": "index"}).drop(columns=["expected", "high"])
    rows: list[Any] = bounds.assign(number=range(len(bounds)), i=0, n=0).to_dict("records")
    shards = number_shards([Shard(**row) for row in rows], settings.shard_name)
    decisive = {name: asdict(plan)[name] for name in ("labels", "schema", "image", "n_parts")}
    decisive |= {"compression": settings.compression, "shard_name": settings.shard_name}
    sha256 = fingerprint(table, decisive)
    expected = {name: getattr(forecast, name) for name in ("n_images", "n_exact", "n_sampled")}
    sizes = (round(size, 1) for size in forecast.size)
    expected |= zip(("bytes_per_image", "low", "high"), sizes, strict=True)
    return replace(plan, forecast=expected, shards=shards, fingerprint=sha256), table


def fingerprint(table: pd.DataFrame, settings: dict[str, Any]) -> str:
    """sha256 of the settings and of all that the table gives to the records, wherever it lies."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for column in sorted(set(table.columns) - {"path", "cluster", "note", "problem"}):
        digest.update(f"\x1d{column}\x1d".encode())
        digest.update("\x1f".join(map(str, table[column].tolist())).encode())
    return digest.hexdigest()


def _fit_parts(
    table: pd.DataFrame, forecast: Forecast, settings: PlanSettings
) -> tuple[pd.DataFrame, int]:
    """The table in the fewest parts whose bounds all fit, and the bytes for the shards of one."""
    table, limit_bytes, image = table.reset_index(drop=True), settings.limit_bytes, settings.image
    groups = forecast_groups(table, image, forecast, ["split", "fold"])
    n_parts = max(1, floor(forecast.size[0] * len(table) / max(limit_bytes, 1)))
    while n_parts <= len(table):
        if (n_shards := shards_per_group(groups, n_parts, settings)) is None:
            n_parts += 1
            continue
        planned = assign_shards(table, n_shards, n_parts, seed=settings.seed)
        row_bytes, fixed_bytes = sidecar_bytes(table, sum(n_shards.values()))
        parts = forecast_groups(planned, image, forecast, ["part"]).max()
        beside, high = ceil(parts["count"] * row_bytes + fixed_bytes), ceil(parts["high"])
        if high + beside <= limit_bytes:
            return planned.sort_values(ORDER, ignore_index=True), limit_bytes - beside
        n_parts = max(n_parts + 1, floor(n_parts * high / max(limit_bytes - fixed_bytes, 1)))
    raise ValueError(
        f"no number of parts fits PART_LIMIT_GB = {limit_bytes / 1e9:g}: one record alone may take "
        f"{forecast.size[2] / 1e6:,.2f} MB. Raise PART_LIMIT_GB, or lower IMAGE_SIZE or QUALITY."
    )


def sidecar_bytes(table: pd.DataFrame, n_shards: int) -> tuple[float, int]:
    """Bytes beside the shards: for each image (its CSV row and index line), and once a part."""
    table = table.drop(columns=["path", "problem", "note"], errors="ignore")
    head = table.sample(min(len(table), 500), random_state=0)
    row = len(head.to_csv(index=False, header=False).encode()) / max(1, len(head))
    return 1.5 * row + 100, (64 << 10) + 600 * n_shards


def shards_per_group(
    groups: pd.DataFrame, n_parts: int, settings: PlanSettings
) -> dict[Any, int] | None:
    """Shards of each (split, fold), or None when `n_parts` parts cannot hold them.

    groups: by (split, fold), the images (`count`) and `expected` bytes.
    They are near shard_mb if not numbered, and grow to 400 MB before there are more parts.
    Raises: ValueError if no number of parts can satisfy this.
    """
    counts = groups["count"]
    max_shards = settings.max_part_files - SIDECAR_FILES - counts.index.unique("split").size
    if len(counts) > max_shards:
        raise ValueError(
            f"MAX_PART_FILES = {settings.max_part_files} leaves {max_shards} shards to a part, but "
            f"each of {len(counts)} folds needs one. Raise MAX_PART_FILES, or lower N_FOLDS."
        )
    if settings.n_shards or settings.shard_images:
        by_images = -(-counts // (settings.shard_images or 1))
        wanted = _apportion(counts, settings.n_shards) if settings.n_shards else by_images
        if np.ceil(wanted / n_parts).sum() > max_shards:
            return None
    else:
        largest_mb = max(settings.shard_mb, 400)
        megabytes = groups["expected"].to_numpy() / n_parts / 1e6
        targets = np.linspace(settings.shard_mb, largest_mb, 41)[:, None]
        each = np.maximum(np.round(megabytes / targets), np.ceil(megabytes / largest_mb)).clip(1)
        fits = each[each.sum(axis=1) <= max_shards].astype(int)
        if not len(fits):
            return None
        wanted = np.minimum(counts, fits[0] * n_parts)
    if wanted.min() < n_parts:
        split, fold = cast("tuple[str, int]", wanted.idxmin())
        raise ValueError(
            f"the images need {n_parts} parts, but fold {fold} of '{split}' has {wanted.min()} "
            "shards, and a part takes some of every fold. Raise PART_LIMIT_GB or N_SHARDS, lower "
            "SHARD_IMAGES, or set the two to 0."
        )
    return wanted.to_dict()


def _apportion(counts: pd.Series, n_shards: int) -> pd.Series:
    """`n_shards` over the groups: one each, the others one by one to the fullest shards.
    Source: Adams' method of apportionment (smallest divisors), by its priority numbers.
    """
    if not len(counts) <= n_shards <= counts.sum():
        raise ValueError(
            f"N_SHARDS = {n_shards}, but there are {len(counts)} folds with {counts.sum()} images, "
            "each in shards of its own. Set N_SHARDS between these two, or N_FOLDS = 0."
        )
    shards = np.ones(len(counts), int)
    for _ in range(n_shards - len(counts)):
        shards[np.argmax(counts.to_numpy() / shards)] += 1
    return pd.Series(shards, counts.index)


def list_planned(plan: Plan) -> pd.DataFrame:
    """One row a shard of the plan: part, split, fold, count, MB at most, file."""
    table = pd.DataFrame([vars(shard) | {"file": plan.file_name(shard)} for shard in plan.shards])
    table["mb_at_most"] = table["bytes_high"] / 1e6
    return table[["part", "split", "fold", "count", "mb_at_most", "file"]]


def format_seconds(seconds: float) -> str:
    """In the largest unit that gives one or more.

    >>> format_seconds(43_200), format_seconds(90), format_seconds(0.7)
    ('12 h', '1.5 min', '0.7 s')
    """
    each, unit = (3600, "h") if seconds >= 3600 else (60, "min")
    return f"{seconds / each:.3g} {unit}" if seconds >= 60 else f"{seconds:.2g} s"


def list_forecast(forecast: Forecast) -> pd.DataFrame:
    """What a record and all records take: expected, and the interval's ends."""
    size, seconds, n, workers = forecast.size, forecast.seconds, forecast.n_images, forecast.workers
    rows = {
        "bytes a record": [f"{value:,.0f}" for value in size],
        "bytes in all": [format_bytes(value * n) for value in size],
        "time a record, one worker": [f"{value * 1e3:,.1f} ms" for value in seconds],
        f"time in all, {workers:.1f} workers": [format_seconds(v * n / workers) for v in seconds],
    }
    title = f"{forecast.n_sampled:,} sampled, {forecast.n_exact:,} pass through"
    table = pd.DataFrame.from_dict(rows, "index", columns=["expected", "at least", "at most"])
    return table.rename_axis(columns=title)


def compare_with_limits(plan: Plan, forecast: Forecast, folder: str) -> pd.DataFrame:
    """What is expected (value, low, high) against each limit, a row a limit, for `plot_limits`."""
    fullest = list_planned(plan).groupby("part")["count"].sum().max()
    part = f"fullest of {plan.n_parts} parts" if plan.n_parts > 1 else "the one part"
    cases: dict[str, tuple] = {}
    cases[part] = forecast.size, fullest, plan.settings.limit_bytes, format_bytes
    if "://" not in folder:
        free = shutil.disk_usage(folder).free
        cases["all parts on this disk"] = forecast.size, forecast.n_images, free, format_bytes
    times = fullest / forecast.workers
    cases["time to write a part"] = forecast.seconds, times, SESSION_HOURS * 3600, format_seconds
    rows = {}
    for name, (interval, times, limit, show) in cases.items():
        value, low, high = (number * times for number in interval)
        text = f"{show(value)}, at most {show(high)}, of {show(limit)}"
        rows[name] = {"value": value, "low": low, "high": high, "limit": limit, "text": text}
    return pd.DataFrame.from_dict(rows, orient="index")
