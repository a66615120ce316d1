"""What lies beside the shards: tables of the images, Kaggle's description."""

import csv
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.mounts import OWNER_PLACEHOLDER, to_slug
from kaggle_tfr.naming import SUBMISSION
from kaggle_tfr.plan.plan import Plan, read_rows
from kaggle_tfr.records import format_index, list_frames, read_index
from kaggle_tfr.shards import (
    SUMS,
    find_changed_files,
    format_sums,
    read_sums,
    sha256_of_text,
)
from kaggle_tfr.write import journal
from kaggle_tfr.write.journal import COLUMNS, REJECT_COLUMNS, Row

DATASET_FILE = "dataset-metadata.json"
YOURS = ("id", "title", "licenses", "keywords")  # in it: the user may change these


def close_part(
    work_dir: str,
    part_dir: str,
    plan: Plan,
    rows: Mapping[int, Row],
    *,
    license_name: str,
) -> None:
    """Writes what lies beside the part's shards (rows: in their order) where it is not there."""
    listed = [*rows.values()]
    with storage.explain_os_errors(part_dir, storage.OUTPUT_FIXES):
        if not journal.is_closed(part_dir) or find_changed(part_dir, plan, listed):
            _write_sidecars(work_dir, part_dir, plan, rows)
        described, renewed = renew_metadata(part_dir, plan, listed, license_name)
        if described != renewed:
            storage.write_atomically(
                storage.join(part_dir, DATASET_FILE), renewed.encode()
            )
    journal.remove_journal(part_dir)


def _write_sidecars(
    work_dir: str, part_dir: str, plan: Plan, rows: Mapping[int, Row]
) -> None:
    """Makes the files anew, shards.csv last; one that is as it should be is left as it is."""
    shards = pd.DataFrame(list(rows.values()), columns=COLUMNS)
    before = read_sums(part_dir)
    sums = {row["file"]: row["sha256"] for row in rows.values()}
    for row in () if plan.settings.compression else rows.values():
        name = f"index/{row['file']}.idx"
        sums[name] = _mend_index(part_dir, name, row, before.get(name, ""))
    with tempfile.TemporaryDirectory(dir=storage.scratch_folder(part_dir)) as scratch:
        _write_image_tables(work_dir, scratch, plan, rows)
        for name, text in _list_texts(work_dir, plan, shards, rows).items():
            Path(scratch, name).write_bytes(text.encode())
        own = {
            path.name: storage.sha256_of(path)
            for path in sorted(Path(scratch).iterdir())
        }
        text = format_sums(sums | own)
        Path(scratch, SUMS).write_bytes(text.encode())
        own[SUMS] = sha256_of_text(text)
        if "rejects.csv" not in own:
            storage.remove(storage.join(part_dir, "rejects.csv"))
        changed = find_changed_files(part_dir, own)
        for name in sorted(changed, key="shards.csv".__eq__):
            storage.publish_file(
                os.path.join(scratch, name), storage.join(part_dir, name)
            )


def _list_texts(
    work_dir: str, plan: Plan, shards: pd.DataFrame, rows: Mapping[int, Row]
) -> dict[str, str]:
    """What most files beside the shards hold, by their names."""
    classes = [str(name).replace("\n", " ") for name in plan.labels.classes]
    rejects = [
        reject | {"file": row["file"]}
        for row in rows.values()
        for reject in row["rejects"]
    ]
    refused = pd.DataFrame(rejects, columns=REJECT_COLUMNS).to_csv(
        index=False, lineterminator="\n"
    )
    texts = {"rejects.csv": refused} if rejects else {}
    texts |= {
        "plan.json": plan.to_json(),
        "schema.json": describe_schema(plan),
        "labels.json": plan.labels.to_json(),
        "labels.txt": "".join(
            f"{label}:{name}\n" for label, name in enumerate(classes)
        ),
        "shards.csv": shards.to_csv(index=False, lineterminator="\n"),
    }
    submission = storage.read_text(storage.join(work_dir, SUBMISSION))
    if submission and "test" in set(shards["split"]):
        texts[SUBMISSION] = submission
    return texts


def _mend_index(part_dir: str, name: str, row: Row, sha256: str) -> str:
    """The sha256 of a shard's index, which is made anew where it does not fit the shard."""
    path = storage.join(part_dir, name)
    whole = read_index(path)[-1] == row["bytes"] and storage.exists(path)
    if not whole or sha256 not in ("", storage.sha256_of(path)):
        with storage.local_copy(storage.join(part_dir, row["file"])) as local:
            storage.write_atomically(path, format_index(list_frames(local)).encode())
    return storage.sha256_of(path)


def find_changed(part_dir: str, plan: Plan, rows: Sequence[Row]) -> dict[str, str]:
    """Return the problems of the files beside a part's shards, by name."""
    sums = read_sums(part_dir)
    shards = {row["file"]: row["sha256"] for row in rows}
    wrong = find_changed_files(
        part_dir, {n: own for n, own in sums.items() if n not in shards}
    )
    needed = {"plan.json", "schema.json", "labels.json", "labels.txt", "shards.csv"}
    needed |= {f"{row['split']}.csv" for row in rows}
    needed |= {"rejects.csv" for row in rows if row["refused"]}
    needed |= {f"index/{file}.idx" for file in shards if not plan.settings.compression}
    if needed - sums.keys() or shards.items() - sums.items():
        wrong[SUMS] = "it is missing, broken, or lacks a file"
    described, renewed = renew_metadata(part_dir, plan, rows)
    if described != renewed:
        wrong[DATASET_FILE] = "it is missing, or does not describe this part"
    return wrong


def renew_metadata(
    part_dir: str, plan: Plan, rows: Sequence[Row], license_name: str = ""
) -> tuple[str, str]:
    """The text of dataset-metadata.json, and what it should be: what the user changed stays.

    license_name: "" for the one that stands there.
    """
    text = storage.read_text(storage.join(part_dir, DATASET_FILE))
    made, found = (
        describe_dataset(plan, rows[0]["part"], pd.DataFrame(rows, columns=COLUMNS)),
        {},
    )
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        found = json.loads(text)
        made |= {name: found[name] for name in YOURS}
    made |= {"licenses": [{"name": license_name}]} if license_name else {}
    return text, text if found == made else json.dumps(made, indent=1) + "\n"


def describe_schema(plan: Plan) -> str:
    """What schema.json holds: the schema, and for others how shards and pictures are read."""
    # With nothing resized, originals of either format may have kept their bytes.
    format_ = "jpeg or png" if plan.image.resize == "none" else "jpeg"
    return plan.schema.to_json(
        compression=plan.settings.compression, image_format=format_
    )


def _write_image_tables(
    work_dir: str, folder: str, plan: Plan, rows: Mapping[int, Row]
) -> None:
    """Writes a CSV a split, a row a record, with one shard's rows in memory at a time."""
    begun = set[str]()  # for a `stat` that fails would say that no file is there
    for shard, table in read_rows(
        work_dir, [s for s in plan.shards if s.number in rows]
    ):
        row, path = rows[shard.number], os.path.join(folder, f"{shard.split}.csv")
        refused = [reject["image_id"] for reject in row["rejects"]]
        kept = table[~table["image_id"].isin(refused)].assign(file=row["file"])
        kept = kept.assign(
            source_height=kept.get("height"), source_width=kept.get("width")
        )
        kept["record"] = range(len(kept))
        kept = kept[
            [name for name in _table_columns(plan, shard.split) if name in kept]
        ]
        how: dict[str, Any] = {
            "header": path not in begun,
            "index": False,
            "lineterminator": "\n",
        }
        text = kept.to_csv(**how)
        if (
            "\r" in text
        ):  # at which readers end a row, unless quoted: Python before 3.13 does not
            text = kept.to_csv(quoting=csv.QUOTE_NONNUMERIC, **how)
        with open(path, "ab") as file:
            file.write(text.encode())
        begun.add(path)


def _table_columns(plan: Plan, split: str) -> list[str]:
    """The columns of a split's CSV, where the table has them."""
    schema = plan.schema.for_split(split)
    columns = ["image_id", *schema.label_columns]
    columns += ["label", "label_name"] if schema is plan.schema else []
    columns += [source for field in schema.fields for source in field.sources]
    columns = [
        name for name in columns if name not in ("height", "width", "format", "split")
    ]
    # Codes of masks follow the picture's size, so its size before counts.
    columns += ["source_height", "source_width"] if schema.kind == "masks" else []
    return [*dict.fromkeys(columns), "fold", "file", "record"]


def describe_dataset(plan: Plan, part: int, shards: pd.DataFrame) -> dict[str, Any]:
    """What dataset-metadata.json holds: title, slug, subtitle and description for Kaggle.
    Source: https://github.com/Kaggle/kaggle-cli/blob/main/docs/datasets_metadata.md.
    """
    of = f" part {part} of {plan.n_parts}" if plan.n_parts > 1 else ""
    tail = "tfrecords" + (f"-{part}-of-{plan.n_parts}" if of else "")
    count, name = (
        int(shards["count"].sum()),
        " ".join(plan.labels.name.split()) or "images",
    )
    subtitle = f"{count:,} images of {len(plan.labels.classes):,} classes as TFRecord shards{of}"
    return {
        "title": f"{name[: 50 - len(' TFRecords' + of)]} TFRecords{of}",
        "id": f"{OWNER_PLACEHOLDER}/{to_slug(name, tail)}",
        "subtitle": subtitle
        if len(subtitle) <= 80
        else f"{count:,} images as TFRecord shards",
        "description": _describe_part(plan, part, shards),
        "licenses": [],
        "keywords": [],
    }


def _describe_part(plan: Plan, part: int, shards: pd.DataFrame) -> str:
    image, classes = plan.image, [str(name) for name in plan.labels.classes]
    shape = "original size" if image.size is None else f"{image.resize} {image.size}"
    folds = shards.groupby(["split", "fold"])["count"].agg(["size", "sum"])
    rows = [
        f"| {s} | {f} | {n} | {count:,} |" for (s, f), n, count in folds.itertuples()
    ]
    table = "\n".join(rows)
    return f"""\
{shards["count"].sum():,} images in {len(shards)} TFRecord shards, \
{shards["bytes"].sum() / 1e9:,.3f} GB; part {part} of {plan.n_parts}, \
each part a stratified sample of the whole.

- Images: {shape}, JPEG quality {image.quality}, {image.subsampling}.
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
    numbers = [
        name for name in checks if name not in DuplicateSettings.__dataclass_fields__
    ]
    rows = [
        f"| {name.replace('_', ' ')} | {round(checks[name], 4):,} |" for name in numbers
    ]
    table = "\n".join(["| leakage check of all parts | |", "|---|---|", *rows])
    near += "."
    if checks.get("mirrored"):  # plans of earlier versions do not contain it
        near += " Mirrored copies, and copies rotated by right angles, were searched for too."
    return f"Near-duplicates, by which clusters are made: pictures within {near}\n\n{table}"
