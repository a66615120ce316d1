"""The contents of part folders: shards, tables, schemas, labels and checksums."""

import contextlib
import gzip
import hashlib
import io
import os
import re
import zlib
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
from kaggle_tfr.records import FRAME_BYTES, Features, is_gzip, parse_record
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
from kaggle_tfr.session import prepare
from kaggle_tfr.storage import AnyPath

# The checksums of a finished part, for `sha256sum -c`: of all its files but Kaggle's
# metadata.
SUMS = "SHA256SUMS"
MAX_RECORD_BYTES = 2 << 30  # 2 GiB, of any message of protobuf
LOOKUPS = 16  # requests to a bucket at a time
# The columns of shards.csv that readers need; the writer adds more.
SHARD_COLUMNS = ["file", "split", "fold", "count", "bytes"]
INTEGERS = {"fold", "count", "bytes", "part", "shard", "refused"}
READ_APART = (
    "If one is an older version or a copy, remove it, or run 04_write with OVERWRITE = "
    "True. "
    "Read two different datasets apart, and join their batches by tf.data's "
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
    """Which plan wrote a folder, and which parts the plan has.

    dataset_id: the fingerprint of the first plan of the dataset. fingerprint: "" if the
    plan is unknown. first_part: from 1. n_parts: 0 if unknown.
    """

    dataset_id: str = ""
    fingerprint: str = ""
    first_part: int = 1
    n_parts: int = 0

    @property
    def part_numbers(self) -> range:
        """The numbers of the plan's parts."""
        return range(self.first_part, self.first_part + self.n_parts)

    def find_conflict(self, other: "PlanId") -> str:
        """Return why parts of both plans cannot be of one dataset, "" if they can."""
        if self.dataset_id != other.dataset_id:
            return "they are of different datasets"
        last_start = max(self.first_part, other.first_part)
        first_end = min(self.part_numbers.stop, other.part_numbers.stop)
        if self.fingerprint != other.fingerprint and last_start < first_end:
            return (
                f"both of their plans have a part {last_start}, because one is older, "
                "or because both continue the same parts"
            )
        return ""


def find_shards(dirs: Folders, *, schema: SchemaLike = "") -> pd.DataFrame:
    """Return one row per shard.

    Columns: file, split, fold (−1 if unknown), count, bytes, compression, jpeg (every
    image is a JPEG), schema, folder, and labels (the same in every row).
    dirs: part folders, or folders of them; local, `gs://` or Kaggle slugs, in any mix.
    schema: a preset's name, a mapping or a `RecordSchema`, for files without a
    schema.json.
    Raises: FileNotFoundError, ValueError: each names the folder or file, and what is
    wrong with it, such as parts of different datasets.
    """
    prepare()
    if isinstance(dirs, str | os.PathLike):
        dirs = [dirs]
    parents = [find_input(folder) for folder in dirs]
    folders = [part for parent in parents for part in _find_parts(parent)]
    if not folders:
        raise ValueError(
            "There is no folder to read. Set TFREC_DIRS to the part folders."
        )
    with ThreadPoolExecutor(LOOKUPS) as threads:
        list_folder = partial(_list_folder, schema=schema)
        shards = pd.concat(threads.map(list_folder, folders), ignore_index=True)
        _check_repeated(shards["file"])
        # The folder around parts may contain the plan that they should be of.
        check_one_dataset([*parents, *folders], advice=READ_APART)
        paths = [f"{folder}/labels.json" for folder in folders]
        labels = share_labels(folders, threads.map(storage.read_text, paths))
        shards = _check_files(shards, threads)
    return shards.assign(labels=pd.Series([labels] * len(shards), dtype=object))


def _check_files(shards: pd.DataFrame, threads: ThreadPoolExecutor) -> pd.DataFrame:
    """Return the shards with records, with the values that only the files reveal."""
    measured = pd.DataFrame(threads.map(_inspect, shards.itertuples()))
    shards = _drop_empty(shards.assign(**measured))
    # One record of a folder and split is enough for its schema: look-ups may be slow.
    first_shards = shards.drop_duplicates(["folder", "split", "schema"])
    list(threads.map(_check_schema, first_shards.itertuples()))
    return shards


def _check_repeated(files: pd.Series) -> None:
    """Raise a ValueError that names a shard which is listed twice."""
    repeated = files[files.duplicated()].tolist()
    if repeated:
        raise ValueError(
            f"{len(repeated)} shards are listed twice, the first is '{repeated[0]}'. "
            "Name every folder once in TFREC_DIRS, not both a part and the folder "
            "around it."
        )


def _drop_empty(shards: pd.DataFrame) -> pd.DataFrame:
    """Return the shards with records; print how many have none.

    A shard is empty if all its images were rejected.
    Raises: ValueError: all shards are empty.
    """
    has_records = shards["count"] > 0
    empty = shards["file"][~has_records].tolist()
    if not has_records.any():
        raise ValueError(
            f"None of the {len(empty)} shards contains a record, such as '{empty[0]}'. "
            "See rejects.csv beside them for the reasons."
        )
    if empty:
        print(
            f"{len(empty)} of {len(shards)} shards contain no record, such as "
            f"'{empty[0]}'."
        )
    return shards[has_records].reset_index(drop=True)


def _find_parts(folder: str) -> list[str]:
    """Return the folder, or those in it with a shards.csv if only they have one."""
    if storage.exists(storage.join(folder, "shards.csv")):
        return [folder]
    tables = storage.list_files("*/shards.csv", folder)
    return list(map(os.path.dirname, tables)) or [folder]


def list_parts(parts_dir: str, table: str = "shards.csv") -> list[str]:
    """Return the part folders that contain a table, in the order of their numbers."""
    if not storage.is_folder(parts_dir):
        return []
    parts = [
        path.removesuffix(f"/{table}")
        for path in storage.list_files(f"part-*/{table}", parts_dir)
    ]
    # By length first, so that part-10 follows part-2.
    return sorted(parts, key=lambda part: (len(part), part))


def read_plan_id(folder: str) -> PlanId:
    """Return the id of the plan in a work or part folder, `PlanId()` if unknown."""
    path = f"{folder}/plan.json"
    with contextlib.suppress(ValueError, TypeError, KeyError):
        text = storage.read_text(path)
        return parse_plan_id(storage.parse_json(text, path, COPY_AGAIN))
    return PlanId()


def parse_plan_id(values: Mapping[str, Any]) -> PlanId:
    """Return the id of a plan from the values of its plan.json.

    Raises: KeyError, TypeError: a value is missing, or is of another type.
    """
    if not values.get("fingerprint"):  # not a plan of 03_plan
        return PlanId()
    added = {"dataset_id": values["fingerprint"]}
    # Version 0.2 listed the plans that the plan continues, the oldest first.
    earlier = values.get("earlier")
    if earlier:
        added["dataset_id"] = earlier[0]["fingerprint"]
        added["first_part"] = earlier[-1]["first_part"] + earlier[-1]["n_parts"]
    return PlanId.from_dict({**added, **values})


def list_own_parts(parts_dir: str, work_dir: str) -> list[str]:
    """Return the finished parts that the plan of a work folder wrote, without earlier.

    A part belongs to them, too, if its plan or that of the work folder is unknown.
    """
    own = read_plan_id(work_dir).fingerprint
    return [
        part
        for part in list_parts(parts_dir)
        if not own or read_plan_id(part).fingerprint in ("", own)
    ]


def check_one_dataset(folders: Iterable[str], *, advice: str) -> None:
    """Raise a ValueError that names two folders which cannot be read together.

    Their plans must be of one dataset and have different parts, and no part may be
    there twice. Folders whose plan is unknown are not compared.
    folders: with parts or plans. advice: what to do with two of them.
    """
    names = list(dict.fromkeys(folders))
    with ThreadPoolExecutor(LOOKUPS) as threads:
        plans = threads.map(read_plan_id, names)
        parts = threads.map(_read_part_number, names)
        rows = [
            row for row in zip(names, plans, parts, strict=True) if row[1].fingerprint
        ]

    for (folder, plan, part), (other, other_plan, other_part) in combinations(rows, 2):
        problem = plan.find_conflict(other_plan)
        if part and part == other_part:
            problem = problem or f"both contain part {part}"
        if problem:
            raise ValueError(
                f"'{folder}' and '{other}' cannot be read as one dataset: {problem}. "
                f"Images could be in training and in validation. {advice}"
            )


def _read_part_number(folder: str) -> int:
    """Return the number of the part in a folder by its shards.csv, 0 if unknown."""
    with contextlib.suppress(ValueError):  # also of the maximum of an empty table
        return int(read_part_table(folder, columns=["file", "part"])["part"].max())
    return 0


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
    schemas = [record_schema.for_split(split) for split in shards["split"]]
    return shards.assign(
        folder=folder,
        schema=pd.Series(schemas, dtype=object),
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
    is_plan = isinstance(settings, dict) and isinstance(image, dict)
    compression = settings.get("compression", "") if is_plan else None
    if compression not in ("", "GZIP"):
        raise ValueError(
            f"'{path}' is not a plan: its settings or its image are not mappings, or "
            f"its compression is neither '' nor 'GZIP'. {COPY_AGAIN}"
        )
    # If nothing is resized, originals of any format may keep their bytes.
    is_resized = image.get("resize", "none") != "none"
    is_jpeg = image.get("format") == "JPEG" and is_resized
    return {"compression": compression, "jpeg": is_jpeg}


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
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"'{path}' is not a list of shards: {error}. {COPY_AGAIN}"
        ) from None
    if (table["file"] == "").any():
        raise ValueError(f"'{path}' has a row without a file. {COPY_AGAIN}")
    return table[columns]


def list_shard_files(folder: str) -> list[tuple]:
    """Return (file, split, −1, count, −1) of the files with names of shards.

    The split is "train" and the count −1 if the name does not contain them.
    """
    rows = []
    for pattern in ("*.tfrec*", "*/*.tfrec*"):
        for file in filter(is_shard_name, storage.list_files(pattern, folder)):
            split, count = parse_shard_name(file.removeprefix(folder).strip("/"))
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
    listed = [
        _read_listing(part, ["file", "split"]).assign(part=part) for part in parts
    ]
    names = [file.removeprefix(folder).strip("/") for file in files]
    splits = [parse_shard_name(name)[0] for name in names]
    existing = pd.DataFrame({"file": files, "split": splits, "part": ""}, dtype=str)
    shards = pd.concat([*listed, existing]).drop_duplicates("file")
    if not with_missing:
        shards = shards[shards["file"].isin(files)]
    advice = "Set INPUT_DIR to one of them, MORE_INPUTS to the other."
    check_one_dataset(filter(None, shards["part"]), advice=advice)
    return shards.sort_values("file", ignore_index=True)


def _read_listing(part_dir: str, columns: list[str] = SHARD_COLUMNS) -> pd.DataFrame:
    """Return columns of shards.csv, with the path of each shard as its file."""
    table = read_part_table(part_dir, columns=columns)
    paths = [storage.join(part_dir, file) for file in table["file"]]
    return table.assign(file=paths)


def choose_schema(folder: str, file: str = "", schema: SchemaLike = "") -> RecordSchema:
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
    count = _find_count(row, compression)
    return {"bytes": size, "compression": compression, "count": count}


def _find_count(row: Any, compression: str) -> int:
    """Return the number of records in a shard that may be in shards.csv or its name.

    row: of `find_shards`. Raises: ValueError: the name has another number.
    """
    # The size is enough for a listed shard. Frames on disk are quick to count.
    is_listed = row.bytes >= 0
    is_slow = is_listed or compression or storage.is_remote(row.file)
    if is_slow and row.count >= 0:
        return row.count
    count = count_records(row.file, compression)
    if row.count not in (-1, count):
        raise ValueError(
            f"'{row.file}' contains {count:,} records, but {row.count:,} by its name. "
            "It is truncated or misnamed. Copy it again, or give it another name."
        )
    return count


def _check_schema(row: Any) -> None:
    """Raise a ValueError if a shard's first record lacks a feature of the schema.

    row: of `find_shards`.
    """
    record = _read_first_record(row.file, row.compression)
    found = "nothing"
    try:
        features = parse_record(record)
        found = _describe_features(features) or found
        read_values(features, row.schema.fields)
    except ValueError:
        wanted = ", ".join(f"{field.name}: {field.type}" for field in row.schema.fields)
        raise ValueError(
            f"'{row.file}' does not match its schema: its records have {found}; the "
            f"schema wants {wanted}. Set the `schema` of find_shards, fix schema.json, "
            "or copy the shard again."
        ) from None


def _read_first_record(file: str, compression: str) -> bytes:
    """Return the first record of a shard, b"" if it cannot be read.

    Checksums are not compared: a machine that only trains lacks google_crc32c.
    """
    if storage.is_remote(file):
        return _read_first_by_tensorflow(file, compression)
    open_shard = gzip.open if compression else open
    with (
        contextlib.suppress(EOFError, gzip.BadGzipFile, zlib.error),
        open_shard(file, "rb") as shard,
    ):
        length = int.from_bytes(shard.read(8), "little")
        shard.seek(12)
        if length < MAX_RECORD_BYTES:
            return shard.read(length)
    return b""


def _read_first_by_tensorflow(file: str, compression: str) -> bytes:
    from kaggle_tfr.session import tf

    with contextlib.suppress(tf.errors.OpError):
        data = tf.data.TFRecordDataset(file, compression)
        return next(data.as_numpy_iterator(), b"")
    return b""


def _describe_features(features: Features) -> str:
    """Return the name and the type of each feature of a record."""
    types = [
        f"{name}: {type_of_feature(feature)}"
        for name, feature in sorted(features.items())
    ]
    return ", ".join(types)


def count_records(file: str, compression: str = "") -> int:
    """Return the number of records in a shard; on disk only its lengths are read.

    Raises: ValueError: it is truncated, or is not a TFRecord file.
    """
    if storage.is_remote(file) or compression:
        return _count_by_tensorflow(file, compression)
    return _count_by_lengths(file)


def _count_by_lengths(file: str) -> int:
    """Return the number of records in a shard on disk, whose lengths are read."""
    count = 0
    end = 0
    size = os.path.getsize(file)
    with open(file, "rb", buffering=0) as shard:
        while end < size:
            shard.seek(end)
            end += FRAME_BYTES + int.from_bytes(shard.read(8), "little")
            count += 1
    if end > size:
        raise ValueError(
            f"'{file}' {NOT_RECORDS}: record {count - 1} should end at byte {end:,}, "
            f"the file ends at {size:,}."
        )
    return count


def _count_by_tensorflow(file: str, compression: str) -> int:
    """Return the number of records in a shard, all of which are read."""
    from kaggle_tfr.session import tf

    data = tf.data.TFRecordDataset(file, compression, buffer_size=16 << 20)
    try:
        return int(data.reduce(np.int64(0), lambda count, _: count + 1))
    except tf.errors.DataLossError as error:
        raise ValueError(f"'{file}' {NOT_RECORDS}: {error.message}.") from None


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text file, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_sums(part_dir: str) -> dict[str, str]:
    """Return the SHA-256 of each file in SHA256SUMS by name, {} if it is damaged."""
    text = storage.read_text(storage.join(part_dir, SUMS))
    pairs = re.findall(r"^([0-9a-f]{64})  (.+)\n", text, re.MULTILINE)
    sums = {name: sha256 for sha256, name in pairs}
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
        except FileNotFoundError:
            wrong[name] = "the file is missing"
        except (IsADirectoryError, storage.NotAFileError):
            wrong[name] = "it is a folder, a pipe or a device, not a file"
    return wrong
