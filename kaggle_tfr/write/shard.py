"""One shard, written by one worker: from its own rows to a whole file with its name and row."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.images.colour import RefusedImage
from kaggle_tfr.images.convert import convert
from kaggle_tfr.plan.plan import Plan, Shard
from kaggle_tfr.schema import encode_row
from kaggle_tfr.shards import FRAME_BYTES
from kaggle_tfr.write.journal import Row, is_claimed

SPARE_DISK_BYTES = 8 << 20  # 8 MiB for the tables beside the shards
SECONDS_BETWEEN_CHECKS = 5  # of the part's claim

# Runs that were interrupted: their threads stop at the next image. Other processes and machines
# look at the part's claim now and then, and before a shard gets its name.
stopped_runs: set[str] = set()


@dataclass(frozen=True)
class ShardTask:
    """All that a worker needs, on any machine: a plan without its shards, the shard's own rows.

    allowance_bytes: what the shard may grow to without the part passing its limit.
    """

    plan: Plan
    shard: Shard
    rows: pd.DataFrame
    part_dir: str
    allowance_bytes: int
    run_id: str = ""


@dataclass(frozen=True)
class ShardOutcome:
    """What became of a task: the shard's row, or the problem that stops the run."""

    shard: Shard
    row: Row = field(default_factory=dict)
    problem: str = ""
    allowance_bytes: int = 0


class _StopError(Exception):
    pass


def write_shard(task: ShardTask) -> ShardOutcome:
    """The outcome of writing one shard: temporary name, count, close, journal row, final name."""
    row, problem = {}, ""
    try:
        free, needed = storage.free_bytes(task.part_dir), task.shard.bytes_high + SPARE_DISK_BYTES
        if free < needed:
            problem = (
                f"the disk is too full: shard {task.shard.number} may take {needed / 1e6:,.1f} MB, "
                f"and {free / 1e6:,.1f} MB are free for '{task.part_dir}'"
            )
        else:
            row = _write_whole(task)
    except _StopError as stop:
        problem = str(stop)
    except (OSError, tf.errors.OpError) as error:
        problem = _explain_failure(task, error)
    return ShardOutcome(task.shard, row, problem, task.allowance_bytes)


def _write_whole(task: ShardTask) -> Row:
    shard, compression = task.shard, task.plan.settings.compression
    temporary = storage.scratch_file(task.part_dir, f"{shard.number:06d}")
    index = f"{temporary}.tmp"
    try:
        lengths, rejects = _write_records(task, temporary)
        frames, size = np.array(lengths, np.int64) + FRAME_BYTES, os.path.getsize(temporary)
        if not compression and size != (expected := frames.sum()):
            raise OSError(f"'{temporary}' has {size:,} bytes after closing, expected {expected:,}.")
        count, sha256 = len(lengths), storage.sha256_of(temporary)
        name = task.plan.file_name(shard, count)
        row = {"file": name, "split": shard.split, "fold": shard.fold, "count": count}
        row |= {"bytes": size, "sha256": sha256, "part": shard.part, "shard": shard.index}
        row |= {"refused": len(rejects), "rejects": rejects, "number": shard.number}
        if not compression:
            # One line a record, "offset bytes", frame included, for DALI and the torch readers.
            # Source: https://github.com/NVIDIA/DALI/blob/main/tools/tfrecord2idx
            np.savetxt(index, np.stack([frames.cumsum() - frames, frames], axis=1), "%d")
            storage.publish_file(index, storage.join(task.part_dir, f"index/{name}.idx"))
        _check_claim(task)
        # Before the shard gets its name, so that no file with a final name lacks its row.
        path = storage.join(task.part_dir, f"journal/{shard.number:06d}.json")
        storage.write_atomically(path, json.dumps(row, ensure_ascii=False).encode())
        storage.publish_file(temporary, storage.join(task.part_dir, name))
    finally:
        storage.remove(temporary)
        storage.remove(index)
    return row


def _write_records(task: ShardTask, temporary: str) -> tuple[list[int], list[Row]]:
    """Lengths of the records written, and the images that were refused."""
    schema, settings = task.plan.schema, task.plan.image
    lengths: list[int] = []
    rejects: list[Row] = []
    size, next_check = 0, time.monotonic() + SECONDS_BETWEEN_CHECKS
    names, rows = task.rows.columns.tolist(), task.rows.itertuples(index=False, name=None)
    pictures = storage.read_many(task.rows["path"].tolist())
    options = tf.io.TFRecordOptions(compression_type=task.plan.settings.compression)
    with tf.io.TFRecordWriter(temporary, options) as writer:
        for values, data in zip(rows, pictures, strict=True):
            if task.run_id in stopped_runs:
                raise _StopError("interrupted")
            if time.monotonic() > next_check:
                _check_claim(task)
                next_check = time.monotonic() + SECONDS_BETWEEN_CHECKS
            if isinstance(data, OSError):
                raise data
            row = dict(zip(names, values, strict=True))
            try:
                record = encode_row(row, convert(data, settings), schema, settings)
            except RefusedImage as refusal:
                reject = {"image_id": row["image_id"], "path": row["path"]}
                rejects.append(reject | {"problem": str(refusal)})
                continue
            writer.write(record)
            lengths.append(len(record))
            size += len(record) + FRAME_BYTES
            if size > task.allowance_bytes:
                raise _StopError(
                    f"the part would pass its limit: shard {task.shard.number} has {size:,} bytes "
                    f"after {len(lengths):,} of {task.shard.count:,} images, and only "
                    f"{task.allowance_bytes:,} are left for it. The forecast was "
                    f"{task.shard.bytes_high:,} bytes at most"
                )
    return lengths, rejects


def _check_claim(task: ShardTask) -> None:
    if task.run_id and not is_claimed(task.part_dir, task.run_id):
        raise _StopError("the run was ended, or another run has begun to write the same part")


def _explain_failure(task: ShardTask, error: Exception) -> str:
    try:
        with contextlib.suppress(OSError):  # the folder cannot be read, as the first error says
            _check_claim(task)  # another run removes the files that this one is at
    except _StopError as reason:
        return str(reason)
    free = storage.free_bytes(task.part_dir)
    return f"{error} ({free / 1e6:,.1f} MB are free for '{task.part_dir}')"


class ByteBudget:
    """What a part's shards may weigh: written + reserved for those under way ≤ limit, always."""

    def __init__(
        self, plan: Plan, part: int, missing: Iterable[Shard], rows: Iterable[Row]
    ) -> None:
        self.limit, self.reserved, self.lock = plan.shard_limit_bytes, 0, threading.Lock()
        self.written = sum(row["bytes"] for row in rows if row["part"] == part)
        # Upper bound of the shards that have not begun.
        self.planned = sum(shard.bytes_high for shard in missing if shard.part == part)

    def reserve(self, shard: Shard) -> int:
        """Bytes that the shard may grow to; 0 when it does not fit any more."""
        with self.lock:
            free = self.limit - self.written - self.reserved
            allowance = shard.bytes_high + max(0, free - self.planned) // 2
            self.planned -= shard.bytes_high
            if shard.bytes_high > free:
                return 0
            self.reserved += allowance
            return allowance

    def release(self, outcome: ShardOutcome) -> None:
        """Ends a shard's reservation, of which it took what it weighs."""
        with self.lock:
            self.reserved -= outcome.allowance_bytes
            self.written += outcome.row.get("bytes", 0)

    def explain(self, shard: Shard) -> str:
        """Why a shard does not fit any more."""
        return (
            f"part {shard.part} would pass its limit: its shards may take {self.limit:,} bytes, "
            f"those written take {self.written:,}, and shard {shard.number} may take "
            f"{shard.bytes_high:,}"
        )
