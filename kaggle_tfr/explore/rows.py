"""Rows from what a dataset comes with: class folders, a CSV of labels, a CSV of run-length codes.

Each source is one function, (input_dir, settings) → (images, labels); none opens an image.
"""

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import labels as numbering
from kaggle_tfr.images.masks import NO_MASK, find_code_problem
from kaggle_tfr.paths import fill_path, near_miss, template_fields
from kaggle_tfr.schema import Labels

SPLITS = ("train", "training", "val", "valid", "validation", "dev", "test")

# "": without an ending a file may be an image too.
ENDINGS = ("", ".jpg", ".jpeg", ".jpe", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif")

# Where `paths.fill_path` raises: an absolute path, a drive, an address, a step up.
LEADS_OUT = re.compile(r"^([\\/]|[A-Za-z]:|\w+://)|(^|[\\/])\.\.([\\/]|$)")

# What the steps call their own columns; a CSV's column of such a name gets the prefix "csv_".
RESERVED = {
    *("image_id", "path", "split", "label", "label_name", "problem", "height", "width"),
    *("n_bytes", "format", "orientation", "note", "cluster", "distance", "keep", "reason"),
    *("fold", "shard", "part", "position"),
}


Table = tuple[pd.DataFrame, Labels]  # one row per image, and what its labels are


@dataclass(frozen=True)
class InputSettings:
    """How images and labels lie in INPUT_DIR: the parameters of 01_explore, by their names."""

    name: str = ""
    source: str = "csv"
    labels_csv: str = ""
    id_column: str = ""
    label_column: str | Sequence[str] = ""
    label_separator: str = ""
    label_map: str | Mapping[str, int] = ""
    path_template: str = ""
    pattern: str = ""
    limit: int = 0

    @property
    def label_columns(self) -> list[str]:
        """LABEL_COLUMN as a list, empty for no labels."""
        given = self.label_column
        return [name for name in ([given] if isinstance(given, str) else given) if name]


def read_table(input_dir: str, settings: InputSettings) -> Table:
    """(images, labels): one row an image, in the source's order; no image is opened.

    Columns: image_id, path (absolute or gs://), split, label (int64, -1 for none), label_name,
    problem ("" for a good row); for kinds "multi" (int8, 0 or 1) and "masks" (a run-length code or
    "") one per label, while `label` numbers the combinations; then the CSV's other columns.
    With a limit only so many rows, spread evenly over all.

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
    sources = {"csv": read_label_csv, "folders": read_folders, "rle_csv": read_mask_csv}
    if settings.source not in sources:
        raise ValueError(f'SOURCE is "{settings.source}". Set it to "csv", "folders" or "rle_csv".')
    images, labels = sources[settings.source](input_dir, settings)
    text = ["image_id", "path", "split", "label_name", "problem"]
    images = images.astype(dict.fromkeys(text, str))
    if 0 < settings.limit < len(images):
        # Spread evenly: the first rows of class folders would all be of one class.
        rows = np.arange(settings.limit) * len(images) // settings.limit
        images = images.iloc[rows].reset_index(drop=True)
    return images, replace(labels, name=settings.name)


def read_folders(input_dir: str, settings: InputSettings) -> Table:
    """(images, labels) of class folders: the last folder is the class, the split may be above."""
    pattern = settings.pattern or "*/*"
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
    names = pd.Series(paths).str[len(input_dir.rstrip("/")) + 1 :].str.replace("\\", "/")
    folders = names.str.split("/")
    split = folders.str[-3].where(folders.str[-3].isin(SPLITS), "train")
    found, labels = numbering.single_label_table(folders.str[-2], read_map(input_dir, settings))
    images = pd.DataFrame({"image_id": names, "path": paths, "split": split})
    return pd.concat([images, found], axis=1), labels


def _check_folders(input_dir: str, pattern: str, paths: Sequence[str]) -> None:
    """Raises when a class folder has nothing that could be an image: a slip, or a lost download."""
    folders = storage.list_folders(pattern.rpartition("/")[0], input_dir)
    images = (path for path in paths if os.path.splitext(path)[1].lower() in ENDINGS)
    filled = {os.path.dirname(path) for path in images}
    empty = [folder for folder in folders if folder not in filled]
    if empty:
        raise ValueError(
            f"{len(empty)} of {len(folders)} class folders hold no image, the first is "
            f"'{empty[0]}' (looked for '{pattern}' in {input_dir}). Fill or remove it, or set "
            "PATTERN so that it matches folders with images only."
        )


def read_label_csv(input_dir: str, settings: InputSettings) -> Table:
    """(images, labels) of a CSV with a row per image: one class, a list, 0 or 1 each, or none."""
    rows, columns = read_csv(input_dir, settings), settings.label_columns
    text = rows[columns[0]] if columns else pd.Series("", index=rows.index)
    if len(columns) > 1:
        labelled = numbering.read_flags(rows[columns])
    elif columns and settings.label_separator:
        labelled = numbering.split_labels(text, settings.label_separator)
    else:
        labelled = numbering.single_label_table(text, read_map(input_dir, settings))
    if not columns:
        labelled[0]["problem"] = ""
    return _complete(input_dir, settings, rows, labelled)


def read_mask_csv(input_dir: str, settings: InputSettings) -> Table:
    """(images, labels) of a CSV of run-length codes, with one row per image and label.

    Ids: "0011165.jpg_Fish"; or plain ones beside a column of labels; or plain ones alone, whose one
    class is called like the column of codes, and where several rows of an image are one mask.
    """
    rows, columns = read_csv(input_dir, settings), settings.label_columns
    if len(columns) not in (1, 2):
        raise ValueError(
            f"LABEL_COLUMN is {settings.label_column!r}. With SOURCE='rle_csv' set it to the "
            "column of run-length codes, or to [label, code]."
        )
    plain = len(columns) == 1 and _ids_are_plain(input_dir, settings, rows)
    images, codes = spread_codes(rows, settings.id_column, columns, plain=plain)
    labelled = numbering.multi_label_table(codes, "masks", images.pop("problem"))
    return _complete(input_dir, settings, images, labelled)


def _ids_are_plain(input_dir: str, settings: InputSettings, rows: pd.DataFrame) -> bool:
    """Whether an id is an image's alone: without any "_", or by more files of such names.

    00087a6bd4dc_01.jpg of Carvana is a file, 0011165.jpg_Fish is not. Some 20 rows are looked up.
    """
    name = settings.id_column
    has_tail = rows[name].str.contains("_", regex=False)
    if not has_tail.all():
        return not has_tail.any()
    some = rows.iloc[:: max(1, len(rows) // 20)]
    heads = some.assign(**{name: some[name].str.rpartition("_")[0]})
    paths = [fill_paths(table, name, settings.path_template)[0] for table in (some, heads)]
    start = input_dir.rstrip("/") + "/"
    whole, head = (sum(storage.exists(start + path) for path in few if path) for few in paths)
    return whole > head


def spread_codes(
    rows: pd.DataFrame, id_column: str, label_columns: Sequence[str], *, plain: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(one row per image, a column of codes per label): from one row per image and label.

    label_columns: label and code; or the code alone, with ids such as "0011165.jpg_Fish" or plain.
    Labels are sorted; "" is no mask. The rows get a column `problem`.
    """
    ids, codes = rows[id_column], rows[label_columns[-1]].str.strip()
    codes = codes.where(~codes.isin(NO_MASK), "")
    if plain:
        names = pd.Series(label_columns[-1], index=rows.index)
        several = ids.duplicated(keep=False) & (codes != "")
        codes = ids.map(codes[several].groupby(ids[several]).agg(join_codes)).fillna(codes)
    elif len(label_columns) == 2:
        names = rows[label_columns[0]]
    else:
        ids, names = _split_ids(ids)
    image, different = pd.factorize(ids)
    label, classes = pd.factorize(names, sort=True)
    spread = np.full((len(different), len(classes)), "", object)
    spread[image, label] = codes.to_numpy(object)
    problem = np.full(len(different), "", object)
    again = pd.DataFrame({"image": image, "label": label}).duplicated().to_numpy() & (not plain)
    problem[image[again]] = [f"label '{name}' listed twice" for name in classes[label[again]]]
    one = rows.drop(columns=label_columns)[~ids.duplicated()].reset_index(drop=True)
    one[id_column], one["problem"] = different, problem
    return one, pd.DataFrame(spread, columns=list(classes))


def join_codes(codes: Sequence[str]) -> str:
    """The run-length code of all the masks together; the first broken code when there is one.

    >>> join_codes(["5 3", "1 2", "6 4"])
    '1 2 5 5'
    """
    for code in codes:
        if find_code_problem(code, 1 << 31, 1 << 31):  # more pixels than any image has
            return code
    numbers = list(map(int, " ".join(codes).split()))
    merged: list[list[int]] = []
    for start, length in sorted(zip(numbers[::2], numbers[1::2], strict=True)):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], start + length)
        else:
            merged.append([start, start + length])
    return " ".join(f"{start} {end - start}" for start, end in merged)


def _split_ids(ids: pd.Series) -> tuple[pd.Series, pd.Series]:
    """(image, label) of ids such as "0011165.jpg_Fish"."""
    bad = ids[~ids.str.contains("_", regex=False)]
    if len(bad):
        raise ValueError(
            f"SOURCE='rle_csv' takes ids such as '0011165.jpg_Fish', but {len(bad)} of {len(ids)} "
            f"have no '_', the first is '{bad.iloc[0]}'. Set LABEL_COLUMN to [label, code] when "
            "the label has a column of its own."
        )
    halves = ids.str.rpartition("_")
    return halves[0], halves[2]


def read_csv(input_dir: str, settings: InputSettings) -> pd.DataFrame:
    """LABELS_CSV: ids and labels as text ("007" and "NA" stay), other columns by their look."""
    columns, path = settings.label_columns, storage.resolve(input_dir, settings.labels_csv)
    single = settings.source == "csv" and len(columns) == 1 and not settings.label_separator
    if settings.label_map and not single:
        raise ValueError("LABEL_MAP numbers one class per image. Leave it empty for several.")
    data = read_given(path, "LABELS_CSV")
    header = list(map(str, _parse_csv(data, path, nrows=0)))
    ours = list(dict.fromkeys([settings.id_column, *columns]))
    for name in ours:
        if name not in header:
            parameter = "ID_COLUMN" if name == settings.id_column else "LABEL_COLUMN"
            raise ValueError(
                f"the labels file '{path}' has no column '{name}'.{near_miss(name, header)} It has "
                f"{', '.join(header)}. Set {parameter} to one of them."
            )
    rows = _parse_csv(data, path, usecols=ours, dtype=str, keep_default_na=False)
    if rows.empty:
        raise ValueError(
            f"the labels file '{path}' has a header and no row. Set LABELS_CSV to the one you mean."
        )
    others = [name for name in header if name not in ours]
    rest = [_parse_csv(data, path, usecols=others)] if others else []
    return pd.concat([rows, *rest], axis=1)


def _parse_csv(data: bytes, path: str, **options: Any) -> pd.DataFrame:
    stream = io.BytesIO(data)
    try:
        return pd.read_csv(stream, encoding="utf-8-sig", low_memory=False, **options)
    except pd.errors.EmptyDataError:
        what = "is empty. Set LABELS_CSV to the one you mean."
    except ValueError as error:
        what = f"is no CSV in UTF-8: {error}. Save it as one."
    raise ValueError(f"the labels file '{path}' {what}")


def read_map(input_dir: str, settings: InputSettings) -> Mapping[str, int] | None:
    """LABEL_MAP, given by value or by file name; None for none."""
    given = settings.label_map
    if not given or isinstance(given, Mapping):
        return given or None
    path = storage.resolve(input_dir, given)
    try:
        label_map = json.loads(read_given(path, "LABEL_MAP"))
    except ValueError as error:
        raise ValueError(f"the label map '{path}' is not JSON: {error}") from None
    if not isinstance(label_map, dict):
        raise ValueError(f"the label map '{path}' holds no {{'class': label}}.")
    return label_map


def read_given(path: str, parameter: str) -> bytes:
    """The bytes of a file that a parameter names, which its FileNotFoundError names too."""
    try:
        return storage.read_bytes(path)
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(
            f"there is no file '{path}'. Set {parameter} to a file's name in INPUT_DIR."
        ) from None


def _complete(
    input_dir: str, settings: InputSettings, rows: pd.DataFrame, labelled: Table
) -> Table:
    """The images of a CSV's rows with their paths, and of files that have no row; their labels."""
    found, labels = labelled
    taken = RESERVED.intersection(labels.label_columns)
    if taken:
        raise ValueError(
            f"a label is called '{min(taken)}', which is the name of one of the table's own "
            "columns. Rename it in the CSV."
        )
    ids, template = rows[settings.id_column], settings.path_template
    below, path_problem = fill_paths(rows, settings.id_column, template)
    if not any(below):  # then the template is at fault, and says how
        fill_path(template, {**dict(rows.iloc[0]), "image_id": ids.iloc[0]})
    paths = [f"{input_dir.rstrip('/')}/{path}" if path else "" for path in below]
    problem = found["problem"]
    repeats = numbering.find_repeats(ids, found["label_name"].where(problem == "", problem))
    problem = repeats.where(repeats != "", problem)
    problem = problem.where(problem != "", path_problem)
    others = rows.drop(columns=[settings.id_column, *settings.label_columns], errors="ignore")
    others = others.rename(columns={name: f"csv_{name}" for name in RESERVED})
    images = pd.DataFrame({"image_id": ids, "path": paths, "split": "train"})
    images = pd.concat([images, found.assign(problem=problem), others], axis=1)
    return _add_unlisted(images, input_dir, settings, labels), labels


def fill_paths(rows: pd.DataFrame, id_column: str, template: str) -> tuple[list[str], list[str]]:
    """(path of each image below INPUT_DIR, what is wrong with its id), "" for none in either.

    Templates know the ids by their column's name and as `image_id`.
    """
    rows = rows.assign(image_id=rows[id_column])
    fields = {field.split("[")[0].split(".")[0] for field, _ in template_fields(template)}
    if not fields <= set(rows):
        fill_path(template, dict(rows.iloc[0]))  # names the missing column
    columns = {name: rows[name].tolist() for name in {*fields, "image_id"}}
    paths, problems = [], []
    for values in zip(*columns.values(), strict=True):
        path, problem = "", ""
        try:
            path = template.format_map(dict(zip(columns, values, strict=True)))
        except IndexError:
            problem = f"id too short for PATH_TEMPLATE '{template}'"
        if LEADS_OUT.search(path):
            path, problem = "", "id leads out of INPUT_DIR"
        paths.append(path)
        problems.append(problem)
    return paths, problems


def _add_unlisted(
    images: pd.DataFrame, input_dir: str, settings: InputSettings, labels: Labels
) -> pd.DataFrame:
    """The table, then a row with a problem for each file of the image folder that has no row."""
    pattern = re.sub(r"\{.*?\}", "*", settings.path_template)
    folder = pattern.partition("*")[0].rpartition("/")[0]
    pattern = pattern.removeprefix(folder + "/")
    folder = storage.join(input_dir, folder) if folder else input_dir
    files = storage.list_files(pattern, folder) if storage.is_folder(folder) else []
    known = set(images["path"])
    if known.isdisjoint(files):
        raise FileNotFoundError(
            f"none of the {len(images)} images is there, the first would be "
            f"'{images['path'].iloc[0]}' ({len(files)} files match '{pattern}' in {folder}). Point "
            "INPUT_DIR at the folder that holds the images' folder, or set PATH_TEMPLATE."
        )
    extra = pd.DataFrame({"path": [path for path in files if path not in known]}, dtype=str)
    if extra.empty:
        return images
    extra["image_id"] = extra["path"].str[len(folder.rstrip("/")) + 1 :]
    extra["problem"] = f"no row in {os.path.basename(settings.labels_csv)}"
    blank = "" if labels.kind == "masks" else np.int8(0)
    blanks = dict.fromkeys(labels.label_columns, blank)
    extra = extra.assign(split="train", label=-1, label_name="", **blanks)
    # Whole numbers stay whole where the new rows have none.
    others = [name for name in images if name not in extra]
    whole = [name for name in others if pd.api.types.is_integer_dtype(images[name])]
    return pd.concat([images.astype(dict.fromkeys(whole, "Int64")), extra], ignore_index=True)
