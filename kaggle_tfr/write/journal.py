"""The finished shards of a part: the rows of its shards.csv, and of its journal.

The journal is a folder with a table for each shard, which is written just before the
shard gets its final name, so that every shard has a row. Once the part is complete,
shards.csv has all rows. A run locks the part; a bucket, and a file system without
locks, are not locked.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields, replace

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.lock import hold
from kaggle_tfr.plan.plan import PART_FILES, Plan, read_plan
from kaggle_tfr.shards import (
    find_changed_files,
    read_part_table,
    read_sums,
    sha256_of_text,
)
from kaggle_tfr.tables import format_csv

LAST_FILES = ("shards.csv", "plan.json")  # to be removed after all others


@dataclass(frozen=True)
class ShardRow:
    """A finished shard, as a row of shards.csv.

    shard: index among the shards of its split and fold. refused: number of images that
    could not be written. number: among all shards of the plan, -1 while unknown.
    rejects: rows of rejects.csv, only of a shard that this run has written.
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
    number: int = -1
    rejects: Sequence[dict[str, str]] = ()


COLUMNS = [field.name for field in fields(ShardRow)][:9]  # of shards.csv


def lock_part(part_dir: str) -> AbstractContextManager[None]:
    """Keep other runs from writing a part in a `with` block.

    Raises: RuntimeError: another run writes it.
    """
    return hold(
        f"{part_dir}/.lock",
        f"another run writes {os.path.basename(part_dir)}, in '{part_dir}'. Wait "
        "until it has ended, or set another PART or OUT_DIR.",
    )


def open_part(part_dir: str, plan: Plan, *, overwrite: bool = False) -> list[ShardRow]:
    """Write the plan to a part, and return the rows of its finished shards.

    Shards that have changed or are not in the plan are not among them. Temporary files
    of killed runs are removed.
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
    storage.update(f"{part_dir}/plan.json", plan.to_json().encode())
    rows = match_plan(read_rows(part_dir), plan)
    changed = find_changed_files(part_dir, {row.file: row.sha256 for row in rows})
    return [row for row in rows if row.file not in changed]


def _find_changes(part_dir: str, plan: Plan) -> str:
    """Return how the plan of a part differs: "QUALITY was 90", or ""."""
    # SHA256SUMS can identify the plan of a part without plan.json.
    is_same = read_sums(part_dir).get("plan.json") == sha256_of_text(plan.to_json())
    if is_same or not any(storage.exists(f"{part_dir}/{name}") for name in LAST_FILES):
        return ""
    try:
        before = read_plan(part_dir)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    if before.fingerprint == plan.fingerprint:
        return ""
    changes = [
        f"{name.upper()} was {value!r:.60}"
        for name, value in vars(before.settings).items()
        if value != getattr(plan.settings, name)
    ]
    return "; ".join(changes) or "the schema, or the images and their labels"


def is_closed(part_dir: str) -> bool:
    """Return whether the part is complete: it has shards.csv, and no journal."""
    return storage.exists(f"{part_dir}/shards.csv") and not _list_journal(part_dir)


def _list_journal(part_dir: str) -> list[str]:
    return storage.list_files("journal/*.csv", part_dir)


def read_rows(part_dir: str) -> list[ShardRow]:
    """Return the rows of a part's finished shards, without a check of their files.

    The rows of a broken table are missing. Raises: ValueError: a row names a file
    outside the part.
    """
    rows = {}
    for path in [f"{part_dir}/shards.csv", *_list_journal(part_dir)]:
        with suppress(ValueError):
            table = read_part_table(*os.path.split(path), COLUMNS)
            for values in table.itertuples(index=False):
                row = ShardRow(*values)
                rows[row.split, row.fold, row.shard] = row
    for row in rows.values():
        storage.join(part_dir, row.file, f"{row.split}.csv")
    return [*rows.values()]


def add_row(part_dir: str, row: ShardRow) -> None:
    """Write the row of a shard to the journal."""
    path = f"{part_dir}/journal/{row.number:06d}.csv"
    storage.write_atomically(path, format_rows([row]))


def format_rows(rows: Sequence[ShardRow]) -> bytes:
    """Return the content of shards.csv."""
    return format_csv(pd.DataFrame(rows)[COLUMNS]).encode()


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
            and row.file == plan.file_name(shard, row.count)
            and row.count + row.refused == shard.count
        ):
            matching.append(replace(row, number=shard.number))
    return matching


def clear_part(part_dir: str) -> None:
    """Remove the files that 04_write wrote to a part; other files stay.

    Shards are removed before their rows, and plan.json last, so that the call can be
    repeated after an interruption.
    """
    rows = read_rows(part_dir)
    names = {*PART_FILES, *read_sums(part_dir), *(f"{row.split}.csv" for row in rows)}
    remove_shards(part_dir, [row.file for row in rows])
    remove_journal(part_dir)
    for name in [*sorted(names.difference(LAST_FILES)), *LAST_FILES]:
        storage.remove(storage.join(part_dir, name))


def remove_shards(part_dir: str, files: Iterable[str]) -> None:
    """Remove shards with their indices."""
    for file in files:
        storage.remove(f"{part_dir}/{file}")
        storage.remove(f"{part_dir}/index/{file}.idx")


def remove_journal(part_dir: str) -> None:
    """Remove the journal, and the temporary files of killed workers."""
    storage.remove_leftovers(part_dir, storage.PART_LEVELS)
    for path in _list_journal(part_dir):
        storage.remove(path)
    shutil.rmtree(f"{part_dir}/journal", ignore_errors=True)
