"""Labels of images: a class, several labels, a quantity, or masks."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.rows import (
    FILE,
    ID,
    NO_ROW,
    OF_CSV,
    PROBLEM,
    SPLIT,
    first_problem,
)
from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.images.masks import EMPTY_CODES, join_codes
from kaggle_tfr.parameters import Values
from kaggle_tfr.schema import Labels

# A row for each image with label, label_name, problem; what the labels are.
Table = tuple[pd.DataFrame, Labels]
Classes = Sequence[Any]  # those that labels must be; empty for any

MISSING = ("", "nan", "NaN", "<NA>")  # how CSVs write that there is no value
LEFT_OUT = "left out by LABEL_MAP"
NO_LABEL = "no label"
ODD_CELL = "a label is neither 0 nor 1"
FLAGS = {"1": 1, "true": 1, "0": 0, "false": 0}
INTEGER = re.compile("0|-?[1-9][0-9]*")  # as Python would write it: "007" stays text
NUMBER = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"
RUNS = r"\d+ \d+( \d+ \d+)*"  # a run-length code
MANY = 20  # different numbers with fractions are a quantity, not classes
N_BINS = 10  # of a quantity, by which folds are stratified
# Columns that the steps add. A CSV's column of such a name gets the prefix "csv_".
_RESERVED = """image_id path split label label_name problem height width n_bytes format
orientation note cluster distance keep reason fold shard part position source input_dir
override_group digest brightness sharpness jpeg_quality exif_camera exif_time file
record source_height source_width texture"""
RESERVED = frozenset([*_RESERVED.split(), *ALL_HASHES])


def label_rows(
    rows: pd.DataFrame,
    text: pd.DataFrame,
    settings: Values,
    known: Labels | None = None,
) -> Table:
    """Return a row for each image, with its labels, and what the labels are.

    rows: of `list_rows`, or of records. text, known: as in `read_labels`.
    Raises: ValueError: the text cannot be such labels.
    """
    image = rows[FILE].where(rows[FILE] != "", rows[ID])
    is_optional = (rows[SPLIT] == "test") | rows[PROBLEM].str.startswith(NO_ROW)
    facts = pd.DataFrame({"image": image, "is_optional": is_optional})
    labelled, labels = read_labels(text, facts, settings, known)
    rows = rows.loc[labelled.index]
    labelled["problem"] = first_problem(rows[PROBLEM], labelled["problem"])
    places = _list_places(rows, settings["INPUT_DIR"])
    others = _list_others(rows.drop(columns=list(text), errors="ignore"))
    images = pd.concat([places, labelled, others], axis=1)
    return images.reset_index(drop=True), labels


def _list_places(rows: pd.DataFrame, input_dir: str) -> pd.DataFrame:
    """Return image_id, path and split of each row."""
    file = rows[FILE]
    path = file.where(file == "", f"{input_dir}/" + file)
    return pd.DataFrame({"image_id": rows[ID], "path": path, "split": rows[SPLIT]})


def _list_others(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of the CSV under names that the steps do not use."""
    names = {name: f"csv_{name}" for name in RESERVED}
    return rows.filter(regex=OF_CSV).rename(columns=names)


def read_labels(
    text: pd.DataFrame,
    rows: pd.DataFrame,
    settings: Values,
    known: Labels | None = None,
) -> Table:
    """Return the labels of each image, by the index of its first row, and their kind.

    text: the cells of LABEL_COLUMN; without a column, images have no labels.
    rows: image, which all rows of an image share; is_optional, whether the image needs
    no label, as a test image. known: the labels of the main input.
    Column `label` of the result is 0 for an image with labels, -1 for one without;
    `number_labels` numbers them.
    Raises: ValueError: the cells cannot be such labels.
    """
    if text.columns.empty:
        problem = NO_LABEL if known else ""
        values = {"label": -1, "label_name": "", "problem": problem}
        return pd.DataFrame(values, text.index), known or Labels()

    text = _split_cells(text, settings["LABEL_SEPARATOR"])
    is_optional = rows["is_optional"]
    cells, classes = _map_cells(text, is_optional, settings, known)
    table, labels = _read_cells(cells, rows, settings, classes)
    if labels.kind == "single":
        is_left_out = (cells.iloc[:, 0] == "") & (text.iloc[:, 0] != "")
        table.loc[is_left_out, "problem"] = LEFT_OUT
    is_missing = (table["label"] < 0) & ~is_optional[table.index]
    problem = table["problem"].mask(is_missing, NO_LABEL)
    table["problem"] = first_problem(table["problem"], problem)
    return table, labels


def _map_cells(
    text: pd.DataFrame,
    is_optional: pd.Series,
    settings: Values,
    known: Labels | None,
) -> tuple[pd.DataFrame, Classes]:
    """Return the cells and columns that LABEL_MAP renames, and the known classes."""
    label_map = _load_label_map(settings)
    order = _list_order(label_map)
    if order and not known and len(text.columns) == 1:
        return text, order
    # The label that LABEL_MAP gives to an empty cell is not that of a test image.
    is_blank = is_optional[text.index] & (text == "").all(axis=1)
    cells = text.where(is_blank, text.replace(label_map))
    return cells.rename(columns=label_map), known.classes if known else ()


def _load_label_map(settings: Values) -> dict[str, str]:
    """Return LABEL_MAP, from the JSON file in INPUT_DIR if it is a file's name."""
    label_map: Any = settings["LABEL_MAP"] or {}
    if isinstance(label_map, str):
        path = storage.resolve(settings["INPUT_DIR"], label_map)
        text = storage.read_text(path)
        label_map = storage.parse_json(text, path, 'It takes {"class": label}.')
    return {str(name): str(label) for name, label in label_map.items()}


def _list_order(label_map: dict[str, str]) -> Classes:
    """Return the classes in the order of their labels; () if the map renames them."""
    name_of = {label: name for name, label in label_map.items()}
    names = [name_of.get(str(label), "") for label in range(len(label_map))]
    return _parse_names(names) if all(names) else ()


def _split_cells(text: pd.DataFrame, separator: str) -> pd.DataFrame:
    """Return a row for each label of a cell, tidied by columns."""
    if separator:
        lists = text.iloc[:, 0].str.split(separator, regex=False)
        text = lists.explode().str.strip().to_frame()
    return text.apply(_tidy)


def _tidy(cells: pd.Series) -> pd.Series:
    """Return the cells with composed letters; if all are numbers, 1.0 is 1."""
    cells = cells.str.normalize("NFC")
    cells = cells.mask(cells.str.strip().isin(MISSING), "")
    if cells.str.fullmatch(r"(-?\d+(\.\d+)?)?").all():
        return cells.str.replace(r"\.0+$", "", regex=True)
    return cells


def _read_cells(
    cells: pd.DataFrame, rows: pd.DataFrame, settings: Values, classes: Classes
) -> Table:
    """Return the labels of cells, whatever form they have; label -1 is a missing one.

    cells: their columns are called like the labels, "" for one that is left out.
    """
    kind = settings["LABEL_KIND"]
    names = cells.iloc[:, 0]
    if kind == "masks":
        return _label_masks(cells, rows, classes)
    if kind == "number":
        return _label_numbers(names, rows)
    if len(cells.columns) > 1:
        return _label_flags(cells, rows, kind, classes)
    if settings["LABEL_SEPARATOR"] or kind == "multi":
        return _spread(names, names, names != "", rows, classes)
    return _label_classes(names, rows, classes)


def _label_masks(cells: pd.DataFrame, rows: pd.DataFrame, classes: Classes) -> Table:
    """Return the masks of run-length codes, whose names may be in another column."""
    codes = cells.iloc[:, -1].str.strip().replace(list(EMPTY_CODES), "")
    names = cells.iloc[:, 0]
    if len(cells.columns) == 1:
        names = pd.Series(names.name, names.index)
    has_label = ~rows["is_optional"] | (codes != "")
    return _spread(names, codes, has_label, rows, classes)


def _parse_names(names: Collection[str]) -> list:
    """Return names of classes as integers if all of them are, else as text."""
    is_numeric = all(map(INTEGER.fullmatch, names))
    return list(map(int if is_numeric else str, names))


def _list_classes(names: pd.Series, rows: pd.DataFrame, classes: Classes) -> Classes:
    """Return the known classes, or the sorted names of images that need a label.

    Raises: ValueError: a name is not that of a known class.
    """
    texts = set(names[~rows["is_optional"][names.index]].unique()) - {""}
    if not classes:
        return sorted(_parse_names(texts))
    unknown = sorted(texts.difference(map(str, classes)))
    if unknown:
        raise ValueError(
            f"{len(unknown)} classes are not among the {len(classes)} of "
            f"LABEL_MAP or of the main input, such as '{unknown[0]}'. Add it to "
            f'LABEL_MAP, as in {{"{unknown[0]}": "the class that is meant"}}; "" '
            "leaves it out."
        )
    return classes


def number_names(classes: Classes) -> dict[str, int]:
    """Return the label of each class by its name."""
    return {str(name): label for label, name in enumerate(classes)}


def _label_classes(names: pd.Series, rows: pd.DataFrame, classes: Classes) -> Table:
    """Return one class for each image, "" for none."""
    classes = _list_classes(names, rows, classes)
    names = names.where(names.isin(number_names(classes)), "")
    return _describe(names, rows), Labels("single", tuple(classes))


def _label_numbers(cells: pd.Series, rows: pd.DataFrame) -> Table:
    """Return a quantity for each image; `number_labels` makes classes of it."""
    column = str(cells.name)
    if column in RESERVED or ":" in column:
        column = "target"
    cells = cells.where(cells.str.fullmatch(NUMBER), "")
    table = _describe(cells, rows)
    table[column] = pd.to_numeric(cells)
    return table, Labels("number", (), (column,))


def _describe(names: pd.Series, rows: pd.DataFrame) -> pd.DataFrame:
    """Return label, label_name and problem of each row, which has one name or none."""
    image = rows["image"]
    n_names = names.groupby(image).transform("nunique")
    problem = np.select(
        [n_names > 1, image.duplicated()],
        ["listed with different labels", "listed twice: the first row counts"],
        default="",
    )
    label = (names != "").astype(np.int64) - 1
    return pd.DataFrame({"label": label, "label_name": names, "problem": problem})


def number_labels(images: pd.DataFrame, labels: Labels) -> Table:
    """Return the images of all inputs with `label`, and labels with classes.

    `label` is the number of a class, of a combination of labels, or of one of ten bins
    of a quantity with equal counts, which are its classes; -1 for none.
    """
    if labels.kind == "number":
        numbers = images[labels.label_columns[0]]
        bins = pd.qcut(numbers, N_BINS, duplicates="drop").cat.rename_categories(str)
        labels = replace(labels, classes=tuple(bins.cat.categories))
        images = images.assign(label_name=bins.astype(object).fillna("").astype(str))

    names = images["label_name"]
    if labels.class_columns:
        label = pd.Categorical(names.where(images["label"] >= 0))
    else:
        label = pd.Categorical(names, list(number_names(labels.classes)))
    return images.assign(label=label.codes.astype(np.int64)), labels


def _label_flags(
    cells: pd.DataFrame, rows: pd.DataFrame, kind: str, classes: Classes
) -> Table:
    """Return the labels of columns of 0 and 1; a row with other cells has none."""
    flags = _read_flags(cells)
    columns = list(dict.fromkeys(flags))
    is_required = ~rows["is_optional"]
    is_good = flags.notna().all(axis=1)
    is_one = flags.sum(axis=1) == 1
    if kind == "auto":
        kind = _choose_kind(is_one[is_good & is_required])

    if kind == "single":
        names = flags.fillna(0).idxmax(axis=1).where(is_good & is_one, "")
        classes = classes or sorted(_parse_names(columns))
        table, labels = _label_classes(names, rows, classes)
    else:
        marks = flags[is_good].melt(ignore_index=False)
        names = marks["variable"][marks["value"] == 1]
        table, labels = _spread(names, names, is_good, rows, classes or columns)
    is_odd = (~is_good & is_required)[table.index]
    table.loc[is_odd, "problem"] = ODD_CELL
    return table, labels


def _read_flags(cells: pd.DataFrame) -> pd.DataFrame:
    """Return 0, 1 or NaN for each cell, without columns that LABEL_MAP leaves out."""
    cells = cells.drop(columns="", errors="ignore")
    return cells.apply(lambda column: column.str.strip().str.lower().map(FLAGS))


def _choose_kind(is_one: pd.Series) -> str:
    """Return "single" if each row has exactly one 1, and print it; else "multi"."""
    if not is_one.all():
        return "multi"
    print(
        "Each row has exactly one 1 in the label columns: they are read as one class "
        "per image. Set LABEL_KIND: multi to read them as several labels."
    )
    return "single"


def _spread(
    names: pd.Series,
    values: pd.Series,
    has_label: pd.Series,
    rows: pd.DataFrame,
    classes: Classes,
) -> Table:
    """Return a row for each image, with its value in the column of each name.

    values: run-length codes, of which those of one image and name become one, or the
    names, which become 1. has_label: whether the image of a row has labels, if only
    none of them.
    """
    kind = "multi" if values is names else "masks"
    classes = tuple(_list_classes(names, rows, classes))
    labels = Labels(kind, classes, tuple(map(str, classes)))
    reserved = RESERVED.intersection(labels.label_columns)
    if reserved:
        raise ValueError(
            f"a label is called '{min(reserved)}', like a column of images.parquet. "
            f'Set LABEL_MAP: {{"{min(reserved)}": "another name"}}.'
        )
    image = rows["image"]
    marks = names.to_frame("name").assign(value=values, image=image[names.index])
    table = _widen(marks.query("value != ''"), image.drop_duplicates(), labels)
    labelled = image[has_label.index[has_label]]
    is_labelled = image[table.index].isin(labelled)
    table.insert(0, "label", is_labelled.astype(np.int64) - 1)
    return table, labels


def _widen(marks: pd.DataFrame, images: pd.Series, labels: Labels) -> pd.DataFrame:
    """Return label_name, problem and the columns of labels, a row for each image.

    marks: image, name and value of each label.
    """
    columns = list(labels.label_columns)
    marks = marks[marks["name"].isin(columns)]
    table = marks.pivot_table(
        values="value",
        index="image",
        columns="name",
        aggfunc="first" if labels.kind == "multi" else join_codes,
        fill_value="",
    )
    table = table.reindex(images, columns=columns, fill_value="")
    if labels.kind == "multi":
        table = (table != "").astype(np.int8)
    names = marks.drop_duplicates(["image", "name"]).sort_values("name")
    texts = names.groupby("image")["name"].agg("|".join)
    table.insert(0, "label_name", texts.reindex(images, fill_value=""))
    table.insert(1, "problem", "")
    return table.set_axis(images.index)
