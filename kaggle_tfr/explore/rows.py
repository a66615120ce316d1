"""List the rows of CSVs, joined to files by name, and the files without a row."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import csvs
from kaggle_tfr.explore.csvs import SPLIT
from kaggle_tfr.explore.files import Files, name_split
from kaggle_tfr.explore.names import Found, remove_ending
from kaggle_tfr.explore.settings import LABELS_CSV, InputSettings, list_texts
from kaggle_tfr.naming import SPLIT_NAMES

FOLDER = "folder"  # a rule: the folder of the class
NAMES = "names: "  # begins a rule with a regular expression
NONE = "none"  # SPLIT_COLUMN without given splits, not even those of folders
NO_ROW = "no row"  # begins the problem of a file that no CSV lists
MISSING_FILE = "missing file"
SEVERAL_FILES = "several files: "
LINK_PROBLEM = "link leads outside INPUT_DIR"
MAX_TIED = 0.01  # of the rows, whose name several files have
# Columns beside those of the CSV. "/" cannot begin the name of one of its columns.
ID, FILE, PROBLEM, TAIL = "/image_id", "/path", "/problem", "/tail"
NO_ROWS = pd.DataFrame(columns=[ID, FILE, SPLIT, PROBLEM], dtype=str)


def list_rows(files: Files, settings: InputSettings) -> pd.DataFrame:
    """Return the rows of LABELS_CSV and TEST_CSV, and of the files without a row.

    Columns: `ID`; `FILE`, "" if it is missing; `SPLIT`; `PROBLEM`; `TAIL`, the labels
    that end ids, for masks; and those of LABELS_CSV as text.
    Raises: FileNotFoundError, ValueError: a setting does not fit the data.
    """
    if settings.split_column == NONE:
        files = replace(files, splits={})
    labelled = _list_labelled(files, settings)
    rest = sorted(set(files.images).difference(labelled[FILE]))
    in_test_folders = [image for image in rest if files.split_of(image) == "test"]
    # Without a test folder, test images are beside the labelled ones.
    candidates = replace(files, images=in_test_folders or rest)
    tests = _list_tests(candidates, settings.test_csv)
    unlisted = pd.DataFrame({ID: rest, FILE: rest, PROBLEM: ""}, dtype=str)
    if not labelled.empty:
        has_no_row = ~unlisted[FILE].isin(in_test_folders)
        names = ", ".join(list_texts(settings.labels_csv))
        unlisted.loc[has_no_row, PROBLEM] = f"{NO_ROW} in {names}"
    unlisted = unlisted[~unlisted[FILE].isin(tests[FILE])]
    rows = pd.concat([labelled, unlisted, tests], ignore_index=True).fillna("")
    rows.loc[rows[FILE].isin(files.outside), PROBLEM] = LINK_PROBLEM
    of_folder = rows[FILE].map(files.split_of)
    rows[SPLIT] = first_problem(rows[SPLIT], of_folder).replace("", "train")
    return rows


def _list_labelled(files: Files, settings: InputSettings) -> pd.DataFrame:
    """Return the rows of LABELS_CSV. Raises: as `list_rows`."""
    rows = NO_ROWS
    names = list_texts(settings.labels_csv)
    is_default = names == [LABELS_CSV]
    if names and not (is_default and not csvs.is_file(LABELS_CSV, files)):
        rows = _join_csvs(names, files, settings, "LABELS_CSV")
        if rows.empty:
            raise ValueError(
                f"no column of LABELS_CSV {names} contains the names of images such "
                f"as '{files.images[0]}'. Set ID_COLUMN to the column of names, "
                "PATH_TEMPLATE if a name is in several columns, or LABELS_CSV: "
                '"" to leave it out.'
            )
    if settings.split_column == NONE:
        return rows.assign(**{SPLIT: ""})
    if settings.split_column:
        csvs.check_column(settings.split_column, rows, "SPLIT_COLUMN")
    return rows


def _list_tests(files: Files, test_csv: str) -> pd.DataFrame:
    """Return the rows of TEST_CSV, none if it does not exist or names no image."""
    rows = NO_ROWS
    if test_csv and csvs.is_file(test_csv, files):
        rows = _join_csvs([test_csv], files, InputSettings(), "TEST_CSV")
    return rows[list(NO_ROWS)].drop_duplicates(ID).assign(**{SPLIT: "test"})


def _join_csvs(
    csv_names: Sequence[str], files: Files, settings: InputSettings, parameter: str
) -> pd.DataFrame:
    """Return the rows of CSVs, `NO_ROWS` if no column has the names of images.

    Raises: FileNotFoundError; ValueError: a setting does not fit.
    """
    rows = csvs.read_csvs(csv_names, files, parameter)
    id_column = settings.id_column
    if id_column:
        csvs.check_column(id_column, rows, "ID_COLUMN")
    names = _read_names(rows, files, settings)
    key = names.name
    if names.empty:
        return NO_ROWS
    if settings.label_kind == "masks":
        names, tails = csvs.split_tails(names)
        if any(tails):
            rows[TAIL] = tails
    rows[FILE] = names
    _read_splits(rows, settings.split_column)
    if not is_unlisted(settings):
        _find_files(rows, files)
    rows.loc[names == "", PROBLEM] = f"no value for '{key}'"
    rows.loc[rows[csvs.LONG] != "", PROBLEM] = "more cells than the header"

    # An id that several files share is replaced by their paths.
    ids = rows[id_column] if settings.path_template and id_column else names
    is_shared = rows[FILE].groupby(ids).transform("nunique") > 1
    ids = ids.mask(is_shared & (rows[FILE] != ""), rows[FILE])
    rows[ID] = ids.map(storage.escape)
    return rows.drop(columns=[key, id_column], errors="ignore")


def _read_names(rows: pd.DataFrame, files: Files, settings: InputSettings) -> pd.Series:
    """Return the names of the images of rows, or an empty series."""
    template = settings.path_template
    if template:
        return pd.Series(csvs.fill_template(template, rows), name=template)
    column = settings.id_column or csvs.find_ids(rows, files)
    return rows[column] if column else NO_ROWS[ID]


def is_unlisted(settings: InputSettings) -> bool:
    """Return whether PATH_TEMPLATE replaces the listing of a bucket."""
    return storage.is_remote(settings.input_dir) and "/" in settings.path_template


def _read_splits(rows: pd.DataFrame, column: str) -> None:
    """Fill `SPLIT` by SPLIT_COLUMN, else it is that of the CSV; begin `PROBLEM`."""
    rows[PROBLEM] = ""
    if column in rows:
        words = rows[column]
        rows[SPLIT] = words.map(name_split).map(SPLIT_NAMES).fillna("")
        problem = f"not a split in column '{column}': '" + words + "'"
        rows[PROBLEM] = problem.where(rows[SPLIT] == "", "")


def _find_files(rows: pd.DataFrame, files: Files) -> None:
    """Replace the names in `FILE` by those of files, "" for none; add to `PROBLEM`.

    Raises: ValueError: too many names are those of several images.
    """
    # An id is looked up beside its CSV first.
    found = files.names.join(rows[csvs.CSV_FOLDER] + "/" + rows[FILE])
    splits = rows[SPLIT].replace("", "train")
    chosen = [_choose_file(*row, files) for row in zip(found, splits, strict=True)]
    files_of_rows, problems = zip(*chosen, strict=True)
    rows[FILE] = files_of_rows
    problem = pd.Series(problems, rows.index)
    rows[PROBLEM] = first_problem(rows[PROBLEM], problem)
    tied = problem[problem.str.startswith(SEVERAL_FILES)]
    if len(tied) > max(1, MAX_TIED * len(rows)):
        raise ValueError(
            f"{len(tied):,} of {len(rows):,} rows have names of {tied.iloc[0]}. Set "
            "PATTERN to the folder of the images, such as 'train/*', or PATH_TEMPLATE "
            "to the columns of folder and file, such as '{folder}/{file}'."
        )


def _choose_file(alike: Found, split: str, files: Files) -> tuple[str, str]:
    """Return the file of a row, "" for none, and its problem.

    Of several files with its name, the only one in a folder of its split counts.
    """
    if not alike:
        return "", MISSING_FILE
    chosen = list(alike)
    if len(alike) > 1:
        chosen = [file for file in alike if (files.split_of(file) or "train") == split]
    if len(chosen) != 1:
        return "", f"{SEVERAL_FILES}'{alike[0]}', '{alike[1]}'"
    return chosen[0], ""


def first_problem(first: pd.Series, second: pd.Series) -> pd.Series:
    """Return the first problem of each row, else the second."""
    return first.where(first != "", second)


def read_column(rule: str, rows: pd.DataFrame, files: Files) -> pd.Series:
    """Return the text that an entry of LABEL_COLUMN means in each row.

    rule: a column of the CSV; "folder", the folder of the class; "names: REGEX", the
    first parenthesis of a regular expression that is searched in the path of the file
    without its ending. "" if nothing fits.
    Raises: ValueError: there is no such column, or the expression cannot be used.
    """
    if rule in rows:
        return rows[rule]
    if rule == FOLDER:
        return rows[FILE].map(files.class_of)
    if not rule.startswith(NAMES):
        csvs.check_column(rule, rows, "LABEL_COLUMN")
    return match_names(rows[FILE], rule, "LABEL_COLUMN")


def match_names(paths: pd.Series, rule: str, parameter: str) -> pd.Series:
    """Return what the rule "names: REGEX" reads from each path, "" for nothing.

    Raises: ValueError: the expression cannot be used, or matches no path.
    """
    regex = rule.removeprefix(NAMES)
    try:
        names = paths.map(remove_ending).str.extract(regex)[0].fillna("")
    except (ValueError, re.error) as error:
        raise ValueError(
            f"{parameter} '{rule}' needs a regular expression with a parenthesis, as "
            f"in '{NAMES}([^/]+)_[0-9]+$': {error}."
        ) from None
    if (names == "").all():
        raise ValueError(
            f"{parameter} '{rule}' matches none of the {len(paths):,} names, such as "
            f"'{paths.iloc[0]}'. Change the regular expression."
        )
    return names
