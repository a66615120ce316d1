"""From shards to batches: uint8, every shape static, as fast as the pictures decode."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeAlias, get_args

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
REMOTE_BUFFER_BYTES, LOCAL_BUFFER_BYTES = 16 << 20, 1 << 20  # 16 MiB, 1 MiB
LOCAL_READS, OPEN_SHARDS = 2, 16
SHUFFLE_BYTES, SHUFFLE_RECORDS = 256 << 20, 8192

Context: TypeAlias = tf.distribute.InputContext | None  # of a process that serves several devices
MeanStd = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class PipelineShards:
    """What one of several input pipelines reads.

    every: (n, i) for every n-th record of the shards from the i-th on; None for all records.
    counts: records of every pipeline; `index` is this one's place among them.
    """

    shards: pd.DataFrame
    every: tuple[int, int] | None
    counts: list[int]
    index: int


def choose_fold(shards: pd.DataFrame, fold: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(training, validation) shards: all folds but one and that one, or by split without folds.

    Raises: ValueError naming the folds and splits that exist.
    """
    splits = shards["split"].map(SPLIT_NAMES)
    train = shards[splits == "train"]
    folds = sorted(set(train["fold"]))
    if len(folds) > 1:
        chosen = train["fold"] == fold
        training, validation = train[~chosen], train[chosen]
    else:
        training, validation = train, shards[splits == "validation"]
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


def count_steps(
    shards: pd.DataFrame, batch_size: int, *, training: bool, context: Context = None
) -> int:
    """Batches an epoch, of each input pipeline: the full ones in training, all of them otherwise.

    batch_size, context: as `read_batches` takes them.
    """
    own = choose_pipeline_shards(shards, context)
    if training:
        return max(1, min(own.counts) // batch_size)
    # Replicas take the batches of a pipeline in turn, and each must get equally many.
    turn = context.num_replicas_in_sync // context.num_input_pipelines if context else 1
    return -(-max(own.counts) // (batch_size * turn)) * turn


def read_batches(
    shards: pd.DataFrame,
    *,
    image_size: int | Sequence[int],
    batch_size: int,
    training: bool = False,
    crop: Crop | None = None,
    mean_std: MeanStd | None = None,
    seed: int | None = None,
    context: Context = None,
    **choices: Any,
) -> tf.data.Dataset:
    """uint8 images (batch, height, width, 3), labels (batch, …), all of it of static shape.

    training: endless and shuffled, (images, labels); `count_steps` tells where an epoch ends.
        Otherwise one exact pass in order, (images, labels, mask): mask is 1.0 for an image and
        0.0 for the padding of the last batch, ready to be Keras's sample_weight.
    labels: int64 classes, float32 (batch, one_hot), float32 0/1 columns of a multi-label schema,
        or uint8 (batch, height, width, labels) masks.
    crop: "random" (default in training), "center" or "pad", see `choose_window`.
    mean_std: send (pixel / 255 − mean) / std as float32, four times the bytes; `normalization` does
        it on the device.
    context: of `strategy.distribute_datasets_from_function`; batch_size is then per replica.
    choices: flip, one_hot, extra, see `decode_record`.
    Raises: ValueError; while reading tf.errors.OpError, also when a shard's count was wrong.
    """
    crop = crop or ("random" if training else "center")
    if crop not in get_args(Crop):
        raise ValueError(f"crop is '{crop}'. Set it to one of {', '.join(get_args(Crop))}.")
    choices |= {"schema": one_schema(shards), "size": as_size(image_size), "crop": crop}
    choices |= {"jpeg": bool(shards["jpeg"].all()), "training": training}
    decode = partial(decode_record, **choices)
    own = choose_pipeline_shards(shards, context)
    data = read_records(own.shards, shuffle=training and not own.every, seed=seed)
    if own.every:
        data = data.shard(*own.every)
    if not training:
        steps = count_steps(shards, batch_size, training=False, context=context)
        data = data.map(decode, num_parallel_calls=CORES)
        data = pad_and_count(data, own, batch_size, steps)
    else:
        # Before the shuffle: behind it, every epoch would wait for an empty buffer to fill.
        data = data.repeat().shuffle(choose_buffer(own.shards), seed=seed)
        data = data.map(decode, num_parallel_calls=CORES, deterministic=False)
        # A short last batch would make the shape dynamic, and XLA compile twice.
        data = data.batch(batch_size, drop_remainder=True)
    if mean_std:
        data = data.map(partial(normalize_batch, mean_std=mean_std))
    return data.prefetch(2)


def read_images(shards: pd.DataFrame, seed: int | None = None) -> tf.data.Dataset:
    """Every record once as a dictionary of its features, the image whole and decoded.

    The schema's image is uint8 (height, width, 3); run-length codes are uint8 (height, width).
    seed: shuffles the shards and the records; None keeps their order.
    """
    data = read_records(shards, shuffle=seed is not None, seed=seed)
    if seed is not None:
        data = data.shuffle(choose_buffer(shards), seed=seed)
    decode = partial(decode_whole, schema=one_schema(shards))
    return data.map(decode, num_parallel_calls=2).prefetch(1)


def read_records(shards: pd.DataFrame, *, shuffle: bool, seed: int | None) -> tf.data.Dataset:
    """The serialized examples of all shards, many shards read at a time."""
    remote = storage.is_remote(shards["file"].iloc[0])
    buffer = REMOTE_BUFFER_BYTES if remote else LOCAL_BUFFER_BYTES
    files = tf.data.Dataset.from_tensor_slices((list(shards["file"]), list(shards["compression"])))
    if shuffle:
        files = files.shuffle(len(shards), seed=seed)
    open_shards = min(OPEN_SHARDS, len(shards))
    # Interleaving whole files is what spreads the reads over connections.
    return files.interleave(
        partial(tf.data.TFRecordDataset, buffer_size=buffer),
        cycle_length=open_shards,
        block_length=16,
        # From a bucket all at once and from the start: AUTOTUNE would first have to find that out.
        num_parallel_calls=open_shards if remote else min(LOCAL_READS, open_shards),
        deterministic=not shuffle,
    )


def normalize_batch(images: tf.Tensor, *rest: tf.Tensor, mean_std: MeanStd) -> tuple:
    """The batch with its uint8 images as float32, (pixel / 255 − mean) / std."""
    mean, std = (np.asarray(numbers, np.float32) for numbers in mean_std)

    # Compiled, it is one pass over a batch; op by op it would take longer than the decoding.
    @tf.function(jit_compile=True)
    def scale(images: tf.Tensor) -> tf.Tensor:
        return tf.cast(images, tf.float32) * (1 / (255 * std)) - mean / std

    return (scale(images), *rest)


def choose_pipeline_shards(shards: pd.DataFrame, context: Context = None) -> PipelineShards:
    """What one input pipeline reads: whole shards where their records can be split evenly."""
    total = int(shards["count"].sum())
    pipelines = context.num_input_pipelines if context else 1
    index = context.input_pipeline_id if context else 0
    rows: list[list[int]] = [[] for _ in range(pipelines)]
    counts = [0] * pipelines
    for row in np.argsort(-shards["count"].to_numpy(), kind="stable"):
        smallest = counts.index(min(counts))
        rows[smallest].append(row)
        counts[smallest] += int(shards["count"].iloc[row])
    if max(counts) <= 1.25 * total / pipelines:
        return PipelineShards(shards.iloc[sorted(rows[index])], None, counts, index)
    counts = [-(-(total - first) // pipelines) for first in range(pipelines)]
    return PipelineShards(shards, (pipelines, index), counts, index)


def pad_and_count(
    data: tf.data.Dataset, own: PipelineShards, batch_size: int, steps: int
) -> tf.data.Dataset:
    """`steps` full batches: the records, then blanks; an error when records are missing or over."""

    def check(seen: int) -> int:
        if seen != own.counts[own.index]:
            raise_count_error(own, int(seen))
        return seen

    def count(state: tuple, batch: tuple) -> tuple:
        step, seen = state
        seen += tf.math.count_nonzero(batch[2])
        seen = tf.cond(
            step < steps, lambda: seen, lambda: tf.numpy_function(check, [seen], seen.dtype)
        )
        return (step + 1, seen), (step < steps, batch)

    blank = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), data.element_spec)
    data = data.concatenate(tf.data.Dataset.from_tensors(blank).repeat())
    # One batch more than there should be: records beyond the promised ones would be in it.
    data = data.batch(batch_size, drop_remainder=True).take(steps + 1)
    data = data.scan((np.int64(0), np.int64(0)), count)
    data = data.take_while(lambda wanted, _: wanted).map(lambda _, batch: batch)
    return data.apply(tf.data.experimental.assert_cardinality(steps))


def raise_count_error(own: PipelineShards, seen: int) -> NoReturn:
    """Raise the error that explains missing records.

    Raises: ValueError naming the shard whose count is wrong; OSError when a read must have failed.
    """
    rows = own.shards[["file", "compression", "count"]].itertuples(index=False, name=None)
    for file, compression, expected in rows:
        count = count_records(file, compression)
        if count != expected:
            raise ValueError(
                f"'{file}' holds {count:,} records, its name or shards.csv says {expected:,}. "
                "Copy the shard again, or write it again."
            )
    raise OSError(
        f"{seen:,} of {own.counts[own.index]:,} records arrived, though every shard holds what it "
        "should: a read failed on the way. Run it again."
    )


def choose_buffer(shards: pd.DataFrame) -> int:
    """How many records the shuffle buffer holds: all of them, if they are few and small."""
    record_bytes = max(1, int(shards["bytes"].sum() // max(1, shards["count"].sum())))
    most = min(SHUFFLE_RECORDS, SHUFFLE_BYTES // record_bytes)
    return max(1, min(int(shards["count"].sum()), most))
