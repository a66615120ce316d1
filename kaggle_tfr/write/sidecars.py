"""The files beside a part's shards: tables of the images, indices, labels and sums."""

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.fingerprints import (
    FINGERPRINTS_FILE,
    encode_fingerprints,
    select_fingerprints,
)
from kaggle_tfr.naming import FOLDS_FILE, SUBMISSION
from kaggle_tfr.plan.plan import Plan, has_folds, read_rows
from kaggle_tfr.records import format_index, list_frames, read_index
from kaggle_tfr.shards import SUMS, find_changed_files, format_sums, sha256_of_text
from kaggle_tfr.tables import format_csv
from kaggle_tfr.write import journal
from kaggle_tfr.write.journal import COLUMNS, REJECT_COLUMNS, ShardRow
from kaggle_tfr.write.metadata import DATASET_FILE, renew_metadata


def close_part(
    work_dir: str,
    part_dir: str,
    plan: Plan,
    rows: Sequence[ShardRow],
    license_name: str,
    *,
    publish_hashes: bool = False,
) -> None:
    """Write the files beside the shards of a finished part, and end its journal.

    rows: of all shards of the part, in the plan's order. Files that are right stay.
    publish_hashes: whether the part gets hashes.parquet.
    """
    with storage.explain_os_errors(part_dir, storage.OUTPUT_FIXES):
        sums = _complete_indices(part_dir, plan, rows)
        sums |= {row.file: row.sha256 for row in rows}
        scratch_parent = storage.scratch_folder(part_dir)
        with tempfile.TemporaryDirectory(dir=scratch_parent) as scratch:
            _write_image_tables(work_dir, scratch, plan, rows, publish_hashes)
            for name, text in _list_texts(work_dir, plan, rows).items():
                Path(scratch, name).write_bytes(text.encode())
            if has_folds(plan, rows[0].part):
                with storage.local_copy(f"{work_dir}/{FOLDS_FILE}") as folds:
                    shutil.copyfile(folds, f"{scratch}/{FOLDS_FILE}")
            _publish_files(scratch, part_dir, sums)

        metadata = renew_metadata(part_dir, plan, rows, license_name)
        if metadata:
            metadata_path = f"{part_dir}/{DATASET_FILE}"
            storage.write_atomically(metadata_path, metadata.encode())
    journal.remove_journal(part_dir)


def _complete_indices(
    part_dir: str, plan: Plan, rows: Sequence[ShardRow]
) -> dict[str, str]:
    """Write missing or wrong indices of shards, and return the sha256 of all."""
    sums = dict[str, str]()
    if plan.settings.compression:
        return sums
    for row in rows:
        name = f"index/{row.file}.idx"
        path = f"{part_dir}/{name}"
        # The index of an empty shard is an empty file.
        if not storage.exists(path) or read_index(path)[-1] != row.bytes:
            _write_index(path, f"{part_dir}/{row.file}")
        sums[name] = storage.sha256_of(path)
    return sums


def _write_index(path: str, shard: str) -> None:
    with storage.local_copy(shard) as local:
        bounds = list_frames(local)
    storage.write_atomically(path, format_index(bounds).encode())


def _publish_files(
    scratch: str,
    part_dir: str,
    sums: dict[str, str],
) -> None:
    """Move new files and SHA256SUMS to the part, shards.csv last.

    sums: of the part's shards and indices. Files with the right content stay.
    """
    new_sums = {}
    for path in Path(scratch).iterdir():
        new_sums[path.name] = storage.sha256_of(path)
    for name in ("rejects.csv", FINGERPRINTS_FILE):
        if name not in new_sums:
            storage.remove(f"{part_dir}/{name}")
    text = format_sums(sums | new_sums)
    Path(scratch, SUMS).write_bytes(text.encode())
    new_sums[SUMS] = sha256_of_text(text)

    changed = find_changed_files(part_dir, new_sums)
    for name in sorted(changed, key=lambda name: name == "shards.csv"):
        storage.publish_file(f"{scratch}/{name}", f"{part_dir}/{name}")


def _list_texts(
    work_dir: str,
    plan: Plan,
    rows: Sequence[ShardRow],
) -> dict[str, str]:
    """Return the text of each small file beside the shards, by its name."""
    texts = {
        "plan.json": plan.to_json(),
        "schema.json": _format_schema(plan),
        "labels.json": plan.labels.to_json(),
        "labels.txt": _format_classes(plan.labels.classes),
        "shards.csv": format_csv(pd.DataFrame(rows, columns=COLUMNS)),
    }
    rejects = _list_rejects(rows)
    if len(rejects):
        texts["rejects.csv"] = format_csv(rejects)
    submission = storage.read_text(storage.join(work_dir, SUBMISSION))
    if submission and any(row.split == "test" for row in rows):
        texts[SUBMISSION] = submission
    return texts


def _format_schema(plan: Plan) -> str:
    """Return the text of schema.json."""
    # Without resizing, originals keep their bytes and their format.
    image_format = "jpeg or png" if plan.image.resize == "none" else "jpeg"
    return plan.schema.to_json(
        compression=plan.settings.compression, image_format=image_format
    )


def _format_classes(classes: Iterable[object]) -> str:
    """Return the text of labels.txt, a line for each class."""
    names = [str(name).replace("\n", " ") for name in classes]
    return "".join(f"{number}:{name}\n" for number, name in enumerate(names))


def _list_rejects(rows: Iterable[ShardRow]) -> pd.DataFrame:
    """Return the images of all shards that could not be written."""
    rejects = []
    for row in rows:
        rejects += [reject | {"file": row.file} for reject in row.rejects]
    return pd.DataFrame(rejects, columns=REJECT_COLUMNS)


def _write_image_tables(
    work_dir: str,
    folder: str,
    plan: Plan,
    rows: Sequence[ShardRow],
    publish_hashes: bool,
) -> None:
    """Write a CSV for each split, and hashes.parquet: a row for each record.

    The other columns of one shard at a time are in memory.
    """
    shards = [plan.shards[row.number] for row in rows]
    tables = read_rows(work_dir, shards)
    fingerprints = []
    for row, (_, images) in zip(rows, tables, strict=True):
        rejected = [reject["image_id"] for reject in row.rejects]
        records = images[~images["image_id"].isin(rejected)]
        if publish_hashes:
            group_column = plan.settings.group_column
            fingerprints.append(select_fingerprints(records, group_column))
        table = _list_records(plan, row, records)
        with open(f"{folder}/{row.split}.csv", "ab") as file:
            is_new = file.tell() == 0
            text = format_csv(table, header=is_new)
            file.write(text.encode())
    if fingerprints:
        data = encode_fingerprints(pd.concat(fingerprints))
        Path(folder, FINGERPRINTS_FILE).write_bytes(data)


def _list_records(plan: Plan, row: ShardRow, records: pd.DataFrame) -> pd.DataFrame:
    """Return the records of a shard, with the columns of its split's CSV."""
    records = records.assign(
        file=row.file,
        record=range(len(records)),
        source_height=records.get("height"),
        source_width=records.get("width"),
    )
    columns = _list_columns(plan, row.split)
    return records[[name for name in columns if name in records]]


def _list_columns(plan: Plan, split: str) -> list[str]:
    """Return the columns of a split's CSV; a plan may lack a few."""
    schema = plan.schema.for_split(split)
    columns = ["image_id", *schema.label_columns]
    if schema is plan.schema:
        columns += ["label", "label_name"]
    for field in schema.fields:
        for source in field.sources:
            if source not in ("height", "width", "format", "split"):
                columns.append(source)
    if schema.kind == "masks":
        # Codes of masks are resized like the image, from its original size.
        columns += ["source_height", "source_width"]
    columns += ["fold", "file", "record"]
    return list(dict.fromkeys(columns))
