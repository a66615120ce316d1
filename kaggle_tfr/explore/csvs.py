"""Read the CSVs that name images: every cell is text, "007" and "NA" as well."""

import fnmatch
import io
import os
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.files import Files, check_link, name_split
from kaggle_tfr.explore.names import NOT_FOUND, join_names
from kaggle_tfr.explore.settings import list_texts
from kaggle_tfr.naming import list_fields

TABLE_NAME = re.compile(r"(?i)\.(csv|tsv)$")
# Columns that are added: the folder of the CSV below INPUT_DIR, its split, and whether
# a row has more cells than the header. "/" cannot begin a name of the CSV.
CSV_FOLDER, SPLIT, LONG = "/folder", "/split", "/long"
SAMPLE = 500  # cells of a column that are looked up


def read_csvs(
    names: str | Sequence[str], files: Files, input_dir: str, parameter: str
) -> pd.DataFrame:
    """Return the rows of CSVs as text, with the columns that are added.

    names: paths below INPUT_DIR, patterns of them, or paths of CSVs elsewhere.
    Raises: FileNotFoundError; ValueError: a file is not a CSV in UTF-8.
    """
    paths = []
    for name in list_texts(names):
        found = find_csvs(name, files, input_dir)
        if not found:
            known = ", ".join(filter(TABLE_NAME.search, files.others))
            raise FileNotFoundError(
                f"there is no '{name}' in '{input_dir}'. Set {parameter} to one of its "
                f"CSVs: {known or 'there are none'}."
            )
        paths += found
    tables = []
    for path in paths:
        file = storage.resolve(input_dir, path)
        check_link(file, input_dir, parameter)
        try:
            table = parse_text(storage.read_bytes(file))
        except ValueError as error:
            raise ValueError(
                f"{parameter} '{file}' is not a CSV file in UTF-8: {error}. Save it as "
                "one."
            ) from None
        table[CSV_FOLDER] = os.path.dirname(path) if path in files.others else ""
        is_one = len(paths) == 1
        table[SPLIT] = files.split_of(path) if is_one else find_split(path, files)
        tables.append(table)
    return pd.concat(tables, ignore_index=True).fillna("")


def find_split(path: str, files: Files) -> str:
    """Return the split in the name of a CSV, as train_labels.csv, else its folder's."""
    words = re.split("[ _.-]", os.path.basename(path))
    return next(filter(None, map(name_split, words)), files.split_of(path))


def find_csvs(name: str, files: Files, input_dir: str) -> list[str]:
    """Return the CSVs that a name or pattern means: below INPUT_DIR, or elsewhere."""
    matches = [name] if name in files.others else fnmatch.filter(files.others, name)
    if not matches and storage.exists(storage.resolve(input_dir, name)):
        return [name]
    return matches


def parse_text(data: bytes, **more: Any) -> pd.DataFrame:
    """Return the cells of a CSV in UTF-8 or UTF-16 as text, and the column `LONG`.

    The separator is the most frequent one in the header.
    Raises: ValueError: the data is no such CSV.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # as Excel saves Unicode text
        data = data.decode("utf-16").encode()
    first_line = data.lstrip(b"\r\n").partition(b"\n")[0]
    first_line = re.sub(rb'"[^"]*"', b"", first_line)
    separator = max(b",", b";", b"\t", key=first_line.count)
    options: dict[str, Any] = {
        "sep": separator.decode(),
        "encoding": "utf-8-sig",
        "dtype": str,
        "keep_default_na": False,
        **more,
    }
    names = pd.read_csv(io.BytesIO(data), nrows=0, **options).columns.astype(str)
    stripped = names.str.strip()
    names = stripped.where(~stripped.duplicated(keep=False), names)
    # With usecols, a longer row is no error, and its next cell shows that it is long. A
    # row of as many empty cells is before the header, if there should be none.
    file = io.BytesIO(separator * len(names) + b"\n" + data)
    width = range(len(names) + 1)
    cells = pd.read_csv(file, header=None, names=width, usecols=width, **options)
    return cells[2:].set_axis([*names, LONG], axis=1).reset_index(drop=True)


def check_column(name: str, rows: pd.DataFrame, parameter: str) -> None:
    """Raise a ValueError that lists the columns unless the CSV has this one."""
    if name not in rows:
        counts = rows.filter(regex="^[^/]").nunique()
        listed = ", ".join(f"{column} ({n})" for column, n in counts.items())
        raise ValueError(
            f"{parameter} is '{name}', which is not a column. Set it to one of these, "
            f"with their numbers of values: {listed or 'there are none'}."
        )


def find_ids(rows: pd.DataFrame, files: Files, *, of_masks: bool) -> tuple[str, bool]:
    """Return the column whose cells are the names of most images, "" for none.

    Also whether a label follows each name, as in "0011165.jpg_Fish" of masks.
    Raises: ValueError: the CSV has no header.
    """
    sample = rows.iloc[:: max(1, len(rows) // SAMPLE)]
    best = ("", False)
    most_found = 0.0
    for column in map(str, sample.filter(regex="^[^/]")):
        forms = {False: sample[column]}
        if of_masks:
            forms[True] = sample[column].str.rpartition("_")[0]
        for has_tails, names in forms.items():
            unique = names[names != ""].unique()
            found = join_names(unique, files.names)
            is_image = (found != NOT_FOUND) & (found < len(files.images))
            if is_image.sum() > max(most_found, len(unique) / 2):
                best = (column, has_tails)
                most_found = is_image.sum()
    column, _ = best
    has_digit = re.search(r"[\d.]", column)
    if has_digit and join_names([column], files.names)[0] != NOT_FOUND:
        raise ValueError(
            f"the first row of the CSV names the image '{column}', so its header is "
            "missing. Add a first line such as: image_id,label"
        )
    return best


def fill_template(template: str, rows: pd.DataFrame) -> list[str]:
    """Return the name of each row by PATH_TEMPLATE, "" if a cell is empty or short.

    Raises: ValueError: the template does not fit the columns.
    """
    fields = sorted(set(list_fields(template)))
    for field in fields:
        check_column(field, rows, f"a field of PATH_TEMPLATE '{template}'")
    cells = rows[fields].to_dict("records")
    try:
        return [_fill(template, row) if all(row.values()) else "" for row in cells]
    except ValueError as error:
        raise ValueError(
            f"PATH_TEMPLATE '{template}': {error}. Cells are text, and zeros that "
            "begin a number do not matter: leave the format out."
        ) from None


def _fill(template: str, row: Any) -> str:
    """Return the text of a template, "" if a cell is shorter than a field needs."""
    try:
        return template.format_map(row)
    except IndexError:
        return ""
