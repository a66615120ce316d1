"""The rows of CSV files: ids and labels as text."""

import io
import os
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files, splits
from kaggle_tfr.explore.labels import NO_LABEL_MAP
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.paths import near_miss, template_fields


def read_csv(
    input_dir: str, settings: InputSettings, parameter: str = "LABELS_CSV"
) -> pd.DataFrame:
    """That CSV: ids and labels as text ("007" and "NA" stay), other columns by their look.

    Of a pattern such as "*/_classes.csv" the rows of all CSVs, with a column `csv_folder`.
    """
    columns = settings.label_columns
    is_single = settings.source == "csv" and not settings.label_separator
    is_single = is_single and (len(columns) == 1 or settings.label_kind != "multi")
    if settings.label_map and not is_single:
        raise ValueError(NO_LABEL_MAP)
    if settings.id_column in columns:
        both = f"ID_COLUMN and LABEL_COLUMN both name '{settings.id_column}'"
        raise ValueError(
            f"{both}. Set LABEL_COLUMN to the column of labels, or to [] for none."
        )

    folder_of = _find_csvs(input_dir, settings, parameter)
    is_pattern = storage.resolve(input_dir, settings.labels_csv) not in folder_of
    if not is_pattern:
        [(path, folder)] = folder_of.items()
        rows = _read_one_csv(path, settings, parameter)
        needed = {settings.split_column, *template_columns(settings)}
        if splits.FOLDER_COLUMN in needed and splits.FOLDER_COLUMN not in rows:
            rows[splits.FOLDER_COLUMN] = folder
        return rows

    tables = []
    for path, folder in folder_of.items():
        table = read_as_text(path, settings, parameter)
        table = table.rename(
            columns={splits.FOLDER_COLUMN: f"csv_{splits.FOLDER_COLUMN}"}
        )
        tables.append(table.assign(**{splits.FOLDER_COLUMN: folder}))
    rows = pd.concat(tables, ignore_index=True)
    for column in columns:
        if column not in rows:
            raise ValueError(
                _explain_column(
                    f"{parameter} '{path}'", column, list(map(str, rows)), "LABEL"
                )
            )
    ours = [settings.id_column, *columns, splits.FOLDER_COLUMN]
    others = rows.drop(columns=ours)
    if not others.columns.empty:  # one table tells better than many what a column holds
        text = others.to_csv(index=False).encode()
        others = pd.read_csv(io.BytesIO(text), low_memory=False, skip_blank_lines=False)
    return pd.concat([rows[ours].fillna(""), others], axis=1)


def _find_csvs(
    input_dir: str, settings: InputSettings, parameter: str
) -> dict[str, str]:
    """{path: its folder below INPUT_DIR, "" for the top} of the CSV or the CSVs of a pattern."""
    given = settings.labels_csv
    path = storage.resolve(input_dir, given)
    if not re.search(r"[*?\[]", given) or storage.exists(path):
        files.check_named_file(path, input_dir, parameter)
        is_inside = path.startswith(f"{input_dir}/") and not storage.OUTSIDE.search(
            given
        )
        return {path: os.path.dirname(path[len(input_dir) + 1 :]) if is_inside else ""}

    storage.check_inside(given, f"{parameter} '{given}'", f"'{input_dir}'")
    paths = files.list_files(given, input_dir or "/", input_dir, settings.excluded)
    if not paths:
        mend = f"Set {parameter} to a CSV, or to a pattern that matches some, in INPUT_DIR."
        raise FileNotFoundError(f"no file in '{input_dir}' matches '{given}'. {mend}")
    for path in paths:
        files.check_named_file(path, input_dir, parameter)
    return {path: os.path.dirname(path[len(input_dir) + 1 :]) for path in paths}


def _read_one_csv(
    path: str,
    settings: InputSettings,
    parameter: str,
    *,
    every_column_as_text: bool = False,
) -> pd.DataFrame:
    """The rows of a CSV, its names of columns without blanks around them."""
    data, what = files.read_named_file(path, parameter), f"{parameter} '{path}'"
    headers = {sep: _read_header(data, what, sep) for sep in ",;\t"}
    sep = next(
        (sep for sep in headers if settings.id_column in headers[sep].values()), ","
    )
    name_of = headers[sep]  # as it is in the file: as we call it
    header, ours = list(name_of.values()), [settings.id_column, *settings.label_columns]
    for name in ours:
        is_id = name == settings.id_column
        # Of several CSVs one may hold images without labels, such as a test set.
        if name not in header and (is_id or not every_column_as_text):
            is_test_csv = parameter == "TEST_CSV"
            column = ("TEST_ID" if is_test_csv else "ID") if is_id else "LABEL"
            raise ValueError(_explain_column(what, name, header, column))

    as_text: dict[str, Any] = {"sep": sep, "dtype": str, "keep_default_na": False}
    in_ours = [
        raw for raw, name in name_of.items() if name in ours or every_column_as_text
    ]
    others = [raw for raw in name_of if raw not in in_ours]
    rows = _parse_csv(data, what, usecols=in_ours, **as_text).rename(columns=name_of)
    if rows.empty:
        raise ValueError(f"{what} has a header and no row. Set {parameter} to another.")
    if every_column_as_text:
        return rows
    rest = [_parse_csv(data, what, sep=sep, usecols=others).rename(columns=name_of)]
    return pd.concat(
        [rows[list(dict.fromkeys(ours))], *(rest if others else [])], axis=1
    )


def read_as_text(path: str, settings: InputSettings, parameter: str) -> pd.DataFrame:
    """The rows of a CSV, every column as text. It may lack the columns of labels."""
    return _read_one_csv(path, settings, parameter, every_column_as_text=True)


def _read_header(data: bytes, what: str, sep: str) -> dict[str, str]:
    """{name of a column in the file: the same without blanks around it, where that is unique}."""
    names = list(map(str, _parse_csv(data, what, nrows=0, sep=sep)))
    stripped = [name.strip() for name in names]
    pairs = zip(names, stripped, strict=True)
    return {
        name: short if stripped.count(short) == 1 else name for name, short in pairs
    }


def _explain_column(what: str, name: str, header: Sequence[str], column: str) -> str:
    """The error for a CSV that lacks the column which the parameter `column`_COLUMN names."""
    has = f"{what} has no column '{name}'.{near_miss(name, header)} It has {', '.join(header)}."
    return f"{has} Set {column}_COLUMN to one of them."


def _parse_csv(data: bytes, what: str, **options: Any) -> pd.DataFrame:
    try:
        return pd.read_csv(
            io.BytesIO(data), encoding="utf-8-sig", low_memory=False, **options
        )
    except ValueError as error:
        wrong = f"is no CSV in UTF-8: {error}. Save it as one."
        wrong = wrong if data.strip() else "is empty. Set it to the one you mean."
        raise ValueError(f"{what} {wrong}") from None


def template_columns(settings: InputSettings) -> set[str]:
    """The columns that PATH_TEMPLATE names."""
    return {
        re.split(r"[.\[]", name)[0] for name in template_fields(settings.path_template)
    }
