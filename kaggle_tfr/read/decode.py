"""From a record to a picture of the size the model wants and its label; all TensorFlow ops."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import tensorflow as tf

from kaggle_tfr.paths import near_miss
from kaggle_tfr.schema import RecordSchema, feature_dict

Crop = Literal["random", "center", "pad"]


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
    data, dtype = values[schema.image_key], schema.image_dtype
    pixels, window, whole = decode_window(data, size, crop, jpeg=jpeg, dtype=dtype)
    image = fit_to_size(pixels, size, crop)
    parts = [values[name] for name in schema.label_keys]
    if schema.kind == "masks":
        label = tf.stack([sample_mask(code, whole[0], window, size, crop) for code in parts], -1)
    elif schema.kind == "multi":
        label = tf.concat([tf.reshape(tf.cast(part, tf.float32), [-1]) for part in parts], 0)
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
    return (image, label, *more, *([{name: values[name] for name in extra}] if extra else []))


def _choose_features(schema: RecordSchema, extra: Sequence[str]) -> dict[str, Any]:
    """The part of the feature specification that a batch needs: parsing the rest takes time."""
    known = feature_dict(schema)
    for name in extra:
        if not isinstance(known.get(name), tf.io.FixedLenFeature):
            what = f"The feature '{name}' is not in the schema, or of no fixed length."
            raise ValueError(f"{what}{near_miss(name, known)} There are {', '.join(known)}.")
    return {name: known[name] for name in (schema.image_key, *schema.label_keys, *extra)}


def choose_window(shape: tf.Tensor, size: tuple[int, int], crop: Crop) -> tf.Tensor:
    """int32 (4,): top, left, height and width of the window to decode, in pixels.

    The largest of the target's proportions, anywhere or in the middle; for "pad" the whole picture.
    shape: int32 (2,) height and width of the picture.
    """
    if crop not in get_args(Crop):
        raise ValueError(f"crop is '{crop}'. Set it to one of {', '.join(get_args(Crop))}.")
    if crop == "pad":
        return tf.concat([[0, 0], shape], 0)
    # Few ops: each costs a hundredth of what the decoding does. In whole numbers, so that a
    # square target gets an exactly square window.
    other = shape[::-1]
    cut = tf.minimum(shape, other if size[0] == size[1] else other * size // size[::-1])
    room = shape - tf.maximum(1, cut)
    corner = room // 2
    if crop == "random":
        corner = tf.cast(tf.random.uniform([2]) * tf.cast(room + 1, tf.float32), tf.int32)
    return tf.concat([corner, shape - room], 0)


def decode_window(
    data: tf.Tensor, size: tuple[int, int], crop: Crop, *, jpeg: bool = False, dtype: str = "uint8"
) -> tuple[tf.Tensor, ...]:
    """(h, w, 3) pixels of a window, the window, and int32 (2,) size of the whole picture.

    data: a JPEG (known to be one by `jpeg`), which alone is decoded in part, PNG, GIF, BMP or WebP.
    """

    def decode_jpeg() -> tuple[tf.Tensor, ...]:
        whole = tf.io.extract_jpeg_shape(data)[:2]
        window = choose_window(whole, size, crop)
        return tf.io.decode_and_crop_jpeg(data, window, channels=3), window, whole

    def decode_other() -> tuple[tf.Tensor, ...]:
        pixels = tf.io.decode_image(data, 3, dtype, expand_animations=False)
        whole = tf.shape(pixels)[:2]
        window = choose_window(whole, size, crop)
        top, left, height, width = tf.unstack(window)
        return pixels[top : top + height, left : left + width], window, whole

    if dtype != "uint8":
        return decode_other()
    # The test costs a fiftieth of the decoding.
    return decode_jpeg() if jpeg else tf.cond(tf.io.is_jpeg(data), decode_jpeg, decode_other)


def fit_to_size(pixels: tf.Tensor, size: tuple[int, int], crop: Crop) -> tf.Tensor:
    """(*size, 3), resized where the size differs; "pad" keeps proportions, adds black."""

    def resize() -> tf.Tensor:
        target = _inner_size(tf.shape(pixels), size) if crop == "pad" else tf.constant(size)
        # Antialias takes four times as long, and only a strong reduction shows its lack.
        smooth = tf.cond(
            tf.reduce_any(2 * tf.shape(pixels)[:2] > 3 * target),
            lambda: tf.image.resize(pixels, target, antialias=True),
            lambda: tf.image.resize(pixels, target),
        )
        whole = tf.cast(tf.round(smooth), pixels.dtype)
        if crop != "pad":
            return whole
        margin = (size - target) // 2
        return tf.image.pad_to_bounding_box(whole, margin[0], margin[1], *size)

    done = tf.reduce_all(tf.shape(pixels)[:2] == size)
    return tf.ensure_shape(tf.cond(done, lambda: pixels, resize), (*size, 3))


def sample_mask(
    code: tf.Tensor, height: tf.Tensor, window: tf.Tensor, size: Sequence[int], crop: Crop
) -> tf.Tensor:
    """uint8 (size[0], size[1]): 1 where the run-length code covers the picture, else 0.

    code: "start length start length …", pixels counted from 1 down the columns of the whole
        picture, which is `height` pixels high; starts ascend. "" covers nothing.
    window: the part of the picture that is fitted to `size`. Nearest pixel, centres aligned.
    """
    window = tf.cast(window, tf.int64)
    inner = _inner_size(window[2:], size) if crop == "pad" else size

    def find_positions(axis: int) -> tf.Tensor:
        place = tf.cast(tf.range(size[axis]) - (size[axis] - inner[axis]) // 2, tf.float64)
        step = tf.cast(window[2 + axis], tf.float64) / tf.cast(inner[axis], tf.float64)
        source = tf.cast(tf.floor((place + 0.5) * step), tf.int64)
        inside = (source >= 0) & (source < window[2 + axis])
        return tf.where(inside, source + window[axis], -(1 << 40))  # before any pixel

    # Only the pixels we keep are looked up: the whole mask is never made.
    pixels = find_positions(1)[None, :] * tf.cast(height, tf.int64) + find_positions(0)[:, None]
    # A run far before the first pixel, so that every pixel has a last run before it.
    numbers = tf.strings.to_number(tf.strings.split([code]).values, tf.int64)
    runs = tf.concat([tf.constant([1 - (1 << 62), 0], tf.int64), numbers], 0)
    starts, lengths = runs[::2] - 1, runs[1::2]
    run = tf.searchsorted(starts, tf.reshape(pixels, [-1]), side="right") - 1
    return tf.cast(pixels < tf.reshape(tf.gather(starts + lengths, run), size), tf.uint8)


def _inner_size(shape: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
    """int32 (2,): the largest height and width of the picture's proportions within `size`."""
    have = tf.cast(shape[:2], tf.float32)
    scale = tf.reduce_min(tf.constant(size, tf.float32) / have)
    return tf.clip_by_value(tf.cast(tf.round(have * scale), tf.int32), 1, size)
