"""One shard: its images become records in a file that gets its name once complete."""

import contextlib
import errno
import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.convert import convert
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.plan.plan import Plan, Shard
from kaggle_tfr.records import (
    FRAME_BYTES,
    DamagedRecord,
    format_index,
    stream_image_bytes,
)
from kaggle_tfr.schema import encode
from kaggle_tfr.session import tf
from kaggle_tfr.write.journal import ShardRow, is_claimed

SPARE_DISK_BYTES = 8 << 20  # 8 MiB for the tables beside the shards
SECONDS_BETWEEN_CHECKS = 5  # of the part's claim
CLAIM_LOST = (
    "the run was ended, or another run has begun to write the same part. Wait until "
    "no other run writes this part."
)
MAKE_ROOM = "Make room there, or set another OUT_DIR."
PLAN_SMALLER_PARTS = (
    "Plan smaller parts (PART_LIMIT_GB, IMAGE_SIZE, QUALITY in 03_plan)."
)


class ShardTask(NamedTuple):
    """All that a worker needs, on any machine.

    plan: without its shards; rows: the shard's rows of plan.parquet.
    limit_bytes: size at which writing stops, because the part would pass its limit.
    """

    plan: Plan
    shard: Shard
    rows: pd.DataFrame
    part_dir: str
    limit_bytes: int
    run_id: str


class ShardOutcome(NamedTuple):
    """The row of a shard that was written, or the problem that stops the run."""

    shard: Shard
    limit_bytes: int  # of the task
    row: ShardRow | None
    problem: str = ""


def write_shard(task: ShardTask) -> ShardOutcome:
    """Write one shard: temporary name, count, close, index, journal row, final name."""
    row = None
    problem = ""
    try:
        row = _write_whole(task)
    except InterruptedError as stop:
        problem = str(stop)
    except (OSError, tf.errors.OpError) as error:
        is_ours = True
        with contextlib.suppress(OSError):
            is_ours = is_claimed(task.part_dir, task.run_id)
        # Another run that takes the part over removes this run's files.
        problem = _explain_error(error, task.part_dir) if is_ours else CLAIM_LOST
    return ShardOutcome(task.shard, task.limit_bytes, row, problem)


def _explain_error(error: Exception, part_dir: str) -> str:
    """Return the problem of a shard that could not be written, with what to do."""
    text = str(error).removesuffix(storage.RESUME_HINT).rstrip(". ")
    if isinstance(error, FileNotFoundError | tf.errors.NotFoundError):
        return f"{text}. Put that file back."

    fix = MAKE_ROOM if _is_disk_full(error) else "Fix the cause that the error names."
    free = storage.free_bytes(part_dir)
    return f"{text} ({free / 1e6:,.1f} MB are free for '{part_dir}'). {fix}"


def _is_disk_full(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, tf.errors.ResourceExhaustedError)


def _write_whole(task: ShardTask) -> ShardRow:
    """Write a shard and return its row.

    Raises: InterruptedError: the shard cannot be written, and why.
    """
    _check_disk(task)
    number = f"{task.shard.number:06d}"
    scratch = storage.scratch_folder(task.part_dir)
    temporary = os.path.join(scratch, f"{number}.{uuid.uuid4().hex}.tmp")
    try:
        bounds, rejects = _write_records(task, temporary)
        row = _describe_shard(task, temporary, len(bounds) - 1, rejects)
        if not task.plan.settings.compression:
            _write_index(task, row, bounds)
        _check_claim(task)
        # The row is written before the shard gets its name, so that no file with a
        # final name lacks its row.
        path = f"{task.part_dir}/journal/{number}.json"
        text = json.dumps(asdict(row), ensure_ascii=False)
        storage.write_atomically(path, text.encode())
        storage.publish_file(temporary, f"{task.part_dir}/{row.file}")
    finally:
        storage.remove(temporary)
    return row


def _write_index(task: ShardTask, row: ShardRow, bounds: list[int]) -> None:
    """Write the index of a shard that is not compressed.

    Raises: OSError: the file is not as long as its records.
    """
    if row.bytes != bounds[-1]:
        raise OSError(
            f"'{row.file}' has {row.bytes:,} bytes after closing, expected "
            f"{bounds[-1]:,}."
        )
    path = f"{task.part_dir}/index/{row.file}.idx"
    storage.write_atomically(path, format_index(bounds).encode())


def _describe_shard(
    task: ShardTask, temporary: str, count: int, rejects: list[dict[str, str]]
) -> ShardRow:
    """Return the row of a shard whose records are in a temporary file."""
    shard = task.shard
    return ShardRow(
        file=task.plan.file_name(shard, count),
        split=shard.split,
        fold=shard.fold,
        count=count,
        bytes=os.path.getsize(temporary),
        sha256=storage.sha256_of(temporary),
        part=shard.part,
        shard=shard.index,
        refused=len(rejects),
        rejects=rejects,
        number=shard.number,
    )


def _check_disk(task: ShardTask) -> None:
    """Raise an InterruptedError if the disk has too little room for the shard."""
    free = storage.free_bytes(task.part_dir)
    needed = task.shard.bytes_high + SPARE_DISK_BYTES
    if free < needed:
        raise InterruptedError(
            f"the disk is too full: shard {task.shard.number} and the files beside it "
            f"may take {needed / 1e6:,.1f} MB, but {free / 1e6:,.1f} MB are free for "
            f"'{task.part_dir}'. {MAKE_ROOM}"
        )


def _check_claim(task: ShardTask) -> None:
    """Raise an InterruptedError if this run was ended, or another owns the part."""
    if not is_claimed(task.part_dir, task.run_id):
        raise InterruptedError(CLAIM_LOST)


def _write_records(
    task: ShardTask, temporary: str
) -> tuple[list[int], list[dict[str, str]]]:
    """Return the bounds of the records in bytes, and the rejected images."""
    bounds = [0]
    rejects = []
    images = stream_image_bytes(task.rows["path"])
    compression = task.plan.settings.compression
    with tf.io.TFRecordWriter(temporary, compression) as writer:
        for row, data in zip(_claimed_rows(task), images, strict=True):
            try:
                record = _encode_image(row, data, task.plan)
            except (RejectedImage, DamagedRecord) as rejection:
                reject = {
                    "image_id": row["image_id"],
                    "path": row["path"],
                    "problem": str(rejection),
                }
                rejects.append(reject)
                continue
            writer.write(record)
            bounds.append(bounds[-1] + len(record) + FRAME_BYTES)
            _check_limit(task, bounds)
    return bounds, rejects


def _claimed_rows(task: ShardTask) -> Iterator[dict[Any, Any]]:
    """Yield the rows of the shard's images; every few seconds check the claim."""
    next_check = time.monotonic() + SECONDS_BETWEEN_CHECKS
    for row in task.rows.to_dict("records"):
        if time.monotonic() > next_check:
            _check_claim(task)
            next_check = time.monotonic() + SECONDS_BETWEEN_CHECKS
        yield row


def _check_limit(task: ShardTask, bounds: list[int]) -> None:
    """Raise an InterruptedError if the shard is larger than its part has room for."""
    if bounds[-1] > task.limit_bytes:
        raise InterruptedError(
            f"the part would pass its limit: shard {task.shard.number} has "
            f"{bounds[-1]:,} bytes after {len(bounds) - 1:,} of {task.shard.count:,} "
            f"images, and only {task.limit_bytes:,} are left for it. The forecast was "
            f"at most {task.shard.bytes_high:,}. {PLAN_SMALLER_PARTS}"
        )


def _encode_image(row: dict[Any, Any], data: bytes | OSError, plan: Plan) -> bytes:
    """Return the record of an image, from its row of the plan and the file's bytes.

    Raises: RejectedImage; OSError: the file could not be read.
    """
    if isinstance(data, OSError):
        raise data
    _check_unchanged(row, data)
    return encode(row, convert(data, plan.image), plan.schema, plan.image)


def _check_unchanged(row: dict[Any, Any], data: bytes) -> None:
    """Raise RejectedImage unless size and digest are those that 01 found.

    01 does not know them for every image.
    """
    size = row.get("n_bytes") or len(data)
    if size != len(data):
        raise RejectedImage(
            f"changed since 01_explore: {size:,} bytes before, {len(data):,} now"
        )
    if row.get("digest") not in (None, "", storage.digest(data)):
        raise RejectedImage(f"changed since 01_explore: other {size:,} bytes")
