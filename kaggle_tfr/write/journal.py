"""The finished shards of a part: the rows of its shards.csv, and of its journal.

The journal is a folder with one file per shard. The file is written just before the
shard gets its final name, so every shard has a row. Once the part is complete,
shards.csv replaces the journal. A run locks the part. Parts in a bucket, or on a file
system without locks, are not locked.
"""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kaggle_tfr import storage
from kaggle_tfr.plan.plan import Plan
from kaggle_tfr.shards import find_changed_files, read_part_table, read_sums

REJECT_COLUMNS = ["image_id", "path", "problem", "file"]
DATASET_FILE = "dataset-metadata.json"


@dataclass(frozen=True)
class ShardRow:
    """A finished shard, as a row of shards.csv, with its rejected images.

    shard: index among the shards of its split and fold; refused: number of rejects.
    rejects: `REJECT_COLUMNS` of the images that could not be written.
    number: among all shards of the plan, -1 while unknown.
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
    rejects: Sequence[dict[Any, str]] = ()
    number: int = -1


COLUMNS = [*ShardRow.__annotations__][:9]  # of shards.csv


def open_part(part_dir: str, plan: Plan, *, overwrite: bool = False) -> list[ShardRow]:
    """Write the plan to a part, and return the rows of its finished shards.

    A shard is finished if its row agrees with the plan, and its file with the row.
    Files that have changed, shards that the plan lacks, and temporary files of killed
    runs are removed.
    overwrite: a part of a different plan has no finished shards, and is written again.
    Raises: ValueError: the part was written from a different plan and `overwrite` is
        off, or a row names a file outside the part.
    """
    change = _find_change(part_dir, plan)
    if change and not overwrite:
        raise ValueError(
            f"'{part_dir}' was written from a different plan: {change}. Set OVERWRITE "
            "= True to write it again (on the command line: -p OVERWRITE=True), choose "
            "another OUT_DIR, or revert the change."
        )
    storage.remove_leftovers(part_dir)
    rows = read_shard_rows(part_dir)
    finished = [] if change else match_plan(rows, plan)
    sums = read_sums(part_dir) | {row.file: row.sha256 for row in finished}
    changed = find_changed_files(part_dir, sums)  # or that are missing
    # Shards with rejects are written again: only rejects.csv has their reasons.
    if "rejects.csv" in changed:
        finished = [row for row in finished if not row.refused]
    finished = [row for row in finished if row.file not in changed]
    unfinished = {row.file for row in rows} - {row.file for row in finished}
    # Without its shards.csv a part is unfinished, so that goes first, and
    # dataset-metadata.json, which SHA256SUMS does not list. `close_part` removes the
    # other files of a different plan, which SHA256SUMS lists.
    closing_files = ["shards.csv", DATASET_FILE] if change else []
    for file in [*closing_files, *changed, *unfinished]:
        storage.remove(storage.join(part_dir, file))
    storage.write_atomically(f"{part_dir}/plan.json", plan.to_json())
    return finished


def _find_change(part_dir: str, plan: Plan) -> str:
    """Return how the plan of a part differs, such as "QUALITY was 90", or "".

    It is "" also for a folder without shards and plan.
    """
    # The names of folders have "/" at the end.
    is_new = {"shards.csv", "plan.json", "journal/"}.isdisjoint(
        storage.list_names(part_dir)
    )
    before = read_json(f"{part_dir}/plan.json")
    if is_new or before.get("fingerprint") == plan.fingerprint:
        return ""
    changes = [
        f"{name.upper()} was {value!r:.60}"
        for name, value in before.get("settings", {}).items()
        # As JSON, which has lists in place of tuples.
        if json.dumps(value) != json.dumps(getattr(plan.settings, name, value))
    ]
    return ", ".join(changes) or "it has other images, or its plan.json is damaged"


def read_json(path: str) -> dict[str, Any]:
    """Return the mapping in a JSON file, {} if there is none or it is damaged."""
    with suppress(ValueError):
        return storage.parse_json(storage.read_text(path), path, "")
    return {}


def write_json(path: str, values: Mapping[str, Any]) -> None:
    """Write a JSON file, as `storage.write_atomically` does: complete or not at all."""
    storage.write_atomically(path, json.dumps(values, indent=1) + "\n")


def _list_journal(part_dir: str) -> list[str]:
    """Return the paths of the files in a part's journal, one per shard, sorted."""
    names = storage.list_names(f"{part_dir}/journal")
    return [f"{part_dir}/journal/{name}" for name in names if name.endswith(".json")]


def read_shard_rows(part_dir: str) -> list[ShardRow]:
    """Return the rows of a part's finished shards, without a check of their files.

    Those in shards.csv are first, then those of the journal. `number` is -1 for rows of
    shards.csv, which has no such column. The rows of a broken table are missing.
    """
    rows = list[ShardRow]()
    with suppress(ValueError):
        rejects = read_part_table(part_dir, "rejects.csv", REJECT_COLUMNS)
        for values in read_part_table(part_dir, columns=COLUMNS).to_numpy():
            # COLUMNS are the first fields of a `ShardRow`, in their order.
            of_shard = rejects[rejects["file"] == values[0]].to_dict("records")
            rows.append(replace(ShardRow(*values), rejects=of_shard))
    for path in _list_journal(part_dir):
        with suppress(ValueError, TypeError):
            rows.append(ShardRow(**json.loads(storage.read_bytes(path))))
    return rows


def match_plan(rows: Iterable[ShardRow], plan: Plan) -> list[ShardRow]:
    """Return the last row of each shard that agrees with the plan, with its number.

    That is the row of the journal, if shards.csv has one as well. The files themselves
    are not checked.
    """
    shards = {(shard.split, shard.fold, shard.index): shard for shard in plan.shards}
    matching = {}
    for row in rows:
        shard = shards.get((row.split, row.fold, row.shard))
        # Each planned image is a record, or a reject whose reason is known.
        if shard and shard.count - row.count == row.refused == len(row.rejects):
            matching[shard.number] = replace(row, number=shard.number)
    return [*matching.values()]


def remove_journal(part_dir: str) -> None:
    """Remove the journal, with the temporary files of killed workers."""
    for path in _list_journal(part_dir):
        storage.remove(path)
    # The folder, with what else is in it. A bucket has no folders.
    shutil.rmtree(f"{part_dir}/journal", ignore_errors=True)
