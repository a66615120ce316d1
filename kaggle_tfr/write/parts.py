"""Parts on the disk or in a bucket: written shard by shard, resumable, never over their limit."""

import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from kaggle_tfr import notebook, parallel, storage
from kaggle_tfr.plan.plan import Plan, format_bytes, number_shards, read_plan, read_rows
from kaggle_tfr.write import journal, sidecars
from kaggle_tfr.write.journal import Row
from kaggle_tfr.write.shard import ByteBudget, ShardTask, stopped_runs, write_shard

TIME_OVER = "the session's time is over"


def account_parts(
    planned: Mapping[str, int], shards: pd.DataFrame, n_planned: int, work_dir: str
) -> pd.DataFrame:
    """The table that a run ends with, also written to accounting.csv.

    planned: `Plan.outcomes`. n_planned: images of the plan that belong to these shards.
    Raises: RuntimeError: images in are not images written, dropped or refused.
    """
    elsewhere = planned["written"] - int(n_planned)
    counts = {**planned, "written": int(shards["count"].sum())}
    counts["refused"] += int(shards["refused"].sum())
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
    Raises: ValueError: no such part, it was written after another plan, or a name leads out of it.
        OSError: the disk is full, an input is gone, or the part would pass its limit; what is
        finished stays, and the same call goes on from there. SystemExit: a Kaggle batch session
        nears its end; Kaggle keeps the output of a notebook that ends without an error.
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
        label, check = f"Checking finished shards of part {number}", partial(_check_shard, folder)
        done |= {row["number"]: row for row in parallel.run(check, rows, label=label) if row}
    problem = _write_missing(work_dir, plan, folders, done, run_id)
    for number, folder in folders.items():
        shards = [shard.number for shard in plan.shards if shard.part == number]
        if done.keys() >= set(shards):
            own = {shard: done[shard] for shard in shards}
            _close_part(work_dir, folder, plan, number, own, tfds="tfds" in metadata_for)
    if problem:
        wanted = sum(shard.part in folders for shard in plan.shards)
        _stop(problem, f"Stopped after {len(done)} of {wanted} shards, which are whole and stay")
    return journal.to_table(done.values())


def _check_shard(folder: str, row: Row) -> Row | None:
    """The row when its shard has the row's size and sha256; a damaged file is removed."""
    path = storage.join(folder, row["file"])
    whole = storage.exists(path) and storage.size_and_time(path)[0] == row["bytes"]
    if whole and storage.sha256_of(path) == row["sha256"]:
        return row
    storage.remove(path)
    return None


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
    budgets = {part: ByteBudget(plan, part, missing, done.values()) for part in folders}
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
        for outcome in parallel.run(
            write_shard,
            list_tasks(),
            label="Writing images",
            total=sum(shard.count for shard in missing),
            advance=lambda outcome: outcome.shard.count if outcome.row else 0,
        ):
            budgets[outcome.shard.part].release(outcome)
            if outcome.problem:
                problems.append(outcome.problem)
            else:
                done[outcome.shard.number] = outcome.row
    finally:
        # Workers cannot be ended from outside: after an interrupt threads look here, and other
        # processes at the claim.
        stopped_runs.add(run_id)
        for folder in folders.values():
            if journal.is_claimed(folder, run_id):
                storage.remove(storage.join(folder, journal.RUN))
    return problems[0] if problems else ""


def _close_part(
    work_dir: str, folder: str, plan: Plan, part: int, rows: Mapping[int, Row], *, tfds: bool
) -> None:
    """Writes what lies beside the shards, shards.csv last, now that all shards are there."""
    if not journal.is_closed(folder):
        shards = journal.to_table(rows.values())
        with tempfile.TemporaryDirectory(dir=storage.scratch_folder(folder)) as scratch:
            tables = sidecars.write_image_tables(work_dir, plan, part, rows, scratch)
            for name, path in tables.items():
                storage.publish_file(path, storage.join(folder, name))
        if tfds:
            sidecars.write_tfds(folder, plan, part, shards)
        texts = sidecars.list_texts(plan, part, rows, shards)
        texts["shards.csv"] = shards.to_csv(index=False, lineterminator="\n")
        for name, text in texts.items():
            if text:
                storage.write_atomically(storage.join(folder, name), text.encode())
            else:
                storage.remove(storage.join(folder, name))
    journal.remove_journal(folder)


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
    settings = replace(plan.settings, shard_name=sidecars.TFDS_NAME)
    shards, fingerprint = (
        number_shards(plan.shards, settings.shard_name),
        f"{plan.fingerprint}-tfds",
    )
    return replace(plan, settings=settings, shards=shards, fingerprint=fingerprint)


def _compare_versions(plan: Plan) -> None:
    here = parallel.package_versions()
    other = [f"{k} {v} ({here.get(k)} here)" for k, v in plan.versions.items() if v != here.get(k)]
    if other:
        warnings.warn(
            f"planned with {', '.join(other)}: parts that are written with different versions can "
            "differ in their bytes, though not in what they show.",
            stacklevel=3,
        )
