"""Labels of images: a class, several labels, a quantity, or masks."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.files import check_link
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.images.masks import EMPTY_CODES, join_codes
from kaggle_tfr.notebook import note
from kaggle_tfr.schema import Labels

# A row for each image with label, label_name, problem; what the labels are.
Table = tuple[pd.DataFrame, Labels]
Classes = Sequence[Any] | None  # those that labels must be, None for any

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
record source_height source_width"""
RESERVED = frozenset(_RESERVED.split())


def read_labels(
    text: pd.DataFrame,
    rows: pd.DataFrame,
    settings: InputSettings,
    known: Labels | None = None,
) -> Table:
    """Return the labels of each image, by the index of its first row, and their kind.

    text: the cells of LABEL_COLUMN; without a column, images have no labels.
    rows: image, which all rows of an image share; is_test; is_optional, whether the
    image needs no label, as a test image. known: the labels of the main input.
    Raises: ValueError: the cells cannot be such labels.
    """
    if text.columns.empty:
        values = {"label": -1, "label_name": "", "problem": NO_LABEL if known else ""}
        return pd.DataFrame(values, text.index), known or Labels()
    if settings.label_separator:
        lists = text.iloc[:, 0].str.split(settings.label_separator, regex=False)
        text = lists.explode().str.strip().to_frame()
    text = text.apply(_tidy)
    new_names = load_label_map(settings)
    classes: Classes = (known.label_columns or known.classes) if known else None
    is_order = set(new_names.values()) == set(map(str, range(len(new_names))))
    if new_names and is_order and len(text.columns) == 1 and not known:
        classes = _parse_names(sorted(new_names, key=lambda name: int(new_names[name])))
        new_names = {}
    needs_none = rows["is_optional"][text.index] & (text == "").all(axis=1)
    mapped = text.replace(new_names).mask(needs_none, "")
    names = [new_names.get(name, name) for name in map(str, text)]
    table, labels = _read_cells(mapped, names, rows, settings, classes)
    if labels.kind == "single" and len(text.columns) == 1:
        is_left_out = ((mapped == "") & (text != "")).iloc[:, 0]
        table.loc[is_left_out, "problem"] = LEFT_OUT
    return complete_labels(table, labels, rows), labels


def load_label_map(settings: InputSettings) -> dict[str, str]:
    """Return LABEL_MAP, from the JSON file in INPUT_DIR if it is a file's name."""
    label_map: Any = settings.label_map or {}
    if isinstance(label_map, str):
        path = storage.resolve(settings.input_dir, label_map)
        check_link(path, settings.input_dir, "LABEL_MAP")
        advice = 'LABEL_MAP takes {"class": label}.'
        label_map = storage.parse_json(storage.read_bytes(path), path, advice)
    return {str(name): str(value) for name, value in label_map.items()}


def complete_labels(
    table: pd.DataFrame, labels: Labels, rows: pd.DataFrame
) -> pd.DataFrame:
    """Return the table; a required label that is missing is a problem.

    table: label is -1 for a missing one. Test images have labels only if most do.
    """
    rows = rows.loc[table.index]
    is_test = rows["is_test"]
    is_required = ~rows["is_optional"]
    has_label = table["label"] >= 0
    problem = table["problem"]
    if has_label[is_test].mean() > 0.5:
        is_required |= is_test
    else:
        has_label &= ~is_test
        problem = problem.where(~is_test | problem.str.startswith("listed"), "")
    problem = problem.mask(is_required & ~has_label & (problem == ""), NO_LABEL)
    blanks = {"label": -1, "label_name": "", **labels.blanks()}
    for name, blank in blanks.items():
        table[name] = table[name].where(has_label, blank)
    return table.assign(problem=problem)


def _tidy(cells: pd.Series) -> pd.Series:
    """Return the cells with composed letters; if all are numbers, 1.0 is 1."""
    cells = cells.str.normalize("NFC")
    cells = cells.mask(cells.str.strip().isin(MISSING), "")
    if cells.str.fullmatch(r"(-?\d+(\.\d+)?)?").all():
        return cells.str.replace(r"\.0+$", "", regex=True)
    return cells


def _read_cells(
    text: pd.DataFrame,
    columns: list[str],
    rows: pd.DataFrame,
    settings: InputSettings,
    classes: Classes,
) -> Table:
    """Return the labels of cells, whatever form they have; label -1 is a missing one.

    columns: the names of the columns by LABEL_MAP.
    """
    kind = settings.label_kind
    names = text.iloc[:, 0]
    last = text.iloc[:, -1]
    codes = last.str.strip()
    codes = codes.mask(codes.isin(EMPTY_CODES), "")
    has_code = codes != ""
    if kind == "auto" and len(columns) < 3 and has_code.any():
        kind = "masks" if codes[has_code].str.fullmatch(RUNS).all() else kind
    if kind == "masks":
        if len(columns) == 1:
            names = pd.Series(columns[0], text.index)
        has_label = ~rows["is_optional"] | has_code
        return _spread(codes, names, has_label, rows, classes)
    if kind == "number":
        return _label_numbers(last, rows)
    if len(columns) > 1:
        return _label_flags(text, columns, rows, kind, classes)
    if kind != "multi" and not settings.label_separator:
        return _label_classes(names, rows, classes)
    has_label = names != ""
    return _spread(has_label.astype(np.int8), names, has_label, rows, classes)


def _parse_names(names: Collection[str]) -> list:
    """Return names of classes as integers if all of them are, else as text."""
    is_numeric = all(map(INTEGER.fullmatch, names))
    return list(map(int if is_numeric else str, names))


def _list_classes(names: Iterable[str], classes: Classes) -> Sequence[Any]:
    """Return the known classes, or the sorted names. Raises: ValueError."""
    texts = set(names) - {""}
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


def number_names(classes: Sequence[Any]) -> dict[str, int]:
    """Return the label of each class by its name; a label map may leave labels out."""
    return {str(name): label for label, name in enumerate(classes) if name is not None}


def _label_classes(names: pd.Series, rows: pd.DataFrame, classes: Classes) -> Table:
    """Return one class for each image, "" for none."""
    unique = names[~rows["is_optional"]].drop_duplicates()
    _check_names(unique)
    classes = _list_classes(unique, classes)
    label = names.map(number_names(classes)).fillna(-1).astype(np.int64)
    names = names.where(label >= 0, "")
    problem = _find_repeats(rows["image"], names)
    table = pd.DataFrame({"label": label, "label_name": names, "problem": problem})
    return table, Labels("single", tuple(classes))


def _check_names(names: pd.Series) -> None:
    """Raise a ValueError for quantities; note names that look alike."""
    numbers = names[names.str.fullmatch(NUMBER)]
    if len(numbers) > MANY and numbers.str.contains(".", regex=False).any():
        raise ValueError(
            f"LABEL_COLUMN has {len(numbers)} different numbers, such as "
            f"{numbers.iloc[0]}: a quantity, not classes. Set LABEL_KIND: number."
        )
    forms = names.str.split().str.join(" ").str.casefold()
    alike = names[forms.duplicated(keep=False)].tolist()
    if alike:
        note(
            "!",
            f"Classes differ only by blanks or case: {alike[:6]}.",
            "labels: similar names",
            f'If they are one class, set LABEL_MAP: {{"{alike[-1]}": "{alike[0]}"}}.',
        )


def _find_repeats(image: pd.Series, names: pd.Series) -> pd.Series:
    """Return the problem of each row whose image has other rows, "" for other rows."""
    problem_of = {True: "listed twice: the first row counts", False: ""}
    problem = image.duplicated().map(problem_of)
    repeated = image[image.duplicated(keep=False)]
    listed = names[repeated.index].groupby(repeated).unique().map(sorted)
    clashes = listed[listed.map(len) > 1].str.join(", ")
    return image.map("listed with different labels: " + clashes).fillna(problem)


def _label_numbers(cells: pd.Series, rows: pd.DataFrame) -> Table:
    """Return a quantity for each image; `number_labels` makes classes of it."""
    column = str(cells.name)
    if column in RESERVED or ":" in column:
        column = "target"
    numbers = pd.to_numeric(cells.where(cells.str.fullmatch(NUMBER)))
    problem = _find_repeats(rows["image"], cells)
    problem = problem.mask(numbers.isna() & (cells != ""), "not a number: " + cells)
    label = numbers.notna().astype(np.int64) - 1
    table = pd.DataFrame(
        {"label": label, "label_name": "", "problem": problem, column: numbers}
    )
    return table, Labels("number", (), (column,))


def number_labels(images: pd.DataFrame, labels: Labels) -> Table:
    """Return the images of all inputs with numbers of several labels, and of bins.

    `label` numbers the combinations of labels, or ten bins of a quantity with equal
    counts, which are its classes.
    """
    has_label = images["label"] >= 0
    if labels.kind in ("multi", "masks"):
        codes, _ = pd.factorize(images["label_name"].where(has_label), sort=True)
        return images.assign(label=codes), labels
    if labels.kind == "single":
        return images, labels
    numbers = images[labels.label_columns[0]][has_label]
    tenths = (numbers.rank(method="min") - 1) * N_BINS // len(numbers)
    bins = numbers.groupby(tenths)
    spans = bins.agg(["min", "max"]).to_numpy()
    names = np.array([f"{low:.6g} to {high:.6g}" for low, high in spans], object)
    images.loc[has_label, "label"] = bins.ngroup()
    images.loc[has_label, "label_name"] = names[bins.ngroup()]
    return images, replace(labels, classes=tuple(names))


def _label_flags(
    text: pd.DataFrame,
    columns: list[str],
    rows: pd.DataFrame,
    kind: str,
    classes: Classes,
) -> Table:
    """Return the labels of columns of 0 and 1.

    columns: the label of each, "" to leave it out.
    """
    flags = text.apply(lambda cells: cells.str.strip().str.lower().map(FLAGS))
    has_cells = (text != "").any(axis=1)
    is_required = ~rows["is_optional"]
    is_odd = flags.isna().mul(is_required | has_cells, axis=0)
    has_odd = is_odd.any(axis=1)
    odd = text.where(is_odd).stack().dropna()  # noqa: PD013 - it keeps the rows
    if has_odd.sum() > MAX_ODD * len(text):
        counts = odd.value_counts()[:4].to_dict()
        meant = ", ".join(f'"{cell}": 0' for cell in counts)
        raise ValueError(
            f"LABEL_COLUMN: {has_odd.sum():,} of {len(text):,} rows contain something "
            f"else than 0 and 1: {counts}. Set what each of them means, as in "
            f"LABEL_MAP: {{{meant}}}."
        )
    flags = flags.fillna(0).astype(np.int8).set_axis(columns, axis=1)
    n_labels = flags.sum(axis=1)
    if kind == "auto" and (n_labels[is_required & ~has_odd] == 1).all():
        print(
            f"Each row has exactly one 1 in {len(text.columns)} label columns: they "
            "are read as one class per image. Set LABEL_KIND: multi to read them as "
            "several labels."
        )
        kind = "single"
    if kind == "single":
        names = _name_combinations(flags)
        known = classes or sorted(_parse_names(set(columns) - {""}))
        table, labels = _label_classes(names.where(n_labels == 1, ""), rows, known)
        several = "several labels where one is expected: " + names
        table["problem"] = table["problem"].mask(n_labels > 1, several)
    else:
        known = classes or [name for name in dict.fromkeys(columns) if name]
        cells = flags.melt(value_name="/flag", ignore_index=False)
        has_label = has_cells[cells.index]
        table, labels = _spread(
            cells["/flag"], cells["variable"], has_label, rows, known
        )
    names_of_odd = odd.index.get_level_values(1)
    problem = "column '" + names_of_odd + "' contains '" + odd + "', not 0 or 1"
    first = problem.groupby(level=0).first()
    table.update(pd.DataFrame({"problem": first}))
    return table, labels


def _spread(
    values: pd.Series,
    names: pd.Series,
    has_label: pd.Series,
    rows: pd.DataFrame,
    classes: Classes,
) -> Table:
    """Return a row for each image, with its value in the column of each name.

    values: 0 and 1 (int8) or run-length codes; those of one image and name become one
    code. has_label: whether the image of a row has labels, if only none of them.
    """
    kind = "masks" if values.dtype != np.int8 else "multi"
    image = rows["image"][names.index]
    is_required = ~rows["is_optional"][names.index]
    classes = _list_classes(names[is_required], classes)
    columns = list(map(str, classes))
    blank: Any = "" if kind == "masks" else np.int8(0)
    is_held = (values != blank) & names.isin(columns)
    groups = values[is_held].groupby([image[is_held], names[is_held]])
    joined = groups.first()
    if kind == "masks":
        joined.update(groups.agg(list)[groups.size() > 1].map(join_codes))
    table = joined.unstack(fill_value=blank)  # noqa: PD010 - one value each
    images = rows["image"].drop_duplicates()
    table = table.reindex(images, columns=columns, fill_value=blank)
    label = images.isin(image[has_label].unique()).astype(np.int64) - 1
    table = _name_labels(label, table.set_axis(images.index))
    return table, Labels(kind, tuple(classes), tuple(columns))


def _name_labels(label: pd.Series, columns: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of labels after label, label_name ("Fish|Sugar") and problem.

    columns: 0 or 1 (int8), or run-length codes, "" for no mask.
    """
    reserved = RESERVED.intersection(columns)
    if reserved:
        raise ValueError(
            f"a label is called '{min(reserved)}', like a column of images.parquet. "
            f'Set LABEL_MAP: {{"{min(reserved)}": "another name"}}.'
        )
    names = _name_combinations(columns)
    table = pd.DataFrame({"label": label, "label_name": names, "problem": ""})
    return pd.concat([table, columns], axis=1)


def _name_combinations(columns: pd.DataFrame) -> pd.Series:
    """Return the joined names of the columns that are neither 0 nor "" in each row."""
    held, row = np.unique(columns.to_numpy(bool), axis=0, return_inverse=True)
    joined = ["|".join(map(str, columns.columns[is_held])) for is_held in held]
    return pd.Series(np.array(joined, object)[row.ravel()], columns.index)
