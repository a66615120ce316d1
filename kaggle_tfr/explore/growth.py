"""Join the images to the records of earlier parts, if the dataset grows.

An image with a record keeps the split, fold and label of its record. A record whose
image is not in the input any more, is rejected now, or is another file now, becomes a
row with a path that no file has.
"""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.earlier import Earlier, mark_recorded, name_images
from kaggle_tfr.explore.labels import number_labels, number_names
from kaggle_tfr.fingerprints import GROUP, digest_groups
from kaggle_tfr.notebook import note
from kaggle_tfr.schema import Labels
from kaggle_tfr.texts import differ, find_texts

KEPT = ["image_id", "split", "label_name", "fold", "part"]


def join_records(
    images: pd.DataFrame, labels: Labels, earlier: Earlier, records: pd.DataFrame
) -> tuple[pd.DataFrame, Labels]:
    """Return the images with their records, and the labels of the earlier parts.

    images, labels: of 01. earlier, records: of `read_records`.
    New columns: part, the number of the part with the record (0: none, -1: a CSV gives
    the fold), and fold (-1: none). Records without an image follow.
    Raises: ValueError: the input has other labels, or a CSV names none of its images.
    """
    images = images.assign(part=0, fold=-1)
    row = _match(images, records)
    found = images.iloc[row]  # -1 is any row
    is_good = (row >= 0) & (found["problem"] == "").to_numpy()
    is_recorded = mark_recorded(records)
    is_changed = is_recorded & differ(found["digest"], records["digest"])
    is_here = is_good & ~is_changed
    for name in records.columns.intersection(KEPT):
        column = images[name].copy()
        column.iloc[row[is_here]] = records[name][is_here].to_numpy()
        images = images.assign(**{name: column})
    if not earlier.plan:
        _note_folds(images, records)
        return images, labels

    labels = _keep_labels(labels, Labels.from_dict(earlier.plan["labels"]))
    n_relabelled = (is_here & differ(found["label_name"], records["label_name"])).sum()
    n_changed = (is_good & is_changed).sum()
    note(
        "·",
        f"{len(records):,} images are in earlier parts, and stay as they are there. "
        f"Of these, {n_relabelled:,} have another label now, {n_changed:,} are other "
        f"files, and {(~is_good).sum():,} are not in the input or are rejected.",
        "earlier parts",
    )
    gone = _list_gone(images, records[~is_here])
    group_column = earlier.plan["settings"]["group_column"]
    if group_column in images:
        gone[group_column] = _name_groups(images[group_column], gone.pop(GROUP))
    replaced = row[~is_here & (row >= 0)]
    images = pd.concat([images.drop(index=replaced), gone], ignore_index=True)
    return _number_labels(images, labels), labels


def _match(images: pd.DataFrame, records: pd.DataFrame) -> np.ndarray:
    """Return the row of the image of each record, -1 for none: int64 (n,).

    In class folders, an image that moves to another class has another id. Then its
    content decides, unless it has copies: any of them could be the one that moved.
    """
    # The good one of several rows with one id.
    by_problem = images.sort_values("problem", kind="stable")
    position = find_texts(name_images(records), name_images(by_problem))
    row = np.where(position < 0, -1, by_problem.index.to_numpy()[position])

    is_free = (images["problem"] == "") & ~images.index.isin(row)
    digest = name_images(images[is_free], "digest").drop_duplicates(keep=False)
    missing = records[(row < 0) & (records["digest"] != "")]
    digest_of_record = name_images(missing, "digest").drop_duplicates(keep=False)
    position = find_texts(digest_of_record, digest)
    row[digest_of_record.index[position >= 0]] = digest.index[position[position >= 0]]
    return row


def _note_folds(images: pd.DataFrame, records: pd.DataFrame) -> None:
    """Note how many images have a fold in a CSV, the records.

    Raises: ValueError: none.
    """
    n_placed = (images["part"] != 0).sum()
    if not n_placed:
        raise ValueError(
            f"FOLDS_FROM has the folds of {len(records):,} images, such as "
            f"'{records['image_id'].iloc[0]}', and none of the input, such as "
            f"'{images['image_id'].iloc[0]}'. Its image_id must be that of "
            "images.parquet."
        )
    note("·", f"FOLDS_FROM has the folds of {n_placed:,} images.", "earlier parts")


def _keep_labels(labels: Labels, before: Labels) -> Labels:
    """Return the earlier labels; those of the input must be among them."""
    new_names = set(number_names(labels.classes)) - set(number_names(before.classes))
    columns = (labels.kind, labels.label_columns)
    if new_names or columns != (before.kind, before.label_columns):
        raise ValueError(
            f"The labels of the input ('{labels.kind}') are not those of FOLDS_FROM "
            f"('{before.kind}'): {len(new_names)} classes are new, such as "
            f"'{min(new_names, default='')}'. The records number their classes, so no "
            "class can be added. Give these images an earlier class by LABEL_MAP, or "
            "make a new dataset without FOLDS_FROM."
        )
    return replace(before, name=labels.name, bit_depth=labels.bit_depth)


def _list_gone(images: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the columns of `images` for records without a file."""
    blanks = {
        name: 0 if pd.api.types.is_numeric_dtype(column) else ""
        for name, column in images.items()
    }
    names = records.columns.intersection([*KEPT, "path", "digest", GROUP])
    gone = pd.DataFrame(blanks, records.index)
    is_test = records["split"] == "test"
    return gone.assign(**records[names], label=-is_test.astype(int), orientation=1)


def _name_groups(groups: pd.Series, digests: pd.Series) -> pd.Series:
    """Return the names of groups in the input by their digests, or else the digests."""
    names = groups.drop_duplicates()
    name_of = dict(zip(digest_groups(names), names, strict=True))
    return digests.map(lambda digest: name_of.get(digest, digest))


def _number_labels(images: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return the images with labels, and the columns of several labels, by name."""
    names = images["label_name"]
    if labels.kind == "single":
        label = names.map(number_names(labels.classes)).fillna(-1).astype("int64")
        return images.assign(label=label)

    is_recorded = mark_recorded(images)
    mark = "1 1" if labels.kind == "masks" else 1  # such a mask is never written
    for name, blank in labels.blanks().items():
        column = images[name]
        has_label = ("|" + names + "|").str.contains(f"|{name}|", regex=False)
        column = column.mask(is_recorded & ~has_label, blank)
        column = column.mask(is_recorded & has_label & (column == blank), mark)
        images = images.assign(**{name: column})
    return number_labels(images, labels)[0]


def reuse_hashes(earlier: Earlier, work_dir: str) -> None:
    """Copy hashes.parquet of an earlier work folder, unless WORK_DIR has one.

    01 then reads only files that are new or have changed.
    """
    path = storage.join(work_dir, "hashes.parquet")
    saved = storage.join(earlier.work_dir, "hashes.parquet")
    if earlier.work_dir and storage.exists(saved) and not storage.exists(path):
        with storage.local_copy(saved) as local, storage.new_file(path) as temporary:
            shutil.copyfile(local, temporary)
