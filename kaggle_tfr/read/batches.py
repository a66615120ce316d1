"""From shards to batches: uint8, every shape static, as fast as the pictures decode."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from kaggle_tfr import storage
from kaggle_tfr.naming import SPLIT_NAMES, near_miss
from kaggle_tfr.parameters import as_size
from kaggle_tfr.records import check_schemas
from kaggle_tfr.schema import RecordSchema, feature_spec
from kaggle_tfr.session import count_cores
from kaggle_tfr.shards import count_records

if TYPE_CHECKING:
    import pandas as pd
    import tensorflow as tf
else:
    from kaggle_tfr.session import tf

CORES = count_cores()  # decoding keeps them busy; more threads get no more done
# A bucket answers slowly but many requests at once: large ones, on many shards at a time. A disk
# is read on the side, by few threads: they take their time from the decoding.
REMOTE_READS, LOCAL_READS = (
    (16, 16 << 20),
    (2, 1 << 20),
)  # shards, bytes of each: 16 and 1 MiB
SHUFFLE_BYTES, SHUFFLE_RECORDS = 256 << 20, 8192
AHEAD_BYTES, AHEAD_RECORDS = (
    64 << 20,
    2048,
)  # read ahead from a bucket, beside what it shuffles

Crop = Literal["random", "center"]
MeanStd = tuple[Sequence[float], Sequence[float]]


def choose_fold(
    shards: pd.DataFrame, fold: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
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
        mend = (
            "Set FOLD to one of these folds, or plan with N_FOLDS or VALIDATION_SIZE."
        )
        raise ValueError(f"Fold {fold} cannot be validated: {there}. {mend}")
    return training, validation


def one_schema(shards: pd.DataFrame) -> RecordSchema:
    """The schema that all shards share. Raises ValueError for several schemas, or no record."""
    check_schemas(shards)
    if not shards["count"].sum():
        raise ValueError(
            "There is no record to read in these shards. See their split and fold."
        )
    return shards["schema"].iloc[0]


def count_steps(shards: pd.DataFrame, batch_size: int, *, training: bool) -> int:
    """Batches an epoch: the full ones in training, all of them otherwise."""
    records = int(shards["count"].sum())
    return max(1, records // batch_size) if training else -(-records // batch_size)


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
) -> tf.data.Dataset:
    """uint8 images (batch, height, width, 3), labels (batch, …), all of it of static shape.

    training: endless and shuffled, (images, labels). Otherwise one exact pass in order, (images,
        labels, mask): 1.0 for an image, 0.0 for the last batch's padding; Keras's sample_weight.
    labels: int64 classes, float32 (batch, classes) if one-hot or several, uint8 masks stacked last.
    crop: "random" (default in training) or "center", see `choose_window`.
    mean_std: send (pixel / 255 − mean) / std as float32. flip, one_hot, extra: see `decode_record`.
    Raises: ValueError; while reading tf.errors.OpError, also when a shard's count was wrong.
    """
    given: dict[str, Any] = {
        "flip": flip,
        "one_hot": one_hot,
        "extra": extra,
        "training": training,
    }
    given |= {
        "crop": crop or ("random" if training else "center"),
        "jpeg": shards["jpeg"].all(),
    }
    decode = partial(
        decode_record, schema=one_schema(shards), size=as_size(image_size), **given
    )
    if training:
        data = _read_records(shards, shuffle=True, repeat=True, seed=seed)
        data = data.map(decode, num_parallel_calls=CORES, deterministic=False)
        # A short last batch would make the shape dynamic, and XLA compile twice.
        data = data.batch(batch_size, drop_remainder=True)
    else:
        data = _read_once(shards, decode, batch_size)
    if mean_std:
        data = data.map(partial(_normalize, mean_std=mean_std))
    return data.prefetch(2)


def to_devices(
    batches: Iterable[Any], devices: Sequence[Any], ahead: int = 2
) -> Iterator[Any]:
    """The batches as JAX arrays, each split evenly over the devices, `ahead` of them on their way.

    batches: of `read_batches`, or trees of NumPy arrays; int64 becomes int32, as ever in JAX.
    Raises: ValueError: the devices cannot share a batch; its size is named.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(
        Mesh(np.array(devices), ("batch",)), PartitionSpec("batch")
    )
    waiting = deque[Any]()
    for batch in getattr(batches, "as_numpy_iterator", batches.__iter__)():
        if (size := len(jax.tree.leaves(batch)[0])) % len(devices):
            mend = "Set a batch size that is a multiple of the number of devices."
            raise ValueError(
                f"{len(devices)} devices cannot share a batch of {size}. {mend}"
            )
        waiting.append(jax.device_put(batch, sharding))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def read_images(shards: pd.DataFrame, seed: int | None = None) -> tf.data.Dataset:
    """Every record once, a dictionary of its features, in order or shuffled by a seed.

    The image is uint8, (height, width, 3); run-length codes are uint8, 2-D.
    """
    schema = one_schema(shards)

    def decode(record: tf.Tensor) -> dict[str, tf.Tensor]:
        values = tf.io.parse_single_example(record, feature_spec(schema))
        encoded = values[schema.image_key]
        image = tf.io.decode_image(encoded, 3, expand_animations=False)
        size = tf.unstack(tf.shape(image)[:2])
        for name in schema.label_keys if schema.kind == "masks" else ():
            values[name] = sample_mask(values[name], size[0], [0, 0, *size], size)
        return values | {schema.image_key: image}

    data = _read_records(shards, shuffle=seed is not None, seed=seed)
    return data.map(decode, num_parallel_calls=2).prefetch(1)


def _read_records(
    shards: pd.DataFrame,
    *,
    shuffle: bool = False,
    repeat: bool = False,
    seed: int | None = None,
) -> tf.data.Dataset:
    """The serialized examples of all shards, many read at a time."""
    remote = storage.is_remote(shards["file"].iloc[0])
    files = tf.data.Dataset.from_tensor_slices(
        (list(shards["file"]), list(shards["compression"]))
    )
    if shuffle:
        files = files.shuffle(len(shards), seed=seed)
    reads, buffer = REMOTE_READS if remote else LOCAL_READS
    # Interleaving whole files is what spreads the reads over connections.
    data = files.interleave(
        partial(tf.data.TFRecordDataset, buffer_size=buffer),
        cycle_length=min(16, len(shards)),
        block_length=16,
        # From a bucket all at once and from the start: AUTOTUNE would first have to find that out.
        num_parallel_calls=min(reads, len(shards)),
        deterministic=not shuffle,
    )
    if repeat:
        # Before the shuffle: behind it, every epoch would wait for an empty buffer to fill.
        data = data.repeat()
        if remote:
            # A full shuffle buffer waits with its one missing record, as when an epoch begins.
            data = data.prefetch(_count_fitting(shards, AHEAD_RECORDS, AHEAD_BYTES))
    fitting = _count_fitting(shards, SHUFFLE_RECORDS, SHUFFLE_BYTES)
    return data.shuffle(fitting, seed=seed) if shuffle else data


def _normalize(images: tf.Tensor, *rest: tf.Tensor, mean_std: MeanStd) -> tuple:
    """The batch with its images as float32, (pixel / 255 − mean) / std."""
    mean, std = np.asarray(mean_std, np.float32)
    factor, offset = 1 / (255 * std), mean / std
    # Compiled, it is one pass over a batch; op by op it would take longer than the decoding.
    scale = tf.function(
        lambda pixels: tf.cast(pixels, tf.float32) * factor - offset, jit_compile=True
    )
    return (scale(images), *rest)


def _read_once(
    shards: pd.DataFrame, decode: Callable[[tf.Tensor], tuple], batch_size: int
) -> tf.data.Dataset:
    """Full batches of each record once, then of blanks, as many as `count_steps` says."""
    steps, check = (
        count_steps(shards, batch_size, training=False),
        partial(_check_count, shards),
    )

    def is_wanted(step: tf.Tensor, counted: tuple) -> tf.Tensor:
        end = partial(tf.numpy_function, check, [counted[0]], tf.bool)
        return tf.cond(step < steps, lambda: True, end)

    def count(seen: tf.Tensor, batch: tuple) -> tuple:
        seen += tf.math.count_nonzero(batch[2])
        return seen, (seen, batch)

    data = _read_records(shards).map(decode, num_parallel_calls=CORES)
    blank = tf.nest.map_structure(
        lambda spec: tf.zeros(spec.shape, spec.dtype), data.element_spec
    )
    data = data.concatenate(tf.data.Dataset.from_tensors(blank).repeat())
    # One batch more than there should be: records beyond the promised ones would be in it.
    data = data.batch(batch_size, drop_remainder=True).scan(np.int64(0), count)
    data = data.enumerate().take_while(is_wanted).map(lambda _, counted: counted[1])
    return data.apply(tf.data.experimental.assert_cardinality(steps))


def _check_count(shards: pd.DataFrame, seen: int) -> bool:
    """False, to end a pass of so many records. Raises: ValueError, OSError for another number."""
    expected = int(shards["count"].sum())
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
    return max(
        1, min(records, most, size * records // max(1, int(shards["bytes"].sum())))
    )


def decode_record(
    record: tf.Tensor,
    *,
    schema: RecordSchema,
    size: tuple[int, int],
    crop: Crop,
    jpeg: bool = False,
    training: bool = True,
    flip: bool = False,
    one_hot: int = 0,
    extra: Sequence[str] = (),
) -> tuple:
    """(image, label), or (image, label, 1.0) when not training; then a dictionary of the extra.

    label: int64 class (−1 without one), float32 0/1 of several, or uint8 masks, stacked last.
    jpeg: every picture is one, so none is tested for it. flip: left to right, half of them.
    one_hot: the number of classes; 0 leaves the label a number. extra: names of features to add.
    """
    values = tf.io.parse_single_example(record, _choose_features(schema, extra))
    data = values[schema.image_key]
    pixels, window, whole = decode_window(data, size, crop, jpeg=jpeg)
    image = fit_to_size(pixels, size)
    parts = [values[name] for name in schema.label_keys]
    if schema.kind == "masks":
        label = tf.stack(
            [sample_mask(code, whole[0], window, size) for code in parts], -1
        )
    elif schema.kind == "multi":
        label = tf.concat(
            [tf.reshape(tf.cast(part, tf.float32), [-1]) for part in parts], 0
        )
    else:
        label = parts[0] if parts else tf.constant(-1, tf.int64)
    if one_hot:
        label = tf.one_hot(label, one_hot)
    if flip:
        turned = tf.random.uniform([]) < 0.5
        image = tf.cond(turned, lambda: tf.reverse(image, [1]), lambda: image)
        if schema.kind == "masks":
            label = tf.cond(turned, lambda: tf.reverse(label, [1]), lambda: label)
    more = [] if training else [1.0]
    return (
        image,
        label,
        *more,
        *([{name: values[name] for name in extra}] if extra else []),
    )


def _choose_features(schema: RecordSchema, extra: Sequence[str]) -> dict[str, Any]:
    """The part of the feature specification that a batch needs: parsing the rest takes time."""
    known = feature_spec(schema)
    for name in extra:
        if not isinstance(known.get(name), tf.io.FixedLenFeature):
            what = f"The feature '{name}' is not in the schema, or of no fixed length."
            raise ValueError(
                f"{what}{near_miss(name, known)} There are {', '.join(known)}."
            )
    return {
        name: known[name] for name in (schema.image_key, *schema.label_keys, *extra)
    }


def choose_window(shape: tf.Tensor, size: tuple[int, int], crop: Crop) -> tf.Tensor:
    """int32 (4,): top, left, height and width of the window to decode, in pixels.

    The largest of the target's proportions, anywhere or in the middle.
    shape: int32 (2,) height and width of the picture.
    """
    if crop not in get_args(Crop):
        raise ValueError(
            f"crop is '{crop}'. Set it to one of {', '.join(get_args(Crop))}."
        )
    # Few ops: each costs a hundredth of what the decoding does. In whole numbers, so that a
    # square target gets an exactly square window.
    other = shape[::-1]
    cut = tf.minimum(shape, other if size[0] == size[1] else other * size // size[::-1])
    room = shape - tf.maximum(1, cut)
    corner = room // 2
    if crop == "random":
        corner = tf.cast(
            tf.random.uniform([2]) * tf.cast(room + 1, tf.float32), tf.int32
        )
    return tf.concat([corner, shape - room], 0)


def decode_window(
    data: tf.Tensor,
    size: tuple[int, int],
    crop: Crop,
    *,
    jpeg: bool = False,
) -> tuple[tf.Tensor, ...]:
    """(h, w, 3) pixels of a window, the window, and int32 (2,) size of the whole picture.

    data: a JPEG (known to be one by `jpeg`), which alone is decoded in part, PNG, GIF, BMP or WebP.
    """

    def decode_jpeg() -> tuple[tf.Tensor, ...]:
        whole = tf.io.extract_jpeg_shape(data)[:2]
        window = choose_window(whole, size, crop)
        return tf.io.decode_and_crop_jpeg(data, window, channels=3), window, whole

    def decode_other() -> tuple[tf.Tensor, ...]:
        pixels = tf.io.decode_image(data, 3, expand_animations=False)
        whole = tf.shape(pixels)[:2]
        window = choose_window(whole, size, crop)
        top, left, height, width = tf.unstack(window)
        return pixels[top : top + height, left : left + width], window, whole

    # The test costs a fiftieth of the decoding.
    return (
        decode_jpeg()
        if jpeg
        else tf.cond(tf.io.is_jpeg(data), decode_jpeg, decode_other)
    )


def fit_to_size(pixels: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """(*size, 3), resized where the size differs."""

    def resize() -> tf.Tensor:
        # Antialias takes four times as long, and only a strong reduction shows its lack.
        smooth = tf.cond(
            tf.reduce_any(2 * tf.shape(pixels)[:2] > 3 * tf.constant(size)),
            lambda: tf.image.resize(pixels, size, antialias=True),
            lambda: tf.image.resize(pixels, size),
        )
        return tf.cast(tf.round(smooth), pixels.dtype)

    done = tf.reduce_all(tf.shape(pixels)[:2] == size)
    return tf.ensure_shape(tf.cond(done, lambda: pixels, resize), (*size, 3))


def sample_mask(
    code: tf.Tensor, height: tf.Tensor, window: tf.Tensor, size: Sequence[int]
) -> tf.Tensor:
    """uint8 (size[0], size[1]): 1 where the run-length code covers the picture, else 0.

    code: "start length start length …", pixels counted from 1 down the columns of the whole
        picture, which is `height` pixels high; starts ascend. "" covers nothing.
    window: the part of the picture that is fitted to `size`. Nearest pixel, centres aligned.
    """
    window = tf.cast(window, tf.int64)

    def find_positions(axis: int) -> tf.Tensor:
        step = tf.cast(window[2 + axis], tf.float64) / tf.cast(size[axis], tf.float64)
        source = tf.floor((tf.cast(tf.range(size[axis]), tf.float64) + 0.5) * step)
        return tf.cast(source, tf.int64) + window[axis]

    # Only the pixels we keep are looked up: the whole mask is never made.
    pixels = (
        find_positions(1)[None, :] * tf.cast(height, tf.int64)
        + find_positions(0)[:, None]
    )
    # A run far before the first pixel, so that every pixel has a last run before it.
    numbers = tf.strings.to_number(tf.strings.split([code]).values, tf.int64)
    runs = tf.concat([tf.constant([1 - (1 << 62), 0], tf.int64), numbers], 0)
    starts, lengths = runs[::2] - 1, runs[1::2]
    run = tf.searchsorted(starts, tf.reshape(pixels, [-1]), side="right") - 1
    return tf.cast(
        pixels < tf.reshape(tf.gather(starts + lengths, run), size), tf.uint8
    )
