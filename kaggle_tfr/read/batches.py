"""From part folders to batches: uint8, every shape static, as fast as the pictures decode."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr.read.decode import decode_record, decode_whole
from kaggle_tfr.schema import RecordSchema
from kaggle_tfr.shards import count_records, find_shards
from kaggle_tfr.storage import is_remote

HELD_OUT = ("validation", "val")  # our name of the split, and that of ImageNet's folder


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


__all__ = ["choose_fold", "count_steps", "find_shards", "read_batches", "read_images"]


# Decoding keeps every core busy by itself; more threads get no more done.
CORES = os.cpu_count() or 1


# A bucket answers slowly but many requests at once: large ones, on many shards at a time. A disk
# is read on the side, by few threads: they take their time from the decoding.
REMOTE_BUFFER_BYTES, LOCAL_BUFFER_BYTES = 16 << 20, 1 << 20  # 16 MiB, 1 MiB


LOCAL_READS = 2


OPEN_SHARDS = 16


SHUFFLE_BYTES, SHUFFLE_RECORDS = 256 << 20, 8192


@dataclass(frozen=True)
class Share:
    """What one of several input pipelines reads.

    every: (n, i) for every n-th record of the shards from the i-th on; None for all records.
    counts: records of every pipeline, whose own place in the list is `index`.
    """

    shards: pd.DataFrame
    every: tuple[int, int] | None
    counts: list[int]
    index: int


def count_steps(shards: pd.DataFrame, batch_size: int, *, training: bool, context=None) -> int:
    """Batches an epoch, of each input pipeline: the full ones in training, all of them otherwise.

    batch_size, context: as `read_batches` takes them.
    """
    own = share(shards, context)
    if training:
        return max(1, min(own.counts) // batch_size)
    # Replicas take the batches of a pipeline in turn, and none may come away empty-handed.
    turn = context.num_replicas_in_sync // context.num_input_pipelines if context else 1
    return -(-max(own.counts) // (batch_size * turn)) * turn


def read_batches(
    shards: pd.DataFrame,
    *,
    image_size: int | Sequence[int],
    batch_size: int,
    training: bool = False,
    where: str = "",
    mean_std: tuple | None = None,
    seed: int | None = None,
    context: tf.distribute.InputContext | None = None,
    **choices,
) -> tf.data.Dataset:
    """uint8 images (batch, height, width, 3), labels (batch, …), all of it of static shape.

    training: endless and shuffled, (images, labels); `count_steps` tells where an epoch ends.
        Otherwise one exact pass in order, (images, labels, mask): mask is 1.0 for an image and
        0.0 for the padding of the last batch, ready to be Keras's sample_weight.
    labels: int64 classes, float32 (batch, one_hot), float32 0/1 columns of a multi-label schema,
        or uint8 (batch, height, width, labels) masks.
    where: "random" (default in training), "center" or "pad", see `choose_window`.
    mean_std: send (pixel / 255 − mean) / std as float32, four times the bytes; `normalization` does
        it on the device.
    context: of `strategy.distribute_datasets_from_function`; batch_size is then per replica.
    choices: flip, one_hot, extra, see `decode_record`.
    Raises: ValueError; while reading tf.errors.OpError, also when a shard's count was wrong.
    """
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    where = where or ("random" if training else "center")
    choices |= {"schema": one_schema(shards), "size": size, "where": where, "training": training}
    choices["jpeg"] = bool(shards["jpeg"].all())
    decode = partial(decode_record, **choices)
    steps = count_steps(shards, batch_size, training=training, context=context)
    own = share(shards, context)
    data = read_records(own.shards, shuffle=training and not own.every, seed=seed)
    if own.every:  # too few shards to go round: each pipeline takes every n-th record
        data = data.shard(*own.every)
    if not training:
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
    schema = one_schema(shards)
    data = read_records(shards, shuffle=seed is not None, seed=seed)
    if seed is not None:
        data = data.shuffle(choose_buffer(shards), seed=seed)
    return data.map(partial(decode_whole, schema=schema), num_parallel_calls=2).prefetch(1)


def read_records(shards: pd.DataFrame, *, shuffle: bool, seed: int | None) -> tf.data.Dataset:
    """The serialized examples of all shards, many shards read at a time."""
    remote = is_remote(shards["file"].iloc[0])
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


def normalize_batch(images: tf.Tensor, *rest: tf.Tensor, mean_std: tuple) -> tuple:
    """The batch with its uint8 images as float32, (pixel / 255 − mean) / std."""
    mean, std = (np.asarray(numbers, np.float32) for numbers in mean_std)

    # Compiled, it is one pass over a batch; op by op it would take longer than the decoding.
    @tf.function(jit_compile=True)
    def scale(images):
        return tf.cast(images, tf.float32) * (1 / (255 * std)) - mean / std

    return (scale(images), *rest)


def share(shards: pd.DataFrame, context=None) -> Share:
    """What one input pipeline reads: whole shards when they can be dealt out evenly."""
    total = int(shards["count"].sum())
    pipelines = context.num_input_pipelines if context else 1
    index = context.input_pipeline_id if context else 0
    hands, counts = [[] for _ in range(pipelines)], [0] * pipelines
    for row in np.argsort(-shards["count"].to_numpy(), kind="stable"):
        lightest = counts.index(min(counts))
        hands[lightest].append(row)
        counts[lightest] += int(shards["count"].iloc[row])
    if max(counts) <= 1.25 * total / pipelines:
        return Share(shards.iloc[sorted(hands[index])], None, counts, index)
    counts = [-(-(total - first) // pipelines) for first in range(pipelines)]
    return Share(shards, (pipelines, index), counts, index)


def pad_and_count(data: tf.data.Dataset, own: Share, batch_size: int, steps: int):
    """`steps` full batches: the records, then blanks; an error when records are missing or over."""

    def check(seen):
        if seen != own.counts[own.index]:
            raise_count_error(own, int(seen))
        return seen

    def count(state, batch):
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


def raise_count_error(own: Share, seen: int) -> None:
    """Nothing, ever.

    Raises: ValueError naming the shard whose count is wrong; OSError when a read must have failed.
    """
    for row in own.shards.itertuples():
        count = count_records(row.file, row.compression)
        if count != row.count:
            raise ValueError(
                f"'{row.file}' holds {count:,} records, its name or shards.csv says {row.count:,}. "
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
