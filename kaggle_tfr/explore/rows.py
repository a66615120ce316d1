"""Read CSVs, join their rows to files by name, and list the files without a row.

Every cell of a CSV is text, "007" and "NA" as well.
"""

import csv
import io
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.files import (
    Files,
    Found,
    check_link,
    name_split,
    remove_ending,
)
from kaggle_tfr.explore.settings import LABELS_CSV, InputSettings, list_texts
from kaggle_tfr.naming import SPLIT_NAMES, SUBMISSION, list_fields

FOLDER = "folder"  # a rule: the folder of the class
NAMES = "names: "  # begins a rule with a regular expression
NONE = "none"  # SPLIT_COLUMN without given splits, not even those of folders
NO_ROW = "no row"  # begins the problem of a file that no CSV lists
MISSING_FILE = "missing file"
LINK_PROBLEM = "link leads outside INPUT_DIR"
MAX_TIED = 0.01  # of the rows, whose name several files have
SAMPLE = 500  # cells of a column that are looked up
TABLE_NAME = re.compile(r"(?i)\.(csv|tsv)$")
# Columns beside those of the CSV: "/" cannot begin the name of one of its columns.
ID, FILE, SPLIT, PROBLEM, TAIL = "/image_id", "/path", "/split", "/problem", "/tail"
# The folder of the CSV, and what a row has after the cells of the header.
CSV_FOLDER, LONG = "/folder", "/long"
OF_CSV = "^[^/]"  # matches the columns of the CSV
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
    in_test_folders = list(filter(files.is_test, rest))
    # Without a test folder, test images are beside the labelled ones.
    candidates = replace(files, images=in_test_folders or rest)
    tests = _list_tests(candidates, settings.test_csv)
    unlisted = pd.DataFrame({ID: rest, FILE: rest, PROBLEM: ""}, dtype=str)
    if not labelled.empty:
        has_no_row = ~unlisted[FILE].isin(in_test_folders)
        unlisted.loc[has_no_row, PROBLEM] = f"{NO_ROW} in {settings.labels_csv}"
    unlisted = unlisted[~unlisted[FILE].isin(tests[FILE])]

    rows = pd.concat([labelled, unlisted, tests], ignore_index=True).fillna("")
    rows.loc[rows[FILE].isin(files.outside), PROBLEM] = LINK_PROBLEM
    of_folder = rows[FILE].map(files.split_of)
    rows[SPLIT] = first_problem(rows[SPLIT], of_folder).replace("", "train")
    return rows


def _list_labelled(files: Files, settings: InputSettings) -> pd.DataFrame:
    """Return the rows of LABELS_CSV. Raises: as `list_rows`."""
    rows = NO_ROWS
    names = _list_csvs(settings.labels_csv, files)
    if names:
        rows = _join_csvs(read_csvs(names, files, "LABELS_CSV"), files, settings)
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
        check_column(settings.split_column, rows, "SPLIT_COLUMN")
    return rows


def _list_tests(files: Files, test_csv: str) -> pd.DataFrame:
    """Return the rows of TEST_CSV, none if it does not exist or names no image."""
    rows = NO_ROWS
    names = _list_csvs(test_csv, files)
    if names:
        rows = _join_csvs(read_csvs(names, files, "TEST_CSV"), files, InputSettings())
    return rows[list(NO_ROWS)].drop_duplicates(ID).assign(**{SPLIT: "test"})


def _list_csvs(names: str | Sequence[str], files: Files) -> list[str]:
    """Return the CSVs of a parameter, without a default that does not exist."""
    return [
        name
        for name in list_texts(names)
        if name not in (LABELS_CSV, SUBMISSION)
        or storage.exists(storage.resolve(files.folder, name))
    ]


def read_csvs(names: Sequence[str], files: Files, parameter: str) -> pd.DataFrame:
    """Return the rows of CSVs as text, with `CSV_FOLDER`, `SPLIT` and `LONG`.

    names: paths below INPUT_DIR, or of CSVs elsewhere; several give splits.
    Raises: FileNotFoundError; ValueError: a file is not a CSV in UTF-8.
    """
    tables = []
    for name in names:
        table = _read_csv(name, files, parameter)
        table[CSV_FOLDER] = os.path.dirname(name)
        table[SPLIT] = find_split(name) if len(names) > 1 else ""
        tables.append(table)
    return pd.concat(tables, ignore_index=True).fillna("")


def _read_csv(name: str, files: Files, parameter: str) -> pd.DataFrame:
    """Return the rows of a CSV that are not blank. Raises: as `read_csvs`."""
    file = storage.resolve(files.folder, name)
    if not storage.exists(file):
        known = list(filter(TABLE_NAME.search, files.others))
        raise FileNotFoundError(
            f"there is no '{name}' in '{files.folder}'. Set {parameter} to one of "
            f"its CSVs: {', '.join(known)}."
        )
    check_link(file, files.folder, parameter)
    try:
        table = parse_text(storage.read_bytes(file))
    except ValueError as error:
        raise ValueError(
            f"{parameter} '{file}' is not a CSV file in UTF-8: {error}."
        ) from None
    return table[(table != "").any(axis=1)]


def find_split(path: str) -> str:
    """Return the first split in the path of a CSV, as of train_labels.csv, or ""."""
    return next(filter(None, map(name_split, re.split("[/ _.-]", path))), "")


def parse_text(data: bytes) -> pd.DataFrame:
    """Return the cells of a CSV in UTF-8 as text, "" for none, and the column `LONG`.

    The separator is the most frequent one in the header. A blank line is a row.
    Raises: ValueError: the data is no such CSV.
    """
    text = data.decode("utf-8-sig")
    first_line = re.sub('"[^"]*"', "", text.lstrip().partition("\n")[0])
    separator = max(",", ";", "\t", key=first_line.count)
    csv.field_size_limit(sys.maxsize)  # masks are long
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    header = next(filter(None, lines), [])
    names = [name.strip() or f"/{number}" for number, name in enumerate(header)]
    if len(set(names)) < len(names):
        raise ValueError("several columns have the same name")
    cells = pd.DataFrame(list(lines)).reindex(columns=range(len(names) + 1))
    return cells.fillna("").astype(str).set_axis([*names, LONG], axis=1)


def check_column(name: str, rows: pd.DataFrame, parameter: str) -> None:
    """Raise a ValueError that lists the columns unless the CSV has this one."""
    if name not in rows:
        counts = rows.filter(regex=OF_CSV).nunique()
        listed = ", ".join(f"{column} ({n})" for column, n in counts.items())
        raise ValueError(
            f"{parameter} is '{name}', which is not a column. Set it to one of these, "
            f"with their numbers of values: {listed or 'there are none'}."
        )


def find_ids(rows: pd.DataFrame, files: Files) -> str:
    """Return the column whose cells are the names of most images, "" for none.

    Raises: ValueError: the CSV has no header.
    """
    images = set(files.images)
    sample = rows.iloc[:: max(1, len(rows) // SAMPLE)]
    best = ""
    most_found = 0
    for column in map(str, sample.filter(regex=OF_CSV)):
        names, _ = _split_tails(sample[column])
        unique = names[names != ""].unique()
        found = files.names.join(unique)
        n_images = sum(not images.isdisjoint(alike) for alike in found)
        if n_images > max(most_found, len(unique) / 2):
            best = column
            most_found = n_images
    if re.search(r"[\d.]", best) and any(files.names.join([best])):
        raise ValueError(
            f"the first row of the CSV names the image '{best}', so its header is "
            "missing. Add a first line such as: image_id,label"
        )
    return best


def _split_tails(names: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return names and the labels that end them, as in "0011165.jpg_Fish", or ""."""
    halves = names.str.extract(r"(.+\.[A-Za-z]{3,4})_([^_.]*)$")
    return halves[0].fillna(names), halves[1].fillna("")


def _join_csvs(
    rows: pd.DataFrame, files: Files, settings: InputSettings
) -> pd.DataFrame:
    """Return the rows of CSVs with their files and problems.

    They are `NO_ROWS` if no column has the names of images.
    Raises: ValueError: a setting does not fit.
    """
    names = _read_names(rows, files, settings)
    key = names.name
    if names.empty:
        return NO_ROWS
    if settings.label_kind == "masks":
        names, tails = _split_tails(names)
        if any(tails):
            rows[TAIL] = tails

    rows[FILE] = names
    splits = settings.split_column
    if splits in rows:
        rows[SPLIT] = rows[splits].map(name_split).map(SPLIT_NAMES).fillna("")
    _find_files(rows, files)
    if splits in rows:
        problem = f"not a split in column '{splits}': '" + rows[splits] + "'"
        rows[PROBLEM] = rows[PROBLEM].mask(rows[SPLIT] == "", problem)
    rows.loc[names == "", PROBLEM] = f"no value for '{key}'"
    rows.loc[rows[LONG] != "", PROBLEM] = "more cells than the header"

    id_column = settings.id_column
    ids = rows[id_column] if settings.path_template and id_column else names
    rows[ID] = _make_unique(ids, rows[FILE])
    return rows.drop(columns=[key, id_column], errors="ignore")


def _read_names(rows: pd.DataFrame, files: Files, settings: InputSettings) -> pd.Series:
    """Return the names of the images of rows, or an empty series."""
    column = settings.id_column
    if column:
        check_column(column, rows, "ID_COLUMN")
    template = settings.path_template
    if template:
        return pd.Series(_fill_template(template, rows), name=template)
    column = column or find_ids(rows, files)
    return rows[column] if column else NO_ROWS[ID]


def _fill_template(template: str, rows: pd.DataFrame) -> list[str]:
    """Return the name of each row by PATH_TEMPLATE, "" if a cell is empty.

    Raises: ValueError: the template does not fit the columns.
    """
    fields = sorted(set(list_fields(template)))
    for field in fields:
        check_column(field, rows, f"a field of PATH_TEMPLATE '{template}'")
    try:
        return [
            template.format_map(row) if all(row.values()) else ""
            for row in rows[fields].to_dict("records")
        ]
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"PATH_TEMPLATE '{template}': {error}. Cells are text: leave the "
            "format out."
        ) from None


def _find_files(rows: pd.DataFrame, files: Files) -> None:
    """Replace the names in `FILE` by those of files, "" for none; begin `PROBLEM`.

    Raises: ValueError: too many names are those of several images.
    """
    # An id is looked up beside its CSV first.
    joined = files.names.join(rows[CSV_FOLDER] + "/" + rows[FILE])
    splits = rows[SPLIT].replace("", "train")
    pairs = zip(joined, splits, strict=True)
    found = pd.Series([_fit_split(*pair, files) for pair in pairs], rows.index)
    n_files = found.str.len()
    rows[FILE] = found.str[0].where(n_files == 1, "")
    rows[PROBLEM] = n_files.map({0: MISSING_FILE}).fillna("")

    tied = found[n_files > 1]
    for row, alike in tied.items():
        rows.loc[row, PROBLEM] = f"several files: '{alike[0]}', '{alike[1]}'"
    if len(tied) > max(1, MAX_TIED * len(rows)):
        problem = rows[PROBLEM][tied.index[0]]
        raise ValueError(
            f"{len(tied):,} of {len(rows):,} rows have names of {problem}. Set "
            "PATTERN to the folder of the images, such as 'train/*', or PATH_TEMPLATE "
            "to the columns of folder and file, such as '{folder}/{file}'."
        )


def _fit_split(alike: Found, split: str, files: Files) -> Found:
    """Return the only one of several files in a folder of a split, else all files."""
    if len(alike) > 1:
        fitting = [file for file in alike if (files.split_of(file) or "train") == split]
        if len(fitting) == 1:
            return tuple(fitting)
    return alike


def _make_unique(ids: pd.Series, file: pd.Series) -> pd.Series:
    """Return the ids; one that several files share is replaced by their paths."""
    is_shared = file.groupby(ids).transform("nunique") > 1
    return ids.mask(is_shared & (file != ""), file).map(storage.escape)


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
        check_column(rule, rows, "LABEL_COLUMN")
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
