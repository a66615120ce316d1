"""Parts on the disk or in a bucket: written shard by shard, resumable, never over their limit."""

import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pandas as pd

from kaggle_tfr import notebook, parallel, storage
from kaggle_tfr.plan.plan import Plan, format_bytes, number_shards, read_plan, read_rows
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.shard import ByteBudget, ShardTask, stopped_runs, write_shard

TIME_OVER = "the session's time is over"


def account_parts(plan: Plan, shards: pd.DataFrame, work_dir: str) -> pd.DataFrame:
    """The table that a run ends with, also written to accounting.csv.

    shards: of `write_parts`; the plan's others are "in other parts".
    Raises: RuntimeError: images in are not images written, dropped or refused.
    """
    counts, parts = dict(plan.outcomes), set(shards["part"])
    elsewhere = sum(shard.count for shard in plan.shards if shard.part not in parts)
    is_test = shards["split"] == "test"
    for written, refused, own in (
        ("written", "refused", shards[~is_test]),
        ("test images", "test images refused", shards[is_test]),
    ):
        if written in counts:
            counts[written] = int(own["count"].sum())
            counts[refused] = counts.get(refused, 0) + int(own["refused"].sum())
    counts |= {"in other parts": elsewhere} if elsewhere else {}
    table = notebook.account(counts, sum(plan.outcomes.values()))
    text = table.to_csv(lineterminator="\n", float_format="%.4f")
    storage.write_atomically(storage.join(work_dir, "accounting.csv"), text.encode())
    return table


def compare_parts(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """Bytes of each written part, its forecast's interval and its limit, for `plot_limits`."""
    rows = {}
    for part, table in shards.groupby("part"):
        size, count = table["bytes"].sum(), table["count"].sum()
        low, high = plan.forecast["low"] * count, plan.forecast["high"] * count
        text = f"{format_bytes(size)}, forecast {format_bytes(low)} to {format_bytes(high)}"
        limits = {"value": size, "low": low, "high": high, "limit": plan.settings.limit_bytes}
        rows[f"part {part}"] = limits | {"text": text}
    return pd.DataFrame.from_dict(rows, orient="index")


@storage.naming("OUT_DIR", storage.MENDS_OF_OUTPUT)
def write_parts(
    work_dir: str,
    out_dir: str = "",
    part: int = 0,
    *,
    overwrite: bool = False,
    metadata_for: Sequence[str] = (),
    license_name: str = "",
) -> pd.DataFrame:
    """The shards of the parts, one row a file, after all of them are written and named.

    part: from 1; 0 writes all. What an earlier run finished is checked and kept.
    metadata_for: ["tfds"] gives the files TFDS's names, with its description files.
    license_name: Kaggle's, for the parts' dataset-metadata.json, those of finished parts as well.
    Raises: ValueError: no such part, it was written after another plan, or a name leads out of it.
        OSError: a full disk, an input gone, or the part would pass its limit; the same call goes
        on from there. SystemExit: a Kaggle batch session nears its end, and its output is kept.
    """
    plan = _check_plan(read_plan(work_dir), part, metadata_for)
    numbers = [part] if part else range(1, plan.n_parts + 1)
    folders = {number: storage.join(out_dir or work_dir, f"part-{number}") for number in numbers}
    done, run_id = dict[int, journal.Row](), uuid.uuid4().hex
    for number, folder in folders.items():
        rows = journal.open_part(folder, plan, run_id, overwrite=overwrite)
        label, check = f"Checking finished shards of part {number}", partial(_check_shard, folder)
        done |= {row["number"]: row for row in parallel.run(check, rows, label=label) if row}
    problem = _write_missing(work_dir, plan, folders, done, run_id)
    for number, folder in folders.items():
        shards = [shard.number for shard in plan.shards if shard.part == number]
        if done.keys() >= set(shards):
            own = {shard: done[shard] for shard in shards}
            tfds = "tfds" in metadata_for
            sidecars.close_part(work_dir, folder, plan, own, tfds=tfds, license_name=license_name)
    if problem:
        wanted = sum(shard.part in folders for shard in plan.shards)
        _stop(problem, f"Stopped after {len(done)} of {wanted} shards, which are whole and stay")
    return pd.DataFrame([done[number] for number in sorted(done)], columns=journal.COLUMNS)


def _check_plan(plan: Plan, part: int, metadata_for: Sequence[str]) -> Plan:
    """The plan, its shards named as TFDS wants them where that is asked for."""
    if unknown := set(metadata_for) - {"tfds"}:
        raise ValueError(f"METADATA has {sorted(unknown)}; it can hold 'tfds' only.")
    if metadata_for and plan.settings.compression:
        what = f'METADATA is ["tfds"]; TFDS reads no COMPRESSION = "{plan.settings.compression}".'
        raise ValueError(f'{what} Plan with COMPRESSION = "", or set METADATA = [].')
    if not 0 <= part <= plan.n_parts:
        raise ValueError(f"PART is {part}, but the plan has {plan.n_parts} parts. Use 1 to that.")
    if metadata_for:
        if not find_spec("tensorflow_datasets"):
            mend = 'Run: pip install "kaggle-tfr[tfds]", or set METADATA = [].'
            raise ImportError(f'METADATA = ["tfds"] needs tensorflow-datasets. {mend}')
        shards = number_shards(plan.shards, sidecars.TFDS_NAME)
        settings = replace(plan.settings, shard_name=sidecars.TFDS_NAME)
        fingerprint = f"{plan.fingerprint}-tfds"
        plan = replace(plan, settings=settings, shards=shards, fingerprint=fingerprint)
    for name in map(plan.file_name, plan.shards):
        storage.check_inside(name, f"NAME and SHARD_NAME: the file name '{name}'", "of the part")
    here = parallel.package_versions()
    other = [f"{k} {v} ({here.get(k)} here)" for k, v in plan.versions.items() if v != here.get(k)]
    if other:
        text = "parts written with different versions can differ in their bytes, not in what they"
        warnings.warn(f"planned with {', '.join(other)}: {text} show.", stacklevel=3)
    return plan


def _check_shard(folder: str, row: journal.Row) -> journal.Row | None:
    """The row when its shard has the row's size and sha256; a damaged file is removed."""
    path = storage.join(folder, row["file"])
    with suppress(FileNotFoundError):  # a disk that does not answer is no damage: it raises
        whole = storage.size_and_time(path)[0] == row["bytes"]
        if whole and storage.sha256_of(path) == row["sha256"]:
            return row
    storage.remove(path)
    return None


def _stop(problem: str, text: str) -> None:
    if problem != TIME_OVER:
        raise OSError(
            f"{text}: {problem}. Make room, mend the input or plan smaller parts (PART_LIMIT_GB, "
            "IMAGE_SIZE, QUALITY in 03_plan); then run 04_write again: it goes on from here."
        )
    print(
        f"{text}.\nThe session's {notebook.session_hours()} hours are nearly over. Push the kernel "
        "again with its own output as a source (`python -m kaggle_tfr push` does): it goes on."
    )
    raise SystemExit(0)


def _write_missing(
    work_dir: str, plan: Plan, folders: Mapping[int, str], done: dict[int, journal.Row], run_id: str
) -> str:
    """Writes the shards that are not `done`, adds their rows to it; returns why it stopped."""
    missing = [s for s in plan.shards if s.part in folders and s.number not in done]
    if not missing:
        return ""
    budget = ByteBudget(plan, missing, done.values())
    problems: list[str] = []

    def list_tasks() -> Iterator[ShardTask]:
        slim = plan.for_worker()
        for shard, rows in read_rows(work_dir, missing):
            allowance, problem = budget.reserve(shard)
            problem = TIME_OVER if notebook.hours_left() <= 0 else problem
            if problem:
                problems.append(problem)
            if problems:
                return
            yield ShardTask(slim, shard, rows, folders[shard.part], allowance, run_id)

    try:
        total = sum(shard.count for shard in missing)
        shown: journal.Row = {"label": "Writing images", "total": total}
        shown["advance"] = lambda outcome: outcome.shard.count if outcome.row else 0
        for outcome in parallel.run(write_shard, list_tasks(), **shown):
            budget.release(outcome)
            if outcome.problem:
                problems.append(outcome.problem)
            else:
                done[outcome.shard.number] = outcome.row
    finally:
        # Workers cannot be ended from outside: threads look here, other processes at the claim.
        stopped_runs.add(run_id)
        for folder in folders.values():
            if journal.is_claimed(folder, run_id):
                storage.remove(storage.join(folder, journal.RUN))
    return problems[0] if problems else ""
