"""Mean and standard deviation of red, green and blue over every pixel, of files or of records.

The two differ: the files are the originals in full size, the records the resized pictures as a
model gets them, and a large original weighs by all its pixels.
"""

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.images import RefusedImage, read_pixels
from kaggle_tfr.progress import blocks, run
from kaggle_tfr.schema import RecordSchema
from kaggle_tfr.shards import list_shards

BLOCK = 32  # images a task
CHANNELS = ("R", "G", "B")


def channel_stats_of_files(images: pd.DataFrame) -> dict:
    """{"mean": {"R", "G", "B"}, "std": {…}, "images", "pixels"}, in grey levels from 0 to 255.

    Exact over all pixels of the good rows: sums are whole numbers, so their order cannot matter.
    """
    good = images[images["problem"] == ""] if "problem" in images else images
    tasks = blocks(good["path"].tolist(), BLOCK)
    results = run(
        _sum_files, tasks, label="Pixels of files", total=sum(map(len, tasks)), advance=_images_of
    )
    return _combine(results)


def channel_stats_of_records(folders: str | Sequence[str]) -> dict:
    """The same of the pictures inside records. folders: part folders, or folders of them."""
    shards = list_shards(folders)
    tasks = list(zip(shards["file"], shards["compression"], shards["schema"], strict=True))
    total = max(int(shards["count"].sum()), 1)
    return _combine(
        run(_sum_shard, tasks, label="Pixels of records", total=total, advance=_images_of)
    )


def save_stats(stats: dict, path: str) -> None:
    """Writes them as JSON. `stats["mean"]` alone is the {"R", "G", "B"} of ImageNet scripts."""
    storage.write_atomically(path, (json.dumps(stats, indent=1) + "\n").encode())


def _sum_files(paths):
    totals = np.zeros(8, object)
    for path in paths:
        # An image that went bad since it was measured is the writer's to report.
        try:
            totals += _sums_of(read_pixels(storage.read_bytes(path)))
        except (FileNotFoundError, RefusedImage):
            continue
    return totals


def _sum_shard(task):
    file, compression, text = task
    key = RecordSchema.from_json(text).image_key
    totals = np.zeros(8, object)
    if compression == "?":
        compression = "GZIP" if _starts_as_gzip(file) else ""
    for record in tf.data.TFRecordDataset(file, compression).as_numpy_iterator():
        data = tf.train.Example.FromString(record).features.feature[key].bytes_list.value[0]
        totals += _sums_of(_decode(data))
    return totals


def _decode(data):
    if data[:2] == b"\xff\xd8":
        # TensorFlow's default, INTEGER_FAST, is 0.8 grey levels too dark on average.
        return tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE").numpy()
    return tf.io.decode_image(data, channels=3, expand_animations=False).numpy()


def _sums_of(pixels):
    """Whole numbers: images, pixels, three sums, three sums of squares."""
    flat = pixels.reshape(-1, 3)
    squares = np.square(flat, dtype=np.uint16).sum(axis=0, dtype=np.uint64)
    sums = flat.sum(axis=0, dtype=np.uint64)
    return np.array([1, len(flat), *sums.tolist(), *squares.tolist()], object)


def _combine(results):
    totals = sum(results, np.zeros(8, object))
    images, pixels, *sums = totals.tolist()
    if not pixels:
        raise ValueError("there is no pixel to average: no good image, or no record.")
    # Python's whole numbers do not round: (n·Σx² − (Σx)²) / n² keeps every digit.
    variance = [
        (pixels * square - total * total) / pixels**2
        for total, square in zip(sums[:3], sums[3:], strict=True)
    ]
    return {
        "mean": {name: total / pixels for name, total in zip(CHANNELS, sums, strict=False)},
        "std": {name: value**0.5 for name, value in zip(CHANNELS, variance, strict=True)},
        "images": images,
        "pixels": pixels,
    }


def _images_of(totals):
    return int(totals[0])


def _starts_as_gzip(file):
    with tf.io.gfile.GFile(file, "rb") as shard:
        return shard.read(3) == b"\x1f\x8b\x08"
