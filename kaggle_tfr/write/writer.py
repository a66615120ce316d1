"""Write parts on disk or in a bucket, shard by shard; a stopped run resumes.

On one machine shards are written one after the other, and their images are converted in
parallel. On a cluster a shard is a task.
"""

import os
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any

import pandas as pd

from kaggle_tfr import notebook, parallel, session, storage
from kaggle_tfr.images.convert import convert
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.naming import FOLDS_FILE
from kaggle_tfr.plan.plan import Plan, Shard, has_folds, read_plan, read_rows
from kaggle_tfr.records import (
    FRAME_BYTES,
    DamagedRecord,
    format_index,
    stream_image_bytes,
)
from kaggle_tfr.schema import encode
from kaggle_tfr.session import tf
from kaggle_tfr.shards import (
    check_one_dataset,
    find_changed_files,
    list_own_parts,
    list_parts,
)
from kaggle_tfr.tables import count_of, format_bytes
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.journal import ShardRow
from kaggle_tfr.write.metadata import read_license

BLOCK_IMAGES = 16
BLOCK_BYTES = 2 << 20  # 2 MiB of files
SPARE_DISK_BYTES = 8 << 20  # 8 MiB for the tables beside the shards

Row = dict[Any, Any]  # of plan.parquet
Reject = dict[str, str]  # image_id, path, problem
Task = tuple[Shard, pd.DataFrame]  # a shard, and its rows of plan.parquet


@storage.explain_os_errors("OUT_DIR", storage.OUTPUT_FIXES)
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
    Raises: ValueError: no such part, it was written from another plan, or a name is
        outside it. RuntimeError: another run writes a part. OSError: a full disk, a
        missing input, or the part would pass its limit; the same call resumes.
        SystemExit: a Kaggle batch session nears its end.
    """
    plan = read_plan(work_dir)
    _check_plan(plan, part, work_dir)
    parts_dir = out_dir or work_dir
    numbers = [part] if part else plan.part_numbers
    part_dirs = {n: storage.join(parts_dir, f"part-{n}") for n in numbers}
    _check_folders(work_dir, parts_dir, [*part_dirs.values()])
    storage.remove_leftovers(work_dir)
    written = list[ShardRow]()
    with ExitStack() as locks:
        for part_dir in part_dirs.values():
            locks.enter_context(journal.lock_part(part_dir))
        finished = {
            number: journal.open_part(part_dir, plan, overwrite=overwrite)
            for number, part_dir in part_dirs.items()
        }
        for number, part_dir in part_dirs.items():
            rows = _write_missing(work_dir, part_dir, plan, number, finished[number])
            sidecars.close_part(
                work_dir,
                part_dir,
                plan,
                rows,
                license_name,
                publish_hashes=publish_hashes,
            )
            written += rows
    shards = pd.DataFrame(written, columns=journal.COLUMNS)
    licenses = set(map(read_license, part_dirs.values()))
    _note_records(plan, shards, len(list_own_parts(parts_dir, work_dir)), licenses)
    return shards


def _check_plan(plan: Plan, part: int, work_dir: str) -> None:
    """Check that the plan has the part, and that folds.csv is the plan's.

    Warn of other versions of the packages that decide the bytes. Raises: ValueError.
    """
    if part != 0 and part not in plan.part_numbers:
        raise ValueError(
            f"PART is {part}, but the plan has the parts {list(plan.part_numbers)}. "
            "Set PART to one of them, or to 0 for all."
        )
    if has_folds(plan, part or plan.first_part):
        changed = find_changed_files(work_dir, {FOLDS_FILE: plan.folds_sha256})
        if changed:
            raise ValueError(f"'{work_dir}' is not as planned: {changed}. Run 03_plan.")
    versions = parallel.package_versions()
    if plan.versions not in ({}, versions):
        warnings.warn(
            f"planned with {plan.versions}, now with {versions}: parts written with "
            "different versions can differ in their bytes, but not in their images.",
            stacklevel=4,
        )


def _check_folders(work_dir: str, parts_dir: str, part_dirs: list[str]) -> None:
    """Raise a ValueError where readers would mix parts of two datasets.

    Also if images of the plan are in a part that this run writes.
    """
    others = [part for part in list_parts(parts_dir) if part not in part_dirs]
    advice = "Remove or move the older one, or set another OUT_DIR."
    check_one_dataset([work_dir, *others], advice=advice)

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

    rows: of `journal.open_part`. Raises: OSError, SystemExit: see `write_parts`.
    """
    finished = {row.number: row for row in rows}
    shards = [shard for shard in plan.shards if shard.part == part]
    missing = [shard for shard in shards if shard.number not in finished]
    # A shard may have the upper bound of its forecast, and an equal share of the rest.
    left = plan.shard_limit_bytes - sum(row.bytes for row in finished.values())
    spare = left - sum(shard.bytes_high for shard in missing)
    spare_each = spare // max(1, len(missing))
    worker_plan = plan.for_worker()
    stopped = "Stopped after {} of {} shards of '{}', which are whole and stay"
    try:
        for row in parallel.run_groups(
            cut_rows,
            partial(encode_images, worker_plan),
            partial(write_shard, worker_plan, part_dir, spare_each),
            _list_tasks(work_dir, missing),
            label="Writing images",
            total=sum(shard.count for shard in missing),
            advance=lambda row: row.count + row.refused,
        ):
            finished[row.number] = row
    except ConnectionError:  # of a cluster
        raise
    except (OSError, tf.errors.OpError) as error:
        free_mb = storage.free_bytes(part_dir) / 1e6
        problem = str(error).removesuffix(storage.RESUME_HINT)
        raise OSError(
            f"{stopped.format(len(finished), len(shards), part_dir)}: {problem} "
            f"({free_mb:,.1f} MB are free there.) Fix the cause. {storage.RESUME_HINT}"
        ) from error
    if len(finished) < len(shards):
        print(
            f"{stopped.format(len(finished), len(shards), part_dir)}.\nThe session's "
            f"{session.session_hours()} hours are nearly over. Push the kernel again "
            "with its own output as a source (`python -m kaggle_tfr push` does): it "
            "resumes."
        )
        raise SystemExit(0)
    return [finished[shard.number] for shard in shards]


def _list_tasks(work_dir: str, missing: Sequence[Shard]) -> Iterator[Task]:
    """Yield the missing shards, until the session is nearly over."""
    for task in read_rows(work_dir, missing):
        if session.hours_left() <= 0:
            return
        yield task


def cut_rows(task: Task) -> list[list[Row]]:
    """Return the rows of a shard in blocks of 16 images and 2 MiB of files at most.

    A block has one image if the largest file is beyond that.
    """
    _, rows = task
    largest = max(1, int(rows["n_bytes"].max()))
    size = min(BLOCK_IMAGES, max(1, BLOCK_BYTES // largest))
    return parallel.blocks(rows.to_dict("records"), size)


def encode_images(plan: Plan, rows: list[Row]) -> list[bytes | Reject]:
    """Return the record of each image, or why it is rejected.

    Raises: OSError: a file could not be read.
    """
    images = stream_image_bytes(row["path"] for row in rows)
    return [_encode(row, data, plan) for row, data in zip(rows, images, strict=True)]


def _encode(row: Row, data: bytes | OSError, plan: Plan) -> bytes | Reject:
    problem = "changed since 01_explore"
    if isinstance(data, DamagedRecord):
        problem = str(data)
    elif isinstance(data, OSError):
        raise data
    # 01 does not know size and digest of every image.
    elif row["n_bytes"] in (0, len(data)) and row.get("digest") in (
        None,
        "",
        storage.digest(data),
    ):
        try:
            return encode(row, convert(data, plan.image), plan.schema, plan.image)
        except RejectedImage as rejection:
            problem = str(rejection)
    return {"image_id": row["image_id"], "path": row["path"], "problem": problem}


def write_shard(
    plan: Plan,
    part_dir: str,
    spare_bytes: int,
    task: Task,
    blocks: Iterator[list[bytes | Reject]],
) -> ShardRow:
    """Write a shard: temporary name, index, journal row, final name; return its row.

    blocks: of `encode_images`. The row is written before the shard gets its name, so
    that no file with a final name lacks its row.
    spare_bytes: that the shard may have beyond the bound of its forecast.
    Raises: OSError, tf.errors.OpError.
    """
    shard, _ = task
    needed = shard.bytes_high + SPARE_DISK_BYTES
    if storage.free_bytes(part_dir) < needed:
        raise OSError(
            f"the disk is too full: shard {shard.number} and the files beside it may "
            f"take {needed / 1e6:,.1f} MB. Make room, or set another OUT_DIR."
        )
    scratch = storage.scratch_folder(part_dir)
    temporary = os.path.join(scratch, f"{shard.number:06d}.{uuid.uuid4().hex}.tmp")
    bounds = [0]
    rejects = list[Reject]()
    try:
        with tf.io.TFRecordWriter(temporary, plan.settings.compression) as writer:
            for record in chain.from_iterable(blocks):
                if isinstance(record, dict):
                    rejects.append(record)
                    continue
                writer.write(record)
                bounds.append(bounds[-1] + len(record) + FRAME_BYTES)
                _check_limit(shard, bounds, spare_bytes)
        row = ShardRow(
            file=plan.file_name(shard, len(bounds) - 1),
            split=shard.split,
            fold=shard.fold,
            count=len(bounds) - 1,
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
            index_path = storage.join(part_dir, f"index/{row.file}.idx")
            storage.write_atomically(index_path, index.encode())
        path = storage.join(part_dir, row.file)
        journal.add_row(part_dir, row)
        storage.publish_file(temporary, path)
    finally:
        storage.remove(temporary)
    return row


def _check_limit(shard: Shard, bounds: list[int], spare_bytes: int) -> None:
    """Raise an OSError if a shard has more bytes than its part has room for."""
    limit_bytes = shard.bytes_high + spare_bytes
    if bounds[-1] > limit_bytes:
        raise OSError(
            f"part {shard.part} would pass its limit: shard {shard.number} has "
            f"{bounds[-1]:,} bytes after {len(bounds) - 1:,} of {shard.count:,} images,"
            f" of {limit_bytes:,} that are left for it. Plan smaller parts "
            "(PART_LIMIT_GB, IMAGE_SIZE, QUALITY in 03_plan)."
        )


def _note_records(
    plan: Plan, shards: pd.DataFrame, n_parts: int, licenses: set[str]
) -> None:
    """Note the written records, missing parts, unreadable images and the license.

    n_parts: of the plan that are written, by this run or before.
    licenses: of the parts, "" for none.
    """
    n_planned = sum(shard.count for shard in plan.shards)
    n_records = shards["count"].sum()
    n_tests = shards["count"][shards["split"] == "test"].sum()
    kinds = ""
    if n_tests:
        kinds = f" ({n_records - n_tests:,} labelled records, {n_tests:,} test records)"
    notebook.note(
        "✓",
        f"Wrote {n_records:,} records{kinds} of {n_planned:,} planned images: "
        f"{count_of(len(shards), 'shard')}, {format_bytes(shards['bytes'].sum())}, "
        f"{count_of(shards['part'].nunique(), 'part')}.",
        "parts",
    )
    if n_parts < plan.n_parts:
        text = f"Parts written so far: {n_parts} of {plan.n_parts}."
        advice = "Run 04_write with every other PART, or with PART = 0 for all."
        notebook.note("!", text, "parts: missing", advice)
    n_refused = shards["refused"].sum()
    if n_refused:
        notebook.note(
            "!",
            f"Not written: {n_refused:,} of {n_planned:,} planned images. 04 could not "
            "read them, or they have changed since 01.",
            "input: unreadable",
            "The part's rejects.csv has their reasons. Restore the images, delete the "
            "shards that it names, and run 04_write again.",
        )
    if "" in licenses:
        advice = "To publish, set LICENSE and run 04_write again, which keeps shards."
        notebook.note("·", "LICENSE is empty.", "license", advice)
    else:
        notebook.note("✓", f"License: {', '.join(sorted(licenses))}.", "license")


def account_parts(plan: Plan, shards: pd.DataFrame, work_dir: str) -> dict[str, int]:
    """Return the number of images by outcome, and write them to accounting.csv.

    shards: of `write_parts`; the plan's other shards count as "in other parts".
    "unreadable when written" are images that 04 could not write, "rejected" those that
    01 cannot use.
    Raises: RuntimeError: images in are not images written, dropped or rejected.
    """
    is_test = shards["split"] == "test"
    written = {
        "labelled records": shards["count"][~is_test].sum(),
        "test records": shards["count"][is_test].sum(),
        "unreadable when written": shards["refused"].sum(),
    }
    n_planned = sum(shard.count for shard in plan.shards)
    written["in other parts"] = n_planned - sum(written.values())
    counts = dict(plan.outcomes)
    for name, count in written.items():
        if count or name in counts:
            counts[name] = int(count)
    table = notebook.tabulate(counts, sum(plan.outcomes.values()))
    text = table.to_csv(lineterminator="\n", float_format="%.4f")
    storage.write_atomically(f"{work_dir}/accounting.csv", text.encode())
    return counts
