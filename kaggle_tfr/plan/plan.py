"""The plan: all settings to write and read shards, and each image's shard and part."""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, floor
from typing import Any, Self, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.fingerprints import FINGERPRINTS_FILE
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.naming import (
    FOLDS_FILE,
    OVERRIDE_GROUP,
    SUBMISSION,
    TEST_FOLDER,
    check_template,
    format_shard_name,
)
from kaggle_tfr.notebook import note
from kaggle_tfr.parallel import package_versions
from kaggle_tfr.parameters import as_size
from kaggle_tfr.plan.folds import assign_shards
from kaggle_tfr.plan.folds_csv import FoldsFile
from kaggle_tfr.plan.forecast import Forecast, forecast_groups
from kaggle_tfr.schema import JsonDataclass, Labels, RecordSchema
from kaggle_tfr.shards import upgrade_plan
from kaggle_tfr.tables import count_of, format_bytes

# Columns that the CSVs of a part lack.
NOT_IN_CSV = [
    "path",
    "problem",
    "note",
    "digest",
    "brightness",
    "sharpness",
    "jpeg_quality",
    "exif_camera",
    "exif_time",
]
# The order of the records. A row group of plan.parquet is a shard.
ORDER = ["part", "split", "fold", "shard", "position"]
# schema, labels (twice), plan.json, shards.csv, folds.csv, rejects.csv, stats.json,
# hashes.parquet and SHA256SUMS; a CSV for each split comes on top. Five of Kaggle's 50
# files stay free by default: for the index folder (uploaded as one archive), and for
# files that the user adds.
SIDECAR_FILES = 10
# The files of a part besides shards and a CSV for each split.
PART_FILES = (
    "plan.json",
    "schema.json",
    "labels.json",
    "labels.txt",
    "shards.csv",
    FOLDS_FILE,
    "rejects.csv",
    "stats.json",
    FINGERPRINTS_FILE,
    "SHA256SUMS",
    "report.html",  # of earlier versions
    "dataset-metadata.json",
    SUBMISSION,
)
PART_FOLDERS = ("index", "journal", TEST_FOLDER.rstrip("/"))
# Columns that may change although the records stay the same.
NOT_DECISIVE = {
    "path",
    "cluster",
    "note",
    "problem",
    "brightness",
    "sharpness",
    OVERRIDE_GROUP,
}
LARGEST_SHARD_MB = 400  # before another part is used
# A file system takes 255. A shard's index adds ".idx" and, while it is written, ".", 32
# digits and ".tmp".
MAX_NAME_BYTES = 255 - 41
# ASCII but letters, digits and "-_./"; blanks, control characters, halves of a pair.
UNSAFE = re.compile(r"[\x00-,:-@\[-^`{-\x9f\s\ud800-\udfff]")
# Two numbers of a template without a character between them that is not a digit.
SIDE_BY_SIDE = re.compile(r"\{(?!name|split)[^}]*\}\d*\{(?!name|split)[^}]*\}")


@dataclass(frozen=True)
class Shard:
    """One TFRecord file of a plan.

    number: among all shards of the plan, from 0; its row group of plan.parquet.
    index: among the shards of its split and fold, from 0; i, n: of the name template.
    count: records planned; fewer if images are rejected while writing.
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
    """The parameters of 03_plan, by their names in lower case."""

    group_column: str
    image_size: int | Sequence[int]
    resize: str
    resample: str
    quality: int
    bit_depth: str  # of the labels, as 01_explore read the images
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
        """The largest size of a part."""
        return round(self.part_limit_gb * 1e9)

    @property
    def image(self) -> ImageSettings:
        """How an image is converted; a single image_size is both sides."""
        size = None if self.resize == "none" else as_size(self.image_size)
        return ImageSettings(
            size,
            self.resize,
            self.quality,
            self.resample,
            self.chroma,
            self.optimize,
            bit_depth=self.bit_depth,
        )


@dataclass(frozen=True)
class Plan(JsonDataclass):
    """The contents of plan.json.

    shard_limit_bytes: of all shards of a part together.
    outcomes: number of input images by outcome, see `count_outcomes`.
    checks: of `check_leakage`, after the settings used to find near-duplicates.
    folds_sha256: of folds.csv, which the first part gets; "" without such a file.
    fingerprint: sha256 of everything that decides the bytes of the shards.
    dataset_id: the fingerprint of the dataset's first plan.
    first_part: the number of the plan's first part, after those of earlier plans.
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
    folds_sha256: str = ""
    fingerprint: str = ""
    dataset_id: str = ""
    first_part: int = 1
    shards: list[Shard] = field(default_factory=list)

    @property
    def part_numbers(self) -> range:
        """The numbers of this plan's parts."""
        return range(self.first_part, self.first_part + self.n_parts)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the plan of a plan.json of any version."""
        return super().from_dict(upgrade_plan(dict(values)))

    def file_name(
        self,
        shard: Shard,
        count: int | None = None,
    ) -> str:
        """Return the shard's path below its part folder.

        count: number of records, by default as planned.
        """
        if count is not None:
            shard = replace(shard, count=count)
        template = self.settings.shard_name
        return format_shard_name(template, **vars(shard), name=self.labels.name)

    def for_worker(self) -> "Plan":
        """Return the plan without shards and classes, which grow with the data."""
        labels = replace(self.labels, classes=())
        return replace(
            self,
            labels=labels,
            shards=[],
            forecast={},
            outcomes={},
        )


def make_plan(
    table: pd.DataFrame,
    forecast: Forecast,
    labels: Labels,
    schema: RecordSchema,
    settings: PlanSettings,
    *,
    folds_file: FoldsFile = FoldsFile(),  # noqa: B008
    dataset_id: str = "",
    first_part: int = 1,
) -> tuple[Plan, pd.DataFrame]:
    """Return the plan, and its table with the columns shard, part and position.

    The rows of the table are in the order of the records. The caller adds the plan's
    outcomes and checks.
    table: the images to write, with split and fold. forecast: of this table and schema.
    folds_file: of `save_folds`, which the first part gets.
    dataset_id: of the earlier parts that the plan continues, "" for none.
    first_part: the number after the last of them.
    Raises: ValueError: no number of parts satisfies the limits, or SHARD_NAME cannot
        name the shards.
    """
    check_template(settings.shard_name)
    table = table.reset_index(drop=True)
    table, shard_limit_bytes = _fit_parts(table, forecast, settings, folds_file.n_bytes)
    n_parts = int(table["part"].max())
    table["part"] += first_part - 1
    table = table.sort_values(ORDER, ignore_index=True)
    plan = Plan(
        labels,
        schema,
        image=settings.image,
        settings=settings,
        n_parts=n_parts,
        shard_limit_bytes=shard_limit_bytes,
        forecast=_describe_forecast(forecast),
        versions=package_versions(),
        folds_sha256=folds_file.sha256,
        dataset_id=dataset_id,
        first_part=first_part,
        shards=_list_shards(table, forecast, settings),
    )
    check_names(plan)
    # The other settings decide the bytes through the table only.
    sha256 = fingerprint(table, _list_decisive(plan))
    plan = replace(plan, fingerprint=sha256, dataset_id=dataset_id or sha256)
    return plan, table


def _describe_forecast(forecast: Forecast) -> dict[str, float]:
    """Return the numbers of a forecast for plan.json."""
    mean, low, high = (round(size, 1) for size in forecast.size)
    return {
        "n_images": forecast.n_images,
        "n_exact": forecast.n_exact,
        "n_sampled": forecast.n_sampled,
        "bytes_per_image": mean,
        "low": low,
        "high": high,
    }


def _list_decisive(plan: Plan) -> dict[str, Any]:
    """Return the settings that decide the bytes of the shards."""
    names = ["labels", "schema", "image", "n_parts", "compression", "shard_name"]
    if plan.dataset_id:  # of earlier parts
        names += ["dataset_id", "first_part"]
    values = {**asdict(plan.settings), **asdict(plan)}
    return {name: values[name] for name in names}


def _list_shards(
    table: pd.DataFrame,
    forecast: Forecast,
    settings: PlanSettings,
) -> list[Shard]:
    """Return the shards of a planned table."""
    groups = forecast_groups(table, settings.image, forecast, ORDER[:-1])
    rows = zip(groups.index.tolist(), groups["count"], groups["high"], strict=True)
    shards = [
        Shard(number, part, split, fold, index, 0, 0, count, ceil(high))
        for number, ((part, split, fold, index), count, high) in enumerate(rows)
    ]
    return number_shards(shards, settings.shard_name)


def number_shards(shards: Sequence[Shard], template: str) -> list[Shard]:
    """Return the shards with `i` and `n`.

    They count the shards whose names differ in `i`, `n` and `count` only.
    """
    unnumbered = {"i": 0, "n": 0, "count": 0, "name": "name"}
    names = [
        format_shard_name(template, **vars(shard) | unnumbered) for shard in shards
    ]
    series = pd.Series(names, dtype=object).groupby(names)
    numbers = zip(shards, series.cumcount(), series.transform("size"), strict=True)
    return [replace(shard, i=i, n=n) for shard, i, n in numbers]


def check_names(plan: Plan) -> None:
    """Raise a ValueError unless each shard can have its own name in a part folder."""
    template = plan.settings.shard_name
    numbers = SIDE_BY_SIDE.search(template)
    if numbers:
        raise ValueError(
            f"SHARD_NAME '{template}' has two numbers side by side in '{numbers[0]}', "
            "so names could repeat. Put a '-' between them."
        )
    tables = {f"{shard.split}.csv" for shard in plan.shards}
    reserved = {*PART_FILES, *PART_FOLDERS, *tables}
    for shard in plan.shards:
        name = plan.file_name(shard)
        # Test shards are in a folder, where the part has no file besides them.
        is_test = shard.split == "test"
        taken = set() if is_test else reserved
        problem = _find_name_problem(name, taken)
        if problem:
            raise ValueError(
                f"SHARD_NAME '{template}' with NAME '{plan.labels.name}' gives a shard "
                f"the name {name!r}, {problem}."
            )


def _find_name_problem(name: str, reserved: set[str]) -> str:
    """Return why a shard cannot have this name, and what to do; "" if it can."""
    unsafe = UNSAFE.search(name)
    if unsafe:
        return (
            f"whose character {unsafe[0]!r} Kaggle may refuse after the upload. Use "
            "letters, digits, '-', '_' and '.'"
        )
    longest = max(map(len, name.encode().split(b"/")))
    if longest > MAX_NAME_BYTES:
        return (
            f"which has {longest} bytes; it can have {MAX_NAME_BYTES}. Choose a "
            "shorter NAME"
        )
    top = name.split("/", maxsplit=1)[0]
    if top in reserved or name.endswith(".tmp"):
        return "which a part needs for its own file. Choose another SHARD_NAME"
    return ""


def fingerprint(table: pd.DataFrame, settings: dict[str, Any]) -> str:
    """Return the SHA-256 of the settings, and of the columns that decide the records.

    The paths of the images are not part of it, and neither is their brightness, which
    versions of a decoder may change: `digest` is that of the file.
    """
    text = json.dumps(settings, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    for column in sorted(set(table.columns) - NOT_DECISIVE):
        digest.update(f"\x1d{column}\x1d".encode())
        values = "\x1f".join(map(str, table[column].tolist()))
        digest.update(values.encode())
    return digest.hexdigest()


def _fit_parts(
    table: pd.DataFrame,
    forecast: Forecast,
    settings: PlanSettings,
    folds_bytes: int,
) -> tuple[pd.DataFrame, int]:
    """Return the table with the fewest parts, and the bytes for the shards of a part.

    Parts are numbered from 1. The upper bound of every part is within the limit, with a
    file of `folds_bytes`.
    """
    limit_bytes = settings.limit_bytes
    groups = forecast_groups(table, settings.image, forecast, ["split", "fold"])
    total_bytes = forecast.size[0] * len(table)
    n_parts = max(1, floor(total_bytes / max(limit_bytes, 1)))
    while n_parts <= len(table):
        n_shards = shards_per_group(groups, n_parts, settings)
        if n_shards is None:
            n_parts += 1
            continue
        planned = assign_shards(table, n_shards, n_parts, seed=settings.seed)
        row_bytes, fixed_bytes = sidecar_bytes(table, sum(n_shards.values()))
        fixed_bytes += folds_bytes
        fullest = forecast_groups(planned, settings.image, forecast, ["part"]).max()
        shard_bytes = ceil(fullest["high"])
        other_bytes = ceil(fullest["count"] * row_bytes + fixed_bytes)
        if shard_bytes + other_bytes <= limit_bytes:
            return planned, limit_bytes - other_bytes
        estimate = floor(n_parts * shard_bytes / max(limit_bytes - fixed_bytes, 1))
        n_parts = max(n_parts + 1, estimate)
    raise ValueError(
        f"No number of parts fits PART_LIMIT_GB = {limit_bytes / 1e9:g}: one record "
        f"alone may take {forecast.size[2] / 1e6:,.2f} MB. Raise PART_LIMIT_GB, or "
        "lower IMAGE_SIZE or QUALITY."
    )


def sidecar_bytes(table: pd.DataFrame, n_shards: int) -> tuple[float, int]:
    """Return the bytes of a part besides its shards: per image, and a fixed number.

    An image has a row in a CSV and in hashes.parquet, and a line in an index. n_shards:
    of all parts, because plan.json lists them all.
    """
    table = table.drop(columns=NOT_IN_CSV, errors="ignore")
    sample = table.sample(min(len(table), 500), random_state=0)
    csv = sample.to_csv(index=False, header=False)
    row_bytes = len(csv.encode()) / max(1, len(sample))
    return 2 * row_bytes + 300, (64 << 10) + 600 * n_shards


def shards_per_group(
    groups: pd.DataFrame,
    n_parts: int,
    settings: PlanSettings,
) -> dict[Any, int] | None:
    """Return the number of shards of each (split, fold), None if that is too many.

    They have about shard_mb if not numbered, and grow before there are more parts.
    groups: by (split, fold), the images (`count`) and `expected` bytes.
    Raises: ValueError: no number of parts can satisfy this.
    """
    counts = groups["count"]
    is_test = counts.index.get_level_values("split") == "test"
    max_shards = _limit_shards(counts, is_test, settings)
    if settings.n_shards or settings.shard_images:
        n_shards = _count_shards(counts, is_test, settings)
    else:
        n_shards = _size_shards(groups, is_test, n_parts, max_shards, settings)
    if np.ceil(n_shards[~is_test] / n_parts).sum() > max_shards:
        return None

    # A part may have no test image: there can be fewer of them than parts.
    n_shards[is_test] = np.minimum(counts, n_shards.clip(n_parts))[is_test]
    _check_every_part(n_shards[~is_test], n_parts)
    return n_shards.to_dict()


def _check_every_part(n_shards: pd.Series, n_parts: int) -> None:
    """Raise a ValueError if a fold has fewer shards than there are parts."""
    if n_shards.min() < n_parts:
        split, fold = cast("tuple[str, int]", n_shards.idxmin())
        raise ValueError(
            f"The images need {n_parts} parts, but fold {fold} of '{split}' has "
            f"{n_shards.min()} shards; a part takes some of each. Raise PART_LIMIT_GB "
            "or N_SHARDS, lower SHARD_IMAGES, or set the two to 0."
        )


def _limit_shards(
    counts: pd.Series,
    is_test: np.ndarray,
    settings: PlanSettings,
) -> int:
    """Return how many shards a part can have at its top.

    Raises: ValueError: fewer than folds.
    """
    # Each part also has the sample submission and the folder of test shards.
    n_tables = counts.index.unique("split").size + 2 * int(is_test.any())
    max_shards = settings.max_part_files - SIDECAR_FILES - n_tables
    n_folds = np.count_nonzero(~is_test)
    if n_folds > max_shards:
        raise ValueError(
            f"MAX_PART_FILES = {settings.max_part_files} leaves {max_shards} shards to "
            f"a part, but each of {n_folds} folds needs one. Raise MAX_PART_FILES, or "
            "lower N_FOLDS."
        )
    return max_shards


def _count_shards(
    counts: pd.Series,
    is_test: np.ndarray,
    settings: PlanSettings,
) -> pd.Series:
    """Return the number of shards of each group by N_SHARDS or SHARD_IMAGES."""
    if not settings.n_shards:
        return -(-counts // settings.shard_images)
    # N_SHARDS is of labelled images; test shards are about as large.
    labelled = counts if is_test.all() else counts[~is_test]
    shares = counts * settings.n_shards / labelled.sum()
    n_shards = shares.round().astype(int).clip(1)
    n_shards[labelled.index] = _apportion(labelled, settings.n_shards)
    return n_shards


def _size_shards(
    groups: pd.DataFrame,
    is_test: np.ndarray,
    n_parts: int,
    max_shards: int,
    settings: PlanSettings,
) -> pd.Series:
    """Return the number of shards of each group by SHARD_MB.

    Their size is the nearest to SHARD_MB that gives at most `max_shards` at the top of
    a part, if there is one.
    """
    megabytes = groups["expected"].to_numpy() / n_parts / 1e6
    largest_mb = max(settings.shard_mb, LARGEST_SHARD_MB)
    targets = np.linspace(settings.shard_mb, largest_mb, 41)[:, None]
    fewest = np.ceil(megabytes / largest_mb)
    nearest = np.round(megabytes / targets)
    options = np.maximum(nearest, fewest).clip(1).astype(int)
    fits = options[:, ~is_test].sum(axis=1) <= max_shards
    return np.minimum(groups["count"], options[np.argmax(fits)] * n_parts)


def _apportion(counts: pd.Series, n_shards: int) -> pd.Series:
    """Return `n_shards` over the groups: one each, the others to the fullest shards.

    Source: Adams' method of apportionment (smallest divisors), by its priority numbers.
    """
    if not len(counts) <= n_shards <= counts.sum():
        raise ValueError(
            f"N_SHARDS = {n_shards}, but there are {len(counts)} folds with "
            f"{counts.sum()} images, each in its own shards. Set N_SHARDS between "
            "these two, or N_FOLDS = 0."
        )
    shards = np.ones(len(counts), int)
    for _ in range(n_shards - len(counts)):
        shards[np.argmax(counts.to_numpy() / shards)] += 1
    return pd.Series(shards, counts.index)


def save_plan(plan: Plan, table: pd.DataFrame, work_dir: str) -> None:
    """Write plan.parquet, a row group per shard, then plan.json; note their numbers."""
    storage.remove_leftovers(work_dir)
    rows = _encode_rows(table, plan.shards)
    storage.write_atomically(f"{work_dir}/plan.parquet", rows)
    storage.write_atomically(f"{work_dir}/plan.json", plan.to_json().encode())

    high = format_bytes(plan.forecast["high"] * len(table))
    note(
        "·",
        f"Planned: {count_of(len(table), 'image')} in "
        f"{count_of(len(plan.shards), 'shard')}, {count_of(plan.n_parts, 'part')}, at "
        f"most {high}.",
        "plan",
    )


def _encode_rows(table: pd.DataFrame, shards: Sequence[Shard]) -> bytes:
    """Return a Parquet file with a row group per shard."""
    rows = pa.Table.from_pandas(table.sort_values(ORDER), preserve_index=False)
    buffer = io.BytesIO()
    start = 0
    with pq.ParquetWriter(buffer, rows.schema) as writer:
        for shard in shards:
            rows_of_shard = rows.slice(start, shard.count)
            writer.write_table(rows_of_shard, row_group_size=shard.count)
            start += shard.count
    return buffer.getvalue()


def read_plan(folder: str) -> Plan:
    """Return the plan of a work or part folder, without its table.

    Raises: FileNotFoundError: no plan.json; ValueError: it cannot be read.
    """
    path = storage.join(folder, "plan.json")
    try:
        text = storage.read_bytes(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no plan.json in WORK_DIR '{folder}'. Run 03_plan."
        ) from None
    return Plan.parse(text, path, "Run 03_plan again.")


def has_folds(plan: Plan, part: int) -> bool:
    """Return whether folds.csv goes with a part, which is the plan's first one."""
    return part == plan.first_part and plan.folds_sha256 != ""


def read_rows(
    work_dir: str, shards: Iterable[Shard]
) -> Iterator[tuple[Shard, pd.DataFrame]]:
    """Yield each shard with its rows, so that the whole table is never in memory."""
    path = storage.join(work_dir, "plan.parquet")
    with storage.local_copy(path) as local, pq.ParquetFile(local) as rows:
        for shard in shards:
            yield shard, rows.read_row_group(shard.number).to_pandas()


def list_planned(plan: Plan) -> pd.DataFrame:
    """Return one row per shard: part, split, fold, count, mb_at_most, file."""
    table = pd.DataFrame(plan.shards)
    table["mb_at_most"] = table["bytes_high"] / 1e6
    table["file"] = list(map(plan.file_name, plan.shards))
    return table[["part", "split", "fold", "count", "mb_at_most", "file"]]
