"""Write parts on disk or in a bucket, shard by shard; a stopped run resumes."""

import threading
import uuid
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import pandas as pd

from kaggle_tfr import notebook, parallel, session, storage
from kaggle_tfr.plan.plan import Plan, Shard, check_names, read_plan, read_rows
from kaggle_tfr.tables import format_bytes
from kaggle_tfr.write import journal, leftovers, sidecars
from kaggle_tfr.write.journal import ShardRow
from kaggle_tfr.write.shard import (
    PLAN_SMALLER_PARTS,
    ShardOutcome,
    ShardTask,
    write_shard,
)

TIME_OVER = "the session's time is over"


def account_parts(plan: Plan, shards: pd.DataFrame, work_dir: str) -> pd.DataFrame:
    """Return the table that a run ends with, and write it to accounting.csv.

    shards: of `write_parts`; the plan's other shards count as "in other parts".
    Raises: RuntimeError: images in are not images written, dropped or rejected.
    """
    counts = dict(plan.outcomes)
    is_test = shards["split"] == "test"
    for written, rejected, rows in (
        ("written", "rejected", shards[~is_test]),
        ("test images", "test images rejected", shards[is_test]),
    ):
        if written in counts:
            counts[written] = int(rows["count"].sum())
            counts[rejected] = counts.get(rejected, 0) + int(rows["refused"].sum())
    parts = set(shards["part"])
    elsewhere = sum(shard.count for shard in plan.shards if shard.part not in parts)
    if elsewhere:
        counts["in other parts"] = elsewhere

    table = notebook.account(counts, sum(plan.outcomes.values()))
    text = table.to_csv(lineterminator="\n", float_format="%.4f")
    storage.write_atomically(storage.join(work_dir, "accounting.csv"), text.encode())
    return table


def compare_parts(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """Return each part's bytes, forecast interval and limit, for `plot_limits`."""
    rows = {}
    for part, shards_of_part in shards.groupby("part"):
        size = shards_of_part["bytes"].sum()
        count = shards_of_part["count"].sum()
        low = plan.forecast["low"] * count
        high = plan.forecast["high"] * count
        rows[f"part {part}"] = {
            "value": size,
            "low": low,
            "high": high,
            "limit": plan.settings.limit_bytes,
            "text": f"{format_bytes(size)}, forecast {format_bytes(low)} to "
            f"{format_bytes(high)}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


@storage.explain_os_errors("OUT_DIR", storage.OUTPUT_FIXES)
def write_parts(
    work_dir: str,
    out_dir: str = "",
    part: int = 0,
    *,
    overwrite: bool = False,
    license_name: str = "",
) -> pd.DataFrame:
    """Write the parts of a plan and return their shards, one row a file.

    part: from 1; 0 writes all. Finished shards of earlier runs are checked and kept.
    overwrite: remove what another plan wrote, also parts that this plan lacks.
    license_name: Kaggle's name of a license, for dataset-metadata.json.
    Raises: ValueError: no such part, it was written from another plan, or a name is
        outside it. OSError: a full disk, a missing input, or the part would pass its
        limit; the same call resumes. SystemExit: a Kaggle batch session nears its end.
    """
    plan = read_plan(work_dir)
    _check_plan(plan, part)
    parts_dir = out_dir or work_dir
    part_numbers = [part] if part else range(1, plan.n_parts + 1)
    part_dirs = {
        number: storage.join(parts_dir, f"part-{number}") for number in part_numbers
    }
    storage.remove_leftovers(work_dir)
    leftovers.remove_other_parts(
        work_dir, parts_dir, plan, part_dirs, overwrite=overwrite
    )

    run_id = uuid.uuid4().hex
    finished = _open_parts(part_dirs, plan, run_id, overwrite=overwrite)
    planned = [shard for shard in plan.shards if shard.part in part_dirs]
    problem = _write_missing(
        work_dir, plan, planned, part_dirs, finished, run_id=run_id
    )
    for number, part_dir in part_dirs.items():
        shards = [shard.number for shard in planned if shard.part == number]
        if finished.keys() >= set(shards):
            rows = [finished[shard] for shard in shards]
            sidecars.close_part(work_dir, part_dir, plan, rows, license_name)
    if problem:
        _stop(problem, f"Stopped after {len(finished)} of {len(planned)} shards")
    rows = [finished[number] for number in sorted(finished)]
    return pd.DataFrame(rows, columns=journal.COLUMNS)


def _open_parts(
    part_dirs: Mapping[int, str], plan: Plan, run_id: str, *, overwrite: bool
) -> dict[int, ShardRow]:
    """Claim the parts and return the rows of finished shards, by number."""
    finished = dict[int, ShardRow]()
    for number, part_dir in part_dirs.items():
        rows = journal.open_part(part_dir, plan, run_id, overwrite=overwrite)
        label = f"Checking finished shards of part {number}"
        for row in parallel.run(partial(_check_shard, part_dir), rows, label=label):
            if row:
                finished[row.number] = row
    return finished


def _check_plan(plan: Plan, part: int) -> None:
    """Raise a ValueError for an unknown part or bad names; warn of other versions."""
    if not 0 <= part <= plan.n_parts:
        raise ValueError(
            f"PART is {part}, but the plan has {plan.n_parts} parts. Use 1 to that."
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


def _check_shard(part_dir: str, row: ShardRow) -> ShardRow | None:
    """Return the row if its file has the same size and sha256; else remove the file."""
    path = storage.join(part_dir, row.file)
    # Other errors are the disk's, and no reason to remove a file.
    with suppress(FileNotFoundError):
        is_complete = storage.size_and_time(path)[0] == row.bytes
        if is_complete and storage.sha256_of(path) == row.sha256:
            return row
    storage.remove(path)
    return None


def _stop(problem: str, text: str) -> None:
    """End a run that could not write all shards."""
    text = f"{text}, which are whole and stay"
    if problem != TIME_OVER:
        raise OSError(f"{text}: {problem} {storage.RESUME_HINT}")
    print(
        f"{text}.\nThe session's {session.session_hours()} hours are nearly over. Push "
        "the kernel again with its own output as a source (`python -m kaggle_tfr push` "
        "does): it resumes."
    )
    raise SystemExit(0)


def _write_missing(
    work_dir: str,
    plan: Plan,
    planned: Sequence[Shard],
    part_dirs: Mapping[int, str],
    finished: dict[int, ShardRow],
    *,
    run_id: str,
) -> str:
    """Write the planned shards that are not in `finished`, and add them to it.

    Return the problem that stopped the run, "" if none did.
    """
    missing = [shard for shard in planned if shard.number not in finished]
    if not missing:
        return ""
    budget = ByteBudget(plan, missing, finished.values())
    problems = list[str]()

    def list_tasks() -> Iterator[ShardTask]:
        plan_for_worker = plan.for_worker()
        for shard, rows in read_rows(work_dir, missing):
            limit_bytes, problem = budget.reserve(shard)
            if session.hours_left() <= 0:
                problem = TIME_OVER
            if problem:
                problems.append(problem)
            if problems:
                return
            part_dir = part_dirs[shard.part]
            yield ShardTask(plan_for_worker, shard, rows, part_dir, limit_bytes, run_id)

    try:
        for outcome in parallel.run(
            write_shard,
            list_tasks(),
            label="Writing images",
            total=sum(shard.count for shard in missing),
            advance=lambda outcome: outcome.shard.count if outcome.row else 0,
        ):
            budget.release(outcome)
            if outcome.row:
                finished[outcome.shard.number] = outcome.row
            else:
                problems.append(outcome.problem)
    finally:
        _release_claims(part_dirs.values(), run_id)
    return next(iter(problems), "")


def _release_claims(part_dirs: Iterable[str], run_id: str) -> None:
    """End the claims of this run, so that its workers stop.

    They cannot be stopped from outside. They check the claim every few seconds, and
    before a shard gets its name.
    """
    for part_dir in part_dirs:
        if journal.is_claimed(part_dir, run_id):
            storage.remove(storage.join(part_dir, journal.RUN))


class ByteBudget:
    """The bytes that each part has left, besides finished shards and reservations."""

    def __init__(
        self, plan: Plan, missing: Iterable[Shard], finished: Iterable[ShardRow]
    ) -> None:
        self.lock = threading.Lock()
        self.left = defaultdict[int, int](lambda: plan.shard_limit_bytes)  # by part
        self.planned = Counter[int]()  # upper bounds of shards not begun, by part
        for shard in missing:
            self.planned[shard.part] += shard.bytes_high
        for row in finished:
            self.left[row.part] -= row.bytes

    def reserve(self, shard: Shard) -> tuple[int, str]:
        """Return (bytes that the shard may have, ""), or (0, why it no longer fits)."""
        high = shard.bytes_high
        with self.lock:
            left = self.left[shard.part]
            spare = max(0, left - self.planned[shard.part])
            self.planned[shard.part] -= high
            if high > left:
                return 0, (
                    f"part {shard.part} would pass its limit: {left:,} bytes are left "
                    f"for shards, and shard {shard.number} may take {high:,}. "
                    f"{PLAN_SMALLER_PARTS}"
                )
            limit_bytes = high + spare // 2
            self.left[shard.part] -= limit_bytes
        return limit_bytes, ""

    def release(self, outcome: ShardOutcome) -> None:
        """Replace a shard's reservation by the bytes that it has."""
        written = outcome.row.bytes if outcome.row else 0
        with self.lock:
            self.left[outcome.shard.part] += outcome.limit_bytes - written
