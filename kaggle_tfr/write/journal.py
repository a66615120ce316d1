"""What is finished in a part folder, and whether it may be kept: journal, shards.csv, staleness."""

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from operator import itemgetter
from typing import Any

from kaggle_tfr import storage
from kaggle_tfr.naming import TEST_FOLDER
from kaggle_tfr.plan.plan import PART_FILES, Plan, read_plan
from kaggle_tfr.shards import (
    SUMS,
    find_changed_files,
    read_part_table,
    read_sums,
    sha256_of_text,
)

COLUMNS = [
    "file",
    "split",
    "fold",
    "count",
    "bytes",
    "sha256",
    "part",
    "shard",
    "refused",
]
REJECT_COLUMNS = ["image_id", "path", "problem", "file"]
RUN = "journal/run"  # holds the id of the run that writes the part


Row = dict[
    Any, Any
]  # of COLUMNS and rejects; in the journal also number (of the shard)
_key = itemgetter("part", "split", "fold", "shard")


def is_claimed(part_dir: str, run_id: str) -> bool:
    """Whether the part is still this run's."""
    return storage.read_text(storage.join(part_dir, RUN)) == run_id


def open_part(
    part_dir: str, plan: Plan, run_id: str, *, overwrite: bool = False
) -> list[Row]:
    """Rows of the shards that an earlier run finished; leaves the part this run's, to be written.
    Raises: ValueError: written after another plan, or with test shards at its top; a row leads out
        of the part.
    """
    path, text, sums = (
        storage.join(part_dir, "plan.json"),
        plan.to_json(),
        read_sums(part_dir),
    )
    stale = (
        []
        if sums.get("plan.json") == sha256_of_text(text)
        else _find_stale(part_dir, plan)
    )
    if stale and not overwrite:
        mend = "Set OVERWRITE = True to write it anew, another OUT_DIR, or take the change back."
        raise ValueError(
            f"'{part_dir}' was written after another plan: {'; '.join(stale)}. {mend}"
        )
    misplaced = "" if stale else _find_misplaced(part_dir, plan)
    if misplaced and not overwrite:
        raise ValueError(
            f"An older version wrote '{part_dir}', with the test shard '{misplaced}' at the top of "
            f"the part instead of in the folder {TEST_FOLDER}. Set OVERWRITE = True to write the "
            "part again, or set another OUT_DIR."
        )
    if stale or misplaced:
        clear_part(part_dir)
    storage.write_atomically(
        storage.join(part_dir, RUN), run_id.encode()
    )  # other runs stop
    if not storage.is_remote(part_dir):  # a bucket shows whole objects only
        for left in storage.list_files("journal/*.tmp", part_dir):
            storage.remove(left)
    storage.remove_leftovers(part_dir, storage.PART_LEVELS)
    if storage.read_text(path) != text:
        storage.write_atomically(path, text.encode())
    rows = match_plan(read_rows_of_part(part_dir), plan)
    # What was refused is told by rejects.csv alone: without it those shards are written again.
    rejects = {name: own for name, own in sums.items() if name == "rejects.csv"}
    return (
        [r for r in rows if not r["refused"]]
        if find_changed_files(part_dir, rejects)
        else rows
    )


def _find_stale(part_dir: str, plan: Plan) -> list[str]:
    try:
        return differences(read_plan(part_dir), plan)
    except ValueError:
        return ["its plan.json cannot be read"]
    except FileNotFoundError:
        there = storage.exists(storage.join(part_dir, "shards.csv"))
        return (
            ["it has a shards.csv, but no plan.json: put its own back"] if there else []
        )


def _find_misplaced(part_dir: str, plan: Plan) -> str:
    """The name of a test shard that is at the top of the part, "" where there is none."""
    shards = {
        (s.part, s.split, s.fold, s.index): s for s in plan.shards if s.split == "test"
    }
    begun = storage.exists(storage.join(part_dir, "plan.json"))
    for row in read_rows_of_part(part_dir) if shards and begun else []:
        shard = shards.get(_key(row))
        if shard and TEST_FOLDER + row["file"] == plan.file_name(shard, row["count"]):
            return row["file"]
    return ""


def differences(old: Plan, new: Plan) -> list[str]:
    """What makes the bytes of two plans differ, such as "QUALITY: 90 there, 70 now"."""
    if old.fingerprint == new.fingerprint:
        return []
    was, now = (
        {"NAME": plan.labels.name, "SCHEMA": asdict(plan.schema), "parts": plan.n_parts}
        | {"classes": plan.labels.classes, **asdict(plan.settings)}
        for plan in (old, new)
    )
    names = [name for name in now if was[name] != now[name]]
    named = [
        f"{name.upper()}: {was[name]!r:.60} there, {now[name]!r:.60} now"
        for name in names
    ]
    return named or ["the images: their list, labels, sizes or shards"]


def read_rows_of_part(part_dir: str) -> list[Row]:
    """The rows that can be read of shards.csv and of the journal, whatever their files look like.
    Raises: ValueError: a row names a file outside the part.
    """
    table = storage.join(part_dir, "shards.csv")
    listed = _read_rows(part_dir, "shards.csv", COLUMNS)
    refused = _read_rows(part_dir, "rejects.csv", REJECT_COLUMNS) if listed else []
    for row in listed:
        row["rejects"] = [reject for reject in refused if reject["file"] == row["file"]]
    noted = storage.list_files("journal/*.json", part_dir)
    for path in noted:  # one that cannot be read is of a shard that is written again
        with suppress(ValueError, RecursionError):
            row = json.loads(storage.read_bytes(path))
            if isinstance(row, dict) and row.keys() >= {*COLUMNS, "rejects"}:
                listed.append(row)
    rows = {_key(row): row for row in listed}  # where there are two, the journal's
    for row in rows.values():
        for name in (row["file"], f"{row['split']}.csv"):
            what = f"a row of '{table}', or of the journal beside it: '{name}'"
            storage.check_inside(name, what, f"'{part_dir}'")
    return list(rows.values())


def _read_rows(part_dir: str, name: str, columns: list[str]) -> list[Row]:
    """Return the rows of a part's table, [] if it cannot be read."""
    try:
        table = read_part_table(part_dir, name, columns)
    except ValueError:
        return []
    return table[columns].to_dict("records")


def match_plan(rows: Iterable[Row], plan: Plan) -> list[Row]:
    """The rows that agree with the plan in file name and count; their files are still unchecked.

    A test shard may be at the part's top, where older versions wrote it.
    """
    shards = {(s.part, s.split, s.fold, s.index): s for s in plan.shards}
    matching = []
    for row in rows:
        shard, total = shards.get(_key(row)), row["count"] + row["refused"]
        whole = len(row["rejects"]) == row["refused"]
        if not shard or not whole or total != shard.count:
            continue
        name = plan.file_name(shard, row["count"])
        if row["file"] in (name, name.removeprefix(TEST_FOLDER)):
            matching.append(row | {"number": shard.number})
    return matching


def clear_part(part_dir: str) -> None:
    """Remove what a writer put into the part; other people's files stay. The plan goes last.

    Raises: ValueError: a listed file is outside the part; then no file was removed.
    """
    rows, sums = read_rows_of_part(part_dir), read_sums(part_dir)
    names = [
        RUN,
        *(row["file"] for row in rows),
        *(f"index/{row['file']}.idx" for row in rows),
    ]
    tables = {f"{row['split']}.csv" for row in rows}
    beside = [*sums, *PART_FILES, *sorted(tables)]
    names += [name for name in beside if name not in ("plan.json", "shards.csv", SUMS)]
    # Shards go before their rows.
    names += ["shards.csv", SUMS]
    paths = [storage.join(part_dir, name) for name in dict.fromkeys(names)]
    for path in paths:
        folder = os.path.dirname(path)
        if not storage.is_inside(folder, part_dir):
            raise ValueError(
                f"'{path}' is in '{storage.real_path(folder)}', to which a link inside "
                f"the part leads: no file of '{part_dir}' was removed. Remove that link."
            )
    for path in paths:
        storage.remove(path)
    remove_journal(part_dir)
    storage.remove(storage.join(part_dir, "plan.json"))


def remove_journal(part_dir: str) -> None:
    """Removes the journal, once shards.csv says the same, and what killed workers left."""
    storage.remove_leftovers(part_dir, storage.PART_LEVELS)
    if not storage.is_remote(part_dir):
        shutil.rmtree(storage.join(part_dir, "journal"), ignore_errors=True)
        return
    for path in storage.list_files("journal/*", part_dir):
        storage.remove(path)


def is_closed(part_dir: str) -> bool:
    """Whether the part was finished: shards.csv is there and the journal is gone."""
    done = storage.exists(storage.join(part_dir, "shards.csv"))
    return done and not storage.list_files("journal/*.json", part_dir)
