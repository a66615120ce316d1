"""What lies beside the shards: tables of the images, Kaggle's and TFDS's descriptions."""

import csv
import io
import json
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.plan.plan import Plan, read_rows

OWNER = "INSERT_USERNAME_HERE"  # as in the client's own `kaggle datasets init`


def write_labels(part_dir: str, plan: Plan) -> None:
    """schema.json, labels.json and labels.txt ("0:daisy")."""
    classes = [str(name).replace("\n", " ") for name in plan.labels.classes]
    texts = {
        "schema.json": plan.schema.to_json(),
        "labels.json": plan.labels.to_json(),
        "labels.txt": "".join(f"{label}:{name}\n" for label, name in enumerate(classes)),
    }
    for name, text in texts.items():
        storage.write_atomically(storage.join(part_dir, name), text.encode())


def write_image_tables(
    work_dir: str, plan: Plan, part: int, rows: Mapping[int, Mapping], scratch: str
) -> dict[str, str]:
    """A CSV a split in the local folder `scratch`, as {"train.csv": its path for now}.

    Each record's image, label, fold, file and place in the file. One shard's rows at a time, so
    that memory does not grow with the dataset.
    """
    columns = [*_image_columns(plan), "fold", "file", "record"]
    paths: dict[str, str] = {}
    for shard, table in read_rows(work_dir, [s for s in plan.shards if s.part == part]):
        row = rows[shard.number]
        kept = table[~table.image_id.isin({reject["image_id"] for reject in row["rejects"]})]
        kept = kept.assign(file=row["file"], record=range(len(kept)))
        kept = kept.assign(source_height=kept.get("height"), source_width=kept.get("width"))
        name = f"{shard.split}.csv"
        first = name not in paths
        paths[name] = os.path.join(scratch, f"{name}.tmp")
        wanted = [column for column in columns if column in kept]
        kept[wanted].to_csv(
            paths[name],
            mode="w" if first else "a",
            header=first,
            index=False,
            lineterminator="\n",
        )
    return paths


def _image_columns(plan: Plan) -> list[str]:
    """The plan's columns that say what a record must hold, without the picture's own."""
    sources = [field.source for field in plan.schema.fields]
    sources = [
        name for source in sources for name in ([source] if isinstance(source, str) else source)
    ]
    names = ["image_id", "label", "label_name", *plan.labels.label_columns, *sources]
    # Codes of masks follow the picture's size, so its size before counts.
    names += ["source_height", "source_width"] if plan.labels.kind == "masks" else []
    return [
        name for name in dict.fromkeys(names) if name not in ("height", "width", "format", "split")
    ]


def write_rejects(part_dir: str, rows: Mapping[int, Mapping]) -> None:
    """rejects.csv, when the writer refused an image of the plan."""
    path, text = storage.join(part_dir, "rejects.csv"), io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["image_id", "path", "problem", "file"])
    found = [
        [reject["image_id"], reject["path"], reject["problem"], row["file"]]
        for _, row in sorted(rows.items())
        for reject in row["rejects"]
    ]
    table.writerows(found)
    if found:
        storage.write_atomically(path, text.getvalue().encode())
    else:
        storage.remove(path)


def is_image_table(path: str) -> bool:
    """Whether a split's CSV is there with the columns that tell its records apart."""
    if not storage.exists(path):
        return False
    try:
        with storage.on_disk(path) as local:
            return {"image_id", "label", "file"} <= set(pd.read_csv(local, nrows=0).columns)
    except ValueError:  # empty, or no text
        return False


def read_image_tables(
    part_dir: str, splits: Iterable[str], text_columns: Iterable[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each file of the part with the plan's rows of its records, where its CSV is good.

    text_columns: those that stay text whatever they look like.
    """
    text = dict.fromkeys(["image_id", "label_name", "file", *text_columns], str)
    for split in splits:
        path, rest = storage.join(part_dir, f"{split}.csv"), None
        if not is_image_table(path):
            continue
        with storage.on_disk(path) as local:
            for block in pd.read_csv(local, dtype=text, keep_default_na=False, chunksize=20_000):
                block = block.assign(split=split)  # noqa: PLW2901
                block = block if rest is None else pd.concat([rest, block])  # noqa: PLW2901
                last = block.file.iloc[-1]
                yield from block[block.file != last].groupby("file", sort=False)
                rest = block[block.file == last]
        if rest is not None:
            yield rest.file.iloc[0], rest


def describe_dataset(plan: Plan, part: int, shards: pd.DataFrame, *, owner: str = "") -> dict:
    """What dataset-metadata.json holds: title, slug, subtitle and description for Kaggle.

    Source: https://github.com/Kaggle/kaggle-cli/blob/main/docs/datasets_metadata.md
    """
    of = f" part {part} of {plan.n_parts}" if plan.n_parts > 1 else ""
    count, size = int(shards["count"].sum()), int(shards["bytes"].sum())
    name = " ".join(plan.name.split()) or "images"
    title = f"{name[: 50 - len(' TFRecords' + of)]} TFRecords{of}"
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    tail = "tfrecords" + (f"-{part}-of-{plan.n_parts}" if plan.n_parts > 1 else "")
    stem = re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[: 49 - len(tail)].strip("-")
    subtitle = f"{count:,} images of {len(plan.labels.classes):,} classes as TFRecord shards{of}"
    return {
        "title": title,
        "id": f"{owner or OWNER}/{stem + '-' if stem else ''}{tail}",
        "subtitle": subtitle if len(subtitle) <= 80 else f"{count:,} images as TFRecord shards",
        "description": _description(plan, part, shards, count, size),
        "licenses": [{"name": "unknown"}],
        "keywords": [],
    }


def write_description(
    part_dir: str, plan: Plan, part: int, shards: pd.DataFrame, *, owner: str = ""
) -> None:
    """dataset-metadata.json, as `kaggle datasets create` takes it."""
    text = json.dumps(describe_dataset(plan, part, shards, owner=owner), indent=1) + "\n"
    storage.write_atomically(storage.join(part_dir, "dataset-metadata.json"), text.encode())


def _description(plan: Plan, part: int, shards: pd.DataFrame, count: int, size: int) -> str:
    image, kinds = plan.image, [str(name) for name in plan.labels.classes]
    shape = "original size" if image.size is None else f"{image.resize} {image.size}"
    folds = shards.groupby(["split", "fold"])[["file", "count"]].agg(
        {"file": "size", "count": "sum"}
    )
    lines = [
        (
            f"{count:,} images in {len(shards)} TFRecord shards, {size / 1e9:,.3f} GB; "
            f"part {part} of {plan.n_parts}, each part a stratified sample of the whole."
        ),
        "",
        f"- Images: {shape}, {image.format} quality {image.quality}, {image.subsampling}.",
        f"- Compression of the files: {plan.settings.compression or 'none'}.",
        f"- {len(kinds):,} classes: {', '.join(kinds[:20])}{', …' if len(kinds) > 20 else '.'}",
        "- Near-duplicates never lie in two folds.",
        "",
        "| split | fold | shards | images |",
        "|---|---|---|---|",
        *(f"| {s} | {f} | {row.file} | {row['count']:,} |" for (s, f), row in folds.iterrows()),
        "",
        (
            "`schema.json` says how to parse a record, `labels.json` names the labels, "
            "`shards.csv` lists every file with its count and sha256, `plan.json` is the recipe:"
        ),
        "",
        "```json",
        json.dumps(asdict(plan.settings), indent=1),
        "```",
    ]
    return "\n".join(lines) + "\n"


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
            {field.name: _feature(tfds, field, plan) for field in plan.schema.fields}
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
    source, kind, size = field.source, field.type, field.size
    if source == "image":
        return tfds.features.Image()
    if source == "label" and kind == "int64" and not size and plan.labels.kind == "single":
        return tfds.features.ClassLabel(names=[str(label) for label in plan.labels.classes])
    if kind in ("bytes", "tensor"):
        return tfds.features.Sequence(tfds.features.Text()) if size else tfds.features.Text()
    if not size:
        return tfds.features.Scalar(DTYPES[kind])
    shape = (None,) if size < 0 else (size,)
    return tfds.features.Tensor(shape=shape, dtype=DTYPES[kind])
