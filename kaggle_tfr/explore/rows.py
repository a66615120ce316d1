"""Rows from what a dataset comes with: a CSV, class folders, run-length codes. Opens no file."""

import io
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import labels
from kaggle_tfr.explore.labels import single_label_table
from kaggle_tfr.images.masks import NO_MASK
from kaggle_tfr.paths import fill_path, near_miss, template_fields


def spread_codes(
    rows: pd.DataFrame, id_column: str, label_columns: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(one row per image, a column of codes per label): from one row per image and label.

    label_columns: the column of codes, where ids look like "0011165.jpg_Fish"; else two, label and
    code. Labels are sorted; "" is no mask. The rows get a column `problem`.
    """
    if len(label_columns) == 2:
        images, names = rows[id_column], rows[label_columns[0]]
    else:
        images, names = _split_ids(rows[id_column])
    image, ids = pd.factorize(images)
    label, classes = pd.factorize(names, sort=True)
    given = rows[label_columns[-1]].str.strip()
    codes = np.full((len(ids), len(classes)), "", object)
    codes[image, label] = given.where(~given.isin(NO_MASK), "").to_numpy(object)
    problem = np.full(len(ids), "", object)
    again = pd.DataFrame({"image": image, "label": label}).duplicated().to_numpy()
    for row, column in zip(image[again], label[again], strict=True):
        problem[row] = f"label '{classes[column]}' listed twice"
    others = rows.drop(columns=[id_column, *label_columns])[~pd.Series(image).duplicated()]
    one = pd.concat([pd.Series(ids, name=id_column), others.reset_index(drop=True)], axis=1)
    return one.assign(problem=problem), pd.DataFrame(codes, columns=list(classes))


def _split_ids(ids):
    """(image, label) of ids such as "0011165.jpg_Fish"."""
    halves = ids.str.rsplit("_", n=1)
    bad = ids[halves.str.len() < 2]
    if len(bad):
        raise ValueError(
            f"SOURCE='rle_csv' takes ids such as '0011165.jpg_Fish', but {len(bad)} of {len(ids)} "
            f"have no '_', the first is '{bad.iloc[0]}'. Set LABEL_COLUMN to [label, code] when "
            "the label has a column of its own."
        )
    return halves.str[0], halves.str[1]


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
        rows, columns = spread_codes(rows, id_column, label_columns)
        found = labels.multi_label_table(columns, list(columns), "masks", rows.pop("problem"))
        text = found["label_name"]
    elif len(label_columns) > 1:
        columns, problem = labels.read_flags(rows, label_columns)
        found = labels.multi_label_table(columns, list(columns), "multi", problem)
    elif separator:
        columns, classes = labels.split_labels(text, separator)
        problem = np.where(text.isin(labels.MISSING), "no label", "").astype(object)
        found = labels.multi_label_table(columns, classes, "multi", problem)
    elif label_columns:
        found = labels.single_label_table(text, label_map)
    else:
        text = pd.Series("", index=rows.index)
        found = labels.single_label_table(text).assign(problem="")
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


SPLITS = ("train", "training", "val", "valid", "validation", "dev", "test")


IMAGE_ENDINGS = {"jpg", "jpeg", "jpe", "png", "webp", "bmp", "gif", "tif", "tiff", "avif"}


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
    path = storage.resolve(input_dir, given)
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


def _may_be_image(path: str) -> bool:
    """True for a name that ends like an image's, or has no ending at all."""
    ending = path.rpartition("/")[2].rpartition(".")[1:]
    return not ending[0] or ending[1].lower() in IMAGE_ENDINGS


def add_unlisted(
    table: pd.DataFrame, input_dir: str, template: str, csv_name: str, attrs: Mapping
) -> pd.DataFrame:
    """The table, then a row with a problem for each file of the image folder that has no row.

    Raises:
        FileNotFoundError: none of the table's images is there.
    """
    folder, pattern = folder_pattern(template)
    folder = storage.join(input_dir, folder) if folder else input_dir
    files = storage.list_files(pattern, folder) if storage.is_folder(folder) else []
    known = set(table["path"])
    if known.isdisjoint(files):
        raise FileNotFoundError(
            f"none of the {len(table)} images is there, the first would be "
            f"'{table['path'].iloc[0]}' "
            f"({len(files)} files match '{pattern}' in {folder}). Point INPUT_DIR at the folder "
            "that holds the images' folder, or set PATH_TEMPLATE."
        )
    paths = [path for path in files if path not in known]
    if not paths:
        return table
    start = len(folder.rstrip("/")) + 1
    extra = pd.DataFrame({"image_id": [path[start:] for path in paths], "path": paths})
    extra = extra.assign(split="train", label=-1, label_name="", problem=f"no row in {csv_name}")
    blank = "" if attrs["kind"] == "masks" else np.int8(0)
    extra = extra.assign(**dict.fromkeys(attrs["label_columns"], blank))
    # Whole numbers stay whole where the new rows have none.
    others = [name for name in table.columns if name not in extra.columns]
    whole = [name for name in others if pd.api.types.is_integer_dtype(table[name])]
    return pd.concat([table.astype(dict.fromkeys(whole, "Int64")), extra], ignore_index=True)


def read_table(
    source: str,
    input_dir: str,
    *,
    labels_csv: str = "",
    id_column: str = "",
    label_column: str | Sequence[str] = "",
    path_template: str = "",
    pattern: str = "",
    limit: int = 0,
    label_map: str | Mapping[str, int] = "",
    label_separator: str = "",
) -> pd.DataFrame:
    """The images and their labels, one row each, in the source's order; no image is opened.

    Columns: image_id, path (absolute or gs://), split, label (int64, -1 for none), label_name,
    problem ("" for a good row), the CSV's other columns, then for kinds "multi" (int8, 0 or 1) and
    "masks" (a run-length code or "") a column per label; there `label` numbers the combinations.
    attrs: kind ("single", "multi", "masks"), classes (index = label), label_columns.
    limit: only so many rows, spread evenly over all.

    Raises:
        FileNotFoundError: no such folder or CSV, or none of the images is there.
        ValueError: a setting that does not fit the data.
    """
    if not storage.is_remote(input_dir):
        input_dir = os.path.abspath(input_dir)
    if not storage.is_folder(input_dir):
        raise FileNotFoundError(
            f"INPUT_DIR '{input_dir}' is no folder. Give the folder that holds the images, "
            "a gs:// address, or the slug of an attached Kaggle dataset."
        )
    if source == "folders":
        table = list_images(input_dir, pattern or "*/*")
        found = single_label_table(table.pop("value"), read_map(label_map, input_dir))
        attrs, found.attrs = found.attrs, {}
        table = pd.concat([table, found], axis=1)
    elif source in ("csv", "rle_csv"):
        columns = [label_column] if isinstance(label_column, str) else list(label_column)
        columns = [name for name in columns if name]
        path = storage.resolve(input_dir, labels_csv)
        rows = parse_csv(read_given(path, "LABELS_CSV"), path, id_column, columns)
        table = label_rows(
            rows,
            id_column,
            columns,
            is_rle=source == "rle_csv",
            separator=label_separator,
            label_map=read_map(label_map, input_dir),
        )
        # pandas copies attrs at every step, and a list of 80,000 classes is slow to copy.
        attrs, table.attrs = table.attrs, {}
        named = table if source == "rle_csv" else rows
        below = fill_paths(named, {id_column: table["image_id"]}, path_template)
        table = _add_paths(table, below, input_dir, path_template)
        table = add_unlisted(table, input_dir, path_template, os.path.basename(path), attrs)
    else:
        raise ValueError(f'SOURCE is "{source}". Set it to "csv", "folders" or "rle_csv".')
    text = ["image_id", "path", "split", "label_name", "problem"]
    table = table.astype(dict.fromkeys(text, str))
    if limit and limit < len(table):
        # Spread evenly: the first rows of class folders would all be of one class.
        table = table.iloc[np.arange(limit) * len(table) // limit].reset_index(drop=True)
    table.attrs = attrs
    return table


def _add_paths(table, below, input_dir, template):
    start = input_dir.rstrip("/") + "/"
    paths = [start + path if path else "" for path in below]
    table.insert(1, "path", pd.Series(paths, index=table.index, dtype=object))
    short = (table["path"] == "") & (table["problem"] == "")
    table.loc[short, "problem"] = f"id too short for PATH_TEMPLATE '{template}'"
    return table
