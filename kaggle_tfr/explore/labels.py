"""Labels of images: one class each, several labels, or masks as run-length codes."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.splits import MISSING
from kaggle_tfr.images.masks import EMPTY_CODES, join_codes
from kaggle_tfr.schema import Labels

# One row per image with the columns label, label_name and problem; what the labels are.
Table = tuple[pd.DataFrame, Labels]

FLAGS = {"1": 1, "1.0": 1, "true": 1, "0": 0, "0.0": 0, "false": 0}
INTEGER = re.compile("0|-?[1-9][0-9]*")  # as Python would write it: "007" stays text
# Columns that the steps add. A CSV's column of such a name gets the prefix "csv_".
RESERVED = {
    "image_id",
    "path",
    "split",
    "label",
    "label_name",
    "problem",
    "height",
    "width",
    "n_bytes",
    "format",
    "orientation",
    "note",
    "cluster",
    "distance",
    "keep",
    "reason",
    "fold",
    "shard",
    "part",
    "position",
    "source",
    "input_dir",
    "override_group",
    "digest",
    "brightness",
    "sharpness",
    "jpeg_quality",
    "exif_camera",
    "exif_time",
    "file",
    "record",
    "source_height",
    "source_width",
}


def load_label_map(input_dir: str, label_map: str | Mapping[str, Any]) -> Any:
    """Return a LABEL_MAP, from the JSON file in INPUT_DIR if it is the name of one."""
    if not isinstance(label_map, str):
        return label_map
    path = storage.resolve(input_dir, label_map)
    files.check_named_file(path, input_dir, "LABEL_MAP")
    try:
        return json.loads(files.read_named_file(path, "LABEL_MAP"))
    except ValueError as error:
        raise ValueError(f"LABEL_MAP '{path}' is not JSON: {error}") from None


def read_classes(input_dir: str, label_map: str | Mapping[str, int]) -> list | None:
    """Return the classes of a LABEL_MAP so that index = label, None without a map."""
    if not label_map:
        return None
    label_of = load_label_map(input_dir, label_map)
    _check_label_map(label_of)
    classes: list = [None] * (max(label_of.values()) + 1)
    for name, label in zip(_parse_names(label_of), label_of.values(), strict=True):
        if classes[label] is not None:
            raise ValueError(
                f"LABEL_MAP gives label {label} to both '{classes[label]}' and "
                f"'{name}'. Give each class a different label."
            )
        classes[label] = name
    return classes


def _check_label_map(content: Any) -> None:
    """Raise a ValueError unless a LABEL_MAP has a label from 0 for each class."""
    label_of = content if isinstance(content, Mapping) else {}
    wrong = {
        name: label
        for name, label in label_of.items()
        if not isinstance(label, int) or label < 0
    }
    if wrong or not label_of:
        raise ValueError(
            f'LABEL_MAP takes {{"class": label}}, with labels from 0, but it contains '
            f"{wrong or content!r:.80}. Fix the map, or leave LABEL_MAP empty to "
            "number the sorted classes."
        )


def _parse_names(names: Iterable[Any]) -> list:
    """Return names of classes as integers if all of them are, else as text."""
    texts = list(map(str, names))
    is_numeric = all(map(INTEGER.fullmatch, texts))
    return list(map(int, texts)) if is_numeric else texts


def number_classes(
    text: pd.Series, classes: list | None = None
) -> tuple[np.ndarray, list]:
    """Return the label of each row (int64, -1 for none) and the classes by label.

    classes: those of a label map; by default the sorted ones of the text.

    >>> number_classes(pd.Series(["10", "9", "", "10"]))
    (array([ 1,  0, -1,  1]), [9, 10])
    """
    names = text.mask(text.isin(MISSING))
    unique_names = names.dropna().unique()
    if classes is None:
        classes = sorted(_parse_names(unique_names))
    label_of = number_names(classes)
    _check_known(unique_names, label_of)
    return names.map(label_of).fillna(-1).to_numpy(np.int64), classes


def _check_known(names: Iterable[str], label_of: Mapping[str, int]) -> None:
    """Raise a ValueError if the LABEL_MAP lacks a class."""
    unknown = [name for name in names if name not in label_of]
    if unknown:
        raise ValueError(
            f"LABEL_MAP has {len(label_of)} classes and lacks {len(unknown)} of the "
            f"data, the first is '{unknown[0]}'. Add them, or leave it empty to number "
            "the sorted classes."
        )


def number_names(classes: Sequence[Any]) -> dict[str, int]:
    """Return the label of each class by its name; a label map may leave labels out."""
    return {str(name): label for label, name in enumerate(classes) if name is not None}


def single_label_table(text: pd.Series, classes: list | None = None) -> Table:
    """Return the table of images with one class each, named by `text`, "" for none."""
    label, classes = number_classes(text, classes)
    is_missing = label < 0
    table = pd.DataFrame(
        {
            "label": label,
            "label_name": text.mask(is_missing, ""),
            "problem": np.where(is_missing, "no label", ""),
        }
    )
    return table, Labels("single", tuple(classes))


def unlabelled_table(index: pd.Index) -> Table:
    """Return the table of images without labels, which is not a problem."""
    table, labels = single_label_table(pd.Series("", index, dtype=object))
    return table.assign(problem=""), labels


def multi_label_table(columns: pd.DataFrame, kind: str, problem: Any) -> Table:
    """Return the table of images with several labels or masks, a column for each label.

    columns: 0 or 1 (int8), or run-length codes, "" for no mask.
    label_name is the combination, such as "Fish|Sugar". `read_table` numbers those of
    all inputs; until then `label` is 0.
    """
    is_present = columns.to_numpy() != ("" if kind == "masks" else 0)
    label_name = _name_combinations(is_present, columns.columns)
    values = {"label": 0, "label_name": label_name, "problem": problem}
    table = pd.DataFrame(values, columns.index)
    label_columns = tuple(map(str, columns))
    labels = Labels(kind, label_columns, label_columns)
    return pd.concat([table, columns], axis=1), labels


def _name_combinations(is_present: np.ndarray, names: pd.Index) -> np.ndarray:
    """Return the joined names of the columns that are True in each row."""
    combinations, row = np.unique(is_present, axis=0, return_inverse=True)
    joined = ["|".join(names[is_held]) for is_held in combinations]
    return np.array(joined, object)[row.ravel()]


def read_flags(
    text: pd.DataFrame, is_test: pd.Series, kind: str, classes: list | None
) -> Table:
    """Return the table of columns of 0 and 1, each named after a label.

    kind: "single", "multi", or "auto": "single" if each valid row has exactly one 1.
    is_test: rows of the test split, which may lack labels: they do not count in "auto".
    classes: those of a label map, for "single".
    """
    flags, problem = _parse_flags(text)
    n_labels = flags.sum(axis=1)
    if kind == "auto":
        decisive = n_labels[(problem == "") & ~is_test]
        kind = _choose_kind(decisive, len(text.columns))
    table, labels = multi_label_table(flags, "multi", problem)
    if kind == "multi":
        return table, labels

    names = table["label_name"]
    several = "several labels where one is expected: " + names.str.replace("|", ", ")
    problem = first_problem(problem, several.where(n_labels > 1, ""))
    classes = classes or sorted(_parse_names(text))
    table, labels = single_label_table(names.where(problem == "", ""), classes)
    return keep_problems(problem, table), labels


def _choose_kind(n_labels: pd.Series, n_columns: int) -> str:
    """Return "single" and print it if each row has one label, else "multi"."""
    if n_labels.empty or (n_labels != 1).any():
        return "multi"
    print(
        f"Each row has exactly one 1 in {n_columns} label columns: "
        "they are read as one class per image. Set LABEL_KIND: multi to read "
        "them as several labels."
    )
    return "single"


def _parse_flags(text: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """Return the flags (int8), 0 for a bad cell, and the problem of each row."""
    flags = text.apply(lambda column: column.str.strip().str.lower().map(FLAGS))
    problem = pd.Series("", text.index, dtype=object)
    for name, column in text.items():
        bad = column[flags[name].isna()]
        reason = f"label column '{name}' contains '" + bad + "', not 0 or 1"
        is_missing = bad.isin(MISSING)
        problem[bad.index] = reason.mask(is_missing, f"no label in column '{name}'")
    return flags.fillna(0).astype(np.int8), problem


def first_problem(*problems: pd.Series) -> pd.Series:
    """Return the first problem of each row that is not ""."""
    first = problems[0]
    for problem in problems[1:]:
        first = first.where(first != "", problem)
    return first


def keep_problems(problem: pd.Series, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of labels; rows that have a problem already keep it."""
    return table.assign(problem=first_problem(problem, table["problem"]))


def unlabel_test_rows(
    table: pd.DataFrame, labels: Labels, is_test: pd.Series
) -> pd.DataFrame:
    """Return the table. Test rows need no labels if none of them has one.

    Beside labelled ones they stay rejected: the records of a split have the same
    fields.
    """
    is_unlabelled = table["problem"].str.startswith("no label")
    if not is_test.any() or not is_unlabelled[is_test].all():
        return table
    blanks = {"label": -1, "label_name": "", "problem": "", **labels.blanks()}
    for name, blank in blanks.items():
        table.loc[is_test, name] = blank
    return table


def split_labels(text: pd.Series, separator: str) -> Table:
    """Return the multi-label table of lists of classes, such as "rust scab"."""
    names = text.str.split(separator).explode().str.strip()
    label, classes = number_classes(names)
    is_class = label >= 0
    flags = np.zeros((len(text), len(classes)), np.int8)
    flags[names.index[is_class], label[is_class]] = 1
    columns = pd.DataFrame(flags, text.index, list(map(str, classes)))
    problem = np.where(text.isin(MISSING), "no label", "")
    table, labels = multi_label_table(columns, "multi", problem)
    return table, replace(labels, classes=tuple(classes))


def spread_codes(ids: pd.Series, names: pd.Series, codes: pd.Series) -> pd.DataFrame:
    """Return one row per image, in the order of `ids`, and one column per label.

    Codes of the same image and label are one mask; "" is no mask.
    """
    codes = codes.str.strip()
    masks = pd.DataFrame({"id": ids, "name": names, "code": codes})
    masks = _join_repeated(masks[~codes.isin(EMPTY_CODES)])
    spread = masks.pivot_table("code", index="id", columns="name", aggfunc="first")
    spread = spread.reindex(index=ids.unique(), columns=sorted(set(names)))
    return spread.astype(object).fillna("")


def _join_repeated(masks: pd.DataFrame) -> pd.DataFrame:
    """Return id, name and code with the codes of each image and label as one code."""
    key = ["id", "name"]
    is_repeated = masks.duplicated(key, keep=False)
    joined = masks[is_repeated].groupby(key, as_index=False).agg(join_codes)
    return pd.concat([masks[~is_repeated], joined])
