"""Write parts on disk or in a bucket, shard by shard; a stopped run resumes."""

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import pandas as pd

from kaggle_tfr import notebook, parallel, session, storage
from kaggle_tfr.naming import FOLDS_FILE, name_parts
from kaggle_tfr.plan.plan import (
    Plan,
    Shard,
    check_names,
    has_folds,
    read_plan,
    read_rows,
)
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
from kaggle_tfr.write.shard import (
    MAKE_ROOM,
    ShardTask,
    cut_rows,
    encode_images,
    write_shard,
)


def account_parts(plan: Plan, shards: pd.DataFrame, work_dir: str) -> dict[str, int]:
    """Return the number of images by outcome, and write them to accounting.csv.

    shards: of `write_parts`; the plan's other shards count as "in other parts".
    "unreadable when written" are images that 04 could not write, "rejected" those that
    01 cannot use.
    Raises: RuntimeError: images in are not images written, dropped or rejected.
    """
    is_test = shards["split"] == "test"
    n_refused = int(shards["refused"].sum())
    n_written = {
        "labelled records": int(shards["count"][~is_test].sum()),
        "test records": int(shards["count"][is_test].sum()),
    }
    n_planned = sum(shard.count for shard in plan.shards)
    n_elsewhere = n_planned - sum(n_written.values()) - n_refused
    counts = {name: n_written.get(name, n) for name, n in plan.outcomes.items()}
    if n_refused:
        counts["unreadable when written"] = n_refused
    if n_elsewhere:
        counts["in other parts"] = n_elsewhere

    table = notebook.tabulate(counts, sum(plan.outcomes.values()))
    text = table.to_csv(lineterminator="\n", float_format="%.4f")
    storage.write_atomically(storage.join(work_dir, "accounting.csv"), text.encode())
    return counts


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
    with contextlib.ExitStack() as locks:
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
    """Check the part and the names of a plan, and that folds.csv is the plan's.

    Warn of other versions of the packages that decide the bytes. Raises: ValueError.
    """
    if part != 0 and part not in plan.part_numbers:
        raise ValueError(
            f"PART is {part}, but the plan has {name_parts(plan.part_numbers)}. Set "
            "PART to a number of the plan, or to 0 for all."
        )
    check_names(plan)
    if has_folds(plan, part or plan.first_part):
        changed = find_changed_files(work_dir, {FOLDS_FILE: plan.folds_sha256})
        if changed:
            raise ValueError(
                f"{FOLDS_FILE} in '{work_dir}' is not that of plan.json: "
                f"{changed[FOLDS_FILE]}. Run 03_plan."
            )
    versions = parallel.package_versions()
    if plan.versions not in ({}, versions):
        warnings.warn(
            f"planned with {plan.versions}, now with {versions}: parts written with "
            "different versions can differ in their bytes, but not in their images.",
            stacklevel=4,
        )


def _check_folders(work_dir: str, parts_dir: str, part_dirs: list[str]) -> None:
    """Raise a ValueError where readers would mix parts of two datasets.

    Or if images of the plan are in a part that this run writes.
    """
    others = [part for part in list_parts(parts_dir) if part not in part_dirs]
    advice = "Remove or move the older one, or set another OUT_DIR."
    check_one_dataset([work_dir, *others], advice=advice)

    plan_path = storage.join(work_dir, "plan.parquet")
    paths = storage.read_parquet(plan_path, columns=["path"])["path"]
    for folder in paths.map(os.path.dirname).unique():
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
    check = partial(_check_shard, part_dir)
    label = f"Checking finished shards of {part_dir}"
    checked = parallel.run(check, rows, label=label)
    finished = {row.number: row for row in checked if row}
    shards = [shard for shard in plan.shards if shard.part == part]
    missing = [shard for shard in shards if shard.number not in finished]
    bytes_left = plan.shard_limit_bytes - sum(row.bytes for row in finished.values())
    try:
        for row in parallel.run_groups(
            cut_rows,
            partial(encode_images, plan.for_worker()),
            write_shard,
            _list_tasks(work_dir, part_dir, plan, missing, bytes_left),
            label="Writing images",
            total=sum(shard.count for shard in missing),
            advance=lambda row: row.count + row.refused,
        ):
            finished[row.number] = row
    except ConnectionError:  # of a cluster
        raise
    except (OSError, tf.errors.OpError) as error:
        raise OSError(
            f"Stopped after {len(finished)} of {len(shards)} shards of '{part_dir}', "
            f"which are whole and stay: {_explain(error, part_dir)} "
            f"{storage.RESUME_HINT}"
        ) from error
    if len(finished) < len(shards):
        print(
            f"Stopped after {len(finished)} of {len(shards)} shards of '{part_dir}', "
            f"which are whole and stay.\nThe session's {session.session_hours()} hours "
            "are nearly over. Push the kernel again with its own output as a source "
            "(`python -m kaggle_tfr push` does): it resumes."
        )
        raise SystemExit(0)
    return [finished[shard.number] for shard in shards]


def _check_shard(part_dir: str, row: ShardRow) -> ShardRow | None:
    """Return the row if its file is as it was written; else remove the file."""
    # An error of the disk is raised: it is no reason to remove a file.
    if find_changed_files(part_dir, {row.file: row.sha256}):
        storage.remove(storage.join(part_dir, row.file))
        return None
    return row


def _list_tasks(
    work_dir: str, part_dir: str, plan: Plan, missing: Sequence[Shard], bytes_left: int
) -> Iterator[ShardTask]:
    """Yield the missing shards as tasks, until the session is nearly over.

    A shard may have the upper bound of its forecast, and an equal share of the bytes
    that no shard is forecast to need.
    """
    spare = bytes_left - sum(shard.bytes_high for shard in missing)
    for shard, rows in read_rows(work_dir, missing):
        if session.hours_left() <= 0:
            return
        limit_bytes = shard.bytes_high + spare // len(missing)
        yield ShardTask(plan.for_worker(), shard, rows, part_dir, limit_bytes)


def _explain(error: Exception, part_dir: str) -> str:
    """Return why a shard could not be written, and what to do."""
    text = str(error).removesuffix(storage.RESUME_HINT).rstrip(". ")
    is_full = isinstance(error, tf.errors.ResourceExhaustedError)
    if is_full or getattr(error, "errno", 0) in storage.NO_SPACE:
        free = storage.free_bytes(part_dir)
        text += f" ({free / 1e6:,.1f} MB are free for '{part_dir}'). {MAKE_ROOM}"
    elif isinstance(error, FileNotFoundError):
        text += ". Put that file back"
    return f"{text}."


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
