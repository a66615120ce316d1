"""What to look at in finished parts: records beside their sources, masks, speed."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.images.colour import RefusedImage, read_upright
from kaggle_tfr.read.batches import choose_fold, read_images
from kaggle_tfr.read.decode import as_size, decode_window, fit_to_size

TRIED_FILES = 64  # to learn whether TensorFlow reads the sources at all


def find_sources(work_dir: str) -> dict[str, str]:
    """image_id → path of the source, from plan.parquet; {} where there is no plan."""
    path = storage.join(work_dir, "plan.parquet")
    if not storage.exists(path):
        return {}
    table = storage.read_parquet(path, columns=["image_id", "path"])
    return dict(zip(table["image_id"], table["path"], strict=True))


def choose_shown_shards(shards: pd.DataFrame, fold: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(training, validation) shards; all shards twice where there is nothing to validate on."""
    try:
        return choose_fold(shards, fold)
    except ValueError as error:
        print(f"{error} Showing all shards.")
        return shards, shards


def name_labels(labels: np.ndarray, classes: Sequence[Any]) -> list[str]:
    """A title for each image of a batch.

    labels: int64 (n,) classes, 0/1 (n, classes), or masks (n, height, width, classes).
    """
    if labels.ndim == 1:
        return [str(classes[label]) for label in labels.tolist()]
    present = labels if labels.ndim == 2 else np.any(labels, axis=(1, 2))
    return [
        ", ".join(str(classes[c]) for c in np.flatnonzero(row).tolist()) or "none"
        for row in present
    ]


def pair_with_sources(
    shards: pd.DataFrame, sources: Mapping[str, str], count: int = 9
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[str, str]]]:
    """([(source, record), …], [(title, title), …]) of the first records of the first shard.

    Both uint8 (height, width, 3), upright. Empty lists without any source.
    sources: image_id → path.
    """
    shard = shards.iloc[0]
    key, pictures, titles = shard["schema"].image_key, [], []
    ids = _find_ids(shard, count) if sources else {}
    records = read_images(shards.head(1)).take(len(ids) and count).as_numpy_iterator()
    for number, record in enumerate(records):
        path = sources.get(ids.get(number, ""), "")
        if not storage.exists(path):
            continue
        try:
            source = read_upright(storage.read_bytes(path))
        except RefusedImage:  # changed since it was written
            continue
        pictures.append((source, record[key]))
        sizes = [f"{width} × {height}" for height, width, _ in (source.shape, record[key].shape)]
        titles.append((f"{ids[number]}\n{sizes[0]}", f"record {number}\n{sizes[1]}"))
    return pictures, titles


def _find_ids(shard: pd.Series, count: int) -> dict[int, str]:
    """Record number → image_id of a shard's first records, from the CSV of its split."""
    table = storage.join(shard["folder"], f"{shard['split']}.csv")
    if not storage.exists(table):
        return {}
    name = shard["file"][len(shard["folder"]) :].lstrip("/")
    columns = {"image_id": str, "file": str, "record": int}
    ids: dict[int, str] = {}
    with storage.on_disk(table) as local:
        for rows in pd.read_csv(
            local, usecols=list(columns), dtype=columns, chunksize=100_000, keep_default_na=False
        ):
            own = rows[(rows["file"] == name) & (rows["record"] < count)]
            ids |= dict(zip(own["record"], own["image_id"], strict=True))
            if len(ids) >= min(count, shard["count"]):
                break
    return ids


def first_masks(shards: pd.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(picture, {label: mask}) of the first record that has a mask; of the first one if none has.

    uint8 (height, width, 3) and uint8 (height, width).
    """
    schema = shards["schema"].iloc[0]
    records = read_images(shards).take(50).as_numpy_iterator()
    shown = ((r[schema.image_key], {key: r[key] for key in schema.label_keys}) for r in records)
    first = next(shown)
    with_masks = (s for s in chain([first], shown) if any(mask.any() for mask in s[1].values()))
    return next(with_masks, first)


def count_images(batches: tf.data.Dataset) -> int:
    """Images that validation batches hold, their padding left out."""
    return sum(int(tf.math.count_nonzero(batch[2])) for batch in batches)


def read_files(
    paths: Sequence[str], image_size: int | Sequence[int], batch_size: int
) -> tf.data.Dataset | None:
    """uint8 batches (batch_size, height, width, 3), endless, from single image files.

    What a training loop without records does: open, read, decode and crop each file, in parallel.
    Files that TensorFlow cannot decode are left out; None, which is printed, where all seem to be.
    """
    read = partial(_read_file, size=as_size(image_size))
    tried = np.random.default_rng(0).permutation(paths)[:TRIED_FILES].tolist()
    files = tf.data.Dataset.from_tensor_slices(tf.constant(tried, tf.string))
    readable = sum(1 for _ in files.map(read).ignore_errors())
    if readable < len(tried):
        print(f"TensorFlow reads {readable} of {len(tried)} single files; it skips the others.")
    if not readable:
        return None
    data = tf.data.Dataset.from_tensor_slices(list(paths)).shuffle(len(paths)).repeat()
    data = data.map(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False).ignore_errors()
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


def compare_speeds(ways: Mapping[str, tf.data.Dataset | None], rounds: int = 3) -> pd.DataFrame:
    """Median images per second of each way and its ratio to the first, measured in turns.

    A way that is None is left out.
    """
    rates: dict[str, list[float]] = {name: [] for name, way in ways.items() if way is not None}
    for _ in range(rounds):
        for name, taken in rates.items():
            taken.append(measure_speed(ways[name], 1.0))
    table = pd.DataFrame({"images/s": pd.DataFrame(rates).median()}).rename_axis("from")
    return table.assign(ratio=table["images/s"] / table["images/s"].iloc[0])
