"""From the folded table and the settings to the plan: forecast, number of parts, shards."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from math import ceil, floor

import pandas as pd

from kaggle_tfr.cluster import package_versions
from kaggle_tfr.folds import assign_shards
from kaggle_tfr.images import ImageSettings
from kaggle_tfr.names import check_template
from kaggle_tfr.parts import forecast, forecast_groups, shards_per_group, sidecar_bytes
from kaggle_tfr.plan import ORDER, Plan, fingerprint, list_shards
from kaggle_tfr.records import encode_row
from kaggle_tfr.sampling import Forecast
from kaggle_tfr.schema import RecordSchema


def forecast_records(
    table: pd.DataFrame,
    *,
    schema: RecordSchema,
    image: ImageSettings,
    compression: str = "",
    seed: int = 0,
    sample: int = 1000,
) -> Forecast:
    """Bytes and seconds a record, from a sample of images taken the whole way to a record."""
    encode = partial(encode_row, schema=schema, settings=image)
    return forecast(table, image, seed=seed, sample=sample, compression=compression, encode=encode)


def make_plan(
    table: pd.DataFrame,
    found: Forecast,
    *,
    name: str,
    schema: RecordSchema,
    image: ImageSettings,
    compression: str = "",
    n_folds: int = 5,
    shard_mb: float = 200,
    n_shards: int = 0,
    shard_images: int = 0,
    shard_name: str = "{name}-f{fold}-{i:03d}-{count}.tfrec",
    part_limit_gb: float = 19,
    max_part_files: int = 45,
    seed: int = 0,
    parameters: Mapping | None = None,
) -> tuple[Plan, pd.DataFrame]:
    """The plan and its table, which gains shard, part and position, in the order of the records.

    table: the images to write, with split and fold; attrs kind, classes, label_columns.
    found: what `forecast_records` gave for this table and these settings.
    parameters: further settings that made the table, by name, kept to name what changed.

    Raises:
        ValueError: no number of parts satisfies the limits, or SHARD_NAME cannot name the shards.
    """
    check_template(shard_name)
    limits = {"max_part_files": max_part_files, "shard_mb": shard_mb}
    limits |= {"n_shards": n_shards, "shard_images": shard_images}
    limit_bytes = round(part_limit_gb * 1e9)
    dealt, n_parts, room = _fit_parts(
        table, found, image, limits, limit_bytes=limit_bytes, seed=seed
    )
    shards = list_shards(dealt, shard_name)
    sizes = forecast_groups(dealt, image, found, ORDER[:-1])["high"]
    shards = [
        replace(shard, bytes_high=ceil(sizes[shard.part, shard.split, shard.fold, shard.index]))
        for shard in shards
    ]
    attrs = {"kind": "single", "classes": [], "label_columns": []} | dict(table.attrs)
    plan = Plan(
        name=name,
        kind=attrs["kind"],
        classes=list(attrs["classes"]),
        schema=schema.to_dict(),
        image=image,
        compression=compression,
        shard_name=shard_name,
        seed=seed,
        n_folds=n_folds,
        n_parts=n_parts,
        part_limit_bytes=limit_bytes,
        shard_limit_bytes=room,
        label_columns=list(attrs["label_columns"]),
        parameters={key.upper(): value for key, value in limits.items()} | dict(parameters or {}),
        forecast=found.summary(),
        versions=package_versions(),
        shards=shards,
    )
    return replace(plan, fingerprint=fingerprint(dealt, _bytes_settings(plan))), dealt


def _bytes_settings(plan: Plan) -> dict:
    """The settings that decide the bytes of the shards, given the table."""
    names = ("name", "kind", "classes", "schema", "compression", "shard_name", "n_parts")
    return {name: getattr(plan, name) for name in names} | {"image": asdict(plan.image)}


def _fit_parts(table, found, image, limits, *, limit_bytes, seed) -> tuple[pd.DataFrame, int, int]:
    """The table dealt out to the fewest parts that fit, their number, and the bytes for shards.

    Parts are measured as they are, not as a mean: the bound of each one must fit.
    """
    table = table.reset_index(drop=True)
    groups = forecast_groups(table, image, found, ["split", "fold"])["expected"]
    counts = table.groupby(["split", "fold"], observed=True).size()
    weights, counts = ({(str(s), int(f)): v for (s, f), v in x.items()} for x in (groups, counts))
    n_parts = max(1, floor(found.total_bytes / max(limit_bytes, 1)))
    while n_parts <= len(table):
        wanted = shards_per_group(weights, counts, n_parts, **limits)
        if not wanted:
            n_parts += 1
            continue
        _check_shards(wanted, n_parts)
        dealt = assign_shards(table, wanted, n_parts, seed=seed)
        dealt = dealt.sort_values(ORDER, ignore_index=True)
        row_bytes, fixed_bytes = sidecar_bytes(table, sum(wanted.values()))
        beside = ceil(dealt.groupby("part").size().max() * row_bytes + fixed_bytes)
        high = ceil(forecast_groups(dealt, image, found, ["part"])["high"].max())
        if high + beside <= limit_bytes:
            return dealt, n_parts, limit_bytes - beside
        n_parts = max(n_parts + 1, floor(n_parts * high / max(limit_bytes - fixed_bytes, 1)))
    raise ValueError(
        f"no number of parts fits PART_LIMIT_GB = {limit_bytes / 1e9:g}: one record alone may take "
        f"{found.high / 1e6:,.2f} MB. Raise PART_LIMIT_GB, or lower IMAGE_SIZE or QUALITY."
    )


def _check_shards(wanted: Mapping, n_parts: int) -> None:
    few = {group: shards for group, shards in wanted.items() if shards < n_parts}
    if few:
        (split, fold), shards = next(iter(few.items()))
        raise ValueError(
            f"the images need {n_parts} parts, but fold {fold} of '{split}' has {shards} shards, "
            "and a part takes some of every fold. Raise PART_LIMIT_GB or N_SHARDS, lower "
            "SHARD_IMAGES, or set the two to 0."
        )
