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
from kaggle_tfr.notebook import note
from kaggle_tfr.parameters import Values
from kaggle_tfr.schema import Labels

# A row for each image with label, label_name, problem; what the labels are.
Table = tuple[pd.DataFrame, Labels]
Classes = Sequence[Any]  # those that labels must be; empty for any

MISSING = ("", "nan", "NaN", "<NA>", "<na>")  # how CSVs write that there is no value
LEFT_OUT = "left out by LABEL_MAP"
NO_LABEL = "no label"
ODD_CELL = "a label is neither 0 nor 1"
FLAGS = {
    "1": 1,
    "true": 1,
    "0": 0,
    "false": 0,
}
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
    """Return the table of images with their labels, and the kind and classes of these.

    rows: of `list_rows`, or of records, with the columns `FILE`, `ID`, `SPLIT` and
    `PROBLEM`; an image may have several. text: the cells of LABEL_COLUMN, by the index
    of `rows`. known: the labels that all inputs must have, None for any.
    Columns of the result: image_id, path, split, label (0, or -1 for none), label_name,
    problem ("" for none), those of the labels, and the other columns of `rows`.
    An image has one row; for a class or a quantity, more rows stay, with a problem.
    Raises: ValueError: the text cannot be such labels.
    """
    file = rows[FILE]
    is_test = rows[SPLIT] == "test"
    facts = pd.DataFrame(
        {
            # What rows of one image share: the file, or the id if it is missing.
            "image": file.where(file != "", rows[ID]),
            # No label is needed. NO_ROW begins the problem of a file that no CSV lists.
            "is_optional": is_test | rows[PROBLEM].str.startswith(NO_ROW),
        }
    )
    labelled, labels = read_labels(text, facts, settings, known)
    # `labelled` has one row of each image, or all. Columns read as labels are dropped.
    rows = rows.loc[labelled.index].drop(columns=list(text), errors="ignore")
    labelled["problem"] = first_problem(rows[PROBLEM], labelled["problem"])
    return _list_columns(rows, labelled, settings["INPUT_DIR"]), labels


def _list_columns(
    rows: pd.DataFrame,
    labelled: pd.DataFrame,
    input_dir: str,
) -> pd.DataFrame:
    """Return the columns of images: image_id, path, split, labels, others of the CSV.

    rows: of `list_rows`. labelled: of `read_labels`, with the same index; that of the
    result counts from 0.
    A column of the CSV with the name of one that the steps add becomes "csv_" + name.
    """
    names = {name: f"csv_{name}" for name in RESERVED}
    # Names of helper columns, such as `FILE`, begin with "/"; OF_CSV matches others.
    others = rows.filter(regex=OF_CSV).rename(columns=names)
    # LABEL_MAP may give a label the name of such a column: the label's column stays.
    others = others.drop(columns=list(labelled), errors="ignore")
    file = rows[FILE]
    places = pd.DataFrame(
        {
            "image_id": rows[ID],
            "path": file.where(file == "", f"{input_dir}/" + file),  # "" stays
            "split": rows[SPLIT],
        }
    )
    return places.join([labelled, others]).reset_index(drop=True)


def read_labels(
    text: pd.DataFrame,
    rows: pd.DataFrame,
    settings: Values,
    known: Labels | None = None,
) -> Table:
    """Return the labels of images, by the index of `rows`, and their kind and classes.

    text: the cells of LABEL_COLUMN; without a column, images have no labels.
    rows: columns image, a name that all rows of an image share, and is_optional,
    whether the image needs no label, as a test image. known: the labels that all inputs
    must have, None for any.
    Columns of the result: label, 0 for an image with labels, which `number_labels`
    replaces by a number, -1 for one without; label_name; problem, "" for none; and, for
    several labels, masks and quantities, one for each label. Several labels and masks
    have the first row of each image. A class and a quantity have all rows, the later
    ones of an image with a problem.
    Raises: ValueError: the cells cannot be such labels.
    """
    known = known or Labels()
    if text.columns.empty:
        # If the main input has labels, images of a further one need them.
        values = {
            "label": -1,
            "label_name": "",
            "problem": NO_LABEL if known != Labels() else "",
        }
        return pd.DataFrame(values, text.index), known

    is_masks = settings["LABEL_KIND"] == "masks"
    text = _split_cells(text, "" if is_masks else settings["LABEL_SEPARATOR"])
    is_optional = rows["is_optional"]
    cells, classes = _map_cells(text, is_optional, settings, known)
    table, labels = _read_cells(cells, rows, settings, classes)
    if labels.kind == "single":
        # LABEL_MAP has replaced the class of an image by "".
        names = cells.iloc[:, 0]
        is_left_out = (names == "") & (names != text.iloc[:, 0])
        table.loc[is_left_out, "problem"] = LEFT_OUT
    is_missing = (table["label"] < 0) & ~is_optional[table.index]
    table.loc[is_missing & (table["problem"] == ""), "problem"] = NO_LABEL
    return table, labels


def _map_cells(
    text: pd.DataFrame,
    is_optional: pd.Series,
    settings: Values,
    known: Labels,
) -> tuple[pd.DataFrame, Classes]:
    """Return the cells and columns as LABEL_MAP renames them, and the allowed classes.

    A map {"class": index} renames nothing: its classes, in the order of their indices,
    are the allowed ones. Otherwise: those of `known`, () for any. In a further input,
    for quantities, and for columns of 0 and 1 if none of them is in the map, it renames
    cells as other maps do. Keys of such a map that the data lacks are noted.
    A quantity of a further input is called like that of the main input.
    is_optional: whether the image of each row needs no label. known: the labels that
    all inputs must have, `Labels()` for any.
    """
    kind = settings["LABEL_KIND"]
    label_map = _load_label_map(settings)
    order = _list_order(label_map)
    is_flags = kind != "masks" and len(text.columns) > 1
    is_of_cells = kind == "number" or (is_flags and set(label_map).isdisjoint(text))
    if order and not known.classes and not is_of_cells:
        return text, order
    unused = sorted(set(label_map).difference(text, text.to_numpy().flat))
    if unused:
        note(
            "!",
            f"LABEL_MAP has keys that are not in the data, such as {unused[:5]}.",
            "labels: LABEL_MAP",
            'Quote keys such as "no" and "010", which YAML reads as False and 8.',
        )
    # LABEL_MAP may give empty cells a label, but those of optional images stay empty.
    is_blank = is_optional[text.index] & (text == "").all(axis=1)
    # The columns, too, for labels that are their names.
    cells = text.where(is_blank, text.replace(label_map)).rename(columns=label_map)
    if kind == known.kind == "number":  # the column is called as in the main input
        cells = cells.set_axis(known.label_columns, axis=1)
    return cells, known.classes


def _load_label_map(settings: Values) -> dict[str, str]:
    """Return LABEL_MAP with names and labels as text, {} for none.

    If it is a file's name, it is read from that JSON file in INPUT_DIR.
    Raises: FileNotFoundError; ValueError: the file is not a JSON mapping.
    """
    label_map: Any = settings["LABEL_MAP"] or {}
    if isinstance(label_map, str):
        path = storage.resolve(settings["INPUT_DIR"], label_map)
        text = storage.read_bytes(path)
        label_map = storage.parse_json(text, path, 'LABEL_MAP takes {"class": label}.')
    return {str(name): str(label) for name, label in label_map.items()}


def _list_order(label_map: dict[str, str]) -> Classes:
    """Return the classes in the order of their labels; () if the map renames them.

    label_map: it gives an order if its labels are "0", "1" … without a gap.
    """
    name_of = {label: name for name, label in label_map.items()}
    names = [name_of.get(str(label), "") for label in range(len(label_map))]
    return _parse_names(names) if all(names) else ()


def _split_cells(text: pd.DataFrame, separator: str) -> pd.DataFrame:
    """Return a row for each label of a cell; missing cells, such as "nan", become "".

    separator: between the labels of a cell, which all have its index; several columns
    are joined first. "" does not split cells.
    """
    if separator:
        lists = text.agg(separator.join, axis=1).str.split(separator, regex=False)
        text = lists.explode().str.strip().to_frame()
    return text.apply(_tidy)


def _tidy(cells: pd.Series) -> pd.Series:
    """Return the cells in Unicode's form NFC, "" for missing ones such as "nan".

    If all are numbers, "1.0" becomes "1".
    """
    cells = cells.str.normalize("NFC")
    cells = cells.mask(cells.str.strip().isin(MISSING), "")
    if cells.str.fullmatch(r"(-?\d+(\.\d+)?)?").all():
        return cells.str.replace(r"\.0+$", "", regex=True)
    return cells


def _read_cells(
    cells: pd.DataFrame,
    rows: pd.DataFrame,
    settings: Values,
    classes: Classes,
) -> Table:
    """Return the labels of images, read by the form of the cells; label -1 is none.

    cells: a column of classes, quantities or, after `_split_cells`, several labels;
    columns of 0 and 1 called like their labels, "" for one that is left out; or, for
    masks, run-length codes in the last column, after one of labels if there are any.
    rows: as in `read_labels`. classes: those that labels must be, () for any.
    Raises: ValueError: as `_list_classes`, `_spread`.
    """
    kind = settings["LABEL_KIND"]
    names = cells.iloc[:, 0]  # of the labels; codes of masks are in the last column
    if kind == "masks":
        codes = cells.iloc[:, -1].str.strip().replace(list(EMPTY_CODES), "")
        # Without a code, an optional image has no labels, another one an empty mask.
        # Of shards, `codes` has a row for each label of an image, so its index repeats;
        # that of `is_labelled`, too.
        is_labelled = ~rows["is_optional"] | (codes != "")
        if len(cells.columns) == 1:  # its name is that of the only class
            names = pd.Series(names.name, names.index)
        return _spread(names, codes, is_labelled.index[is_labelled], rows, classes)
    if kind == "number":
        return _label_numbers(names, rows)
    if len(cells.columns) > 1:
        return _label_flags(cells, rows, kind, classes)
    if settings["LABEL_SEPARATOR"] or kind == "multi":
        return _spread(names, names, names.index[names != ""], rows, classes)
    return _label_classes(names, rows, classes)


def _parse_names(names: Collection[str]) -> list:
    """Return names of classes as integers if all of them are, else as text."""
    is_numeric = all(map(INTEGER.fullmatch, names))
    return list(map(int if is_numeric else str, names))


def _list_classes(
    names: pd.Series,
    rows: pd.DataFrame,
    classes: Classes,
) -> Classes:
    """Return the known classes, or the sorted names of images that need a label.

    Raises: ValueError: a name is not that of a known class.
    """
    is_optional = rows["is_optional"][names.index]
    texts = set(names[~is_optional].unique()) - {""}
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
    """Return the label of each class, its number from 0, by its name."""
    return {str(name): label for label, name in enumerate(classes)}


def _label_classes(
    names: pd.Series,
    rows: pd.DataFrame,
    classes: Classes,
) -> Table:
    """Return one class for each row, "" for none, and the labels.

    names: the text of the class. A class that only images without need of a label have
    becomes "".
    """
    classes = _list_classes(names, rows, classes)
    names = names.where(names.isin(number_names(classes)), "")
    return _describe(names, rows), Labels("single", tuple(classes))


def _label_numbers(cells: pd.Series, rows: pd.DataFrame) -> Table:
    """Return a quantity for each row, and its labels without classes.

    It is a float, NaN for text that is not a number, in the column of the cells' name,
    or "target" if that cannot be one. `number_labels` makes classes of it.
    """
    column = str(cells.name)
    if column in RESERVED or ":" in column:  # of the steps, or a rule "names: REGEX"
        column = "target"
    cells = cells.where(cells.str.fullmatch(NUMBER), "")
    table = _describe(cells, rows)
    table[column] = pd.to_numeric(cells)
    return table, Labels("number", (), (column,))


def _describe(names: pd.Series, rows: pd.DataFrame) -> pd.DataFrame:
    """Return label, label_name and problem of each row, which has one name or none.

    label: 0 with a name, -1 without. A second row of an image always has a problem, and
    all rows of an image with different names.
    """
    image = rows["image"]
    n_names = names.groupby(image).transform("nunique")
    problem = np.select(
        [n_names > 1, image.duplicated()],
        ["listed with different labels", "listed twice: the first row counts"],
        "",
    )
    return pd.DataFrame(
        {
            "label": np.where(names == "", -1, 0),
            "label_name": names,
            "problem": problem,
        }
    )


def number_labels(images: pd.DataFrame, labels: Labels) -> Table:
    """Return the images of all inputs with `label`, and labels with classes.

    `label` is the number of a class, of a combination of labels, or of one of ten bins
    of a quantity with equal counts, which are its classes; -1 for none. label_name of a
    quantity becomes that of its bin.
    """
    if labels.kind == "number":
        (column,) = labels.label_columns
        bins = pd.qcut(images[column], N_BINS, duplicates="drop")
        labels = replace(labels, classes=tuple(map(str, bins.cat.categories)))
        images = images.assign(label_name=bins.astype(str).where(bins.notna(), ""))

    names = images["label_name"]
    categories = None
    if labels.class_columns:  # each combination of labels is a category
        names = names.where(images["label"] >= 0)
    else:
        categories = list(number_names(labels.classes))
    # -1 for NaN, and for a name that is not a category.
    label = pd.Categorical(names, categories).codes
    return images.assign(label=label.astype(np.int64)), labels


def _label_flags(
    cells: pd.DataFrame,
    rows: pd.DataFrame,
    kind: str,
    classes: Classes,
) -> Table:
    """Return the labels of columns of 0 and 1; a row with other cells has none.

    Such a row has a problem, unless its image needs no label.
    kind: "single", where rows without exactly one 1 have no label; "multi"; or "auto",
    which is "single" if all rows that need a label have exactly one 1, else "multi".
    """
    flags = _read_flags(cells)
    columns = list(dict.fromkeys(map(str, flags)))  # LABEL_MAP may make equal names
    is_required = ~rows["is_optional"]
    if kind == "auto":
        kind = _choose_kind(flags[is_required[flags.index]])

    if kind == "single":
        # Without exactly one 1, the image has no label.
        names = flags.idxmax(axis=1).where(flags.sum(axis=1) == 1, "")
        names = names.reindex(cells.index, fill_value="")
        classes = classes or sorted(_parse_names(columns))
        table, labels = _label_classes(names, rows, classes)
    else:
        # A row for each cell: variable, the name of its column, and value, 0 or 1. With
        # the names as the values, `_spread` makes columns of 0 and 1.
        marks = flags.melt(ignore_index=False)
        names = marks["variable"][marks["value"] == 1]
        table, labels = _spread(names, names, flags.index, rows, classes or columns)
    is_odd = is_required & ~rows.index.isin(flags.index)
    table.loc[is_odd[table.index], "problem"] = ODD_CELL
    return table, labels


def _read_flags(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have only 0 and 1, as numbers; true is 1, false is 0.

    Columns with the name "", which LABEL_MAP leaves out, are dropped.
    """
    cells = cells.drop(columns="", errors="ignore")
    return cells.apply(lambda text: text.str.strip().str.lower().map(FLAGS)).dropna()


def _choose_kind(flags: pd.DataFrame) -> str:
    """Return "single" if each row has exactly one 1, and print it; else "multi"."""
    if (flags.sum(axis=1) != 1).any():
        return "multi"
    print(
        f"Each row has exactly one 1 in {len(flags.columns)} label columns: they are "
        "read as one class per image. Set LABEL_KIND: multi to read them as several "
        "labels."
    )
    return "single"


def _spread(
    names: pd.Series,
    values: pd.Series,
    labelled: pd.Index,
    rows: pd.DataFrame,
    classes: Classes,
) -> Table:
    """Return a row for each image with a column for each label, for "multi" or "masks".

    names: the label in each row, "" for none; an index may repeat. values: for masks,
    the run-length code in each row; codes of one image and label are joined. For
    several labels, the same object as `names`: the columns have 0 or 1.
    labelled: index of the rows of labelled images, which may have only 0 or no mask.
    Raises: ValueError: a label is called like a column of the steps.
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
    marks = names.to_frame("name").assign(
        value=values,
        image=image[names.index],
    )
    marks = marks[(values != "") & names.isin(labels.label_columns)]
    table = _widen(marks, image.drop_duplicates(), labels)
    is_labelled = image[table.index].isin(image[labelled])
    # 0 with labels, -1 without.
    table.insert(0, "label", is_labelled.astype(np.int64) - 1)
    return table, labels


def _widen(
    marks: pd.DataFrame,
    images: pd.Series,
    labels: Labels,
) -> pd.DataFrame:
    """Return label_name, problem and the columns of labels, a row for each image.

    marks: image, name and value of each label. images: the image of each row of the
    result, by the index of its first row.
    label_name: the names of all labels of the image in order, with "|" between them.
    The columns of labels have 0 or 1 (int8), or a run-length code, "" for none.
    """
    # Of several labels, the value is the name itself, which becomes 1 below.
    join: Any = "first" if labels.kind == "multi" else join_codes
    table = marks.pivot_table(
        values="value",
        index="image",
        columns="name",
        aggfunc=join,
        fill_value="",
    )
    table = table.reindex(images, columns=list(labels.label_columns), fill_value="")
    if labels.kind == "multi":
        table = (table != "").astype(np.int8)
    names = marks.drop_duplicates(["image", "name"]).sort_values("name")
    texts = names.groupby("image")["name"].agg("|".join)
    table.insert(0, "label_name", texts.reindex(images, fill_value=""))
    table.insert(1, "problem", "")
    return table.set_axis(images.index)
