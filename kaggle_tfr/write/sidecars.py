"""What lies beside the shards: tables of the images, Kaggle's and TFDS's descriptions."""

import csv
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.clusters import DuplicateSettings
from kaggle_tfr.paths import OWNER, SUBMISSION, to_slug
from kaggle_tfr.plan.plan import Plan, read_rows
from kaggle_tfr.schema import Field
from kaggle_tfr.write.journal import COLUMNS, REJECT_COLUMNS, Row

# TFDS finds its shards by this pattern only; a part is a dataset of its own.
DATASET_FILE = "dataset-metadata.json"
TFDS_NAME = "{name}_{part}-{split}.tfrecord-{i:05d}-of-{n:05d}"


def write_sidecars(
    work_dir: str, part_dir: str, plan: Plan, part: int, rows: Mapping[int, Row], *, tfds: bool
) -> None:
    """Writes what lies beside the part's shards (rows: in their order), shards.csv last."""
    shards = pd.DataFrame(list(rows.values()), columns=COLUMNS)
    _write_image_tables(work_dir, part_dir, plan, part, rows)
    if tfds:
        _write_tfds(part_dir, plan, part, shards)
    classes = [str(name).replace("\n", " ") for name in plan.labels.classes]
    rejects = [reject | {"file": row["file"]} for row in rows.values() for reject in row["rejects"]]
    refused = pd.DataFrame(rejects, columns=REJECT_COLUMNS).to_csv(index=False, lineterminator="\n")
    texts = {"rejects.csv": refused} if rejects else {}
    texts |= {
        "schema.json": plan.schema.to_json(),
        "labels.json": plan.labels.to_json(),
        "labels.txt": "".join(f"{label}:{name}\n" for label, name in enumerate(classes)),
        DATASET_FILE: json.dumps(describe_dataset(plan, part, shards), indent=1) + "\n",
        "shards.csv": shards.to_csv(index=False, lineterminator="\n"),
    }
    submission = storage.read_text(storage.join(work_dir, SUBMISSION))
    if submission and "test" in set(shards["split"]):
        texts[SUBMISSION] = submission
    if not rejects:
        storage.remove(storage.join(part_dir, "rejects.csv"))
    for name, text in texts.items():
        storage.write_atomically(storage.join(part_dir, name), text.encode())


def _write_image_tables(
    work_dir: str, part_dir: str, plan: Plan, part: int, rows: Mapping[int, Row]
) -> None:
    """Writes a CSV a split, a row a record, with one shard's rows in memory at a time."""
    begun = set[str]()  # for a `stat` that fails would say that no file is there
    with tempfile.TemporaryDirectory(dir=storage.scratch_folder(part_dir)) as scratch:
        for shard, table in read_rows(work_dir, [s for s in plan.shards if s.part == part]):
            row, path = rows[shard.number], os.path.join(scratch, f"{shard.split}.csv")
            refused = [reject["image_id"] for reject in row["rejects"]]
            kept = table[~table["image_id"].isin(refused)].assign(file=row["file"])
            kept = kept.assign(source_height=kept.get("height"), source_width=kept.get("width"))
            kept["record"] = range(len(kept))
            kept = kept[[name for name in _table_columns(plan, shard.split) if name in kept]]
            first = path not in begun
            begun.add(path)
            # Readers end a row at a "\r" that is not quoted, as Python before 3.13 leaves it.
            how: Any = csv.QUOTE_NONNUMERIC * ("\r" in kept.to_csv(lineterminator="\n"))
            kept.to_csv(path, mode="a", header=first, index=False, lineterminator="\n", quoting=how)
        for name in sorted(os.listdir(scratch)):
            storage.publish_file(os.path.join(scratch, name), storage.join(part_dir, name))


def _table_columns(plan: Plan, split: str) -> list[str]:
    """The columns of a split's CSV, where the table has them."""
    schema = plan.schema.for_split(split)
    columns = ["image_id", *schema.label_columns]
    columns += ["label", "label_name"] if schema is plan.schema else []
    columns += [source for field in schema.fields for source in field.sources]
    columns = [name for name in columns if name not in ("height", "width", "format", "split")]
    # Codes of masks follow the picture's size, so its size before counts.
    columns += ["source_height", "source_width"] if schema.kind == "masks" else []
    return [*dict.fromkeys(columns), "fold", "file", "record"]


def set_license(part_dir: str, name: str) -> None:
    """Writes the licence into the part's dataset-metadata.json, unless it stands there or is ""."""
    path, licenses = storage.join(part_dir, DATASET_FILE), [{"name": name}]
    if name and (values := json.loads(storage.read_bytes(path))).get("licenses") != licenses:
        text = json.dumps(values | {"licenses": licenses}, indent=1)
        storage.write_atomically(path, f"{text}\n".encode())


def describe_dataset(plan: Plan, part: int, shards: pd.DataFrame) -> dict[str, Any]:
    """What dataset-metadata.json holds: title, slug, subtitle and description for Kaggle.
    Source: https://github.com/Kaggle/kaggle-cli/blob/main/docs/datasets_metadata.md.
    """
    of = f" part {part} of {plan.n_parts}" if plan.n_parts > 1 else ""
    tail = "tfrecords" + (f"-{part}-of-{plan.n_parts}" if of else "")
    count, name = int(shards["count"].sum()), " ".join(plan.labels.name.split()) or "images"
    subtitle = f"{count:,} images of {len(plan.labels.classes):,} classes as TFRecord shards{of}"
    return {
        "title": f"{name[: 50 - len(' TFRecords' + of)]} TFRecords{of}",
        "id": f"{OWNER}/{to_slug(name, tail)}",
        "subtitle": subtitle if len(subtitle) <= 80 else f"{count:,} images as TFRecord shards",
        "description": _describe_part(plan, part, shards),
        "licenses": [],
        "keywords": [],
    }


def _describe_part(plan: Plan, part: int, shards: pd.DataFrame) -> str:
    image, classes = plan.image, [str(name) for name in plan.labels.classes]
    shape = "original size" if image.size is None else f"{image.resize} {image.size}"
    how = f" quality {image.quality}, {image.subsampling}" if image.format == "JPEG" else ""
    folds = shards.groupby(["split", "fold"])["count"].agg(["size", "sum"])
    rows = [f"| {s} | {f} | {n} | {count:,} |" for (s, f), n, count in folds.itertuples()]
    table = "\n".join(rows)
    return f"""\
{shards["count"].sum():,} images in {len(shards)} TFRecord shards, \
{shards["bytes"].sum() / 1e9:,.3f} GB; part {part} of {plan.n_parts}, \
each part a stratified sample of the whole.

- Images: {shape}, {image.format}{how}.
- Compression of the files: {plan.settings.compression or "none"}.
- {len(classes):,} classes: {", ".join(classes[:20])}{", …" if len(classes) > 20 else "."}
- {_describe_checks(plan.checks)}

| split | fold | shards | images |
|---|---|---|---|
{table}

`schema.json` says how to parse a record, `labels.json` names the labels, \
`shards.csv` lists every file with its count and sha256, `plan.json` is the recipe:

```json
{json.dumps(asdict(plan.settings), indent=1)}
```
"""


def _describe_checks(checks: Mapping[str, Any]) -> str:
    """What the leakage check of the whole plan has looked at and found, and nothing besides."""
    if not checks:
        return "Near-duplicates: the folds were not checked for them."
    near = f"{checks['max_bits']} of 256 bits of four perceptual hashes"
    if checks["second_look"]:
        near += f", or {checks['candidate_bits']} where a geometric verification has confirmed it"
    numbers = [name for name in checks if name not in DuplicateSettings.__dataclass_fields__]
    rows = [f"| {name.replace('_', ' ')} | {round(checks[name], 4):,} |" for name in numbers]
    table = "\n".join(["| leakage check of all parts | |", "|---|---|", *rows])
    return f"Near-duplicates, by which clusters are made: pictures within {near}.\n\n{table}"


def _write_tfds(part_dir: str, plan: Plan, part: int, shards: pd.DataFrame) -> None:
    """Writes what `tfds.builder_from_directory(part_dir)` reads; shards have TFDS's names."""
    import tensorflow_datasets as tfds

    prefix = f"{plan.labels.name}_{part}".replace("{", "{{").replace("}", "}}")
    template = prefix + "-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    name = f"{re.sub(r'[^a-z0-9]+', '_', plan.labels.name.lower()).strip('_')}_{part}"
    name = name if name[0].isalpha() else f"images_{name.strip('_')}"
    with tempfile.TemporaryDirectory(dir=storage.scratch_folder(part_dir)) as scratch:
        of_split = tfds.core.ShardedFileTemplate(data_dir=scratch, template=template)
        splits = []
        # TFDS knows one kind of record: test images without a label are left to other readers.
        own = [split for split in shards["split"] if plan.schema.for_split(split) is plan.schema]
        for split, rows in shards[shards["split"].isin(own)].groupby("split"):
            lengths, size = rows["count"].tolist(), int(rows["bytes"].sum())
            splits.append(tfds.core.SplitInfo(split, lengths, size, of_split))
            # TFDS asks for files beside its own. The shards may lie in a bucket, and under names
            # that its pattern does not take.
            open(os.path.join(scratch, f"{name}-{split}.tfrecord-00000-of-00001"), "wb").close()
        features = {f.name: _feature(tfds.features, f, plan) for f in plan.schema.fields}
        named = {"data_dir": scratch, "split_infos": splits, "check_data": False}
        named["description"] = f"{plan.labels.name}, part {part}"
        tfds.folder_dataset.write_metadata(features=features, **named)
        for file in sorted(os.listdir(scratch)):
            if not file.endswith("-of-00001"):
                storage.publish_file(os.path.join(scratch, file), storage.join(part_dir, file))


def _feature(features: Any, field: Field, plan: Plan) -> Any:
    """The TFDS feature that reads one field of the schema."""
    if field.source == "image":
        deep = {"shape": (None, None, 3), "dtype": np.uint16, "encoding_format": "png"}
        return features.Image(**deep if plan.schema.image_dtype == "uint16" else {})
    label = field.source == "label" and (field.type, field.size) == ("int64", 0)
    if label and plan.labels.kind == "single":
        return features.ClassLabel(names=[str(label) for label in plan.labels.classes])
    if field.type == "bytes":
        return features.Sequence(features.Text()) if field.size else features.Text()
    dtype = {"int64": np.int64, "float": np.float32}[field.type]
    shape = (None if field.size < 0 else field.size,)
    return features.Tensor(shape=shape, dtype=dtype) if field.size else features.Scalar(dtype)
