"""What is finished in a part folder, and whether it may be kept: journal, shards.csv, staleness."""

import contextlib
import io
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.plan.plan import Plan, Shard, read_plan

COLUMNS = ["file", "split", "fold", "count", "bytes", "sha256", "part", "shard", "refused"]
NUMBERS = ["fold", "count", "bytes", "part", "shard", "refused"]
# What a part holds at its top beside shards, shards.csv and one CSV a split.
SIDECARS = [
    *("schema.json", "labels.json", "labels.txt", "plan.json", "rejects.csv", "stats.json"),
    *("dataset-metadata.json", "features.json", "dataset_info.json"),
]
RUN = "journal/run"  # holds the id of the run that writes the part
TEMPORARY = f"*.{'[0-9a-f]' * 32}.tmp"  # as storage.write_atomically names them

Row = dict[Any, Any]  # of COLUMNS; in the journal also number (of the shard) and rejects


def check_name(name: str, source: str) -> None:
    """None, when a file of that name lies inside the part.

    Raises:
        ValueError: it lies outside, where nothing may be written, read or removed.
    """
    if "://" in name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{source}: the file name '{name}' leads out of the part.")


def write_row(part_dir: str, shard: Shard, row: Row) -> None:
    """Notes a shard: before it gets its name, so that no file with a final name lacks its row."""
    path = storage.join(part_dir, "journal", f"{shard.number:06d}.json")
    storage.write_atomically(path, json.dumps(row, ensure_ascii=False).encode())


def is_claimed(part_dir: str, run_id: str) -> bool:
    """Whether the part is still this run's."""
    try:
        return storage.read_bytes(storage.join(part_dir, RUN)) == run_id.encode()
    except FileNotFoundError:
        return False


def release(part_dir: str, run_id: str) -> None:
    """Ends the run's claim, where no other run has taken it over."""
    if is_claimed(part_dir, run_id):
        storage.remove(storage.join(part_dir, RUN))


def open_part(part_dir: str, plan: Plan, run_id: str, *, overwrite: bool = False) -> list[Row]:
    """Rows of the shards that an earlier run finished; leaves the part this run's, to be written.

    Raises:
        ValueError: the part was written after another plan, and `overwrite` is False; or a row of
            shards.csv cannot be read or leads out of the part.
    """
    stale = find_staleness(part_dir, plan)
    if stale and not overwrite:
        raise ValueError(
            f"'{part_dir}' was written after another plan: {'; '.join(stale)}. Set "
            "OVERWRITE = True to write it anew, set another OUT_DIR to keep it, or take the change "
            "back."
        )
    if stale:
        clear_part(part_dir)
    storage.make_folder(storage.join(part_dir, "journal"))
    # This run's claim: what another run still has at work somewhere stops.
    storage.write_atomically(storage.join(part_dir, RUN), run_id.encode())
    if not storage.is_remote(part_dir):  # a bucket shows whole objects only
        for pattern in ("journal/*.tmp", TEMPORARY):
            for left in storage.list_files(pattern, part_dir):
                storage.remove(left)
    path, text = storage.join(part_dir, "plan.json"), plan.to_json().encode()
    if not storage.exists(path) or storage.read_bytes(path) != text:
        storage.write_atomically(path, text)
    return match_plan(read_rows_of_part(part_dir), plan)


def find_staleness(part_dir: str, plan: Plan) -> list[str]:
    """What differs between the plan that a part was written after and this one; [] when nothing."""
    try:
        return differences(read_plan(part_dir), plan)
    except ValueError:
        return ["its plan.json cannot be read"]
    except FileNotFoundError:
        there = storage.exists(storage.join(part_dir, "shards.csv"))
        return ["it has a shards.csv, but no plan.json"] if there else []


def differences(old: Plan, new: Plan) -> list[str]:
    """What makes the bytes of two plans differ, such as "QUALITY: 90 there, 70 now"."""
    if old.fingerprint == new.fingerprint:
        return []
    was, now = (_list_settings(plan) for plan in (old, new))
    return [
        f"{name}: {shorten(was[name])} there, {shorten(now[name])} now"
        for name in now
        if was[name] != now[name]
    ] or ["the images: their list, labels, sizes or shards"]


def _list_settings(plan: Plan) -> dict[str, str]:
    """The settings of a plan as JSON, under the names of the parameters that set them."""
    settings = {
        "NAME": plan.name,
        "SCHEMA": asdict(plan.schema),
        "the list of classes": plan.labels.classes,
        "the number of parts": plan.n_parts,
        "the image format": plan.image.format,
        **{name.upper(): value for name, value in asdict(plan.settings).items()},
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in settings.items()}


def shorten(text: str) -> str:
    """The text, cut to 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}…"


def read_rows_of_part(part_dir: str) -> list[Row]:
    """The rows of shards.csv and of the journal, whatever their files look like.

    Raises:
        ValueError: shards.csv cannot be read, or a row names a file outside the part.
    """
    rows = {}
    table = storage.join(part_dir, "shards.csv")
    if storage.exists(table):
        refused = _read_refused(part_dir)
        for row in _read_table(table):
            rows[_key(row)] = row | {"rejects": refused.get(row["file"], [])}
    for path in _journal_files(part_dir, "*.json"):
        row = json.loads(storage.read_bytes(path))
        rows[_key(row)] = row
    for row in rows.values():
        for name in (row["file"], f"{row['split']}.csv"):
            check_name(name, f"a row of '{table}', or of the journal beside it")
    return list(rows.values())


def _key(row: Row) -> tuple[int, str, int, int]:
    return row["part"], row["split"], row["fold"], row["shard"]


def _read_table(path: str) -> list[Row]:
    text = {"file": str, "split": str, "sha256": str}
    try:
        frame = pd.read_csv(io.BytesIO(storage.read_bytes(path)), dtype=text, keep_default_na=False)
        return frame[COLUMNS].astype(dict.fromkeys(NUMBERS, int)).to_dict("records")
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"'{path}' cannot be read: {error}. Remove it, and 04_write makes it anew."
        ) from None


def _read_refused(part_dir: str) -> dict[str, list[Row]]:
    path = storage.join(part_dir, "rejects.csv")
    refused: dict[str, list[Row]] = {}
    if storage.exists(path):
        table = pd.read_csv(io.BytesIO(storage.read_bytes(path)), dtype=str, keep_default_na=False)
        for row in table.to_dict("records"):
            refused.setdefault(row.pop("file"), []).append(row)
    return refused


def match_plan(rows: Iterable[Row], plan: Plan) -> list[Row]:
    """The rows that agree with the plan in file name and count; their files are still unchecked."""
    shards = {(s.part, s.split, s.fold, s.index): s for s in plan.shards}
    matching = []
    for row in rows:
        shard = shards.get(_key(row))
        if shard is None or row["count"] + row["refused"] != shard.count:
            continue
        if row["file"] == plan.file_name(shard, row["count"]):
            matching.append(row | {"number": shard.number})
    return matching


def to_table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows as shards.csv holds them, in the order of the plan."""
    ordered = sorted(rows, key=lambda row: row["number"])
    return pd.DataFrame(ordered, columns=["number", *COLUMNS])[COLUMNS]


def clear_part(part_dir: str) -> None:
    """Removes what a writer put into the part; other people's files stay. The plan goes last."""
    rows = read_rows_of_part(part_dir)
    storage.remove(storage.join(part_dir, RUN))
    names = [row["file"] for row in rows] + [f"index/{row['file']}.idx" for row in rows]
    names += [f"{split}.csv" for split in sorted({row["split"] for row in rows})]
    names += ["shards.csv", *sorted(set(SIDECARS) - {"plan.json"})]
    with contextlib.suppress(ValueError, FileNotFoundError):  # class names, as TFDS writes them
        fields = read_plan(part_dir).schema.fields
        names += [f"{field.name.replace('/', '.')}.labels.txt" for field in fields]
    for name in names:
        storage.remove(storage.join(part_dir, name))
    remove_journal(part_dir)
    storage.remove(storage.join(part_dir, "plan.json"))


def remove_journal(part_dir: str) -> None:
    """Removes the journal, once shards.csv says the same."""
    folder = storage.join(part_dir, "journal")
    if storage.is_remote(folder):
        for path in _journal_files(part_dir, "*"):
            storage.remove(path)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def is_closed(part_dir: str) -> bool:
    """Whether the part was finished: shards.csv is there and the journal is gone."""
    done = storage.exists(storage.join(part_dir, "shards.csv"))
    return done and not _journal_files(part_dir, "*.json")


def _journal_files(part_dir: str, pattern: str) -> list[str]:
    return storage.list_files(f"journal/{pattern}", part_dir)
