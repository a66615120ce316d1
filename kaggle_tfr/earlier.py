"""The parts that a growing dataset continues: their records, and their newest plan.

01 reads FOLDS_FROM, and keeps in WORK_DIR what later steps and the next growth need. So
the earlier folds stay the same even if FOLDS_FROM changes after that.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.fingerprints import (
    FINGERPRINTS_FILE,
    read_fingerprints,
    select_fingerprints,
)
from kaggle_tfr.mounts import find_file, find_part_files, output_dir
from kaggle_tfr.naming import TEST_FOLDER
from kaggle_tfr.schema import JsonDataclass
from kaggle_tfr.shards import PlanId, list_parts, parse_plan_id, read_plan_id
from kaggle_tfr.storage import exists, join
from kaggle_tfr.texts import find_texts

# In WORK_DIR, if it continues parts: a row for each of their records; the other facts.
RECORDS = "earlier.parquet"
EARLIER = "earlier.json"
PLANNED_TABLE = "plan.parquet"
# Begins the path of a record whose image is not there, such as
# "earlier:part-3/train/7.jpg". No file has this path.
GONE = "earlier:"


@dataclass(frozen=True)
class Earlier(JsonDataclass):
    """What FOLDS_FROM contains besides the records.

    folders: of the parts on this machine. work_dir: an earlier work folder, or "".
    plan: the newest plan.json; {} for a CSV.
    """

    folders: tuple[str, ...] = ()
    work_dir: str = ""
    plan: dict = field(default_factory=dict)

    @property
    def plan_id(self) -> PlanId:
        """The id of the newest plan, without parts if there is no plan."""
        return parse_plan_id(self.plan) if self.plan else PlanId(n_parts=0)

    @property
    def n_parts(self) -> int:
        """The number of all earlier parts."""
        return self.plan_id.part_numbers.stop - 1


def mark_recorded(images: pd.DataFrame) -> np.ndarray:
    """Return which images have a record in an earlier part: bool (n,)."""
    if "part" not in images:
        return np.zeros(len(images), bool)
    return (images["part"] > 0).to_numpy()


def load_earlier(work_dir: str) -> Earlier:
    """Return what `save_earlier` kept in WORK_DIR, `Earlier()` for nothing."""
    path = join(work_dir, EARLIER)
    text = storage.read_text(path)
    return Earlier.parse(text, path, "Run 01_explore again.") if text else Earlier()


def save_earlier(earlier: Earlier, records: pd.DataFrame, work_dir: str) -> None:
    """Keep the result of `read_records` in WORK_DIR, or remove what an old one left."""
    if earlier.plan:
        storage.write_parquet(records, join(work_dir, RECORDS))
        storage.write_atomically(join(work_dir, EARLIER), earlier.to_json().encode())
    else:
        storage.remove(join(work_dir, EARLIER))
        storage.remove(join(work_dir, RECORDS))


def read_records(
    folds_from: str | Sequence[str], work_dir: str
) -> tuple[Earlier, pd.DataFrame]:
    """Return what FOLDS_FROM contains, and its records.

    folds_from: an earlier work folder, a CSV such as folds.csv, or all parts of a
        dataset, as folders or slugs, or the folder that contains them; "" for none.
    work_dir: WORK_DIR, which must be another folder.
    Columns of the records: those of `read_fingerprints`, and path. Those of a CSV are
        image_id, split, fold, part (-1) and digest ("").
    Raises: FileNotFoundError, ValueError.
    """
    names = [folds_from] if isinstance(folds_from, str) else folds_from
    if not any(names):
        return Earlier(), pd.DataFrame()
    if names[0].lower().endswith(".csv"):
        return Earlier(), _read_csv(names[0])
    tables = []
    plans = {}
    parts = []
    work_folder = ""
    folders = [folder for name in names for folder in _list_folders(name, work_dir)]
    for folder in folders:
        plans[folder] = _read_plan(folder)
        if exists(join(folder, PLANNED_TABLE)):
            tables += _read_planned(folder, plans[folder])
            parts += [*load_earlier(folder).folders, *list_parts(folder)]
            work_folder = folder
        else:
            tables.append(read_fingerprints(folder))
            parts.append(folder)
    earlier = Earlier(tuple(parts), work_folder, _find_newest(plans))
    numbers = sorted(part for table in tables for part in table["part"].unique())
    if numbers != list(range(1, earlier.n_parts + 1)):
        raise ValueError(
            f"FOLDS_FROM has the parts {', '.join(map(str, numbers))}, but needs each "
            f"of the {earlier.n_parts} once, or copies of the missing images could be "
            "in two folds. Name each part, or the folder around them."
        )
    records = pd.concat(tables, ignore_index=True)
    folder = GONE + "part-" + records["part"].astype(str) + "/" + records["split"]
    return earlier, records.assign(path=folder + "/" + records["image_id"])


def _read_csv(name: str) -> pd.DataFrame:
    """Return the folds in a CSV, whose images have no records."""
    path = find_file(name)
    try:
        text = io.BytesIO(storage.read_bytes(path))
        rows = pd.read_csv(text, dtype=str, keep_default_na=False)
        if "keep" in rows:
            rows = rows[rows["keep"].str.lower().isin(["true", "1"])]
        folds = {"image_id": rows["image_id"], "fold": rows["fold"].astype("int64")}
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"FOLDS_FROM '{path}' is not a CSV with an image_id and a fold in each "
            f"row: {error}."
        ) from None
    table = pd.DataFrame(folds).assign(split="train", part=-1, digest="")
    if "split" in rows:
        table["split"] = rows["split"]
    return table.reset_index(drop=True)


def _list_folders(name: str, work_dir: str) -> list[str]:
    """Return the folder of a plan or a part, or of each part in it."""
    # Of a slug, only these two files are downloaded.
    folder = find_part_files(name, [FINGERPRINTS_FILE, "plan.json"])
    if storage.real_path(folder) == storage.real_path(work_dir):
        raise ValueError(
            f"FOLDS_FROM is the WORK_DIR '{work_dir}' itself, whose files this run "
            "replaces. Set another WORK_DIR or NAME for the grown dataset."
        )
    if any(exists(join(folder, file)) for file in (PLANNED_TABLE, FINGERPRINTS_FILE)):
        return [folder]
    parts = list_parts(folder, FINGERPRINTS_FILE)
    growth = read_plan_id(work_dir)
    if growth.first_part > 1:  # a run before has written parts, which are planned again
        plans = map(read_plan_id, parts)
        parts = [
            part
            for part, plan in zip(parts, plans, strict=True)
            if plan.dataset_id != growth.dataset_id
            or plan.first_part < growth.first_part
        ]
    if not parts:
        raise FileNotFoundError(
            f"FOLDS_FROM: '{folder}' contains neither {PLANNED_TABLE} nor "
            f"{FINGERPRINTS_FILE}, in it or in folders part-*. Parts have this file if "
            "04_write wrote them with PUBLISH_HASHES = True."
        )
    return parts


def _read_plan(folder: str) -> dict[str, Any]:
    """Return the content of plan.json."""
    path = join(folder, "plan.json")
    text = storage.read_text(path)
    plan = storage.parse_json(text, path, "Copy or download it again.")
    if not {"fingerprint", "labels", "settings", "schema"}.issubset(plan):
        raise ValueError(f"FOLDS_FROM: '{path}' is not a plan of 03_plan.")
    return plan


def _find_newest(plans: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the newest plan. plans: by their folders.

    Raises: ValueError: two of them are not of one dataset.
    """
    ids = {folder: parse_plan_id(plan) for folder, plan in plans.items()}
    newest = max(ids, key=lambda folder: ids[folder].first_part)
    for folder, plan_id in ids.items():
        problem = ids[newest].find_conflict(plan_id)
        if problem:
            raise ValueError(
                f"FOLDS_FROM: '{folder}' and '{newest}' cannot be continued together: "
                f"{problem}."
            )
    return plans[newest]


def _read_planned(folder: str, plan: Mapping[str, Any]) -> list[pd.DataFrame]:
    """Return the records of a work folder's plan, after those that it continues."""
    path = join(folder, PLANNED_TABLE)
    table = storage.read_parquet(path)
    table = select_fingerprints(table, plan["settings"]["group_column"])
    for part in list_parts(folder, "rejects.csv"):
        text = io.BytesIO(storage.read_bytes(join(part, "rejects.csv")))
        rejects = pd.read_csv(text, dtype=str, keep_default_na=False)
        is_test = rejects["file"].str.startswith(TEST_FOLDER)
        rejects["split"] = np.where(is_test, "test", "train")
        table = table[find_texts(name_images(table), name_images(rejects)) < 0]
    before = join(folder, RECORDS)
    return [storage.read_parquet(before), table] if exists(before) else [table]


def name_images(table: pd.DataFrame, column: str = "image_id") -> pd.Series:
    """Return unique names: a test image may have the id of a labelled one."""
    is_test = table["split"] == "test"
    return is_test.map({True: "test/", False: "others/"}) + table[column]


def choose_folders(tfrec_dirs: Sequence[str], out_dir: str, work_dir: str) -> list[str]:
    """Return the folders to read: TFREC_DIRS, or all parts of a dataset that are here.

    out_dir: OUT_DIR, where 04 writes parts; earlier parts may be elsewhere.
    """
    if tfrec_dirs:
        return list(tfrec_dirs)
    earlier = load_earlier(work_dir)
    parts_dir = output_dir(out_dir or work_dir)
    inside = {storage.real_path(part): part for part in list_parts(parts_dir)}
    # Of a slug, only the fingerprints were downloaded.
    elsewhere = [
        part
        for part in earlier.folders
        if storage.real_path(part) not in inside and exists(join(part, "shards.csv"))
    ]
    starts = [read_plan_id(part).first_part for part in inside.values()]
    n_here = len(elsewhere) + sum(start <= earlier.n_parts for start in starts)
    if n_here < earlier.n_parts:
        print(
            f"WARNING: {earlier.n_parts - n_here} earlier part(s) are not on this "
            "machine and are not read. Set TFREC_DIRS to all parts of the dataset."
        )
    return [*elsewhere, parts_dir]
