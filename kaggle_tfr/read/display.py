"""What to look at in finished parts: records beside their sources, masks, speed."""

from __future__ import annotations

import io
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


def choose_shown_shards(
    shards: pd.DataFrame, fold: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(training, validation) shards; all, if possible without the split test, twice for none."""
    try:
        return choose_fold(shards, fold)
    except ValueError as error:
        print(f"{error} Showing all shards.")
        shown = shards[shards["split"] != "test"]
        return (shards, shards) if shown.empty else (shown, shown)


def name_labels(labels: np.ndarray, classes: Sequence[Any]) -> list[str]:
    """A title for each image of labels (n,) from -1, 0/1 (n, classes) or masks (n, h, w, c).

    Images without a label have an empty title: -1, or any label where there are no classes.
    """
    if labels.ndim == 1:
        known = range(len(classes))
        return [
            str(classes[label]) if label in known else "" for label in labels.tolist()
        ]
    present = labels if labels.ndim == 2 else np.any(labels, axis=(1, 2))
    names = ([str(classes[c]) for c in np.flatnonzero(row).tolist()] for row in present)
    return [", ".join(own) or "none" for own in names]


def pair_with_sources(
    shards: pd.DataFrame, work_dir: str, count: int = 9
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[str, str]]]:
    """([(source, record), …], [(title, title), …]) of first records, (h, w, 3), upright.

    As far as WORK_DIR's plan and the CSV beside the shard tell the sources, and these are there.
    """
    shard, pictures, titles = shards.iloc[0], [], []
    key = shard["schema"].image_key
    plan = storage.join(work_dir, "plan.parquet")
    text = storage.read_text(storage.join(shard["folder"], f"{shard['split']}.csv"))
    if not text or not storage.exists(plan):
        return [], []
    split = shard["split"]
    columns = {"image_id": str, "file": str, "record": int}
    rows = pd.read_csv(
        io.StringIO(text), usecols=list(columns), dtype=columns, na_filter=False
    )
    name = shard["file"][len(shard["folder"]) :].lstrip("/")
    rows = rows[(rows["file"] == name) & (rows["record"] < count)]
    planned = storage.read_parquet(plan, columns=["image_id", "split", "path"])
    # A test image may have the id of a labelled one.
    rows = rows.merge(planned[planned["split"] == split], on="image_id")
    found = rows[["record", "image_id", "path"]].to_numpy().tolist()
    known = {number: told for number, *told in found}
    for number, record in enumerate(
        read_images(shards.head(1)).take(count).as_numpy_iterator()
    ):
        image_id, path = known.get(number, ("", ""))
        try:
            source = read_upright(read_image_bytes(path))
        except (
            *PER_IMAGE_ERRORS,
            RejectedImage,
        ):  # removed or changed since it was written
            continue
        pictures.append((source, record[key]))
        sizes = [
            f"{width} × {height}"
            for height, width, _ in (source.shape, record[key].shape)
        ]
        titles.append((f"{image_id}\n{sizes[0]}", f"record {number}\n{sizes[1]}"))
    return pictures, titles


def first_masks(shards: pd.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(uint8 picture, {label: uint8 mask}) of the first record with a mask, else of the first."""
    schema, records = shards["schema"].iloc[0], read_images(shards).take(50)
    masked = (
        r
        for r in records.as_numpy_iterator()
        if any(r[k].any() for k in schema.label_keys)
    )
    shown = next(masked, None) or next(records.as_numpy_iterator())
    return shown[schema.image_key], {key: shown[key] for key in schema.label_keys}


def count_images(batches: tf.data.Dataset, classes: int) -> tuple[int, np.ndarray]:
    """Images that validation batches hold, in all and int64 (classes,) with each class.

    Padding is left out. labels: as of `read_batches`; an image counts for each of its labels.
    """
    images = 0
    per_class = np.zeros(classes, np.int64)
    for _, labels, mask in batches.as_numpy_iterator():
        known = labels[mask > 0]
        images += len(known)
        if known.ndim == 1:
            is_class = (known >= 0) & (known < classes)
            per_class += np.bincount(known[is_class], minlength=classes)
        else:
            has_class = known > 0 if known.ndim == 2 else np.any(known, axis=(1, 2))
            per_class += has_class.sum(axis=0)
    return images, per_class


def describe_missing(
    per_class: Sequence[int], classes: Sequence[Any], most: int = 5
) -> str:
    """A line that names the classes without a validation image. per_class: images of each class.

    >>> describe_missing([3, 0], ["day", "night"])
    'Warning: 1 of 2 classes has no validation image, so no score covers it: night'
    >>> describe_missing([3, 1], ["day", "night"])
    'Each of 2 classes has validation images.'
    """
    counts = zip(classes, per_class, strict=True)
    named = [
        (name, count) for name, count in counts if name is not None
    ]  # a gap in LABEL_MAP
    missing = [str(name) for name, count in named if not count]
    if not named:
        return "The records have no classes."
    if not missing:
        return f"Each of {len(named):,} classes has validation images."
    names = ", ".join(missing[:most])
    names += f" and {len(missing) - most:,} more" if len(missing) > most else ""
    verb, them = ("has", "it") if len(missing) == 1 else ("have", "them")
    what = f"{len(missing):,} of {len(named):,} classes {verb} no validation image"
    return f"Warning: {what}, so no score covers {them}: {names}"


def list_reader_steps(
    shards: pd.DataFrame, image_size: int | Sequence[int], batch_size: int
) -> dict[str, tf.data.Dataset]:
    """Endless training batches of shards by name, each with one more of the steps of `read_batches`
    than that before it.
    """
    schema, size = one_schema(shards), as_size(image_size)

    def read_whole(record: tf.Tensor) -> tf.Tensor:
        data = tf.io.parse_single_example(record, feature_spec(schema))[
            schema.image_key
        ]
        pixels = tf.io.decode_image(data, 3, expand_animations=False)
        top, left, height, width = tf.unstack(
            choose_window(tf.shape(pixels)[:2], size, "random")
        )
        return fit_to_size(pixels[top : top + height, left : left + width], size)

    window = partial(decode_record, schema=schema, size=size, crop="random", jpeg=False)
    files = tf.data.Dataset.from_tensor_slices(
        (list(shards["file"]), list(shards["compression"]))
    )
    records = files.flat_map(tf.data.TFRecordDataset).repeat()
    ways = {"records, one after the other": records.map(read_whole)}
    ways["+ decoded on all cores"] = records.map(read_whole, num_parallel_calls=CORES)
    ways["+ only the window decoded"] = records.map(window, num_parallel_calls=CORES)
    ways = {
        name: way.batch(batch_size, drop_remainder=True) for name, way in ways.items()
    }
    whole = read_batches(shards, image_size=size, batch_size=batch_size, training=True)
    return ways | {"+ shards read side by side, in any order": whole}


def measure_speed(batches: tf.data.Dataset, seconds: float = 1.0) -> float:
    """Images per second that an endless dataset gives, after its first batches."""
    iterator = iter(batches)
    for _ in range(3):  # the first ones pay for tracing and for filling the buffers
        next(iterator)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        count += int(tf.nest.flatten(next(iterator))[0].shape[0])
    return count / (time.perf_counter() - start)


def compare_speeds(ways: Mapping[str, tf.data.Dataset], rounds: int = 3) -> pd.Series:
    """Median images per second of each way, measured in turns."""
    rates = [
        {name: measure_speed(way, 0.5) for name, way in ways.items()}
        for _ in range(rounds)
    ]
    return pd.DataFrame(rates).median()
