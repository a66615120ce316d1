"""Images of earlier parts in the table of a dataset that grows.

The column `earlier` has the state of each image:

    ""           new
    same         in an earlier part, with the same file and label
    relabelled   in an earlier part; the input has another label now
    changed      in an earlier part; the file is another one now
    gone         in an earlier part; the input does not have it any more, or rejects it
    fold         has a fold by an earlier CSV, but no record

Only new images and those with a fold alone are written. All others keep what their
record has: split, fold, label, and the hashes of the earlier file.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.earlier import Earlier, as_sources
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.fingerprints import GROUP, PLANNED_FILE, digest_groups
from kaggle_tfr.folds_from import check_not_replaced
from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.mounts import locate_input
from kaggle_tfr.schema import Labels
from kaggle_tfr.texts import differ, find_texts

RECORDED = ("same", "relabelled", "changed", "gone")
WITHOUT_FILE = ("changed", "gone")  # the file of their record is not there
# The first word of the reason in folds.csv of each image with a record.
REASONS = {
    "same": "earlier: its record is in part {part}",
    "relabelled": "relabelled: its record in part {part} keeps the label {label}",
    "changed": "changed: its record in part {part} has the earlier file",
    "gone": "gone: its record stays in part {part}",
}
# The columns that `join_earlier` adds, with their values for a new image.
STATE: dict[str, Any] = {"earlier": "", "earlier_fold": -1, "earlier_part": 0}
GONE = "part-{part}/{split}/{image_id}"  # in place of a path: no file has this one


def reuse_hashes(folds_from: str | Sequence[str], work_dir: str) -> None:
    """Copy hashes.parquet of an earlier work folder to WORK_DIR.

    01 then reads only files that are new or have changed. A WORK_DIR that has this
    file keeps its own. Raises: ValueError: FOLDS_FROM is WORK_DIR.
    """
    path = storage.join(work_dir, "hashes.parquet")
    for name in as_sources(folds_from):
        if name.endswith(".csv"):
            continue
        folder = locate_input(name)
        check_not_replaced(folder, work_dir)
        saved = os.path.join(folder, "hashes.parquet")
        # Parts have a file of this name with other columns.
        is_work_folder = os.path.exists(os.path.join(folder, PLANNED_FILE))
        if is_work_folder and os.path.exists(saved) and not storage.exists(path):
            with storage.new_file(path) as temporary:
                shutil.copyfile(saved, temporary)
            print(f"Files that '{folder}' has seen unchanged are not read again.")


def join_earlier(
    images: pd.DataFrame, labels: Labels, earlier: Earlier, table: pd.DataFrame
) -> tuple[pd.DataFrame, Labels]:
    """Return the images with the columns `STATE`, and the labels of the earlier parts.

    images, labels: of 01. earlier: of `load_earlier`. table: of `load_earlier_images`.
    Images whose files are gone follow in rows of their own.
    Raises: ValueError: the input has a class, or label columns, that FOLDS_FROM lacks.
    """
    if earlier.n_parts:
        labels = _keep_labels(labels, earlier.labels)
    row = _match(images, table)
    if not earlier.n_parts:
        _check_matched(images, table, row)
    row[_find_repeated(images)] = -1
    row = _match_moved(images, table, row)
    is_earlier = row >= 0
    found = table.iloc[row[is_earlier]]
    compared = images[["label_name", "problem", "digest"]][is_earlier]
    state = np.full(len(images), STATE["earlier"], object)
    state[is_earlier] = _compare(compared, found)
    joined = images.assign(**STATE | {"earlier": state})
    joined = _keep_state(joined, is_earlier, found)

    is_gone = _list_unmatched(table, row)
    gone = _list_gone(table[is_gone], joined)
    if len(gone):
        joined = joined.astype({"input_dir": object})
        joined = pd.concat([joined, gone], ignore_index=True)
    group_column = earlier.settings.get("group_column", "")
    if group_column in joined:
        joined = _fill_groups(joined, table, group_column)
    return _number_labels(joined, labels), labels


def _keep_labels(labels: Labels, before: Labels) -> Labels:
    """Return the earlier labels; those of the input must be among them."""
    new_names = set(number_names(labels.classes)) - set(number_names(before.classes))
    if labels.kind != before.kind or labels.label_columns != before.label_columns:
        raise ValueError(
            f"The labels of the input are '{labels.kind}', with the columns "
            f"{list(labels.label_columns)}; those of FOLDS_FROM are '{before.kind}', "
            f"with the columns {list(before.label_columns)}. Make a new dataset "
            "without FOLDS_FROM."
        )
    if new_names:
        raise ValueError(
            f"The input has {len(new_names)} class(es) that the parts of FOLDS_FROM "
            f"lack, such as '{min(new_names)}'. The records of these parts number "
            "their classes, so no class can be added. Give these images an earlier "
            "class, in the input or by LABEL_MAP of MORE_INPUTS, or make a new dataset "
            "without FOLDS_FROM."
        )
    return replace(before, name=labels.name, bit_depth=labels.bit_depth)


def _check_matched(images: pd.DataFrame, table: pd.DataFrame, row: np.ndarray) -> None:
    """Raise a ValueError if no image has a fold in a CSV. row: of `_match`."""
    if (row < 0).all():
        listed = table["image_id"].head(1).tolist()
        example = f", such as '{listed[0]}'" if listed else ""
        raise ValueError(
            f"FOLDS_FROM has the folds of {len(table):,} images{example}, and none of "
            f"the input, such as '{images['image_id'].iloc[0]}'. Its image_id must be "
            "that of images.parquet."
        )


def _match(images: pd.DataFrame, table: pd.DataFrame) -> np.ndarray:
    """Return the row of each image in the earlier table, -1 for none: int64 (n,).

    A test image may have the id of a labelled one.
    """
    row = np.full(len(images), -1)
    is_test = (images["split"] == "test").to_numpy()
    is_test_record = (table["split"] == "test").to_numpy()
    for wants_test in (True, False):
        positions = np.flatnonzero(is_test == wants_test)
        records = np.flatnonzero(is_test_record == wants_test)
        ids = images["image_id"].iloc[positions]
        found = find_texts(ids, table["image_id"].iloc[records])
        is_found = found >= 0
        row[positions[is_found]] = records[found[is_found]]
    return row


def _find_repeated(images: pd.DataFrame) -> np.ndarray:
    """Return which rows are rejected because another row has the same id: bool (n,)."""
    is_rejected = (images["problem"] != "").to_numpy()
    return is_rejected & _index(images).duplicated(keep=False)


def _list_unmatched(table: pd.DataFrame, row: np.ndarray) -> np.ndarray:
    """Return which records no image has as its row: bool (n,)."""
    is_matched = np.zeros(len(table), bool)
    is_matched[row[row >= 0]] = True
    return ~is_matched & (table["part"] > 0).to_numpy()


def _match_moved(
    images: pd.DataFrame, table: pd.DataFrame, row: np.ndarray
) -> np.ndarray:
    """Return the rows with those of files that have another id now, by their content.

    In class folders, an image that moves to another class has another id. Files with
    copies are left out: any of them could be the one that moved.
    """
    is_free = (row < 0) & (images["problem"] == "").to_numpy()
    free_images = np.flatnonzero(is_free)
    free_records = np.flatnonzero(_list_unmatched(table, row))
    image_key = _index(images.iloc[free_images], "digest")
    record_key = _index(table.iloc[free_records], "digest")
    is_single = ~record_key.duplicated(keep=False)
    found = record_key[is_single].get_indexer(image_key)
    found[image_key.duplicated(keep=False)] = -1
    moved = row.copy()
    moved[free_images[found >= 0]] = free_records[is_single][found[found >= 0]]
    return moved


def _index(table: pd.DataFrame, column: str = "image_id") -> pd.Index:
    """Return the keys of images: a test image may have the id of a labelled one."""
    names = table[column].to_numpy(object, copy=True)
    is_test = (table["split"] == "test").to_numpy()
    # No id contains "\0". NumPy would drop it at the end of a text.
    names[is_test] = "\0test/" + names[is_test]
    return pd.Index(names, dtype=object)


def _compare(images: pd.DataFrame, found: pd.DataFrame) -> np.ndarray:
    """Return the state of images that are in the earlier table: str (n,)."""
    state = np.full(len(images), "same", object)
    state[differ(images["label_name"], found["label_name"])] = "relabelled"
    is_good = images["problem"].to_numpy() == ""
    has_file = ~differ(images["digest"], found["digest"])
    state[is_good & ~has_file] = "changed"
    state[~is_good] = "gone"
    state[found["part"].to_numpy() == 0] = "fold"
    # A rejected file cannot be written: an earlier fold is of no use.
    state[(found["part"].to_numpy() == 0) & ~is_good] = ""
    return state


def _keep_state(
    images: pd.DataFrame, is_earlier: np.ndarray, found: pd.DataFrame
) -> pd.DataFrame:
    """Return the images with id, split, fold, part and label of their records."""
    is_kept = images["earlier"].to_numpy()[is_earlier] != ""
    rows = np.flatnonzero(is_earlier)[is_kept]
    found = found[is_kept]
    kept = {}
    for name in ("image_id", "split", "label_name", "earlier_fold", "earlier_part"):
        column = images[name].copy()
        column.iloc[rows] = found[name.removeprefix("earlier_")].to_numpy()
        kept[name] = column
    # A record exists even if its file is rejected now.
    problem = images["problem"]
    is_recorded_reject = (problem != "") & (images["earlier"] != "")
    return images.assign(**kept, problem=problem.mask(is_recorded_reject, ""))


def _list_gone(table: pd.DataFrame, images: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the columns of `images` for images without a file."""
    table = table.reset_index(drop=True)
    gone = pd.DataFrame(index=table.index)
    for name, column in images.items():
        is_number = pd.api.types.is_numeric_dtype(column.dtype)
        gone[name] = 0 if is_number else ""
    places = zip(table["part"], table["split"], table["image_id"], strict=True)
    return gone.assign(
        image_id=table["image_id"],
        path=[GONE.format(part=p, split=s, image_id=i) for p, s, i in places],
        split=table["split"],
        label_name=table["label_name"],
        digest=table["digest"],
        # Images of MORE_INPUTS train in every fold, unless they may validate.
        source=((table["split"] == "train") & (table["fold"] == -1)).astype(int),
        orientation=1,
        earlier="gone",
        earlier_fold=table["fold"],
        earlier_part=table["part"],
    )


def _fill_groups(
    images: pd.DataFrame, table: pd.DataFrame, column: str
) -> pd.DataFrame:
    """Return the images; those of which the input has no group get that of their part.

    Parts have digests of the groups' names, which are compared with those of the input.
    """
    groups = images[column].astype(object)
    is_missing = groups.isna() | (groups == "")
    rows = np.flatnonzero(is_missing & mark_recorded(images))
    if GROUP not in table or not len(rows):
        return images
    names = groups[~is_missing].drop_duplicates()
    name_of = dict(zip(digest_groups(names), names, strict=True))
    position = _match(images.iloc[rows], table)
    digests = table[GROUP].to_numpy(object)[position]
    groups.iloc[rows] = [name_of.get(digest, digest) for digest in digests]
    return images.assign(**{column: groups})


def _number_labels(images: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return the images with labels, and the columns of several labels, by name."""
    names = images["label_name"]
    if labels.kind == "single":
        code, distinct = pd.factorize(names)
        label_of = number_names(labels.classes)
        label = np.array([label_of.get(name, -1) for name in distinct], np.int64)
        return images.assign(label=label[code])

    is_test = images["split"] == "test"
    is_labelled = ~is_test & (images["label"] >= 0)
    combination, _ = pd.factorize(names.where(is_labelled), sort=True)
    images = images.assign(label=combination)
    is_recorded = images["earlier"].isin(["gone", "relabelled", "changed"]).to_numpy()
    present = names[is_recorded].str.split("|")
    for name in labels.label_columns:
        column = images[name].to_numpy(copy=True)
        has_label = present.map(lambda names, name=name: name in names).to_numpy(bool)
        if labels.kind == "multi":
            column[is_recorded] = has_label
        else:  # any text means that there is a mask: these images are not written
            column[is_recorded] = np.where(has_label, "1 1", "")
        images[name] = column
    return images


def fill_hashes(
    hashes: pd.DataFrame, images: pd.DataFrame, table: pd.DataFrame
) -> pd.DataFrame:
    """Return the hashes with those of records whose file is gone or has changed.

    hashes: of `load_hashes`, a row per image. table: of `load_earlier_images`.
    """
    rows = np.flatnonzero(images["earlier"].isin(WITHOUT_FILE))
    position = _match(images.iloc[rows], table)
    hashes = hashes.copy()
    for name in ("texture", *ALL_HASHES, "digest"):
        column = hashes[name].to_numpy(copy=True)
        column[rows] = table[name].to_numpy()[position]
        hashes[name] = column
    return hashes


def explain_earlier(images: pd.DataFrame) -> pd.Series:
    """Return why each image with a record is not written again, missing for others."""
    reasons = pd.Series(None, images.index, dtype=object)
    is_recorded = mark_recorded(images)
    if is_recorded.any():
        columns = ["earlier", "earlier_part", "label_name"]
        rows = images.loc[is_recorded, columns].itertuples(index=False)
        reasons[is_recorded] = [
            REASONS[state].format(part=part, label=label) for state, part, label in rows
        ]
    return reasons


def name_places(images: pd.DataFrame) -> pd.Series:
    """Return where each earlier image is, such as "fold 3" or "validation".

    images: of `join_earlier`. New images and test images have no place (missing).
    """
    has_fold = images["earlier_fold"] >= 0
    fold = "fold " + images["earlier_fold"].astype(str)
    place = images["split"].astype(object).mask(has_fold, fold)
    is_fixed = (images["earlier"] != "") & (images["split"] != "test")
    return place.where(is_fixed)


def mark_recorded(images: pd.DataFrame) -> np.ndarray:
    """Return whether an earlier part has each image: bool (n,)."""
    if "earlier" not in images:
        return np.zeros(len(images), bool)
    return images["earlier"].isin(RECORDED).to_numpy()


def mark_new(images: pd.DataFrame) -> np.ndarray | None:
    """Return which images may have near-duplicates that are not known: bool (n,).

    None if all may. Those with a record were compared when their part was planned.
    """
    return ~mark_recorded(images) if "earlier" in images else None
