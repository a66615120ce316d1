"""One shard, written by one worker: from its own rows to a whole file with its name and row."""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.images.colour import RefusedImage
from kaggle_tfr.images.convert import convert
from kaggle_tfr.plan.plan import Plan, Shard
from kaggle_tfr.schema import encode_row
from kaggle_tfr.shards import FRAME_BYTES
from kaggle_tfr.write.journal import Row, is_claimed, write_row

SPARE_DISK_BYTES = 8 << 20  # 8 MiB for the tables beside the shards
SECONDS_BETWEEN_CHECKS = 5  # of the part's claim

# Runs that were interrupted: their threads stop at the next image. Other processes and machines
# look at the part's claim now and then, and before a shard gets its name.
stopped_runs: set[str] = set()


@dataclass(frozen=True)
class ShardTask:
    """All that a worker needs; it may be another process or another machine.

    plan: without its list of shards. rows: only the shard's own.
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
        _check_disk(task)
        row = _write_whole(task)
    except _StopError as stop:
        problem = str(stop)
    except (OSError, tf.errors.OpError) as error:
        problem = _explain_failure(task, error)
    return ShardOutcome(task.shard, row, problem, task.allowance_bytes)


def _write_whole(task: ShardTask) -> Row:
    shard, compression = task.shard, task.plan.settings.compression
    temporary = storage.scratch_file(task.part_dir, f"{shard.number:06d}")
    try:
        lengths, rejects = _write_records(task, temporary)
        count, size = len(lengths), os.path.getsize(temporary)
        expected = sum(lengths) + FRAME_BYTES * count
        if not compression and size != expected:
            raise OSError(f"'{temporary}' has {size:,} bytes after closing, expected {expected:,}.")
        name, sha256 = task.plan.file_name(shard, count), storage.sha256_of(temporary)
        row = {"file": name, "split": shard.split, "fold": shard.fold, "count": count}
        row |= {"bytes": size, "sha256": sha256, "part": shard.part, "shard": shard.index}
        row |= {"refused": len(rejects), "rejects": rejects, "number": shard.number}
        if not compression:
            _write_index(task.part_dir, f"index/{name}.idx", lengths)
        _check_claim(task)
        write_row(task.part_dir, shard, row)
        storage.publish_file(temporary, storage.join(task.part_dir, name))
    finally:
        storage.remove(temporary)
    return row


def _write_records(task: ShardTask, temporary: str) -> tuple[list[int], list[Row]]:
    """Lengths of the records written, and the images that were refused."""
    schema, settings = task.plan.schema, task.plan.image
    lengths: list[int] = []
    rejects: list[Row] = []
    size, next_check = 0, time.monotonic() + SECONDS_BETWEEN_CHECKS
    names = task.rows.columns.tolist()
    rows = zip(*(task.rows[name].tolist() for name in names), strict=True)
    options = tf.io.TFRecordOptions(compression_type=task.plan.settings.compression)
    with tf.io.TFRecordWriter(temporary, options) as writer:
        for values, data in zip(rows, storage.read_many(task.rows.path.tolist()), strict=True):
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
                reject = {name: row[name] for name in ("image_id", "path")}
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


def _write_index(part_dir: str, name: str, lengths: Sequence[int]) -> None:
    """One line a record, "offset bytes", frame included: what DALI and the torch readers take.

    Source: https://github.com/NVIDIA/DALI/blob/main/tools/tfrecord2idx
    """
    frames = [length + FRAME_BYTES for length in lengths]
    temporary = storage.scratch_file(part_dir, "index")
    try:
        with open(temporary, "w", encoding="ascii") as file:
            lines = zip(accumulate(frames, initial=0), frames, strict=False)
            file.writelines(f"{offset} {frame}\n" for offset, frame in lines)
        storage.publish_file(temporary, storage.join(part_dir, name))
    finally:
        storage.remove(temporary)


def _check_claim(task: ShardTask) -> None:
    if task.run_id and not is_claimed(task.part_dir, task.run_id):
        raise _StopError("the run was ended, or another run has begun to write the same part")


def _explain_failure(task: ShardTask, error: Exception) -> str:
    try:
        _check_claim(task)  # another run removes the files that this one is at
    except _StopError as reason:
        return str(reason)
    except OSError:
        pass  # the folder itself cannot be read, as the first error says
    free = storage.free_bytes(task.part_dir)
    return f"{error} ({free / 1e6:,.1f} MB are free for '{task.part_dir}')"


def _check_disk(task: ShardTask) -> None:
    free, needed = storage.free_bytes(task.part_dir), task.shard.bytes_high + SPARE_DISK_BYTES
    if free < needed:
        raise _StopError(
            f"the disk is too full: shard {task.shard.number} may take {needed / 1e6:,.1f} MB, and "
            f"{free / 1e6:,.1f} MB are free for '{task.part_dir}'"
        )


class ByteBudget:
    """What a part's shards may weigh: written + reserved for those under way ≤ limit, always.

    planned: upper bound of the shards that have not begun, in bytes.
    """

    def __init__(self, limit: int, written: int, planned: int) -> None:
        self.limit, self.written, self.planned = limit, written, planned
        self.reserved, self.lock = 0, threading.Lock()

    def reserve(self, shard: Shard) -> int:
        """Bytes that the shard may grow to; 0 when it does not fit any more."""
        with self.lock:
            free = self.limit - self.written - self.reserved
            spare = max(0, free - self.planned)
            self.planned -= shard.bytes_high
            if shard.bytes_high > free:
                return 0
            self.reserved += shard.bytes_high + spare // 2
            return shard.bytes_high + spare // 2

    def release(self, allowance: int, written: int) -> None:
        """Ends a shard's reservation of `allowance` bytes, of which it took `written`."""
        with self.lock:
            self.reserved -= allowance
            self.written += written

    def explain(self, shard: Shard) -> str:
        """Why a shard does not fit any more."""
        return (
            f"part {shard.part} would pass its limit: its shards may take {self.limit:,} bytes, "
            f"those written take {self.written:,}, and shard {shard.number} may take "
            f"{shard.bytes_high:,}"
        )
