"""What a reader wants to see of finished parts: records beside sources, masks, speed."""

import io
import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.read.batches import choose_fold, read_images
from kaggle_tfr.read.decode import decode_window, fit_to_size
from kaggle_tfr.schema import RecordSchema
from kaggle_tfr.storage import exists, join, read_parquet


def find_sources(work_dir: str) -> dict[str, str]:
    """image_id → path of the source, from plan.parquet; {} where there is no plan."""
    path = join(work_dir, "plan.parquet")
    if not exists(path):
        return {}
    table = read_parquet(path, columns=["image_id", "path"])
    return dict(zip(table["image_id"], table["path"], strict=True))


def list_fields(schema: RecordSchema) -> pd.DataFrame:
    """One row a feature of the record: its name, type, and what it is made of."""
    rows = [(field.name, field.type, field.source) for field in schema.fields]
    return pd.DataFrame(rows, columns=["feature", "type", "made of"]).set_index("feature")


def choose_shown_shards(shards: pd.DataFrame, fold: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(training, validation) shards; all shards twice where there is nothing to validate on."""
    try:
        return choose_fold(shards, fold)
    except ValueError as error:
        print(f"{error} Showing all shards.")
        return shards, shards


def name_labels(labels: np.ndarray, classes: Sequence) -> list[str]:
    """A title for each image of a batch.

    labels: int64 (n,) classes, 0/1 (n, classes), or masks (n, height, width, classes).
    """
    if labels.ndim == 1:
        return [str(classes[label]) for label in labels]
    present = labels if labels.ndim == 2 else labels.any(axis=(1, 2))
    return [", ".join(str(classes[c]) for c in np.flatnonzero(row)) or "none" for row in present]


def pair_with_sources(shards: pd.DataFrame, sources: Mapping[str, str], count=9):
    """([(source, record), …], [(title, title), …]) of the first records of the first shard.

    sources: image_id → path. Where the sources are not at hand, both lists are empty.
    """
    shard = shards.iloc[0]
    table = storage.join(shard["folder"], f"{shard['split']}.csv")
    if not sources or not storage.exists(table):
        return [], []
    rows = pd.read_csv(io.BytesIO(storage.read_bytes(table)), dtype={"image_id": str}, nrows=10_000)
    name = shard["file"][len(shard["folder"]) :].lstrip("/")
    rows = rows[rows["file"] == name].sort_values("record").head(count)
    records = read_images(shards.head(1)).take(count).as_numpy_iterator()
    key = shard["schema"].image_key
    pictures, titles = [], []
    for record, row in zip(records, rows.itertuples(), strict=False):
        path = sources.get(row.image_id, "")
        if not storage.exists(path):
            continue
        source = tf.io.decode_image(storage.read_bytes(path), 3, expand_animations=False).numpy()
        shape = "{1} × {0}".format(*source.shape)
        pictures.append((source, record[key]))
        size = "{1} × {0}".format(*record[key].shape)
        titles.append((f"{row.image_id}\n{shape}", f"record {row.record}\n{size}"))
    return pictures, titles


def first_masks(shards: pd.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(picture, {label: mask}) of the first record that has a mask; of the first one if none has.

    uint8 (height, width, 3) and uint8 (height, width).
    """
    schema = shards["schema"].iloc[0]
    found = None
    for record in read_images(shards).take(50).as_numpy_iterator():
        masks = {key: record[key] for key in schema.label_keys}
        found = found or (record[schema.image_key], masks)
        if any(mask.any() for mask in masks.values()):
            return record[schema.image_key], masks
    return found


def count_images(batches: tf.data.Dataset) -> int:
    """Images that validation batches hold, their padding left out."""
    return int(batches.reduce(np.float64(0), _add_mask).numpy())


def _add_mask(total: tf.Tensor, batch: tuple) -> tf.Tensor:
    return total + tf.reduce_sum(tf.cast(batch[2], tf.float64))


def read_files(paths: Sequence[str], image_size, batch_size: int) -> tf.data.Dataset:
    """uint8 batches (batch_size, height, width, 3), endless, from single image files.

    What a training loop without records does: open, read, decode and crop each file, in parallel.
    """
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    paths = [path for path in paths if path.lower().endswith((".jpg", ".jpeg", ".png"))]
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).repeat()
    read = partial(_read_file, size=size)
    data = data.map(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    return data.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def _read_file(path: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    pixels = decode_window(tf.io.read_file(path), size, "random")[0]
    return fit_to_size(pixels, size, "random")


def measure_speed(batches: tf.data.Dataset, seconds: float = 3.0) -> float:
    """Images per second that an endless dataset gives, after its first batches."""
    iterator = iter(batches)
    for _ in range(3):  # the first ones pay for tracing and for filling the buffers
        next(iterator)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        images = tf.nest.flatten(next(iterator))[0]
        count += int(images.shape[0])
    return count / (time.perf_counter() - start)


def compare_speeds(ways: Mapping[str, tf.data.Dataset], rounds: int = 3) -> pd.DataFrame:
    """Median images per second of each way and its ratio to the first, measured in turns."""
    taken = {name: [] for name in ways}
    for _ in range(rounds):
        for name, batches in ways.items():
            taken[name].append(measure_speed(batches, 1.0))
    table = pd.DataFrame({"images/s": pd.DataFrame(taken).median()}).rename_axis("from")
    return table.assign(ratio=table["images/s"] / table["images/s"].iloc[0])
