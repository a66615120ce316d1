"""List the rows of CSVs, joined to files by name, and the files without a row."""

import os
import re
from dataclasses import replace

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import csvs
from kaggle_tfr.explore.csvs import FOLDER_COLUMN, LONG, SPLIT_OF_CSV
from kaggle_tfr.explore.files import Files, name_split
from kaggle_tfr.explore.names import remove_ending
from kaggle_tfr.explore.settings import LABELS_CSV, InputSettings, list_texts
from kaggle_tfr.naming import SPLIT_NAMES

FOLDER = "folder"  # a rule: the folder of the class
NAMES = "names: "  # begins a rule with a regular expression
NONE = "none"  # SPLIT_COLUMN without given splits, not even those of folders
NO_ROW = "no row"  # begins the problem of a file that no CSV lists
LINK_PROBLEM = "link leads outside INPUT_DIR"
# Columns beside those of the CSV. "/" cannot begin the name of one of its columns.
ID, FILE, SPLIT, PROBLEM, TAIL = "/image_id", "/path", "/split", "/problem", "/tail"
COLUMNS = [ID, FILE, SPLIT, PROBLEM]


def has_csv(files: Files, settings: InputSettings) -> bool:
    """Return whether LABELS_CSV is used; its default is, if the file exists."""
    if settings.labels_csv == LABELS_CSV:
        return bool(csvs.find_csvs(LABELS_CSV, files, settings.input_dir))
    return bool(list_texts(settings.labels_csv))


def list_rows(files: Files, settings: InputSettings) -> pd.DataFrame:
    """Return the rows of LABELS_CSV and TEST_CSV, and of the files without a row.

    Columns: `ID`; `FILE`, "" if it is missing; `SPLIT`; `PROBLEM`; `TAIL`, the labels
    that end ids, if they do; and those of LABELS_CSV as text.
    Raises: FileNotFoundError, ValueError: a setting does not fit the data.
    """
    reads_csv = has_csv(files, settings)
    labelled = pd.DataFrame(columns=COLUMNS, dtype=str)
    if reads_csv:
        labelled = _join_csv(settings.labels_csv, files, settings, "LABELS_CSV")
        _check_found(labelled, files, settings)
    elif settings.split_column not in ("", NONE):
        raise ValueError(
            f"SPLIT_COLUMN is '{settings.split_column}', but there is no CSV with "
            'columns. Set LABELS_CSV, or SPLIT_COLUMN to "".'
        )
    rest = sorted(set(files.images).difference(labelled[FILE]))
    in_test_folders = [image for image in rest if files.split_of(image) == "test"]
    # Without a test folder, test images are beside the labelled ones.
    beside = rest if reads_csv else []
    tests = _list_tests(replace(files, images=in_test_folders or beside), settings)
    rest = sorted(set(rest).difference(tests[FILE]))

    unlisted = pd.DataFrame({ID: rest, FILE: rest, SPLIT: "", PROBLEM: ""}, dtype=str)
    if reads_csv:
        is_test = unlisted[FILE].isin(in_test_folders)
        names = ", ".join(list_texts(settings.labels_csv))
        unlisted.loc[~is_test, PROBLEM] = f"{NO_ROW} in {names}"
    rows = pd.concat([labelled, tests, unlisted], ignore_index=True).fillna("")
    rows.loc[rows[FILE].isin(files.outside), PROBLEM] = LINK_PROBLEM
    return _fill_splits(rows, files, settings)


def _check_found(rows: pd.DataFrame, files: Files, settings: InputSettings) -> None:
    """Raise a ValueError if no row has a file."""
    if rows.empty or (rows[FILE] == "").all():
        key = settings.path_template or settings.id_column
        looked_for = f"no column has the names of images such as '{files.images[0]}'"
        if len(rows):
            looked_for = f"no image is called like '{rows[ID].iloc[0]}' (by {key})"
        raise ValueError(
            f"LABELS_CSV {settings.labels_csv!r}: {looked_for}. Set ID_COLUMN to the "
            'column of names, or LABELS_CSV: "" to read the images without it.'
        )


def _list_tests(files: Files, settings: InputSettings) -> pd.DataFrame:
    """Return the rows of TEST_CSV, none if it does not exist or names no image."""
    tests = pd.DataFrame(columns=COLUMNS, dtype=str)
    name = settings.test_csv
    is_listed = name in list_texts(settings.labels_csv)
    if not name or is_listed or not csvs.find_csvs(name, files, settings.input_dir):
        return tests
    settings = replace(settings, id_column="", path_template="", split_column="")
    rows = _join_csv(name, files, settings, "TEST_CSV")
    if (rows[FILE] == "").all():
        print(f"TEST_CSV '{name}' names no image, so it is not used.")
        return tests
    return rows[COLUMNS].drop_duplicates(ID).assign(**{SPLIT: "test"})


def _join_csv(
    name: str | list[str], files: Files, settings: InputSettings, parameter: str
) -> pd.DataFrame:
    """Return the rows of CSVs with `COLUMNS`; none if no column names images."""
    rows = csvs.read_csvs(name, files, settings, parameter)
    key, has_tails, problem = _find_names(rows, files, settings)
    if not key:
        return rows.assign(**dict.fromkeys(COLUMNS, "")).iloc[:0]
    names = rows[key]
    ids = rows[settings.id_column or key]
    if has_tails:
        halves = names.str.rpartition("_")  # such as 0011165.jpg_Fish
        ids = names = halves[0]
        rows[TAIL] = halves[2]
    rows[SPLIT], split_problem = _read_splits(rows, settings)

    # An id is looked up beside its CSV first.
    folders = rows[FOLDER_COLUMN]
    paths = names.where((folders == "") | (names == ""), folders + "/" + names)
    folder_splits = folders.map(files.splits).fillna("")
    splits = rows[SPLIT].where(rows[SPLIT] != "", folder_splits)
    found = _find_files(paths, splits.replace("", "train"), files, settings)
    rows[FILE] = found["file"]
    rows[PROBLEM] = first_problem(
        pd.Series("more cells than the header", rows.index).where(rows[LONG], ""),
        pd.Series("no id", rows.index).where((names == "") & (problem == ""), ""),
        problem,
        split_problem,
        found["problem"],
    )
    rows[ID] = _make_unique(ids, rows[FILE]).map(storage.escape)
    unused = {LONG, SPLIT_OF_CSV, key, settings.id_column}
    if folders.nunique() < 2:
        unused.add(FOLDER_COLUMN)
    return rows.drop(columns=list(unused & set(rows)))


def _find_names(
    rows: pd.DataFrame, files: Files, settings: InputSettings
) -> tuple[str, bool, pd.Series]:
    """Return the column of the names of images, "" for none; whether they end in
    labels; and the problem of each row.

    The names by PATH_TEMPLATE become a column.
    """
    problem = pd.Series("", rows.index)
    key = settings.id_column
    if key:
        csvs.check_column(key, rows, "ID_COLUMN")
    if template := settings.path_template:
        ids = {"image_id": rows[key]} if key and "image_id" not in rows else {}
        rows[template], problem = csvs.fill_template(template, rows.assign(**ids))
        return template, False, problem
    of_masks = settings.label_kind == "masks"
    if key and not of_masks:
        return key, False, problem
    candidates = rows[[key]] if key else rows.drop(columns=FOLDER_COLUMN)
    found, has_tails = csvs.find_ids(candidates, files.names, of_masks=of_masks)
    return key or found, has_tails, problem


def _find_files(
    names: pd.Series, splits: pd.Series, files: Files, settings: InputSettings
) -> pd.DataFrame:
    """Return the file of each row, and its problem.

    A bucket whose files are not listed has a file for each row, until 01 reads it.
    """
    if is_unlisted(settings):
        return pd.DataFrame({"file": names, "problem": ""})
    return csvs.find_images(names, splits, files)


def is_unlisted(settings: InputSettings) -> bool:
    """Return whether PATH_TEMPLATE replaces the listing of a bucket."""
    return storage.is_remote(settings.input_dir) and "/" in settings.path_template


def _read_splits(
    rows: pd.DataFrame, settings: InputSettings
) -> tuple[pd.Series, pd.Series]:
    """Return the split of each row by SPLIT_COLUMN or by the names of several CSVs,
    "" if neither has one, and its problem.

    Raises: ValueError: there is no such column, or no row is to train on.
    """
    column = settings.split_column
    if column in ("", NONE):
        return rows[SPLIT_OF_CSV], pd.Series("", rows.index)
    csvs.check_column(column, rows, "SPLIT_COLUMN")
    words = rows[column].str.strip()
    split = words.map({word: _name_split(word) for word in words.unique()})
    if not (split != "").any() or set(split) <= {"", "test"}:
        listed = ", ".join(map(repr, words.unique()[:5]))
        raise ValueError(
            f"SPLIT_COLUMN '{column}' has no row to train on: it contains {listed}. "
            "Set it to a column of 'train', 'validation' and 'test', or leave it empty."
        )
    problem = f"column '{column}' contains '" + words + "', which is not a split"
    problem = problem.mask(words == "", f"no split in column '{column}'")
    return split, problem.where(split == "", "")


def _name_split(word: str) -> str:
    """Return "train", "validation" or "test" for a cell, which may be a path."""
    names = map(name_split, reversed(word.rstrip("/").split("/")))
    return SPLIT_NAMES.get(next(filter(None, names), ""), "")


def _fill_splits(
    rows: pd.DataFrame, files: Files, settings: InputSettings
) -> pd.DataFrame:
    """Return the rows; those without a split have that of their folders, or train."""
    is_open = rows[SPLIT] == ""
    if settings.split_column != NONE:
        folders = rows.loc[is_open, FILE].map(os.path.dirname)
        rows.loc[is_open, SPLIT] = folders.map(files.splits).fillna("")
    rows[SPLIT] = rows[SPLIT].replace("", "train")
    return rows


def _make_unique(ids: pd.Series, file: pd.Series) -> pd.Series:
    """Return the ids; one that several files share is replaced by their paths."""
    pairs = pd.DataFrame({"id": ids, "file": file})[file != ""].drop_duplicates()
    shared = pairs["id"][pairs["id"].duplicated()]
    return ids.mask(ids.isin(shared) & (file != ""), file)


def first_problem(*problems: pd.Series) -> pd.Series:
    """Return the first problem of each row that is not ""."""
    first = problems[0]
    for problem in problems[1:]:
        first = first.where(first != "", problem)
    return first


def read_column(
    rule: str, rows: pd.DataFrame, files: Files, parameter: str
) -> pd.Series:
    """Return the text of a column, or what a rule reads from the paths of the files.

    rule: a column of the CSV; "folder", the folder of the class; "names: REGEX", the
    first parenthesis of a regular expression that is searched in the path without its
    ending. "" if nothing fits.
    Raises: ValueError: there is no such column, or the expression cannot be used.
    """
    if rule not in rows and rule == FOLDER:
        return rows[FILE].map(os.path.dirname).map(files.classes)
    if rule not in rows and rule.startswith(NAMES):
        return match_names(rows[FILE], rule, parameter)
    csvs.check_column(rule, rows, parameter)
    return rows[rule]


def match_names(paths: pd.Series, rule: str, parameter: str) -> pd.Series:
    """Return what the rule "names: REGEX" reads from each path, "" for nothing.

    Raises: ValueError: the expression cannot be used, or matches no path.
    """
    pattern = rule.removeprefix(NAMES)
    try:
        found = paths.map(remove_ending).str.extract(pattern)
    except (ValueError, re.error) as error:
        raise ValueError(
            f"{parameter} '{rule}' needs a regular expression with a parenthesis, as "
            f"in '{NAMES}([^/]+)_[0-9]+$': {error}."
        ) from None
    names = found.iloc[:, 0].fillna("")
    if (names == "").all():
        raise ValueError(
            f"{parameter} '{rule}' matches none of the {len(paths):,} names, such as "
            f"'{paths.iloc[0]}'. Change the regular expression."
        )
    return names
