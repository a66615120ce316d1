"""Read FOLDS_FROM, and join the images to its records, if the dataset grows.

An image with a record keeps the split, fold and label of its record. If its file is
rejected or has changed, it has a path that no file has, and so does a record without an
image.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.earlier import (
    FINGERPRINTS_FILE,
    GONE,
    GROUP,
    digest_groups,
    read_fingerprints,
)
from kaggle_tfr.explore.files import list_texts
from kaggle_tfr.explore.labels import Table, number_labels
from kaggle_tfr.find import find_file, find_input
from kaggle_tfr.naming import RECORDS
from kaggle_tfr.notebook import note
from kaggle_tfr.schema import Labels
from kaggle_tfr.shards import PlanId, check_one_dataset, list_parts

KEPT = [
    "image_id",
    "split",
    "label_name",
    "fold",
    "part",
    "digest",
    "path",
    "problem",
]


def read_records(folds_from: str | Sequence[str], work_dir: str) -> pd.DataFrame:
    """Return one row per record of the dataset in FOLDS_FROM, whose folds are kept.

    `join_records` gives their folds to the images. No rows if FOLDS_FROM is empty.
    attrs["plan"] is the content of the newest part's plan.json.
    folds_from: an earlier work folder, a CSV such as folds.csv, or all parts of a
        dataset, as folders or slugs, or the folder that contains them; "" for none.
    work_dir: WORK_DIR, which must be another folder.
    Columns of the records: those of `read_fingerprints`; folder, of the part; path,
        such as "earlier:part-3/train/7.jpg", which no file has, for records whose image
        is missing or has changed; and problem, which is "". Those of a CSV, which has
        no plan, are image_id, split, fold, and part, which is -1.
    Raises: FileNotFoundError, ValueError: also if a part of the dataset is missing.
    """
    names = list_texts(folds_from)
    if not names:
        return pd.DataFrame()
    if names[0].lower().endswith(".csv"):
        return _read_csv(names[0])
    # Of a slug, only these two files are downloaded.
    files = [FINGERPRINTS_FILE, "plan.json"]
    folders = [find_input(name, names=files) for name in names]
    if storage.real_path(work_dir) in map(storage.real_path, folders):
        raise ValueError(
            f"FOLDS_FROM is the WORK_DIR '{work_dir}' itself, whose files this run "
            "replaces. Set another WORK_DIR or NAME for the grown dataset."
        )
    tables = chain.from_iterable(map(_read_folder, folders))
    records = pd.concat(tables, ignore_index=True)
    # GONE, "earlier:", begins paths that no file has.
    place = f"{GONE}part-" + records["part"].astype(str) + "/" + records["split"]
    records["path"] = place + "/" + records["image_id"]
    records["problem"] = ""
    records.attrs["plan"] = _load_plan(records)
    # A work folder also has the records of the parts that it continues, so a record
    # may be read twice.
    return records.drop_duplicates("path", ignore_index=True)


def _load_plan(records: pd.DataFrame) -> dict[str, Any]:
    """Return the content of the newest part's plan.json.

    records: with their part (number) and its folder.
    Raises: ValueError: they are of two datasets, or a part is missing.
    """
    folders = records["folder"]
    check_one_dataset(
        folders.unique(),
        advice="Name parts of one dataset in FOLDS_FROM.",
    )
    parts = records["part"].unique()
    # In the folder of the part with the highest number.
    path = f"{folders[records['part'].argmax()]}/plan.json"
    plan = storage.parse_json(storage.read_text(path), path, "Copy it again.")
    # The number of the last part is that of all parts: each plan numbers its parts on
    # from those of the plan before, the first from 1.
    if len(parts) != PlanId.from_dict(plan).part_numbers.stop - 1:
        raise ValueError(
            f"FOLDS_FROM has records of the parts {parts.tolist()}, but needs those of "
            "all parts of the dataset. Otherwise copies could be in two folds. Name "
            "each part, or the folder around them."
        )
    return plan


def _read_csv(name: str) -> pd.DataFrame:
    """Return image_id, split, fold and part of each row of a CSV such as folds.csv.

    part is -1: the CSV gives folds, but the images have no records in a part. Without a
    column of splits, all are in train. Rows without a fold are left out: those whose
    fold is blank, or is -1 because 02 or 01 dropped the image (keep is False).
    Raises: FileNotFoundError; ValueError: a column is missing.
    """
    text = io.BytesIO(storage.read_bytes(find_file(name)))
    rows = pd.read_csv(
        text,
        dtype={"image_id": str},
        keep_default_na=False,
        na_values={"fold": ""},
    )
    if not {"image_id", "fold"}.issubset(rows):
        raise ValueError(
            f"FOLDS_FROM '{name}' needs the columns image_id and fold, but has "
            f"{', '.join(map(str, rows))}."
        )
    # Columns of the CSV replace the defaults of split and keep.
    columns = {"split": "train", "keep": True} | dict(rows) | {"part": -1}
    # An image without a fold is new if it is not dropped now. A blank fold is NaN, so
    # that both comparisons are false.
    rows = rows.assign(**columns).query("fold >= 0 or fold < 0 and keep != False")
    return rows[["image_id", "split", "fold", "part"]]


def _read_folder(folder: str) -> Iterator[pd.DataFrame]:
    """Yield tables of records: of a part, or of each part in a folder.

    A work folder that continues parts also has their records, in earlier.parquet.
    Column folder: that of the part.
    """
    # A folder without parts in it is a part itself.
    for part in list_parts(folder, FINGERPRINTS_FILE) or [folder]:
        yield read_fingerprints(part).assign(folder=part)
    earlier = f"{folder}/{RECORDS}"
    if storage.exists(earlier):
        yield storage.read_parquet(earlier)


def join_records(
    images: pd.DataFrame,
    labels: Labels,
    records: pd.DataFrame,
) -> Table:
    """Return the images with their records, and the labels of the earlier parts.

    images, labels: of 01; its labels stay if the records are of a CSV. records: of
    `read_records`.
    New columns: part, the number of the part with the record (0: none, -1: a CSV gives
    the fold), and fold (-1: none). An image with a record keeps the record's split,
    label_name and fold. If its file is rejected or has another digest now, its path is
    one that no file has, so that it is not read. Records of parts whose image is not in
    the input are rows at the end.
    Raises: ValueError: the input has other labels.
    """
    # The index of `found` has the rows of the images; `gone` are without an image.
    found, gone = _match(images, records)
    joined = images.assign(part=0, fold=-1)
    # KEPT, which replaces the image's: image_id, split, label_name, fold, part, digest,
    # path and problem (""). A CSV has some of these columns.
    columns = records.columns.intersection(KEPT)
    joined.loc[found.index, columns] = found[columns]

    # `joined` has what the records contain, `images` what the input contains.
    is_changed = joined["digest"] != images["digest"]
    n_changed = is_changed.sum()
    is_relabelled = joined["label_name"] != images["label_name"]
    joined["path"] = images["path"].mask(is_changed, joined["path"])
    note(
        "!" if found.empty or n_changed else "·",
        f"Images of FOLDS_FROM, which keep split, fold and label: {len(records):,}. "
        f"Of these, {len(gone):,} are not in the input, {n_changed:,} are rejected or "
        f"other files now, and {is_relabelled.sum():,} have another label.",
        "earlier parts",
        "No file of these is read. Rename new images that are called like earlier ones."
        if n_changed
        else "",
    )
    plan = records.attrs.get("plan")
    if not plan:
        return joined, labels
    return _add_gone(joined, gone, labels, plan)


def _add_gone(
    images: pd.DataFrame,
    gone: pd.DataFrame,
    labels: Labels,
    plan: dict[str, Any],
) -> Table:
    """Return the images and the records without one, with the labels of the plan.

    images: those of the input, joined to their records. gone: records whose image is
    not in the input. plan: the newest plan.json.
    `label` is numbered again for all rows, by label_name.
    Raises: ValueError: as `_keep_labels`.
    """
    labels = _keep_labels(labels, Labels.from_dict(plan["labels"]))
    # Columns of classes that only records have are blank; those of the input stay.
    images = images.assign(**labels.blanks() | dict(images))
    rows = _list_gone(images, gone, plan["settings"]["group_column"])
    images = pd.concat([images, rows], ignore_index=True)
    if labels.kind == "multi":
        columns = list(labels.label_columns)
        # label_name, which may be that of a record, has all labels of an image, with
        # "|" between them. The columns of 0 and 1 are made of it.
        flags = images["label_name"].str.get_dummies("|")
        flags = flags.reindex(columns=columns, fill_value=0)
        images[columns] = flags.astype(np.int8)
    numbered, _ = number_labels(images, labels)  # the labels stay those of the plan
    return numbered, labels


def _match(
    images: pd.DataFrame, records: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the records that have an image, and those that have none.

    Index of the first table: the rows of the images. An image has one record at most.
    The id decides, then the digest of the file: in class folders, an image that moves
    to another class has another id. A test image and a labelled one may have the same
    id: test images match only records of test images.
    """
    row = pd.Series(np.nan, records.index)  # of the image of each record
    for column in records.columns.intersection(["image_id", "digest"]):
        is_free = (images[column] != "") & ~images.index.isin(row)
        # The first free image of each id or digest.
        names = _name_rows(images, column)[is_free].drop_duplicates()
        row_of = pd.Series(names.index, names)
        found = _name_rows(records, column)[row.isna()].map(row_of)
        row = row.fillna(found.drop_duplicates())  # of equal records, the first
    is_found = row.notna()
    return records[is_found].set_index(row[is_found].astype(int)), records[~is_found]


def _name_rows(table: pd.DataFrame, column: str) -> pd.Series:
    """Return the values of a column, with "?" after those of test images.

    So a test image and a labelled one with the same id or digest differ.
    """
    return table[column] + np.where(table["split"] == "test", "?", "")


def _list_gone(
    images: pd.DataFrame,
    records: pd.DataFrame,
    group_column: str,
) -> pd.DataFrame:
    """Return rows with the columns and dtypes of `images` for records without an image.

    What a record does not contain is 0 or "". group_column: GROUP_COLUMN of the plan.
    """
    gone = records.reindex(columns=images.columns)
    # Any input, because the column of categories takes no other value.
    gone["input_dir"] = images["input_dir"].iloc[0]
    if group_column in images:
        # Parts have digests of the groups' names: where the input has the group, its
        # name replaces the digest, so that both are one group.
        names = images[group_column].drop_duplicates()
        name_of = pd.Series(names.to_numpy(), digest_groups(names))
        digests = records[GROUP]
        gone[group_column] = digests.map(name_of).fillna(digests)
    numbers = images.select_dtypes("number").columns
    gone[numbers] = gone[numbers].fillna(0)
    return gone.fillna("").astype(images.dtypes)


def _keep_labels(labels: Labels, before: Labels) -> Labels:
    """Return the earlier labels, with the name and bit_depth of the new ones.

    Raises: ValueError: the input has labels of another kind, or a new class.
    """
    new_names = set(map(str, labels.classes)).difference(map(str, before.classes))
    if new_names or labels.kind != before.kind:
        raise ValueError(
            f"The input has labels of the kind '{labels.kind}', FOLDS_FROM has "
            f"'{before.kind}'; {len(new_names)} classes are new, such as "
            f"{sorted(new_names)[:1]}. Records number their classes, so none can be "
            "added. Set LABEL_MAP, or make a new dataset without FOLDS_FROM."
        )
    return replace(before, name=labels.name, bit_depth=labels.bit_depth)
