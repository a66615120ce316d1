"""Rows from what a dataset comes with: a CSV, class folders, run-length codes. Opens no file."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from kaggle_tfr import labels, masks
from kaggle_tfr.names import fill_path, near_miss, template_fields

# What the steps call their own columns; a CSV's column of such a name gets the prefix "csv_".
RESERVED = {
    *("image_id", "path", "split", "label", "label_name", "problem", "height", "width"),
    *("n_bytes", "format", "orientation", "note", "cluster", "distance", "keep", "reason"),
    *("fold", "shard", "part", "position"),
}


def parse_csv(data: bytes, path: str, id_column: str, label_columns: Sequence[str]) -> pd.DataFrame:
    """The CSV's rows: ids and labels as text ("007" and "NA" stay), other columns by their look.

    Raises:
        ValueError: empty, not a CSV in UTF-8, or without a named column (the near miss is named).
    """
    header = list(_read_csv(data, path, nrows=0))
    ours = list(dict.fromkeys([id_column, *label_columns]))
    for name in ours:
        if name not in header:
            parameter = "ID_COLUMN" if name == id_column else "LABEL_COLUMN"
            raise ValueError(
                f"the labels file '{path}' has no column '{name}'.{near_miss(name, header)} It has "
                f"{', '.join(header)}. Set {parameter} to one of them."
            )
    rows = _read_csv(data, path, usecols=ours, dtype=str, keep_default_na=False)
    if rows.empty:
        raise ValueError(
            f"the labels file '{path}' has a header and no row. Set LABELS_CSV to the one you mean."
        )
    others = [name for name in header if name not in ours]
    rest = [_read_csv(data, path, usecols=others)] if others else []
    return pd.concat([rows, *rest], axis=1)


def _read_csv(data, path, **options):
    try:
        stream = io.BytesIO(data)
        return pd.read_csv(stream, encoding="utf-8-sig", low_memory=False, **options)
    except pd.errors.EmptyDataError:
        raise ValueError(
            f"the labels file '{path}' is empty. Set LABELS_CSV to the one you mean."
        ) from None
    except (ValueError, pd.errors.ParserError) as error:
        raise ValueError(
            f"the labels file '{path}' is no CSV in UTF-8: {error}. Save it as one."
        ) from None


def label_rows(
    rows: pd.DataFrame,
    id_column: str,
    label_columns: Sequence[str],
    *,
    is_rle: bool = False,
    separator: str = "",
    label_map: Mapping | None = None,
) -> pd.DataFrame:
    """One row per image: image_id, split, label …, problem, then the CSV's other columns."""
    if label_map is not None and (is_rle or separator or len(label_columns) != 1):
        raise ValueError("LABEL_MAP numbers one class per image. Leave it empty for several.")
    text = rows[list(label_columns)].agg("|".join, axis=1) if len(label_columns) > 1 else None
    text = rows[label_columns[0]] if len(label_columns) == 1 else text
    if is_rle:
        rows, columns = masks.spread_codes(rows, id_column, label_columns)
        found = labels.label_often(columns, list(columns), "masks", rows.pop("problem"))
        text = found["label_name"]
    elif len(label_columns) > 1:
        columns, problem = labels.read_flags(rows, label_columns)
        found = labels.label_often(columns, list(columns), "multi", problem)
    elif separator:
        columns, classes = labels.split_labels(text, separator)
        problem = np.where(text.isin(labels.MISSING), "no label", "").astype(object)
        found = labels.label_often(columns, classes, "multi", problem)
    elif label_columns:
        found = labels.label_once(text, label_map)
    else:
        text = pd.Series("", index=rows.index)
        found = labels.label_once(text).assign(problem="")
    _check_names(found.attrs["label_columns"])
    repeats = labels.find_repeats(rows[id_column], text)
    found["problem"] = found["problem"].where(repeats == "", repeats)
    others = rows.drop(columns=[id_column, *label_columns], errors="ignore")
    others.columns = [f"csv_{name}" if name in RESERVED else name for name in others]
    attrs, found.attrs = found.attrs, {}
    table = pd.concat([rows[id_column].rename("image_id"), found, others], axis=1)
    table.insert(1, "split", "train")
    table.attrs = attrs
    return table


def _check_names(names):
    taken = [name for name in names if name in RESERVED]
    if taken:
        raise ValueError(
            f"a label is called '{taken[0]}', which is the name of one of the table's own columns. "
            "Rename it in the CSV."
        )


def fill_paths(rows: pd.DataFrame, ids: Mapping[str, pd.Series], template: str) -> list[str]:
    """Each image's path below INPUT_DIR; "" where the id is too short for the template.

    ids: the ids under their column's name; templates know them as `image_id` too.

    Raises:
        ValueError: an unknown column, a way out of INPUT_DIR, or a template that fits no row.
    """
    ids = {**ids, "image_id": next(iter(ids.values()))}
    first = rows.iloc[0].to_dict() | {name: column.iloc[0] for name, column in ids.items()}
    fields = {field.split("[")[0].split(".")[0] for field, _ in template_fields(template)}
    columns = {name: rows[name] for name in fields if name in rows} | ids
    if fields - set(columns):
        fill_path(template, first)
    paths = []
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        try:
            paths.append(template.format_map(dict(zip(columns, values, strict=True))))
        except IndexError:
            paths.append("")
    if not any(paths):
        fill_path(template, first)
    # `fill_path` is thorough and slow: it looks at the few that could lead out.
    for position, path in enumerate(paths):
        if ".." in path or "\\" in path or ":" in path or path[:1] == "/":
            fill_path(template, {name: column.iloc[position] for name, column in columns.items()})
    return paths


def folder_pattern(template: str) -> tuple[str, str]:
    """(folder, pattern below it) of the files that a path template can name.

    >>> folder_pattern("train/{image_id[0]}/{image_id}.jpg")
    ('train', '*/*.jpg')
    """
    parts = template.split("/")
    fixed = next((i for i, part in enumerate(parts[:-1]) if "{" in part), len(parts) - 1)
    for field, spec in template_fields(template):
        template = template.replace("{" + field + (f":{spec}" if spec else "") + "}", "*")
    return "/".join(parts[:fixed]), "/".join(template.split("/")[fixed:])
