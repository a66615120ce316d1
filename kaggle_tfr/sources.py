"""Rows from what a dataset comes with: a CSV, class folders, run-length codes. Opens no file."""

import io
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from kaggle_tfr import labels, masks, storage
from kaggle_tfr.names import fill_path, near_miss, template_fields

SPLITS = ("train", "training", "val", "valid", "validation", "dev", "test")
IMAGE_ENDINGS = {"jpg", "jpeg", "jpe", "png", "webp", "bmp", "gif", "tif", "tiff", "avif"}
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


def _may_be_image(path: str) -> bool:
    """True for a name that ends like an image's, or has no ending at all."""
    ending = path.rpartition("/")[2].rpartition(".")[1:]
    return not ending[0] or ending[1].lower() in IMAGE_ENDINGS


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


def read_given(path: str, parameter: str) -> bytes:
    """The bytes of a file that a parameter names.

    Raises:
        FileNotFoundError: it is not there; the parameter is named.
    """
    try:
        return storage.read_bytes(path)
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(
            f"there is no file '{path}'. Set {parameter} to a file's name in INPUT_DIR."
        ) from None


def read_map(given: str | Mapping, input_dir: str) -> Mapping | None:
    """The label map given by value or by file name; None for none.

    Raises:
        ValueError: the file is no JSON object.
    """
    if not given or isinstance(given, Mapping):
        return given or None
    path = storage.join(input_dir, given)
    try:
        found = json.loads(read_given(path, "LABEL_MAP"))
    except ValueError as error:
        raise ValueError(f"the label map '{path}' is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the label map '{path}' holds no {{'class': label}}.")
    return found


def list_images(input_dir: str, pattern: str) -> pd.DataFrame:
    """Columns image_id (path below INPUT_DIR), path, split, and the class as text in `value`.

    The last folder is the class; the one above it is the split, if it has a split's name.

    Raises:
        FileNotFoundError: no file matches.
        ValueError: a pattern without a class folder, or a class folder without an image.
    """
    if "/" not in pattern:
        raise ValueError(
            f"PATTERN '{pattern}' has no class folder. Write it as '*/*.jpg' (class/file) or "
            "'*/*/*.jpg' (split/class/file)."
        )
    paths = storage.list_files(pattern, input_dir)
    if not storage.is_remote(input_dir):
        _check_folders(input_dir, pattern, paths)
    if not paths:
        raise FileNotFoundError(
            f"no file matches '{pattern}' in {input_dir}. Set PATTERN to class/file ('*/*.jpg') "
            "or split/class/file ('*/*/*.jpg'), or INPUT_DIR to the folder above them."
        )
    start = len(input_dir.rstrip("/")) + 1
    names = [path[start:].replace("\\", "/") for path in paths]
    parts = [name.split("/") for name in names]
    split = [part[-3] if len(part) > 2 and part[-3] in SPLITS else "train" for part in parts]
    value = [part[-2] for part in parts]
    return pd.DataFrame({"image_id": names, "path": list(paths), "split": split, "value": value})


def _check_folders(input_dir, pattern, paths):
    """Raises when a class folder has nothing that could be an image: a slip, or a lost download."""
    folders = storage.list_folders(pattern.rpartition("/")[0], input_dir)
    filled = {os.path.dirname(path) for path in paths if _may_be_image(path)}
    empty = [folder for folder in folders if folder not in filled]
    if empty:
        raise ValueError(
            f"{len(empty)} of {len(folders)} class folders hold no image, the first is "
            f"'{empty[0]}' (looked for '{pattern}' in {input_dir}). Fill or remove it, or set "
            "PATTERN so that it matches folders with images only."
        )
