"""From shards to batches: uint8, every shape static, as fast as the pictures decode."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.parameters import as_size
from kaggle_tfr.read.decode import Crop, decode_record, sample_mask
from kaggle_tfr.schema import SPLIT_NAMES, RecordSchema, feature_dict
from kaggle_tfr.shards import count_records

CORES = os.cpu_count() or 1  # decoding keeps them busy; more threads get no more done
# A bucket answers slowly but many requests at once: large ones, on many shards at a time. A disk
# is read on the side, by few threads: they take their time from the decoding.
REMOTE_READS, LOCAL_READS = (16, 16 << 20), (2, 1 << 20)  # shards, bytes of each: 16 and 1 MiB
SHUFFLE_BYTES, SHUFFLE_RECORDS = 256 << 20, 8192
AHEAD_BYTES, AHEAD_RECORDS = 64 << 20, 2048  # read ahead from a bucket, beside what it shuffles

Context: TypeAlias = tf.distribute.InputContext  # which of several input pipelines this one is
ALONE = Context()
MeanStd = tuple[Sequence[float], Sequence[float]]


def choose_fold(shards: pd.DataFrame, fold: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(training, validation) shards, by fold or else by split. Raises ValueError for none.

    Shards of the fold −1 beside others hold images of further sources: they train, always.
    """
    splits = shards["split"].map(SPLIT_NAMES)
    training, validation = shards[splits == "train"], shards[splits == "validation"]
    folds = sorted(set(training["fold"]) - {-1})
    if len(folds) > 1:
        chosen = (training["fold"] == fold) & (fold >= 0)
        training, validation = training[~chosen], training[chosen]
    if training.empty or validation.empty:
        there = f"the shards are of the folds {folds} and the splits {sorted(set(shards['split']))}"
        mend = "Set FOLD to one of these folds, or plan with N_FOLDS or VALIDATION_SIZE."
        raise ValueError(f"Fold {fold} cannot be validated: {there}. {mend}")
    return training, validation


def one_schema(shards: pd.DataFrame) -> RecordSchema:
    """The schema that all shards share. Raises ValueError for several schemas, or no record."""
    folders = dict(zip(shards["schema"], shards["folder"], strict=True))
    if not shards["count"].sum():
        raise ValueError("There is no record to read in these shards. See their split and fold.")
    if len(folders) > 1:
        first, second = list(folders.values())[:2]
        what = f"'{first}' and '{second}' have different schemas, so one reader cannot take both."
        raise ValueError(f"{what} Read them apart and use tf.data's sample_from_datasets.")
    return next(iter(folders))


def count_steps(
    shards: pd.DataFrame, batch_size: int, *, training: bool, context: Context = ALONE
) -> int:
    """Batches an epoch of each input pipeline: the full ones in training, all of them otherwise."""
    counts = split_work(shards, context)[2]
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
    flip: bool = False,
    one_hot: int = 0,
    extra: Sequence[str] = (),
    seed: int | None = None,
    context: Context = ALONE,
) -> tf.data.Dataset:
    """uint8 images (batch, height, width, 3), labels (batch, …), all of it of static shape.

    Of BIT_DEPTH = "keep" images are uint16, and 65535 stands for the 255 below.
    training: endless and shuffled, (images, labels). Otherwise one exact pass in order, (images,
        labels, mask): 1.0 for an image, 0.0 for the last batch's padding; Keras's sample_weight.
    labels: int64 classes, float32 (batch, classes) if one-hot or several, uint8 masks stacked last.
    crop: "random" (default in training), "center" or "pad", see `choose_window`.
    mean_std: send (pixel / 255 − mean) / std as float32. flip, one_hot, extra: see `decode_record`.
    context: of `strategy.distribute_datasets_from_function`; batch_size is then per replica.
    Raises: ValueError; while reading tf.errors.OpError, also when a shard's count was wrong.
    """
    given: dict[str, Any] = {"flip": flip, "one_hot": one_hot, "extra": extra, "training": training}
    given |= {"crop": crop or ("random" if training else "center"), "jpeg": shards["jpeg"].all()}
    decode = partial(decode_record, schema=one_schema(shards), size=as_size(image_size), **given)
    if training:
        own, every, _ = split_work(shards, context)
        data = _read_records(own, every, shuffle=True, repeat=True, seed=seed)
        data = data.map(decode, num_parallel_calls=CORES, deterministic=False)
        # A short last batch would make the shape dynamic, and XLA compile twice.
        data = data.batch(batch_size, drop_remainder=True)
    else:
        data = _read_once(shards, decode, batch_size, context)
    if mean_std:
        data = data.map(partial(_normalize, mean_std=mean_std))
    return data.prefetch(2)


def to_devices(batches: Iterable[Any], devices: Sequence[Any], ahead: int = 2) -> Iterator[Any]:
    """The batches as JAX arrays, each split evenly over the devices, `ahead` of them on their way.

    batches: of `read_batches`, or trees of NumPy arrays; int64 becomes int32, as ever in JAX.
    Raises: ValueError: the devices cannot share a batch; its size is named.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(Mesh(np.array(devices), ("batch",)), PartitionSpec("batch"))
    waiting = deque[Any]()
    for batch in getattr(batches, "as_numpy_iterator", batches.__iter__)():
        if (size := len(jax.tree.leaves(batch)[0])) % len(devices):
            mend = "Set a batch size that is a multiple of the number of devices."
            raise ValueError(f"{len(devices)} devices cannot share a batch of {size}. {mend}")
        waiting.append(jax.device_put(batch, sharding))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def read_images(shards: pd.DataFrame, seed: int | None = None) -> tf.data.Dataset:
    """Every record once, a dictionary of its features, in order or shuffled by a seed.

    The image is of the schema's dtype, (height, width, 3); run-length codes are uint8, 2-D.
    """
    schema = one_schema(shards)

    def decode(record: tf.Tensor) -> dict[str, tf.Tensor]:
        values = tf.io.parse_single_example(record, feature_dict(schema))
        encoded, dtype = values[schema.image_key], schema.image_dtype
        image = tf.io.decode_image(encoded, 3, dtype, expand_animations=False)
        size = tf.unstack(tf.shape(image)[:2])
        for name in schema.label_keys if schema.kind == "masks" else ():
            values[name] = sample_mask(values[name], size[0], [0, 0, *size], size, "center")
        return values | {schema.image_key: image}

    data = _read_records(shards, shuffle=seed is not None, seed=seed)
    return data.map(decode, num_parallel_calls=2).prefetch(1)


def _read_records(
    shards: pd.DataFrame,
    every: tuple[int, int] | None = None,
    *,
    shuffle: bool = False,
    repeat: bool = False,
    seed: int | None = None,
) -> tf.data.Dataset:
    """The serialized examples of all shards, many read at a time; every: as of `split_work`."""
    remote, is_mixed = storage.is_remote(shards["file"].iloc[0]), shuffle and not every
    files = tf.data.Dataset.from_tensor_slices((list(shards["file"]), list(shards["compression"])))
    if is_mixed:
        files = files.shuffle(len(shards), seed=seed)
    reads, buffer = REMOTE_READS if remote else LOCAL_READS
    # Interleaving whole files is what spreads the reads over connections.
    data = files.interleave(
        partial(tf.data.TFRecordDataset, buffer_size=buffer),
        cycle_length=min(16, len(shards)),
        block_length=16,
        # From a bucket all at once and from the start: AUTOTUNE would first have to find that out.
        num_parallel_calls=min(reads, len(shards)),
        deterministic=not is_mixed,
    )
    data = data.shard(*every) if every else data
    if repeat:
        # Before the shuffle: behind it, every epoch would wait for an empty buffer to fill.
        data = data.repeat()
        if remote:
            # A full shuffle buffer waits with its one missing record, as when an epoch begins.
            data = data.prefetch(_count_fitting(shards, AHEAD_RECORDS, AHEAD_BYTES))
    fitting = _count_fitting(shards, SHUFFLE_RECORDS, SHUFFLE_BYTES)
    return data.shuffle(fitting, seed=seed) if shuffle else data


def _normalize(images: tf.Tensor, *rest: tf.Tensor, mean_std: MeanStd) -> tuple:
    """The batch with its images as float32, (pixel / 255 or 65535 − mean) / std."""
    mean, std = np.asarray(mean_std, np.float32)
    factor, offset = 1 / (np.float32(images.dtype.max) * std), mean / std
    # Compiled, it is one pass over a batch; op by op it would take longer than the decoding.
    scale = tf.function(
        lambda pixels: tf.cast(pixels, tf.float32) * factor - offset, jit_compile=True
    )
    return (scale(images), *rest)


def split_work(
    shards: pd.DataFrame, context: Context
) -> tuple[pd.DataFrame, tuple[int, int] | None, list[int]]:
    """The shards an input pipeline reads, (n, i) for each n-th record or None, and all counts."""
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


def _read_once(
    shards: pd.DataFrame, decode: Callable[[tf.Tensor], tuple], batch_size: int, context: Context
) -> tf.data.Dataset:
    """Full batches of each record once, then of blanks, as many as `count_steps` says."""
    own, every, counts = split_work(shards, context)
    steps = count_steps(shards, batch_size, training=False, context=context)
    check = partial(_check_count, own, counts[context.input_pipeline_id])

    def is_wanted(step: tf.Tensor, counted: tuple) -> tf.Tensor:
        end = partial(tf.numpy_function, check, [counted[0]], tf.bool)
        return tf.cond(step < steps, lambda: True, end)

    def count(seen: tf.Tensor, batch: tuple) -> tuple:
        seen += tf.math.count_nonzero(batch[2])
        return seen, (seen, batch)

    data = _read_records(own, every).map(decode, num_parallel_calls=CORES)
    blank = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), data.element_spec)
    data = data.concatenate(tf.data.Dataset.from_tensors(blank).repeat())
    # One batch more than there should be: records beyond the promised ones would be in it.
    data = data.batch(batch_size, drop_remainder=True).scan(np.int64(0), count)
    data = data.enumerate().take_while(is_wanted).map(lambda _, counted: counted[1])
    return data.apply(tf.data.experimental.assert_cardinality(steps))


def _check_count(shards: pd.DataFrame, expected: int, seen: int) -> bool:
    """False, to end a pass of so many records. Raises: ValueError, OSError for another number."""
    rows = shards[["file", "compression", "count"]].itertuples(index=False, name=None)
    for file, compression, promised in rows if seen != expected else ():
        count = count_records(file, compression)
        if count != promised:
            what = f"'{file}' holds {count:,} records, its name or shards.csv says {promised:,}."
            raise ValueError(f"{what} Copy the shard again, or write it again.")
    if seen != expected:
        what = f"{seen:,} of {expected:,} records arrived, though every shard holds what it should:"
        raise OSError(f"{what} a read failed on the way. Run it again.")
    return False


def _count_fitting(shards: pd.DataFrame, most: int, size: int) -> int:
    """How many records of shards `size` bytes hold: at least 1, at most all of them, and `most`."""
    records = max(1, int(shards["count"].sum()))
    return max(1, min(records, most, size * records // max(1, int(shards["bytes"].sum()))))
