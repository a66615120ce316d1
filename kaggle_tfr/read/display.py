"""What 05 displays of finished parts: records beside their sources, masks, speed."""

from __future__ import annotations

import io
import textwrap
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.header import RejectedImage, read_upright
from kaggle_tfr.parameters import as_size
from kaggle_tfr.read.batches import (
    CORES,
    choose_fold,
    choose_window,
    cut_window,
    decode_record,
    fit_to_size,
    one_schema,
    read_batches,
    read_images,
)
from kaggle_tfr.records import PER_IMAGE_ERRORS, read_image_bytes
from kaggle_tfr.schema import feature_spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import tensorflow as tf
else:
    from kaggle_tfr.session import tf


def choose_displayed_shards(
    shards: pd.DataFrame, fold: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the training and the validation shards of a fold, or all shards twice.

    All shards, without test shards if there are others, if the fold has no validation.
    """
    try:
        return choose_fold(shards, fold)
    except ValueError as error:
        print(f"{error} Showing all shards.")

    labelled = shards[shards["split"] != "test"]
    displayed = shards if labelled.empty else labelled
    return displayed, displayed


def format_labels(labels: np.ndarray, classes: Sequence[Any]) -> list[str]:
    """Return the names of each image's labels, "" for an image without a label.

    labels: of `read_batches`: classes (n,) from −1, flags (n, classes), or masks
        (n, height, width, classes).
    """
    names = [str(name) for name in classes]
    absent = "" if labels.ndim == 1 else "none"
    return [
        ", ".join(np.compress(flags, names)) or absent
        for flags in _find_flags(labels, len(names))
    ]


def _find_flags(labels: np.ndarray, n_classes: int) -> np.ndarray:
    """Return which classes each image has, bool (n, classes), of labels of any form."""
    if labels.ndim == 1:
        return labels[:, None] == np.arange(n_classes)
    return labels > 0 if labels.ndim == 2 else np.any(labels, axis=(1, 2))


def pair_with_sources(
    shards: pd.DataFrame, work_dir: str
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[str, str]]]:
    """Pair the first nine records with their source images, and make a title for each.

    Returns (source, record) images, uint8 (h, w, 3), upright, and their titles. Empty
    unless WORK_DIR has the plan, and the part the CSV of the split; a record whose
    source is missing is left out.
    """
    shard = shards.iloc[0]
    sources = _find_sources(shard, work_dir)
    image_key = shard["schema"].image_key
    images: list[tuple[np.ndarray, np.ndarray]] = []
    titles: list[tuple[str, str]] = []
    if not sources:
        return images, titles

    records = read_images(shards.head(1)).take(9)
    for number, record in enumerate(records.as_numpy_iterator()):
        image_id, path = sources.get(number, ("", ""))
        try:
            source = read_upright(read_image_bytes(path))
        except (*PER_IMAGE_ERRORS, RejectedImage):
            continue  # removed or changed since it was written
        image = record[image_key]
        source_title = f"{image_id}\n{_format_size(source)}"
        record_title = f"record {number}\n{_format_size(image)}"
        images.append((source, image))
        titles.append((source_title, record_title))
    return images, titles


def _find_sources(shard: pd.Series, work_dir: str) -> dict[int, tuple[str, str]]:
    """Return id and path of the source image of each record of a shard, by number."""
    split = shard["split"]
    folder = shard["folder"]
    csv = storage.read_text(storage.join(folder, f"{split}.csv"))
    plan = storage.join(work_dir, "plan.parquet")
    if not csv or not storage.exists(plan):
        return {}

    columns = ["image_id", "file", "record"]
    rows = pd.read_csv(io.StringIO(csv), usecols=columns, dtype=str, na_filter=False)
    rows = rows[rows["file"] == shard["file"].removeprefix(folder).lstrip("/")]
    planned = storage.read_parquet(plan, columns=["image_id", "split", "path"])
    # A test image may have the id of a labelled one.
    rows = rows.merge(planned[planned["split"] == split], on="image_id")
    return {int(row.record): (row.image_id, row.path) for row in rows.itertuples()}


def _format_size(image: np.ndarray) -> str:
    height, width, _ = image.shape
    return f"{width} × {height}"


def find_first_masks(shards: pd.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the image and the masks, by label, of the first record that has a mask.

    The image is uint8 (height, width, 3), a mask uint8 (height, width). Without a mask
    in the first 50 records: those of the first record.
    """
    schema = one_schema(shards)
    first_record = None
    for record in read_images(shards).take(50).as_numpy_iterator():
        masks = {key: record[key] for key in schema.label_keys}
        image_and_masks = record[schema.image_key], masks
        if any(mask.any() for mask in masks.values()):
            return image_and_masks
        first_record = first_record or image_and_masks
    if first_record is None:
        raise ValueError("There is no record in these shards.")
    return first_record


def count_images(batches: tf.data.Dataset, n_classes: int) -> tuple[int, np.ndarray]:
    """Count the images of validation batches: all, and int64 (n_classes,) by class.

    Padding is not counted; an image counts for each of its labels.
    """
    n_images = 0
    per_class = np.zeros(n_classes, np.int64)
    for _, labels, mask in batches.as_numpy_iterator():
        flags = _find_flags(labels[mask > 0], n_classes)
        n_images += len(flags)
        per_class += flags.sum(axis=0)
    return n_images, per_class


def describe_missing_classes(per_class: Sequence[int], classes: Sequence[Any]) -> str:
    """Name the classes without a validation image. per_class: images of each class.

    >>> describe_missing_classes([3, 0], ["day", "night"])
    'Warning: no score covers 1 of 2 classes, which have no validation image: night'
    >>> describe_missing_classes([3, 1], ["day", "night"])
    'Each of 2 classes has validation images.'
    """
    counts = pd.Series(per_class, index=pd.Index(classes, dtype=object))
    counts = counts[counts.index.notna()]  # None is a gap in LABEL_MAP
    missing = counts.index[counts == 0]
    if counts.empty:
        return "The records have no classes."
    if missing.empty:
        return f"Each of {len(counts):,} classes has validation images."

    names = textwrap.shorten(", ".join(map(str, missing)), 100, placeholder=" …")
    return (
        f"Warning: no score covers {len(missing):,} of {len(counts):,} classes, "
        f"which have no validation image: {names}"
    )


def list_reader_steps(
    shards: pd.DataFrame, image_size: int | Sequence[int], batch_size: int
) -> dict[str, tf.data.Dataset]:
    """Return endless training batches by name, each one step nearer to `read_batches`.

    The first reads one record after the other and decodes whole images; the last is
    `read_batches`.
    """
    schema = one_schema(shards)
    size = as_size(image_size)

    def decode_whole(record: tf.Tensor) -> tuple[tf.Tensor]:
        values = tf.io.parse_single_example(record, feature_spec(schema))
        encoded = values[schema.image_key]
        image = tf.io.decode_image(encoded, 3, expand_animations=False)
        window = choose_window(tf.shape(image)[:2], size, "random")
        return (fit_to_size(cut_window(image, window), size),)

    decode_part = partial(decode_record, schema=schema, size=size, crop="random")
    files = tf.data.Dataset.from_tensor_slices(
        (list(shards["file"]), list(shards["compression"]))
    )
    records = files.flat_map(tf.data.TFRecordDataset).repeat()
    in_parallel = partial(records.map, num_parallel_calls=CORES)
    examples = {
        "records, one after the other": records.map(decode_whole),
        "+ decoded on all cores": in_parallel(decode_whole),
        "+ only the window decoded": in_parallel(decode_part),
    }
    batches = {
        name: data.batch(batch_size, drop_remainder=True)
        for name, data in examples.items()
    }
    batches["+ shards read side by side, in any order"] = read_batches(
        shards, image_size=size, batch_size=batch_size, training=True
    )
    return batches


def measure_speed(batches: tf.data.Dataset, seconds: float = 1.0) -> float:
    """Measure the images per second of an endless dataset, after its first batches."""
    iterator = iter(batches)
    for _ in range(3):  # the first ones pay for tracing and for filling the buffers
        next(iterator)

    n_images = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        images, *_ = next(iterator)
        n_images += len(images)
    return n_images / (time.perf_counter() - start)


def compare_speeds(
    datasets: Mapping[str, tf.data.Dataset], rounds: int = 3
) -> pd.Series:
    """Return the median images per second of each dataset, measured alternately."""
    rates = [
        {name: measure_speed(data, 0.5) for name, data in datasets.items()}
        for _ in range(rounds)
    ]
    return pd.DataFrame(rates).median()
