"""Read the CSVs that name images: every cell is text, "007" and "NA" as well."""

import fnmatch
import io
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.files import Files, check_link, name_split
from kaggle_tfr.explore.names import AMBIGUOUS, MISSING, FileNames, join_names
from kaggle_tfr.explore.settings import InputSettings, list_texts
from kaggle_tfr.naming import list_fields

TABLE_NAME = re.compile(r"(?i)\.(csv|tsv)$")
# Columns that are added to those of the CSV.
FOLDER_COLUMN = "csv_folder"  # of the CSV, below INPUT_DIR
SPLIT_OF_CSV = "/csv_split"  # by the names of several CSVs
LONG = "/long"  # whether a row has more cells than the header
EXTRA_CELLS = 8  # beyond the header, that a row may have
SAMPLE = 500  # cells of a column that are looked up
MAX_TIED = 0.01  # of the rows, whose name several files have


def read_csvs(
    names: str | Sequence[str], files: Files, settings: InputSettings, parameter: str
) -> pd.DataFrame:
    """Return the rows of CSVs as text, with `FOLDER_COLUMN`, `SPLIT_OF_CSV`, `LONG`.

    names: paths below INPUT_DIR, patterns of them, or paths of CSVs elsewhere.
    Raises: FileNotFoundError; ValueError: a file is not a CSV in UTF-8, or is empty.
    """
    paths = []
    for name in list_texts(names):
        found = find_csvs(name, files, settings.input_dir)
        if not found:
            tables = [path for path in files.others if TABLE_NAME.search(path)]
            raise FileNotFoundError(
                f"there is no '{name}' in '{settings.input_dir}'. Set {parameter} to "
                f"one of its CSVs: {', '.join(tables[:5]) or 'there are none'}."
            )
        paths += found
    tables = []
    for path in paths:
        file = storage.resolve(settings.input_dir, path)
        table = parse_csv(file, settings.input_dir, parameter)
        is_below = path in files.others
        table[FOLDER_COLUMN] = os.path.dirname(path) if is_below else ""
        table[SPLIT_OF_CSV] = _find_split(path) if len(paths) > 1 else ""
        tables.append(table)
    rows = pd.concat(tables, ignore_index=True).fillna("")
    return rows.astype({LONG: bool})


def _find_split(path: str) -> str:
    """Return the split that the name of a CSV contains, such as "train_labels.csv"."""
    stem, _ = os.path.splitext(os.path.basename(path))
    splits = map(name_split, re.split("[ _.-]", stem))
    return next(filter(None, splits), "")


def find_csvs(name: str, files: Files, input_dir: str) -> list[str]:
    """Return the CSVs that a name or pattern means: below INPUT_DIR, or elsewhere."""
    if name in files.others:
        return [name]
    is_elsewhere = storage.OUTSIDE.search(name) or storage.is_remote(input_dir)
    if is_elsewhere and storage.exists(storage.resolve(input_dir, name)):
        return [name]
    return fnmatch.filter(files.others, name)


def parse_csv(path: str, input_dir: str, parameter: str) -> pd.DataFrame:
    """Return the rows of a CSV as text. Its header contains the separator.

    Raises: ValueError: it is not a CSV in UTF-8, or has no row.
    """
    check_link(path, input_dir, parameter)
    data = storage.read_bytes(path)
    try:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # as Excel saves Unicode text
            data = data.decode("utf-16").encode()
        table = parse_text(data)
    except ValueError as error:
        raise ValueError(
            f"{parameter} '{path}' is not a CSV file in UTF-8: {error}. Save it as one."
        ) from None
    if table.empty:
        raise ValueError(
            f"{parameter} '{path}' has a header and no row. Set {parameter} to another "
            "CSV."
        )
    return table


def parse_text(data: bytes, **more: Any) -> pd.DataFrame:
    """Return the cells of a CSV as text, and the column `LONG`.

    Raises: ValueError: the data is not a CSV in UTF-8.
    """
    first_line = data.lstrip(b"\r\n").partition(b"\n")[0]
    separator = max(b",", b";", b"\t", key=first_line.count).decode()
    options: Any = {
        "sep": separator,
        "encoding": "utf-8-sig",
        "dtype": str,
        "keep_default_na": False,
        **more,
    }
    header = pd.read_csv(io.BytesIO(data), nrows=0, **options)
    extra = [f"/{number}" for number in range(EXTRA_CELLS)]
    names = header.columns.astype(str)
    stripped = names.str.strip()
    names = stripped.where(~stripped.duplicated(keep=False), names)
    table = pd.read_csv(
        io.BytesIO(data),
        header=0,
        names=[*names, *extra],
        index_col=False,
        low_memory=False,
        **options,
    )
    is_long = (table[extra].fillna("") != "").any(axis=1)
    return table[names].fillna("").assign(**{LONG: is_long})


def check_column(name: str, rows: pd.DataFrame, parameter: str) -> None:
    """Raise a ValueError that lists the columns unless the CSV has this one."""
    if name not in rows:
        listed = [
            f"{column} ({count})"
            for column, count in rows.nunique().items()
            if str(column)[0] != "/" and column != FOLDER_COLUMN
        ]
        raise ValueError(
            f"{parameter} is '{name}', which is not a column. Set it to one of these, "
            f"with their numbers of values: {', '.join(listed)}."
        )


def find_ids(
    rows: pd.DataFrame, images: FileNames, *, of_masks: bool
) -> tuple[str, bool]:
    """Return the column whose cells are the names of most images, "" for none.

    Also whether a label follows each name, as in "0011165.jpg_Fish" of masks.
    Raises: ValueError: the CSV has no header.
    """
    sample = rows.iloc[:: max(1, len(rows) // SAMPLE)]
    best = ("", False)
    most_found = 0
    for column in sample.columns[~sample.columns.str.startswith("/")]:
        cells = sample[column]
        forms = {False: cells}
        if of_masks:
            forms[True] = cells.str.rpartition("_")[0]
        for has_tails, names in forms.items():
            unique = names[names != ""].unique()
            n_found = int((join_names(unique, images) != MISSING).sum())
            if n_found > max(most_found, len(unique) / 2):
                best = (str(column), has_tails)
                most_found = n_found
    column, _ = best
    if re.search(r"[\d.]", column) and join_names([column], images)[0] != MISSING:
        raise ValueError(
            f"the first row of the CSV names the image '{column}', so its header is "
            "missing. Add a first line such as: image_id,label"
        )
    return best


def fill_template(template: str, rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the text of PATH_TEMPLATE for each row and "", or "" and its problem.

    Raises: ValueError: the template does not fit the columns.
    """
    fields = list_fields(template)
    columns = list(dict.fromkeys(re.split(r"[.\[]", field)[0] for field in fields))
    for column in columns:
        check_column(column, rows, f"a field of PATH_TEMPLATE '{template}'")
    names = pd.Series("", rows.index)
    problem = pd.Series("", rows.index)
    for column in columns[::-1]:
        if column == FOLDER_COLUMN:  # "" at the top
            continue
        problem[rows[column] == ""] = f"no value in column '{column}'"
    try:
        texts = [_format_row(template, row) for row in rows[columns].to_dict("records")]
    except ValueError as error:
        raise ValueError(
            f"PATH_TEMPLATE '{template}': {error}. Cells are text; an id is found with "
            "and without the zeros that begin a number, so {id} is enough."
        ) from None
    names = pd.Series(texts, rows.index, dtype=str)
    is_short = (names == "") & (problem == "")
    problem[is_short] = "id too short for PATH_TEMPLATE"
    return names.where(problem == "", ""), problem


def _format_row(template: str, row: dict) -> str:
    """Return the text of a template, "" if a cell is shorter than a field needs."""
    try:
        return template.format_map(row)
    except IndexError:
        return ""


def find_images(names: pd.Series, splits: pd.Series, files: Files) -> pd.DataFrame:
    """Return the image of each row by its name ("" if it is missing), and its problem.

    splits: of each row, "" if it is not known. Of several images with a name, the one
    in the folder of the row's split counts, else the one outside of all splits.
    Raises: ValueError: too many names are those of several images.
    """
    images = files.images
    unique = names[names != ""].unique()
    joined = pd.Series(join_names(unique, files.names), unique, dtype=int)
    position = names.map(joined).fillna(MISSING).astype(int)
    tied = position == AMBIGUOUS
    if tied.any():
        position = _decide_by_split(position, names, splits, files)
        tied = position == AMBIGUOUS
    paths = np.array([*images, ""], object)  # the last one is for `MISSING`
    problem = pd.Series("", names.index).mask(position == MISSING, "missing file")
    if tied.any():
        problem[tied] = _explain_ties(names[tied], images, len(names))
    position = position.mask(tied, MISSING)
    table = pd.DataFrame({"file": paths[position.to_numpy()], "problem": problem})
    return _find_without_ending(table, names, files)


def _decide_by_split(
    position: pd.Series, names: pd.Series, splits: pd.Series, files: Files
) -> pd.Series:
    """Return the positions; of several images the one in the row's split counts."""
    position = position.copy()
    split_of_image = np.array([files.split_of(image) for image in files.images])
    for split, tied in names[position == AMBIGUOUS].groupby(splits):
        for wanted in (split, ""):
            chosen = np.flatnonzero(split_of_image == wanted)
            subset = [files.images[place] for place in chosen]
            found = join_names(tied, subset)
            position[tied.index[found >= 0]] = chosen[found[found >= 0]]
            tied = tied[found < 0]
    return position


def _explain_ties(tied: pd.Series, images: Sequence[str], n_rows: int) -> str:
    """Return the problem of rows whose name several images have.

    Raises: ValueError: there are too many such rows.
    """
    name = tied.iloc[0]
    alike = [image for image in images if join_names([name], [image])[0] >= 0]
    if len(tied) > max(1, MAX_TIED * n_rows):
        folder = os.path.dirname(alike[0])
        raise ValueError(
            f"{len(tied):,} of {n_rows:,} rows name several images: '{name}' is "
            f"'{alike[0]}' and '{alike[1]}'. Set PATTERN to the folder of the images, "
            f"as '{folder}/*', or PATH_TEMPLATE to columns that name folder and file, "
            "as '{folder}/{file}'."
        )
    return f"several files: '{alike[0]}', '{alike[1]}'"


def _find_without_ending(
    table: pd.DataFrame, names: pd.Series, files: Files
) -> pd.DataFrame:
    """Return the table with files that the CSV names, although not called like images.

    Their ids are their whole names, such as "scan" or "1.dcm".
    """
    missing = names[(table["problem"] == "missing file") & (names != "")]
    others = [path for path in files.others if not TABLE_NAME.search(path)]
    if missing.empty or not others:
        return table
    position = join_names(missing, others)
    is_found = position >= 0
    rows = missing.index[is_found]
    table.loc[rows, "file"] = np.array(others, object)[position[is_found]]
    table.loc[rows, "problem"] = ""
    return table
