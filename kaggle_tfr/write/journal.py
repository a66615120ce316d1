"""Finished shards of a part: the rows of its shards.csv, and of its journal until then.

A journal row is written just before its shard gets its final name, so every shard with
a final name has a row. Once the part is complete, shards.csv replaces the journal. A
run locks the part; a bucket, and a file system without locks, are not locked.
"""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from filelock import FileLock, Timeout

from kaggle_tfr import storage
from kaggle_tfr.plan.plan import PART_FILES, Plan, read_plan
from kaggle_tfr.schema import JsonDataclass
from kaggle_tfr.shards import (
    find_changed_files,
    read_part_table,
    read_sums,
    sha256_of_text,
)

WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
REJECT_COLUMNS = ["image_id", "path", "problem", "file"]


@dataclass(frozen=True)
class ShardRow(JsonDataclass):
    """A finished shard, as a row of shards.csv, with its rejected images.

    shard: index among the shards of its split and fold; refused: number of rejects.
    rejects: `REJECT_COLUMNS` of the images that could not be written.
    number: among all shards of the plan, -1 while unknown. fingerprint: of the plan.
    """

    file: str
    split: str
    fold: int
    count: int
    bytes: int
    sha256: str
    part: int
    shard: int
    refused: int
    rejects: list[dict[str, str]] = field(default_factory=list)
    number: int = -1
    fingerprint: str = ""


COLUMNS = [field.name for field in fields(ShardRow)][:9]  # of shards.csv


@contextmanager
def lock_part(part_dir: str) -> Iterator[None]:
    """Keep other runs from writing a part while this block runs.

    Raises: RuntimeError: another run writes it.
    """
    if storage.is_remote(part_dir):
        yield
        return
    storage.make_folder(part_dir)
    path = f"{part_dir}/.lock"
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RuntimeError(
            f"another run writes {os.path.basename(part_dir)}, in '{part_dir}'. Wait "
            "until it has ended, or set another PART or OUT_DIR."
        ) from None
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    try:
        yield
    finally:
        storage.remove(path)
        lock.release()


def open_part(part_dir: str, plan: Plan, *, overwrite: bool = False) -> list[ShardRow]:
    """Write the plan to a part, and return the rows of its finished shards.

    Shards that have changed or that the plan lacks, and temporary files of killed runs,
    are removed.
    Raises: ValueError: the part was written from a different plan and `overwrite` is
        off, or a row names a file outside the part.
    """
    changes = _find_changes(part_dir, plan)
    if changes and not overwrite:
        raise ValueError(
            f"'{part_dir}' was written from a different plan: {changes}. "
            "Set OVERWRITE = True to write it again (on the command line: "
            "-p OVERWRITE=True), choose another OUT_DIR, or revert the change."
        )
    if changes:
        clear_part(part_dir)

    storage.remove_leftovers(part_dir, storage.PART_LEVELS)
    storage.make_folder(storage.scratch_folder(part_dir))
    path = f"{part_dir}/plan.json"
    text = plan.to_json()
    if storage.read_text(path) != text:
        storage.write_atomically(path, text.encode())
    rows = read_rows_of_part(part_dir)
    planned = match_plan(rows, plan)
    sums = {row.file: row.sha256 for row in planned}
    changed = find_changed_files(part_dir, sums)
    _remove_shards(part_dir, [*changed, *({row.file for row in rows} - sums.keys())])
    return [row for row in planned if row.file not in changed]


def _find_changes(part_dir: str, plan: Plan) -> str:
    """Return how the plan of a part differs: "QUALITY: 90 before, 70 now", or ""."""
    # SHA256SUMS can identify the plan of a part without plan.json.
    is_same = read_sums(part_dir).get("plan.json") == sha256_of_text(plan.to_json())
    names = ("plan.json", "shards.csv")
    if is_same or not any(storage.exists(f"{part_dir}/{name}") for name in names):
        return ""
    try:
        before = read_plan(part_dir)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    if before.fingerprint == plan.fingerprint:
        return ""
    settings = vars(before.settings)
    changes = [
        f"{name.upper()}: {settings[name]!r:.60} before, {value!r:.60} now"
        for name, value in vars(plan.settings).items()
        if value != settings[name]
    ]
    return "; ".join(changes) or "the schema, or the images and their labels"


def read_rows_of_part(part_dir: str) -> list[ShardRow]:
    """Return the readable rows of shards.csv and the journal; no file is checked.

    Raises: ValueError: a row names a file outside the part.
    """
    # A row of the journal replaces the one of shards.csv.
    rows = {}
    for row in [*_read_shards_csv(part_dir), *_read_journal(part_dir)]:
        storage.join(part_dir, row.file, f"{row.split}.csv")
        rows[row.split, row.fold, row.shard] = row
    return list(rows.values())


def _read_shards_csv(part_dir: str) -> Iterator[ShardRow]:
    """Yield the rows of shards.csv, with their rejects from rejects.csv.

    Only rejects.csv names the rejected images: shards without it are written again.
    """
    sums = read_sums(part_dir)
    with suppress(ValueError):  # a broken table
        rows = read_part_table(part_dir, "shards.csv", COLUMNS)
        rejects = read_part_table(part_dir, "rejects.csv", REJECT_COLUMNS)
        if find_changed_files(part_dir, {"rejects.csv": sums.get("rejects.csv", "")}):
            rejects = rejects[:0]
        values: Any
        for values in rows.to_dict("records"):
            of_shard: Any = rejects[rejects["file"] == values["file"]]
            yield ShardRow(**values, rejects=of_shard.to_dict("records"))


def _read_journal(part_dir: str) -> Iterator[ShardRow]:
    """Yield the rows of the journal; a shard whose row is broken is written again."""
    for path in storage.list_files("journal/*.json", part_dir):
        with suppress(ValueError):
            yield ShardRow.parse(storage.read_bytes(path), path, "")


def add_row(part_dir: str, row: ShardRow) -> None:
    """Write the row of a shard to the journal, before the shard gets its name."""
    path = f"{part_dir}/journal/{row.number:06d}.json"
    storage.write_atomically(path, row.to_json().encode())


def match_plan(rows: Iterable[ShardRow], plan: Plan) -> list[ShardRow]:
    """Return the rows that agree with the plan, with their shards' numbers.

    The files themselves are not checked.
    """
    shards = {(shard.split, shard.fold, shard.index): shard for shard in plan.shards}
    matching = []
    for row in rows:
        shard = shards.get((row.split, row.fold, row.shard))
        if (
            shard
            and row.fingerprint in ("", plan.fingerprint)
            and row.file == plan.file_name(shard, row.count)
            and shard.count - row.count == row.refused == len(row.rejects)
        ):
            matching.append(replace(row, number=shard.number))
    return matching


def clear_part(part_dir: str) -> None:
    """Remove the files that 04_write wrote to a part; other files stay.

    Shards are removed before their rows, and plan.json last, so that the call can be
    repeated after an interruption.
    """
    rows = read_rows_of_part(part_dir)
    names = {f"{row.split}.csv" for row in rows}
    names |= {*PART_FILES, *read_sums(part_dir)} - {"shards.csv", "plan.json"}
    _remove_shards(part_dir, [row.file for row in rows])
    for name in [*sorted(names), "shards.csv"]:
        storage.remove(storage.join(part_dir, name))
    remove_journal(part_dir)
    storage.remove(f"{part_dir}/plan.json")


def _remove_shards(part_dir: str, files: Iterable[str]) -> None:
    """Remove shards with their indices."""
    for file in files:
        path = storage.join(part_dir, file)
        # A link may lead out of the part.
        if storage.is_inside(os.path.dirname(path), part_dir):
            storage.remove(path)
        storage.remove(f"{part_dir}/index/{file}.idx")


def remove_journal(part_dir: str) -> None:
    """Remove the journal, and the temporary files of killed workers."""
    storage.remove_leftovers(part_dir, storage.PART_LEVELS)
    for path in storage.list_files("journal/*.json", part_dir):
        storage.remove(path)
    shutil.rmtree(f"{part_dir}/journal", ignore_errors=True)


def is_closed(part_dir: str) -> bool:
    """Return whether the part is complete: it has shards.csv, and no journal."""
    has_rows = bool(storage.list_files("journal/*.json", part_dir))
    return storage.exists(f"{part_dir}/shards.csv") and not has_rows
