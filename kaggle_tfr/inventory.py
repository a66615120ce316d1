"""Shards to read, looked at first: a fault is named by file, not met in the middle of an epoch."""

from dataclasses import replace

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.fields import SOURCES
from kaggle_tfr.schema import RecordSchema, feature_dict, load_schema
from kaggle_tfr.shards import count_frames, list_shards

MANY = 16  # questions to a bucket at a time
HELD_OUT = ("validation", "val")  # our name of the split, and that of ImageNet's folder


def find_shards(dirs, *, schema="", pattern="*.tfrec*", shard_name="") -> pd.DataFrame:
    """One row a shard: file, split, fold, count, bytes, compression, jpeg, schema, folder.

    dirs: part folders, or folders of them; local, `gs://` or Kaggle slugs, in any mix.
    schema: a preset's name, a mapping or a `RecordSchema`, for files without a schema.json.
    pattern, shard_name: for files without a shards.csv: their glob, and the template of their
        names, such as "Id_df{i:02d}-{count}.tfrec". A count that nothing tells is counted.
    schema (column): a `RecordSchema`. `attrs["classes"]`: those of labels.json, [] without one.
    Raises: FileNotFoundError, ValueError: each names the folder or file, and what it lacks.
    """
    shards = list_shards(dirs, pattern=pattern, shard_name=shard_name)
    shards["schema"] = [choose_schema(row, schema) for row in shards.itertuples()]
    # One look in each folder is enough for its schema, where every look is a slow request.
    shards["first"] = ~shards["folder"].duplicated()
    looks = _for_each(look_into, list(shards.itertuples()))
    shards[["bytes", "compression", "count"]] = looks
    return shards.drop(columns="first")


def choose_fold(shards: pd.DataFrame, fold: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(training, validation) shards: all folds but one and that one, or by split without folds.

    Raises: ValueError naming the folds and splits that exist.
    """
    train = shards[shards["split"] == "train"]
    folds = sorted(set(train["fold"]))
    if len(folds) > 1:
        chosen = train["fold"] == fold
        training, validation = train[~chosen], train[chosen]
    else:
        training, validation = train, shards[shards["split"].isin(HELD_OUT)]
    if training.empty or validation.empty:
        raise ValueError(
            f"Fold {fold} cannot be validated: the shards are of the folds {folds} and the splits "
            f"{sorted(set(shards['split']))}. Set FOLD to one of these folds, or plan with N_FOLDS "
            "of 2 or more, or VALIDATION_SIZE above 0."
        )
    return training, validation


def one_schema(shards: pd.DataFrame) -> RecordSchema:
    """The schema that all shards share.

    Raises: ValueError when they have several, naming a folder of each; when there are no shards.
    """
    if not shards["count"].sum():
        raise ValueError(
            "There is no record to read in the shards chosen. Look at the split and fold columns "
            "of find_shards."
        )
    first = shards["schema"].iloc[0]
    for folder, schema in zip(shards["folder"], shards["schema"], strict=True):
        if schema != first:
            raise ValueError(
                f"'{folder}' and '{shards['folder'].iloc[0]}' have different schemas, so one "
                "reader cannot take both. Read them apart and use tf.data's sample_from_datasets."
            )
    return first


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
