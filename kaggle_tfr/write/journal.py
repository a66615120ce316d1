"""Finished shards of a part: the rows of its shards.csv, and of its journal until then.

A journal row is written just before its shard gets its final name, so every shard with
a final name has a row. Once the part is complete, shards.csv replaces the journal.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from kaggle_tfr import storage
from kaggle_tfr.plan.plan import PART_FILES, Plan, Shard, read_plan
from kaggle_tfr.shards import (
    SUMS,
    find_changed_files,
    read_part_table,
    read_sums,
    sha256_of_text,
)

RUN = "journal/run"  # contains the id of the run that writes the part
REJECT_COLUMNS = ["image_id", "path", "problem", "file"]


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
    rejects: list[dict[str, str]] = field(default_factory=list)
    number: int = -1

    @property
    def key(self) -> tuple[int, str, int, int]:
        return self.part, self.split, self.fold, self.shard


COLUMNS = [field.name for field in fields(ShardRow)][:9]  # of shards.csv


def is_claimed(part_dir: str, run_id: str) -> bool:
    """Return whether this run still owns the part."""
    return storage.read_text(f"{part_dir}/{RUN}") == run_id


def open_part(
    part_dir: str, plan: Plan, run_id: str, *, overwrite: bool = False
) -> list[ShardRow]:
    """Claim a part for this run and return the rows of its finished shards.

    Other runs that write the part stop. Shards that the plan lacks are removed.
    Raises: ValueError: the part was written from a different plan and `overwrite` is
        off, or a row names a file outside the part.
    """
    sums = read_sums(part_dir)
    changes = _list_changes(part_dir, plan, sums)
    if changes and not overwrite:
        raise ValueError(
            f"'{part_dir}' was written from a different plan: {'; '.join(changes)}. "
            "Set OVERWRITE = True to write it again (on the command line: "
            "-p OVERWRITE=True), choose another OUT_DIR, or revert the change."
        )
    if changes:
        clear_part(part_dir)

    _claim_part(part_dir, plan, run_id)
    return _remove_other_shards(part_dir, plan, sums.get("rejects.csv", ""))


def _claim_part(part_dir: str, plan: Plan, run_id: str) -> None:
    """Write the id of the run and plan.json; remove temporary files of other runs."""
    storage.write_atomically(f"{part_dir}/{RUN}", run_id.encode())
    storage.remove_leftovers(part_dir, storage.PART_LEVELS)
    plan_path = f"{part_dir}/plan.json"
    text = plan.to_json()
    if storage.read_text(plan_path) != text:
        storage.write_atomically(plan_path, text.encode())


def _remove_other_shards(
    part_dir: str, plan: Plan, sha256_of_rejects: str
) -> list[ShardRow]:
    """Remove the shards that do not agree with the plan; return the rows of the rest.

    sha256_of_rejects: of rejects.csv when it was written, "" if it was not.
    """
    rows = read_rows_of_part(part_dir)
    kept = match_plan(rows, plan)
    rejects = {"rejects.csv": sha256_of_rejects}
    # Only rejects.csv names the rejected images: shards without it are written again.
    if sha256_of_rejects and find_changed_files(part_dir, rejects):
        kept = [row for row in kept if row.refused == 0]
    kept_files = {row.file for row in kept}
    _remove_files(part_dir, _list_files(r for r in rows if r.file not in kept_files))
    return kept


def _list_changes(part_dir: str, plan: Plan, sums: Mapping[str, str]) -> list[str]:
    """Return the differences between a part's plan and this one.

    sums: of SHA256SUMS, which can identify the plan of a part without plan.json.
    """
    if sums.get("plan.json") == sha256_of_text(plan.to_json()):
        return []
    try:
        return compare_plans(read_plan(part_dir), plan)
    except ValueError:
        return ["its plan.json cannot be read"]
    except FileNotFoundError:
        if storage.exists(f"{part_dir}/shards.csv"):
            return ["it has a shards.csv, but no plan.json: restore its plan.json"]
        return []


def compare_plans(old: Plan, new: Plan) -> list[str]:
    """Return the settings that change the shards, as "QUALITY: 90 before, 70 now"."""
    if old.fingerprint == new.fingerprint:
        return []

    before = _list_settings(old)
    changes = [
        f"{name.upper()}: {before[name]!r:.60} before, {value!r:.60} now"
        for name, value in _list_settings(new).items()
        if value != before[name]
    ]
    return changes or ["the images: their list, labels, sizes or shards"]


def _list_settings(plan: Plan) -> dict[str, Any]:
    return asdict(plan.settings) | {
        "name": plan.labels.name,
        "classes": plan.labels.classes,
        "schema": asdict(plan.schema),
        "parts": plan.n_parts,
        "first_part": plan.first_part,
    }


def read_rows_of_part(part_dir: str) -> list[ShardRow]:
    """Return the readable rows of shards.csv and the journal; no file is checked.

    Raises: ValueError: a row names a file outside the part.
    """
    rows = [*_read_shards_csv(part_dir), *_read_journal(part_dir)]
    for row in rows:
        for name in (row.file, f"{row.split}.csv"):
            storage.check_inside(
                name,
                f"a row of shards.csv, or of the journal beside it: '{name}'",
                f"'{part_dir}'",
            )
    # A row of the journal replaces the one of shards.csv.
    return list({row.key: row for row in rows}.values())


def _read_shards_csv(part_dir: str) -> Iterator[ShardRow]:
    """Yield the rows of shards.csv, with their rejects from rejects.csv."""
    rejects = _read_table(part_dir, "rejects.csv", REJECT_COLUMNS)
    for values in _read_table(part_dir, "shards.csv", COLUMNS):
        rejects_of_shard = [r for r in rejects if r["file"] == values["file"]]
        yield ShardRow(**values, rejects=rejects_of_shard)


def _read_journal(part_dir: str) -> Iterator[ShardRow]:
    """Yield the rows of the journal; a shard whose row is broken is written again."""
    for path in storage.list_files("journal/*.json", part_dir):
        with suppress(ValueError, TypeError, RecursionError):
            yield ShardRow(**json.loads(storage.read_bytes(path)))


def _read_table(part_dir: str, name: str, columns: list[str]) -> list[dict[Any, Any]]:
    """Return the rows of a table as dictionaries, [] where it cannot be read."""
    try:
        return read_part_table(part_dir, name, columns)[columns].to_dict("records")
    except ValueError:
        return []


def match_plan(rows: Iterable[ShardRow], plan: Plan) -> list[ShardRow]:
    """Return the rows that agree with the plan, with their shards' numbers.

    The files themselves are not checked.
    """
    shards = {
        (shard.part, shard.split, shard.fold, shard.index): shard
        for shard in plan.shards
    }
    matching = []
    for row in rows:
        shard = shards.get(row.key)
        if shard and _is_row_of(shard, row, plan):
            matching.append(replace(row, number=shard.number))
    return matching


def _is_row_of(shard: Shard, row: ShardRow, plan: Plan) -> bool:
    """Return whether file name and number of images agree."""
    has_name = row.file == plan.file_name(shard, row.count)
    return has_name and shard.count - row.count == row.refused == len(row.rejects)


def clear_part(part_dir: str) -> None:
    """Remove the files that 04_write wrote to a part; other files stay.

    The claim goes first, so that workers of another run stop; then shards before their
    rows, and plan.json last, so that the call can be repeated after an interruption.
    Raises: ValueError: a listed file is outside the part; then no file was removed.
    """
    rows = read_rows_of_part(part_dir)
    names = {*_list_files(rows), *read_sums(part_dir), *PART_FILES}
    names |= {f"{row.split}.csv" for row in rows}
    last = ["shards.csv", SUMS]
    names -= {"plan.json", *last}
    _remove_files(part_dir, [RUN, *sorted(names), *last])
    remove_journal(part_dir)
    storage.remove(f"{part_dir}/plan.json")


def _list_files(rows: Iterable[ShardRow]) -> list[str]:
    """Return the names of shards, and then of their indices."""
    shards = [row.file for row in rows]
    return shards + [f"index/{shard}.idx" for shard in shards]


def _remove_files(part_dir: str, names: Iterable[str]) -> None:
    """Remove files of a part, none of them if a link leads one out of the part."""
    paths = [storage.join(part_dir, name) for name in names]
    for path in paths:
        folder = os.path.dirname(path)
        if not storage.is_inside(folder, part_dir):
            raise ValueError(
                f"'{path}' is in '{storage.real_path(folder)}', because of a link "
                f"inside the part: no file of '{part_dir}' was removed. Remove that "
                "link."
            )
    for path in paths:
        storage.remove(path)


def remove_journal(part_dir: str) -> None:
    """Remove the journal, and the temporary files of killed workers."""
    storage.remove_leftovers(part_dir, storage.PART_LEVELS)
    if storage.is_remote(part_dir):
        for path in storage.list_files("journal/*", part_dir):
            storage.remove(path)
    else:
        shutil.rmtree(f"{part_dir}/journal", ignore_errors=True)


def is_closed(part_dir: str) -> bool:
    """Return whether the part is complete: it has shards.csv, and no journal."""
    has_rows = bool(storage.list_files("journal/*.json", part_dir))
    return storage.exists(f"{part_dir}/shards.csv") and not has_rows
