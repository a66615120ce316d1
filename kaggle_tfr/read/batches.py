"""Read shards as batches: uint8, with static shapes, as fast as the images decode.

One record takes these steps: `_read_records` (bytes from many shards at a time) →
`decode_record` (parse, choose a window, decode only that window, resize) → batch.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kaggle_tfr import storage
from kaggle_tfr.images.masks import sample_mask
from kaggle_tfr.naming import SPLIT_NAMES
from kaggle_tfr.parameters import as_size
from kaggle_tfr.schema import RecordSchema, feature_spec
from kaggle_tfr.session import count_cores
from kaggle_tfr.shards import count_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd
    import tensorflow as tf
else:
    from kaggle_tfr.session import tf

CORES = count_cores()  # decoding keeps them busy, so more threads are not faster

# A bucket answers slowly but serves many requests at a time: read many shards in large
# pieces. A disk is read by few threads, since they take their time from the decoding.
REMOTE_SHARDS_AT_ONCE = 16
REMOTE_BUFFER_BYTES = 16 << 20  # 16 MiB
LOCAL_SHARDS_AT_ONCE = 2
LOCAL_BUFFER_BYTES = 1 << 20  # 1 MiB

SHUFFLE_BYTES = 256 << 20  # 256 MiB
SHUFFLE_RECORDS = 8192
# Read ahead from a bucket, besides the records that are being shuffled.
AHEAD_BYTES = 64 << 20  # 64 MiB
AHEAD_RECORDS = 2048


def choose_fold(
    shards: pd.DataFrame, fold: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the training and the validation shards, by fold or else by split.

    Shards of fold −1 beside others contain further sources, which always train.
    Raises: ValueError: one of the two is empty.
    """
    splits = shards["split"].map(SPLIT_NAMES)
    training = shards[splits == "train"]
    validation = shards[splits == "validation"]
    folds = sorted(set(training["fold"]) - {-1})
    if len(folds) > 1:
        is_chosen = training["fold"].isin({fold} - {-1})
        validation = training[is_chosen]
        training = training[~is_chosen]

    if training.empty or validation.empty:
        raise ValueError(
            f"Fold {fold} cannot be validated: the shards are of the folds {folds} and "
            f"the splits {sorted(set(shards['split']))}. Set FOLD to one of these "
            "folds, or plan with N_FOLDS or VALIDATION_SIZE."
        )
    return training, validation


def list_folds(shards: pd.DataFrame, fold: int | str = "all") -> list[int]:
    """Return the folds to validate on, for `choose_fold`.

    fold: one of them, or "all". Without folds, the only one is 0: the split validates.
    Raises: ValueError: there is no such fold.
    """
    labelled = shards[shards["split"].map(SPLIT_NAMES) == "train"]
    folds = sorted(set(labelled["fold"].tolist()) - {-1})
    if len(folds) < 2:
        folds = [0]
    if fold == "all":
        return folds
    if fold not in folds:
        names = ", ".join(map(str, folds))
        raise ValueError(f'FOLD is {fold!r}. Set it to "all", or one of: {names}.')
    return [int(fold)]


def one_schema(shards: pd.DataFrame) -> RecordSchema:
    """Return the schema of all shards.

    Raises: ValueError: there are several schemas, or no record.
    """
    different = shards.drop_duplicates("schema")
    if len(different) > 1:
        first, second, *_ = different.itertuples()
        raise ValueError(
            f"Shards of '{first.folder}' ({first.split}) and '{second.folder}' "
            f"({second.split}) have different schemas, so one reader cannot take both. "
            "Choose the shards of one split, or training and validation shards by "
            "read.choose_fold. Read folders apart, and join their batches by tf.data's "
            "sample_from_datasets."
        )
    if not shards["count"].sum():
        raise ValueError(
            "There is no record to read in these shards. Check their split and fold."
        )
    return shards["schema"].iloc[0]


def count_steps(shards: pd.DataFrame, batch_size: int, *, training: bool) -> int:
    """Count the batches of an epoch: full ones in training, all of them otherwise."""
    n_full, rest = divmod(int(shards["count"].sum()), batch_size)
    if training:
        return max(1, n_full)
    return n_full + (rest > 0)


def read_batches(
    shards: pd.DataFrame,
    image_size: int | Sequence[int],
    batch_size: int,
    *,
    training: bool = False,
    flip: bool = False,
    extra: Sequence[str] = (),
    ids: bool = False,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Read uint8 images (batch, height, width, 3) and labels (batch, …), shapes static.

    training: endless and shuffled, (images, labels). Otherwise one exact pass in order,
        (images, labels, mask); the mask is 1.0 for an image and 0.0 for the padding of
        the last batch, as Keras's sample_weight.
    labels: int64 classes; float32 quantities; float32 (batch, classes) if multi-label;
        uint8 masks, stacked along the last axis.
    flip, extra: see `decode_record`.
    ids: add the ids of the images, strings, as the last value. The id of a record
        without one is "file#number"; that of padding is "".
    Raises: ValueError; while reading, tf.errors.OpError, also for a wrong record count.
    """
    schema = one_schema(shards)
    id_key = schema.key_of("image_id") if ids else ""
    numbered = ids and not id_key
    decode = partial(
        decode_record,
        schema=schema,
        size=as_size(image_size),
        training=training,
        flip=flip,
        extra=extra,
        id_key=id_key,
    )
    if training:
        records = _read_records(shards, training=True, seed=seed, numbered=numbered)
        examples = records.map(decode, num_parallel_calls=CORES, deterministic=False)
        # A short last batch would make the shape dynamic, and XLA compile twice.
        batches = examples.batch(batch_size, drop_remainder=True)
    else:
        records = _read_records(shards, training=False, numbered=numbered)
        batches = _read_once(shards, records.map(decode, CORES), batch_size)
    return batches.prefetch(2)


def to_devices(
    batches: Iterable[Any], devices: Sequence[Any], ahead: int = 2
) -> Iterator[Any]:
    """Yield batches as JAX arrays, each split evenly over the devices.

    batches: of `read_batches`, or trees of NumPy arrays; JAX makes int64 int32.
    ahead: the number of batches that are on their way to the devices.
    Raises: ValueError: a batch size that is not a multiple of the number of devices.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(devices), ("batch",))
    sharding = NamedSharding(mesh, PartitionSpec("batch"))
    as_arrays = getattr(batches, "as_numpy_iterator", batches.__iter__)
    waiting = deque[Any]()
    for batch in as_arrays():
        batch_size = len(jax.tree.leaves(batch)[0])
        if batch_size % len(devices):
            raise ValueError(
                f"{len(devices)} devices cannot share a batch of {batch_size}. Set a "
                "batch size that is a multiple of the number of devices."
            )
        waiting.append(jax.device_put(batch, sharding))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def _read_records(
    shards: pd.DataFrame,
    *,
    training: bool,
    seed: int | None = None,
    numbered: bool = False,
) -> tf.data.Dataset:
    """Read the serialized examples of several shards at a time.

    training: endless and shuffled, instead of once in order.
    numbered: as pairs, each with its place, such as "a.tfrec#17".
    """
    is_remote = storage.is_remote(shards["file"].iloc[0])
    shards_at_once = REMOTE_SHARDS_AT_ONCE if is_remote else LOCAL_SHARDS_AT_ONCE
    buffer_bytes = REMOTE_BUFFER_BYTES if is_remote else LOCAL_BUFFER_BYTES

    files = tf.data.Dataset.from_tensor_slices(
        (list(shards["file"]), list(shards["compression"]))
    )
    if training:
        files = files.shuffle(len(shards), seed=seed)
    # Interleaving whole files is what spreads the reads over connections.
    records = files.interleave(
        partial(_open_shard, buffer_bytes=buffer_bytes, numbered=numbered),
        cycle_length=min(16, len(shards)),
        block_length=16,
        # All at once from the start: AUTOTUNE would first have to measure a bucket.
        num_parallel_calls=min(shards_at_once, len(shards)),
        deterministic=not training,
    )
    if not training:
        return records

    # Before the shuffle: after it, every epoch would wait for a buffer to fill.
    records = records.repeat()
    if is_remote:
        # A full shuffle buffer waits for its one missing record at each epoch.
        records = records.prefetch(_count_fitting(shards, AHEAD_RECORDS, AHEAD_BYTES))
    n_shuffled = _count_fitting(shards, SHUFFLE_RECORDS, SHUFFLE_BYTES)
    return records.shuffle(n_shuffled, seed=seed)


def _open_shard(
    file: tf.Tensor, compression: tf.Tensor, *, buffer_bytes: int, numbered: bool
) -> tf.data.Dataset:
    """Read the serialized examples of a shard, or pairs of them with their places."""
    records = tf.data.TFRecordDataset(file, compression, buffer_bytes)
    if not numbered:
        return records
    name = tf.strings.split(file, "/")[-1]

    def add_place(number: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return record, name + "#" + tf.strings.as_string(number)

    return records.enumerate().map(add_place)


def _count_fitting(shards: pd.DataFrame, most: int, limit_bytes: int) -> int:
    """Count the records of the shards that fit in so many bytes, from 1 to `most`."""
    n_records = int(shards["count"].sum())
    n_bytes = max(1, int(shards["bytes"].sum()))
    n_fitting = limit_bytes * n_records // n_bytes
    return max(1, min(n_records, most, n_fitting))


def _read_once(
    shards: pd.DataFrame, examples: tf.data.Dataset, batch_size: int
) -> tf.data.Dataset:
    """Read each example once in full batches; blank examples pad the last one.

    examples: of `decode_record` without training: (image, label, mask, …).
    While reading: an error where the shards do not contain the promised records.
    """
    n_records = int(shards["count"].sum())
    end_or_raise = partial(_check_count, shards)

    def add_count(seen: tf.Tensor, batch: tuple) -> tuple:
        mask = batch[2]  # 1.0 for a record, 0.0 for padding
        seen += tf.math.count_nonzero(mask)
        return seen, (seen, batch)

    def is_wanted(seen: tf.Tensor, batch: tuple) -> tf.Tensor:
        first_of_mask = batch[2][0]
        return tf.cond(
            (first_of_mask > 0) & (seen <= n_records),
            lambda: True,
            lambda: tf.numpy_function(end_or_raise, [seen], tf.bool),
        )

    batches = _append_padding(examples).batch(batch_size, drop_remainder=True)
    counted_batches = batches.scan(np.int64(0), add_count)
    # The pass ends at a batch of padding only, or where surplus records are read.
    batches = counted_batches.take_while(is_wanted).map(lambda _, batch: batch)
    n_steps = count_steps(shards, batch_size, training=False)
    return batches.apply(tf.data.experimental.assert_cardinality(n_steps))


def _append_padding(examples: tf.data.Dataset) -> tf.data.Dataset:
    """Append endless blank examples, whose mask is 0.0 like all their values."""
    blank = tf.nest.map_structure(
        lambda spec: tf.zeros(spec.shape, spec.dtype), examples.element_spec
    )
    return examples.concatenate(tf.data.Dataset.from_tensors(blank).repeat())


def _check_count(shards: pd.DataFrame, seen: int) -> bool:
    """Return False, which ends the pass, if `seen` is the promised number of records.

    Raises: ValueError: a shard contains another number; OSError: records were not read.
    """
    expected = int(shards["count"].sum())
    if seen == expected:
        return False
    for _, shard in shards.iterrows():
        count = count_records(shard["file"])
        if count != shard["count"]:
            raise ValueError(
                f"'{shard['file']}' contains {count:,} records, its name or shards.csv "
                f"says {shard['count']:,}. Copy the shard again, or write it again."
            )
    raise OSError(
        f"{seen:,} of {expected:,} records arrived, though every shard contains its "
        "records: a read failed on the way. Run it again."
    )


def decode_record(
    record: tf.Tensor,
    place: tf.Tensor | None = None,
    *,
    schema: RecordSchema,
    size: tuple[int, int],
    training: bool = True,
    flip: bool = False,
    extra: Sequence[str] = (),
    id_key: str = "",
) -> tuple:
    """Decode a record: (image, label, 1.0 unless training, the `extra`, the id).

    label: int64 class (−1 without one), float32 quantity or 0/1 of several, or uint8
        masks, stacked along the last axis.
    flip: mirror half of the images from left to right.
    extra: names of further features.
    place, id_key: the record's place in its shard, or the feature with its id. The id
        is one of them; without both it is left out.
    """
    names = [*extra, id_key] if id_key else extra
    values = tf.io.parse_single_example(record, _choose_features(schema, names))
    encoded = values[schema.image_key]
    pixels, window, image_size = decode_window(encoded, size, training=training)
    image = fit_to_size(pixels, size)

    label_values = [values[name] for name in schema.label_keys]
    if schema.kind == "masks":
        height = image_size[0]
        masks = [sample_mask(code, height, window, size) for code in label_values]
        label = tf.stack(masks, -1)
    else:
        label = _join_labels(label_values, schema.kind)

    if flip:
        is_flipped = tf.random.uniform([]) < 0.5
        image = _flip_if(is_flipped, image)
        if schema.kind == "masks":
            label = _flip_if(is_flipped, label)

    example: tuple = (image, label) if training else (image, label, 1.0)
    if extra:
        example += ({name: values[name] for name in extra},)
    if id_key:
        example += (values[id_key],)
    elif place is not None:
        example += (place,)
    return example


def _join_labels(label_values: list[tf.Tensor], kind: str) -> tf.Tensor:
    """Return the class or quantity, −1 without one, or flags of several, float32."""
    if kind == "multi":
        flags = [tf.reshape(value, [-1]) for value in label_values]
        return tf.concat([tf.cast(flag, tf.float32) for flag in flags], 0)
    return label_values[0] if label_values else tf.constant(-1, tf.int64)


def _flip_if(condition: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
    """Mirror (height, width, channels) from left to right if the condition is true."""
    return tf.cond(condition, lambda: tf.reverse(image, [1]), lambda: image)


def _choose_features(schema: RecordSchema, extra: Sequence[str]) -> dict[str, Any]:
    """Return the specification of the features that a batch needs, and no others."""
    known = feature_spec(schema)
    for name in extra:
        if not isinstance(known.get(name), tf.io.FixedLenFeature):
            raise ValueError(
                f"The feature '{name}' is not in the schema, or has no fixed length. "
                f"The features are {', '.join(known)}."
            )
    names = (schema.image_key, *schema.label_keys, *extra)
    return {name: known[name] for name in names}


def choose_window(
    shape: tf.Tensor, size: tuple[int, int], *, training: bool
) -> tf.Tensor:
    """Choose the window to decode: int32 (4,), top, left, height and width in pixels.

    It is the largest with the proportions of `size`: in training at a random place,
    otherwise in the centre.
    shape: int32 (2,), height and width of the image.
    """
    # Few ops: each costs a hundredth of the decoding. Whole numbers: a square target
    # gets an exactly square window.
    other_side = shape[::-1]
    if size[0] != size[1]:
        other_side = other_side * size // size[::-1]
    window_size = tf.maximum(1, tf.minimum(shape, other_side))
    space = shape - window_size
    corner = space // 2
    if training:
        choices = tf.cast(space + 1, tf.float32)
        corner = tf.cast(tf.random.uniform([2]) * choices, tf.int32)
    return tf.concat([corner, window_size], 0)


def decode_window(
    encoded: tf.Tensor, size: tuple[int, int], *, training: bool
) -> tuple[tf.Tensor, ...]:
    """Decode a window: pixels (h, w, 3), the window, and the image's size, int32 (2,).

    encoded: JPEG, of which only the window is decoded, PNG, GIF, BMP or WebP.
    """

    def decode_jpeg() -> tuple[tf.Tensor, ...]:
        image_size = tf.io.extract_jpeg_shape(encoded)[:2]
        window = choose_window(image_size, size, training=training)
        pixels = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
        return pixels, window, image_size

    def decode_other() -> tuple[tf.Tensor, ...]:
        image = tf.io.decode_image(encoded, 3, expand_animations=False)
        image_size = tf.shape(image)[:2]
        window = choose_window(image_size, size, training=training)
        top, left, height, width = tf.unstack(window)
        pixels = image[top : top + height, left : left + width]
        return pixels, window, image_size

    # The test costs a fiftieth of the decoding.
    return tf.cond(tf.io.is_jpeg(encoded), decode_jpeg, decode_other)


def fit_to_size(pixels: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resize pixels (height, width, 3) to the size, unless they have it."""

    def resize() -> tf.Tensor:
        # Antialiasing takes four times as long, and matters in a strong reduction only.
        is_strong = tf.reduce_any(2 * tf.shape(pixels)[:2] > 3 * tf.constant(size))
        resized = tf.cond(
            is_strong,
            lambda: tf.image.resize(pixels, size, antialias=True),
            lambda: tf.image.resize(pixels, size),
        )
        return tf.cast(tf.round(resized), pixels.dtype)

    has_size = tf.reduce_all(tf.shape(pixels)[:2] == size)
    return tf.ensure_shape(tf.cond(has_size, lambda: pixels, resize), (*size, 3))
