"""What parts contain besides batches: their classes, single images, a submission."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.header import read_upright
from kaggle_tfr.naming import SUBMISSION
from kaggle_tfr.records import parse_record
from kaggle_tfr.schema import read_values
from kaggle_tfr.shards import read_part_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import tensorflow as tf
else:
    from kaggle_tfr.session import tf

# Records that have another label than one class or quantity, and what to do with them.
OTHER_LABELS = {
    "none": "have no labels; set LABEL_COLUMN in the recipe and run 01 to 05 again",
    "multi": "can have several labels; use another model, with a sigmoid for each",
    "masks": "have masks; use a segmentation model",
}


def list_classes(shards: pd.DataFrame) -> list[str]:
    """Return the names of the classes; their positions are the labels.

    A quantity has none. Raises: ValueError: labelled records do not have one class or
    quantity each; the message describes how to train on other labels.
    """
    labels = shards["labels"].iloc[0]
    labelled = shards[shards["split"] != "test"]
    for shard in labelled.to_dict("records"):
        schema = shard["schema"]
        has_labels = labels.classes or schema.kind == "number"
        kind = schema.kind if has_labels and schema.label_keys else "none"
        if kind in OTHER_LABELS:
            raise ValueError(
                "06_train trains a network that gives each image one label, but the "
                f"records in '{shard['folder']}' {OTHER_LABELS[kind]}. "
                "read.read_batches gives the images and their labels as arrays "
                "(docs/reading.md has examples)."
            )
    return [str(name) for name in labels.classes]


def find_images(shards: pd.DataFrame, image_ids: Iterable[str]) -> list[np.ndarray]:
    """Return the images with these ids, in their order, uint8 (height, width, 3).

    image_ids: of `read_batches`: those in train.csv (or test.csv …) of the parts, or
        "file#number". A labelled image is preferred to a test image with the same id.
    Raises: ValueError: there is no such image.
    """
    files = {os.path.basename(file): file for file in shards["file"]}
    by_file = shards.set_index("file")
    places = _list_places(shards)
    images = []
    for image_id in image_ids:
        name, _, number = image_id.rpartition("#")
        file = files.get(name)
        if image_id in places.index:
            file, number = map(str, places.loc[image_id])
        if file is None:
            raise ValueError(
                f"There is no image '{image_id}' in these shards: neither a CSV of "
                "their parts lists it, nor is it the place of a record, file#number."
            )
        shard = by_file.loc[file]
        records = tf.data.TFRecordDataset(file, shard["compression"]).skip(int(number))
        features = parse_record(next(records.as_numpy_iterator()))
        image_key = shard["schema"].image_key
        fields = [f for f in shard["schema"].fields if f.name == image_key]
        images.append(read_upright(read_values(features, fields)[image_key]))
    return images


def _list_places(shards: pd.DataFrame) -> pd.DataFrame:
    """Return file and record of each image in the CSVs of the parts, by its id."""
    columns = ["image_id", "file", "record"]
    tables = [pd.DataFrame(columns=columns)]
    is_test = shards["split"] == "test"
    for listed in (shards[~is_test], shards[is_test]):
        pairs = listed[["folder", "split"]].drop_duplicates()
        for folder, split in pairs.itertuples(index=False):
            table = read_part_table(folder, f"{split}.csv", columns)
            files = [storage.join(folder, file) for file in table["file"]]
            tables.append(table.assign(file=files))
    places = pd.concat(tables)
    places = places[places["file"].isin(shards["file"])]
    return places.drop_duplicates("image_id").set_index("image_id")


def find_submission(shards: pd.DataFrame) -> pd.DataFrame | None:
    """Return the competition's sample submission, copied into a part, as text."""
    for folder in shards["folder"].unique():
        text = storage.read_text(storage.join(folder, SUBMISSION))
        if text:
            file = io.StringIO(text.lstrip("\ufeff"))
            return pd.read_csv(file, dtype=str, keep_default_na=False)
    return None
