"""From the bytes of a picture to an array of the size the model wants; all of it TensorFlow ops."""

import tensorflow as tf

WHERE = ("random", "center", "pad")


def decode_record(
    record: tf.Tensor,
    *,
    schema: RecordSchema,
    size: tuple[int, int],
    where: str,
    flip: bool = False,
    one_hot: int = 0,
    mean_std: tuple | None = None,
    extra: Sequence[str] = (),
    training: bool = True,
) -> tuple:
    """(image, label), or (image, label, features) when extra ones are asked for.

    flip: left to right, for every other picture.
    one_hot: the number of classes; 0 leaves the label a number.
    mean_std: send (image / 255 − mean) / std as float32: dearer than `normalization` on the device.
    extra: names of features to hand on.
    """
    values = tf.io.parse_single_example(record, choose_features(schema, extra))
    pixels, window, whole = decode_window(values[schema.image_key], size, where)
    image = fit_to_size(pixels, size, where)
    look_up = partial(sample_mask, height=whole[0], window=window, size=size, where=where)
    label = make_label(values, schema, look_up)
    if one_hot:
        label = tf.one_hot(label, one_hot)
    if flip:
        turned = tf.random.uniform([]) < 0.5
        image = tf.cond(turned, lambda: image[:, ::-1], lambda: image)
        if label.shape.rank == 3:
            label = tf.cond(turned, lambda: label[:, ::-1], lambda: label)
    if mean_std:
        scale, offset = scale_and_offset(*mean_std)
        image = tf.cast(image, tf.float32) * scale + offset
    mask = [] if training else [1.0]
    return (image, label, *mask, *([{name: values[name] for name in extra}] if extra else []))


def choose_window(height, width, size: tuple[int, int], where: str) -> tf.Tensor:
    """int32 (4,): top, left, height and width of what to cut out, in pixels.

    The largest window of the target's proportions, at a random place or in the middle; the whole
    picture for "pad".
    """
    if where == "pad":
        return tf.stack([0, 0, height, width])
    # In whole numbers: a square target must get an exactly square window.
    tall = height * size[1] > width * size[0]
    cut_height = tf.where(tall, tf.maximum(1, width * size[0] // size[1]), height)
    cut_width = tf.where(tall, width, tf.maximum(1, height * size[1] // size[0]))
    room = tf.stack([height - cut_height, width - cut_width])
    corner = room // 2
    if where == "random":
        corner = tf.cast(tf.random.uniform([2]) * tf.cast(room + 1, tf.float32), tf.int32)
        corner = tf.minimum(corner, room)  # uniform() times a large number can round up to it
    return tf.concat([corner, [cut_height, cut_width]], 0)


def decode_window(data: tf.Tensor, size: tuple[int, int], where: str) -> tuple[tf.Tensor, ...]:
    """uint8 (h, w, 3) pixels of a window, the window, and int32 (2,) height and width of it all.

    data: a JPEG, PNG, GIF, BMP or WebP as one string. Only a JPEG can be decoded in part.
    """

    def jpeg():
        whole = tf.io.extract_jpeg_shape(data)[:2]
        window = choose_window(whole[0], whole[1], size, where)
        return tf.io.decode_and_crop_jpeg(data, window, channels=3), window, whole

    def other():
        pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
        whole = tf.shape(pixels)[:2]
        window = choose_window(whole[0], whole[1], size, where)
        top, left, height, width = tf.unstack(window)
        return pixels[top : top + height, left : left + width], window, whole

    return tf.cond(tf.io.is_jpeg(data), jpeg, other)


def fit_to_size(pixels: tf.Tensor, size: tuple[int, int], where: str) -> tf.Tensor:
    """uint8 (size[0], size[1], 3), resized only if need be; "pad" keeps proportions, adds black."""

    def resize():
        target = _inner_size(tf.shape(pixels), size) if where == "pad" else size
        # Without antialias a picture shrunk below half turns to noise.
        smooth = tf.image.resize(pixels, target, antialias=True)
        whole = tf.cast(tf.clip_by_value(tf.round(smooth), 0, 255), tf.uint8)
        margin = (size - tf.shape(whole)[:2]) // 2
        return tf.image.pad_to_bounding_box(whole, margin[0], margin[1], *size)

    done = tf.reduce_all(tf.shape(pixels)[:2] == size)
    return tf.ensure_shape(tf.cond(done, lambda: pixels, resize), (*size, 3))


def sample_mask(code: tf.Tensor, height, window: tf.Tensor, size, where: str) -> tf.Tensor:
    """uint8 (size[0], size[1]): 1 where the run-length code covers the picture, else 0.

    code: "start length start length …", pixels counted from 1 down the columns of the whole
        picture, which is `height` pixels high; starts ascend. "" covers nothing.
    window: what was cut out and fitted to `size`. Nearest pixel, centres aligned.
    """
    runs = tf.strings.to_number(tf.strings.split([code]).values, tf.int64)
    starts, lengths = runs[::2] - 1, runs[1::2]
    inner = _inner_size(window[2:], size) if where == "pad" else tf.constant(size)
    rows, in_rows = _source_pixels(size[0], inner[0], window[0], window[2])
    columns, in_columns = _source_pixels(size[1], inner[1], window[1], window[3])
    pixels = tf.reshape(columns[None, :] * tf.cast(height, tf.int64) + rows[:, None], [-1])
    # Only the pixels we keep are looked up: the whole mask is never made.
    run = tf.searchsorted(starts, pixels, side="right") - 1
    ends = tf.concat([starts + lengths, [0]], 0)  # −1, "before the first run", finds the last one
    inside = pixels < tf.gather(ends, tf.where(run < 0, tf.size(starts), run))
    mask = tf.reshape(inside, size) & in_rows[:, None] & in_columns[None, :]
    return tf.cast(mask, tf.uint8)


def _inner_size(shape: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """int32 (2,): the largest height and width of the picture's proportions within `size`."""
    have = tf.cast(shape[:2], tf.float32)
    scale = tf.reduce_min(tf.constant(size, tf.float32) / have)
    return tf.clip_by_value(tf.cast(tf.round(have * scale), tf.int32), 1, size)


def _source_pixels(wanted: int, inner, first, length) -> tuple[tf.Tensor, tf.Tensor]:
    """int64 (wanted,) positions in the source, and whether each is inside, along one axis."""
    place = tf.range(wanted) - (wanted - inner) // 2
    step = tf.cast(length, tf.float64) / tf.cast(inner, tf.float64)
    source = tf.cast(tf.floor((tf.cast(place, tf.float64) + 0.5) * step), tf.int64)
    source = tf.clip_by_value(source, 0, tf.cast(length, tf.int64) - 1)
    return source + tf.cast(first, tf.int64), (place >= 0) & (place < inner)
