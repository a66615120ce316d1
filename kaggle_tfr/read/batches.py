"""From shards to batches: uint8, every shape static, as fast as the pictures decode."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.read.decode import Crop, as_size, decode_record, decode_whole
from kaggle_tfr.schema import RecordSchema
from kaggle_tfr.shards import SPLIT_NAMES, count_records

# Decoding keeps every core busy by itself; more threads get no more done.
CORES = os.cpu_count() or 1
# A bucket answers slowly but many requests at once: large ones, on many shards at a time. A disk
# is read on the side, by few threads: they take their time from the decoding.
OPEN_SHARDS, LOCAL_READS = 16, 2
REMOTE_BUFFER_BYTES, LOCAL_BUFFER_BYTES = 16 << 20, 1 << 20  # 16 MiB, 1 MiB
SHUFFLE_BYTES, SHUFFLE_RECORDS = 256 << 20, 8192

Context = tf.distribute.InputContext  # of a process that serves several devices
MeanStd = tuple[Sequence[float], Sequence[float]]


def choose_fold(shards: pd.DataFrame, fold: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(training, validation) shards, by fold or else by split. Raises ValueError for none."""
    splits = shards["split"].map(SPLIT_NAMES)
    training, validation = shards[splits == "train"], shards[splits == "validation"]
    folds = sorted(set(training["fold"]))
    if len(folds) > 1:
        chosen = training["fold"] == fold
        training, validation = training[~chosen], training[chosen]
    if training.empty or validation.empty:
        raise ValueError(
            f"Fold {fold} cannot be validated: the shards are of the folds {folds} and the splits "
            f"{sorted(set(shards['split']))}. Set FOLD to one of these folds, or plan with N_FOLDS "
            "of 2 or more, or VALIDATION_SIZE above 0."
        )
    return training, validation


def one_schema(shards: pd.DataFrame) -> RecordSchema:
    """The schema that all shards share. Raises ValueError for several schemas, or no record."""
    if not shards["count"].sum():
        raise ValueError(
            "There is no record to read in the shards chosen. Look at find_shards' split and fold."
        )
    first = shards.iloc[0]
    for folder, schema in zip(shards["folder"], shards["schema"], strict=True):
        if schema != first["schema"]:
            raise ValueError(
                f"'{folder}' and '{first['folder']}' have different schemas, so one reader cannot "
                "take both. Read them apart and use tf.data's sample_from_datasets."
            )
    return first["schema"]


def count_steps(
    shards: pd.DataFrame, batch_size: int, *, training: bool, context: Context | None = None
) -> int:
    """Batches an epoch of each input pipeline: the full ones in training, all of them otherwise."""
    context = context or Context()
    counts = split_shards(shards, context)[2]
    if training:
        return max(1, min(counts) // batch_size)
    # Replicas take the batches of a pipeline in turn, and each must get equally many.
    turn = context.num_replicas_in_sync // context.num_input_pipelines
    return -(-max(counts) // (batch_size * turn)) * turn


def read_batches(
    shards: pd.DataFrame,
    *,
    image_size: int | Sequence[int],
    batch_size: int,
    training: bool = False,
    crop: Crop | None = None,
    mean_std: MeanStd | None = None,
    seed: int | None = None,
    context: Context | None = None,
    **choices: Any,
) -> tf.data.Dataset:
    """uint8 images (batch, height, width, 3), labels (batch, …), all of it of static shape.

    training: endless and shuffled, (images, labels). Otherwise one exact pass in order, (images,
        labels, mask): 1.0 for an image, 0.0 for the last batch's padding; Keras's sample_weight.
    labels: int64 classes, float32 (batch, one_hot), float32 0/1 columns of a multi-label schema,
        or uint8 (batch, height, width, labels) masks.
    crop: "random" (default in training), "center" or "pad", see `choose_window`.
    mean_std: send (pixel / 255 − mean) / std as float32, four times the bytes of uint8.
    context: of `strategy.distribute_datasets_from_function`; batch_size is then per replica.
    choices: flip, one_hot, extra, see `decode_record`.
    Raises: ValueError; while reading tf.errors.OpError, also when a shard's count was wrong.
    """
    crop = crop or ("random" if training else "center")
    if crop not in get_args(Crop):
        raise ValueError(f"crop is '{crop}'. Set it to one of {', '.join(get_args(Crop))}.")
    settings = {"schema": one_schema(shards), "size": as_size(image_size), "crop": crop}
    settings |= {"jpeg": bool(shards["jpeg"].all()), "training": training}
    decode, context = partial(decode_record, **settings, **choices), context or Context()
    own, every, counts = split_shards(shards, context)
    data = _read_records(own, shuffle=training and not every, seed=seed)
    if every:
        data = data.shard(*every)
    if not training:
        steps = count_steps(shards, batch_size, training=False, context=context)
        data = data.map(decode, num_parallel_calls=CORES)
        check = partial(_check_count, own, counts[context.input_pipeline_id])
        data = _pad_and_count(data, check, batch_size, steps)
    else:
        # Before the shuffle: behind it, every epoch would wait for an empty buffer to fill.
        data = data.repeat().shuffle(_choose_buffer(own), seed=seed)
        data = data.map(decode, num_parallel_calls=CORES, deterministic=False)
        # A short last batch would make the shape dynamic, and XLA compile twice.
        data = data.batch(batch_size, drop_remainder=True)
    if mean_std:
        data = data.map(partial(_normalize, mean_std=mean_std))
    return data.prefetch(2)


def read_images(shards: pd.DataFrame, seed: int | None = None) -> tf.data.Dataset:
    """Every record once as a dictionary of its features, the image whole and decoded.

    The schema's image is uint8 (height, width, 3); run-length codes are uint8 (height, width).
    seed: shuffles the shards and the records; None keeps their order.
    """
    decode = partial(decode_whole, schema=one_schema(shards))
    data = _read_records(shards, shuffle=seed is not None, seed=seed)
    if seed is not None:
        data = data.shuffle(_choose_buffer(shards), seed=seed)
    return data.map(decode, num_parallel_calls=2).prefetch(1)


def _read_records(shards: pd.DataFrame, *, shuffle: bool, seed: int | None) -> tf.data.Dataset:
    """The serialized examples of all shards, many shards read at a time."""
    remote = storage.is_remote(shards["file"].iloc[0])
    files = tf.data.Dataset.from_tensor_slices((list(shards["file"]), list(shards["compression"])))
    if shuffle:
        files = files.shuffle(len(shards), seed=seed)
    buffer = REMOTE_BUFFER_BYTES if remote else LOCAL_BUFFER_BYTES
    # Interleaving whole files is what spreads the reads over connections.
    return files.interleave(
        partial(tf.data.TFRecordDataset, buffer_size=buffer),
        cycle_length=min(OPEN_SHARDS, len(shards)),
        block_length=16,
        # From a bucket all at once and from the start: AUTOTUNE would first have to find that out.
        num_parallel_calls=min(OPEN_SHARDS if remote else LOCAL_READS, len(shards)),
        deterministic=not shuffle,
    )


def _normalize(images: tf.Tensor, *rest: tf.Tensor, mean_std: MeanStd) -> tuple:
    """The batch with its uint8 images as float32, (pixel / 255 − mean) / std."""
    mean, std = (np.asarray(numbers, np.float32) for numbers in mean_std)

    # Compiled, it is one pass over a batch; op by op it would take longer than the decoding.
    @tf.function(jit_compile=True)
    def scale(images: tf.Tensor) -> tf.Tensor:
        return tf.cast(images, tf.float32) * (1 / (255 * std)) - mean / std

    return (scale(images), *rest)


def split_shards(
    shards: pd.DataFrame, context: Context
) -> tuple[pd.DataFrame, tuple[int, int] | None, list[int]]:
    """(shards, every, counts): what an input pipeline reads, and the records of each of them all.

    Whole shards where their records can be split evenly: every is None. Otherwise all shards, and
    every (n, i): each n-th record from the i-th on.
    """
    records, pipelines = shards["count"].to_numpy(), context.num_input_pipelines
    owners, counts = np.zeros(len(shards), int), [0] * pipelines
    for row in np.argsort(-records, kind="stable"):
        owners[row] = counts.index(min(counts))
        counts[owners[row]] += int(records[row])
    total, index = sum(counts), context.input_pipeline_id
    if max(counts) <= 1.25 * total / pipelines:
        return shards[owners == index], None, counts
    counts = [-(-(total - first) // pipelines) for first in range(pipelines)]
    return shards, (pipelines, index), counts


def _pad_and_count(
    data: tf.data.Dataset, check: Callable[[int], int], batch_size: int, steps: int
) -> tf.data.Dataset:
    """`steps` full batches: the records, then blanks; `check` gets the number of the records."""

    def count(state: tuple, batch: tuple) -> tuple:
        step, seen = state
        seen += tf.math.count_nonzero(batch[2])
        wanted = step < steps
        seen = tf.cond(wanted, lambda: seen, lambda: tf.numpy_function(check, [seen], seen.dtype))
        return (step + 1, seen), (wanted, batch)

    blank = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), data.element_spec)
    data = data.concatenate(tf.data.Dataset.from_tensors(blank).repeat())
    # One batch more than there should be: records beyond the promised ones would be in it.
    data = data.batch(batch_size, drop_remainder=True).take(steps + 1)
    data = data.scan((np.int64(0), np.int64(0)), count)
    data = data.take_while(lambda wanted, _: wanted).map(lambda _, batch: batch)
    return data.apply(tf.data.experimental.assert_cardinality(steps))


def _check_count(shards: pd.DataFrame, expected: int, seen: int) -> int:
    """`seen`, the records that arrived, when they are as many as expected.

    Raises: ValueError naming the shard whose count is wrong; OSError when a read must have failed.
    """
    if seen == expected:
        return seen
    for row in shards.itertuples():
        count = count_records(row.file, row.compression)
        if count != row.count:
            raise ValueError(
                f"'{row.file}' holds {count:,} records, its name or shards.csv says {row.count:,}. "
                "Copy the shard again, or write it again."
            )
    raise OSError(
        f"{seen:,} of {expected:,} records arrived, though every shard holds what it should: "
        "a read failed on the way. Run it again."
    )


def _choose_buffer(shards: pd.DataFrame) -> int:
    """How many records the shuffle buffer holds: all of them, if they are few and small."""
    records = max(1, int(shards["count"].sum()))
    record_bytes = max(1, int(shards["bytes"].sum()) // records)
    return max(1, min(records, SHUFFLE_RECORDS, SHUFFLE_BYTES // record_bytes))
