"""Numbers for labels of any kind: one class, several, or masks; contiguous, sorted, typed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr.schema import Labels

MISSING = ("", "nan", "NaN", "<NA>")


def single_label_table(
    text: pd.Series, given: Mapping | None = None
) -> tuple[pd.DataFrame, Labels]:
    """Columns label, label_name, problem for one class each; and what labels.json holds."""
    label, classes = number_classes(text, given)
    name = text.where(label >= 0, "").astype(object)
    if given is not None:
        name = pd.Series(np.array([*map(str, classes), ""], object)[label], index=text.index)
    table = pd.DataFrame({"label": label, "label_name": name})
    table["problem"] = np.where(label < 0, "no label", "").astype(object)
    return table, Labels("single", tuple(classes))


def multi_label_table(
    columns: pd.DataFrame, classes: list, kind: str, problem: pd.Series
) -> tuple[pd.DataFrame, Labels]:
    """Columns label, label_name, problem and one per class; and what labels.json holds.

    columns: 0/1 for kind "multi", run-length codes for "masks". label numbers the combinations.
    """
    label, name = name_combinations(columns != ("" if kind == "masks" else 0))
    table = pd.DataFrame({"label": label, "label_name": name}, index=columns.index)
    table = pd.concat([table.assign(problem=problem), columns], axis=1)
    return table, Labels(kind, tuple(classes), tuple(columns))


def number_classes(text: pd.Series, given: Mapping | None = None) -> tuple[np.ndarray, list]:
    """(int64 label of each row, -1 where none is given; the classes, so that index = label).

    Classes that are all whole numbers become integers and are sorted as such. `given` maps classes
    to labels, or labels (as text) to classes, and is honoured as it stands.

    >>> number_classes(pd.Series(["10", "9", "", "10"]))
    (array([ 1,  0, -1,  1]), [9, 10])

    Raises:
        ValueError: a class that `given` lacks, or two that share a label there.
    """
    codes, found = pd.factorize(text.where(~text.isin(MISSING)))
    names = [str(name) for name in found]
    if given is None:
        classes = sort_classes(names)
        label_of = {str(name): label for label, name in enumerate(classes)}
    else:
        label_of, classes = _read_map(given)
        unknown = [name for name in names if name not in label_of]
        if unknown:
            raise ValueError(
                f"LABEL_MAP has {len(label_of)} classes and lacks {len(unknown)} that the data "
                f"has, the first is '{unknown[0]}'. Add them, or leave LABEL_MAP empty to number "
                "the sorted classes."
            )
    lookup = np.array([label_of[name] for name in names] + [-1], np.int64)
    return lookup[codes], classes


def sort_classes(names: Sequence[str]) -> list:
    """The different names, sorted; as integers when each is the plain text of one.

    >>> sort_classes(["10", "9"]), sort_classes(["10", "09"])
    ([9, 10], ['09', '10'])
    """
    different = set(names)
    if different and all(_is_integer(name) for name in different):
        return sorted(map(int, different))
    return sorted(different)


def find_repeats(ids: pd.Series, text: pd.Series) -> pd.Series:
    """The problem of each row: its id is empty, listed again, or listed with other labels too."""
    problem = pd.Series("", index=ids.index, dtype=object)
    repeated = ids.duplicated(keep=False)
    if repeated.any():
        groups = text[repeated].groupby(ids[repeated])
        count = groups.transform("nunique")
        names = groups.agg(lambda labels: ", ".join(sorted(set(labels))))
        problem[repeated & ids.duplicated()] = "listed twice: the first row counts"
        clash = count.index[count > 1]
        problem[clash] = "listed with different labels: " + ids[clash].map(names).astype(object)
    problem[ids == ""] = "no id"
    return problem


def read_flags(rows: pd.DataFrame, names: Sequence[str]) -> tuple[pd.DataFrame, pd.Series]:
    """(int8 column of 0 and 1 per label, the problem of each row) from the text of such columns."""
    flags, problem = {}, pd.Series("", index=rows.index, dtype=object)
    for name in names:
        text = rows[name].str.strip().str.lower()
        yes = text.isin(["1", "1.0", "true"])
        strange = ~yes & ~text.isin(["0", "0.0", "false"])
        shown = rows[name][strange].astype(object)
        problem[strange] = f"label column '{name}' holds '" + shown + "', not 0 or 1"
        problem[rows[name].isin(MISSING)] = f"no label in column '{name}'"
        flags[name] = yes.astype(np.int8)
    return pd.DataFrame(flags), problem


def split_labels(text: pd.Series, separator: str) -> tuple[pd.DataFrame, list]:
    """(int8 column of 0 and 1 per class, named by its text; the classes) from separated lists."""
    lists = text.where(~text.isin(MISSING), "").str.split(separator)
    single = lists.explode().str.strip()
    single = single[single != ""]
    label, classes = number_classes(single)
    flags = np.zeros((len(text), len(classes)), np.int8)
    flags[text.index.get_indexer(single.index), label] = 1
    return pd.DataFrame(flags, columns=list(map(str, classes)), index=text.index), classes


def name_combinations(present: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
    """(int64 number of each row's combination of labels, its name such as "Fish|Sugar")."""
    rows, inverse = np.unique(present.to_numpy(bool), axis=0, return_inverse=True)
    columns = np.asarray(present.columns, object)
    names = np.array(["|".join(columns[row]) for row in rows], object)[inverse.ravel()]
    return np.unique(names.astype(str), return_inverse=True)[1].astype(np.int64), list(names)


def _read_map(given: Mapping[Any, Any]) -> tuple[dict[str, int], list]:
    """Label by class name, and the list of classes by label (None where a number is left out)."""
    as_text = {}
    if set(given) == {"classes"}:  # the labels.json of another run
        given = {name: label for label, name in enumerate(given["classes"]) if name is not None}
    if all(isinstance(value, str) for value in given.values()) and all(map(_is_integer, given)):
        as_text = {str(label): int(label) for label in given}
        given = {name: int(label) for label, name in given.items()}
    wrong = [name for name, label in given.items() if not isinstance(label, int) or label < 0]
    if wrong or not given:
        what = f"'{wrong[0]}' has {given[wrong[0]]!r}" if wrong else "it is empty"
        raise ValueError(
            f'LABEL_MAP takes {{"class": label}} with labels from 0, but {what}. Mend the map, or '
            "leave LABEL_MAP empty to number the sorted classes."
        )
    integers = all(_is_integer(str(name)) for name in given)
    classes: list = [None] * (max(given.values()) + 1)
    for name, label in given.items():
        if classes[label] is not None:
            raise ValueError(
                f"LABEL_MAP gives label {label} to both '{classes[label]}' and '{name}'. "
                "Give each class its own."
            )
        classes[label] = int(name) if integers else str(name)
    return as_text | {str(name): label for name, label in given.items()}, classes


def _is_integer(text: Any) -> bool:
    text = str(text)
    return text.removeprefix("-").isdecimal() and text.isascii() and str(int(text)) == text
