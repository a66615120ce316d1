"""Parts read again to the last byte: every fault by file, record and byte offset."""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import tensorflow as tf

from kaggle_tfr import journal, metadata, progress, storage
from kaggle_tfr.frames import find_record_problem, read_frames
from kaggle_tfr.plan import Plan, read_plan
from kaggle_tfr.schema import RecordSchema
from kaggle_tfr.shard_files import sha256_of

COLUMNS = ["part", "file", "record", "offset", "problem"]
MOST_FAULTS = 20  # of one file: a file with more is to be written again anyway
NO_RECORD = -1


@dataclass(frozen=True)
class Task:
    """A shard to read: its row of shards.csv and the plan's rows of its records, where known."""

    part_dir: str
    plan: Plan
    row: dict
    records: pd.DataFrame | None


def verify_parts(folders: Sequence[str] | str) -> pd.DataFrame:
    """The faults of part folders, one row each: part, file, record, offset, problem; none is good.

    Every byte is read: sha256, the CRCs of every record, its fields against the plan's row, its
    image against height and width, the index; names, counts and files against plan and shards.csv.
    record: from 0, −1 when the fault is the file's; offset: of the record in the (unpacked) file.

    Raises:
        FileNotFoundError: a folder is no part: it has no plan.json.
    """
    folders = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    faults, tasks, total = [], [], 0
    for folder in map(str, folders):
        plan = read_plan(folder)
        try:
            rows = sorted(journal.read_rows_of_part(folder), key=lambda row: row["file"])
        except ValueError as error:
            faults.append(_fault(folder, "shards.csv", str(error)))
            continue
        faults += check_folder(folder, plan, rows)
        total += sum(row["count"] for row in rows)
        tasks.append(list_tasks(folder, plan, rows))
    every = (task for some in tasks for task in some)
    done = progress.run(
        verify_shard, every, label="Verifying records", total=total, advance=lambda x: x[0]
    )
    for _, found in done:
        faults += found
    table = pd.DataFrame(faults, columns=COLUMNS)
    return table.sort_values(["part", "file", "record"], ignore_index=True)


def check_folder(folder: str, plan: Plan, rows: Sequence[dict]) -> list[dict]:
    """Faults of the folder as a whole: files, names and counts against the plan."""
    faults = []

    def report(file: str, problem: str) -> None:
        faults.append(_fault(folder, file, problem))

    if not journal.is_closed(folder):
        report("shards.csv", "the part is unfinished; run 04_write again")
    known = {(row["split"], row["fold"], row["shard"]): row for row in rows}
    parts = {row["part"] for row in rows}
    for shard in plan.shards:
        row = known.pop((shard.split, shard.fold, shard.index), None)
        name = plan.file_name(shard)
        if row is None and shard.part in parts:
            report(name, "in plan.json, but not in shards.csv")
        elif row and row["count"] + row["refused"] != shard.count:
            there = f"{row['count']} written and {row['refused']} refused"
            report(row["file"], f"the plan has {shard.count} images, shards.csv {there}")
        elif row and row["file"] != plan.file_name(shard, row["count"]):
            report(row["file"], f"by the plan its name is {plan.file_name(shard, row['count'])}")
    for row in known.values():
        report(row["file"], "in shards.csv, but not in plan.json")
    listed = {storage.join(folder, row["file"]) for row in rows}
    pattern = re.sub(r"\{[^}]*\}", "*", plan.shard_name)
    for path in sorted(set(storage.list_files(pattern, folder)) - listed):
        report(path[len(folder) :].lstrip("/"), "not in shards.csv")
    for name in [f"{split}.csv" for split in sorted({row["split"] for row in rows})]:
        if not metadata.is_image_table(storage.join(folder, name)):
            report(name, "missing or broken, so labels cannot be compared with the plan")
    texts = {"schema.json": plan.schema, "labels.json": {"classes": plan.classes}}
    for name, wanted in texts.items():
        if _read_json(storage.join(folder, name)) != wanted:
            report(name, "missing, or different from plan.json")
    return faults


def list_tasks(folder: str, plan: Plan, rows: Sequence[dict]) -> Iterator[Task]:
    """A task a shard, each with its own rows only, read as they are asked for."""
    left = {row["file"]: row for row in rows}
    make = partial(Task, part_dir=folder, plan=replace(plan, shards=[], classes=[]))
    text = [f["source"] for f in plan.schema["fields"] if f["type"] == "bytes"]
    text = [name for name in text if isinstance(name, str)]
    splits = sorted({row["split"] for row in rows})
    for file, records in metadata.read_image_tables(folder, splits, text):
        if file in left:
            yield make(row=left.pop(file), records=records)
    for row in left.values():
        yield make(row=row, records=None)


def verify_shard(task: Task) -> tuple[int, list[dict]]:
    """The records that shards.csv tells of, and the faults found in the file."""
    row, path = task.row, storage.join(task.part_dir, task.row["file"])
    if not storage.exists(path):
        return row["count"], [_fault(task.part_dir, row["file"], "the file is missing")]
    with tempfile.TemporaryDirectory() as scratch:
        local = path
        if storage.is_remote(path):
            local = os.path.join(scratch, "shard")
            tf.io.gfile.copy(path, local)
        faults = list(_find_faults(task, local, scratch))
    return row["count"], [_fault(task.part_dir, row["file"], *fault) for fault in faults]


def _find_faults(task: Task, local: str, scratch: str) -> Iterator[tuple[str, int, int]]:
    """(problem, record, offset) of each fault of a shard."""
    schema, row = RecordSchema.from_dict(task.plan.schema), task.row
    index = _read_index(task)
    expected = task.records.to_dict("records") if task.records is not None else []
    count = n_faults = 0
    frames = read_frames(local, task.plan.compression, index, scratch)
    for count, (offset, data, problem) in enumerate(frames, 1):
        if data is not None:
            wanted = expected[count - 1] if count <= len(expected) else None
            problem = find_record_problem(data, schema, wanted, task.plan.image)  # noqa: PLW2901
            if index and index.get(offset) != len(data) + 16:
                problem = problem or "the index has another offset or length"  # noqa: PLW2901
        if problem:
            n_faults += 1
            yield problem, count - 1, offset
        if n_faults == MOST_FAULTS:
            yield f"{MOST_FAULTS} faults; the rest of the file was not read", NO_RECORD, 0
            return
    if task.records is not None and len(expected) != row["count"]:
        yield f"{row['split']}.csv has {len(expected)} rows of this file", NO_RECORD, 0
    if count != row["count"]:
        yield f"{count} records were found, shards.csv has {row['count']}", NO_RECORD, 0
    size = os.path.getsize(local)
    if size != row["bytes"]:
        yield f"{size:,} bytes, shards.csv has {row['bytes']:,}", NO_RECORD, 0
    elif sha256_of(local) != row["sha256"]:
        yield "its sha256 is not that of shards.csv", NO_RECORD, 0


def _read_json(path: str) -> object:
    """What a JSON file holds; None where it is missing or broken."""
    try:
        return json.loads(storage.read_bytes(path))
    except (FileNotFoundError, ValueError):
        return None


def _read_index(task: Task) -> dict[int, int]:
    """Length of each frame by its offset, from the index; {} where there is none."""
    path = storage.join(task.part_dir, "index", f"{task.row['file']}.idx")
    if not storage.exists(path):
        return {}
    try:
        lines = storage.read_bytes(path).decode().splitlines()
        return {int(offset): int(length) for offset, length in map(str.split, lines)}
    except ValueError:
        return {-1: 0}


def _fault(folder: str, file: str, problem: str, record: int = NO_RECORD, offset: int = 0) -> dict:
    values = (storage.join(folder), file, record, offset, problem)
    return dict(zip(COLUMNS, values, strict=True))
