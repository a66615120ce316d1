"""Write parts on disk or in a bucket, shard by shard; a stopped run resumes."""

import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pandas as pd

from kaggle_tfr import notebook, parallel, session, storage
from kaggle_tfr.naming import FOLDS_FILE, name_parts
from kaggle_tfr.parameters import PARAMETERS
from kaggle_tfr.plan.plan import (
    Plan,
    Shard,
    check_names,
    has_folds,
    read_plan,
    read_rows,
)
from kaggle_tfr.shards import find_changed_files, list_own_parts
from kaggle_tfr.tables import count_of, format_bytes
from kaggle_tfr.write import journal, leftovers, sidecars
from kaggle_tfr.write.journal import ShardRow
from kaggle_tfr.write.metadata import read_license
from kaggle_tfr.write.shard import (
    PLAN_SMALLER_PARTS,
    ShardOutcome,
    ShardTask,
    write_shard,
)

TIME_OVER = "the session's time is over"


@dataclass(frozen=True)
class PartRun:
    """The writing of one part.

    run_id: claims the part, see `journal.is_claimed`.
    shards: of the part. finished: rows of those that are written, by number.
    """

    work_dir: str
    plan: Plan
    part_dir: str
    run_id: str
    shards: list[Shard]
    finished: dict[int, ShardRow]

    def list_missing(self) -> list[Shard]:
        return [shard for shard in self.shards if shard.number not in self.finished]


class ByteBudget:
    """The bytes that a part has left, besides finished shards and reservations.

    Tasks are listed in another thread than the one that takes their results.
    """

    def __init__(self, run: PartRun) -> None:
        bytes_finished = sum(row.bytes for row in run.finished.values())
        self.lock = threading.Lock()
        self.left = run.plan.shard_limit_bytes - bytes_finished
        # Not reserved yet.
        self.unreserved_high = sum(shard.bytes_high for shard in run.list_missing())

    def reserve(self, shard: Shard) -> tuple[int, str]:
        """Return (bytes that the shard may have, ""), or (0, why it does not fit).

        The shard may have the upper bound of its forecast, and half of the bytes that
        no shard is forecast to need; the rest is for later shards.
        """
        high = shard.bytes_high
        with self.lock:
            spare = max(0, self.left - self.unreserved_high)
            self.unreserved_high -= high
            if high > self.left:
                return 0, (
                    f"part {shard.part} would pass its limit: {self.left:,} bytes are "
                    f"left for shards, and shard {shard.number} may take {high:,}. "
                    f"{PLAN_SMALLER_PARTS}"
                )
            limit_bytes = high + spare // 2
            self.left -= limit_bytes
        return limit_bytes, ""

    def release(self, outcome: ShardOutcome) -> None:
        """Replace a shard's reservation by the bytes that it has."""
        written = outcome.row.bytes if outcome.row else 0
        with self.lock:
            self.left += outcome.limit_bytes - written


def account_parts(plan: Plan, shards: pd.DataFrame, work_dir: str) -> dict[str, int]:
    """Return the number of images by outcome, and write them to accounting.csv.

    shards: of `write_parts`; the plan's other shards count as "in other parts".
    "unreadable when written" are images that 04 could not write, "rejected" those that
    01 cannot use.
    Raises: RuntimeError: images in are not images written, dropped or rejected.
    """
    counts = dict(plan.outcomes)
    is_test = shards["split"] == "test"
    records = {"labelled records": shards[~is_test], "test records": shards[is_test]}
    for name, rows in records.items():
        if name in counts:
            counts[name] = int(rows["count"].sum())
    n_unreadable = int(shards["refused"].sum())
    if n_unreadable:
        counts["unreadable when written"] = n_unreadable
    parts = set(shards["part"])
    elsewhere = sum(shard.count for shard in plan.shards if shard.part not in parts)
    if elsewhere:
        counts["in other parts"] = elsewhere

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
    overwrite: remove what another plan wrote, also parts that this plan lacks, but not
        the earlier parts that this plan continues.
    license_name: Kaggle's name of a license, for dataset-metadata.json.
    publish_hashes: whether each part gets hashes.parquet.
    Raises: ValueError: no such part, it was written from another plan, or a name is
        outside it. OSError: a full disk, a missing input, or the part would pass its
        limit; the same call resumes. SystemExit: a Kaggle batch session nears its end.
    """
    plan = read_plan(work_dir)
    _check_plan(plan, part)
    parts_dir = out_dir or work_dir
    numbers = [part] if part else plan.part_numbers
    if has_folds(plan, numbers[0]):
        _check_folds(plan, work_dir)
    part_dirs = {n: storage.join(parts_dir, f"part-{n}") for n in numbers}
    storage.remove_leftovers(work_dir)
    leftovers.remove_other_parts(work_dir, parts_dir, part_dirs, overwrite=overwrite)

    runs = _open_parts(work_dir, plan, part_dirs, overwrite=overwrite)
    written = list[ShardRow]()
    try:
        for run in runs:
            rows = _write_missing(run)
            sidecars.close_part(
                work_dir,
                run.part_dir,
                plan,
                rows,
                license_name,
                publish_hashes=publish_hashes,
            )
            written += rows
    finally:
        _release_claims(runs)
    shards = pd.DataFrame(written, columns=journal.COLUMNS)
    _note_records(plan, shards, len(list_own_parts(parts_dir, work_dir)))
    _note_license({read_license(part_dir) for part_dir in part_dirs.values()})
    return shards


def _note_records(plan: Plan, shards: pd.DataFrame, n_parts: int) -> None:
    """Note the written records, missing parts, and images that could not be read.

    n_parts: of the plan that are written, by this run or before.
    """
    n_planned = sum(shard.count for shard in plan.shards)
    n_records = shards["count"].sum()
    n_tests = shards["count"][shards["split"] == "test"].sum()
    parts = count_of(shards["part"].nunique(), "part")
    kinds = ""
    if n_tests:
        kinds = f" ({n_records - n_tests:,} labelled records, {n_tests:,} test records)"
    notebook.note(
        "✓",
        f"Wrote {n_records:,} records{kinds} of {n_planned:,} planned images: "
        f"{count_of(len(shards), 'shard')}, {format_bytes(shards['bytes'].sum())}, "
        f"{parts}.",
        "parts",
    )
    if n_parts < plan.n_parts:
        notebook.note(
            "!",
            f"Parts written so far: {n_parts} of {plan.n_parts}.",
            "parts: missing",
            "Run 04_write with every other PART, or with PART = 0 for all.",
        )

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


def _note_license(licenses: set[str]) -> None:
    """Note whether Kaggle knows the licenses of the parts. "" is a missing one."""
    unknown = licenses.difference(PARAMETERS["LICENSE"].choices)
    if unknown:
        notebook.note(
            "✗",
            f"Kaggle has no license '{min(unknown)}'.",
            "license",
            "Set LICENSE and run 04_write again, which keeps finished shards.",
        )
    elif "" in licenses:
        notebook.note(
            "·",
            "LICENSE is empty.",
            "license",
            "To publish, set LICENSE and run 04_write again, which keeps finished "
            "shards.",
        )
    else:
        notebook.note("✓", f"License: {', '.join(sorted(licenses))}.", "license")


def _check_plan(plan: Plan, part: int) -> None:
    """Raise a ValueError for an unknown part or bad names; warn of other versions."""
    if part != 0 and part not in plan.part_numbers:
        raise ValueError(
            f"PART is {part}, but the plan has {name_parts(plan.part_numbers)}. Set "
            "PART to a number of the plan, or to 0 for all."
        )
    check_names(plan)

    versions = parallel.package_versions()
    changed = [
        f"{package} {version} ({versions.get(package)} here)"
        for package, version in plan.versions.items()
        if version != versions.get(package)
    ]
    if changed:
        warnings.warn(
            f"planned with {', '.join(changed)}: parts written with different versions "
            "can differ in their bytes, but not in their images.",
            stacklevel=4,
        )


def _check_folds(plan: Plan, work_dir: str) -> None:
    """Raise a ValueError unless folds.csv, for the first part, is the plan's."""
    path = storage.join(work_dir, FOLDS_FILE)
    changed = find_changed_files(work_dir, {FOLDS_FILE: plan.folds_sha256})
    if changed:
        raise ValueError(
            f"'{path}' is not that of plan.json: {changed[FOLDS_FILE]}. Run 03_plan."
        )


def _open_parts(
    work_dir: str, plan: Plan, part_dirs: Mapping[int, str], *, overwrite: bool
) -> list[PartRun]:
    """Claim the parts, and find their finished shards.

    Shards that the plan lacks, or that have changed, are removed.
    """
    run_id = uuid.uuid4().hex
    runs = []
    for number, part_dir in part_dirs.items():
        rows = journal.open_part(part_dir, plan, run_id, overwrite=overwrite)
        finished = _check_shards(part_dir, rows)
        shards = [shard for shard in plan.shards if shard.part == number]
        runs.append(PartRun(work_dir, plan, part_dir, run_id, shards, finished))
    return runs


def _check_shards(part_dir: str, rows: Iterable[ShardRow]) -> dict[int, ShardRow]:
    """Return the rows of the shards that are as they were written, by number."""
    label = f"Checking finished shards of {part_dir}"
    checked = parallel.run(partial(_check_shard, part_dir), rows, label=label)
    return {row.number: row for row in checked if row}


def _check_shard(part_dir: str, row: ShardRow) -> ShardRow | None:
    """Return the row if its file is as it was written; else remove the file."""
    # An error of the disk is raised: it is no reason to remove a file.
    if find_changed_files(part_dir, {row.file: row.sha256}):
        storage.remove(storage.join(part_dir, row.file))
        return None
    return row


def _write_missing(run: PartRun) -> list[ShardRow]:
    """Write the shards that are not finished, and return the rows of all.

    Raises: OSError, SystemExit: see `write_parts`.
    """
    budget = ByteBudget(run)
    problems = list[str]()
    for outcome in _run_tasks(run, budget, problems):
        budget.release(outcome)
        if outcome.row:
            run.finished[outcome.shard.number] = outcome.row
        else:
            problems.append(outcome.problem)
    if problems:
        _stop(run, problems[0])
    return [run.finished[shard.number] for shard in run.shards]


def _run_tasks(
    run: PartRun, budget: ByteBudget, problems: list[str]
) -> Iterable[ShardOutcome]:
    """Return the outcomes of the missing shards; see `_list_tasks`."""
    missing = run.list_missing()
    if not missing:
        return []
    return parallel.run(
        write_shard,
        _list_tasks(run, missing, budget, problems),
        label="Writing images",
        total=sum(shard.count for shard in missing),
        advance=lambda outcome: outcome.shard.count if outcome.row else 0,
    )


def _stop(run: PartRun, problem: str) -> None:
    """End a run that could not write all shards."""
    text = (
        f"Stopped after {len(run.finished)} of {len(run.shards)} shards of "
        f"'{run.part_dir}', which are whole and stay"
    )
    if problem != TIME_OVER:
        raise OSError(f"{text}: {problem} {storage.RESUME_HINT}")
    print(
        f"{text}.\nThe session's {session.session_hours()} hours are nearly over. Push "
        "the kernel again with its own output as a source (`python -m kaggle_tfr push` "
        "does): it resumes."
    )
    raise SystemExit(0)


def _list_tasks(
    run: PartRun, missing: Iterable[Shard], budget: ByteBudget, problems: list[str]
) -> Iterator[ShardTask]:
    """Yield the missing shards as tasks until a problem is known.

    problems: of finished tasks; a problem that is found before a task is added.
    """
    plan = run.plan.for_worker()
    for shard, rows in read_rows(run.work_dir, missing):
        limit_bytes, problem = budget.reserve(shard)
        if session.hours_left() <= 0:
            problem = TIME_OVER
        if problem:
            problems.append(problem)
        if problems:
            return
        yield ShardTask(plan, shard, rows, run.part_dir, limit_bytes, run.run_id)


def _release_claims(runs: Iterable[PartRun]) -> None:
    """End the claims of these runs, so that their workers stop.

    They cannot be stopped from outside. They check the claim every few seconds, and
    before a shard gets its name.
    """
    for run in runs:
        if journal.is_claimed(run.part_dir, run.run_id):
            storage.remove(f"{run.part_dir}/{journal.RUN}")
