"""Numbers for labels of any kind: one class, several, or masks; contiguous, sorted, typed."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr.schema import Labels

MISSING = ("", "nan", "NaN", "<NA>")
INTEGER = re.compile("0|-?[1-9][0-9]*")  # as Python would write it: "007" stays text

LabelMap = Mapping[str, int] | None
Labelled = tuple[pd.DataFrame, Labels]  # columns label, label_name, problem, …; and their labels


def single_label_table(text: pd.Series, label_map: LabelMap = None) -> Labelled:
    """Columns label, label_name, problem of images with one class each."""
    label, classes = number_classes(text, label_map)
    table = pd.DataFrame({"label": label, "label_name": text.where(label >= 0, "").astype(object)})
    table["problem"] = np.where(label < 0, "no label", "").astype(object)
    return table, Labels("single", tuple(classes))


def multi_label_table(columns: pd.DataFrame, kind: str, problem: pd.Series) -> Labelled:
    """Columns label (of the combination of classes), label_name ("Fish|Sugar"), problem, `columns`.

    columns: 0/1 for kind "multi", run-length codes for "masks"; named by the classes as text.
    """
    present = columns.to_numpy() != ("" if kind == "masks" else 0)
    combinations, row = np.unique(present, axis=0, return_inverse=True)
    text = np.array(["|".join(columns.columns[one]) for one in combinations], object)[row.ravel()]
    table = pd.DataFrame({"label": pd.factorize(text, sort=True)[0], "label_name": text})
    table = table.set_index(columns.index).assign(problem=problem)
    names = tuple(map(str, columns))
    return pd.concat([table, columns], axis=1), Labels(kind, names, names)


def read_flags(rows: pd.DataFrame) -> Labelled:
    """The multi-label table of columns of text, each of a label and 0 or 1 in every row."""
    flags, problem = {}, pd.Series("", index=rows.index, dtype=object)
    for name in rows:
        text = rows[name].str.strip().str.lower()
        flags[name] = text.isin(["1", "1.0", "true"]).astype(np.int8)
        invalid = (flags[name] == 0) & ~text.isin(["0", "0.0", "false"])
        values = rows[name][invalid].astype(object)
        problem[invalid] = f"label column '{name}' holds '" + values + "', not 0 or 1"
        problem[rows[name].isin(MISSING)] = f"no label in column '{name}'"
    return multi_label_table(pd.DataFrame(flags), "multi", problem)


def split_labels(text: pd.Series, separator: str) -> Labelled:
    """The multi-label table of separated lists of classes."""
    missing = text.isin(MISSING)
    single = text.where(~missing, "").str.split(separator).explode().str.strip()
    single = single[single != ""]
    label, classes = number_classes(single)
    flags = np.zeros((len(text), len(classes)), np.int8)
    flags[text.index.get_indexer(single.index), label] = 1
    columns = pd.DataFrame(flags, columns=list(map(str, classes)), index=text.index)
    problem = missing.map({True: "no label", False: ""}).astype(object)
    table, labels = multi_label_table(columns, "multi", problem)
    return table, replace(labels, classes=tuple(classes))


def number_classes(text: pd.Series, label_map: LabelMap = None) -> tuple[np.ndarray, list]:
    """(int64 label of each row, -1 where none is given; the classes, so that index = label).

    Classes are sorted, as integers when all are; with a map, None where it leaves a number out.

    >>> number_classes(pd.Series(["10", "9", "", "10"]))
    (array([ 1,  0, -1,  1]), [9, 10])
    >>> number_classes(pd.Series(["10", "09"]))[1]
    ['09', '10']
    """
    codes, different = pd.factorize(text.where(~text.isin(MISSING)))
    names = list(map(str, different))
    kind: Any = int if all(map(INTEGER.fullmatch, names)) else str
    classes = sorted(map(kind, names)) if label_map is None else _invert_map(label_map)
    label_of = {str(name): label for label, name in enumerate(classes) if name is not None}
    unknown = [name for name in names if name not in label_of]
    if unknown:
        raise ValueError(
            f"LABEL_MAP has {len(label_of)} classes and lacks {len(unknown)} of the data, the "
            f"first is '{unknown[0]}'. Add them, or leave it empty to number the sorted classes."
        )
    return np.array([label_of[name] for name in names] + [-1], np.int64)[codes], classes


def _invert_map(label_map: Mapping[str, int]) -> list:
    wrong = [name for name, label in label_map.items() if not isinstance(label, int) or label < 0]
    if wrong or not label_map:
        what = f"'{wrong[0]}' has {label_map[wrong[0]]!r}" if wrong else "it is empty"
        mend = "Mend the map, or leave LABEL_MAP empty to number the sorted classes."
        raise ValueError(f'LABEL_MAP takes {{"class": label}}, labels from 0, but {what}. {mend}')
    kind = int if all(INTEGER.fullmatch(str(name)) for name in label_map) else str
    classes: list = [None] * (max(label_map.values()) + 1)
    for name, label in label_map.items():
        if classes[label] is not None:
            both = f"'{classes[label]}' and '{name}'. Give each class its own."
            raise ValueError(f"LABEL_MAP gives label {label} to both {both}")
        classes[label] = kind(name)
    return classes


def find_repeats(ids: pd.Series, table: pd.DataFrame) -> pd.Series:
    """The problem of each row: its id is empty or listed again (with other labels), or its own."""
    labels = table["label_name"].where(table["problem"] == "", table["problem"])
    problem = pd.Series("", index=ids.index, dtype=object)
    problem[ids.duplicated()] = "listed twice: the first row counts"
    repeated = ids[ids.duplicated(keep=False)]
    groups = labels[repeated.index].groupby(repeated)
    clash = repeated[groups.transform("nunique") > 1]
    names = groups.agg(lambda names: ", ".join(sorted(set(names))))
    problem[clash.index] = "listed with different labels: " + clash.map(names).astype(object)
    problem[ids == ""] = "no id"
    return problem.where(problem != "", table["problem"])
