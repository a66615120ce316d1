"""The two files that let TensorFlow Datasets read a part: features.json and dataset_info.json."""

import os
import re
import tempfile
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.plan import Plan

# TFDS finds its shards by this pattern only; a part is a dataset of its own.
TFDS_NAME = "{name}_{part}-{split}.tfrecord-{i:05d}-of-{n:05d}"
DTYPES = {"int64": np.int64, "float": np.float32}


def load_tfds() -> Any:
    """The module tensorflow_datasets.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            'METADATA = ["tfds"] needs tensorflow-datasets, which is not installed. '
            'Run: pip install "kaggle-tfr[tfds]", or set METADATA = [].'
        ) from error
    return tfds


def write_tfds(part_dir: str, plan: Plan, part: int, shards: pd.DataFrame) -> None:
    """Writes what `tfds.builder_from_directory(part_dir)` reads; shards have TFDS's names.

    shards: the rows of shards.csv. Labels become ClassLabels, the picture an Image.
    """
    tfds = load_tfds()
    prefix = f"{plan.name}_{part}".replace("{", "{{").replace("}", "}}")
    template = prefix + "-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    name = re.sub(r"[^a-z0-9]+", "_", plan.name.lower()).strip("_") or "images"
    name = name if name[0].isalpha() else f"images_{name}"
    with tempfile.TemporaryDirectory() as scratch:
        identity = tfds.core.dataset_info.DatasetIdentity(
            name=f"{name}_{part}",
            version=tfds.core.Version("1.0.0"),
            data_dir=scratch,
            module_name="",
        )
        features = tfds.features.FeaturesDict(
            {field["name"]: _feature(tfds, field, plan) for field in plan.schema["fields"]}
        )
        info = tfds.core.DatasetInfo(
            builder=identity, features=features, description=f"{plan.name}, part {part}"
        )
        info.set_file_format(tfds.core.FileFormat.TFRECORD)
        splits = [
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=rows["count"].tolist(),
                num_bytes=int(rows["bytes"].sum()),
                filename_template=tfds.core.ShardedFileTemplate(
                    data_dir=scratch,
                    dataset_name=f"{name}_{part}",
                    split=split,
                    filetype_suffix="tfrecord",
                    template=template,
                ),
            )
            for split, rows in shards.groupby("split")
        ]
        info.set_splits(tfds.core.splits.SplitDict(splits))
        info.write_to_directory(scratch)
        for file in sorted(os.listdir(scratch)):
            with open(os.path.join(scratch, file), "rb") as text:
                storage.write_atomically(storage.join(part_dir, file), text.read())


def _feature(tfds, field: dict, plan: Plan) -> Any:
    """The TFDS feature that reads one field of the schema."""
    source, kind, size = field["source"], field["type"], field["size"]
    if source == "image":
        return tfds.features.Image()
    if source == "label" and kind == "int64" and not size and plan.kind == "single":
        return tfds.features.ClassLabel(names=[str(label) for label in plan.classes])
    if kind in ("bytes", "tensor"):
        return tfds.features.Sequence(tfds.features.Text()) if size else tfds.features.Text()
    if not size:
        return tfds.features.Scalar(DTYPES[kind])
    shape = (None,) if size < 0 else (size,)
    return tfds.features.Tensor(shape=shape, dtype=DTYPES[kind])
