"""Read CSVs, join their rows to files by name, and list the files without a row.

Every cell of a CSV is text, "007" and "NA" as well.
"""

import csv
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.files import Files, list_texts, name_split, remove_ending
from kaggle_tfr.naming import SPLIT_NAMES, list_fields
from kaggle_tfr.parameters import DEFAULTS, Values

FOLDER = "folder"  # a rule: the folder of the class
NAMES = "names: "  # begins a rule with a regular expression
NONE = "none"  # SPLIT_COLUMN without given splits, not even those of folders
NO_ROW = "no row"  # begins the problem of a file that no CSV lists
SEVERAL_FILES = "several files"
LINK_PROBLEM = "link leads outside INPUT_DIR"
# Columns beside those of the CSV, whose names are assumed not to begin with "/".
ID, FILE, SPLIT, PROBLEM, TAIL = "/image_id", "/path", "/split", "/problem", "/tail"
# The folder of the CSV, and the first cell of a row beyond the header.
CSV_FOLDER, LONG = "/folder", "/long"
OF_CSV = "^[^/]"  # matches the columns of the CSV
NO_ROWS = pd.DataFrame(columns=[ID, FILE, SPLIT, PROBLEM], dtype=str)


def list_rows(files: Files, settings: Values) -> pd.DataFrame:
    """Return the rows of LABELS_CSV and TEST_CSV, and of the files without a row.

    Columns: `ID`; `FILE`, below INPUT_DIR, "" if it is missing; `SPLIT`; `PROBLEM`, ""
    for none; for masks `TAIL`, a label after the file's name, if the CSV has them
    ("Fish" of "0011165.jpg_Fish"); and those of LABELS_CSV as text. The names in these
    constants begin with "/", so that they differ from those of the CSV.
    Raises: FileNotFoundError, ValueError: a setting does not fit the data.
    """
    if settings["SPLIT_COLUMN"] == NONE:  # "none": not even the splits of folders
        files = replace(files, splits={})
    labelled = _list_labelled(files, settings)
    listed = set(labelled[FILE]) - {""}
    tests = _list_tests(files, settings, listed)
    # Without a LABELS_CSV, a file without a row is not a problem.
    no_row = "" if labelled.empty else f"{NO_ROW} in {settings['LABELS_CSV']}"
    unlisted = _list_unlisted(files, listed.union(tests[FILE]), no_row)

    rows = pd.concat([labelled, unlisted, tests], ignore_index=True).fillna("")
    rows.loc[rows[FILE].isin(files.outside), PROBLEM] = LINK_PROBLEM
    of_folder = rows[FILE].map(files.split_of)
    # The split of the CSV, or that of the folder, or train. `first_problem` returns the
    # first text that is not "", also of splits.
    rows[SPLIT] = first_problem(rows[SPLIT], of_folder).replace("", "train")
    return rows


def _list_unlisted(files: Files, listed: set[str], problem: str) -> pd.DataFrame:
    """Return the rows of the images that no CSV lists, sorted, with their path as id.

    Columns: `ID`, `FILE`, `PROBLEM`.
    listed: files with a row. problem: of the rows that are returned; "" in test
    folders, whose images need no row.
    """
    rest = sorted(set(files.images).difference(listed))
    problems = ["" if files.split_of(name) == "test" else problem for name in rest]
    return pd.DataFrame({ID: rest, FILE: rest, PROBLEM: problems}, dtype=str)


def _list_labelled(files: Files, settings: Values) -> pd.DataFrame:
    """Return the rows of LABELS_CSV, joined to their files; none without a LABELS_CSV.

    The default, "train.csv", may be missing.
    Columns: as `_join_csvs`. Raises: as `list_rows`, also if no column names images.
    """
    cells = read_csvs(settings["LABELS_CSV"], files)
    rows = _join_csvs(cells, files, settings)
    if rows.empty and CSV_FOLDER in cells:  # a CSV was read
        raise ValueError(
            f"no column of LABELS_CSV '{settings['LABELS_CSV']}' contains the names of "
            f"images such as '{files.images[0]}'. Set ID_COLUMN to the column of "
            "names, PATH_TEMPLATE if a name is in several columns, or LABELS_CSV: "
            '"" to leave it out.'
        )
    return rows


def _list_tests(files: Files, settings: Values, listed: set[str]) -> pd.DataFrame:
    """Return the rows of TEST_CSV whose files are not listed.

    Columns: `ID`, `FILE`, `SPLIT` ("test"), `PROBLEM`. There are none if TEST_CSV does
    not exist or names no image. Of rows with one id, the first counts: for masks, an
    image has a row for each label ("1.jpg_Fish").
    listed: files with a row in LABELS_CSV.
    """
    cells = read_csvs(settings["TEST_CSV"], files)
    cells[SPLIT] = "test"
    # Otherwise with the defaults: ID_COLUMN, PATH_TEMPLATE … are those of LABELS_CSV.
    rows = _join_csvs(cells, files, {**DEFAULTS, "LABEL_KIND": settings["LABEL_KIND"]})
    # NO_ROWS is an empty table with the four columns.
    return rows.loc[~rows[FILE].isin(listed), list(NO_ROWS)].drop_duplicates(ID)


def read_csvs(names: str | Sequence[str], files: Files) -> pd.DataFrame:
    """Return the rows of CSVs as text, and what the next steps fill in, as "".

    Columns: `ID`, `FILE`, `SPLIT`, `PROBLEM`, all "" yet; those of the CSVs;
    `CSV_FOLDER`, the folder in the CSV's name; `LONG`, the first cell of a row beyond
    the header. Only the first four if no CSV is read. Blank rows are left out.
    names: paths below INPUT_DIR, or of CSVs elsewhere. A default may be missing.
    Raises: FileNotFoundError; ValueError: a file is not a CSV in UTF-8.
    """
    tables = [NO_ROWS]  # an empty table with the first four columns
    for name in list_texts(names):
        file = storage.resolve(files.folder, name)
        # Such as "train.csv", which LABELS_CSV is without a setting.
        if name in DEFAULTS.values() and not storage.exists(file):
            continue
        with _explain(f"'{file}' is not a CSV file in UTF-8"):
            table = parse_text(storage.read_bytes(file))
        table = table[(table != "").any(axis=1)]
        table[CSV_FOLDER] = os.path.dirname(name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True).fillna("")


@contextmanager
def _explain(problem: str) -> Iterator[None]:
    """Raise a ValueError of this problem in place of an error in the block."""
    try:
        yield
    except (ValueError, LookupError, re.error) as error:
        raise ValueError(f"{problem}: {error}.") from None


def parse_text(data: bytes) -> pd.DataFrame:
    """Return the cells of a CSV in UTF-8 as text, "" for none.

    The last column, `LONG`, has the first cell of a row beyond the header. The
    separator is the most frequent one of comma, semicolon and tab in the header. A
    blank line is a row. A column without a name is called "/" and its number.
    Raises: ValueError: the data is not UTF-8, or two columns have the same name.
    """
    text = data.decode("utf-8-sig")
    # Without quoted names, which may contain separators.
    first_line = re.sub('"[^"]*"', "", text.lstrip().partition("\n")[0])
    separator = max(",;\t", key=first_line.count)
    csv.field_size_limit(sys.maxsize)  # masks are long
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    header = next(filter(None, lines), [])
    names = [name.strip() or f"/{number}" for number, name in enumerate(header)]
    if len(set(names)) < len(names):
        raise ValueError("several columns have the same name")
    # Of rows with more cells than the header, one more is kept: `LONG`.
    cells = pd.DataFrame(list(lines)).reindex(columns=range(len(names) + 1))
    return cells.fillna("").astype(str).set_axis([*names, LONG], axis=1)


def check_column(
    name: str,
    rows: pd.DataFrame,
    parameter: str,
) -> None:
    """Raise a ValueError that lists the columns unless the CSV has this one.

    parameter: whose value `name` is, for the error.
    """
    if name not in rows:
        # Only columns of the CSV, whose names do not begin with "/".
        raise ValueError(
            f"{parameter} is '{name}', which is not a column. Set it to one of these, "
            "with their numbers of values: "
            f"{rows.filter(regex=OF_CSV).nunique().to_dict()}."
        )


def find_ids(rows: pd.DataFrame, files: Files) -> str:
    """Return the column whose cells are the names of most images, "" for none.

    About 500 rows are tried. More than half of a column's different cells must be names
    of images.
    Raises: ValueError: the CSV has no header.
    """
    images = set(files.images)
    sample = rows.iloc[:: max(1, len(rows) // 500)]
    best = ""
    most_found = 0
    for column in map(str, sample.filter(regex=OF_CSV)):
        # Without the label that ends a name in a CSV of masks, as in "1.jpg_Fish".
        names, _ = _split_tails(sample[column])
        unique = names[names != ""].unique()
        # Names of at least one image; other files do not count.
        n_images = sum(map(bool, map(images.intersection, files.join(unique))))
        if n_images > max(most_found, len(unique) / 2):
            best = column
            most_found = n_images
    # A column that is called like a file, such as "0017.jpg", has no header.
    if re.search(r"[\d.]", best) and any(files.join([best])):
        raise ValueError(
            f"the first row of the CSV names the image '{best}', so its header is "
            "missing. Add a first line such as: image_id,label"
        )
    return best


def _split_tails(names: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return the names of images and the labels after them, "" for none.

    "0011165.jpg_Fish" gives "0011165.jpg" and "Fish".
    """
    halves = names.str.extract(r"(?s)^(.+\.[A-Za-z]{3,4})_([^_.]*)$")
    return halves[0].fillna(names), halves[1].fillna("")


def _join_csvs(
    rows: pd.DataFrame,
    files: Files,
    settings: Values,
) -> pd.DataFrame:
    """Return the rows of CSVs with the files that they name.

    `ID`, `FILE`, `SPLIT` and `PROBLEM` are filled in; the columns with the names of
    images and the ids are dropped. For masks, labels after names, such as "Fish" of
    "1.jpg_Fish", become the column `TAIL`. The result is `NO_ROWS`, an empty table, if
    no column has the names of images.
    rows: of `read_csvs`, changed in place.
    Raises: ValueError: a setting does not fit.
    """
    split_column = settings["SPLIT_COLUMN"]
    if split_column not in ("", NONE):
        _read_splits(rows, split_column)  # fills SPLIT and PROBLEM
    # The column with the names of images; that of PATH_TEMPLATE is added to `rows`.
    key = "" if rows.empty else _find_key(rows, files, settings)
    if not key:
        return NO_ROWS
    if settings["LABEL_KIND"] == "masks":
        rows[key], tails = _split_tails(rows[key])
        if any(tails):
            rows[TAIL] = tails

    rows.loc[rows[key] == "", PROBLEM] = f"no value for '{key}'"
    # LONG: the first cell of a row beyond the header.
    rows.loc[rows[LONG] != "", PROBLEM] = "more cells than the header"
    _find_files(rows, key, files)  # fills FILE, and PROBLEM where it is still ""

    id_column = settings["ID_COLUMN"] or key
    rows[ID] = _make_unique(rows[id_column], rows[FILE])
    return rows.drop(columns=[key, id_column])


def _make_unique(ids: pd.Series, file: pd.Series) -> pd.Series:
    """Return the ids of images; rows with different files have different ids.

    An id that several files share is replaced by the path of each file. Bytes that are
    not UTF-8 are escaped.
    file: the path of each row's file below INPUT_DIR; "" for none, whose id stays.
    """
    is_shared = file.groupby(ids).transform("nunique") > 1
    return ids.mask(is_shared & (file != ""), file).map(storage.escape)


def _find_key(
    rows: pd.DataFrame,
    files: Files,
    settings: Values,
) -> str:
    """Return the column with the names of images, "" for none.

    With PATH_TEMPLATE, this column is added to `rows` in place, and called like the
    template. Otherwise it is ID_COLUMN or, without one, found by its cells.
    Raises: ValueError: a setting does not fit.
    """
    column: str = settings["ID_COLUMN"]
    if column:
        check_column(column, rows, "ID_COLUMN")
    template: str = settings["PATH_TEMPLATE"]
    if template:
        rows[template] = _fill_template(template, rows)
    return template or column or find_ids(rows, files)


def _fill_template(template: str, rows: pd.DataFrame) -> list[str]:
    """Return the name of each row's image by PATH_TEMPLATE, "" if a cell is empty.

    Raises: ValueError: the template does not fit the columns.
    """
    fields = sorted(set(list_fields(template)))
    parameter = f"PATH_TEMPLATE '{template}'"
    for field in fields:
        check_column(field, rows, f"a field of {parameter}")
    # A format such as {id:03d} fails, because cells are text.
    with _explain(f"{parameter}, whose cells are text, cannot be filled in"):
        return [
            template.format_map(row) if all(row.values()) else ""
            for row in rows[fields].to_dict("records")
        ]


def _read_splits(rows: pd.DataFrame, column: str) -> None:
    """Fill `SPLIT` in place by SPLIT_COLUMN: train, validation, test.

    Another word becomes "", and the `PROBLEM` of the row.
    Raises: ValueError: there is no such column.
    """
    check_column(column, rows, "SPLIT_COLUMN")
    words = rows[column]
    # "Valid" to "valid", and that to "validation".
    rows[SPLIT] = words.map(name_split).map(SPLIT_NAMES).fillna("")
    rows.loc[rows[SPLIT] == "", PROBLEM] = (
        f"not a split in column '{column}': '" + words + "'"
    )


def _find_files(
    rows: pd.DataFrame,
    key: str,
    files: Files,
) -> None:
    """Fill `FILE` by the names, and `PROBLEM` where there is no file or several.

    An earlier problem of a row stays.
    rows: of `read_csvs`, changed in place. key: the column of the names.
    """
    # Names are looked up beside their CSV first. If few of them are found, `join` tries
    # the others without the folder.
    joined = files.join(rows[CSV_FOLDER] + "/" + rows[key])
    places = zip(joined, rows[CSV_FOLDER], rows[SPLIT], strict=True)
    table = pd.DataFrame([_choose(*place, files) for place in places], rows.index)
    rows[FILE] = table[0]
    rows[PROBLEM] = first_problem(rows[PROBLEM], table[1])


def _choose(
    alike: Sequence[str],
    folder: str,
    split: str,
    files: Files,
) -> tuple[str, str]:
    """Return the file of a row and "", or "" and the problem: no file, or several.

    alike: the files that the name in the row may mean. If these are several, only those
    below the folder of the CSV count, if there are any; of them, only those in a folder
    of the row's split, else only those in no folder of a split, else all.
    split: of the row, "" for train.
    """
    if not alike:
        return "", "missing file"
    if len(alike) > 1:
        below = [file for file in alike if file.startswith(f"{folder}/")] or alike
        split = SPLIT_NAMES[split or "train"]
        of_split = [
            file for file in below if SPLIT_NAMES.get(files.split_of(file)) == split
        ]
        of_none = [file for file in below if not files.split_of(file)]
        alike = of_split or of_none or below
    if len(alike) > 1:
        return "", f"{SEVERAL_FILES}: '{alike[0]}', '{alike[1]}'"
    return alike[0], ""


def first_problem(first: pd.Series, second: pd.Series) -> pd.Series:
    """Return the first text of each row unless it is "", else the second."""
    return first.where(first != "", second)


def read_rule(
    rule: str,
    rows: pd.DataFrame,
    paths: pd.Series,
    folder_of: Callable[[str], str],
    parameter: str,
) -> pd.Series:
    """Return the text that a rule of LABEL_COLUMN or GROUP_COLUMN means in each row.

    rule: a column of the rows; "folder", what `folder_of` returns for a path; "names:
    REGEX", the first parenthesis of a regular expression that is searched in the path
    without its ending. "" if nothing fits.
    paths: of the rows' files, "" for none. parameter: its name, for errors.
    Raises: ValueError: there is no such column, or the expression cannot be used.
    """
    if rule in rows:
        return rows[rule]
    if rule == FOLDER:
        return paths.map(folder_of)
    if not rule.startswith(NAMES):
        check_column(rule, rows, parameter)

    regex = rule.removeprefix(NAMES)
    example = f"{NAMES}([^/]+)_[0-9]+$"
    with _explain(f"{parameter} '{rule}' is not a rule such as '{example}'"):
        names = paths.map(remove_ending).str.extract(regex)[0].fillna("")
    if not any(names):
        raise ValueError(
            f"{parameter} '{rule}' matches none of the {len(paths):,} names, such as "
            f"'{paths.iloc[0]}'. Change the regular expression."
        )
    return names
