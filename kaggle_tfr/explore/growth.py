"""Join the images to the records of earlier parts, if the dataset grows.

An image with a record keeps the split, fold and label of its record. A record without
an image, because that is not in the input, is rejected, or is another file now, becomes
a row with a path that no file has.
"""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.earlier import GONE, mark_recorded
from kaggle_tfr.explore.labels import number_labels, number_names
from kaggle_tfr.explore.table import find_texts
from kaggle_tfr.fingerprints import GROUP, digest_groups
from kaggle_tfr.notebook import note
from kaggle_tfr.schema import Labels

KEPT = ["image_id", "split", "label_name", "fold", "part"]


def reuse_hashes(folder: str, work_dir: str) -> None:
    """Copy hashes.parquet of an earlier work folder, unless WORK_DIR has one.

    01 then reads only files that are new or have changed. folder: of a part in it.
    """
    path = storage.join(work_dir, "hashes.parquet")
    saved = storage.join(os.path.dirname(folder), "hashes.parquet")
    if storage.exists(saved) and not storage.exists(path):
        storage.write_atomically(path, storage.read_bytes(saved))


def join_records(
    images: pd.DataFrame, labels: Labels, plan: dict[str, Any], records: pd.DataFrame
) -> tuple[pd.DataFrame, Labels]:
    """Return the images with their records, and the labels of the earlier parts.

    images, labels: of 01. plan, records: of `read_records`.
    New columns: part, the number of the part with the record (0: none, -1: a CSV gives
    the fold), and fold (-1: none). Records without an image follow.
    Raises: ValueError: the input has other labels, or a CSV names none of its images.
    """
    row = _match(images, records)
    has_image = row >= 0
    if not plan and not has_image.any():
        raise ValueError(
            f"FOLDS_FROM has the folds of {len(records):,} images, such as "
            f"'{records['image_id'].iloc[0]}', but none of the input, such as "
            f"'{images['image_id'].iloc[0]}'."
        )
    is_recorded = mark_recorded(records)
    digest = images["digest"].iloc[row]  # -1 is any row
    is_changed = is_recorded & has_image & (digest.to_numpy() != records["digest"])
    is_gone = is_recorded & (is_changed | ~has_image)
    group_column = plan["settings"]["group_column"] if plan else ""
    gone = _list_gone(images, records[is_gone], group_column)
    images = images.drop(index=row[is_changed])
    images = pd.concat([images.assign(part=0, fold=-1), gone])
    row[is_gone] = gone.index

    before = images["label_name"]
    kept = records[records.columns.intersection(KEPT)].set_index(row)
    images.update(kept[row >= 0])
    is_relabelled = (before != images["label_name"]).to_numpy()
    note(
        "·",
        f"Images of FOLDS_FROM, which keep split, fold and label: {len(records):,}. "
        f"Of these, {(~has_image).sum():,} are not in the input or are rejected, "
        f"{is_changed.sum():,} are other files now, and {is_relabelled.sum():,} have "
        "another label.",
        "earlier parts",
    )
    images = images.reset_index(drop=True)
    if not plan:
        return images, labels
    labels = _keep_labels(labels, Labels.from_dict(plan["labels"]))
    is_rewritten = is_relabelled | images["path"].str.startswith(GONE).to_numpy()
    return _number_labels(images, labels, is_rewritten), labels


def _match(images: pd.DataFrame, records: pd.DataFrame) -> np.ndarray:
    """Return the row of the good image of each record, -1 for none: int64 (n,).

    In class folders, an image that moves to another class has another id. Then its
    content decides, unless it has copies: any of them could be the one that moved.
    """
    row = np.full(len(records), -1)
    good = images[images["problem"] == ""]
    for column in ("image_id", "digest"):
        missing = records[(row < 0) & (records[column] != "")]
        names = _name_images(missing, column)
        known = _name_images(good[~good.index.isin(row)], column)
        position = find_texts(names, known)
        is_found = position >= 0
        row[names.index[is_found]] = known.index[position[is_found]]
    return row


def _name_images(table: pd.DataFrame, column: str) -> pd.Series:
    """Return the names that are unique: a test image may have the id of another."""
    is_test = table["split"] == "test"
    names = is_test.map({True: "test/", False: "others/"}) + table[column]
    return names.drop_duplicates(keep=False)


def _list_gone(
    images: pd.DataFrame, records: pd.DataFrame, group_column: str
) -> pd.DataFrame:
    """Return rows with the columns of `images` for records without an image."""
    gone = records.reindex(columns=[*KEPT, "path", "digest"])
    for name in images.columns.difference(gone.columns):
        is_number = pd.api.types.is_numeric_dtype(images[name])
        blank: Any = images[name].dtype.type(0) if is_number else ""
        gone[name] = blank
    gone["label"] = -(gone["split"] == "test").astype(int)
    if group_column in images:
        # Parts have digests of the groups' names, which the input may have.
        names = images[group_column].drop_duplicates()
        name_of = dict(zip(digest_groups(names), names, strict=True))
        groups = records[GROUP]
        gone[group_column] = groups.map(name_of).fillna(groups)
    return gone.set_axis(range(len(images), len(images) + len(gone)))


def _keep_labels(labels: Labels, before: Labels) -> Labels:
    """Return the earlier labels; those of the input must be among them."""
    names = number_names(labels.classes)
    new_names = sorted(names.keys() - number_names(before.classes).keys())
    columns = (labels.kind, labels.label_columns)
    if new_names or columns != (before.kind, before.label_columns):
        raise ValueError(
            f"The input has labels of the kind '{labels.kind}', FOLDS_FROM has "
            f"'{before.kind}'; {len(new_names)} classes are new, such as "
            f"{new_names[:1]}. Records number their classes, so none can be added. Set "
            "LABEL_MAP, or make a new dataset without FOLDS_FROM."
        )
    return replace(before, name=labels.name, bit_depth=labels.bit_depth)


def _number_labels(
    images: pd.DataFrame, labels: Labels, is_rewritten: np.ndarray
) -> pd.DataFrame:
    """Return the images with labels by label_name.

    is_rewritten: whether the columns of several labels follow from label_name, too.
    """
    names = images["label_name"]
    if labels.kind == "single":
        label = names.map(number_names(labels.classes)).fillna(-1)
        return images.assign(label=label.astype("int64"))
    for name, blank in labels.blanks().items():
        has_label = ("|" + names + "|").str.contains(f"|{name}|", regex=False)
        mark = "1 1" if labels.kind == "masks" else 1  # these masks are not written
        column = has_label.map({True: mark, False: blank})
        images[name] = images[name].mask(is_rewritten, column)
    return number_labels(images, labels)[0]
