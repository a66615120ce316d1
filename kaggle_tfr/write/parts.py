"""Parts on the disk or in a bucket: written shard by shard, resumable, never over their limit."""

import json
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from kaggle_tfr import notebook, parallel, storage
from kaggle_tfr.plan.plan import Plan, Shard, format_bytes, number_shards, read_plan, read_rows
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.journal import Row
from kaggle_tfr.write.shard import ByteBudget, ShardOutcome, ShardTask, stopped_runs, write_shard

TIME_OVER = "the session's time is over"


def account_parts(
    planned: Mapping[str, int], shards: pd.DataFrame, n_planned: int, work_dir: str
) -> pd.DataFrame:
    """The table that a run ends with, also written to accounting.csv.

    planned: of `count_outcomes`, as plan.json keeps it. shards: columns count and refused.
    n_planned: images of the plan that belong to these shards.

    Raises:
        RuntimeError: images in are not images written, dropped or refused.
    """
    written, late = int(shards["count"].sum()), int(shards["refused"].sum())
    elsewhere = planned["written"] - int(n_planned)
    counts = {**planned, "written": written, "refused": planned["refused"] + late}
    counts |= {"in other parts": elsewhere} if elsewhere else {}
    table = notebook.account(counts, sum(planned.values()))
    text = table.to_csv(lineterminator="\n", float_format="%.4f")
    storage.write_atomically(storage.join(work_dir, "accounting.csv"), text.encode())
    return table


def compare_with_plan(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """The written shards with the bytes that were forecast for them at most (bytes_high)."""
    keys = ["part", "split", "fold", "shard"]
    planned = pd.DataFrame(plan.shards).rename(columns={"index": "shard"})
    return shards.merge(planned[[*keys, "bytes_high"]], on=keys, how="left")


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


def write_parts(
    work_dir: str,
    out_dir: str = "",
    part: int = 0,
    *,
    overwrite: bool = False,
    metadata_for: Sequence[str] = (),
) -> pd.DataFrame:
    """The shards of the parts, one row a file, after all of them are written and named.

    part: which one, from 1; 0 writes all. What an earlier run finished is checked and kept.
    metadata_for: ["tfds"] gives the files TFDS's names, with its two description files.

    Raises:
        ValueError: no such part, the part was written after another plan, or a file name leads out
            of the part.
        OSError: the disk is full, an input is gone, or the part would pass its limit; what is
            finished stays, and the same call goes on from there.
        SystemExit: a Kaggle batch session nears its end. Kaggle keeps the output of a notebook
            that ends without an error, and the next version goes on from there.
    """
    plan = _rename_for(metadata_for, read_plan(work_dir))
    if not 0 <= part <= plan.n_parts:
        raise ValueError(f"PART is {part}, but the plan has {plan.n_parts} parts. Use 1 to that.")
    for shard in plan.shards:
        journal.check_name(plan.file_name(shard), "NAME and SHARD_NAME")
    _compare_versions(plan)
    numbers = [part] if part else range(1, plan.n_parts + 1)
    folders = {number: storage.join(out_dir or work_dir, f"part-{number}") for number in numbers}
    done: dict[int, Row] = {}
    run_id = uuid.uuid4().hex
    for number, folder in folders.items():
        rows = journal.open_part(folder, plan, run_id, overwrite=overwrite)
        done |= _keep_whole(rows, folder, number)
    problem = _write_missing(work_dir, plan, folders, done, run_id)
    for number, folder in folders.items():
        shards = [shard.number for shard in plan.shards if shard.part == number]
        if all(shard in done for shard in shards):
            rows_of_part = {shard: done[shard] for shard in shards}
            _close_part(work_dir, folder, plan, rows_of_part, tfds="tfds" in metadata_for)
    if problem:
        wanted = sum(shard.part in folders for shard in plan.shards)
        _stop(problem, f"Stopped after {len(done)} of {wanted} shards, which are whole and stay")
    return journal.to_table(done.values())


def _stop(problem: str, text: str) -> None:
    if problem != TIME_OVER:
        raise OSError(
            f"{text}: {problem}. "
            "Make room or mend the input, or plan smaller parts (PART_LIMIT_GB, IMAGE_SIZE, "
            "QUALITY in 03_plan); then run 04_write again, and it goes on from here."
        )
    print(
        f"{text}.\nThe session's {notebook.SESSION_HOURS} hours are nearly over, so the notebook "
        "ends here. Push the kernel again with its own output as a source "
        "(`python -m kaggle_tfr push` does): it goes on from the last finished shard."
    )
    raise SystemExit(0)


def _write_missing(
    work_dir: str, plan: Plan, folders: Mapping[int, str], done: dict[int, Row], run_id: str
) -> str:
    """Writes the shards that are not `done`, adds their rows to it; returns why it stopped."""
    missing = [s for s in plan.shards if s.part in folders and s.number not in done]
    if not missing:
        return ""
    budgets = {number: _open_budget(plan, number, missing, done) for number in folders}
    problems: list[str] = []

    def list_tasks() -> Iterator[ShardTask]:
        slim = plan.for_worker()
        for shard, rows in read_rows(work_dir, missing):
            allowance = budgets[shard.part].reserve(shard)
            if notebook.hours_left() <= 0:
                problems.append(TIME_OVER)
            elif not allowance:
                problems.append(budgets[shard.part].explain(shard))
            if problems:
                return
            yield ShardTask(slim, shard, rows, folders[shard.part], allowance, run_id)

    try:
        outcomes = parallel.run(
            write_shard,
            list_tasks(),
            label="Writing images",
            total=sum(shard.count for shard in missing),
            advance=_count_images,
        )
        for outcome in outcomes:
            written = outcome.row.get("bytes", 0)
            budgets[outcome.shard.part].release(outcome.allowance_bytes, written)
            if outcome.problem:
                problems.append(outcome.problem)
            else:
                done[outcome.shard.number] = outcome.row
    finally:
        # Workers cannot be ended from outside: after an interrupt threads look here, and other
        # processes at the claim.
        stopped_runs.add(run_id)
        for folder in folders.values():
            journal.release(folder, run_id)
    return problems[0] if problems else ""


def _open_budget(
    plan: Plan, part: int, missing: Sequence[Shard], done: Mapping[int, Row]
) -> ByteBudget:
    written = sum(row["bytes"] for row in done.values() if row["part"] == part)
    planned = sum(shard.bytes_high for shard in missing if shard.part == part)
    return ByteBudget(plan.shard_limit_bytes, written, planned)


def _count_images(outcome: ShardOutcome) -> int:
    return outcome.shard.count if outcome.row else 0


def _close_part(
    work_dir: str, folder: str, plan: Plan, rows: Mapping[int, Row], *, tfds: bool
) -> None:
    """Writes what lies beside the shards, shards.csv last, now that all shards are there."""
    if journal.is_closed(folder):
        journal.remove_journal(folder)
        return
    table = journal.to_table(rows.values())
    part = int(table["part"].iloc[0])
    sidecars.write_labels(folder, plan)
    scratch_dir = None if storage.is_remote(folder) else storage.join(folder, "journal")
    with tempfile.TemporaryDirectory(dir=scratch_dir) as scratch:
        paths = sidecars.write_image_tables(work_dir, plan, part, rows, scratch)
        for name, path in paths.items():
            storage.publish_file(path, storage.join(folder, name))
    sidecars.write_rejects(folder, rows)
    text = json.dumps(sidecars.describe_dataset(plan, part, table), indent=1) + "\n"
    storage.write_atomically(storage.join(folder, "dataset-metadata.json"), text.encode())
    if tfds:
        sidecars.write_tfds(folder, plan, part, table)
    text = table.to_csv(index=False, lineterminator="\n")
    storage.write_atomically(storage.join(folder, "shards.csv"), text.encode())
    journal.remove_journal(folder)


def _keep_whole(rows: Sequence[Row], folder: str, part: int) -> dict[int, Row]:
    """The rows whose files are as they say, by shard number; damaged files are removed."""
    whole, check = {}, partial(_check_shard, folder=folder)
    for row, is_whole in parallel.run(
        check, rows, label=f"Checking finished shards of part {part}"
    ):
        if is_whole:
            whole[row["number"]] = row
        else:
            storage.remove(storage.join(folder, row["file"]))
    return whole


def _check_shard(row: Row, *, folder: str) -> tuple[Row, bool]:
    """The row, and whether its shard is there with the row's size and sha256."""
    path = storage.join(folder, row["file"])
    whole = storage.exists(path) and storage.size(path) == row["bytes"]
    return row, whole and storage.sha256_of(path) == row["sha256"]


def _rename_for(metadata_for: Sequence[str], plan: Plan) -> Plan:
    """The plan, its shards named as TFDS wants them where that is asked for."""
    unknown = set(metadata_for) - {"tfds"}
    if unknown:
        raise ValueError(f"METADATA has {sorted(unknown)}; it can hold 'tfds' only.")
    if not metadata_for:
        return plan
    if plan.settings.compression:
        raise ValueError(
            f'METADATA = ["tfds"], but COMPRESSION is "{plan.settings.compression}", which TFDS '
            'cannot read. Plan with COMPRESSION = "", or set METADATA = [].'
        )
    sidecars.load_tfds()  # not found out after hours of writing
    return replace(
        plan,
        settings=replace(plan.settings, shard_name=sidecars.TFDS_NAME),
        shards=number_shards(plan.shards, sidecars.TFDS_NAME),
        fingerprint=f"{plan.fingerprint}-tfds",
    )


def _compare_versions(plan: Plan) -> None:
    here = parallel.package_versions()
    other = [f"{k} {v} ({here.get(k)} here)" for k, v in plan.versions.items() if v != here.get(k)]
    if other:
        warnings.warn(
            f"planned with {', '.join(other)}: parts that are written with different versions can "
            "differ in their bytes, though not in what they show.",
            stacklevel=3,
        )
