"""One shard: its images become records in a file that gets its name once complete."""

import os
import uuid
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd

from kaggle_tfr import parallel, storage
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
from kaggle_tfr.write.journal import ShardRow, add_row

BLOCK_IMAGES = 16
BLOCK_BYTES = 2 << 20  # 2 MiB of files
SPARE_DISK_BYTES = 8 << 20  # 8 MiB for the tables beside the shards
MAKE_ROOM = "Make room there, or set another OUT_DIR"

Row = dict[Any, Any]  # of plan.parquet
Reject = dict[str, str]  # image_id, path, problem


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


def cut_rows(task: ShardTask) -> list[list[Row]]:
    """Return the rows of a shard in blocks of at most 2 MiB or one image."""
    largest = max(1, int(task.rows["n_bytes"].max()))
    size = min(BLOCK_IMAGES, max(1, BLOCK_BYTES // largest))
    return parallel.blocks(task.rows.to_dict("records"), size)


def encode_images(plan: Plan, rows: list[Row]) -> list[bytes | Reject]:
    """Return the record of each image, or why it is rejected.

    Raises: OSError: a file could not be read.
    """
    images = stream_image_bytes(row["path"] for row in rows)
    return [_encode(row, data, plan) for row, data in zip(rows, images, strict=True)]


def _encode(row: Row, data: bytes | OSError, plan: Plan) -> bytes | Reject:
    try:
        if isinstance(data, OSError):
            raise data
        _check_unchanged(row, data)
        return encode(row, convert(data, plan.image), plan.schema, plan.image)
    except (RejectedImage, DamagedRecord) as rejection:
        return {
            "image_id": row["image_id"],
            "path": row["path"],
            "problem": str(rejection),
        }


def _check_unchanged(row: Row, data: bytes) -> None:
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


def write_shard(task: ShardTask, blocks: Iterator[list[bytes | Reject]]) -> ShardRow:
    """Write a shard: temporary name, index, journal row, final name; return its row.

    blocks: of `encode_images`. The row is written before the shard gets its name, so
    that no file with a final name lacks its row.
    Raises: OSError, tf.errors.OpError.
    """
    _check_disk(task)
    plan, shard, _, part_dir, _ = task
    scratch = storage.scratch_folder(part_dir)
    temporary = os.path.join(scratch, f"{shard.number:06d}.{uuid.uuid4().hex}.tmp")
    try:
        records = chain.from_iterable(blocks)
        bounds, rejects = _write_records(task, records, temporary)
        count = len(bounds) - 1
        row = ShardRow(
            file=plan.file_name(shard, count),
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
            fingerprint=plan.fingerprint,
        )
        if not plan.settings.compression:
            if row.bytes != bounds[-1]:
                raise OSError(f"'{temporary}' is shorter than what was written.")
            index = format_index(bounds)
            storage.write_atomically(f"{part_dir}/index/{row.file}.idx", index.encode())
        add_row(part_dir, row)
        storage.publish_file(temporary, f"{part_dir}/{row.file}")
    finally:
        storage.remove(temporary)
    return row


def _check_disk(task: ShardTask) -> None:
    """Raise an OSError if the disk has too little room for the shard."""
    free = storage.free_bytes(task.part_dir)
    needed = task.shard.bytes_high + SPARE_DISK_BYTES
    if free < needed:
        raise OSError(
            f"the disk is too full: shard {task.shard.number} and the files beside it "
            f"may take {needed / 1e6:,.1f} MB, but {free / 1e6:,.1f} MB are free for "
            f"'{task.part_dir}'. {MAKE_ROOM}."
        )


def _write_records(
    task: ShardTask, records: Iterable[bytes | Reject], path: str
) -> tuple[list[int], list[Reject]]:
    """Write the records; return their bounds in bytes, and the rejected images."""
    bounds = [0]
    rejects = list[Reject]()
    with tf.io.TFRecordWriter(path, task.plan.settings.compression) as writer:
        for record in records:
            if isinstance(record, dict):
                rejects.append(record)
                continue
            writer.write(record)
            bounds.append(bounds[-1] + len(record) + FRAME_BYTES)
            if bounds[-1] > task.limit_bytes:
                raise OSError(
                    f"part {task.shard.part} would pass its limit: shard "
                    f"{task.shard.number} has {bounds[-1]:,} bytes after "
                    f"{len(bounds) - 1:,} of {task.shard.count:,} images, and only "
                    f"{task.limit_bytes:,} are left for it. Plan smaller parts "
                    "(PART_LIMIT_GB, IMAGE_SIZE, QUALITY in 03_plan)."
                )
    return bounds, rejects
