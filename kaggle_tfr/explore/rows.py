"""List the rows of CSVs, joined to files by name, and the files without a row."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import csvs
from kaggle_tfr.explore.files import Files, name_split
from kaggle_tfr.explore.names import AMBIGUOUS, NOT_FOUND, join_names, remove_ending
from kaggle_tfr.explore.settings import LABELS_CSV, InputSettings, list_texts
from kaggle_tfr.naming import SPLIT_NAMES

FOLDER = "folder"  # a rule: the folder of the class
NAMES = "names: "  # begins a rule with a regular expression
NONE = "none"  # SPLIT_COLUMN without given splits, not even those of folders
NO_ROW = "no row"  # begins the problem of a file that no CSV lists
MISSING_FILE = "missing file"
LINK_PROBLEM = "link leads outside INPUT_DIR"
MAX_TIED = 0.01  # of the rows, whose name several files have
# Columns beside those of the CSV. "/" cannot begin the name of one of its columns.
SPLIT = csvs.SPLIT
ID, FILE, PROBLEM, TAIL = "/image_id", "/path", "/problem", "/tail"
NO_ROWS = pd.DataFrame(columns=[ID, FILE, SPLIT, PROBLEM], dtype=str)


def list_rows(files: Files, settings: InputSettings) -> pd.DataFrame:
    """Return the rows of LABELS_CSV and TEST_CSV, and of the files without a row.

    Columns: `ID`; `FILE`, "" if it is missing; `SPLIT`; `PROBLEM`; `TAIL`, the labels
    that end ids, if they do; and those of LABELS_CSV as text.
    Raises: FileNotFoundError, ValueError: a setting does not fit the data.
    """
    names = ", ".join(list_texts(settings.labels_csv))
    labelled = NO_ROWS
    if names == LABELS_CSV and not csvs.find_csvs(names, files, settings.input_dir):
        names = ""  # the default
    if names:
        labelled = _join_csv(settings.labels_csv, files, settings)
        if labelled.empty:
            raise ValueError(
                f"no column of LABELS_CSV '{names}' contains the names of images such "
                f"as '{files.images[0]}'. Set ID_COLUMN to the column of names, "
                "PATH_TEMPLATE if a name is in several columns, or LABELS_CSV: "
                '"" to leave it out.'
            )
    if settings.split_column not in ("", NONE):
        csvs.check_column(settings.split_column, labelled, "SPLIT_COLUMN")
    rest = sorted(set(files.images).difference(labelled[FILE].to_numpy()))
    in_test_folders = [image for image in rest if files.split_of(image) == "test"]
    # Without a test folder, test images are beside the labelled ones.
    beside = rest if names else []
    tests = _list_tests(replace(files, images=in_test_folders or beside), settings)

    rest = sorted(set(rest).difference(tests[FILE]))
    problem = f"{NO_ROW} in {names}" if names else ""
    unlisted = pd.DataFrame({ID: rest, FILE: rest, PROBLEM: problem}, dtype=str)
    unlisted.loc[unlisted[FILE].isin(in_test_folders), PROBLEM] = ""
    rows = pd.concat([labelled, unlisted, tests], ignore_index=True).fillna("")
    rows.loc[rows[FILE].isin(files.outside), PROBLEM] = LINK_PROBLEM
    if settings.split_column != NONE:
        of_folder = [files.split_of(file) for file in rows[FILE].to_numpy()]
        rows[SPLIT] = rows[SPLIT].where(rows[SPLIT] != "", of_folder)
    rows[SPLIT] = rows[SPLIT].replace("", "train")
    return rows


def _list_tests(files: Files, settings: InputSettings) -> pd.DataFrame:
    """Return the rows of TEST_CSV, none if it does not exist or names no image."""
    name = settings.test_csv
    if not (files.images and name and csvs.find_csvs(name, files, settings.input_dir)):
        return NO_ROWS
    settings = replace(settings, id_column="", path_template="", split_column="")
    tests = _join_csv(name, files, settings, "TEST_CSV")
    if tests.empty:
        print(f"TEST_CSV '{name}' names no image, so it is not used.")
    return tests[list(NO_ROWS)].drop_duplicates(ID).assign(**{SPLIT: "test"})


def _join_csv(
    name: str | Sequence[str],
    files: Files,
    settings: InputSettings,
    parameter: str = "LABELS_CSV",
) -> pd.DataFrame:
    """Return the rows of CSVs, `NO_ROWS` if no column has the names of images.

    Raises: FileNotFoundError; ValueError: a setting does not fit.
    """
    rows = csvs.read_csvs(name, files, settings.input_dir, parameter)
    key, has_tails = _find_names(rows, files, settings)
    if not key:
        return NO_ROWS
    names = rows[key]
    ids = rows[settings.id_column or key]
    if has_tails:
        halves = names.str.rpartition("_")  # such as 0011165.jpg_Fish
        ids = names = halves[0]
        rows[TAIL] = halves[2]
    split_problem = _read_splits(rows, settings)
    found = pd.DataFrame({"file": names, "problem": ""})
    if not is_unlisted(settings):
        # An id is looked up beside its CSV first.
        paths = rows[csvs.CSV_FOLDER] + "/" + names
        found = find_images(paths, rows[SPLIT].replace("", "train"), files)
    rows[FILE] = found["file"]
    problem = first_problem(split_problem, found["problem"])
    problem = problem.mask(names == "", f"no value for '{key}'")
    rows[PROBLEM] = problem.mask(rows[csvs.LONG] != "", "more cells than the header")
    # An id that several files share is replaced by their paths.
    repeated = rows[FILE][ids.duplicated(keep=False)].replace("", None)
    is_shared = repeated.groupby(ids).transform("nunique") > 1
    ids.update(repeated[is_shared])
    rows[ID] = ids.str.replace("\0", "\\x00", regex=False)
    return rows.drop(columns=[key, settings.id_column], errors="ignore")


def _find_names(
    rows: pd.DataFrame, files: Files, settings: InputSettings
) -> tuple[str, bool]:
    """Return the column of the names of images, "" for none.

    Also whether they end in labels. The names by PATH_TEMPLATE become a column.
    """
    key = settings.id_column
    if key:
        csvs.check_column(key, rows, "ID_COLUMN")
    if template := settings.path_template:
        named = rows.assign(image_id=rows[key]) if key else rows
        rows[template] = csvs.fill_template(template, named)
        return template, False
    candidates = rows[[key]] if key else rows
    of_masks = settings.label_kind == "masks"
    found, has_tails = csvs.find_ids(candidates, files, of_masks=of_masks)
    return key or found, has_tails


def is_unlisted(settings: InputSettings) -> bool:
    """Return whether PATH_TEMPLATE replaces the listing of a bucket."""
    return storage.is_remote(settings.input_dir) and "/" in settings.path_template


def find_images(names: pd.Series, splits: pd.Series, files: Files) -> pd.DataFrame:
    """Return the file of each row by its name ("" if it is missing), and its problem.

    Of several images with a name, the one in the folder of the row's split counts,
    else the one outside of all splits.
    Raises: ValueError: too many names are those of several images.
    """
    codes, unique = pd.factorize(names)
    position = pd.Series(join_names(unique, files.names)[codes], names.index)
    tied = names[position == AMBIGUOUS]
    images = files.images if len(tied) else []
    split_of = np.array(list(map(files.split_of, images)))
    for split, group in tied.groupby(splits):
        for wanted in ("", split):
            chosen = np.flatnonzero(split_of == wanted)
            found = join_names(group, [images[place] for place in chosen.tolist()])
            position[group.index[found >= 0]] = chosen[found[found >= 0]]

    paths = np.array([*files.images, *files.others, "", ""], object)
    problem = pd.Series("", names.index).mask(position == NOT_FOUND, MISSING_FILE)
    tied = names[position == AMBIGUOUS]
    if len(tied):
        problem[tied.index] = _explain_ties(tied, images, len(names))
    return pd.DataFrame({"file": paths[position], "problem": problem})


def _explain_ties(tied: pd.Series, images: Sequence[str], n_rows: int) -> str:
    """Return the problem of rows whose name several images have.

    Raises: ValueError: there are too many such rows.
    """
    name = tied.iloc[0]
    alike = [image for image in images if join_names([name], [image])[0] >= 0]
    problem = f"several files: '{alike[0]}', '{alike[1]}'"
    if len(tied) > max(1, MAX_TIED * n_rows):
        raise ValueError(
            f"{len(tied):,} of {n_rows:,} rows have names of {problem}. Set PATTERN to "
            f"the folder of the images, as '{os.path.dirname(alike[0])}/*', or "
            "PATH_TEMPLATE to the columns of folder and file, as '{folder}/{file}'."
        )
    return problem


def _read_splits(rows: pd.DataFrame, settings: InputSettings) -> pd.Series:
    """Fill `SPLIT` by SPLIT_COLUMN, else it is that of the CSV; return the problems."""
    column = settings.split_column
    problem = pd.Series("", rows.index)
    if column == NONE:
        rows[SPLIT] = ""
    elif column:
        csvs.check_column(column, rows, "SPLIT_COLUMN")
        words = rows[column]
        rows[SPLIT] = words.map(name_split).map(SPLIT_NAMES).fillna("")
        problem[rows[SPLIT] == ""] = (
            f"not a split in column '{column}': '" + words + "'"
        )
    return problem


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
    if rule not in rows and rule == FOLDER:
        return rows[FILE].map(files.class_of)
    if rule not in rows and rule.startswith(NAMES):
        return match_names(rows[FILE], rule, "LABEL_COLUMN")
    csvs.check_column(rule, rows, "LABEL_COLUMN")
    return rows[rule]


def match_names(paths: pd.Series, rule: str, parameter: str) -> pd.Series:
    """Return what the rule "names: REGEX" reads from each path, "" for nothing.

    Raises: ValueError: the expression cannot be used, or matches no path.
    """
    try:
        found = paths.map(remove_ending).str.extract(rule.removeprefix(NAMES))
    except (ValueError, re.error) as error:
        raise ValueError(
            f"{parameter} '{rule}' needs a regular expression with a parenthesis, as "
            f"in '{NAMES}([^/]+)_[0-9]+$': {error}."
        ) from None
    names = found[0].fillna("")
    if (names == "").all():
        raise ValueError(
            f"{parameter} '{rule}' matches none of the {len(paths):,} names, such as "
            f"'{paths.iloc[0]}'. Change the regular expression."
        )
    return names
