"""The readers that benchmarks.read compares; each returns endless batches of images."""

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr.read.batches import choose_window, read_batches, to_devices
from kaggle_tfr.read.records import Records

AUTOTUNE = tf.data.AUTOTUNE
# Red, green, blue, of ImageNet's images scaled to 0…1.
MEAN, STD = IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "height": tf.io.FixedLenFeature([], tf.int64),
    "width": tf.io.FixedLenFeature([], tf.int64),
}


def parse_image(record):
    """Return the bytes of the image of a serialized record."""
    image = {"image": FEATURES["image"]}
    return tf.io.parse_single_example(record, image)["image"]


def decode_alone(setting):
    """Read records and decode whole images in parallel: the upper limit of speed."""

    def decode(record):
        encoded = parse_image(record)
        return tf.io.decode_jpeg(encoded, channels=3)[0, 0, 0]

    data = tf.data.TFRecordDataset(list(setting.shards["file"])).repeat()
    data = data.map(decode, num_parallel_calls=AUTOTUNE, deterministic=False)
    return data.batch(setting.batch).prefetch(AUTOTUNE)


def batch_alone(setting):
    """Decode, cut a window, batch: the least that TensorFlow needs for a batch."""

    def decode(record):
        encoded = parse_image(record)
        shape = tf.io.extract_jpeg_shape(encoded)[:2]
        window = choose_window(shape, (setting.side, setting.side), training=True)
        image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
        return tf.ensure_shape(image, (setting.side, setting.side, 3))

    data = tf.data.TFRecordDataset(list(setting.shards["file"])).repeat()
    data = data.map(decode, num_parallel_calls=AUTOTUNE, deterministic=False)
    return data.batch(setting.batch).prefetch(AUTOTUNE)


def landmark(setting, calls=None):
    """Read as the landmark notebook: serial, whole decode, random square, float32."""

    def decode(record):
        values = tf.io.parse_single_example(record, FEATURES)
        image = tf.io.decode_jpeg(values["image"], channels=3)
        height, width = values["height"], values["width"]
        side = tf.minimum(height, width)
        if height != width:
            top = tf.random.uniform([], 0, height - side + 1, tf.int64)
            left = tf.random.uniform([], 0, width - side + 1, tf.int64)
            image = tf.slice(image, [top, left, 0], [side, side, 3])
        image = tf.reshape(image, [side, side, 3])
        image = tf.image.resize(image, (setting.side, setting.side))
        image = tf.cast(image, tf.float32) / 255
        return (image - MEAN) / STD

    data = tf.data.TFRecordDataset(
        list(setting.shards["file"]), num_parallel_reads=calls
    )
    data = data.repeat().map(decode, num_parallel_calls=calls).batch(setting.batch)
    return data.prefetch(AUTOTUNE) if calls else data


def cassava(setting):
    """Read as the cassava notebook: parallel, whole decode, resized, then shuffled."""

    def decode(record):
        values = tf.io.parse_single_example(record, FEATURES)
        image = (
            tf.cast(tf.io.decode_jpeg(values["image"], channels=3), tf.float32) / 255
        )
        return tf.image.resize(image, (setting.side, setting.side))

    options = tf.data.Options()
    options.deterministic = False
    data = tf.data.TFRecordDataset(
        list(setting.shards["file"]), num_parallel_reads=AUTOTUNE
    )
    data = data.with_options(options).map(decode, num_parallel_calls=AUTOTUNE)
    return data.repeat().shuffle(512).batch(setting.batch).prefetch(AUTOTUNE)


def tensorflow_datasets(setting):
    """Read the same shards by TFDS, and decode a random window only."""
    import tensorflow_datasets as tfds

    def decode(features):
        side = setting.side
        encoded = features["image"]
        shape = tf.io.extract_jpeg_shape(encoded)[:2]
        window = choose_window(shape, (side, side), training=True)
        image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
        return tf.ensure_shape(image, (side, side, 3))

    folder = setting.shards["folder"].iloc[0]
    _describe_for_tfds(setting.shards, folder)
    data = tfds.builder_from_directory(folder).as_dataset(
        split="train",
        shuffle_files=True,
        decoders={"image": tfds.decode.SkipDecoding()},
    )
    data = data.repeat().shuffle(1000).map(decode, num_parallel_calls=AUTOTUNE)
    return data.batch(setting.batch).prefetch(AUTOTUNE)


def _describe_for_tfds(shards, folder):
    """Write the two files that TFDS reads beside the shards."""
    import tensorflow_datasets as tfds

    split = tfds.core.SplitInfo(
        name="train",
        shard_lengths=shards["count"].tolist(),
        num_bytes=int(shards["bytes"].sum()),
        filename_template=tfds.core.ShardedFileTemplate(
            data_dir=folder, template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        ),
    )
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features={
            "image": tfds.features.Image(),
            "label": tfds.features.ClassLabel(names=["a"]),
        },
        split_infos=[split],
        check_data=False,
    )


def single_files(setting):
    """Read single JPEG files: decoded, cut and resized in parallel, not normalised."""

    def decode(file):
        image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
        side = tf.reduce_min(tf.shape(image)[:2])
        image = tf.image.random_crop(image, [side, side, 3])
        return tf.cast(tf.image.resize(image, (setting.side, setting.side)), tf.uint8)

    files = sorted(str(path) for path in Path(setting.folder).glob("*.jpg"))
    data = tf.data.Dataset.from_tensor_slices(files).repeat().shuffle(len(files))
    data = data.map(decode, num_parallel_calls=AUTOTUNE, deterministic=False)
    return data.batch(setting.batch).prefetch(AUTOTUNE)


def ours(setting, **choices):
    return read_batches(
        setting.shards,
        image_size=setting.side,
        batch_size=setting.batch,
        training=True,
        **choices,
    )


def one_long_epoch(setting):
    """Read the shards listed four times: measures what the end of an epoch costs."""
    shards = pd.concat([setting.shards] * 4)
    return ours(SimpleNamespace(**vars(setting) | {"shards": shards}))


class ByXla:
    """Our uint8 batches, normalised by a compiled step outside tf.data."""

    def __init__(self, setting):
        self.data = ours(setting)
        scale = 1 / (255 * np.array(STD))
        offset = -np.divide(MEAN, STD)
        layer = keras.layers.Rescaling(scale, offset, dtype="float32")
        self.step = tf.function(layer, jit_compile=True)

    def __iter__(self):
        return (self.step(images) for images, _ in self.data)


class ToDevices:
    """Our uint8 batches as JAX arrays, split over all devices of JAX."""

    def __init__(self, setting):
        import jax

        self.data = ours(setting)
        self.devices = jax.devices()
        self.wait = jax.block_until_ready

    def __iter__(self):
        return map(self.wait, to_devices(self.data, self.devices))


def cut_window(side, example):
    """Return uint8 (side, side, 3): a random window of the image of a record."""
    pixels, _ = example
    room = np.subtract(pixels.shape[:2], side - 1)
    top, left = np.random.randint(0, room)  # noqa: NPY002
    return pixels[top : top + side, left : left + side]


def records_alone(setting):
    """Read shuffled records by number in one thread."""
    records = Records(setting.shards)
    random = np.random.default_rng(0)
    while True:
        numbers = random.integers(len(records), size=setting.batch)
        windows = [cut_window(setting.side, records[number]) for number in numbers]
        yield np.stack(windows)


def grain_threads(setting):
    """Read shuffled records by grain, with a thread for each core."""
    import grain

    data = grain.MapDataset.source(Records(setting.shards)).shuffle(seed=0).repeat()
    options = grain.ReadOptions(num_threads=os.cpu_count(), prefetch_buffer_size=64)
    data = data.map(partial(cut_window, setting.side)).to_iter_dataset(options)
    return data.batch(setting.batch, drop_remainder=True)


def torch_workers(setting):
    """Read shuffled records by PyTorch, with a worker process for each core."""
    import torch

    def collate(examples):
        windows = [cut_window(setting.side, example) for example in examples]
        return torch.from_numpy(np.stack(windows))

    records = Records(setting.shards)
    workers = os.cpu_count()
    order = torch.utils.data.RandomSampler(records, num_samples=1_000_000)
    options = {"sampler": order, "num_workers": workers, "collate_fn": collate}
    return torch.utils.data.DataLoader(records, setting.batch, **options)


# Readers whose CPU time is compared, each with the package it needs. PyTorch forks its
# processes, so these run before JAX starts.
COSTS = {
    "tf.data": ("tensorflow", ours),
    "Records": ("numpy", records_alone),
    "grain threads": ("grain", grain_threads),
    "torch workers": ("torch", torch_workers),
}
WAYS = {
    "decode alone": decode_alone,
    "decode, cut and batch alone": batch_alone,
    "ours, uint8": ours,
    "ours, uint8, to JAX's devices": ToDevices,
    "ours, uint8, an epoch of 4,000": one_long_epoch,
    "ours, float32 by XLA": ByXla,
    "landmark notebook": landmark,
    "landmark notebook, AUTOTUNE": partial(landmark, calls=AUTOTUNE),
    "cassava notebook": cassava,
    "TensorFlow Datasets": tensorflow_datasets,
    "single files": single_files,
    "Records": records_alone,
}
