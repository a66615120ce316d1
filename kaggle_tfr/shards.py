"""The contents of part folders: shards, tables, schemas, labels and checksums."""

import contextlib
import hashlib
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.mounts import find_input
from kaggle_tfr.naming import is_shard_name, parse_shard_name
from kaggle_tfr.records import FRAME_BYTES, is_gzip, parse_record
from kaggle_tfr.schema import (
    SOURCES,
    JsonDataclass,
    Labels,
    RecordSchema,
    SchemaLike,
    load_schema,
    read_values,
    type_of_feature,
)
from kaggle_tfr.session import prepare, tf
from kaggle_tfr.storage import AnyPath

# The checksums of a finished part, for `sha256sum -c`: of all its files but Kaggle's
# metadata.
SUMS = "SHA256SUMS"
LOOKUPS = 16  # requests to a bucket at a time
# The columns of shards.csv that readers need; the writer adds more.
SHARD_COLUMNS = ["file", "split", "fold", "count", "bytes"]
INTEGERS = {"fold", "count", "bytes", "part", "shard", "refused"}
READ_APART = (
    "If one is an older version or a copy, remove it, or run 04_write with OVERWRITE = "
    "True. Read two different datasets apart, and join their batches by tf.data's "
    "sample_from_datasets."
)
# A labels.json of another program, without the kind of labels.
_JSON_LIST = re.compile(r"(?s)\s*\[.*\]\s*")
NOT_RECORDS = "is truncated or is not a TFRecord file (copy or write it again)"
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

    def find_conflict(self, other: "PlanId") -> str:
        """Return why two folders cannot be read as one dataset, "" if they can.

        A folder whose plan is unknown can be read with all.
        """
        if not (self.fingerprint and other.fingerprint):
            return ""
        if self.dataset_id != other.dataset_id:
            return "they are of different datasets"
        if 0 < self.part == other.part:
            return f"both contain part {self.part}"
        first_shared = max(self.first_part, other.first_part)
        end = min(self.part_numbers.stop, other.part_numbers.stop)
        if self.fingerprint == other.fingerprint or first_shared >= end:
            return ""
        return (
            f"both of their plans have a part {first_shared}, because one is older, or "
            "because both continue the same parts"
        )


def find_shards(dirs: Folders, *, schema: SchemaLike = "") -> pd.DataFrame:
    """Return one row per shard.

    Columns: file, split, fold (−1 if unknown), count, bytes, compression, jpeg (every
    image is a JPEG), schema, folder, and labels (the same in every row).
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
    folders = _list_distinct(part for parent in parents for part in _find_parts(parent))
    with ThreadPoolExecutor(LOOKUPS) as threads:
        list_folder = partial(_list_folder, schema=schema)
        shards = pd.concat(threads.map(list_folder, folders), ignore_index=True)
        # The folder around parts may contain the plan that they should be of.
        check_one_dataset([*parents, *folders], advice=READ_APART)
        paths = [f"{folder}/labels.json" for folder in folders]
        labels = share_labels(folders, threads.map(storage.read_text, paths))
        measured = pd.DataFrame(threads.map(_inspect, shards.itertuples()))
        shards = _drop_empty(shards.assign(**measured))
        # One record of a folder and split is enough for its schema: look-ups may be
        # slow.
        first_shards = shards.drop_duplicates(["folder", "split", "schema"])
        list(threads.map(_check_schema, first_shards.itertuples()))
    return shards.assign(labels=pd.Series(labels, shards.index))


def _list_distinct(folders: Iterable[str]) -> list[str]:
    """Return the folders, each of them once even if it has two names."""
    return list({storage.real_path(folder): folder for folder in folders}.values())


def _drop_empty(shards: pd.DataFrame) -> pd.DataFrame:
    """Return the shards with records; print how many have none.

    A shard is empty if all its images were rejected.
    Raises: ValueError: all shards are empty.
    """
    empty = shards["file"][shards["count"] == 0].tolist()
    if empty:
        print(
            f"{len(empty)} of {len(shards)} shards contain no record, such as "
            f"'{empty[0]}'."
        )
    if len(empty) == len(shards):
        raise ValueError(
            f"None of the {len(empty)} shards contains a record. See rejects.csv "
            "beside them for the reasons."
        )
    return shards[shards["count"] > 0].reset_index(drop=True)


def _find_parts(folder: str) -> list[str]:
    """Return the folder, or those in it with a shards.csv if only they have one."""
    tables = storage.list_files("shards.csv", folder)
    tables = tables or storage.list_files("*/shards.csv", folder)
    return list(map(os.path.dirname, tables)) or [folder]


def list_parts(parts_dir: str, table: str = "shards.csv") -> list[str]:
    """Return the part folders that contain a table, in the order of their numbers."""
    if not storage.is_folder(parts_dir):
        return []
    tables = storage.list_files(f"part-*/{table}", parts_dir)
    # By length first, so that part-10 follows part-2.
    return sorted(map(os.path.dirname, tables), key=lambda part: (len(part), part))


def read_plan_id(folder: str) -> PlanId:
    """Return the id of the plan in a work or part folder, `PlanId()` if unknown."""
    path = f"{folder}/plan.json"
    plan_id = PlanId()
    with contextlib.suppress(ValueError, TypeError, KeyError):
        text = storage.read_text(path)
        values = storage.parse_json(text, path, COPY_AGAIN)
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
    for (folder, plan), (other, other_plan) in combinations(plans, 2):
        problem = plan.find_conflict(other_plan)
        if problem:
            raise ValueError(
                f"'{folder}' and '{other}' cannot be read as one dataset: {problem}. "
                f"Images could be in training and in validation. {advice}"
            )


def share_labels(folders: Sequence[str], texts: Iterable[str]) -> Labels:
    """Return the labels that the folders share.

    texts: of labels.json in each folder, "" if there is none.
    Raises: ValueError: two have different classes.
    """
    first = ""
    shared = Labels()
    for folder, text in zip(folders, texts, strict=True):
        if not text or _JSON_LIST.fullmatch(text):
            continue
        labels = Labels.parse(text, f"{folder}/labels.json", COPY_AGAIN)
        if labels.kind == "number":  # its bins are for the folds only
            labels = replace(labels, classes=())
        if not first:
            first = folder
            shared = labels
        elif labels.classes != shared.classes:
            raise ValueError(
                f"'{folder}' and '{first}' number their classes differently, so their "
                "labels do not mean the same. Read them apart."
            )
    return shared


def _list_folder(folder: str, schema: SchemaLike) -> pd.DataFrame:
    """Return the shards of a folder.

    −1, and "?" for the compression, are values that only the file reveals.
    """
    shards = _read_listing(folder)
    if shards.empty:
        shards = pd.DataFrame(list_shard_files(folder), columns=SHARD_COLUMNS)
    if shards.empty:
        raise FileNotFoundError(
            f"No shards in '{folder}': no shards.csv, in it or one folder down, and no "
            "file named *.tfrec*. Set TFREC_DIRS to part folders."
        )
    record_schema = choose_schema(folder, shards["file"][0], schema)
    return shards.assign(
        folder=folder,
        schema=shards["split"].map(record_schema.for_split),
        **_read_format(folder),
    )


def _read_format(folder: str) -> dict[str, str | bool]:
    """Return compression and jpeg, by the plan.json of a folder.

    Raises: ValueError: plan.json is something else.
    """
    path = f"{folder}/plan.json"
    text = storage.read_text(path)
    if not text:
        return {"compression": "?", "jpeg": False}
    plan = storage.parse_json(text, path, COPY_AGAIN)
    # Version 0.1 had the settings at the top level.
    settings = plan.get("settings", plan)
    image = plan.get("image", {})
    try:
        # If nothing is resized, originals of any format may keep their bytes.
        is_resized = image.get("resize", "none") != "none"
        is_jpeg = image.get("format") == "JPEG" and is_resized
        return {"compression": settings.get("compression", ""), "jpeg": is_jpeg}
    except AttributeError:
        raise ValueError(
            f"'{path}' is not a plan: settings and image should be mappings. "
            f"{COPY_AGAIN}"
        ) from None


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
    folder: str, files: Sequence[str], parts: Iterable[str], *, with_missing: bool
) -> pd.DataFrame:
    """Return file, split and part of each shard in a folder, sorted by file.

    files: the shards that exist. parts: the folders with a shards.csv; a shard that
    none of them lists has the split in its name, and the part "".
    with_missing: add the shards that are listed, but whose file is missing.
    Raises: ValueError: parts of different datasets.
    """
    tables = [
        _read_listing(part, ["file", "split"]).assign(part=part) for part in parts
    ]
    splits = [parse_shard_name(os.path.relpath(file, folder))[0] for file in files]
    tables.append(pd.DataFrame({"file": files, "split": splits, "part": ""}, dtype=str))
    shards = pd.concat(tables).drop_duplicates("file")
    if not with_missing:
        shards = shards[shards["file"].isin(files)]
    check_one_dataset(
        filter(None, shards["part"]),
        advice="Set INPUT_DIR to one of them, MORE_INPUTS to the other.",
    )
    return shards.sort_values("file", ignore_index=True)


def _read_listing(part_dir: str, columns: list[str] = SHARD_COLUMNS) -> pd.DataFrame:
    """Return columns of shards.csv, with the path of each shard as its file."""
    table = read_part_table(part_dir, columns=columns)
    return table.assign(file=[storage.join(part_dir, file) for file in table["file"]])


def choose_schema(folder: str, file: str, schema: SchemaLike) -> RecordSchema:
    """Return `schema` as a RecordSchema, or without it the folder's schema.json.

    file: a shard, for the error. Raises: ValueError: there is no schema.
    """
    if schema:
        return _name_masks(load_schema(schema))
    path = f"{folder}/schema.json"
    text = storage.read_text(path)
    if text:
        return RecordSchema.parse(text, path, COPY_AGAIN)
    raise ValueError(
        f"'{folder}' has no schema.json, so the features of '{file}' are unknown. "
        'Set a `schema`: a preset such as "cassava", or a mapping of its features.'
    )


def _name_masks(schema: RecordSchema) -> RecordSchema:
    """Return the schema with its masks: its text columns, if it has no label.

    A preset only has the names of its table's columns.
    """
    if schema.kind != "single" or schema.label_keys:
        return schema
    texts = [field for field in schema.fields if field.type == "bytes"]
    columns = [source for field in texts for source in field.sources]
    masks = tuple(column for column in columns if column not in SOURCES)
    return replace(schema, kind="masks", label_columns=masks) if masks else schema


def _inspect(row: Any) -> dict[str, int | str]:
    """Return bytes, compression and count of a shard by quick look-ups.

    row: of `find_shards`. Raises: ValueError: they differ from the row's.
    """
    size = storage.size_and_time(row.file)[0]
    if row.bytes not in (-1, size):
        raise ValueError(
            f"'{row.file}' has {size:,} bytes, but {row.bytes:,} in shards.csv: it "
            "is truncated, or of another run. Copy it again, or write the part again."
        )
    compression = row.compression
    if compression == "?":
        compression = "GZIP" if is_gzip(row.file) else ""
    count = row.count
    # The size is enough for a listed shard. Frames on disk are quick to count.
    is_slow = row.bytes >= 0 or compression or storage.is_remote(row.file)
    if count == -1 or not is_slow:
        count = count_records(row.file, compression)
    if row.count not in (-1, count):
        raise ValueError(
            f"'{row.file}' contains {count:,} records, but {row.count:,} by its name. "
            "It is truncated or misnamed. Copy it again, or give it another name."
        )
    return {"bytes": size, "compression": compression, "count": count}


def _check_schema(row: Any) -> None:
    """Raise a ValueError if a shard's first record lacks a feature of the schema.

    row: of `find_shards`.
    """
    record = _read_first_record(row)
    found = "nothing"
    try:
        features = parse_record(record)
        types = [
            f"{name}: {type_of_feature(features[name])}" for name in sorted(features)
        ]
        found = ", ".join(types) or found
        read_values(features, row.schema.fields)
    except ValueError:
        wanted = ", ".join(f"{field.name}: {field.type}" for field in row.schema.fields)
        raise ValueError(
            f"'{row.file}' does not match its schema: its records have {found}; the "
            f"schema wants {wanted}. Set the `schema` of find_shards, fix schema.json, "
            "or copy the shard again."
        ) from None


def _read_first_record(row: Any) -> bytes:
    """Return the first record of a shard, b"" if it cannot be read.

    Checksums are not compared: a machine that only trains lacks google_crc32c.
    """
    if row.compression:
        with contextlib.suppress(tf.errors.OpError):
            data = tf.data.TFRecordDataset(row.file, row.compression)
            return next(data.as_numpy_iterator(), b"")
        return b""
    (head,) = storage.read_pieces(row.file, 0, [8])
    length = min(int.from_bytes(head, "little"), row.bytes)
    (record,) = storage.read_pieces(row.file, 12, [length])
    return record


def count_records(file: str, compression: str) -> int:
    """Return the number of records in a shard; on disk only its lengths are read.

    Raises: ValueError: it is truncated, or is not a TFRecord file.
    """
    if storage.is_remote(file) or compression:
        data = tf.data.TFRecordDataset(file, compression, buffer_size=16 << 20)
        try:
            return int(data.reduce(np.int64(0), lambda count, _: count + 1))
        except tf.errors.DataLossError as error:
            raise ValueError(f"'{file}' {NOT_RECORDS}: {error.message}.") from None
    count = 0
    end = 0
    size = os.path.getsize(file)
    with open(file, "rb", buffering=0) as shard:
        while end < size:
            shard.seek(end)
            end += FRAME_BYTES + int.from_bytes(shard.read(8), "little")
            count += 1
    if end > size:
        raise ValueError(f"'{file}' {NOT_RECORDS}.")
    return count


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text file, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_sums(part_dir: str) -> dict[str, str]:
    """Return the SHA-256 of each file in SHA256SUMS by name, {} if it is damaged."""
    text = storage.read_text(f"{part_dir}/{SUMS}")
    lines = re.findall(r"^([0-9a-f]{64})  (.+)\n", text, re.MULTILINE)
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
        except (FileNotFoundError, IsADirectoryError, storage.NotAFileError):
            wrong[name] = "the file is missing"
    return wrong
