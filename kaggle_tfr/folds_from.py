"""Read FOLDS_FROM: an earlier work folder, parts of a dataset, or a CSV of folds."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.earlier import (
    EARLIER_FILE,
    EARLIER_TABLE,
    RUN_AGAIN,
    Earlier,
    as_sources,
    load_earlier,
    load_earlier_images,
)
from kaggle_tfr.fingerprints import (
    FINGERPRINTS_FILE,
    PLANNED_FILE,
    decode_fingerprints,
    read_fingerprints,
)
from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.mounts import find_file, find_part_files
from kaggle_tfr.naming import SPLIT_NAMES, TEST_FOLDER
from kaggle_tfr.schema import Labels, RecordSchema
from kaggle_tfr.shards import PlanId, list_parts, read_plan_id, upgrade_plan
from kaggle_tfr.storage import exists, join

COPY_AGAIN = "Copy or download it again."


@dataclass(frozen=True)
class _Source:
    """The images of one folder of FOLDS_FROM, and the plan that wrote it.

    table: one row per record, with the columns of hashes.parquet.
    plan: the content of plan.json.
    """

    name: str
    table: pd.DataFrame
    plan: Mapping[str, Any]
    folders: tuple[str, ...]


def use_earlier(folds_from: str | Sequence[str], work_dir: str) -> str:
    """Read FOLDS_FROM, keep what it contains in WORK_DIR, and return a sentence.

    folds_from: an earlier work folder, a CSV such as folds.csv, or all parts of a
        dataset as folders or slugs; "" removes what an earlier call kept.
    Raises: FileNotFoundError, ValueError: each names what is missing or wrong.
    """
    names = as_sources(folds_from)
    if not names:
        storage.remove(join(work_dir, EARLIER_FILE))
        storage.remove(join(work_dir, EARLIER_TABLE))
        return "FOLDS_FROM is empty: all folds are new."
    earlier, table = read_earlier(names, work_dir)
    storage.write_parquet(table, join(work_dir, EARLIER_TABLE))
    path = join(work_dir, EARLIER_FILE)
    storage.write_atomically(path, earlier.to_json().encode())
    if not earlier.n_parts:
        return f"FOLDS_FROM contains the folds of {len(table):,} images."
    return (
        f"FOLDS_FROM contains {len(table):,} images in {earlier.n_parts:,} part(s): "
        "they keep their split, fold and label, and are not written again."
    )


def read_earlier(names: Sequence[str], work_dir: str) -> tuple[Earlier, pd.DataFrame]:
    """Return what FOLDS_FROM contains, and the table of its images.

    names: of `as_sources`. work_dir: WORK_DIR, which must be another folder.
    Raises: FileNotFoundError, ValueError.
    """
    if any(name.lower().endswith(".csv") for name in names):
        return _read_csv(names)
    sources = [source for name in names for source in _read_folder(name, work_dir)]
    newest = _find_newest(sources)
    plan = PlanId.from_dict(newest.plan)
    table = pd.concat([source.table for source in sources], ignore_index=True)
    _check_complete(table, plan)
    _check_repeated(table)
    folders = [folder for source in sources for folder in source.folders]
    earlier = Earlier(
        source=tuple(names),
        folders=tuple(dict.fromkeys(folders)),
        plan=plan,
        labels=Labels.from_dict(newest.plan["labels"]),
        settings=newest.plan["settings"],
        schema=newest.plan["schema"],
    )
    return earlier, table


def _read_csv(names: Sequence[str]) -> tuple[Earlier, pd.DataFrame]:
    """Return the folds of a CSV, whose images have no records."""
    if len(names) > 1:
        raise ValueError(
            f"FOLDS_FROM has {len(names)} names, one of them a CSV. A CSV must be the "
            "only one."
        )
    path = find_file(names[0])
    try:
        data = storage.read_bytes(path)
        rows = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"FOLDS_FROM: there is no file '{path}'.") from None
    except ValueError as error:
        raise ValueError(f"FOLDS_FROM '{path}' is not a CSV: {error}.") from None
    return Earlier(source=tuple(names)), _parse_folds(rows, path)


def _parse_folds(rows: pd.DataFrame, path: str) -> pd.DataFrame:
    """Return the table of a CSV's rows that are kept; all its values are text."""
    for name in ("image_id", "fold"):
        if name not in rows:
            raise ValueError(
                f"FOLDS_FROM '{path}' has no column '{name}', only "
                f"{', '.join(map(str, rows))}."
            )
    if "keep" in rows:
        rows = rows[rows["keep"].str.lower().isin(["true", "1"])]
    is_number = rows["fold"].str.fullmatch(r"-1|\d{1,6}").astype(bool)
    split = rows["split"] if "split" in rows else pd.Series("train", rows.index)
    is_valid = is_number & split.isin(list(SPLIT_NAMES)) & (rows["image_id"] != "")
    if not is_valid.all():
        row = rows[~is_valid].iloc[0]
        raise ValueError(
            f"FOLDS_FROM '{path}' has a row for '{row['image_id']}' with the fold "
            f"'{row['fold']}'. Each row needs an image_id, a fold from -1, and a split "
            f"that is one of {', '.join(SPLIT_NAMES)}, or no such column."
        )
    table = pd.DataFrame(
        {
            "image_id": rows["image_id"],
            "split": split,
            "label_name": rows.get("label_name", ""),
            "digest": "",
            "fold": rows["fold"].astype("int64"),
            "part": 0,
            "cluster": -1,
            "texture": np.float32(0),
            **dict.fromkeys(ALL_HASHES, np.uint64(0)),
        }
    )
    _check_repeated(table)
    return table.reset_index(drop=True)


def _read_folder(name: str, work_dir: str) -> list[_Source]:
    """Return the images of a work folder, of a part, or of each part in a folder."""
    # Of a slug, only these two files are downloaded.
    folder = find_part_files(name, [FINGERPRINTS_FILE, "plan.json"])
    check_not_replaced(folder, work_dir)
    if exists(join(folder, PLANNED_FILE)):
        return _read_work_folder(folder)
    parts = [folder]
    if not exists(join(folder, FINGERPRINTS_FILE)):
        parts = list_parts(folder, FINGERPRINTS_FILE)
        written = _find_written(parts, work_dir)
        parts = [part for part in parts if part not in written]
    if not parts:
        raise FileNotFoundError(
            f"FOLDS_FROM: '{folder}' contains neither {PLANNED_FILE}, as a work folder "
            f"does, nor {FINGERPRINTS_FILE}, in it or in folders part-*. Parts have "
            "this file if 04_write wrote them with PUBLISH_HASHES = True."
        )
    return [
        _Source(part, read_fingerprints(part), _read_plan(part), (part,))
        for part in parts
    ]


def _read_work_folder(folder: str) -> list[_Source]:
    """Return the images of a plan, and those of the parts that it continues."""
    path = join(folder, PLANNED_FILE)
    table = decode_fingerprints(storage.read_bytes(path), path)
    table = table[~_mark_rejected(table, folder)]
    before = load_earlier(folder)
    if before.n_parts:
        table = pd.concat([load_earlier_images(folder), table], ignore_index=True)
    folders = (*before.folders, *list_parts(folder))
    return [_Source(folder, table, _read_plan(folder), folders)]


def _find_written(parts: Sequence[str], work_dir: str) -> list[str]:
    """Return those of the parts that the growth in WORK_DIR wrote, or that continue it.

    They are in one folder with the earlier parts if 04 has run before with this
    OUT_DIR. This run plans them again.
    """
    growth = read_plan_id(work_dir)
    plans = {part: read_plan_id(part) for part in parts}
    return [
        part
        for part, plan in plans.items()
        if plan.dataset_id == growth.dataset_id
        and plan.first_part >= growth.first_part > 1
    ]


def check_not_replaced(folder: str, work_dir: str) -> None:
    """Raise a ValueError if an earlier folder is WORK_DIR, whose files are replaced."""
    if folder and storage.real_path(folder) == storage.real_path(work_dir):
        raise ValueError(
            f"FOLDS_FROM is the WORK_DIR '{work_dir}' itself, whose files this run "
            "replaces. Set another WORK_DIR or NAME for the grown dataset, such as "
            f"WORK_DIR = '{work_dir}-2'."
        )


def _mark_rejected(table: pd.DataFrame, folder: str) -> np.ndarray:
    """Return which planned images could not be written to the folder's parts: bool."""
    rejected: set[tuple[str, bool]] = set()
    for part in list_parts(folder, "rejects.csv"):
        data = storage.read_bytes(join(part, "rejects.csv"))
        rejects = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)
        in_test_shard = rejects["file"].str.startswith(TEST_FOLDER)
        rejected |= set(zip(rejects["image_id"], in_test_shard, strict=True))
    if not rejected:
        return np.zeros(len(table), bool)
    is_test = table["split"] == "test"
    keys = zip(table["image_id"], is_test, strict=True)
    return np.array([key in rejected for key in keys], bool)


def _read_plan(folder: str) -> dict[str, Any]:
    """Return the content of plan.json, checked as far as this module needs it."""
    path = join(folder, "plan.json")
    text = storage.read_text(path)
    if not text:
        raise FileNotFoundError(
            f"FOLDS_FROM: there is no '{path}'. Copy or download it, too."
        )
    plan = storage.parse_json(text, path, COPY_AGAIN)
    try:
        Labels.from_dict(plan["labels"])
        RecordSchema.from_dict(plan["schema"])
        plan = upgrade_plan(plan)
        plan_id = PlanId.from_dict(plan)
        has_settings = isinstance(plan["settings"], dict)
        is_plan = has_settings and plan_id.n_parts > 0 and plan_id.fingerprint
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"FOLDS_FROM: '{path}' is not a plan of this version: {error}. {COPY_AGAIN}"
        ) from None
    if not is_plan:
        raise ValueError(
            f"FOLDS_FROM: '{path}' is not a plan of this version. {COPY_AGAIN}"
        )
    return plan


def _find_newest(sources: Sequence[_Source]) -> _Source:
    """Return the source whose plan is the last one.

    Raises: ValueError: two of them continue the same parts, or are of other datasets.
    """
    newest = max(sources, key=lambda source: PlanId.from_dict(source.plan).first_part)
    plan = PlanId.from_dict(newest.plan)
    for source in sources:
        if plan.find_conflict(PlanId.from_dict(source.plan)):
            raise ValueError(
                f"FOLDS_FROM: '{source.name}' and '{newest.name}' are not parts of one "
                "dataset: neither plan continues the other. Name the parts of one "
                "dataset."
            )
    return newest


def _check_complete(table: pd.DataFrame, plan: PlanId) -> None:
    """Raise a ValueError that names a part without an image in the table."""
    n_parts = plan.part_numbers.stop - 1
    found = set(table["part"])
    missing = sorted(set(range(1, n_parts + 1)) - found)
    if missing:
        raise ValueError(
            f"FOLDS_FROM lacks part {missing[0]} of {n_parts}. A growth needs all "
            "parts, or copies of the missing images could be in two folds. Name each "
            "part, or the folder that contains them."
        )
    unknown = found - set(range(1, n_parts + 1))
    if unknown:
        raise ValueError(
            f"FOLDS_FROM contains images of part {max(unknown)}, but its plans have "
            f"{n_parts} part(s). {COPY_AGAIN}"
        )


def _check_repeated(table: pd.DataFrame) -> None:
    """Raise a ValueError that names an image that is listed twice."""
    is_test = table["split"] == "test"
    keys = pd.DataFrame({"image_id": table["image_id"], "is_test": is_test})
    repeated = table["image_id"][keys.duplicated()]
    if len(repeated):
        raise ValueError(
            f"FOLDS_FROM lists the image '{repeated.iloc[0]}' twice. Name each part "
            "once, and not a work folder together with its parts."
        )


def check_settings(earlier: Earlier, settings: Mapping[str, Any], source: Any) -> None:
    """Raise a ValueError where parameters of 03 contradict those of FOLDS_FROM.

    settings: the parameters of 03 by their names in lower case. source: FOLDS_FROM.
    """
    if as_sources(source) != earlier.source:
        raise ValueError(
            f"FOLDS_FROM is {source!r}, but 02_deduplicate ran with "
            f"{list(earlier.source)}. {RUN_AGAIN}"
        )
    decisive = (
        "n_folds",
        "seed",
        "validation_size",
        "group_column",
        "extra_in_validation",
        "image_size",
        "resize",
        "resample",
        "quality",
        "chroma",
        "optimize",
        "bit_depth",
        "compression",
    )
    for name in decisive:
        before = earlier.settings.get(name, settings[name])
        # A list in JSON may be a tuple here.
        if json.dumps(before) != json.dumps(settings[name]):
            raise ValueError(
                f"{name.upper()} is {settings[name]!r}, but the parts of FOLDS_FROM "
                f"have {before!r}. Set it to that, or make a new dataset without "
                "FOLDS_FROM."
            )
