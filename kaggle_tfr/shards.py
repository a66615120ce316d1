"""The contents of part folders: shards, tables, schemas, labels and checksums."""

import contextlib
import hashlib
import io
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.find import find_input
from kaggle_tfr.naming import is_shard_name, parse_shard_name
from kaggle_tfr.records import FRAME_BYTES, PER_IMAGE_ERRORS, is_gzip, plain_file
from kaggle_tfr.schema import (
    SOURCES,
    JsonDataclass,
    Labels,
    RecordSchema,
    Row,
    SchemaLike,
    load_schema,
)
from kaggle_tfr.session import prepare
from kaggle_tfr.storage import AnyPath

# The checksums of a finished part, for `sha256sum -c`: of all its files but Kaggle's
# metadata.
SUMS = "SHA256SUMS"
LOOKUPS = 16  # files that are read, or requests to a bucket, at a time
UNLISTED = -1  # bytes of a shard that no shards.csv lists
# The columns of shards.csv that readers need; the writer adds more.
SHARD_COLUMNS = ["file", "split", "fold", "count", "bytes"]
INTEGERS = dict.fromkeys(["fold", "count", "bytes", "part", "shard", "refused"], int)
TYPES: Any = defaultdict(lambda: str, INTEGERS)  # of columns
COPY_AGAIN = (
    "Copy the folder again, or run 04_write again; move away a file that is not ours."
)
SET_SCHEMA = (
    "Copy the folder again, or set a `schema`: a preset such as "
    '"cassava", or a mapping of the features of its records.'
)
Folders = AnyPath | Sequence[AnyPath]
Texts = dict[str, str]  # by the names of files or folders


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

    @classmethod
    def from_dict(cls, values: Row) -> Self:
        """Return the plan of a plan.json of any version."""
        # Version 0.2 listed the plans that the plan continues, the oldest first.
        earlier = values.get("earlier", [])
        upgraded = {
            "dataset_id": [*earlier, values][0].get("fingerprint", ""),
            "first_part": 1 + sum(plan["n_parts"] for plan in earlier),
            **values,
        }
        return super().from_dict(upgraded)

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
    names = [dirs] if isinstance(dirs, str | os.PathLike) else dirs
    parents = list(map(find_input, names))
    parts: list[str] = []
    for parent in parents:
        parts += list_parts(parent, pattern="*") or [parent]
    folders = list(dict.fromkeys(map(storage.real_path, parts)))
    listed = pd.concat([_list_folder(folder, schema) for folder in folders])
    # The folder around parts may contain the plan that they should be of.
    check_one_dataset(
        [*parents, *folders],
        advice="If one is an older version or a copy, remove it, or run 04_write with "
        "OVERWRITE = True. Read two different datasets apart, and join their batches "
        "by tf.data's sample_from_datasets.",
    )
    with ThreadPoolExecutor(LOOKUPS) as threads:
        shards = pd.DataFrame(threads.map(_inspect, listed.to_dict("records")))
    shards = shards[shards["count"] > 0].reset_index(drop=True)
    texts = {folder: storage.read_text(f"{folder}/labels.json") for folder in folders}
    labels: Any = share_labels(texts)
    return shards.assign(labels=labels)


def list_parts(
    parts_dir: str, table: str = "shards.csv", pattern: str = "part-*"
) -> list[str]:
    """Return the part folders that contain a table, in the order of their numbers."""
    if not storage.is_folder(parts_dir):
        return []
    tables = storage.list_files(f"{pattern}/{table}", parts_dir)
    # They are sorted by name. By length, part-10 follows part-2.
    return sorted(map(os.path.dirname, tables), key=len)


def read_plan_id(folder: str) -> PlanId:
    """Return the id of the plan in a work or part folder, `PlanId()` if unknown.

    Raises: ValueError: plan.json is not a plan.
    """
    path = f"{folder}/plan.json"
    plan_id = PlanId.parse(storage.read_text(path) or "{}", path, COPY_AGAIN)
    with contextlib.suppress(ValueError):  # an empty or foreign shards.csv
        part = read_part_table(folder, columns=["part"])["part"].max()
        plan_id = replace(plan_id, part=int(part))
    return plan_id


def list_own_parts(parts_dir: str, work_dir: str) -> list[str]:
    """Return the finished parts that the plan of a work folder wrote, without earlier.

    A part whose plan is unknown belongs to them, too.
    """
    plans = {"", read_plan_id(work_dir).fingerprint}
    parts = list_parts(parts_dir)
    return [part for part in parts if read_plan_id(part).fingerprint in plans]


def check_one_dataset(folders: Iterable[str], *, advice: str) -> None:
    """Raise a ValueError that names two folders which cannot be read together.

    Their plans must be of one dataset and have different parts, and no part may be
    there twice. Folders whose plan is unknown are not compared.
    folders: with parts or plans. advice: what to do with two of them.
    """
    plans = {folder: read_plan_id(folder) for folder in map(storage.real_path, folders)}
    for (folder, plan), (other, other_plan) in combinations(plans.items(), 2):
        is_repeated = not {*plan.part_numbers}.isdisjoint(other_plan.part_numbers)
        if plan.fingerprint == other_plan.fingerprint:
            is_repeated = plan.part == other_plan.part > 0
        if is_repeated or "" != plan.dataset_id != other_plan.dataset_id != "":
            raise ValueError(
                f"'{folder}' and '{other}' cannot be read as one dataset: they are of "
                "different datasets, or both have the same part. Images could be in "
                f"training and in validation. {advice}"
            )


def share_labels(texts: Texts) -> Labels:
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
    """Return the shards of a folder, by their names if it has no shards.csv."""
    shards = read_part_table(folder)
    shards["file"] = [storage.join(folder, name) for name in shards["file"]]
    if shards.empty:
        files = list_shard_files(folder)
        rows = [(file, *parse_shard_name(file, folder), -1, UNLISTED) for file in files]
        shards = pd.DataFrame(rows, columns=["file", "split", "count", "fold", "bytes"])
    if shards.empty:
        raise FileNotFoundError(
            f"No shards in '{folder}': no shards.csv, in it or one folder down, and no "
            "file named *.tfrec*. Set TFREC_DIRS to part folders."
        )
    record_schema = choose_schema(folder, schema)
    schemas = shards["split"].map(record_schema.for_split)
    return shards.assign(folder=folder, schema=schemas)


def read_part_table(
    part_dir: str, name: str = "shards.csv", columns: list[str] = SHARD_COLUMNS
) -> pd.DataFrame:
    """Return columns of a CSV of a part with their types, no rows if there is no file.

    Raises: ValueError: it lacks one of `columns`, or is not a table.
    """
    path = f"{part_dir}/{name}"
    text = storage.read_text(path) or ",".join(columns)
    try:
        table = pd.read_csv(
            io.StringIO(text), usecols=columns, dtype=TYPES, keep_default_na=False
        )
    except ValueError as error:
        raise ValueError(
            f"'{path}' is not a list of shards: {error}. {COPY_AGAIN}"
        ) from None
    return table[columns]


def list_shard_files(folder: str) -> list[str]:
    """Return the files in a folder, and one folder down, with the names of shards."""
    files = storage.list_files("*.tfrec*", folder)
    files += storage.list_files("*/*.tfrec*", folder)
    return list(filter(is_shard_name, files))


def choose_schema(folder: str, schema: SchemaLike) -> RecordSchema:
    """Return `schema` as a RecordSchema, or without it the folder's schema.json.

    Without a label in `schema`, its text columns are masks: a preset only has the names
    of its table's columns.
    Raises: ValueError: there is no schema.
    """
    if not schema:
        path = f"{folder}/schema.json"
        return RecordSchema.parse(storage.read_text(path), path, SET_SCHEMA)
    record_schema = load_schema(schema)
    masks = tuple(
        str(field.source)
        for field in record_schema.fields
        if field.type == "bytes" and field.source not in SOURCES
    )
    if masks and not record_schema.label_keys:
        return replace(record_schema, kind="masks", label_columns=masks)
    return record_schema


def _inspect(row: dict) -> dict:
    """Return the row of a shard with its bytes, compression and count.

    A count in shards.csv or in the shard's name is checked by those who read all.
    Raises: ValueError: the bytes differ from those in shards.csv.
    """
    file = row["file"]
    size, _ = storage.size_and_time(file)
    if row["bytes"] not in (UNLISTED, size):
        raise ValueError(
            f"'{file}' has {size:,} bytes, but {row['bytes']:,} in shards.csv: it is "
            "truncated or of another run. Copy it again, or write the part again."
        )
    count = row["count"] if row["count"] >= 0 else count_records(file)
    compression = "GZIP" if is_gzip(file) else ""
    return row | {"bytes": size, "count": count, "compression": compression}


def count_records(file: str) -> int:
    """Return the number of records in a shard by their lengths.

    Raises: ValueError: it is truncated, or is not a TFRecord file.
    """
    count = 0
    offset = 0
    with plain_file(file) as plain, open(plain, "rb") as shard:
        size = os.path.getsize(plain)
        while offset < size:
            shard.seek(offset)
            offset += FRAME_BYTES + int.from_bytes(shard.read(8), "little")
            count += 1
    if offset != size:
        raise ValueError(
            f"'{file}' is truncated or is not a TFRecord file. Copy or write it again."
        )
    return count


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text file, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_sums(part_dir: str) -> Texts:
    """Return the SHA-256 of each file in SHA256SUMS by name, {} if it is damaged."""
    text = storage.read_text(f"{part_dir}/{SUMS}")
    lines = re.findall(r"(?m)^([0-9a-f]{64})  (.+)\n", text)
    sums = {name: sha256 for sha256, name in lines}
    return sums if text == format_sums(sums) else {}


def format_sums(sums: Texts) -> str:
    """Return the text of SHA256SUMS."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items()))


def find_changed_files(part_dir: str, sums: Texts) -> Texts:
    """Return what is wrong with each file that does not match `sums`, by name."""
    paths = [storage.join(part_dir, name) for name in sums]
    with ThreadPoolExecutor(LOOKUPS) as threads:
        sums_of_files = threads.map(_sha256_or_blank, paths)
        found = dict(zip(sums, sums_of_files, strict=True))
    changed = [name for name, sha256 in sums.items() if found[name] != sha256]
    return dict.fromkeys(changed, "it is missing, or has changed since it was written")


def _sha256_or_blank(path: str) -> str:
    with contextlib.suppress(*PER_IMAGE_ERRORS):
        return storage.sha256_of(path)
    return ""
