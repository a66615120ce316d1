"""Write parts on disk or in a bucket, shard by shard; a stopped run resumes.

On one machine shards are written one after the other, and their images are converted in
parallel. On a cluster a shard is a task.
"""

import os
import warnings
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from typing import Any

import pandas as pd

from kaggle_tfr import notebook, parallel, session, storage
from kaggle_tfr.images.convert import convert
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.naming import FOLDS_FILE
from kaggle_tfr.plan.plan import Plan, Shard, read_plan, read_rows
from kaggle_tfr.records import DamagedRecord, make_frame, stream_image_bytes
from kaggle_tfr.schema import encode
from kaggle_tfr.shards import check_one_dataset, find_changed_files, list_parts
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.journal import COLUMNS, ShardRow

Row = dict[Any, Any]  # of plan.parquet
Reject = dict[str, str]  # image_id, path, problem
Task = tuple[Shard, pd.DataFrame]  # a shard, and its rows of plan.parquet


@storage.explain_os_errors("OUT_DIR")
def write_parts(
    work_dir: str,
    out_dir: str = "",
    part: int = 0,
    *,
    overwrite: bool = False,
    license_name: str = "",
    publish_hashes: bool = False,
) -> pd.DataFrame:
    """Write the parts of a plan and return their shards, one row a file.

    part: one of the plan's numbers; 0 writes all. Finished shards of earlier runs are
        checked and kept.
    overwrite: remove what another plan wrote to these parts.
    license_name: Kaggle's name of a license, for dataset-metadata.json.
    publish_hashes: whether each part gets hashes.parquet.
    Raises: ValueError: no plan or no such part, the part was written from another plan,
        or a name is outside it. RuntimeError: another run writes a part. OSError: a
        full disk, a missing input (the same call resumes), or the part would exceed its
        limit.
        SystemExit: a Kaggle batch session nears its end.
    """
    plan = read_plan(work_dir)
    numbers = [part] if part else plan.part_numbers
    parts_dir = out_dir or work_dir
    part_dirs = [storage.join(parts_dir, f"part-{number}") for number in numbers]
    _check_plan(plan, numbers[0], work_dir)
    _check_folders(work_dir, parts_dir, part_dirs)
    written = list[ShardRow]()
    for number, part_dir in zip(numbers, part_dirs, strict=True):
        with storage.lock(f"{part_dir}/.lock"):
            finished = journal.open_part(part_dir, plan, overwrite=overwrite)
            rows = _write_missing(work_dir, part_dir, plan, number, finished)
            sidecars.close_part(
                work_dir,
                part_dir,
                plan,
                rows,
                license_name,
                publish_hashes=publish_hashes,
            )
        written += rows
    return pd.DataFrame(written)[COLUMNS]


def _check_plan(plan: Plan, part: int, work_dir: str) -> None:
    """Check that the plan has the part, and that folds.csv is the plan's.

    Warn of other versions of the packages that decide the bytes.
    part: the first one to be written. Raises: ValueError.
    """
    if part not in plan.part_numbers:
        raise ValueError(
            f"PART is {part}, but the plan has the parts {list(plan.part_numbers)}. "
            "Set PART to one of them, or to 0 for all."
        )
    # Only the first part of a plan gets folds.csv.
    if part == plan.first_part and find_changed_files(
        work_dir, {FOLDS_FILE: plan.folds_sha256}
    ):
        raise ValueError(
            f"'{work_dir}/{FOLDS_FILE}' has changed since 03_plan. Run 03_plan again."
        )
    versions = parallel.package_versions()
    if plan.versions != versions:
        warnings.warn(
            f"planned with {plan.versions}, now with {versions}: parts written with "
            "different versions can differ in their bytes, but not in their images.",
            stacklevel=4,
        )


def _check_folders(work_dir: str, parts_dir: str, part_dirs: list[str]) -> None:
    """Check that readers will not mix two datasets, and that no image is overwritten.

    parts_dir: the folder of `part_dirs`, which this run writes.
    Raises: ValueError: parts of another dataset are in the folder, or an image of the
        plan is in a part that this run writes.
    """
    # The paths of part folders that this run does not write.
    others = [part for part in list_parts(parts_dir) if part not in part_dirs]
    check_one_dataset(
        [work_dir, *others],
        advice="Remove or move the older one, or set another OUT_DIR.",
    )

    # By folders, of which there are fewer than images.
    table = storage.read_parquet(f"{work_dir}/plan.parquet", columns=["path"])
    for folder in table["path"].map(os.path.dirname).unique():
        if any(storage.is_inside(folder, part_dir) for part_dir in part_dirs):
            raise ValueError(
                f"'{folder}' contains images that this plan reads, and 04_write writes "
                "there. Set another OUT_DIR."
            )


def _write_missing(
    work_dir: str, part_dir: str, plan: Plan, part: int, rows: list[ShardRow]
) -> list[ShardRow]:
    """Write the shards of a part that are not finished, and return the rows of all.

    Both are rows of finished shards, `rows` those of `journal.open_part`; the returned
    ones are in the order of the plan. part: the number of the part.
    Raises: OSError, SystemExit: see `write_parts`.
    """
    numbers = {row.number for row in rows}
    shards = [shard for shard in plan.shards if shard.part == part]
    missing = [shard for shard in shards if shard.number not in numbers]
    # A shard may have the upper bound of its forecast, and an equal share of the bytes
    # of the part that no bound needs.
    spare = plan.shard_limit_bytes - sum(shard.bytes_high for shard in shards)
    worker_plan = plan.for_worker()
    # A shard is cut into blocks, workers encode the blocks, and the records are joined.
    written = parallel.run_groups(
        cut_rows,
        partial(encode_images, worker_plan),
        partial(write_shard, worker_plan, part_dir, spare // len(shards)),
        # No shard begins when the session is nearly over.
        takewhile(lambda _: session.hours_left() > 0, read_rows(work_dir, missing)),
        label="Writing images",
        total=sum(shard.count for shard in missing),
        advance=lambda row: row.count + row.refused,
    )
    rows = [*rows, *written]
    if len(rows) < len(shards):
        print(
            f"Stopped after {len(rows)} of {len(shards)} shards of '{part_dir}': "
            "the session is nearly over. Push the kernel again with its own output "
            "as a source, as `python -m kaggle_tfr push` does. It resumes."
        )
        raise SystemExit(0)
    return sorted(rows, key=lambda row: row.number)


def cut_rows(task: Task) -> list[list[Row]]:
    """Return the rows of a shard in blocks, which the workers of a machine share.

    A worker encodes one block at a time. A block has at most 16 images, and fewer if
    they are large, because the records of several blocks wait in memory.
    task: the shard, and its rows of plan.parquet.
    """
    _, rows = task
    # The second argument is the size of one image: a block of such images has at most
    # 2 MiB, or one image.
    return parallel.blocks_by_bytes(rows.to_dict("records"), rows["n_bytes"].max())


def encode_images(plan: Plan, rows: list[Row]) -> list[bytes | Reject]:
    """Return the record of each image, or why it is rejected, in the order of rows.

    Raises: OSError: a file could not be read.
    """
    images = stream_image_bytes(row["path"] for row in rows)
    return list(map(partial(_encode, plan), rows, images))


def _encode(plan: Plan, row: Row, data: bytes | OSError) -> bytes | Reject:
    """Return the record of an image, or why it is rejected.

    data: the image file, or the error of reading it. A damaged record is a reject, too;
    another error stops the run.
    Raises: OSError.
    """
    try:
        if isinstance(data, OSError):
            raise data
        # 01 does not know size and digest of every image: 0, and None or "".
        digests = (None, "", storage.digest(data))
        if row["n_bytes"] not in (0, len(data)) or row.get("digest") not in digests:
            raise RejectedImage("changed since 01_explore")  # noqa: TRY301
        return encode(row, convert(data, plan.image), plan.schema, plan.image)
    except (RejectedImage, DamagedRecord) as error:
        return {
            "image_id": row["image_id"],
            "path": row["path"],
            "problem": str(error),
        }
    except OSError as error:
        raise OSError(
            f"an image cannot be read: {error}. {storage.RESUME_HINT}"
        ) from error


def write_shard(
    plan: Plan,
    part_dir: str,
    spare_bytes: int,
    task: Task,
    records: Iterator[bytes | Reject],
) -> ShardRow:
    """Write a shard: temporary name, journal row, final name; return its row.

    The row comes before the final name: if the run is killed between them, the next run
    finds that the file is missing, and writes it again.
    task: the shard, and its rows. records: of `encode_images`.
    spare_bytes: that the shard may have beyond the bound of its forecast.
    Raises: OSError: the disk is full or fails, or the part would exceed its limit.
    """
    shard, _ = task
    # The path, without its ending, of two files: the temporary one, and the row's.
    place = f"{part_dir}/journal/{shard.number:06d}"
    with storage.temporary_file(place) as temporary:
        rejects = _write_records(temporary, plan.settings.compression, records)
        count = shard.count - len(rejects)
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
        )
        limit_bytes = shard.bytes_high + spare_bytes
        if row.bytes > limit_bytes:
            raise OSError(
                f"part {row.part} would exceed its limit: '{row.file}' has "
                f"{row.bytes:,} bytes, but only {limit_bytes:,} are available. Plan "
                "smaller parts (PART_LIMIT_GB, IMAGE_SIZE, QUALITY in 03_plan)."
            )
        path = storage.join(part_dir, row.file)
        journal.write_json(f"{place}.json", vars(row))
        storage.publish_file(temporary, path)
    return row


def _write_records(
    path: str, compression: str, records: Iterator[bytes | Reject]
) -> list[Reject]:
    """Write the records to a file, and return the rejects.

    The bytes are those of TensorFlow's writer, whose import takes seconds.
    compression: "" or "GZIP". records: of `encode_images`.
    Raises: OSError: the file cannot be written.
    """
    rejects = []
    # `wbits=31` is the format of GZIP; the settings are those of TensorFlow.
    stream = zlib.compressobj(wbits=31, memLevel=9)
    # 1 MiB at a time: during each call to the system another thread takes over.
    with storage.explain_os_errors(path), open(path, "wb", 1 << 20) as file:
        for record in records:
            if isinstance(record, bytes):
                frame = make_frame(record)
                file.write(stream.compress(frame) if compression else frame)
            else:
                rejects.append(record)
        if compression:
            file.write(stream.flush())
    return rejects


def account_parts(plan: Plan, shards: pd.DataFrame, work_dir: str) -> dict[str, int]:
    """Return the number of images by outcome; write them to accounting.csv, and notes.

    The outcomes are those of the plan, but the images that it calls records are counted
    by what 04 did with them.
    shards: of `write_parts`; the plan's other shards count as "in other parts".
    "unreadable when written" are images that 04 could not write, "rejected" those that
    01 cannot use.
    Raises: RuntimeError: the outcomes do not add up to the number of input images.
    """
    n_planned = sum(shard.count for shard in plan.shards)
    n_tests = shards["count"][shards["split"] == "test"].sum()
    n_records = shards["count"].sum()
    n_refused = shards["refused"].sum()
    written = {
        "labelled records": n_records - n_tests,
        "test records": n_tests,
        "unreadable when written": n_refused,
        "in other parts": n_planned - n_records - n_refused,
    }
    # The plan counts all images to be written as records.
    counts = dict(plan.outcomes)
    for name, count in written.items():
        if count or name in counts:
            counts[name] = int(count)
    # An error if the counts do not add up to the plan's.
    table = notebook.tabulate(counts, sum(plan.outcomes.values()))
    storage.write_atomically(f"{work_dir}/accounting.csv", table.to_csv())

    notebook.note(
        "✓",
        f"Wrote {n_records:,} records, of {n_planned:,} planned images, "
        f"{shards['bytes'].sum() / 1e6:,.1f} MB. Shards: {len(shards):,}.",
        "parts",
    )
    if n_refused:
        notebook.note(
            "!",
            f"Not written: {n_refused:,} of {n_planned:,} planned images. 04 could not "
            "read them, or they have changed since 01.",
            "input: unreadable",
            "The part's rejects.csv has their reasons. Restore the images, delete the "
            "shards that it names, and run 04_write again.",
        )
    return counts
