"""Parts on the disk or in a bucket: written shard by shard, resumable, never over their limit."""

import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.notebook import account
from kaggle_tfr.parallel import package_versions
from kaggle_tfr.plan.plan import Plan, Shard, format_bytes, number_shards, read_plan, read_rows
from kaggle_tfr.storage import publish_file, sha256_of
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.shard import ByteBudget, ShardTask, stopped_runs, write_shard
from kaggle_tfr.write.sidecars import TFDS_NAME, load_tfds, write_tfds


def check_shard(row: Mapping, part_dir: str) -> bool:
    """Whether a row's shard is there with the row's size and sha256."""
    path = storage.join(part_dir, row["file"])
    if not storage.exists(path) or storage.size(path) != row["bytes"]:
        return False
    return sha256_of(path) == row["sha256"]


def account_parts(planned: Mapping[str, int], shards: pd.DataFrame, n_planned: int, work_dir: str):
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
    table = account(counts, sum(planned.values()))
    text = table.to_csv(lineterminator="\n", float_format="%.4f")
    storage.write_atomically(storage.join(work_dir, "accounting.csv"), text.encode())
    return table


def compare_with_plan(plan: Plan, shards: pd.DataFrame) -> pd.DataFrame:
    """The written shards with the bytes that were forecast for them at most (bytes_high)."""
    planned = pd.DataFrame(
        [(s.part, s.split, s.fold, s.index, s.bytes_high) for s in plan.shards],
        columns=["part", "split", "fold", "shard", "bytes_high"],
    )
    return shards.merge(planned, on=["part", "split", "fold", "shard"], how="left")


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
    owner: str = "",
    stop_after_hours: float = 0,
) -> pd.DataFrame:
    """The shards of the parts, one row a file, after all of them are written and named.

    part: which one, from 1; 0 writes all. What an earlier run finished is checked and kept.
    metadata_for: ["tfds"] gives the files TFDS's names, with its two description files.
    stop_after_hours: begin no shard after so long (0: no end), and stop resumably.

    Raises:
        ValueError: no such part, or the part was written after another plan.
        OSError: the disk is full, an input is gone, or the part would pass its limit; what is
            finished stays, and the same call goes on from there.
    """
    plan = _with_names(read_plan(work_dir), metadata_for)
    if not 0 <= part <= plan.n_parts:
        raise ValueError(f"PART is {part}, but the plan has {plan.n_parts} parts. Use 1 to that.")
    _compare_versions(plan)
    folders = {
        number: storage.join(out_dir or work_dir, f"part-{number}")
        for number in ([part] if part else range(1, plan.n_parts + 1))
    }
    done, run_id = {}, uuid.uuid4().hex
    for number, folder in folders.items():
        rows = journal.open_part(folder, plan, run_id, overwrite=overwrite)
        done |= _keep_whole(rows, folder, number)
    until = time.monotonic() + stop_after_hours * 3600 if stop_after_hours else float("inf")
    problem = _write_missing(work_dir, plan, folders, done, until=until, run_id=run_id)
    for number, folder in folders.items():
        shards = [shard for shard in plan.shards if shard.part == number]
        if all(shard.number in done for shard in shards):
            rows = {shard.number: done[shard.number] for shard in shards}
            _close_part(work_dir, folder, plan, rows, tfds="tfds" in metadata_for, owner=owner)
    if problem:
        wanted = sum(shard.part in folders for shard in plan.shards)
        raise OSError(
            f"Stopped after {len(done)} of {wanted} shards, which are whole and stay: {problem}. "
            "Make room or mend the input, or plan smaller parts (PART_LIMIT_GB, IMAGE_SIZE, "
            "QUALITY in 03_plan); then run 04_write again, and it goes on from here."
        )
    return journal.to_table(done.values())


def _write_missing(
    work_dir: str, plan: Plan, folders: dict, done: dict, *, until: float, run_id: str
) -> str:
    """Writes the shards that are not `done`, adds their rows to it; returns why it stopped."""
    missing = [s for s in plan.shards if s.part in folders and s.number not in done]
    if not missing:
        return ""
    ledgers, problems = _open_budgets(plan, folders, done, missing), []

    def tasks() -> Iterator[ShardTask]:
        slim = plan.for_worker()
        for shard, rows in read_rows(work_dir, missing):
            if time.monotonic() > until:
                problems.append("the time set by stop_after_hours is over")
            allowance = ledgers[shard.part].reserve(shard)
            if not allowance:
                problems.append(ledgers[shard.part].explain(shard))
            if problems:
                return
            yield ShardTask(slim, shard, rows, folders[shard.part], allowance, run_id)

    outcomes = parallel.run(
        write_shard,
        tasks(),
        label="Writing images",
        total=sum(shard.count for shard in missing),
        advance=lambda outcome: outcome.shard.count if outcome.row else 0,
    )
    try:
        for outcome in outcomes:
            written = outcome.row.get("bytes", 0)
            ledgers[outcome.shard.part].settle(outcome.allowance_bytes, written)
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


def _open_budgets(plan: Plan, folders, done: dict, missing: list[Shard]) -> dict[int, ByteBudget]:
    ledgers = {}
    for number in folders:
        taken = sum(row["bytes"] for row in done.values() if row["part"] == number)
        coming = sum(shard.bytes_high for shard in missing if shard.part == number)
        ledgers[number] = ByteBudget(plan.shard_limit_bytes, taken, coming)
    return ledgers


def _close_part(work_dir, folder, plan: Plan, rows: dict[int, dict], *, tfds, owner) -> None:
    """Writes what lies beside the shards, shards.csv last, now that all shards are there."""
    if journal.is_closed(folder):
        journal.remove_journal(folder)
        return
    table = journal.to_table(rows.values())
    part = int(table.part.iloc[0])
    sidecars.write_labels(folder, plan)
    scratch_dir = None if storage.is_remote(folder) else storage.join(folder, "journal")
    with tempfile.TemporaryDirectory(dir=scratch_dir) as scratch:
        paths = sidecars.write_image_tables(work_dir, plan, part, rows, scratch)
        for name, path in paths.items():
            publish_file(path, storage.join(folder, name))
    sidecars.write_rejects(folder, rows)
    sidecars.write_description(folder, plan, part, table, owner=owner)
    if tfds:
        write_tfds(folder, plan, part, table)
    text = table.to_csv(index=False, lineterminator="\n")
    storage.write_atomically(storage.join(folder, "shards.csv"), text.encode())
    journal.remove_journal(folder)


def _keep_whole(rows: list[dict], folder: str, part: int) -> dict[int, dict]:
    """The rows whose files are as they say, by shard number; damaged files are removed."""
    if not rows:
        return {}
    check = partial(_check, folder=folder)
    whole = {}
    label = f"Checking finished shards of part {part}"
    for row, is_whole in parallel.run(check, rows, label=label):
        if is_whole:
            whole[row["number"]] = row
        else:
            storage.remove(storage.join(folder, row["file"]))
    return whole


def _check(row: dict, *, folder: str) -> tuple[dict, bool]:
    return row, check_shard(row, folder)


def _with_names(plan: Plan, metadata_for: Sequence[str]) -> Plan:
    """The plan, its shards named as TFDS wants them where that is asked for."""
    unknown = set(metadata_for) - {"tfds"}
    if unknown:
        raise ValueError(f"METADATA has {sorted(unknown)}; it can hold 'tfds' only.")
    if not metadata_for:
        return plan
    if plan.settings.compression:
        raise ValueError(
            f'METADATA = ["tfds"], but COMPRESSION is "{plan.settings.compression}", which TFDS cannot '
            'read. Plan with COMPRESSION = "", or set METADATA = [].'
        )
    load_tfds()  # not found out after hours of writing
    name = TFDS_NAME
    return replace(
        plan,
        settings=replace(plan.settings, shard_name=name),
        shards=number_shards(plan.shards, name),
        fingerprint=f"{plan.fingerprint}-tfds",
    )


def _compare_versions(plan: Plan) -> None:
    here = package_versions()
    other = [f"{k} {v} ({here.get(k)} here)" for k, v in plan.versions.items() if v != here.get(k)]
    if other:
        warnings.warn(
            f"planned with {', '.join(other)}: parts that are written with different versions can "
            "differ in their bytes, though not in what they show.",
            stacklevel=3,
        )
