"""The contents of part folders: shards, tables, schemas, labels and checksums."""

import contextlib
import hashlib
import io
import os
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.mounts import find_input
from kaggle_tfr.naming import is_shard_name, parse_shard_name
from kaggle_tfr.records import PER_IMAGE_ERRORS, is_gzip, open_plain
from kaggle_tfr.schema import (
    SOURCES,
    JsonDataclass,
    Labels,
    RecordSchema,
    SchemaLike,
    load_schema,
)
from kaggle_tfr.session import prepare
from kaggle_tfr.storage import AnyPath

# The checksums of a finished part, for `sha256sum -c`: of all its files but Kaggle's
# metadata.
SUMS = "SHA256SUMS"
LOOKUPS = 16  # requests to a bucket at a time
# The columns of shards.csv that readers need; the writer adds more.
SHARD_COLUMNS = ["file", "split", "fold", "count", "bytes"]
INTEGERS = {"fold", "count", "bytes", "part", "shard", "refused"}
COPY_AGAIN = (
    "Copy the folder again, or run 04_write again; move away a file that is not ours."
)
Folders = AnyPath | Sequence[AnyPath]


@dataclass(frozen=True)
class PlanId(JsonDataclass):
    """What a folder's plan.json contains about the dataset and its parts.

    dataset_id: the fingerprint of the first plan of the dataset. fingerprint: "" if the
    plan is unknown. first_part: the number of its first part.
    part: the number of the part in the folder, 0 if it is unknown.
    """

    dataset_id: str = ""
    fingerprint: str = ""
    first_part: int = 1
    n_parts: int = 0
    part: int = 0

    @property
    def part_numbers(self) -> range:
        """The numbers of the plan's parts."""
        return range(self.first_part, self.first_part + self.n_parts)


def find_shards(dirs: Folders, *, schema: SchemaLike = "") -> pd.DataFrame:
    """Return one row per shard with records.

    Columns: file, split, fold (−1 if unknown), count, bytes, compression, schema,
    folder, and labels (the same in every row).
    dirs: part folders, or folders of them; local, `gs://` or Kaggle slugs, in any mix.
    A folder that is named twice is read once.
    schema: a preset's name, a mapping or a `RecordSchema`, for files without a
    schema.json.
    Raises: FileNotFoundError, ValueError: each names the folder or file, and what is
    wrong with it, such as parts of different datasets.
    """
    prepare()
    if isinstance(dirs, str | os.PathLike):
        dirs = [dirs]
    parents = [find_input(folder) for folder in dirs]
    parts = [part for parent in parents for part in _find_parts(parent)]
    folders = _list_distinct(parts)
    with ThreadPoolExecutor(LOOKUPS) as threads:
        tables = threads.map(partial(_list_folder, schema=schema), folders)
        listed = pd.concat(tables, ignore_index=True)
        shards = pd.DataFrame(threads.map(_inspect, listed.to_dict("records")))
        # The folder around parts may contain the plan that they should be of.
        check_one_dataset(
            [*parents, *folders],
            advice="If one is an older version or a copy, remove it, or run 04_write "
            "with OVERWRITE = True. Read two different datasets apart, and join their "
            "batches by tf.data's sample_from_datasets.",
        )
        paths = [f"{folder}/labels.json" for folder in folders]
        texts = dict(zip(folders, threads.map(storage.read_text, paths), strict=True))
    shards = shards[shards["count"] > 0].reset_index(drop=True)
    if shards.empty:
        raise ValueError(
            f"No shard in {folders} contains a record. See rejects.csv beside them."
        )
    return shards.assign(labels=pd.Series(share_labels(texts), shards.index))


def _list_distinct(folders: Iterable[str]) -> list[str]:
    """Return the folders, each of them once even if it has two names."""
    return list({storage.real_path(folder): folder for folder in folders}.values())


def _find_parts(folder: str) -> list[str]:
    """Return the folder, or those in it with a shards.csv if only they have one."""
    if storage.exists(f"{folder}/shards.csv"):
        return [folder]
    return list_parts(folder, pattern="*") or [folder]


def list_parts(
    parts_dir: str, table: str = "shards.csv", pattern: str = "part-*"
) -> list[str]:
    """Return the part folders that contain a table, in the order of their numbers."""
    if not storage.is_folder(parts_dir):
        return []
    tables = storage.list_files(f"{pattern}/{table}", parts_dir)
    # By length first, so that part-10 follows part-2.
    return sorted(map(os.path.dirname, tables), key=lambda part: (len(part), part))


def read_plan_id(folder: str) -> PlanId:
    """Return the id of the plan in a work or part folder, `PlanId()` if unknown.

    Raises: ValueError: plan.json is not JSON.
    """
    path = f"{folder}/plan.json"
    plan_id = PlanId()
    values = storage.parse_json(storage.read_text(path) or "{}", path, COPY_AGAIN)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        plan_id = PlanId.from_dict(upgrade_plan(values))
        # The last line fails for an empty or foreign shards.csv.
        numbers = read_part_table(folder, columns=["part"])["part"]
        plan_id = replace(plan_id, part=int(numbers.max()))
    return plan_id


def upgrade_plan(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a plan.json of any version, as this version writes them.

    Raises: KeyError, TypeError: a value is missing, or is of another type.
    """
    # Version 0.2 listed the plans that the plan continues, the oldest first.
    earlier = values.pop("earlier", [])
    return {
        "dataset_id": [*earlier, values][0]["fingerprint"],
        "first_part": 1 + sum(plan["n_parts"] for plan in earlier),
        **values,
    }


def list_own_parts(parts_dir: str, work_dir: str) -> list[str]:
    """Return the finished parts that the plan of a work folder wrote, without earlier.

    A part whose plan is unknown belongs to them, too.
    """
    fingerprints = {"", read_plan_id(work_dir).fingerprint}
    return [
        part
        for part in list_parts(parts_dir)
        if read_plan_id(part).fingerprint in fingerprints
    ]


def check_one_dataset(folders: Iterable[str], *, advice: str) -> None:
    """Raise a ValueError that names two folders which cannot be read together.

    Their plans must be of one dataset and have different parts, and no part may be
    there twice. Folders whose plan is unknown are not compared.
    folders: with parts or plans. advice: what to do with two of them.
    """
    names = _list_distinct(folders)
    with ThreadPoolExecutor(LOOKUPS) as threads:
        plans = zip(names, threads.map(read_plan_id, names), strict=True)
    known = [(folder, plan) for folder, plan in plans if plan.fingerprint]
    for (folder, plan), (other, other_plan) in combinations(known, 2):
        shared = set(plan.part_numbers).intersection(other_plan.part_numbers)
        is_other_plan = plan.fingerprint != other_plan.fingerprint
        if (
            plan.dataset_id != other_plan.dataset_id
            or 0 < plan.part == other_plan.part
            or (is_other_plan and shared)
        ):
            raise ValueError(
                f"'{folder}' and '{other}' cannot be read as one dataset: they are of "
                "different datasets, or both have the same part. Images could be in "
                f"training and in validation. {advice}"
            )


def share_labels(texts: Mapping[str, str]) -> Labels:
    """Return the labels that folders share.

    texts: of labels.json by folder, "" if there is none.
    Raises: ValueError: two have different classes.
    """
    last = ""
    shared = Labels()
    for folder, text in texts.items():
        if not text or text.startswith("["):  # a list of another program
            continue
        labels = Labels.parse(text, f"{folder}/labels.json", COPY_AGAIN)
        if labels.kind == "number":  # its bins are for the folds only
            labels = replace(labels, classes=())
        if last and labels.classes != shared.classes:
            raise ValueError(
                f"'{folder}' and '{last}' number their classes differently, so their "
                "labels do not mean the same. Read them apart."
            )
        last = folder
        shared = labels
    return shared


def _list_folder(folder: str, schema: SchemaLike) -> pd.DataFrame:
    """Return the shards of a folder; −1 is a value that the file reveals."""
    shards = _read_listing(folder)
    if shards.empty:
        shards = pd.DataFrame(list_shard_files(folder), columns=SHARD_COLUMNS)
    if shards.empty:
        raise FileNotFoundError(
            f"No shards in '{folder}': no shards.csv, in it or one folder down, and no "
            "file named *.tfrec*. Set TFREC_DIRS to part folders."
        )
    record_schema = choose_schema(folder, shards["file"][0], schema)
    schemas = shards["split"].map(record_schema.for_split)
    return shards.assign(folder=folder, schema=schemas)


def read_part_table(
    part_dir: str, name: str = "shards.csv", columns: list[str] = SHARD_COLUMNS
) -> pd.DataFrame:
    """Return columns of a CSV of a part with their types, empty if there is no file.

    Raises: ValueError: it lacks one of `columns`, or is not a table.
    """
    path = f"{part_dir}/{name}"
    text = storage.read_text(path)
    if not text:
        return pd.DataFrame(columns=columns)
    types = {column: int if column in INTEGERS else str for column in columns}
    try:
        table = pd.read_csv(
            io.StringIO(text), usecols=columns, dtype=types, keep_default_na=False
        )
    except ValueError as error:
        raise ValueError(
            f"'{path}' is not a list of shards: {error}. {COPY_AGAIN}"
        ) from None
    return table[columns]


def list_shard_files(folder: str) -> list[tuple]:
    """Return (file, split, −1, count, −1) of the files with names of shards.

    The split is "train" and the count −1 if the name does not contain them.
    """
    files = storage.list_files("*.tfrec*", folder)
    files += storage.list_files("*/*.tfrec*", folder)
    rows = []
    for file in filter(is_shard_name, files):
        split, count = parse_shard_name(os.path.relpath(file, folder))
        rows.append((file, split, -1, count, -1))
    return rows


def list_inputs(
    folder: str, files: Iterable[str], parts: Iterable[str], *, with_missing: bool
) -> pd.DataFrame:
    """Return file, split and part of each shard in a folder, sorted by file.

    files: the shards that exist. parts: the folders with a shards.csv; a shard that
    none of them lists has the split in its name, and the part "".
    with_missing: add the shards that are listed, but whose file is missing.
    Raises: ValueError: parts of different datasets.
    """
    shards = {}
    for file in files:
        split, _ = parse_shard_name(os.path.relpath(file, folder))
        shards[file] = (file, split, "")
    for part in parts:
        listing = _read_listing(part, ["file", "split"])
        for file, split in listing.itertuples(index=False):
            if with_missing or file in shards:
                shards[file] = (file, split, part)
    check_one_dataset(
        [part for _, _, part in shards.values() if part],
        advice="Set INPUT_DIR to one of them, MORE_INPUTS to the other.",
    )
    return pd.DataFrame(sorted(shards.values()), columns=["file", "split", "part"])


def _read_listing(part_dir: str, columns: list[str] = SHARD_COLUMNS) -> pd.DataFrame:
    """Return columns of shards.csv, with the path of each shard as its file."""
    table = read_part_table(part_dir, columns=columns)
    return table.assign(file=[storage.join(part_dir, file) for file in table["file"]])


def choose_schema(folder: str, file: str, schema: SchemaLike) -> RecordSchema:
    """Return `schema` as a RecordSchema, or without it the folder's schema.json.

    Without a label in `schema`, its text columns are masks: a preset only has the names
    of its table's columns.
    file: a shard, for the error. Raises: ValueError: there is no schema.
    """
    if schema:
        record_schema = load_schema(schema)
        fields = [field for field in record_schema.fields if field.type == "bytes"]
        sources = chain.from_iterable(field.sources for field in fields)
        masks = tuple(source for source in sources if source not in SOURCES)
        if masks and not record_schema.label_keys:
            return replace(record_schema, kind="masks", label_columns=masks)
        return record_schema
    path = f"{folder}/schema.json"
    text = storage.read_text(path)
    if text:
        return RecordSchema.parse(text, path, COPY_AGAIN)
    raise ValueError(
        f"'{folder}' has no schema.json, so the features of '{file}' are unknown. "
        'Set a `schema`: a preset such as "cassava", or a mapping of its features.'
    )


def _inspect(row: dict[Any, Any]) -> dict[Any, Any]:
    """Return the row of a shard with its bytes, compression and count.

    Raises: ValueError: they differ from the row's.
    """
    file = row["file"]
    size, _ = storage.size_and_time(file)
    is_listed = row["bytes"] != -1
    if is_listed and row["bytes"] != size:
        raise ValueError(
            f"'{file}' has {size:,} bytes, but {row['bytes']:,} in shards.csv: it is "
            "truncated, or of another run. Copy it again, or write the part again."
        )
    compression = "GZIP" if is_gzip(file) else ""
    count = row["count"]
    # The size is enough for a listed shard. Frames on disk are quick to count.
    is_quick = not (is_listed or compression or storage.is_remote(file))
    if count == -1 or is_quick:
        count = count_records(file)
    if row["count"] not in (-1, count):
        raise ValueError(
            f"'{file}' contains {count:,} records, but {row['count']:,} by its name. "
            "It is truncated or misnamed. Copy it again, or give it another name."
        )
    return row | {"bytes": size, "compression": compression, "count": count}


def count_records(file: str) -> int:
    """Return the number of records in a shard by their lengths.

    Raises: ValueError: it is truncated, or is not a TFRecord file.
    """
    count = 0
    with storage.local_copy(file) as local, open_plain(local) as shard:
        try:
            while length := shard.read(8):
                shard.seek(int.from_bytes(length, "little") + 4, os.SEEK_CUR)
                struct.unpack("4s", shard.read(4))  # fails at the end of the file
                count += 1
        except (OSError, EOFError, OverflowError, struct.error, zlib.error) as error:
            raise ValueError(
                f"'{file}' is truncated or is not a TFRecord file: {error}. Copy or "
                "write it again."
            ) from None
    return count


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text file, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_sums(part_dir: str) -> dict[str, str]:
    """Return the SHA-256 of each file in SHA256SUMS by name, {} if it is damaged."""
    text = storage.read_text(f"{part_dir}/{SUMS}")
    lines = re.findall(r"(?m)^([0-9a-f]{64})  (.+)\n", text)
    sums = {name: sha256 for sha256, name in lines}
    return sums if text == format_sums(sums) else {}


def format_sums(sums: Mapping[str, str]) -> str:
    """Return the text of SHA256SUMS."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items()))


def find_changed_files(part_dir: str, sums: Mapping[str, str]) -> dict[str, str]:
    """Return what is wrong with each file that does not match `sums`, by name."""
    wrong = {}
    for name, sha256 in sums.items():
        try:
            if storage.sha256_of(storage.join(part_dir, name)) != sha256:
                wrong[name] = "it has changed since it was written"
        except PER_IMAGE_ERRORS:
            wrong[name] = "the file is missing"
    return wrong
