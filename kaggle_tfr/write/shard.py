"""One shard, written by one worker: from its own rows to a whole file with its name and row."""

import contextlib
import json
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.frames import FRAME_BYTES
from kaggle_tfr.images.convert import convert
from kaggle_tfr.images.header import RefusedImage
from kaggle_tfr.plan.plan import Plan, Shard
from kaggle_tfr.schema import encode
from kaggle_tfr.shards import format_index
from kaggle_tfr.write.journal import Row, is_claimed

SPARE_DISK_BYTES = 8 << 20  # 8 MiB for the tables beside the shards
SECONDS_BETWEEN_CHECKS = 5  # of the part's claim
CLAIM_LOST = "the run was ended, or another run has begun to write the same part"

# Runs that were interrupted: their threads stop at the next image. Other processes and machines
# look at the part's claim now and then, and before a shard gets its name.
stopped_runs: set[str] = set()


class ShardTask(NamedTuple):
    """All that a worker needs, on any machine: a plan without its shards, the shard's own rows."""

    plan: Plan
    shard: Shard
    rows: pd.DataFrame
    part_dir: str
    allowance_bytes: int  # to which the shard may grow without the part passing its limit
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
        with contextlib.suppress(OSError):  # the folder cannot be read, as the error says
            ours = is_claimed(task.part_dir, task.run_id)  # another run removes this one's files
        if ours:
            free = storage.free_bytes(task.part_dir)
            problem = f"{error} ({free / 1e6:,.1f} MB are free for '{task.part_dir}')"
    return ShardOutcome(task.shard, row, problem, task.allowance_bytes)


def _write_whole(task: ShardTask) -> Row:
    shard, compression = task.shard, task.plan.settings.compression
    free, needed = storage.free_bytes(task.part_dir), shard.bytes_high + SPARE_DISK_BYTES
    if free < needed:
        what = f"the disk is too full: shard {shard.number} may take {needed / 1e6:,.1f} MB,"
        raise InterruptedError(f"{what} and {free / 1e6:,.1f} MB are free for '{task.part_dir}'")
    scratch = storage.scratch_folder(task.part_dir)
    temporary = os.path.join(scratch, f"{shard.number:06d}-{uuid.uuid4().hex}.tmp")
    try:
        lengths, rejects = _write_records(task, temporary)
        bounds = [0, *accumulate(length + FRAME_BYTES for length in lengths)]
        size = os.path.getsize(temporary)
        if not compression and size != bounds[-1]:
            what = f"'{temporary}' has {size:,} bytes after closing, expected {bounds[-1]:,}."
            raise OSError(what)
        name, sha256 = task.plan.file_name(shard, len(lengths)), storage.sha256_of(temporary)
        row = {"file": name, "split": shard.split, "fold": shard.fold, "count": len(lengths)}
        row |= {"bytes": size, "sha256": sha256, "part": shard.part, "shard": shard.index}
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
    pictures = storage.read_many(task.rows["path"])
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
            except (RefusedImage, storage.DamagedRecord) as refusal:
                reject = {"image_id": row["image_id"], "path": row["path"]}
                rejects.append(reject | {"problem": str(refusal)})
                continue
            writer.write(record)
            lengths.append(len(record))
            size += len(record) + FRAME_BYTES
            if size > task.allowance_bytes:
                what = f"after {len(lengths):,} of {task.shard.count:,} images, and only"
                left = f"{task.allowance_bytes:,} are left for it. The forecast was at most"
                has = f"the part would pass its limit: shard {task.shard.number} has {size:,} bytes"
                raise InterruptedError(f"{has} {what} {left} {task.shard.bytes_high:,}")
    return lengths, rejects


def _check_unchanged(data: bytes, row: Row) -> None:
    """Raises RefusedImage unless the bytes are those that 01 saw; a plan may not know of them."""
    was, now = row.get("n_bytes") or len(data), len(data)
    if was != now:
        raise RefusedImage(f"changed since 01_explore: {was:,} bytes there, {now:,} now")
    if row.get("digest") and row["digest"] != storage.digest(data):
        raise RefusedImage(f"changed since 01_explore: other {now:,} bytes")


class ByteBudget:
    """What each part's limit leaves beside bytes written and reserved by shards under way."""

    def __init__(self, plan: Plan, missing: Iterable[Shard], rows: Iterable[Row]) -> None:
        self.limit, self.lock, self.left = plan.shard_limit_bytes, threading.Lock(), Counter[int]()
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
                return 0, f"{what}: {left:,} are left, shard {shard.number} may take {high:,}"
            self.left[shard.part] -= allowance
            return allowance, ""

    def release(self, outcome: ShardOutcome) -> None:
        """Ends a shard's reservation, of which it took what it weighs."""
        with self.lock:
            self.left[outcome.shard.part] += outcome.allowance_bytes - outcome.row.get("bytes", 0)
