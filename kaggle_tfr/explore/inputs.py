"""Read all inputs as one table: the main input, its test images, and further inputs."""

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import rows as listing
from kaggle_tfr.explore.checks import check_table
from kaggle_tfr.explore.columns import find_labels
from kaggle_tfr.explore.files import Files, check_images, check_link, list_files
from kaggle_tfr.explore.groups import add_groups
from kaggle_tfr.explore.labels import RESERVED, Table, number_labels, read_labels
from kaggle_tfr.explore.records import list_shards, read_records
from kaggle_tfr.explore.rows import FILE, ID, NO_ROW, OF_CSV, PROBLEM, SPLIT, TAIL
from kaggle_tfr.explore.settings import InputSettings, list_texts
from kaggle_tfr.find import find_input, output_dir
from kaggle_tfr.images.masks import EMPTY_CODES
from kaggle_tfr.naming import SUBMISSION
from kaggle_tfr.schema import Labels


def read_table(
    input_dir: str,
    settings: InputSettings,
    excluded: Sequence[str] = (),
    files: Files | None = None,
) -> Table:
    """Return one row per image of all inputs, and their labels. No image is opened.

    excluded: WORK_DIR and OUT_DIR, whose files are not input where they are in
    INPUT_DIR. files: those of INPUT_DIR, if they are listed already.

    Columns: image_id; path (absolute or gs://, "" for a missing file); split; label
    (int64, -1 for none); label_name; problem ("" for a good row); source (0 for the
    main input, else the number in MORE_INPUTS); input_dir (the folder of its source, a
    category); for several labels (int8, 0 or 1), masks (run-length codes, "" for none)
    and quantities (float) one column per label, and `label` numbers the combinations,
    or the bins of the quantity; the other columns of a CSV as text; the groups under
    the text of GROUP_COLUMN. An id that an earlier input has gets the number of its
    input in front.
    Raises: FileNotFoundError: a folder, CSV or all images are missing; ValueError: a
    setting does not fit.
    """
    input_dir = output_dir(input_dir)
    excluded = [output_dir(folder) for folder in excluded if folder]
    settings = replace(settings, input_dir=input_dir, excluded=excluded)
    images, labels = number_labels(*_read_inputs(settings, files))
    images = images.astype({"input_dir": "category"})
    if 0 < settings.limit < len(images):
        # The first rows of class folders would all be of one class.
        chosen = np.arange(settings.limit) * len(images) // settings.limit
        images = images.iloc[chosen].reset_index(drop=True)
    images = add_groups(images, settings.group_column)
    return images, replace(labels, name=settings.name, bit_depth=settings.bit_depth)


def _read_inputs(settings: InputSettings, files: Files | None) -> Table:
    """Return the rows of the main input and of the further ones, and the labels."""
    further = [
        find_input(more["INPUT_DIR"], beside=settings.input_dir)
        for more in settings.more_inputs
    ]
    main = replace(settings, excluded=[*settings.excluded, *further])
    images, labels = _read_input(main, files=files)
    for number, folder in enumerate(further, 1):
        given = settings.more_inputs[number - 1]
        changes = {name.lower(): value for name, value in given.items()}
        changes = {"label_map": "", "split_column": "", **changes}
        changes["input_dir"] = folder
        inner = replace(settings, label_kind=labels.kind)
        more, _ = _read_input(replace(inner, **changes), labels)
        images = _add_further(images, more, number)
    return images, labels


def _add_further(images: pd.DataFrame, more: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return the rows with those of a further input, without its test images."""
    more = more[more["split"] != "test"]
    ids = more["image_id"]
    ids = ids.mask(ids.isin(images["image_id"]), f"{number}/" + ids)
    return pd.concat(
        [images, more.assign(image_id=ids, source=number)], ignore_index=True
    )


def _read_input(
    settings: InputSettings, known: Labels | None = None, files: Files | None = None
) -> Table:
    """Return a row for each image of one input, and its labels.

    known: the labels of the main input, for a further one. Raises: as `read_table`.
    """
    input_dir = settings.input_dir
    if not settings.input_schema:
        patterns = list_texts(settings.pattern)
        files = files or list_files(input_dir, patterns, settings.excluded)
    if files is None or are_shards(files, settings):
        images, labels = read_records(settings, known)
    else:
        check_images(files)
        images, labels = _read_files(files, settings, known)
    if known and labels.kind != known.kind:
        raise ValueError(
            f"'{input_dir}' has labels of the kind '{labels.kind}', the main input of "
            f"the kind '{known.kind}'."
        )
    check_table(images)
    return images.assign(source=0, input_dir=input_dir), labels


def are_shards(files: Files, settings: InputSettings) -> bool:
    """Return whether INPUT_DIR has shards, and no file that is called like an image."""
    return not files.images and len(list_shards(settings)) > 0


def _read_files(files: Files, settings: InputSettings, known: Labels | None) -> Table:
    """Return a row for each image in files, and the labels."""
    rows = listing.list_rows(files, settings)
    text = _read_text(rows, files, settings)
    if settings.label_kind == "masks" and not text.empty:
        _accept_unlisted(rows, text.iloc[:, -1])
    is_test = rows[SPLIT] == "test"
    facts = pd.DataFrame(
        {
            "image": listing.first_problem(rows[FILE], rows[ID]),
            "is_optional": is_test | rows[PROBLEM].str.startswith(NO_ROW),
        }
    )
    labelled, labels = read_labels(text, facts, settings, known)

    rows = rows.loc[labelled.index]
    labelled["problem"] = listing.first_problem(rows[PROBLEM], labelled["problem"])
    paths = rows[FILE].where(rows[FILE] == "", f"{settings.input_dir}/" + rows[FILE])
    images = pd.DataFrame({"image_id": rows[ID], "path": paths, "split": rows[SPLIT]})
    others = rows.filter(regex=OF_CSV).drop(columns=list(text), errors="ignore")
    others = others.rename(columns={name: f"csv_{name}" for name in RESERVED})
    images = pd.concat([images, labelled, others], axis=1)
    return images.reset_index(drop=True), labels


def _read_text(
    rows: pd.DataFrame, files: Files, settings: InputSettings
) -> pd.DataFrame:
    """Return the text of the columns or rules in LABEL_COLUMN."""
    columns = list_texts(settings.label_column)
    cells = rows.filter(regex=OF_CSV)
    if settings.label_column == "":
        columns = [listing.FOLDER] if cells.columns.empty else find_labels(cells)
    if columns and TAIL in rows:
        columns = [TAIL, *columns]
    text = {name: listing.read_column(name, rows, files) for name in columns}
    return pd.DataFrame(text, rows.index)


def _accept_unlisted(rows: pd.DataFrame, codes: pd.Series) -> None:
    """Accept images without a row if the CSV lists only images with masks."""
    has_no_row = rows[PROBLEM].str.startswith(NO_ROW)
    is_empty = codes[~has_no_row].str.strip().isin(EMPTY_CODES)
    if has_no_row.any() and not is_empty.any():
        rows.loc[has_no_row, PROBLEM] = ""
        print(
            f"{has_no_row.sum():,} images have no row in LABELS_CSV, which contains no "
            "empty mask: they are read as images without a mask."
        )


def save_submission(
    images: pd.DataFrame, input_dir: str, settings: InputSettings, work_dir: str
) -> None:
    """Copy TEST_CSV to WORK_DIR, for the order and the columns of submission.csv.

    The copy goes into parts, which are published. A TEST_CSV that is not called a
    submission may contain the labels of the test images: it is not copied.
    """
    path = storage.join(work_dir, SUBMISSION)
    source = storage.resolve(input_dir, settings.test_csv)
    is_template = "submission" in os.path.basename(settings.test_csv).lower()
    has_tests = (images["split"] == "test").any()
    if is_template and has_tests and storage.exists(source):
        check_link(source, input_dir, "TEST_CSV")
        storage.write_atomically(path, storage.read_bytes(source))
    else:
        storage.remove(path)
