"""One shard, written by one worker: from its own rows to a whole file with its name and row."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pandas as pd
import tensorflow as tf

from kaggle_tfr import storage
from kaggle_tfr.images.colour import RefusedImage
from kaggle_tfr.images.convert import convert
from kaggle_tfr.plan.plan import Plan, Shard
from kaggle_tfr.schema import encode_row
from kaggle_tfr.storage import free_bytes, publish_file, scratch_file, sha256_of
from kaggle_tfr.write.journal import is_claimed, write_row

SPARE_DISK_BYTES = 8 << 20  # 8 MiB for the tables beside the shards


READS_IN_FLIGHT = 32  # a bucket answers one request in 50 ms, and many at a time


SECONDS_BETWEEN_LOOKS = 5


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
    row: dict = field(default_factory=dict)
    problem: str = ""
    allowance_bytes: int = 0


class _StopError(Exception):
    pass


def write_shard(task: ShardTask) -> ShardOutcome:
    """The outcome of writing one shard: temporary name, count, close, journal row, final name."""
    try:
        _check_disk(task)
        row = _write_whole(task)
    except _StopError as problem:
        return ShardOutcome(task.shard, problem=str(problem), allowance_bytes=task.allowance_bytes)
    except (OSError, tf.errors.OpError) as error:
        problem = _explain_failure(task, error)
        return ShardOutcome(task.shard, problem=problem, allowance_bytes=task.allowance_bytes)
    return ShardOutcome(task.shard, row=row, allowance_bytes=task.allowance_bytes)


def _write_whole(task: ShardTask) -> dict:
    temporary = scratch_file(task.part_dir, f"{task.shard.number:06d}")
    try:
        lengths, rejects = _write_records(task, temporary)
        count, size = len(lengths), os.path.getsize(temporary)
        expected = sum(lengths) + 16 * count
        if not task.plan.settings.compression and size != expected:
            raise OSError(f"'{temporary}' has {size:,} bytes after closing, expected {expected:,}.")
        sha256 = sha256_of(temporary)
        shard, name = task.shard, task.plan.file_name(task.shard, count)
        row = {"file": name, "split": shard.split, "fold": shard.fold, "count": count}
        row |= {"bytes": size, "sha256": sha256, "part": shard.part, "shard": shard.index}
        row |= {"refused": len(rejects), "rejects": rejects, "number": shard.number}
        if not task.plan.settings.compression:
            _write_index(task.part_dir, f"{name}.idx", lengths)
        _check_claim(task)
        write_row(task.part_dir, shard, row)
        publish_file(temporary, storage.join(task.part_dir, name))
    finally:
        storage.remove(temporary)
    return row


def _write_records(task: ShardTask, temporary: str) -> tuple[list[int], list[dict]]:
    """Lengths of the records written, and the images that were refused."""
    schema, settings = task.plan.schema, task.plan.image
    lengths, rejects, size = [], [], 0
    names = task.rows.columns.tolist()
    rows = zip(*(task.rows[name].tolist() for name in names), strict=True)
    options = tf.io.TFRecordOptions(compression_type=task.plan.settings.compression)
    look_at = time.monotonic() + SECONDS_BETWEEN_LOOKS
    with tf.io.TFRecordWriter(temporary, options) as writer:
        for values, data in zip(rows, read_all(task.rows.path.tolist()), strict=True):
            if task.run_id in stopped_runs:
                raise _StopError("interrupted")
            if time.monotonic() > look_at:
                _check_claim(task)
                look_at = time.monotonic() + SECONDS_BETWEEN_LOOKS
            row = dict(zip(names, values, strict=True))
            try:
                record = encode_row(row, convert(data, settings), schema, settings)
            except RefusedImage as refusal:
                rejects.append({name: row[name] for name in ("image_id", "path")})
                rejects[-1]["problem"] = str(refusal)
                continue
            writer.write(record)
            lengths.append(len(record))
            size += len(record) + 16
            if size > task.allowance_bytes:
                raise _StopError(
                    f"the part would pass its limit: shard {task.shard.number} has {size:,} bytes "
                    f"after {len(lengths):,} of {task.shard.count:,} images, and only "
                    f"{task.allowance_bytes:,} are left for it. The forecast was "
                    f"{task.shard.bytes_high:,} bytes at most"
                )
    return lengths, rejects


def read_all(paths: Sequence[str]) -> Iterator[bytes]:
    """The content of each file, in order; from a bucket with many reads in flight."""
    if not paths or not storage.is_remote(paths[0]):
        yield from map(storage.read_bytes, paths)
        return
    data = tf.data.Dataset.from_tensor_slices(list(paths))
    data = data.map(tf.io.read_file, num_parallel_calls=READS_IN_FLIGHT, deterministic=True)
    yield from data.prefetch(READS_IN_FLIGHT).as_numpy_iterator()


def _write_index(part_dir: str, name: str, lengths: Sequence[int]) -> None:
    """One line a record, "offset bytes", frame included: what DALI and the torch readers take.

    Source: https://github.com/NVIDIA/DALI/blob/main/tools/tfrecord2idx
    """
    temporary, offset = scratch_file(part_dir, "index"), 0
    try:
        with open(temporary, "w", encoding="ascii") as file:
            for length in lengths:
                file.write(f"{offset} {length + 16}\n")
                offset += length + 16
        publish_file(temporary, storage.join(part_dir, "index", name))
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
    free = free_bytes(task.part_dir)
    return f"{error} ({free / 1e6:,.1f} MB are free for '{task.part_dir}')"


def _check_disk(task: ShardTask) -> None:
    free, needed = free_bytes(task.part_dir), task.shard.bytes_high + SPARE_DISK_BYTES
    if free < needed:
        raise _StopError(
            f"the disk is too full: shard {task.shard.number} may take {needed / 1e6:,.1f} MB, and "
            f"{free / 1e6:,.1f} MB are free for '{task.part_dir}'"
        )


class ByteBudget:
    """What a part's shards may weigh: written + set aside for those under way ≤ limit, always."""

    def __init__(self, limit: int, written: int, coming: int) -> None:
        self.limit, self.written, self.coming = limit, written, coming
        self.set_aside, self.lock = 0, threading.Lock()

    def reserve(self, shard: Shard) -> int:
        """Bytes that the shard may grow to; 0 when it does not fit any more."""
        with self.lock:
            free = self.limit - self.written - self.set_aside
            spare = max(0, free - self.coming)
            self.coming -= shard.bytes_high
            if shard.bytes_high > free:
                return 0
            self.set_aside += shard.bytes_high + spare // 2
            return shard.bytes_high + spare // 2

    def settle(self, allowance: int, written: int) -> None:
        """Notes what a shard has become."""
        with self.lock:
            self.set_aside -= allowance
            self.written += written

    def explain(self, shard: Shard) -> str:
        """Why a shard does not fit any more."""
        return (
            f"part {shard.part} would pass its limit: its shards may take {self.limit:,} bytes, "
            f"those written take {self.written:,}, and shard {shard.number} may take "
            f"{shard.bytes_high:,}"
        )
