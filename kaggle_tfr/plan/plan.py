"""The plan: all settings to write and read shards, and each image's shard and part."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kaggle_tfr import storage
from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.naming import OVERRIDE_GROUP, check_template, format_shard_name
from kaggle_tfr.parallel import package_versions
from kaggle_tfr.parameters import as_size
from kaggle_tfr.plan.forecast import forecast_groups, make_forecast
from kaggle_tfr.schema import JsonDataclass, Labels, RecordSchema
from kaggle_tfr.shards import PlanId, sha256_of_text

# The order of the records. A row group of plan.parquet is a shard.
ORDER = ["part", "split", "fold", "shard", "position"]
# schema, labels (twice), plan.json, shards.csv, folds.csv, rejects.csv, stats.json,
# hashes.parquet and SHA256SUMS; a CSV for each of three splits; sample submission and
# folder of test images. Five of Kaggle's 50 files stay free by default: for the index
# folder (uploaded as one archive), and for files that the user adds.
SIDECAR_FILES = 15
FIXED_BYTES = 64 << 10  # of these files, besides their rows
# Columns that may change although the records stay the same. `digest` identifies the
# file; versions of a decoder may change its brightness.
NOT_DECISIVE = [
    "path",
    "cluster",
    "problem",
    "brightness",
    "sharpness",
    OVERRIDE_GROUP,
]
LARGEST_SHARD_MB = 400  # before another part is used
# A split and a path: what Kaggle accepts, and a file system with the endings of an
# index and of temporary files; not the names of a part's other files and folders.
SAFE_NAME = re.compile(
    r"(test: test/|(?!test)\w+: (?!(index|journal|test)?/))(?!.*\.\.)[\w./-]{1,120}"
    r"(?<!\.tmp|\.csv|\.txt)(?<!\.json|\.html)(?<!\.parquet)"
)
# Two numbers of a template without a character between them that is not a digit.
SIDE_BY_SIDE = re.compile(r"\{(?!name|split)[^}]*\}\d*\{(?!name|split)[^}]*\}")


@dataclass(frozen=True)
class Shard(JsonDataclass):
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
    bytes_high: int


@dataclass(frozen=True)
class PlanSettings:
    """The parameters of 03_plan, by their names in lower case."""

    group_column: str
    image_size: int | list[int]
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


@dataclass(frozen=True, kw_only=True)
class Plan(PlanId):
    """The contents of plan.json; a plan has no `part`.

    shard_limit_bytes: of all shards of a part together.
    forecast: the mean bytes of a record, with 99.9 % confidence at most "high".
    outcomes: number of input images by outcome, see `count_outcomes`.
    checks: of `check_leakage`, after the settings used to find near-duplicates.
    folds_sha256: of folds.csv, which the first part gets.
    fingerprint: sha256 of everything that decides the bytes of the shards.
    """

    labels: Labels
    schema: RecordSchema
    image: ImageSettings
    settings: PlanSettings
    shard_limit_bytes: int
    forecast: dict[str, float]
    outcomes: dict[str, int]
    checks: dict[str, Any]
    versions: dict[str, str]
    folds_sha256: str
    shards: tuple[Shard, ...]

    def file_name(self, shard: Shard, count: int) -> str:
        """Return the path of a shard, relative to its part folder.

        count: records in the file, which is not `shard.count` if images are rejected.
        """
        fields = vars(shard) | {"count": count, "name": self.labels.name}
        return format_shard_name(self.settings.shard_name, **fields)

    def for_worker(self) -> Self:
        """Return the plan without shards and classes, which grow with the data."""
        return replace(self, labels=replace(self.labels, classes=()), shards=())


def make_plan(
    folded: pd.DataFrame,
    labels: Labels,
    schema: RecordSchema,
    settings: PlanSettings,
    *,
    earlier: PlanId,
    folds_csv: str,
    **report: Any,
) -> tuple[Plan, pd.DataFrame]:
    """Return the plan, and its table with the columns shard, part and position.

    The rows of the table are the images without a record in an earlier part, in the
    order of the new records. They have the index of `folded`.
    folded: of `assign_folds`. earlier: the plan that this one continues.
    folds_csv: the text of folds.csv, which the first part gets. report: the plan's
        outcomes and checks.
    Raises: ValueError: no image is new, no number of parts satisfies the limits, or
        SHARD_NAME cannot name the shards.
    """
    # `part` is that of an earlier record; `_fit_parts` adds the part to write.
    table = folded[~mark_recorded(folded)].drop(columns="part", errors="ignore")
    if table.empty:
        raise ValueError(
            f"No image is new: all {len(folded):,} are in earlier parts. folds.csv is "
            "up to date."
        )
    forecast = make_forecast(table, schema, settings.image, seed=settings.seed)
    folds_bytes = len(folds_csv.encode())
    table, shard_limit_bytes = _fit_parts(table, forecast, settings, folds_bytes)
    first_part = earlier.part_numbers.stop  # 1 without earlier parts
    table["part"] += first_part
    # The rows of `forecast` are found by their index. ORDER: part, split, fold, shard
    # and position; a group by all but the position is a shard.
    parts = forecast_groups(forecast, table["part"])
    groups = forecast_groups(forecast, [table[name] for name in ORDER[:-1]])
    table = table.sort_values(ORDER)
    fingerprint = _make_fingerprint(
        table,
        labels,
        schema,
        settings.image,
        settings.compression,
        settings.shard_name,
        earlier.dataset_id,
    )
    shards = groups.reset_index().rename(columns={"shard": "index"})
    plan = Plan(
        labels=labels,
        schema=schema,
        image=settings.image,
        settings=settings,
        n_parts=table["part"].nunique(),
        shard_limit_bytes=shard_limit_bytes,
        forecast={
            "bytes_per_image": forecast["expected"].mean(),
            "high": parts["bytes_high"].sum() / len(table),
        },
        versions=package_versions(),
        folds_sha256=sha256_of_text(folds_csv),
        fingerprint=fingerprint,
        # The fingerprint of the dataset's first plan.
        dataset_id=earlier.dataset_id or fingerprint,
        first_part=first_part,
        shards=number_shards(shards, settings.shard_name, labels.name),
        **report,
    )
    return plan, table


def _make_fingerprint(table: pd.DataFrame, *values: Any) -> str:
    """Return a fingerprint, SHA-256, of what decides the bytes of the records.

    table: the rows in the order of the records; columns such as the path, which may
        change while the records stay the same (`NOT_DECISIVE`), do not count.
    values: all else that decides the bytes, such as labels and schema. Settings that
        only decide the order and the parts, such as the seed, are in the table.
    """
    columns = table.drop(columns=NOT_DECISIVE, errors="ignore")
    rows = pd.util.hash_pandas_object(columns, index=False).to_numpy()
    return sha256_of_text(repr([*values, rows.tobytes()]))


def number_shards(shards: pd.DataFrame, template: str, name: str) -> tuple[Shard, ...]:
    """Return the shards with `number`, `i` and `n`; check that each has a valid name.

    number: among all, from 0. i: from 0 among the shards whose names are equal but for
    the fields i, n and count; n: the number of these shards.
    shards: the other fields of each, in the order of the plan. template: SHARD_NAME,
    such as "f{fold}-{i:03d}.tfrec". name: of the dataset.
    Raises: ValueError: the template cannot name every shard in a part folder.
    """
    check_template(template)
    paths = []
    shard: Any
    # With i, n and count as 0, shards that are numbered together have the same path.
    for shard in shards.assign(i=0, n=0, count=0, name=name).to_dict("records"):
        path = format_shard_name(template, **shard)
        paths.append(path)
        # `SAFE_NAME` needs the split: test shards, and no others, are in test/.
        is_safe = SAFE_NAME.fullmatch(f"{shard['split']}: {path}")
        # `SIDE_BY_SIDE`: of "{i}{count}", 1 and 23 would look like 12 and 3.
        if SIDE_BY_SIDE.search(template) or not is_safe:
            raise ValueError(
                f"SHARD_NAME '{template}' with NAME '{name}' gives a shard the name "
                f"{path!r}. It must have at most 120 letters, digits, '-', '_' and "
                "'.', no two numbers side by side, and be no name of another file of "
                "a part. Change SHARD_NAME or NAME."
            )
    by_path = shards.groupby(paths)["count"]  # of any column: only rows are counted
    numbered: Any = shards.assign(
        number=shards.index,
        i=by_path.cumcount(),
        n=by_path.transform("size"),
    )
    return tuple(map(Shard.from_dict, numbered.to_dict("records")))


def _fit_parts(
    table: pd.DataFrame,
    forecast: pd.DataFrame,
    settings: PlanSettings,
    folds_bytes: int,
) -> tuple[pd.DataFrame, int]:
    """Return the table with the fewest parts, and the bytes for the shards of a part.

    The table is that of `assign_shards`, its parts numbered from 0. The upper bound of
    every part is within PART_LIMIT_GB, with the files beside the shards.
    forecast: of `make_forecast`. folds_bytes: of folds.csv.
    Raises: ValueError: no number of parts satisfies the limits.
    """
    counts = table.groupby(["split", "fold"]).size()
    # For all files beside the shards: an image has a row in a CSV and in
    # hashes.parquet, and a line in an index; its shard has a row in plan.json.
    rows = table.head(500).drop(columns="path")  # which differs between machines
    row_bytes = 300 + 2 * len(rows.to_csv().encode()) / len(rows)
    for n_parts, n_shards in list_layouts(counts, forecast["expected"].sum(), settings):
        planned = assign_shards(table, n_shards, n_parts, seed=settings.seed)
        # The most images and the most bytes of a part, maybe of two different ones.
        fullest = forecast_groups(forecast, planned["part"]).max()
        # `FIXED_BYTES`: of the files beside the shards, without their rows.
        reserved = folds_bytes + FIXED_BYTES + int(fullest["count"] * row_bytes)
        bytes_left = round(settings.part_limit_gb * 1e9) - reserved
        if fullest["bytes_high"] <= bytes_left:
            return planned, bytes_left
    raise ValueError(
        "The images of all folds and splits, some of each in every part, do not fit "
        f"PART_LIMIT_GB = {settings.part_limit_gb:g}, "
        f"MAX_PART_FILES = {settings.max_part_files}, N_SHARDS = {settings.n_shards}, "
        f"SHARD_IMAGES = {settings.shard_images}. Change these limits, or lower "
        "N_FOLDS, IMAGE_SIZE or QUALITY."
    )


def list_layouts(
    counts: pd.Series,
    n_bytes: float,
    settings: PlanSettings,
) -> Iterator[tuple[int, pd.Series]]:
    """Yield numbers of parts, with the number of shards of each (split, fold).

    They satisfy the limits of shards and files, the fewest parts first; whether their
    bytes fit is for the caller to check.
    counts: images of each (split, fold). n_bytes: of all records, as forecast.
    """
    # Test shards are in a folder, which counts as one file of a part.
    labelled = counts.drop("test", errors="ignore")
    if labelled.empty:
        labelled = counts
    fewest = 1 + int(n_bytes / (settings.part_limit_gb * 1e9 + 1))
    # Shards grow to `LARGEST_SHARD_MB` before there are more parts. The last number of
    # parts is beyond any need.
    numbers = range(fewest, 2 * fewest + 10)
    for n_parts, shard_mb in product(numbers, (settings.shard_mb, LARGEST_SHARD_MB)):
        # The images of a shard: by SHARD_IMAGES, else by bytes; or by N_SHARDS.
        n_images = settings.shard_images or shard_mb * 1e6 * counts.sum() / n_bytes
        if settings.n_shards:
            n_images = labelled.sum() / settings.n_shards
        # Each part has shards of each (split, fold).
        n_shards = np.ceil(counts / n_images).clip(n_parts)
        if settings.n_shards:  # exactly so many without test shards
            n_shards.update(_apportion(labelled, settings.n_shards))
        # A part may have no test image: there can be fewer of them than parts.
        n_shards = n_shards.clip(upper=counts)
        at_top = n_shards[labelled.index]
        # With the files beside the shards; shards as in the fullest part.
        n_files = SIDECAR_FILES + np.ceil(at_top / n_parts).sum()
        if at_top.min() >= n_parts and n_files <= settings.max_part_files:
            yield n_parts, n_shards.astype(int)


def _apportion(counts: pd.Series, n_shards: int) -> pd.Series:
    """Return the number of shards of each (split, fold), `n_shards` in all.

    counts: images of each (split, fold). The next shard goes to the (split, fold) whose
    shards have the most images. First each gets one, because a division by 0 is inf; a
    (split, fold) gets 0 if `n_shards` is too small.
    Source: Adams' method of apportionment (smallest divisors).
    """
    n_shards_of: Any = counts * 0.0
    for _ in range(n_shards):
        n_shards_of[(counts / n_shards_of).idxmax()] += 1
    return n_shards_of


def assign_shards(
    table: pd.DataFrame,
    n_shards: pd.Series,
    n_parts: int,
    seed: int,
) -> pd.DataFrame:
    """Return the table with int64 columns shard, part and position.

    Its rows are in the order of split, fold, shard and position. Shards of one fold
    have the same number of images, also of each class, to within one; parts have the
    same number of shards, to within one.
    n_shards: for each (split, fold), sorted; at most its number of images.
    shard: from 0 within its split and fold. part: from 0. position: from 0 in the
        shard.
    """
    dealt = []
    for number, (_, rows) in enumerate(table.groupby(["split", "fold"])):
        # In the order of `n_shards`. With a generator for each, the images of one fold
        # do not change the order of another.
        rng = np.random.default_rng([seed, number])
        # Dealt like cards: sorted by label, each shard gets every n-th image. The
        # numbers of the shards replace the labels; the index stays that of the rows.
        shard = _shuffle(rows["label"], rng).sort_values(kind="stable")
        shard[:] = np.arange(len(rows)) % n_shards.iloc[number]
        # In a shard, labels are in a random order.
        shuffled = _shuffle(shard[rows.index], rng)
        dealt.append(shuffled.sort_values(kind="stable"))

    shard = pd.concat(dealt)
    table = table.loc[shard.index].assign(shard=shard)
    shards = table.groupby(["split", "fold", "shard"])
    return table.assign(
        part=shards.ngroup() % n_parts,
        position=shards.cumcount(),
    )


def _shuffle(rows: pd.Series, rng: np.random.Generator) -> pd.Series:
    """Return the rows in a random order."""
    return rows.iloc[rng.permutation(len(rows))]


def save_plan(plan: Plan, table: pd.DataFrame, work_dir: str) -> None:
    """Write plan.parquet, a row group per shard, then plan.json.

    table: of `make_plan`, in the order of the plan's shards. plan.json is removed first
    and written last, because 04 stops without it: the two files are of one plan.
    """
    storage.remove(f"{work_dir}/plan.json")
    rows = pa.Table.from_pandas(table, preserve_index=False)
    start = 0
    with (
        storage.new_file(f"{work_dir}/plan.parquet") as temporary,
        pq.ParquetWriter(temporary, rows.schema) as writer,
    ):
        for shard in plan.shards:
            writer.write_table(rows.slice(start, shard.count), shard.count)
            start += shard.count
    storage.write_atomically(f"{work_dir}/plan.json", plan.to_json())


def read_plan(folder: str) -> Plan:
    """Return the plan of a work or part folder, without its table.

    Raises: ValueError: there is no plan.json, or it cannot be read.
    """
    path = f"{folder}/plan.json"
    return Plan.parse(storage.read_text(path), path, "Run 03_plan.")


def read_rows(
    work_dir: str, shards: Sequence[Shard]
) -> Iterator[tuple[Shard, pd.DataFrame]]:
    """Yield each shard with its rows, so that the whole table is never in memory.

    shards: of the plan, in any order. Rows: of plan.parquet, in the order of records.
    """
    path = f"{work_dir}/plan.parquet"
    with storage.local_copy(path) as local, pq.ParquetFile(local) as rows:
        for shard in shards:
            yield shard, rows.read_row_group(shard.number).to_pandas()
