"""Read shards as batches: uint8, with static shapes, as fast as the images decode.

One record takes these steps: `_read_records` (bytes from many shards at a time) →
`decode_record` (parse, choose a window, decode only that window, resize) → batch.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from kaggle_tfr import storage
from kaggle_tfr.images.masks import sample_mask
from kaggle_tfr.naming import SPLIT_NAMES
from kaggle_tfr.parameters import as_size
from kaggle_tfr.schema import RecordSchema, feature_spec
from kaggle_tfr.session import count_cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd
    import tensorflow as tf
else:
    from kaggle_tfr.session import tf

# A bucket answers slowly but serves many requests at a time: read many shards in large
# pieces. A disk is read by few threads, since they take their time from the decoding.
REMOTE_SHARDS_AT_ONCE = 16
REMOTE_BUFFER_BYTES = 16 << 20  # 16 MiB
LOCAL_SHARDS_AT_ONCE = 2
LOCAL_BUFFER_BYTES = 1 << 20  # 1 MiB

SHUFFLE_BYTES = 256 << 20  # 256 MiB
SHUFFLE_RECORDS = 8192
BATCHES_AHEAD = 2  # on their way to the devices


def choose_fold(
    shards: pd.DataFrame, fold: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the training and the validation shards, by fold or else by split.

    shards: of `find_shards`. fold: the one that validates; all other folds train, and
    the split "validation" is not used. With fewer than two folds, `fold` is ignored,
    and the split "validation" validates. Fold −1 beside others always trains: it
    contains images of MORE_INPUTS, and those in their groups.
    Raises: ValueError: there is no such fold, or one of the two tables is empty.
    """
    splits = shards["split"].map(SPLIT_NAMES)  # "val", "valid" … are "validation"
    training = shards[splits == "train"]
    validation = shards[splits == "validation"]
    if len(list_folds(shards)) > 1:
        (fold,) = list_folds(shards, fold)  # raises an error if there is none
        is_chosen = training["fold"] == fold
        validation = training[is_chosen]
        training = training[~is_chosen]

    if training.empty or validation.empty:
        raise ValueError(
            "There are no shards to validate beside others that train, only the splits "
            f"{sorted(set(shards['split']))} without folds. Plan with N_FOLDS or "
            "VALIDATION_SIZE."
        )
    return training, validation


def list_folds(shards: pd.DataFrame, fold: int | str = "all") -> list[int]:
    """Return the folds to validate on, for `choose_fold`.

    fold: one of them, or "all". Without folds the list is [0], and `choose_fold` then
    validates on the split "validation". Fold −1, of images that never validate, is not
    in the list.
    Raises: ValueError: there is no such fold.
    """
    # SPLIT_NAMES: "training" is "train", too.
    training = shards[shards["split"].map(SPLIT_NAMES) == "train"]
    folds = sorted(set(training["fold"].tolist()) - {-1})
    if len(folds) < 2:  # a single fold has nothing to train on: there are no folds
        folds = [0]
    if fold == "all":
        return folds
    if fold not in folds:
        raise ValueError(f'FOLD is {fold!r}. Set it to "all", or one of {folds}.')
    return [int(fold)]


def one_schema(shards: pd.DataFrame) -> RecordSchema:
    """Return the schema that all shards have.

    shards: of `find_shards`.
    Raises: ValueError: there are several schemas, or no shard.
    """
    if shards.empty:
        raise ValueError("There is no shard to read. Check the split and the fold.")
    different = shards.drop_duplicates("schema")
    if len(different) > 1:
        raise ValueError(
            "These shards have different schemas, so one reader cannot take all: "
            f"{list(different['folder'] + ': ' + different['split'])}. Choose those of "
            "one split, or training and validation shards by read.choose_fold. Read "
            "folders apart, and join their batches by tf.data's sample_from_datasets."
        )
    return shards["schema"].iloc[0]


def count_steps(shards: pd.DataFrame, batch_size: int, *, training: bool) -> int:
    """Count the batches of an epoch: full ones in training, all of them otherwise.

    In training 1 at least, because the data are endless.
    """
    n_batches = shards["count"].sum() / batch_size
    return max(1, floor(n_batches)) if training else ceil(n_batches)


def read_batches(
    shards: pd.DataFrame,
    image_size: int | Sequence[int],
    batch_size: int,
    *,
    training: bool = False,
    flip: bool = False,
    ids: bool = False,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Read uint8 images (batch, height, width, 3) and labels (batch, …), shapes static.

    training: endless and shuffled, (images, labels). Otherwise one exact pass, always
        in the same order, (images, labels, mask); the mask is 1.0 for an image and 0.0
        for the padding of the last batch, as Keras's sample_weight.
    labels: int64 classes; float32 quantities; float32 (batch, classes) if multi-label;
        uint8 masks, stacked along the last axis.
    flip: mirror half of the images from left to right.
    ids: add the ids of the images, strings, as the last value. The id of a record
        without one is "file#number"; that of padding is "".
    Raises: ValueError: no shards, or different schemas; while reading,
    tf.errors.OpError, also if a pass has another number of records than shards.csv
    lists.
    """
    decode = partial(
        decode_record,
        schema=one_schema(shards),
        size=as_size(image_size),
        training=training,
        flip=flip,
        ids=ids,
    )
    # With `places`, "file#number" is beside each record, for one without an id.
    records = _read_records(shards, training=training, seed=seed, places=ids)
    # Decoding keeps the cores busy, so more threads are not faster.
    examples = records.map(decode, count_cores(), deterministic=not training)
    if not training:
        examples = _add_padding(examples, int(shards["count"].sum()), batch_size)
    # A short last batch would make the shape dynamic, and XLA compile twice.
    return examples.batch(batch_size, drop_remainder=True).prefetch(2)


def to_devices(batches: Iterable[Any], devices: Sequence[Any]) -> Iterator[Any]:
    """Yield batches as JAX arrays, each split evenly over the devices.

    The next two batches are already being copied, so that the devices do not wait.
    batches: of `read_batches`, or trees of NumPy arrays; JAX makes int64 int32.
    Raises: ValueError: a batch size that is not a multiple of the number of devices.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(devices), ("batch",))
    sharding = NamedSharding(mesh, PartitionSpec("batch"))  # along the first axis
    # A tf.data.Dataset has this method; other iterables are of arrays already.
    as_arrays = getattr(batches, "as_numpy_iterator", batches.__iter__)
    waiting = deque[Any]()
    for batch in as_arrays():
        waiting.append(jax.device_put(batch, sharding))  # only starts the copy
        if len(waiting) > BATCHES_AHEAD:
            yield waiting.popleft()
    yield from waiting


def _read_records(
    shards: pd.DataFrame, *, training: bool, seed: int | None, places: bool
) -> tf.data.Dataset:
    """Read the serialized examples of several shards at a time.

    training: endless and shuffled, instead of once in an order that is always the same.
    places: whether to return pairs, as `_open_shard` does.
    """
    # A bucket is slow to respond: more shards at a time are read, in larger pieces.
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
        partial(_open_shard, buffer_bytes=buffer_bytes, places=places),
        cycle_length=16,  # records come from 16 shards in turn,
        block_length=16,  # 16 from each
        # All at once from the start: AUTOTUNE would first have to measure a bucket.
        num_parallel_calls=shards_at_once,
        deterministic=not training,
    )
    if not training:
        return records

    # Before the shuffle: after it, every epoch would wait for a buffer to fill.
    records = records.repeat()
    n_shuffled = _count_shuffled(shards)
    if is_remote:
        # The shuffle buffer needs a new record for each one that it returns. These are
        # read ahead, for the time in which the next epoch opens its first shards.
        records = records.prefetch(1 + n_shuffled // 4)
    return records.shuffle(n_shuffled, seed=seed)


def _open_shard(
    file: tf.Tensor, compression: tf.Tensor, *, buffer_bytes: int, places: bool
) -> tf.data.Dataset:
    """Read the serialized examples of a shard.

    compression: "" or "GZIP".
    places: whether to return pairs (example, "file#number"): the name of the shard
        without its folder, and the number of the record in it, from 0. A pair costs a
        twentieth of the time of an image, so they are optional.
    """
    records = tf.data.TFRecordDataset(file, compression, buffer_bytes)
    if not places:
        return records
    name = tf.strings.split(file, "/")[-1] + "#"
    return records.enumerate().map(
        lambda number, record: (record, name + tf.strings.as_string(number))
    )


def _count_shuffled(shards: pd.DataFrame) -> int:
    """Return the size of the shuffle buffer, in records.

    From 1 to 8,192 (`SHUFFLE_RECORDS`), and no more than fit in 256 MiB on average.
    """
    n_records = shards["count"].sum()
    n_fitting = SHUFFLE_BYTES * n_records // shards["bytes"].sum()
    return int(max(1, min(n_records, SHUFFLE_RECORDS, n_fitting)))


def _add_padding(
    examples: tf.data.Dataset, n_records: int, batch_size: int
) -> tf.data.Dataset:
    """Append blank examples that fill the last batch.

    All values of a blank example are 0 or "", also its mask, which is the weight of an
    image. Reading the result raises an error if there are not `n_records` examples.
    """
    blank = tf.nest.map_structure(
        lambda spec: tf.zeros(spec.shape, spec.dtype), examples.element_spec
    )
    # As many as the last batch lacks.
    padding = tf.data.Dataset.from_tensors(blank).repeat(-n_records % batch_size)
    exact = tf.data.experimental.assert_cardinality(n_records)
    return examples.apply(exact).concatenate(padding)


def decode_record(
    record: tf.Tensor,
    place: tf.Tensor | str = "",
    *,
    schema: RecordSchema,
    size: tuple[int, int],
    training: bool,
    flip: bool,
    ids: bool,
) -> tuple:
    """Decode a record: (image, label, 1.0 unless training, the id if `ids`).

    1.0 is the weight of a real image; padding has 0.0.
    size: (height, width) of the result. training: cut a random window of the image,
    else the central one.
    image: uint8 (*size, 3).
    label: int64 class (−1 without one), float32 quantity or 0/1 of several, or uint8
        masks, stacked along the last axis.
    place: the id, if records of this schema have none. flip, ids: see `read_batches`.
    """
    id_key = schema.key_of("image_id") if ids else ""
    values = tf.io.parse_single_example(record, _choose_features(schema, id_key))
    image, label = _decode_values(values, schema, size, training=training)
    if flip:
        is_flipped = tf.random.uniform([]) < 0.5
        image = _flip_if(is_flipped, image)
        if schema.kind == "masks":
            label = _flip_if(is_flipped, label)

    example = (image, label) if training else (image, label, 1.0)
    if not ids:
        return example
    return (*example, tf.strings.as_string(values[id_key]) if id_key else place)


def _choose_features(schema: RecordSchema, id_key: str) -> dict[str, Any]:
    """Return the specifications of the features that a batch needs, and no others."""
    known = feature_spec(schema)
    names = [schema.image_key, *schema.label_keys, id_key]  # "" for no id
    return {name: known[name] for name in names if name}


def _decode_values(
    values: dict[str, tf.Tensor],
    schema: RecordSchema,
    size: tuple[int, int],
    *,
    training: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image, uint8 (*size, 3), and the label of a parsed record.

    values: of its features, by name. Masks get the same window as their image.
    """
    pixels, window, image_size = decode_window(
        values[schema.image_key], size, training=training
    )
    image = fit_to_size(pixels, size)
    label_values = [values[name] for name in schema.label_keys]
    if schema.kind != "masks":
        return image, _join_labels(label_values, schema.kind)

    # Run-length codes count pixels down each column, so they need the height.
    masks = [sample_mask(code, image_size[0], window, size) for code in label_values]
    return image, tf.stack(masks, -1)


def _join_labels(label_values: list[tf.Tensor], kind: str) -> tf.Tensor:
    """Return the label of an image: a class, a quantity, or a flag for each class.

    −1 if the record has no label. Flags are 0 or 1, float32 (classes,).
    label_values: of the label's features. kind: "multi" for flags.
    """
    # The flags are in one feature, or each class has its own feature.
    if kind == "multi":
        floats = [
            tf.reshape(tf.cast(value, tf.float32), [-1]) for value in label_values
        ]
        return tf.concat(floats, 0)
    return label_values[0] if label_values else tf.constant(-1, tf.int64)


def _flip_if(condition: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
    """Mirror (height, width, channels) from left to right if the condition is true."""
    return tf.cond(condition, lambda: tf.reverse(image, [1]), lambda: image)


def choose_window(
    shape: tf.Tensor, size: tuple[int, int], *, training: bool
) -> tf.Tensor:
    """Choose the window to decode: int32 (4,), top, left, height and width in pixels.

    It is the largest with the proportions of `size`: in training at a random place,
    otherwise in the centre.
    shape: int32 (2,), height and width of the image. size: of the result.
    """
    # Few ops: each costs a hundredth of the decoding. Whole numbers: a square target
    # gets an exactly square window.
    # In the proportions of `size`: the height for the image's width, and the width for
    # its height.
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

    The window is that of `choose_window`; size and training: see there.
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
        pixels = tf.image.crop_to_bounding_box(image, *tf.unstack(window))
        return pixels, window, image_size

    # The test costs a fiftieth of the decoding.
    return tf.cond(tf.io.is_jpeg(encoded), decode_jpeg, decode_other)


def fit_to_size(pixels: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resize pixels (height, width, 3) to (height, width), unless they have this size.

    The dtype stays. Windows of `choose_window` have the right proportions already.
    """

    def resize() -> tf.Tensor:
        # Antialiasing takes four times as long, and matters in a strong reduction only.
        sides = tf.shape(pixels)[:2]
        is_strong = tf.reduce_any(2 * sides > 3 * tf.constant(size))  # to below 2/3
        plain = partial(tf.image.resize, pixels, size)
        resized = tf.cond(is_strong, partial(plain, antialias=True), plain)
        return tf.cast(tf.round(resized), pixels.dtype)

    has_size = tf.reduce_all(tf.shape(pixels)[:2] == size)
    return tf.ensure_shape(tf.cond(has_size, lambda: pixels, resize), (*size, 3))
