"""The plan: every setting needed to write and to read, and for each image its shard and part."""

import hashlib
import io
import json
import re
import shutil
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count, pairwise
from math import ceil, floor
from string import Formatter
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.naming import (
    SUBMISSION,
    TEST_FOLDER,
    check_template,
    format_shard_name,
    list_fields,
    split_template,
)
from kaggle_tfr.parallel import package_versions
from kaggle_tfr.parameters import as_size
from kaggle_tfr.plan.folds import assign_shards
from kaggle_tfr.plan.forecast import Forecast, forecast_groups
from kaggle_tfr.schema import JsonDataclass, Labels, RecordSchema
from kaggle_tfr.session import session_hours
from kaggle_tfr.tables import format_bytes, format_seconds

# Rows in this order are rows in the order of the records; a row group of plan.parquet is a shard.
ORDER = ["part", "split", "fold", "shard", "position"]
# schema, labels (twice), plan.json, shards.csv, rejects.csv, stats.json and SHA256SUMS; a CSV a
# split comes on top. Five of Kaggle's 50 stay free by default: for the index folder (uploaded as
# one archive), and for files that the user adds.
SIDECAR_FILES = 8
# What part folders hold beside the shards, and a table for each split.
PART_FILES = (
    *(
        "plan.json",
        "schema.json",
        "labels.json",
        "labels.txt",
        "shards.csv",
        "rejects.csv",
    ),
    *("stats.json", "SHA256SUMS", "report.html", "dataset-metadata.json", SUBMISSION),
)
PART_FOLDERS = ("index", "journal")
# A file system takes 255. A shard's index adds ".idx" and, while it is written, ".", 32 digits
# and ".tmp".
MAX_NAME_BYTES = 255 - 41
UNPRINTABLE = (
    "Cc",
    "Cs",
    "Zl",
    "Zp",
)  # categories: control, half of a pair, ends of lines


@dataclass(frozen=True)
class Shard:
    """One TFRecord file of a plan.

    number: among all shards of the plan, from 0; its row group of plan.parquet.
    index: among the shards of its split and fold, from 0; i, n: of the name template.
    count: records planned; fewer when an image is refused while writing.
    bytes_high: upper bound of the forecast.
    """

    number: int
    part: int
    split: str
    fold: int
    index: int
    i: int
    n: int
    count: int
    bytes_high: int = 0


@dataclass(frozen=True)
class PlanSettings:
    """The parameters of 03_plan, by their names in lower case; `settings` fills in the defaults."""

    group_column: str
    image_size: int | Sequence[int]
    resize: str
    resample: str
    quality: int
    bit_depth: str  # of the labels, as 01_explore read the pictures
    chroma: str
    optimize: bool
    compression: str
    n_folds: int
    validation_size: float
    extra_in_validation: bool
    shard_mb: float
    n_shards: int
    shard_images: int
    shard_name: str
    part_limit_gb: float
    max_part_files: int
    seed: int

    @property
    def limit_bytes(self) -> int:
        return round(self.part_limit_gb * 1e9)

    @property
    def image(self) -> ImageSettings:
        """How a picture becomes a record's image; one image_size is both sides."""
        size = None if self.resize == "none" else as_size(self.image_size)
        encoding = self.quality, self.resample, self.chroma, self.optimize
        return ImageSettings(size, self.resize, *encoding, bit_depth=self.bit_depth)


@dataclass(frozen=True)
class Plan(JsonDataclass):
    """What `plan.json` holds.

    shard_limit_bytes: of all shards of a part together.
    outcomes: input images by what becomes of them, see `count_outcomes`.
    checks: of `check_leakage`, after the settings by which near-duplicates were found.
    fingerprint: sha256 of everything that decides the bytes of the shards.
    """

    labels: Labels
    schema: RecordSchema
    image: ImageSettings
    settings: PlanSettings
    n_parts: int
    shard_limit_bytes: int
    forecast: dict[str, float] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    shards: list[Shard] = field(default_factory=list)

    def file_name(self, shard: Shard, count: int | None = None) -> str:
        """The shard's path below its part folder, for `count` records (default: as planned).

        Test shards are in a folder of their own.
        """
        shard = shard if count is None else replace(shard, count=count)
        return format_shard_name(
            self.settings.shard_name, **vars(shard), name=self.labels.name
        )

    def for_worker(self) -> "Plan":
        """The plan without what grows with the dataset: its shards and classes stay behind."""
        labels = replace(self.labels, classes=())
        return replace(self, labels=labels, shards=[], forecast={}, outcomes={})


def number_shards(shards: Iterable[Shard], template: str) -> list[Shard]:
    """The shards with `i` and `n` counted among those that share the template's other fields."""
    groups = []
    for shard in shards:
        own = split_template(template, shard.split, shard.fold)
        used = [name for name in list_fields(own) if name in ("split", "fold", "part")]
        groups.append((shard, (own, *(getattr(shard, name) for name in used))))
    totals = Counter(group for _, group in groups)
    numbers: dict[tuple, Iterator[int]] = defaultdict(count)
    return [
        replace(shard, i=next(numbers[group]), n=totals[group])
        for shard, group in groups
    ]


def check_names(plan: Plan) -> None:
    """Raise a ValueError unless every shard of the plan can have its own name in a part folder."""
    setting = f"SHARD_NAME '{plan.settings.shard_name}' with NAME '{plan.labels.name}'"
    tables = {f"{shard.split}.csv" for shard in plan.shards}
    own_names = {*PART_FILES, *PART_FOLDERS, *tables}
    shards = dict[str, Shard]()  # by their names
    for shard in plan.shards:
        name = plan.file_name(shard)
        if any(unicodedata.category(character) in UNPRINTABLE for character in name):
            what = (
                f"{setting} gives the file name {name!r}, which has a control character"
            )
            raise ValueError(f"{what}. Remove it from NAME or SHARD_NAME.")
        for component in name.split("/"):
            n_bytes = len(component.encode())
            if n_bytes > MAX_NAME_BYTES:
                what = f"{setting} gives file names of {n_bytes} bytes, such as '{component[:40]}…'"
                raise ValueError(
                    f"{what}; they can have {MAX_NAME_BYTES}. Choose a shorter NAME."
                )
        top = name.split("/")[0]
        if shard.split != "test" and name.startswith(TEST_FOLDER):
            what = f"{setting} puts a shard of '{shard.split}' into '{TEST_FOLDER}'"
            raise ValueError(
                f"{what}, the folder of test shards. Choose another SHARD_NAME."
            )
        if (
            top in own_names
            or top.startswith("dataset-cover-image.")
            or name.endswith(".tmp")
        ):
            what = f"{setting} gives a shard the name '{name}', which a part needs for its own file"
            raise ValueError(f"{what}. Choose another SHARD_NAME.")
        same = shards.setdefault(name, shard)
        if same is not shard:
            both = " and ".join(
                f"{s.i} of {s.split}, fold {s.fold}" for s in (same, shard)
            )
            what = f"{setting} gives two shards the name '{name}': those with number {both}"
            raise ValueError(f"{what}. Put a character such as '-' between the fields.")
    _check_count_field(plan.settings.shard_name)


def _check_count_field(template: str) -> None:
    """Raise a ValueError where {count} follows or precedes a number without a separator.

    A count falls when an image is rejected in writing: such names could then repeat.
    """
    parts = [(text, name) for text, name, *_ in Formatter().parse(template) if name]
    for (_, before), (text, after) in pairwise(parts):
        numbers = {before, after} - {"name", "split"}
        if "count" in numbers and len(numbers) == 2 and not re.search(r"[^0-9]", text):
            what = (
                f"SHARD_NAME '{template}' has {{{before}}} and {{{after}}} side by side"
            )
            raise ValueError(
                f"{what}, so names could repeat. Put a '-' between the two."
            )


def save_plan(plan: Plan, table: pd.DataFrame, work_dir: str) -> None:
    """Writes plan.parquet, a row group a shard, then plan.json: a plan that is there is whole."""
    storage.remove_leftovers(work_dir)
    rows = pa.Table.from_pandas(table.sort_values(ORDER), preserve_index=False)
    buffer, start = io.BytesIO(), 0
    with pq.ParquetWriter(buffer, rows.schema) as writer:
        for shard in plan.shards:
            writer.write_table(
                rows.slice(start, shard.count), row_group_size=shard.count
            )
            start += shard.count
    storage.write_atomically(storage.join(work_dir, "plan.parquet"), buffer.getvalue())
    storage.write_atomically(
        storage.join(work_dir, "plan.json"), plan.to_json().encode()
    )


def read_plan(folder: str) -> Plan:
    """The plan of a work or part folder, without its table.
    Raises: FileNotFoundError without a plan.json; ValueError for one that cannot be read.
    """
    path = storage.join(folder, "plan.json")
    try:
        values: dict[str, Any] = json.loads(storage.read_bytes(path))
        size = values["image"]["size"]
        read = {
            "labels": Labels.from_dict(values["labels"]),
            "schema": RecordSchema.from_dict(values["schema"]),
            "image": ImageSettings(**values["image"] | {"size": size and tuple(size)}),
            "settings": PlanSettings(**values["settings"]),
            "shards": [Shard(**shard) for shard in values["shards"]],
        }
        return Plan(**values | read)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no plan.json in WORK_DIR '{folder}'. Run 03_plan."
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        message = f"'{path}' is no plan of this version: {error}. Run 03_plan again."
        raise ValueError(message) from None


def read_rows(
    work_dir: str, shards: Iterable[Shard]
) -> Iterator[tuple[Shard, pd.DataFrame]]:
    """Each shard with its own rows, read when asked for, so that the plan never is in memory."""
    path = storage.join(work_dir, "plan.parquet")
    with storage.local_copy(path) as local, pq.ParquetFile(local) as rows:
        for shard in shards:
            yield shard, rows.read_row_group(shard.number).to_pandas()


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
    settings = replace(settings, bit_depth=labels.bit_depth)
    table, shard_limit_bytes = _fit_parts(table, forecast, settings)
    image, n_parts, versions = (
        settings.image,
        int(table["part"].max()),
        package_versions(),
    )
    plan = Plan(
        labels, schema, image, settings, n_parts, shard_limit_bytes, versions=versions
    )
    bounds = forecast_groups(table, image, forecast, ORDER[:-1]).reset_index()
    bounds["bytes_high"] = np.ceil(bounds["high"]).astype(int)
    bounds = bounds.rename(columns={"shard": "index"}).drop(
        columns=["expected", "high"]
    )
    rows: list[Any] = bounds.assign(number=range(len(bounds)), i=0, n=0).to_dict(
        "records"
    )
    shards = number_shards([Shard(**row) for row in rows], settings.shard_name)
    check_names(replace(plan, shards=shards))
    decisive = {
        name: asdict(plan)[name] for name in ("labels", "schema", "image", "n_parts")
    }
    decisive |= {"compression": settings.compression, "shard_name": settings.shard_name}
    sha256 = fingerprint(table, decisive)
    expected = {
        name: getattr(forecast, name) for name in ("n_images", "n_exact", "n_sampled")
    }
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
    table, limit_bytes, image = (
        table.reset_index(drop=True),
        settings.limit_bytes,
        settings.image,
    )
    groups = forecast_groups(table, image, forecast, ["split", "fold"])
    n_parts = max(1, floor(forecast.size[0] * len(table) / max(limit_bytes, 1)))
    while n_parts <= len(table):
        if (n_shards := shards_per_group(groups, n_parts, settings)) is None:
            n_parts += 1
            continue
        planned = assign_shards(table, n_shards, n_parts, seed=settings.seed)
        row_bytes, fixed_bytes = sidecar_bytes(table, sum(n_shards.values()))
        parts = forecast_groups(planned, image, forecast, ["part"]).max()
        beside, high = (
            ceil(parts["count"] * row_bytes + fixed_bytes),
            ceil(parts["high"]),
        )
        if high + beside <= limit_bytes:
            return planned.sort_values(ORDER, ignore_index=True), limit_bytes - beside
        n_parts = max(
            n_parts + 1, floor(n_parts * high / max(limit_bytes - fixed_bytes, 1))
        )
    what = f"no number of parts fits PART_LIMIT_GB = {limit_bytes / 1e9:g}: one record alone may"
    mend = "Raise PART_LIMIT_GB, or lower IMAGE_SIZE or QUALITY."
    raise ValueError(f"{what} take {forecast.size[2] / 1e6:,.2f} MB. {mend}")


def sidecar_bytes(table: pd.DataFrame, n_shards: int) -> tuple[float, int]:
    """Bytes beside the shards: for each image (its CSV row and index line), and once a part."""
    table = table.drop(columns=["path", "problem", "note", "digest"], errors="ignore")
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
    counts, test = groups["count"], groups.index.get_level_values("split") == "test"
    # The list of test images to predict goes with each part, and the folder of test shards.
    n_tables = counts.index.unique("split").size + 2 * int(test.any())
    max_shards = settings.max_part_files - SIDECAR_FILES - n_tables
    if np.count_nonzero(~test) > max_shards:
        what = f"MAX_PART_FILES = {settings.max_part_files} leaves {max_shards} shards to a part,"
        need = f"but each of {np.count_nonzero(~test)} folds needs one"
        raise ValueError(f"{what} {need}. Raise MAX_PART_FILES, or lower N_FOLDS.")
    if settings.n_shards or settings.shard_images:
        wanted = -(-counts // (settings.shard_images or 1))
        if (
            settings.n_shards
        ):  # of labelled images; those of test images are about as large
            own = counts[~test] if not test.all() else counts
            shards = (
                (counts * settings.n_shards / own.sum()).round().astype(int).clip(1)
            )
            wanted = (
                _apportion(own, settings.n_shards).combine_first(shards).astype(int)
            )
        if np.ceil(wanted[~test] / n_parts).sum() > max_shards:
            return None
    else:
        expected = groups["expected"] / n_parts
        if (each := _shards_by_size(expected, ~test, max_shards, settings)) is None:
            return None
        wanted = np.minimum(counts, each * n_parts)
    # Of test images a part may have none: they can be fewer than the parts.
    wanted = wanted.where(~test, np.minimum(counts, np.maximum(wanted, n_parts)))
    if (few := wanted[~test]).min() < n_parts:
        split, fold = cast("tuple[str, int]", few.idxmin())
        has = f"but fold {fold} of '{split}' has {few.min()} shards; a part takes some of each"
        mend = (
            "Raise PART_LIMIT_GB or N_SHARDS, lower SHARD_IMAGES, or set the two to 0."
        )
        raise ValueError(f"the images need {n_parts} parts, {has}. {mend}")
    return wanted.to_dict()


def _shards_by_size(
    expected: pd.Series, at_top: np.ndarray, max_shards: int, settings: PlanSettings
) -> np.ndarray | None:
    """Shards of each group in a part, of the size nearest to shard_mb that needs few enough.

    at_top: bool, of each group: whether its shards are at the part's top, and count.
    """
    largest_mb, megabytes = max(settings.shard_mb, 400), expected.to_numpy() / 1e6
    targets = np.linspace(settings.shard_mb, largest_mb, 41)[:, None]
    each = np.maximum(
        np.round(megabytes / targets), np.ceil(megabytes / largest_mb)
    ).clip(1)
    fits = each[each[:, at_top].sum(axis=1) <= max_shards].astype(int)
    return fits[0] if len(fits) else None


def _apportion(counts: pd.Series, n_shards: int) -> pd.Series:
    """`n_shards` over the groups: one each, the others one by one to the fullest shards.
    Source: Adams' method of apportionment (smallest divisors), by its priority numbers.
    """
    if not len(counts) <= n_shards <= counts.sum():
        there = (
            f"{len(counts)} folds with {counts.sum()} images, each in shards of its own"
        )
        mend = "Set N_SHARDS between these two, or N_FOLDS = 0."
        raise ValueError(f"N_SHARDS = {n_shards}, but there are {there}. {mend}")
    shards = np.ones(len(counts), int)
    for _ in range(n_shards - len(counts)):
        shards[np.argmax(counts.to_numpy() / shards)] += 1
    return pd.Series(shards, counts.index)


def list_planned(plan: Plan) -> pd.DataFrame:
    """One row a shard of the plan: part, split, fold, count, MB at most, file."""
    table = pd.DataFrame(
        [vars(shard) | {"file": plan.file_name(shard)} for shard in plan.shards]
    )
    table["mb_at_most"] = table["bytes_high"] / 1e6
    return table[["part", "split", "fold", "count", "mb_at_most", "file"]]


def compare_with_limits(plan: Plan, forecast: Forecast, folder: str) -> pd.DataFrame:
    """What is expected (value, low, high) against each limit, a row a limit, for `plot_limits`."""
    fullest = list_planned(plan).groupby("part")["count"].sum().max()
    part = f"fullest of {plan.n_parts} parts" if plan.n_parts > 1 else "the one part"
    cases: dict[str, tuple] = {}
    cases[part] = forecast.size, fullest, plan.settings.limit_bytes, format_bytes
    if "://" not in folder:
        free = shutil.disk_usage(folder).free
        cases["all parts on this disk"] = (
            forecast.size,
            forecast.n_images,
            free,
            format_bytes,
        )
    times = fullest / forecast.workers
    cases["time to write a part"] = (
        forecast.seconds,
        times,
        session_hours() * 3600,
        format_seconds,
    )
    rows = {}
    for name, (interval, times, limit, show) in cases.items():
        value, low, high = (number * times for number in interval)
        text = f"{show(value)}, at most {show(high)}, of {show(limit)}"
        rows[name] = {
            "value": value,
            "low": low,
            "high": high,
            "limit": limit,
            "text": text,
        }
    return pd.DataFrame.from_dict(rows, orient="index")
