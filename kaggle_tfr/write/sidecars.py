"""The files beside a part's shards: tables of the images, indices, labels and sums."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.earlier import (
    FINGERPRINTS_FILE,
    encode_fingerprints,
    select_fingerprints,
)
from kaggle_tfr.naming import FOLDS_FILE, SUBMISSION
from kaggle_tfr.plan.plan import Plan, read_rows
from kaggle_tfr.records import format_index, list_frames
from kaggle_tfr.shards import SUMS, format_sums, read_sums
from kaggle_tfr.write import journal
from kaggle_tfr.write.journal import COLUMNS, REJECT_COLUMNS, ShardRow
from kaggle_tfr.write.metadata import renew_metadata

# In plan.parquet these are of the original, in a record of the stored image. A CSV has
# those of the original by other names; `verify.ORIGINALS` is the inverse.
RENAMED = {"height": "source_height", "width": "source_width"}


def close_part(
    work_dir: str,
    part_dir: str,
    plan: Plan,
    rows: Sequence[ShardRow],
    license_name: str,
    *,
    publish_hashes: bool = False,
) -> None:
    """Write the files beside the shards of a part, and remove its journal.

    A part with shards.csv is finished, so that file is the last one. Files that have
    the right content already are not written.
    rows: of all shards of the part, in the plan's order.
    license_name: "" for the one in dataset-metadata.json.
    publish_hashes: whether the part gets hashes.parquet.
    """
    renew_metadata(part_dir, plan, rows, license_name)
    files = _list_tables(work_dir, plan, rows, publish_hashes=publish_hashes)
    texts = _list_texts(work_dir, part_dir, plan, rows)
    files |= {name: text.encode() for name, text in texts.items() if text}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    sums |= {row.file: row.sha256 for row in rows}
    # Files of an earlier run, or of another plan, that this part does not have; and
    # stats.json, which `save_stats` writes again.
    for name in read_sums(part_dir).keys() - sums.keys():
        storage.remove(storage.join(part_dir, name))
    # SHA256SUMS is written before its files. If this run is killed between them, each
    # file that may be there is listed, and the next run removes what does not match.
    storage.write_atomically(f"{part_dir}/{SUMS}", format_sums(sums))
    for name, data in files.items():  # shards.csv is the last of them
        storage.write_atomically(f"{part_dir}/{name}", data)
    journal.remove_journal(part_dir)


def _list_texts(
    work_dir: str, part_dir: str, plan: Plan, rows: Sequence[ShardRow]
) -> dict[str, str]:
    """Return the content of each text file beside the shards, "" for no file.

    Keys: paths in the part, in the order of writing. rows: of all its shards.
    """
    # Without resizing, originals keep their bytes and their format.
    image_format = "jpeg or png" if plan.image.resize == "none" else "jpeg"
    compression = plan.settings.compression
    names = [str(name).replace("\n", " ") for name in plan.labels.classes]
    texts = {
        "plan.json": plan.to_json(),
        "schema.json": plan.schema.to_json(
            compression=compression, image_format=image_format
        ),
        "labels.json": plan.labels.to_json(),
        "labels.txt": "".join(f"{label}:{name}\n" for label, name in enumerate(names)),
    }
    rejects = [reject | {"file": row.file} for row in rows for reject in row.rejects]
    if rejects:
        texts["rejects.csv"] = storage.format_csv(pd.DataFrame(rejects)[REJECT_COLUMNS])
    # Copies of files of 01 and 03: only parts with test images need
    # sample_submission.csv, and only the first part of a plan has folds.csv.
    if "test" in {row.split for row in rows}:
        texts[SUBMISSION] = storage.read_text(f"{work_dir}/{SUBMISSION}")
    if rows[0].part == plan.first_part:
        texts[FOLDS_FILE] = storage.read_text(f"{work_dir}/{FOLDS_FILE}")
    # Records of a compressed shard cannot be read by their position.
    if not compression:
        texts |= {f"index/{row.file}.idx": _format_index(part_dir, row) for row in rows}
    # Without shards.csv, which is written last, the part is unfinished.
    texts["shards.csv"] = storage.format_csv(pd.DataFrame(rows)[COLUMNS])
    return texts


def _format_index(part_dir: str, row: ShardRow) -> str:
    """Return the index of a shard: the offset and the length of each record, in bytes.

    They are read from the shard, because no `ShardRow` has them.
    """
    with storage.local_copy(f"{part_dir}/{row.file}") as local:
        return format_index(list_frames(local))


def _list_tables(
    work_dir: str, plan: Plan, rows: Sequence[ShardRow], *, publish_hashes: bool
) -> dict[str, Any]:
    """Return a CSV for each split, and hashes.parquet: bytes, by the name of the file.

    Each has a row for each record, in the order of the shards. Without `publish_hashes`
    there is no hashes.parquet. plan.parquet, which has more columns, is read shard by
    shard to save memory.
    """
    files: dict[str, Any] = defaultdict(bytearray)
    fingerprints = []
    shards = [plan.shards[row.number] for row in rows]
    for row, (_, images) in zip(rows, read_rows(work_dir, shards), strict=True):
        rejected = [reject["image_id"] for reject in row.rejects]
        records = images[~images["image_id"].isin(rejected)]
        if publish_hashes:
            fingerprints.append(
                select_fingerprints(records, plan.settings.group_column)
            )
        # `RENAMED`: height and width of the original get "source_" in front. Codes of
        # masks are resized like the image, from its original size.
        table = records.rename(columns=RENAMED).assign(
            file=row.file, record=range(len(records))
        )
        # `filter` ignores names that are no column. As an object, a float32 such as the
        # brightness has the digits of the Python float that `encode` gets.
        table = table.filter(_list_columns(plan, row.split)).astype(object)
        # Appended in place; the first shard of a split adds the header.
        file = files[f"{row.split}.csv"]
        file += storage.format_csv(table, header=not file).encode()
    if fingerprints:
        files[FINGERPRINTS_FILE] = encode_fingerprints(pd.concat(fingerprints))
    return files


def _list_columns(plan: Plan, split: str) -> list[str]:
    """Return the columns of a split's CSV in their order, each once.

    Some may not be in plan.parquet, such as the source "image" of a field.
    """
    schema = plan.schema.for_split(split)
    columns = ["image_id", *schema.label_columns]
    if schema is plan.schema:  # else it is that of test images without labels
        columns += ["label", "label_name"]
    for field in schema.fields:
        columns += field.sources
    # The CSV has the codes of the original masks, which need the original size.
    if schema.kind == "masks":
        columns += ["source_height", "source_width"]
    return [*dict.fromkeys([*columns, "fold", "file", "record"])]
