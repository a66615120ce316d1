"""Labels of images: a class, several labels, a quantity, or masks."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.images.hashing import ALL_HASHES
from kaggle_tfr.images.masks import EMPTY_CODES, join_codes
from kaggle_tfr.schema import Labels

# A row for each image with label, label_name, problem; what the labels are.
Table = tuple[pd.DataFrame, Labels]
Classes = Sequence[Any]  # those that labels must be; empty for any

MISSING = ("", "nan", "NaN", "<NA>")  # how CSVs write that there is no value
LEFT_OUT = "left out by LABEL_MAP"
NO_LABEL = "no label"
FLAGS = {"1": 1, "true": 1, "0": 0, "false": 0}
INTEGER = re.compile("0|-?[1-9][0-9]*")  # as Python would write it: "007" stays text
NUMBER = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"
RUNS = r"\d+ \d+( \d+ \d+)*"  # a run-length code
MANY = 20  # different numbers with fractions are a quantity, not classes
MAX_ODD = 0.05  # of the rows, with something else in columns of 0 and 1
N_BINS = 10  # of a quantity, by which folds are stratified
# Columns that the steps add. A CSV's column of such a name gets the prefix "csv_".
_RESERVED = """image_id path split label label_name problem height width n_bytes format
orientation note cluster distance keep reason fold shard part position source input_dir
override_group digest brightness sharpness jpeg_quality exif_camera exif_time file
record source_height source_width texture"""
RESERVED = frozenset([*_RESERVED.split(), *ALL_HASHES])


def read_labels(
    text: pd.DataFrame,
    rows: pd.DataFrame,
    settings: InputSettings,
    known: Labels | None = None,
) -> Table:
    """Return the labels of each image, by the index of its first row, and their kind.

    text: the cells of LABEL_COLUMN; without a column, images have no labels.
    rows: image, which all rows of an image share; is_optional, whether the image needs
    no label, as a test image. known: the labels of the main input.
    Raises: ValueError: the cells cannot be such labels.
    """
    if text.columns.empty:
        values = {"label": -1, "label_name": "", "problem": NO_LABEL if known else ""}
        return pd.DataFrame(values, text.index), known or Labels()
    if settings.label_separator:
        lists = text.iloc[:, 0].str.split(settings.label_separator, regex=False)
        text = lists.explode().str.strip().to_frame()
    text = text.apply(_tidy)
    classes: Classes = known.classes if known else ()
    label_map = load_label_map(settings)
    if not known and len(text.columns) == 1:
        classes = _list_order(label_map)
    cells = text if classes and not known else text.replace(label_map)
    # The label that LABEL_MAP gives to an empty cell is not that of a test image.
    is_optional = rows["is_optional"]
    is_blank = is_optional[text.index] & (text == "").all(axis=1)
    cells = cells.mask(is_blank, "").rename(columns=label_map)
    table, labels = _read_cells(cells, rows, settings, classes)

    is_missing = ~is_optional[table.index] & (table["label"] < 0)
    table.loc[is_missing & (table["problem"] == ""), "problem"] = NO_LABEL
    if labels.kind == "single":
        is_left_out = (cells.iloc[:, 0] == "") & (text.iloc[:, 0] != "")
        table.loc[is_left_out, "problem"] = LEFT_OUT
    return table, labels


def load_label_map(settings: InputSettings) -> dict[str, str]:
    """Return LABEL_MAP, from the JSON file in INPUT_DIR if it is a file's name."""
    label_map: Any = settings.label_map or {}
    if isinstance(label_map, str):
        path = storage.resolve(settings.input_dir, label_map)
        advice = 'LABEL_MAP takes {"class": label}.'
        label_map = storage.parse_json(storage.read_bytes(path), path, advice)
    return {str(name): str(value) for name, value in label_map.items()}


def _list_order(label_map: dict[str, str]) -> Classes:
    """Return the classes in the order of their labels; () if the map renames them."""
    name_of = {label: name for name, label in label_map.items()}
    labels = list(map(str, range(len(label_map))))
    is_order = name_of.keys() == set(labels)
    return _parse_names([name_of[label] for label in labels]) if is_order else ()


def _tidy(cells: pd.Series) -> pd.Series:
    """Return the cells with composed letters; if all are numbers, 1.0 is 1."""
    cells = cells.str.normalize("NFC")
    cells = cells.mask(cells.str.strip().isin(MISSING), "")
    if cells.str.fullmatch(r"(-?\d+(\.\d+)?)?").all():
        return cells.str.replace(r"\.0+$", "", regex=True)
    return cells


def _read_cells(
    cells: pd.DataFrame, rows: pd.DataFrame, settings: InputSettings, classes: Classes
) -> Table:
    """Return the labels of cells, whatever form they have; label -1 is a missing one.

    cells: their columns are called like the labels, "" for one that is left out.
    """
    kind = settings.label_kind
    n_columns = len(cells.columns)
    names = cells.iloc[:, 0]
    codes = cells.iloc[:, -1].str.strip().replace(list(EMPTY_CODES), "")
    if kind == "auto" and n_columns < 3 and _are_codes(codes):
        kind = "masks"
    if kind == "masks":
        if n_columns == 1:
            names = pd.Series(names.name, names.index)
        has_label = ~rows["is_optional"] | (codes != "")
        return _spread(names, codes, has_label, rows, classes)
    if kind == "number":
        return _label_numbers(names, rows)
    if n_columns > 1:
        return _label_flags(cells, rows, kind, classes)
    if settings.label_separator or kind == "multi":
        return _spread(names, names != "", names != "", rows, classes)
    return _label_classes(names, rows, classes)


def _are_codes(cells: pd.Series) -> bool:
    """Return whether all cells that are not empty are run-length codes."""
    codes = cells[cells != ""]
    return len(codes) > 0 and bool(codes.str.fullmatch(RUNS).all())


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
    label = names.map(number_names(classes)).fillna(-1).astype(np.int64)
    names = names.where(label >= 0, "")
    problem = _find_repeats(rows["image"], names)
    table = pd.DataFrame({"label": label, "label_name": names, "problem": problem})
    return table, Labels("single", tuple(classes))


def _find_repeats(image: pd.Series, names: pd.Series) -> pd.Series:
    """Return the problem of each row whose image has other rows, "" for other rows."""
    problem_of = {True: "listed twice: the first row counts", False: ""}
    n_labels = names.groupby(image).transform("nunique")
    problem = image.duplicated().map(problem_of)
    return problem.mask(n_labels > 1, "listed with different labels")


def _label_numbers(cells: pd.Series, rows: pd.DataFrame) -> Table:
    """Return a quantity for each image; `number_labels` makes classes of it."""
    column = str(cells.name)
    if column in RESERVED or ":" in column:
        column = "target"
    numbers = pd.to_numeric(cells.where(cells.str.fullmatch(NUMBER)))
    values = {
        "label": numbers.notna().astype(np.int64) - 1,
        "label_name": "",
        "problem": _find_repeats(rows["image"], cells),
        column: numbers,
    }
    return pd.DataFrame(values), Labels("number", (), (column,))


def number_labels(images: pd.DataFrame, labels: Labels) -> Table:
    """Return the images of all inputs with numbers of several labels, and of bins.

    `label` numbers the combinations of labels, or ten bins of a quantity with equal
    counts, which are its classes.
    """
    if labels.kind == "single":
        return images, labels
    key = images["label_name"].where(images["label"] >= 0)
    if labels.kind == "number":
        numbers = images[labels.label_columns[0]]
        key = (numbers.rank(method="min") - 1) * N_BINS // numbers.count()
        spans = numbers.groupby(key).agg(["min", "max"]).map("{:.6g}".format)
        names = spans["min"] + " to " + spans["max"]
        images = images.assign(label_name=key.map(names).fillna(""))
        labels = replace(labels, classes=tuple(names))
    return images.assign(label=pd.factorize(key, sort=True)[0]), labels


def _label_flags(
    cells: pd.DataFrame, rows: pd.DataFrame, kind: str, classes: Classes
) -> Table:
    """Return the labels of columns of 0 and 1."""
    columns = list(filter(None, dict.fromkeys(map(str, cells))))
    flags = cells.apply(lambda column: column.str.strip().str.lower().map(FLAGS))
    is_good = flags.notna().all(axis=1)
    is_required = ~rows["is_optional"]
    _check_odd_cells(cells[~is_good & is_required], len(cells))
    names = _name_combinations(flags[columns].where(is_good, 0))
    is_one = (names != "") & ~names.str.contains("|", regex=False)
    if kind == "auto" and is_one[is_good & is_required].all():
        print(
            f"Each row has exactly one 1 in {len(columns)} label columns: they are "
            "read as one class per image. Set LABEL_KIND: multi to read them as "
            "several labels."
        )
        kind = "single"
    if kind == "single":
        classes = classes or sorted(_parse_names(columns))
        return _label_classes(names.where(is_one, ""), rows, classes)
    names = names.str.split("|", regex=False).explode()
    return _spread(names, names != "", is_good, rows, classes or columns)


def _check_odd_cells(odd: pd.DataFrame, n_rows: int) -> None:
    """Raise a ValueError if many rows have odd cells; blank rows do not count."""
    odd = odd[(odd != "").any(axis=1)]
    if len(odd) > MAX_ODD * n_rows:
        counts = odd.melt()["value"].value_counts().drop(list(FLAGS), errors="ignore")
        raise ValueError(
            f"LABEL_COLUMN: {len(odd):,} of {n_rows:,} rows contain something else "
            f"than 0 and 1: {counts[:4].to_dict()}. Set what each of them means, as in "
            f'LABEL_MAP: {{"{counts.index[0]}": 0}}.'
        )


def _spread(
    names: pd.Series,
    values: pd.Series,
    has_label: pd.Series,
    rows: pd.DataFrame,
    classes: Classes,
) -> Table:
    """Return a row for each image, with its value in the column of each name.

    values: run-length codes, of which those of one image and name become one, or
    whether there is a name. has_label: whether the image of a row has labels, if only
    none of them.
    """
    kind = "multi" if values.dtype == bool else "masks"
    classes = tuple(_list_classes(names, rows, classes))
    labels = Labels(kind, classes, tuple(map(str, classes)))
    reserved = RESERVED.intersection(labels.label_columns)
    if reserved:
        raise ValueError(
            f"a label is called '{min(reserved)}', like a column of images.parquet. "
            f'Set LABEL_MAP: {{"{min(reserved)}": "another name"}}.'
        )
    table = _join_values(names, values, rows["image"], labels)
    images = rows["image"][table.index]
    is_labelled = images.isin(rows["image"][has_label.index][has_label])
    labelled = pd.DataFrame(
        {
            "label": is_labelled.astype(np.int64) - 1,
            "label_name": _name_combinations(table),
            "problem": "",
        }
    )
    return labelled.join(table), labels


def _join_values(
    names: pd.Series, values: pd.Series, image: pd.Series, labels: Labels
) -> pd.DataFrame:
    """Return a row for each image, with a column for each label."""
    columns = list(labels.label_columns)
    is_held = values.astype(bool) & names.isin(columns)
    groups = values[is_held].groupby([image[names.index][is_held], names[is_held]])
    joined = groups.agg("first" if labels.kind == "multi" else join_codes)
    images = image.drop_duplicates()
    table = joined.unstack().reindex(images, columns=columns)  # noqa: PD010
    table = table.set_axis(images.index).fillna(labels.blanks())
    return table.astype(np.int8) if labels.kind == "multi" else table


def _name_combinations(columns: pd.DataFrame) -> pd.Series:
    """Return the joined names of the columns that are neither 0 nor "" in each row.

    An example is "Fish|Sugar".
    """
    held, row = np.unique(columns.to_numpy(bool), axis=0, return_inverse=True)
    joined = ["|".join(columns.columns[is_held]) for is_held in held]
    return pd.Series(np.array(joined, object)[row.ravel()], columns.index)
