"""The shards that lie in folders, and what their tables, names and frames say of them."""

import io
import json
import os
import re
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.paths import find_input, parse_name
from kaggle_tfr.schema import SOURCES, Labels, RecordSchema, feature_dict, load_schema

SHARD_COLUMNS = ["file", "split", "fold", "count", "bytes"]


SHARD_COLUMNS += ["compression", "jpeg", "schema", "folder"]


_ENDING = re.compile(r"\.tfrec(ord)?s?(\.gz|-\d+-of-\d+)?$")


# Kaggle's habit: "Id_df03-1427.tfrec" holds 1427 records. Other endings end in other numbers.
_COUNT = re.compile(r"\d-(\d+)\.tfrec$")


_SPLIT = re.compile(r"(?:^|[/_.-])(train|validation|valid|val|test)(?=[/_.-])")


_LONG_SPLIT = {"valid": "validation", "val": "validation"}


def list_shard_files(
    dirs: str | Sequence[str], *, pattern="*.tfrec*", shard_name=""
) -> pd.DataFrame:
    """One row a shard: file, split, fold, count, bytes, compression, jpeg, schema, folder.

    dirs: part folders, or folders of them; local, `gs://` or Kaggle slugs, in any mix.
    pattern, shard_name: for files of others, which have no shards.csv: their glob, and the
        template of their names, such as "Id_df{i:02d}-{count}.tfrec".
    count, bytes: −1 where neither table nor name tells. fold: −1 outside cross-validation.
    compression: "", "GZIP", or "?" where no plan.json tells.
    jpeg: whether the plan has turned every picture into a JPEG.
    schema: the text of schema.json, "" without one. labels: of labels.json, empty without one.
    Raises: FileNotFoundError for a folder without shards; ValueError for a folder named twice, or
        for parts whose classes differ.
    """
    dirs = [dirs] if isinstance(dirs, str | os.PathLike) else list(dirs)
    folders = [part for folder in dirs for part in find_parts(find_input(folder))]
    if not folders:
        raise ValueError("There is no folder to read. Set TFREC_DIRS to the part folders.")
    rows = [row for folder in folders for row in _list_folder(folder, pattern, shard_name)]
    shards = pd.DataFrame(rows, columns=SHARD_COLUMNS)
    twice = shards.loc[shards["file"].duplicated(), "file"]
    if len(twice):
        raise ValueError(
            f"{len(twice)} shards are listed twice, the first is '{twice.iloc[0]}'. "
            "Name every folder once in TFREC_DIRS, and not both a part and the folder around it."
        )
    shards["labels"] = [_read_labels(folders)] * len(shards)
    return shards


def find_parts(folder: str) -> list[str]:
    """The part folders in a folder: itself, or those below it with a shards.csv, or itself."""
    if storage.exists(storage.join(folder, "shards.csv")):
        return [folder]
    tables = storage.list_files("*/shards.csv", folder)
    return [table.rpartition("/")[0] for table in tables] or [folder]


def count_frames(file: str) -> int:
    """The records in an uncompressed local shard, by stepping over its frames.

    Raises: ValueError naming the file and the record where it ends too early.
    """
    count, offset, size = 0, 0, os.path.getsize(file)
    with open(file, "rb", buffering=0) as shard:
        while offset < size:
            head = shard.read(8)
            # A frame: length (8 bytes), its checksum (4), data, the data's checksum (4).
            after = offset + 16 + (struct.unpack("<Q", head)[0] if len(head) == 8 else size)
            if after > size:
                raise ValueError(
                    f"'{file}' is cut or no TFRecord file: record {count} at byte {offset:,} "
                    f"should end at byte {after:,}, the file ends at {size:,}. "
                    "Copy or write it again."
                )
            offset = shard.seek(after)
            count += 1
    return count


def _list_folder(folder: str, pattern: str, shard_name: str) -> list[tuple]:
    schema, plan = _read_text(folder, "schema.json"), _read_plan(folder)
    text = _read_text(folder, "shards.csv")
    if text:
        table = pd.read_csv(io.StringIO(text), dtype={"file": str, "split": str})
        if table.empty:
            raise FileNotFoundError(f"'{folder}/shards.csv' lists no shard. Write the part again.")
        columns = [table[name] for name in ("file", "split", "fold", "count", "bytes")]
        return [
            (storage.join(folder, file), split, fold, count, size, *plan, schema, folder)
            for file, split, fold, count, size in zip(*columns, strict=True)
        ]
    depths = [pattern, f"*/{pattern}"]
    files = [file for depth in depths for file in storage.list_files(depth, folder)]
    files = [file for file in files if _ENDING.search(file) or "*.tfrec" not in pattern]
    if not files:
        raise FileNotFoundError(
            f"No shards in '{folder}': no shards.csv, there or one folder down, and no file named "
            f"{pattern}. Set TFREC_DIRS to part folders, or give the `pattern` of the files."
        )
    found = []
    for file in files:
        split, fold, count = _read_name(file[len(folder) :].strip("/"), shard_name)
        found.append((file, split, fold, count, -1, *plan, schema, folder))
    return found


def _read_name(name: str, template: str) -> tuple[str, int, int]:
    """(split, fold, count) as the name tells them, ("train", −1, −1) where it does not."""
    if template:
        fields = parse_name(template, name)
        return fields.get("split", "train"), fields.get("fold", -1), fields.get("count", -1)
    splits, count = _SPLIT.findall(name), _COUNT.search(name)
    split = splits[-1] if splits else "train"
    return _LONG_SPLIT.get(split, split), -1, int(count[1]) if count else -1


def _read_text(folder: str, name: str) -> str:
    path = storage.join(folder, name)
    return storage.read_bytes(path).decode() if storage.exists(path) else ""


def _read_plan(folder: str) -> tuple[str, bool]:
    """(compression, jpeg) of a folder's plan.json."""
    text = _read_text(folder, "plan.json")
    if not text:
        return "?", False
    plan = json.loads(text)
    image = plan.get("image", {})
    # With nothing resized, originals of any kind may have kept their bytes.
    jpeg = image.get("format") == "JPEG" and image.get("resize", "none") != "none"
    return plan.get("settings", plan).get("compression", ""), jpeg


def _read_labels(folders: Sequence[str]) -> Labels:
    found = {folder: _read_text(folder, "labels.json") for folder in folders}
    named = {f: Labels.from_dict(json.loads(text)) for f, text in found.items() if text}
    first = next(iter(named), "")
    for folder, labels in named.items():
        if labels.classes != named[first].classes:
            raise ValueError(
                f"'{folder}' and '{first}' number their classes differently: {labels.classes[:5]}… and "
                f"{named[first].classes[:5]}…, so their labels do not mean the same. Read them apart."
            )
    return named.get(first, Labels())


MANY = 16  # questions to a bucket at a time


def find_shards(dirs, *, schema="", pattern="*.tfrec*", shard_name="") -> pd.DataFrame:
    """One row a shard: file, split, fold, count, bytes, compression, jpeg, schema, folder.

    dirs: part folders, or folders of them; local, `gs://` or Kaggle slugs, in any mix.
    schema: a preset's name, a mapping or a `RecordSchema`, for files without a schema.json.
    pattern, shard_name: for files without a shards.csv: their glob, and the template of their
        names, such as "Id_df{i:02d}-{count}.tfrec". A count that nothing tells is counted.
    schema, labels (columns): a `RecordSchema`, and the `Labels` of labels.json, which all share.
    Raises: FileNotFoundError, ValueError: each names the folder or file, and what it lacks.
    """
    shards = list_shard_files(dirs, pattern=pattern, shard_name=shard_name)
    shards["schema"] = [choose_schema(row, schema) for row in shards.itertuples()]
    # One look in each folder is enough for its schema, where every look is a slow request.
    shards["first"] = ~shards["folder"].duplicated()
    looks = _for_each(look_into, list(shards.itertuples()))
    shards[["bytes", "compression", "count"]] = looks
    return shards.drop(columns="first")


def choose_schema(row, given="") -> RecordSchema:
    """The schema given, else the one in the shard's folder.

    Raises: ValueError when there is neither.
    """
    if not given and not row.schema:
        raise ValueError(
            f"'{row.folder}' has no schema.json, so nothing says how to read '{row.file}'. "
            'Give find_shards a `schema`: a preset such as "cassava", or a mapping of its features.'
        )
    if not given:
        return RecordSchema.from_json(row.schema)
    schema = load_schema(given)
    if schema.kind == "single" and not schema.label_keys:
        # A preset knows its table's columns only by name: text columns in place of a label are
        # the run-length codes of masks.
        codes = [f for f in schema.fields if f.type == "bytes" and f.source not in SOURCES]
        columns = tuple(field.source for field in codes)
        return replace(schema, kind="masks", label_columns=columns) if codes else schema
    return schema


def look_into(row) -> tuple[int, str, int]:
    """(bytes, compression, count) of a shard, as far as cheap questions can tell.

    Raises: FileNotFoundError, ValueError naming the file: it is gone, cut, of another schema, or
        holds another number of records than its name says.
    """
    size, remote = storage.size(row.file), storage.is_remote(row.file)
    if row.bytes not in (-1, size):
        raise ValueError(
            f"'{row.file}' has {size:,} bytes, its shards.csv says {row.bytes:,}: it is cut, or of "
            "another run. Copy it again, or write the part again."
        )
    compression = sniff_compression(row.file) if row.compression == "?" else row.compression
    if row.first or (row.bytes < 0 and not remote):
        check_schema(row.file, compression, row.schema)
    # Its size vouches for a shard with a row in shards.csv. Frames are quick to count on a disk.
    if row.count >= 0 and (row.bytes >= 0 or remote or compression):
        return size, compression, row.count
    count = count_records(row.file, compression)
    if row.count not in (-1, count):
        raise ValueError(
            f"'{row.file}' holds {count:,} records, its name says {row.count:,}: it is cut or "
            "misnamed. Copy it again, or give find_shards a `shard_name` without {count}."
        )
    return size, compression, count


def count_records(file: str, compression: str = "") -> int:
    """The records in a shard, by reading as little of it as will do.

    Raises: ValueError naming the file, when it is cut or no TFRecord file.
    """
    if not storage.is_remote(file) and not compression:
        return count_frames(file)
    data = tf.data.TFRecordDataset(file, compression, buffer_size=16 << 20)
    try:
        return int(data.reduce(np.int64(0), lambda count, _: count + 1))
    except tf.errors.DataLossError as error:
        raise ValueError(
            f"'{file}' is cut or no TFRecord file: {error.message}. Copy or write it again."
        ) from None


def check_schema(file: str, compression: str, schema: RecordSchema) -> None:
    """None, when the first record of a shard has what the schema reads.

    Raises: ValueError naming the file, what its records have and what the schema wants.
    """
    try:
        first = list(tf.data.TFRecordDataset(file, compression).take(1).as_numpy_iterator())
    except tf.errors.DataLossError as error:
        raise ValueError(
            f"'{file}' is cut or no TFRecord file: {error.message}. Copy or write it again."
        ) from None
    if not first:
        raise ValueError(f"'{file}' holds no record. Take it out, or write it again.")
    try:
        tf.io.parse_single_example(first[0], feature_dict(schema))
    except tf.errors.OpError:
        features = tf.train.Example.FromString(first[0]).features.feature
        has = {name: value.WhichOneof("kind") for name, value in sorted(features.items())}
        raise ValueError(
            f"'{file}' is not of the schema it is read with: its records have {_words(has)}; "
            f"the schema wants {_words(feature_dict(schema))}. Set the `schema` of find_shards, or "
            "mend schema.json."
        ) from None


def sniff_compression(file: str) -> str:
    """'GZIP' for a file that begins as gzip does, else ''."""
    with tf.io.gfile.GFile(file, "rb") as shard:
        head = shard.read(10)
    # As the head of a plain shard the same bytes would be a record of 559,903 bytes with a
    # checksum to match, one in a million of those.
    return "GZIP" if head[:4] == b"\x1f\x8b\x08\x00" and head[8:9] in b"\x00\x02\x04" else ""


def _words(kinds) -> str:
    names = {"bytes_list": "bytes", "int64_list": "int64", "float_list": "float", "string": "bytes"}
    said = {key: getattr(kind, "dtype", kind) for key, kind in kinds.items()}
    said = {key: getattr(kind, "name", kind) for key, kind in said.items()}
    return ", ".join(f"{key}: {names.get(kind, kind)}" for key, kind in said.items()) or "nothing"


def _for_each(function, items: list) -> list:
    """Every function(item), asked many at a time: tf.data waits for slow answers side by side."""
    answers = [None] * len(items)

    def ask(index):
        try:
            answers[index] = function(items[index])
        except Exception as error:  # noqa: BLE001  # raised below, out of TensorFlow's hands
            answers[index] = error
        return index

    asked = tf.data.Dataset.range(len(items)).map(
        lambda index: tf.numpy_function(ask, [index], tf.int64), num_parallel_calls=MANY
    )
    for index in asked:
        if isinstance(answers[int(index)], Exception):
            raise answers[int(index)]
    return answers


FRAME_BYTES = 16  # length (8), its CRC (4), then the data, then the data's CRC (4)


def read_frames(
    path: str, compression: str, lengths: Mapping[int, int], scratch: str
) -> Iterator[tuple[int, bytes | None, str]]:
    """(offset, data, "") of each record, or (offset, None, problem), going on behind a fault.

    lengths: of the frames by their offset, from the index, to find the next one by.
    """
    offset, source = 0, path
    while True:
        begun = offset
        try:
            for data in tf.data.TFRecordDataset(source, compression).as_numpy_iterator():
                yield offset, data, ""
                offset += len(data) + FRAME_BYTES
        except tf.errors.OpError as error:
            yield offset, None, f"cannot be read: {_explain_read_error(error)}"
        else:
            return
        length = lengths.get(offset) or _read_length(path, offset)
        lost = offset == begun > 0 and not lengths
        if compression or not length or lost:
            return
        offset += length
        source = os.path.join(scratch, "rest")
        with open(path, "rb") as file, open(source, "wb") as rest:
            file.seek(offset)
            shutil.copyfileobj(file, rest)


def _read_length(path: str, offset: int) -> int:
    """Bytes of the frame at an offset as its head says; 0 when that cannot be."""
    with open(path, "rb") as file:
        file.seek(offset)
        length = int.from_bytes(file.read(8), "little") + FRAME_BYTES
    return length if offset + length <= os.path.getsize(path) else 0


def _explain_read_error(error: tf.errors.OpError) -> str:
    text = error.message.lower()
    if "truncated" in text:
        return "the file ends in the middle of it"
    return "its checksum does not fit" if "corrupted" in text else error.message.split("\n")[0]
