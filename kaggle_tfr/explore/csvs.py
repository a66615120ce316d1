"""Read the CSVs that name images: ids and labels stay text, "007" and "NA" as well."""

import io
import os
import re
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.explore.splits import FOLDER_COLUMN
from kaggle_tfr.naming import list_fields, near_miss


def read_csv(settings: InputSettings, parameter: str = "LABELS_CSV") -> pd.DataFrame:
    """Return the rows of LABELS_CSV, or of all CSVs that it matches as a pattern.

    Ids and labels are text; other columns have the type that pandas infers.
    parameter: the parameter that error messages name.
    """
    labels = settings.label_columns
    if settings.id_column in labels:
        raise ValueError(
            f"ID_COLUMN and LABEL_COLUMN both name '{settings.id_column}'. "
            "Set LABEL_COLUMN to the column of labels, or to [] for none."
        )

    paths = _find_csvs(settings, parameter)
    used = {settings.split_column, *template_columns(settings.path_template)}
    tables = []
    for path in paths:
        table = read_as_text(path, settings.id_column, parameter)
        if len(paths) > 1 or FOLDER_COLUMN in used:
            table = table.rename(columns={FOLDER_COLUMN: f"csv_{FOLDER_COLUMN}"})
            table[FOLDER_COLUMN] = _folder_below(settings.input_dir, path)
        tables.append(table)
    # One of several CSVs may list images without labels, such as a test set.
    rows = pd.concat(tables, ignore_index=True)
    for name in labels:
        _check_column(name, rows.columns, f"{parameter} '{paths[0]}'", "LABEL_COLUMN")

    is_ours = rows.columns.isin([settings.id_column, *labels, FOLDER_COLUMN])
    others = _infer_types(rows.loc[:, ~is_ours])
    return pd.concat([rows.loc[:, is_ours].fillna(""), others], axis=1)


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
    path = storage.resolve(input_dir, name)
    paths = [path]
    if re.search(r"[*?\[]", name) and not storage.exists(path):
        storage.check_inside(name, f"{parameter} '{name}'", f"'{input_dir}'")
        found = storage.list_files(name, input_dir)
        paths = files.keep_inputs(found, input_dir, settings.excluded)
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
    if below == path or storage.OUTSIDE.search(below):
        return ""
    return os.path.dirname(below)


def read_as_text(path: str, id_column: str, parameter: str) -> pd.DataFrame:
    """Return a CSV's rows as text. The separator is the one that shows the ids' column.

    Blanks around the names of columns are removed where the names stay different.
    """
    data = files.read_named_file(path, parameter)
    source = f"{parameter} '{path}'"
    headers = {sep: _read_header(data, source, sep) for sep in ",;\t"}
    fitting = [sep for sep, header in headers.items() if id_column in header]
    separator = fitting[0] if fitting else ","
    header = headers[separator]
    id_parameter = "TEST_ID_COLUMN" if parameter == "TEST_CSV" else "ID_COLUMN"
    _check_column(id_column, header, source, id_parameter)

    rows = _parse_csv(
        data,
        source,
        sep=separator,
        dtype=str,
        keep_default_na=False,
        # Cells beyond the header are dropped; pandas would shift the columns.
        usecols=range(len(header)),
        index_col=False,
    )
    if rows.empty:
        raise ValueError(
            f"{source} has a header and no row. Set {parameter} to another CSV."
        )
    return rows.set_axis(header, axis=1)


def _read_header(data: bytes, source: str, separator: str) -> pd.Index:
    names = _parse_csv(data, source, sep=separator, nrows=0).columns.astype(str)
    stripped = names.str.strip()
    return stripped.where(~stripped.duplicated(keep=False), names)


def _parse_csv(data: bytes, source: str, **options: Any) -> pd.DataFrame:
    if not data.strip():
        raise ValueError(f"{source} is empty. Set it to the CSV that you mean.")
    try:
        return pd.read_csv(
            io.BytesIO(data), encoding="utf-8-sig", low_memory=False, **options
        )
    except ValueError as error:
        raise ValueError(
            f"{source} is not a CSV file in UTF-8: {error}. Save it as one."
        ) from None


def _check_column(name: str, header: pd.Index, source: str, parameter: str) -> None:
    if name not in header:
        raise ValueError(
            f"{source} has no column '{name}'.{near_miss(name, header)} "
            f"It has {', '.join(header)}. Set {parameter} to one of them."
        )
