"""Read the CSVs that name images: ids and labels stay text, "007" and "NA" as well."""

import io
import os
import re
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.explore.splits import FOLDER_COLUMN, check_column
from kaggle_tfr.naming import list_fields

SEPARATORS = ",;\t"


def read_csv(settings: InputSettings, parameter: str = "LABELS_CSV") -> pd.DataFrame:
    """Return the rows of LABELS_CSV, or of all CSVs that it matches as a pattern.

    Ids and labels are text; other columns have the type that pandas infers.
    parameter: the parameter that error messages name.
    """
    id_column = settings.id_column
    labels = settings.label_columns
    if id_column in labels:
        raise ValueError(
            f"ID_COLUMN and LABEL_COLUMN both name '{id_column}'. "
            "Set LABEL_COLUMN to the column of labels, or to [] for none."
        )

    paths = _find_csvs(settings, parameter)
    rows = _read_all(paths, settings, parameter)
    for name in labels:
        check_column(name, rows, f"{parameter} '{paths[0]}'", "LABEL_COLUMN")

    is_text = rows.columns.isin([id_column, *labels, FOLDER_COLUMN])
    others = _infer_types(rows.loc[:, ~is_text])
    return pd.concat([rows.loc[:, is_text].fillna(""), others], axis=1)


def _read_all(
    paths: list[str], settings: InputSettings, parameter: str
) -> pd.DataFrame:
    """Return the rows of all CSVs as text, with their folders if these are needed."""
    # One of several CSVs may list images without labels, such as a test set.
    tables = [_read_as_text(path, settings.id_column, parameter) for path in paths]
    columns = template_columns(settings.path_template) | {settings.split_column}
    if len(paths) > 1 or FOLDER_COLUMN in columns:
        for table, path in zip(tables, paths, strict=True):
            table[FOLDER_COLUMN] = _folder_below(settings.input_dir, path)
    return pd.concat(tables, ignore_index=True)


def _infer_types(table: pd.DataFrame) -> pd.DataFrame:
    """Return columns of text with the types that pandas gives them in a CSV."""
    if table.columns.empty:
        return table
    text = io.StringIO(table.to_csv(index=False))
    return pd.read_csv(text, low_memory=False, skip_blank_lines=False)


def template_columns(template: str) -> set[str]:
    """Return the columns that a PATH_TEMPLATE names."""
    return {re.split(r"[.\[]", field)[0] for field in list_fields(template)}


def _find_csvs(settings: InputSettings, parameter: str) -> list[str]:
    """Return the path of the CSV, or the paths of all that match the pattern."""
    input_dir = settings.input_dir
    name = settings.labels_csv
    paths = [storage.resolve(input_dir, name)]
    if re.search(r"[*?\[]", name) and not storage.exists(paths[0]):
        storage.check_inside(name, f"{parameter} '{name}'", f"'{input_dir}'")
        matches = storage.list_files(name, input_dir)
        paths = files.keep_inputs(matches, input_dir, settings.excluded)
    if not paths:
        raise FileNotFoundError(
            f"no file in '{input_dir}' matches '{name}'. Set {parameter} to a CSV, or "
            "to a pattern that matches CSVs, in INPUT_DIR."
        )
    for path in paths:
        files.check_named_file(path, input_dir, parameter)
    return paths


def _folder_below(input_dir: str, path: str) -> str:
    """Return the folder of a file below INPUT_DIR, "" at its top or outside of it."""
    below = path.removeprefix(f"{input_dir}/")
    return "" if storage.OUTSIDE.search(below) else os.path.dirname(below)


def _read_as_text(path: str, id_column: str, parameter: str) -> pd.DataFrame:
    """Return a CSV's rows as text, with a column of the ids."""
    data = files.read_named_file(path, parameter)
    source = f"{parameter} '{path}'"
    try:
        rows = parse_rows(data, id_column)
    except ValueError as error:
        raise ValueError(
            f"{source} is not a CSV file in UTF-8: {error}. Save it as one."
        ) from None
    id_parameter = "TEST_ID_COLUMN" if parameter == "TEST_CSV" else "ID_COLUMN"
    check_column(id_column, rows, source, id_parameter)
    if rows.empty:
        raise ValueError(
            f"{source} has a header and no row. Set {parameter} to another CSV."
        )
    return rows


def parse_rows(data: bytes, id_column: str, **options: Any) -> pd.DataFrame:
    """Return the rows by the separator that gives the column of the ids.

    Cells beyond the header are dropped. options: of `pd.read_csv`.
    Raises: ValueError: the data is not a CSV in UTF-8.
    """
    headers = {
        separator: list(parse_text(io.BytesIO(data), separator, nrows=0))
        for separator in SEPARATORS
    }
    separator = max(SEPARATORS, key=lambda mark: id_column in headers[mark])
    return parse_text(
        io.BytesIO(data),
        separator,
        usecols=range(len(headers[separator])),
        index_col=False,  # else pandas shifts the columns of long rows
        **options,
    )


def parse_text(file: str | io.BytesIO, separator: str, **options: Any) -> pd.DataFrame:
    """Return the cells of a CSV in UTF-8 as text.

    Blanks around the names of columns are removed where the names stay different.
    Raises: ValueError: the file is not such a CSV.
    """
    table = pd.read_csv(
        file,
        sep=separator,
        encoding="utf-8-sig",
        dtype=str,
        keep_default_na=False,
        low_memory=False,
        **options,
    )
    names = table.columns.astype(str)
    stripped = names.str.strip()
    is_unique = ~stripped.duplicated(keep=False)
    return table.set_axis(stripped.where(is_unique, names), axis=1)
