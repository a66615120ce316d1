"""The folders of parts to read, their classes, single images and a submission."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.header import read_upright
from kaggle_tfr.naming import SUBMISSION
from kaggle_tfr.records import parse_record
from kaggle_tfr.shards import read_part_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import tensorflow as tf
else:
    from kaggle_tfr.session import tf


def list_classes(shards: pd.DataFrame) -> list[str]:
    """Return the names of the classes; their positions are the labels.

    A quantity has none: []. shards: of `find_shards`.
    Raises: ValueError: labelled records do not have one class or quantity each.
    """
    labels = shards["labels"].iloc[0]  # of labels.json, the same in every row
    labelled = shards[shards["split"] != "test"]
    for schema in labelled["schema"].unique():
        has_labels = labels.classes or schema.kind == "number"
        kind = schema.kind if has_labels and schema.label_keys else "none"
        if kind not in ("single", "number"):
            raise ValueError(
                "06_train trains a network that gives each image a class or a number, "
                f"but the labels of these records are of the kind '{kind}'. For other "
                "networks read.read_batches gives the labels (docs/reading.md)."
            )
    return [str(name) for name in labels.classes]


def find_images(shards: pd.DataFrame, image_ids: Iterable[str]) -> list[np.ndarray]:
    """Return the images with these ids, in their order, uint8 RGB (height, width, 3).

    shards: of `find_shards`.
    image_ids: of `read_batches`: those in train.csv (or test.csv …) of the parts, or
        "file#number". A labelled image is preferred to a test image with the same id.
    Raises: ValueError: there is no such image.
    """
    names = shards["file"].map(os.path.basename)
    places = _list_places(shards)
    images = []
    for image_id in image_ids:
        name, _, number = places.get(image_id, image_id).rpartition("#")
        # A place from a CSV has the folder of the shard, "file#number" has none.
        found = shards[(shards["file"] == name) | (names == name)]
        # Shards of two parts can have the same name.
        if len(found) != 1 or int(number) >= found["count"].sum():
            raise ValueError(
                f"There is no image '{image_id}' in these shards: neither a CSV of "
                "their parts lists it, nor is it the place of one record, file#number."
            )
        shard = found.iloc[0]
        records = tf.data.TFRecordDataset(shard["file"], shard["compression"])
        record = next(records.skip(int(number)).as_numpy_iterator())
        features = parse_record(record)
        (encoded,) = features[shard["schema"].image_key].bytes_list.value
        images.append(read_upright(encoded))
    return images


def _list_places(shards: pd.DataFrame) -> dict[str, str]:
    """Return the place of each image that the CSVs of the parts list, by its id.

    A place is such as "part-1/f0-000-99.tfrec#17": the path of the shard, and the
    number of the record in it, from 0.
    """
    places: dict[str, str] = {}
    # Later splits replace test images with the same id.
    test_first = shards.sort_values("split", key=lambda split: split != "test")
    pairs = test_first[["folder", "split"]].drop_duplicates()
    for folder, split in pairs.itertuples(index=False):
        table = read_part_table(
            folder, f"{split}.csv", columns=["image_id", "file", "record"]
        )
        addresses = f"{folder}/" + table["file"] + "#" + table["record"]
        places |= dict(zip(table["image_id"], addresses, strict=True))
    return places


def find_submission(shards: pd.DataFrame) -> pd.DataFrame | None:
    """Return the competition's sample submission, copied into a part; None without one.

    All its values are text.
    """
    for folder in shards["folder"].unique():
        text = storage.read_text(f"{folder}/{SUBMISSION}")
        if text:
            file = io.StringIO(text.removeprefix("\ufeff"))
            return pd.read_csv(file, dtype=str, keep_default_na=False)
    return None
