"""Read FOLDS_FROM: the records of earlier parts, or the folds of a CSV."""

import io
from collections.abc import Sequence
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.earlier import GONE, RECORDS, load_earlier
from kaggle_tfr.find import find_file, find_input
from kaggle_tfr.fingerprints import (
    FINGERPRINTS_FILE,
    read_fingerprints,
    select_fingerprints,
)
from kaggle_tfr.shards import check_one_dataset, list_parts, read_plan_id
from kaggle_tfr.storage import exists, join

PLAN_TABLE = "plan.parquet"


def read_records(
    folds_from: str | Sequence[str], work_dir: str
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the newest plan.json of FOLDS_FROM, and one row per record.

    folds_from: an earlier work folder, a CSV such as folds.csv, or all parts of a
        dataset, as folders or slugs, or the folder that contains them; "" for none.
    work_dir: WORK_DIR, which must be another folder.
    Columns of the records: those of `read_fingerprints`; folder, of the part; and path,
        for a record without an image. Those of a CSV, which has no plan, are image_id,
        split, fold, part (-1) and digest ("").
    Raises: FileNotFoundError, ValueError.
    """
    names = [folds_from] if isinstance(folds_from, str) else folds_from
    if not any(names):
        return {}, pd.DataFrame()
    if names[0].lower().endswith(".csv"):
        return {}, _read_csv(names[0])
    folders = [folder for name in names for folder in _list_folders(name, work_dir)]
    check_one_dataset(folders, advice="Name the parts of one dataset in FOLDS_FROM.")
    newest = max(folders, key=lambda folder: read_plan_id(folder).first_part)
    tables = [table for folder in folders for table in _read_folder(folder)]
    records = pd.concat(tables, ignore_index=True)
    place = GONE + "part-" + records["part"].astype(str) + "/" + records["split"]
    records["path"] = place + "/" + records["image_id"]

    parts = sorted(records["part"].unique())
    n_parts = read_plan_id(newest).part_numbers.stop - 1
    if parts != list(range(1, n_parts + 1)) or not records["path"].is_unique:
        raise ValueError(
            f"FOLDS_FROM has records of the parts {', '.join(map(str, parts))}, but "
            f"needs those of parts 1 to {n_parts}, each once. Otherwise copies could "
            "be in two folds. Name each part, or the folder around them."
        )
    return _read_plan(newest), records


def _read_csv(name: str) -> pd.DataFrame:
    """Return the folds in a CSV, whose images have no records."""
    text = io.BytesIO(storage.read_bytes(find_file(name)))
    rows = pd.read_csv(text, dtype={"image_id": str}, keep_default_na=False)
    if not {"image_id", "fold"}.issubset(rows):
        raise ValueError(
            f"FOLDS_FROM '{name}' needs the columns image_id and fold, but has "
            f"{', '.join(map(str, rows))}."
        )
    if "keep" in rows:
        rows = rows[rows["keep"].astype(bool)]
    folds = {
        "image_id": rows["image_id"],
        "split": rows.get("split", "train"),
        "fold": rows["fold"],
        "part": -1,
        "digest": "",
    }
    table = pd.DataFrame(folds).drop_duplicates(["image_id", "split"])
    return table.reset_index(drop=True)


def _list_folders(name: str, work_dir: str) -> list[str]:
    """Return the folder of a plan or a part, or of each part in it."""
    # Of a slug, only these two files are downloaded.
    folder = find_input(name, names=[FINGERPRINTS_FILE, "plan.json"])
    if storage.real_path(folder) == storage.real_path(work_dir):
        raise ValueError(
            f"FOLDS_FROM is the WORK_DIR '{work_dir}' itself, whose files this run "
            "replaces. Set another WORK_DIR or NAME for the grown dataset."
        )
    if any(exists(join(folder, file)) for file in (PLAN_TABLE, FINGERPRINTS_FILE)):
        return [folder]
    # Parts that this growth has written, and those that continue it, are planned again.
    growth = read_plan_id(work_dir)
    parts = []
    for part in list_parts(folder, FINGERPRINTS_FILE):
        plan = read_plan_id(part)
        is_earlier = plan.first_part < growth.first_part or growth.first_part == 1
        if is_earlier or plan.dataset_id != growth.dataset_id:
            parts.append(part)
    if not parts:
        raise FileNotFoundError(
            f"FOLDS_FROM: '{folder}' contains neither {PLAN_TABLE} nor "
            f"{FINGERPRINTS_FILE}, in it or in folders part-*. Parts have this file if "
            "04_write wrote them with PUBLISH_HASHES = True."
        )
    return parts


def _read_folder(folder: str) -> list[pd.DataFrame]:
    """Return the records of a part, or those of a plan and of what it continues."""
    if not exists(join(folder, PLAN_TABLE)):
        return [read_fingerprints(folder).assign(folder=folder)]
    table = storage.read_parquet(join(folder, PLAN_TABLE))
    for part in list_parts(folder, "rejects.csv"):
        rejects = pd.read_csv(io.BytesIO(storage.read_bytes(join(part, "rejects.csv"))))
        table = table[~table["path"].isin(rejects["path"])]
    settings = _read_plan(folder)["settings"]
    planned = select_fingerprints(table, settings["group_column"])
    planned["folder"] = f"{folder}/part-" + planned["part"].astype(str)
    is_growth = load_earlier(folder)
    before = [storage.read_parquet(join(folder, RECORDS))] if is_growth else []
    return [*before, planned]


def _read_plan(folder: str) -> dict[str, Any]:
    """Return the content of plan.json."""
    path = join(folder, "plan.json")
    return storage.parse_json(storage.read_text(path), path, "Copy it again.")
