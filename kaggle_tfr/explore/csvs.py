"""Read the CSVs that name images: every cell is text, "007" and "NA" as well."""

import csv
import io
import os
import re
import sys
from collections.abc import Sequence

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.files import Files, check_link, name_split
from kaggle_tfr.naming import list_fields

TABLE_NAME = re.compile(r"(?i)\.(csv|tsv)$")
# Columns that are added: the folder of the CSV below INPUT_DIR, its split, and whether
# a row has more cells than the header. "/" cannot begin a name of the CSV.
CSV_FOLDER, SPLIT, LONG = "/folder", "/split", "/long"
SAMPLE = 500  # cells of a column that are looked up


def read_csvs(names: Sequence[str], files: Files, parameter: str) -> pd.DataFrame:
    """Return the rows of CSVs as text, with the columns that are added.

    names: paths below INPUT_DIR, or of CSVs elsewhere.
    Raises: FileNotFoundError; ValueError: a file is not a CSV in UTF-8.
    """
    tables = []
    for name in names:
        if not is_file(name, files):
            known = list(filter(TABLE_NAME.search, files.others))
            raise FileNotFoundError(
                f"there is no '{name}' in '{files.folder}'. Set {parameter} to one of "
                f"its CSVs: {', '.join(known)}."
            )
        file = storage.resolve(files.folder, name)
        check_link(file, files.folder, parameter)
        try:
            table = parse_text(storage.read_bytes(file))
        except ValueError as error:
            raise ValueError(
                f"{parameter} '{file}' is not a CSV file in UTF-8: {error}."
            ) from None
        table = table[(table != "").any(axis=1)]
        table[CSV_FOLDER] = os.path.dirname(name)
        table[SPLIT] = find_split(name) if len(names) > 1 else ""
        tables.append(table)
    return pd.concat(tables, ignore_index=True).fillna("")


def find_split(path: str) -> str:
    """Return the first split in the path of a CSV, as of train_labels.csv, or ""."""
    return next(filter(None, map(name_split, re.split("[/ _.-]", path))), "")


def is_file(name: str, files: Files) -> bool:
    """Return whether a CSV exists: below INPUT_DIR, or elsewhere."""
    return storage.exists(storage.resolve(files.folder, name))


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
        counts = rows.filter(regex="^[^/]").nunique()
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
    for column in map(str, sample.filter(regex="^[^/]")):
        names, _ = split_tails(sample[column])
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


def split_tails(names: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return names and the labels that end them, as in "0011165.jpg_Fish", or ""."""
    halves = names.str.extract(r"(.+\.[A-Za-z]{3,4})_([^_.]*)$")
    return halves[0].fillna(names), halves[1].fillna("")


def fill_template(template: str, rows: pd.DataFrame) -> list[str]:
    """Return the name of each row by PATH_TEMPLATE, "" if a cell is empty or short.

    Raises: ValueError: the template does not fit the columns.
    """
    fields = sorted(set(list_fields(template)))
    for field in fields:
        check_column(field, rows, f"a field of PATH_TEMPLATE '{template}'")
    names = []
    for row in rows[fields].to_dict("records"):
        name = ""
        try:
            if all(row.values()):
                name = template.format_map(row)
        except IndexError:  # the cell is too short for a field such as {id[9]}
            pass
        except ValueError as error:
            raise ValueError(
                f"PATH_TEMPLATE '{template}': {error}. Cells are text: leave the "
                "format out."
            ) from None
        names.append(name)
    return names
