"""What 05 displays of finished parts: windows, sources, masks, speed."""

from __future__ import annotations

import io
import textwrap
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.header import RejectedImage, read_upright
from kaggle_tfr.parameters import as_size
from kaggle_tfr.read.batches import (
    Crop,
    choose_fold,
    choose_window,
    cut_window,
    fit_to_size,
    list_folds,
    one_schema,
    read_images,
)
from kaggle_tfr.records import PER_IMAGE_ERRORS, read_image_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import tensorflow as tf
else:
    from kaggle_tfr.session import tf


@dataclass(frozen=True)
class WindowExample:
    """The windows that the reader cuts out of the image of one record.

    image: uint8 (height, width, 3). label: its name.
    windows: int (n, 4), each top, left, height and width in pixels; the last one is
        the centre, which validation uses, the others are random.
    crops: what a model receives of each window, uint8 (height, width, 3).
    """

    image: np.ndarray
    label: str
    windows: np.ndarray
    crops: list[np.ndarray]


def choose_displayed_shards(
    shards: pd.DataFrame, fold: int | str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the training and the validation shards of a fold, or all shards twice.

    fold: "all" is the first one.
    All shards, without test shards if there are others, if the fold has no validation.
    """
    try:
        return choose_fold(shards, list_folds(shards, fold)[0])
    except ValueError as error:
        print(f"{error} Showing all shards.")

    labelled = shards[shards["split"] != "test"]
    displayed = shards if labelled.empty else labelled
    return displayed, displayed


def name_validation(validation: pd.DataFrame) -> str:
    """Name the shards of `choose_displayed_shards` that validate.

    >>> name_validation(pd.DataFrame({"split": "train", "fold": [2, 2]}))
    'fold 2'
    >>> name_validation(pd.DataFrame({"split": ["validation"], "fold": -1}))
    'the split validation'
    """
    folds = validation["fold"].unique()
    splits = validation["split"].unique()
    if len(folds) == 1 and folds[0] >= 0:
        return f"fold {folds[0]}"
    return f"the split {splits[0]}" if len(splits) == 1 else "all shards"


def format_labels(labels: np.ndarray, classes: Sequence[Any]) -> list[str]:
    """Return the names of each image's labels, "" for an image without a label.

    labels: of `read_batches`: classes (n,) from −1, quantities (n,), flags
        (n, classes), or masks (n, height, width, classes).
    """
    if labels.ndim == 1 and labels.dtype.kind == "f":
        return [f"{quantity:g}" for quantity in labels]
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


def cut_windows(
    shards: pd.DataFrame, image_size: int | Sequence[int], count: int = 3
) -> list[WindowExample]:
    """Cut three random windows and the centre out of the images of a few records.

    count: at most; of the first 64 records, those of which a window leaves out most.
    A record of which nothing is left out is not an example.
    """
    schema = one_schema(shards)
    classes = shards["labels"].iloc[0].classes
    size = as_size(image_size)
    records = list(read_images(shards).take(64).as_numpy_iterator())
    left_out = [_measure_left_out(record[schema.image_key], size) for record in records]
    order = np.argsort(left_out)[::-1][:count]
    examples = []
    for record in [records[number] for number in order if left_out[number] > 0]:
        image = record[schema.image_key]
        shape = tf.shape(image)[:2]
        crops: list[Crop] = ["random", "random", "random", "center"]
        windows = [choose_window(shape, size, crop) for crop in crops]
        values = [np.asarray(record[key]) for key in schema.label_keys]
        label = format_labels(_stack_labels(values, schema.kind), classes)[0]
        fitted = [fit_to_size(cut_window(image, window), size) for window in windows]
        examples.append(
            WindowExample(
                image=image,
                label=label,
                windows=np.stack(windows),
                crops=[crop.numpy() for crop in fitted],
            )
        )
    return examples


def _measure_left_out(image: np.ndarray, size: tuple[int, int]) -> float:
    """Return the share of an image that is outside a window, from 0 to 1."""
    height, width, _ = image.shape
    _, _, window_height, window_width = choose_window(
        tf.constant([height, width]), size, "center"
    ).numpy()
    return 1 - window_height * window_width / (height * width)


def _stack_labels(values: list[np.ndarray], kind: str) -> np.ndarray:
    """Return the labels of one image, as those of a batch of `read_batches`."""
    if kind == "masks":
        return np.stack(values, axis=-1)[None]
    if kind == "multi":
        return np.concatenate([np.ravel(value) for value in values])[None]
    return values[0].reshape(1) if values else np.array([-1])


def pair_with_sources(
    shards: pd.DataFrame, work_dir: str
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[str, str]]]:
    """Pair records with their source images, and make a title for each.

    Of the first 64 records, the six with the largest sources, which resizing changes
    most. Returns (source, record) images, uint8 (h, w, 3), upright, and their titles.
    Empty unless WORK_DIR has the plan, and the part the CSV of the split; a record
    whose source is missing is left out.
    """
    shard = shards.iloc[0]
    sources = _find_sources(shard, work_dir)
    image_key = shard["schema"].image_key
    images: list[tuple[np.ndarray, np.ndarray]] = []
    titles: list[tuple[str, str]] = []
    if not sources:
        return images, titles

    records = read_images(shards.head(1)).take(max(sources) + 1)
    for number, record in enumerate(records.as_numpy_iterator()):
        if number not in sources:
            continue
        image_id, path = sources[number]
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
    """Return id and path of the largest source images of a shard, by record number."""
    split = shard["split"]
    folder = shard["folder"]
    csv = storage.read_text(storage.join(folder, f"{split}.csv"))
    plan = storage.join(work_dir, "plan.parquet")
    if not csv or not storage.exists(plan):
        return {}

    columns = ["image_id", "file", "record"]
    rows = pd.read_csv(io.StringIO(csv), usecols=columns, dtype=str, na_filter=False)
    rows = rows[rows["file"] == shard["file"].removeprefix(folder).lstrip("/")]
    columns = ["image_id", "split", "path", "height", "width"]
    planned = storage.read_parquet(plan, columns=columns)
    # A test image may have the id of a labelled one.
    rows = rows.merge(planned[planned["split"] == split], on="image_id")
    rows = rows.astype({"record": int})
    rows["pixels"] = rows["height"] * rows["width"]
    largest = rows[rows["record"] < 64].nlargest(6, "pixels")
    return {row.record: (row.image_id, row.path) for row in largest.itertuples()}


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


def describe_missing_classes(
    per_class: Sequence[int], classes: Sequence[Any], place: str
) -> str:
    """Name the classes without a record in a place, or else the rarest class.

    per_class: records of each class.

    >>> describe_missing_classes([3, 0], ["day", "night"], "fold 0")
    'Warning: no score covers 1 of 2 classes, which have no record in fold 0: night'
    >>> describe_missing_classes([3, 1], ["day", "night"], "fold 0")
    'Each of 2 classes has records in fold 0; the rarest is night, with 1.'
    """
    counts = pd.Series(per_class, index=pd.Index(classes, dtype=object))
    counts = counts[counts.index.notna()]  # None is a gap in LABEL_MAP
    missing = counts.index[counts == 0]
    if counts.empty:
        return "The records have no classes."
    if missing.empty:
        rarest = counts.idxmin()
        return (
            f"Each of {len(counts):,} classes has records in {place}; the rarest is "
            f"{rarest}, with {counts.min():,}."
        )

    names = textwrap.shorten(", ".join(map(str, missing)), 100, placeholder=" …")
    return (
        f"Warning: no score covers {len(missing):,} of {len(counts):,} classes, "
        f"which have no record in {place}: {names}"
    )


def measure_speed(
    batches: tf.data.Dataset, seconds: float = 1.0, step_seconds: float = 0.0
) -> float:
    """Measure the images per second of an endless dataset, after its first batches.

    step_seconds: how long a device takes for a batch; this process then waits, and
    what is read meanwhile was read for free. TensorFlow's own optimizations are off: it
    would add a prefetch to a dataset that has none.
    """
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    iterator = iter(batches.with_options(options))
    for _ in range(3):  # the first ones pay for tracing and for filling the buffers
        next(iterator)

    n_images = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        images, *_ = next(iterator)
        n_images += len(images)
        time.sleep(step_seconds)
    return n_images / (time.perf_counter() - start)


def compare_speeds(
    pipelines: Mapping[str, Callable[[pd.DataFrame], tf.data.Dataset]],
    shards: pd.DataFrame,
    batch_size: int,
    rounds: int = 3,
) -> pd.DataFrame:
    """Return the median images per second of pipelines, measured alternately.

    pipelines: functions that return endless batches of shards, by name.
    Columns: "alone", and "with a device" that takes as long for a batch as the first
    pipeline takes alone.
    """
    datasets = {name: pipeline(shards) for name, pipeline in pipelines.items()}
    alone = _measure_alternately(datasets, rounds, seconds=0.5)
    beside = _measure_alternately(
        datasets,
        rounds,
        seconds=1.0,
        step_seconds=batch_size / alone.iloc[0],
    )
    return pd.DataFrame({"alone": alone, "with a device": beside})


def _measure_alternately(
    datasets: Mapping[str, tf.data.Dataset],
    rounds: int,
    *,
    seconds: float,
    step_seconds: float = 0.0,
) -> pd.Series:
    """Return the median images per second of each dataset."""
    rates = [
        {
            name: measure_speed(data, seconds, step_seconds)
            for name, data in datasets.items()
        }
        for _ in range(rounds)
    ]
    return pd.DataFrame(rates).median()
