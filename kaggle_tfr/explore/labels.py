"""Labels of images: a class, several labels, a quantity, or masks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.files import check_link
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.images.masks import EMPTY_CODES, join_codes
from kaggle_tfr.schema import Labels

# A row for each image with label, label_name, problem; what the labels are.
Table = tuple[pd.DataFrame, Labels]

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
RESERVED = """image_id path split label label_name problem height width n_bytes format
orientation note cluster distance keep reason fold shard part position source input_dir
override_group digest brightness sharpness jpeg_quality exif_camera exif_time file
record source_height source_width""".split()


class Images(NamedTuple):
    """The image of each row: its name, and whether it needs no label.

    A test image needs none, nor does one that cannot be used.
    """

    name: pd.Series
    is_optional: pd.Series
    is_test: pd.Series


class Labelled(NamedTuple):
    """Labels by the index of each image's first row.

    table: label, label_name, problem, and a column for each label. has_label: bool.
    """

    table: pd.DataFrame
    labels: Labels
    has_label: pd.Series


def read_labels(
    text: pd.DataFrame, images: Images, settings: InputSettings, known: Labels | None
) -> Table:
    """Return the labels of each image and their kind.

    text: the cells of LABEL_COLUMN, a row for each of `images`; without a column,
    images have no labels. known: the labels of the main input, for a further one.
    Raises: ValueError: the cells cannot be such labels.
    """
    if text.columns.empty:
        table = pd.DataFrame({"label": -1, "label_name": "", "problem": ""}, text.index)
        return table, known or Labels()
    text = text.apply(_tidy)
    if separator := settings.label_separator:
        lists = text.iloc[:, 0].str.split(separator, regex=False)
        text = lists.explode().str.strip().to_frame()
    label_map = load_label_map(settings)
    form = _choose_form(text, settings)
    if form is _label_classes and _is_order(label_map):
        classes = sorted(label_map, key=lambda name: label_map[name])
        known = known or Labels("single", tuple(_parse_names(classes)))
        label_map = {}
    mapped = _rename(text, label_map, images.is_optional)
    table, labels, has_label = form(mapped, images, settings.label_kind, known)
    if form is _label_classes:
        is_left_out = (mapped.iloc[:, 0] == "") & (text.iloc[:, 0] != "")
        table.loc[is_left_out, "problem"] = LEFT_OUT
    return blank_missing(table, labels, has_label, images), labels


def blank_missing(
    table: pd.DataFrame, labels: Labels, has_label: pd.Series, images: Images
) -> pd.DataFrame:
    """Return the table; a required label that is missing is a problem.

    Test images have labels only if most of them have one.
    """
    is_test = images.is_test[table.index]
    is_required = ~images.is_optional[table.index]
    problem = table["problem"].copy()
    if is_test.any() and has_label[is_test].mean() > 0.5:
        is_required |= is_test
    else:
        has_label = has_label & ~is_test
        is_repeated = problem.str.startswith("listed")
        problem = problem.where(~is_test | is_repeated, "")
    problem[is_required & ~has_label & (problem == "")] = NO_LABEL
    table["problem"] = problem
    for name, blank in {"label": -1, "label_name": "", **labels.blanks()}.items():
        table.loc[~has_label, name] = blank
    return table


def _is_order(label_map: Mapping[str, Any]) -> bool:
    """Return whether a LABEL_MAP numbers all classes from 0."""
    numbers = list(label_map.values())
    is_whole = all(type(number) is int for number in numbers)
    return is_whole and len(numbers) > 0 and sorted(numbers) == [*range(len(numbers))]


def _rename(
    text: pd.DataFrame, label_map: Mapping[str, Any], is_optional: pd.Series
) -> pd.DataFrame:
    """Return the cells, and the names of columns, as LABEL_MAP renames them.

    Rows without any cell that need no label stay so.
    """
    new_names = {str(name): str(new_name) for name, new_name in label_map.items()}
    mapped = text.replace(new_names).rename(columns=new_names)
    is_blank = is_optional[text.index] & (text == "").all(axis=1)
    return mapped.mask(is_blank, "")


def _tidy(cells: pd.Series) -> pd.Series:
    """Return the cells with composed letters; if all are numbers, 1.0 is 1."""
    cells = cells.str.normalize("NFC")
    cells = cells.mask(cells.str.strip().isin(MISSING), "")
    values = cells[cells != ""]
    if values.str.fullmatch(r"-?\d+(\.\d+)?").all():
        return cells.str.replace(r"\.0+$", "", regex=True)
    return cells


def load_label_map(settings: InputSettings) -> Mapping[str, Any]:
    """Return LABEL_MAP, from the JSON file in INPUT_DIR if it is a file's name."""
    label_map = settings.label_map
    if not isinstance(label_map, str) or not label_map:
        return label_map or {}  # type: ignore[return-value]  # "" is none
    path = storage.resolve(settings.input_dir, label_map)
    check_link(path, settings.input_dir, "LABEL_MAP")
    if not storage.exists(path):
        raise FileNotFoundError(
            f"there is no file '{path}'. Set LABEL_MAP to a JSON file in INPUT_DIR."
        )
    advice = 'LABEL_MAP takes {"class": label}.'
    return storage.parse_json(storage.read_bytes(path), path, advice)


def _choose_form(text: pd.DataFrame, settings: InputSettings) -> Any:
    """Return the function that reads cells of this form."""
    n_columns = len(text.columns)
    last = text.iloc[:, -1]
    codes = last[~last.str.strip().isin(EMPTY_CODES)]
    is_auto = settings.label_kind == "auto"
    if is_auto and n_columns < 3 and len(codes) and codes.str.fullmatch(RUNS).all():
        return _label_masks
    if settings.label_kind == "masks":
        return _label_masks
    if settings.label_kind == "number":
        return _label_numbers
    is_pair = n_columns == 2 and not text.iloc[:, 0].str.lower().isin(FLAGS).any()
    if n_columns > 1 and not is_pair:
        return _label_flags
    if n_columns > 1 or settings.label_separator or settings.label_kind == "multi":
        return _label_lists
    return _label_classes


def _parse_names(names: Iterable[Any]) -> list:
    """Return names of classes as integers if all of them are, else as text."""
    texts = list(map(str, names))
    is_numeric = all(map(INTEGER.fullmatch, texts))
    return list(map(int, texts)) if is_numeric else texts


def _list_classes(names: Iterable[str], known: Sequence[Any] | None) -> Sequence[Any]:
    """Return the known classes, or the sorted names, as integers if all of them are.

    Raises: ValueError: a name is not known.
    """
    texts = set(names) - {""}
    if not known:
        return sorted(_parse_names(texts))
    unknown = sorted(texts - set(map(str, known)))
    if unknown:
        raise ValueError(
            f"{len(unknown)} classes are not among the {len(known)} of LABEL_MAP or of "
            f"the main input, such as '{unknown[0]}'. Add them to LABEL_MAP, as in "
            f'{{"{unknown[0]}": "the class that is meant"}}; "" leaves a class out.'
        )
    return known


def number_names(classes: Sequence[Any]) -> dict[str, int]:
    """Return the label of each class by its name; a label map may leave labels out."""
    return {str(name): label for label, name in enumerate(classes) if name is not None}


def _label_classes(
    text: pd.DataFrame, images: Images, kind: str, known: Labels | None
) -> Labelled:
    """Return one class for each image."""
    return _number_classes(text.iloc[:, 0], images, known and known.classes)


def _number_classes(
    names: pd.Series, images: Images, known: Sequence[Any] | None
) -> Labelled:
    """Return one class for each image, "" for none."""
    required = names[~images.is_optional]
    _check_names(required)
    classes = _list_classes(required.unique(), known)
    label = names.map(number_names(classes)).fillna(-1).astype(np.int64)
    names = names.where(label >= 0, "")
    problem = _find_repeats(images.name, names)
    table = pd.DataFrame({"label": label, "label_name": names, "problem": problem})
    return Labelled(table, Labels("single", tuple(classes)), label >= 0)


def _check_names(names: pd.Series) -> None:
    """Raise a ValueError for quantities; print a warning for names that look alike."""
    unique = pd.Series(names[names != ""].unique(), dtype=str)
    numbers = unique[unique.str.fullmatch(NUMBER)]
    if len(numbers) > MANY and numbers.str.contains(".", regex=False).any():
        raise ValueError(
            f"LABEL_COLUMN has {len(numbers)} different numbers, such as {numbers[0]}: "
            "a quantity, not classes. Set LABEL_KIND: number."
        )
    forms = unique.str.split().str.join(" ").str.casefold()
    alike = unique[forms.duplicated(keep=False)].tolist()
    if alike:
        print(
            f"WARNING: classes differ only by blanks or case: {alike[:6]}. If they are "
            f'one class, set LABEL_MAP: {{"{alike[-1]}": "{alike[0]}"}}.'
        )


def _find_repeats(image: pd.Series, values: pd.Series) -> pd.Series:
    """Return the problem of each row whose image has other rows, "" for other rows."""
    problem = pd.Series("", image.index)
    problem = problem.mask(image.duplicated(), "listed twice: the first row counts")
    repeated = image.duplicated(keep=False)
    listed = values[repeated].astype(str).groupby(image[repeated]).unique().map(sorted)
    clashes = listed[listed.map(len) > 1].str.join(", ")
    clash = image.map("listed with different labels: " + clashes)
    return clash.fillna(problem)


def _label_numbers(
    text: pd.DataFrame, images: Images, kind: str, known: Labels | None
) -> Labelled:
    """Return a quantity for each image; its class is one of ten bins of equal counts."""
    cells = text.iloc[:, 0]
    column = str(cells.name)
    if column in RESERVED or ":" in column:
        column = "target"
    numbers = pd.to_numeric(cells.where(cells.str.fullmatch(NUMBER)))
    if known:
        edges = [float(name.split(" to ")[0]) for name in map(str, known.classes)]
        edges.append(float(str(known.classes[-1]).split(" to ")[1]))
        column = known.label_columns[0]
    else:
        required = numbers[~images.is_optional].dropna()
        quantiles = np.linspace(0, 1, N_BINS + 1)
        edges = np.unique(np.quantile(required, quantiles)) if len(required) else [0]
    edges = [float(f"{edge:.6g}") for edge in edges]
    pairs = zip(edges, edges[1:] or edges, strict=False)
    classes = [f"{low:g} to {high:g}" for low, high in pairs]
    label = np.searchsorted(edges[1:-1], numbers)
    label = np.where(numbers.isna(), -1, label)
    names = np.array([*classes, ""], object)[label]
    problem = _find_repeats(images.name, cells)
    is_text = numbers.isna() & (cells != "")
    problem = problem.mask(is_text & (problem == ""), "not a number: " + cells)
    table = pd.DataFrame({"label": label, "label_name": names, "problem": problem})
    table[column] = numbers
    labels = Labels("number", tuple(classes), (column,))
    return Labelled(table, labels, numbers.notna())


def _label_flags(
    text: pd.DataFrame, images: Images, kind: str, known: Labels | None
) -> Labelled:
    """Return the labels of columns of 0 and 1, each named after a label."""
    lower = text.apply(lambda cells: cells.str.strip().str.lower())
    flags = lower.apply(lambda cells: cells.map(FLAGS))
    has_label = (text != "").any(axis=1)
    is_required = ~images.is_optional | has_label
    is_odd = flags.isna().mul(is_required, axis=0)
    _check_flags(text, is_odd)
    flags = flags.fillna(0).astype(np.int8)
    n_labels = flags.sum(axis=1)
    is_decisive = ~images.is_optional & ~is_odd.any(axis=1)
    if kind == "auto" and (n_labels[is_decisive] == 1).all():
        print(
            f"Each row has exactly one 1 in {len(text.columns)} label columns: they "
            "are read as one class per image. Set LABEL_KIND: multi to read them as "
            "several labels."
        )
        kind = "single"
    columns = flags.columns
    combinations = _name_combinations(flags != 0)
    if kind == "single":
        names = combinations.where(n_labels == 1, "")
        classes = known.classes if known else sorted(_parse_names(columns))
        labelled = _number_classes(names, images, classes)
        several = "several labels where one is expected: " + combinations
        problem = several.str.replace("|", ", ").where(n_labels > 1, "")
        problem = problem.where(is_required, "")
    else:
        labelled = _name_labels(flags, "multi", known, has_label)
        problem = _find_repeats(images.name, combinations)
    for column in columns[::-1]:
        cells = text.loc[is_odd[column], column]
        problem[cells.index] = f"column '{column}' contains '" + cells + "', not 0 or 1"
    kept = labelled.table["problem"]
    labelled.table["problem"] = kept.where(problem == "", problem)
    return labelled


def _check_flags(text: pd.DataFrame, is_odd: pd.DataFrame) -> None:
    """Raise a ValueError if many cells are something else than 0 and 1."""
    n_odd = int(is_odd.any(axis=1).sum())
    if n_odd <= MAX_ODD * len(text):
        return
    counts = text.where(is_odd).stack().value_counts()
    listed = ", ".join(
        f"'{cell}' {count:,} times" for cell, count in counts[:4].items()
    )
    meant = ", ".join(f'"{cell}": 0' for cell in counts.index[:4])
    raise ValueError(
        f"LABEL_COLUMN: {n_odd:,} of {len(text):,} rows contain something else than 0 "
        f"and 1: {listed}. Set what it means, as in LABEL_MAP: {{{meant}}}."
    )


def _label_lists(
    text: pd.DataFrame, images: Images, kind: str, known: Labels | None
) -> Labelled:
    """Return the labels of lists in a cell, or of several rows for an image.

    A second column has 1 where the label of a row holds.
    """
    names = text.iloc[:, 0]
    if len(text.columns) > 1:
        flags = text.iloc[:, 1].str.lower().map(FLAGS)
        names = names.where(flags != 0, "")
    image = images.name[names.index]
    is_required = ~images.is_optional[names.index]
    classes = _list_classes(names[is_required], known and known.classes)
    held = names.isin(set(map(str, classes))).to_numpy()
    first = ~images.name.duplicated()
    rows = pd.Index(images.name[first])
    values = np.zeros((len(rows), len(classes)), np.int8)
    column_of = number_names(classes)
    columns = names.to_numpy()[held]
    positions = rows.get_indexer(image[held])
    values[positions, [column_of[name] for name in columns]] = 1
    flags = pd.DataFrame(values, images.name.index[first], list(map(str, classes)))
    has_label = flags.any(axis=1)
    table, labels, _ = _name_labels(flags, "multi", known, has_label)
    return Labelled(table, replace(labels, classes=tuple(classes)), has_label)


def _label_masks(
    text: pd.DataFrame, images: Images, kind: str, known: Labels | None
) -> Labelled:
    """Return the run-length codes of each image, with a column for each label.

    The names are in the first column, else the one name is that of the codes' column.
    """
    *first, last = text
    codes = text[last].str.strip()
    codes = codes.mask(codes.isin(EMPTY_CODES), "")
    names = text[first[0]] if first else pd.Series(last, text.index)
    required = names[~images.is_optional & (names != "")]
    columns = list(known.label_columns) if known else sorted(set(required))
    _list_classes(required, columns)
    has_code = (codes != "") & names.isin(columns)
    groups = codes[has_code].groupby([images.name[has_code], names[has_code]])
    joined = groups.first()
    repeated = groups.agg(list)[groups.size() > 1]
    joined.update(repeated.map(join_codes))
    first_row = ~images.name.duplicated()
    spread = joined.unstack(fill_value="")  # noqa: PD010 - one value each
    spread = spread.reindex(images.name[first_row], columns=columns, fill_value="")
    spread = spread.set_axis(images.name.index[first_row]).astype(object)
    has_label = ~images.is_optional[first_row] | (spread != "").any(axis=1)
    return _name_labels(spread, "masks", None, has_label)


def name_codes(codes: pd.DataFrame) -> Labelled:
    """Return the labels of columns of run-length codes, each named after a label."""
    return _name_labels(codes, "masks", None, pd.Series(True, codes.index))


def _name_labels(
    columns: pd.DataFrame, kind: str, known: Labels | None, has_label: pd.Series
) -> Labelled:
    """Return images with several labels; label_name is such as "Fish|Sugar".

    columns: 0 or 1 (int8), or run-length codes, "" for no mask. `label` is 0:
    `read_table` numbers the combinations of all inputs.
    """
    if known:
        _list_classes(map(str, columns), known.label_columns)
        columns = columns.reindex(columns=list(known.label_columns), fill_value=0)
    reserved = set(RESERVED).intersection(columns)
    if reserved:
        raise ValueError(
            f"a label is called '{min(reserved)}', like a column of images.parquet. "
            f'Set LABEL_MAP: {{"{min(reserved)}": "another name"}}.'
        )
    names = _name_combinations(columns != ("" if kind == "masks" else 0))
    values = {"label": 0, "label_name": names, "problem": ""}
    table = pd.DataFrame(values, columns.index).join(columns)
    label_columns = tuple(map(str, columns))
    return Labelled(table, Labels(kind, label_columns, label_columns), has_label)


def _name_combinations(is_held: pd.DataFrame) -> pd.Series:
    """Return the joined names of the columns that are True in each row."""
    held, row = np.unique(is_held.to_numpy(), axis=0, return_inverse=True)
    joined = ["|".join(is_held.columns[columns]) for columns in held]
    return pd.Series(np.array(joined, object)[row.ravel()], is_held.index)
