"""Read all inputs as one table: the main input, its test images, and further inputs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.checks import check_table
from kaggle_tfr.explore.columns import find_labels
from kaggle_tfr.explore.files import Files, check_images, check_link, list_files
from kaggle_tfr.explore.groups import add_groups
from kaggle_tfr.explore.labels import RESERVED, Table, number_labels, read_labels
from kaggle_tfr.explore.records import list_shards, read_records
from kaggle_tfr.explore.rows import (
    FILE,
    FOLDER,
    ID,
    NO_ROW,
    PROBLEM,
    SPLIT,
    TAIL,
    first_problem,
    is_unlisted,
    list_rows,
    read_column,
)
from kaggle_tfr.explore.settings import InputSettings, list_texts
from kaggle_tfr.find import WORK, find_input, output_dir
from kaggle_tfr.images.masks import EMPTY_CODES
from kaggle_tfr.naming import SPLIT_NAMES, SUBMISSION
from kaggle_tfr.parameters import check_parameters
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
    settings = _complete_settings(settings, input_dir, excluded)
    further = [_find_further(settings.input_dir, more) for more in settings.more_inputs]
    inner = [folder for folder in further if folder != settings.input_dir]
    main = replace(settings, excluded=[*settings.excluded, *inner])
    images, labels = _read_input(main, files=files)
    for number, changes in enumerate(settings.more_inputs, 1):
        given = {name.lower(): value for name, value in changes.items()}
        values = {
            "label_map": "",
            "split_column": "",
            **given,
            "input_dir": further[number - 1],
            "label_kind": labels.kind,
        }
        try:
            more, _ = _read_input(replace(settings, **values), labels)
        except (FileNotFoundError, ValueError) as error:
            source = f"MORE_INPUTS, input {number} ('{changes['INPUT_DIR']}')"
            raise type(error)(f"{source}: {error}") from None
        images = _add_further(images, more, number)
    images, labels = number_labels(images, labels)
    images = images.astype({"input_dir": "category"})
    images = limit_rows(images, settings.limit)
    images = add_groups(images, settings.group_column)
    return images, replace(labels, name=settings.name, bit_depth=settings.bit_depth)


def _complete_settings(
    settings: InputSettings, input_dir: str, excluded: Sequence[str]
) -> InputSettings:
    """Return the settings with the folders. Raises: ValueError: they do not fit."""
    check_parameters({"MORE_INPUTS": settings.more_inputs})
    if not storage.is_remote(input_dir):
        input_dir = os.path.abspath(input_dir)
    outputs = [output_dir(folder) for folder in excluded if folder]
    # Other recipes may have work folders beside this one.
    outputs += {output_dir(WORK)}.intersection(map(os.path.dirname, outputs))
    return replace(settings, input_dir=input_dir.rstrip("/"), excluded=outputs)


def _find_further(input_dir: str, changes: Mapping[str, Any]) -> str:
    """Return the folder of a further input: a path beside the main one, or a slug."""
    folder = storage.resolve(input_dir, changes["INPUT_DIR"])
    if not storage.is_folder(folder):
        folder = find_input(changes["INPUT_DIR"], beside=input_dir)
    return folder if storage.is_remote(folder) else os.path.normpath(folder)


def _add_further(images: pd.DataFrame, more: pd.DataFrame, number: int) -> pd.DataFrame:
    """Return the rows with those of a further input, whose test images are not used.

    Its validation images stay so, under the name that the main input has for them.
    """
    splits = images["split"][images["split"].map(SPLIT_NAMES) == "validation"].unique()
    split = splits[0] if len(splits) == 1 else "validation"
    is_validation = more["split"].map(SPLIT_NAMES) == "validation"
    ids = more["image_id"]
    is_test = (more["split"] == "test") & (more["problem"] == "")
    more = more.assign(
        image_id=ids.mask(ids.isin(images["image_id"]), f"{number}/" + ids),
        source=number,
        split=np.where(is_validation, split, "train"),
        problem=more["problem"].mask(is_test, "test image of a further input"),
    )
    images = pd.concat([images, more], ignore_index=True)
    # A file may lack a row in the CSV of one input, but have one in that of another.
    is_unlisted = images["problem"].str.startswith(NO_ROW)
    is_listed = images["path"].isin(images["path"][~is_unlisted])
    return images[~(is_unlisted & is_listed)].reset_index(drop=True)


def limit_rows(images: pd.DataFrame, limit: int) -> pd.DataFrame:
    """Return `limit` rows spread evenly, or all if there are fewer or it is 0."""
    if not 0 < limit < len(images):
        return images
    # The first rows of class folders would all be of one class.
    chosen = np.arange(limit) * len(images) // limit
    return images.iloc[chosen].reset_index(drop=True)


def _read_input(
    settings: InputSettings, known: Labels | None = None, files: Files | None = None
) -> Table:
    """Return a row for each image of one input, and its labels.

    known: the labels of the main input, for a further one. Raises: as `read_table`.
    """
    input_dir = settings.input_dir
    if not storage.is_folder(input_dir):
        raise FileNotFoundError(
            f"INPUT_DIR '{input_dir}' is not a folder. Give the images' folder, a "
            "gs:// address, or a Kaggle slug."
        )
    if not settings.input_schema and not is_unlisted(settings):
        patterns = list_texts(settings.pattern)
        files = files or list_files(input_dir, patterns, settings.excluded)
        if are_shards(files, settings):
            settings = replace(settings, input_schema="auto")
    if settings.input_schema:
        images, labels = read_records(settings, known)
    else:
        images, labels = _read_files(files or Files((), ()), settings, known)
    if known and labels.kind != known.kind:
        raise ValueError(
            f"the labels are of the kind '{labels.kind}', those of the main input "
            f"'{known.kind}'. Set LABEL_COLUMN to labels of this kind."
        )
    check_table(images)
    return images.assign(source=0, input_dir=input_dir), labels


def are_shards(files: Files, settings: InputSettings) -> bool:
    """Return whether INPUT_DIR has shards, and no file that is called like an image."""
    has_images = any(map(storage.IMAGE_NAME.search, files.images))
    return not has_images and len(list_shards(settings)) > 0


def _read_files(files: Files, settings: InputSettings, known: Labels | None) -> Table:
    """Return a row for each image in files, and the labels."""
    if not is_unlisted(settings):
        check_images(files)
    if files.masks:
        print(
            f"{len(files.masks):,} files are called like masks, such as "
            f"'{files.masks[0]}', and are left out. PATTERN: \"*\" reads them, too."
        )
    rows = list_rows(files, settings)
    text = _read_text(rows, files, settings)
    if settings.label_kind == "masks" and not text.empty:
        rows[PROBLEM] = _accept_unlisted(rows[PROBLEM], text.iloc[:, -1])
    is_test = rows[SPLIT] == "test"
    is_optional = is_test | rows[PROBLEM].str.startswith(NO_ROW)
    names = rows[FILE].where(rows[FILE] != "", rows[ID])
    values = {"image": names, "is_test": is_test, "is_optional": is_optional}
    labelled, labels = read_labels(text, pd.DataFrame(values), settings, known)

    rows = rows.loc[labelled.index]
    problem = first_problem(rows[PROBLEM], labelled.pop("problem"))
    others = rows.filter(regex="^[^/]").drop(columns=list(text), errors="ignore")
    others = others.rename(columns={name: f"csv_{name}" for name in RESERVED})
    paths = rows[FILE].where(rows[FILE] == "", f"{settings.input_dir}/" + rows[FILE])
    images = pd.DataFrame({"image_id": rows[ID], "path": paths, "split": rows[SPLIT]})
    images = pd.concat([images, labelled.assign(problem=problem), others], axis=1)
    return images.reset_index(drop=True), labels


def _read_text(
    rows: pd.DataFrame, files: Files, settings: InputSettings
) -> pd.DataFrame:
    """Return the text of the columns or rules in LABEL_COLUMN."""
    columns = list_texts(settings.label_column)
    if settings.label_column == "":
        cells = rows.filter(regex="^[^/]")
        columns = [FOLDER] if cells.columns.empty else find_labels(cells)
    if columns and TAIL in rows:
        columns = [TAIL, *columns]
    text = {name: read_column(name, rows, files) for name in columns}
    return pd.DataFrame(text, rows.index)


def _accept_unlisted(problem: pd.Series, codes: pd.Series) -> pd.Series:
    """Return the problems. If a CSV lists masks only, other images have no mask."""
    is_unlisted_file = problem.str.startswith(NO_ROW)
    is_empty = codes[~is_unlisted_file].str.strip().isin(EMPTY_CODES)
    if is_empty.any() or not is_unlisted_file.any():
        return problem
    print(
        f"{is_unlisted_file.sum():,} images have no row in LABELS_CSV, which contains "
        "no empty mask: they are read as images without a mask."
    )
    return problem.mask(is_unlisted_file, "")


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
