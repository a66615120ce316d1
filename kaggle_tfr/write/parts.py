"""Parts on the disk or in a bucket: written shard by shard, resumable, never over their limit."""

import contextlib
import errno
import json
import os
import re
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

import pandas as pd

from kaggle_tfr import notebook, parallel, session, storage
from kaggle_tfr.images.convert import convert
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.plan.plan import Plan, Shard, check_names, read_plan, read_rows
from kaggle_tfr.records import (
    FRAME_BYTES,
    DamagedRecord,
    format_index,
    stream_image_bytes,
)
from kaggle_tfr.schema import encode
from kaggle_tfr.session import tf
from kaggle_tfr.shards import read_fingerprint
from kaggle_tfr.tables import format_bytes
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.journal import Row, is_claimed

SPARE_DISK_BYTES = 8 << 20  # 8 MiB for the tables beside the shards
SECONDS_BETWEEN_CHECKS = 5  # of the part's claim
TIME_OVER = "the session's time is over"
# Problems that stop a run, or parts of them: each says what to do about it.
CLAIM_LOST = (
    "the run was ended, or another run has begun to write the same part. Wait until no other run "
    "writes this part."
)
DISK_FULL = "Make room there, or set another OUT_DIR."
LIMIT_PASSED = "Plan smaller parts (PART_LIMIT_GB, IMAGE_SIZE, QUALITY in 03_plan)."

# Runs that were interrupted: their threads stop at the next image. Other processes and machines
# look at the part's claim now and then, and before a shard gets its name.
stopped_runs: set[str] = set()


def account_parts(plan: Plan, shards: pd.DataFrame, work_dir: str) -> pd.DataFrame:
    """The table that a run ends with, also written to accounting.csv.

    shards: of `write_parts`; the plan's others are "in other parts".
    Raises: RuntimeError: images in are not images written, dropped or refused.
    """
    counts, parts = dict(plan.outcomes), set(shards["part"])
    elsewhere = sum(shard.count for shard in plan.shards if shard.part not in parts)
    is_test = shards["split"] == "test"
    for written, refused, own in (
        ("written", "rejected", shards[~is_test]),
        ("test images", "test images rejected", shards[is_test]),
    ):
        if written in counts:
            counts[written] = int(own["count"].sum())
            counts[refused] = counts.get(refused, 0) + int(own["refused"].sum())
    counts |= {"in other parts": elsewhere} if elsewhere else {}
    table = notebook.account(counts, sum(plan.outcomes.values()))
    text = table.to_csv(lineterminator="\n", float_format="%.4f")
    storage.write_atomically(storage.join(work_dir, "accounting.csv"), text.encode())
    return table


def compare_parts(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """Bytes of each written part, its forecast's interval and its limit, for `plot_limits`."""
    rows = {}
    for part, table in shards.groupby("part"):
        size, count = table["bytes"].sum(), table["count"].sum()
        low, high = plan.forecast["low"] * count, plan.forecast["high"] * count
        text = f"{format_bytes(size)}, forecast {format_bytes(low)} to {format_bytes(high)}"
        limits = {
            "value": size,
            "low": low,
            "high": high,
            "limit": plan.settings.limit_bytes,
        }
        rows[f"part {part}"] = limits | {"text": text}
    return pd.DataFrame.from_dict(rows, orient="index")


@storage.explain_os_errors("OUT_DIR", storage.OUTPUT_FIXES)
def write_parts(
    work_dir: str,
    out_dir: str = "",
    part: int = 0,
    *,
    overwrite: bool = False,
    license_name: str = "",
) -> pd.DataFrame:
    """The shards of the parts, one row a file, after all of them are written and named.

    part: from 1; 0 writes all. What an earlier run finished is checked and kept.
    overwrite: removes what another plan wrote, also parts that this plan does not have.
    license_name: Kaggle's, for the parts' dataset-metadata.json, those of finished parts as well.
    Raises: ValueError: no such part, it was written after another plan, or a name leads out of it.
        OSError: a full disk, an input gone, or the part would pass its limit; the same call goes
        on from there. SystemExit: a Kaggle batch session nears its end, and its output is kept.
    """
    plan = _check_plan(read_plan(work_dir), part)
    storage.remove_leftovers(work_dir)
    numbers = [part] if part else range(1, plan.n_parts + 1)
    folders = {
        number: storage.join(out_dir or work_dir, f"part-{number}")
        for number in numbers
    }
    left_over = _find_left_over(out_dir or work_dir, plan, part)
    if overwrite:
        removed = [
            folder for folder, number in left_over.items() if number > plan.n_parts
        ]
        _check_no_input(work_dir, [*folders.values(), *removed])
    _clear_left_over(left_over, plan, overwrite=overwrite)
    done, run_id = dict[int, Row](), uuid.uuid4().hex
    for number, folder in folders.items():
        rows = journal.open_part(folder, plan, run_id, overwrite=overwrite)
        label, check = (
            f"Checking finished shards of part {number}",
            partial(_check_shard, folder),
        )
        done |= {
            row["number"]: row for row in parallel.run(check, rows, label=label) if row
        }
    problem = _write_missing(work_dir, plan, folders, done, run_id)
    for number, folder in folders.items():
        shards = [shard.number for shard in plan.shards if shard.part == number]
        if done.keys() >= set(shards):
            own = {shard: done[shard] for shard in shards}
            sidecars.close_part(work_dir, folder, plan, own, license_name=license_name)
    if problem:
        wanted = sum(shard.part in folders for shard in plan.shards)
        _stop(
            problem,
            f"Stopped after {len(done)} of {wanted} shards, which are whole and stay",
        )
    return pd.DataFrame(
        [done[number] for number in sorted(done)], columns=journal.COLUMNS
    )


def _check_no_input(work_dir: str, part_dirs: Iterable[str]) -> None:
    """Raise a ValueError when images of the plan are in a part that OVERWRITE would remove."""
    table = storage.read_parquet(
        storage.join(work_dir, "plan.parquet"), columns=["path"]
    )
    image_dirs = {os.path.dirname(path) for path in table["path"]}
    for part_dir in part_dirs:
        if any(storage.is_inside(folder, part_dir) for folder in image_dirs):
            raise ValueError(
                f"'{part_dir}' holds images that this plan reads, and OVERWRITE would remove them. "
                "Set another OUT_DIR."
            )


def _clear_left_over(
    left_over: Mapping[str, int], plan: Plan, *, overwrite: bool
) -> None:
    """Remove parts of other plans that no run of this plan writes, or stop because of them.

    left_over: of `_find_left_over`. Another run may be writing the plan's other parts at this
    moment, so they stay even with `overwrite`, and are named.
    Raises: ValueError: without `overwrite`; where a part is a link to another folder, or nothing
    shows that 04_write has made it. Then nothing was removed.
    """
    if left_over and not overwrite:
        folders = "', '".join(left_over)
        raise ValueError(
            f"'{folders}': left over from another plan than the present one, which has "
            f"{plan.n_parts} part(s). Readers would mix both plans. Set OVERWRITE = True to remove "
            "the files of such parts, move them away, or set another OUT_DIR."
        )
    removed = [folder for folder, number in left_over.items() if number > plan.n_parts]
    for folder in left_over.keys() - removed:
        print(f"'{folder}' is of another plan. Write it too: set PART to its number.")
    for folder in removed:
        if not read_fingerprint(folder):
            what = f"'{folder}' has shards, but no plan.json that 04_write has made"
            raise ValueError(
                f"{what}: its files stay. Move it away, or set another OUT_DIR."
            )
        if not storage.is_remote(folder) and os.path.islink(folder):
            what = (
                f"'{folder}', left over from another plan, is a link to another folder"
            )
            raise ValueError(f"{what}: its files stay. Remove that link.")
    for folder in removed:
        journal.clear_part(folder)
        others = _remove_empty_folders(folder)
        stay = (
            f"; files that 04_write did not make stay: {', '.join(others)}"
            if others
            else ""
        )
        print(f"'{folder}', left over from another plan, was removed{stay}")


def _find_left_over(parts_dir: str, plan: Plan, part: int) -> dict[str, int]:
    """The numbers of part folders of other plans by folder, without those that this run opens."""
    numbers = dict[str, int]()
    if not storage.exists(parts_dir):
        return numbers
    for name in ("plan.json", "shards.csv"):  # the second alone is enough for readers
        for path in storage.list_files(f"part-*/{name}", parts_dir):
            folder = path.rpartition("/")[0]
            if match := re.fullmatch(r"part-([1-9][0-9]*)", os.path.basename(folder)):
                numbers[folder] = int(match[1])
    left_over = dict[str, int]()
    for folder, number in sorted(numbers.items(), key=itemgetter(1)):
        is_opened = number == part or (part == 0 and number <= plan.n_parts)
        fingerprint = read_fingerprint(folder)
        is_same_plan = fingerprint == plan.fingerprint
        is_own = is_same_plan and number <= plan.n_parts
        is_part = fingerprint or storage.exists(storage.join(folder, "shards.csv"))
        if is_part and not is_opened and not is_own:
            left_over[folder] = number
    return left_over


def _remove_empty_folders(folder: str) -> list[str]:
    """Remove a folder of this disk and those in it that are empty; return the files that stay.

    Temporary files that a killed run left are removed too.
    """
    others = list[str]()
    if not storage.is_remote(folder):
        for place, _, files in os.walk(folder, topdown=False):
            for file in files:
                path = os.path.join(place, file)
                if re.search(r"\.[0-9a-f]{32}\.tmp$", file):
                    storage.remove(path)
                else:
                    others.append(os.path.relpath(path, folder))
            with contextlib.suppress(OSError):  # it holds other people's files
                os.rmdir(place)
    return sorted(others)


def _check_plan(plan: Plan, part: int) -> Plan:
    """Return the plan, after its parts, names and versions were checked."""
    if not 0 <= part <= plan.n_parts:
        raise ValueError(
            f"PART is {part}, but the plan has {plan.n_parts} parts. Use 1 to that."
        )
    check_names(plan)
    here = parallel.package_versions()
    other = [
        f"{k} {v} ({here.get(k)} here)"
        for k, v in plan.versions.items()
        if v != here.get(k)
    ]
    if other:
        text = "parts written with different versions can differ in their bytes, not in what they"
        warnings.warn(f"planned with {', '.join(other)}: {text} show.", stacklevel=3)
    return plan


def _check_shard(folder: str, row: Row) -> Row | None:
    """The row when its shard has the row's size and sha256; a damaged file is removed."""
    path = storage.join(folder, row["file"])
    with contextlib.suppress(
        FileNotFoundError
    ):  # a disk that gives no answer is no damage
        whole = storage.size_and_time(path)[0] == row["bytes"]
        if whole and storage.sha256_of(path) == row["sha256"]:
            return row
    storage.remove(path)
    return None


def _stop(problem: str, text: str) -> None:
    if problem != TIME_OVER:
        raise OSError(
            f"{text}: {problem} Then run 04_write again: it goes on from here."
        )
    print(
        f"{text}.\nThe session's {session.session_hours()} hours are nearly over. Push the kernel "
        "again with its own output as a source (`python -m kaggle_tfr push` does): it goes on."
    )
    raise SystemExit(0)


def _write_missing(
    work_dir: str,
    plan: Plan,
    folders: Mapping[int, str],
    done: dict[int, Row],
    run_id: str,
) -> str:
    """Writes the shards that are not `done`, adds their rows to it; returns why it stopped."""
    missing = [s for s in plan.shards if s.part in folders and s.number not in done]
    if not missing:
        return ""
    budget = ByteBudget(plan, missing, done.values())
    problems: list[str] = []

    def list_tasks() -> Iterator[ShardTask]:
        slim = plan.for_worker()
        for shard, rows in read_rows(work_dir, missing):
            allowance, problem = budget.reserve(shard)
            problem = TIME_OVER if session.hours_left() <= 0 else problem
            if problem:
                problems.append(problem)
            if problems:
                return
            yield ShardTask(slim, shard, rows, folders[shard.part], allowance, run_id)

    try:
        total = sum(shard.count for shard in missing)
        shown: Row = {"label": "Writing images", "total": total}
        shown["advance"] = lambda outcome: outcome.shard.count if outcome.row else 0
        for outcome in parallel.run(write_shard, list_tasks(), **shown):
            budget.release(outcome)
            if outcome.problem:
                problems.append(outcome.problem)
            else:
                done[outcome.shard.number] = outcome.row
    finally:
        # Workers cannot be ended from outside: threads look here, other processes at the claim.
        stopped_runs.add(run_id)
        for folder in folders.values():
            if is_claimed(folder, run_id):
                storage.remove(storage.join(folder, journal.RUN))
    return problems[0] if problems else ""


class ShardTask(NamedTuple):
    """All that a worker needs, on any machine: a plan without its shards, the shard's own rows."""

    plan: Plan
    shard: Shard
    rows: pd.DataFrame
    part_dir: str
    allowance_bytes: (
        int  # to which the shard may grow without the part passing its limit
    )
    run_id: str


class ShardOutcome(NamedTuple):
    """What became of a task: the shard's row, or the problem that stops the run."""

    shard: Shard
    row: Row
    problem: str
    allowance_bytes: int


def write_shard(task: ShardTask) -> ShardOutcome:
    """The outcome of writing one shard: temporary name, count, close, journal row, final name."""
    row, problem = {}, ""
    try:
        row = _write_whole(task)
    except InterruptedError as stop:
        problem = str(stop)
    except (OSError, tf.errors.OpError) as error:
        ours, problem = True, CLAIM_LOST
        with contextlib.suppress(
            OSError
        ):  # the folder cannot be read, as the error says
            ours = is_claimed(
                task.part_dir, task.run_id
            )  # another run removes this one's files
        if ours:
            problem = _explain_error(error, task.part_dir)
    return ShardOutcome(task.shard, row, problem, task.allowance_bytes)


def _explain_error(error: Exception, part_dir: str) -> str:
    """The problem of a shard that could not be written, with what to do about it."""
    text = str(error).removesuffix(storage.RESUME_HINT).rstrip(". ")
    if isinstance(error, FileNotFoundError | tf.errors.NotFoundError):
        return f"{text}. Put that file back."
    free = f"{storage.free_bytes(part_dir) / 1e6:,.1f} MB are free for '{part_dir}'"
    is_full = isinstance(error, tf.errors.ResourceExhaustedError)
    is_full |= isinstance(error, OSError) and error.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
    )
    return f"{text} ({free}). {DISK_FULL if is_full else 'Fix the cause that the error names.'}"


def _write_whole(task: ShardTask) -> Row:
    shard, compression = task.shard, task.plan.settings.compression
    free = storage.free_bytes(task.part_dir)
    if free < shard.bytes_high + SPARE_DISK_BYTES:
        raise InterruptedError(
            f"the disk is too full: shard {shard.number} may take {shard.bytes_high / 1e6:,.1f} MB "
            f"and {SPARE_DISK_BYTES / 1e6:,.1f} MB are kept for the files beside the shards, but "
            f"{free / 1e6:,.1f} MB are free for '{task.part_dir}'. {DISK_FULL}"
        )
    scratch = storage.scratch_folder(task.part_dir)
    temporary = os.path.join(scratch, f"{shard.number:06d}-{uuid.uuid4().hex}.tmp")
    try:
        lengths, rejects = _write_records(task, temporary)
        bounds = [0, *accumulate(length + FRAME_BYTES for length in lengths)]
        size = os.path.getsize(temporary)
        if not compression and size != bounds[-1]:
            what = f"'{temporary}' has {size:,} bytes after closing, expected {bounds[-1]:,}."
            raise OSError(what)
        name, sha256 = (
            task.plan.file_name(shard, len(lengths)),
            storage.sha256_of(temporary),
        )
        row = {
            "file": name,
            "split": shard.split,
            "fold": shard.fold,
            "count": len(lengths),
        }
        row |= {
            "bytes": size,
            "sha256": sha256,
            "part": shard.part,
            "shard": shard.index,
        }
        row |= {"refused": len(rejects), "rejects": rejects, "number": shard.number}
        if not compression:
            path = storage.join(task.part_dir, f"index/{name}.idx")
            storage.write_atomically(path, format_index(bounds).encode())
        if not is_claimed(task.part_dir, task.run_id):
            raise InterruptedError(CLAIM_LOST)
        # Before the shard gets its name, so that no file with a final name lacks its row.
        path = storage.join(task.part_dir, f"journal/{shard.number:06d}.json")
        storage.write_atomically(path, json.dumps(row, ensure_ascii=False).encode())
        storage.publish_file(temporary, storage.join(task.part_dir, name))
    finally:
        storage.remove(temporary)
    return row


def _write_records(task: ShardTask, temporary: str) -> tuple[list[int], list[Row]]:
    """Lengths of the records written, and the images that were refused."""
    schema, settings = task.plan.schema, task.plan.image
    lengths, rejects = list[int](), list[Row]()
    size, next_check = 0, time.monotonic() + SECONDS_BETWEEN_CHECKS
    rows: list[Row] = task.rows.to_dict("records")
    pictures = stream_image_bytes(task.rows["path"])
    options = tf.io.TFRecordOptions(compression_type=task.plan.settings.compression)
    with tf.io.TFRecordWriter(temporary, options) as writer:
        for row, data in zip(rows, pictures, strict=True):
            if task.run_id in stopped_runs:
                raise InterruptedError("interrupted")
            if time.monotonic() > next_check:
                if not is_claimed(task.part_dir, task.run_id):
                    raise InterruptedError(CLAIM_LOST)
                next_check = time.monotonic() + SECONDS_BETWEEN_CHECKS
            try:
                if isinstance(data, OSError):
                    raise data
                _check_unchanged(data, row)
                record = encode(row, convert(data, settings), schema, settings)
            except (RejectedImage, DamagedRecord) as refusal:
                reject = {"image_id": row["image_id"], "path": row["path"]}
                rejects.append(reject | {"problem": str(refusal)})
                continue
            writer.write(record)
            lengths.append(len(record))
            size += len(record) + FRAME_BYTES
            if size > task.allowance_bytes:
                what = (
                    f"after {len(lengths):,} of {task.shard.count:,} images, and only"
                )
                left = f"{task.allowance_bytes:,} are left for it. The forecast was at most"
                has = f"the part would pass its limit: shard {task.shard.number} has {size:,} bytes"
                high = f"{task.shard.bytes_high:,}. {LIMIT_PASSED}"
                raise InterruptedError(f"{has} {what} {left} {high}")
    return lengths, rejects


def _check_unchanged(data: bytes, row: Row) -> None:
    """Raises RejectedImage unless the bytes are those that 01 saw; a plan may not know of them."""
    was, now = row.get("n_bytes") or len(data), len(data)
    if was != now:
        raise RejectedImage(
            f"changed since 01_explore: {was:,} bytes there, {now:,} now"
        )
    if row.get("digest") and row["digest"] != storage.digest(data):
        raise RejectedImage(f"changed since 01_explore: other {now:,} bytes")


class ByteBudget:
    """What each part's limit leaves beside bytes written and reserved by shards under way."""

    def __init__(
        self, plan: Plan, missing: Iterable[Shard], rows: Iterable[Row]
    ) -> None:
        self.limit, self.lock, self.left = (
            plan.shard_limit_bytes,
            threading.Lock(),
            Counter[int](),
        )
        self.planned = Counter[int]()  # upper bounds of the shards that have not begun
        for shard in missing:
            self.left[shard.part] = self.limit
            self.planned[shard.part] += shard.bytes_high
        for row in rows:
            self.left[row["part"]] -= row["bytes"]

    def reserve(self, shard: Shard) -> tuple[int, str]:
        """(bytes that the shard may grow to, ""), or (0, why it does not fit any more)."""
        with self.lock:
            left, high = self.left[shard.part], shard.bytes_high
            allowance = high + max(0, left - self.planned[shard.part]) // 2
            self.planned[shard.part] -= high
            if high > left:
                what = f"part {shard.part} would pass its limit of {self.limit:,} bytes for shards"
                needs = f"{left:,} are left, shard {shard.number} may take {high:,}"
                return 0, f"{what}: {needs}. {LIMIT_PASSED}"
            self.left[shard.part] -= allowance
            return allowance, ""

    def release(self, outcome: ShardOutcome) -> None:
        """Ends a shard's reservation, of which it took what it weighs."""
        with self.lock:
            self.left[outcome.shard.part] += outcome.allowance_bytes - outcome.row.get(
                "bytes", 0
            )
