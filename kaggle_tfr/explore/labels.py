"""Labels from the text of tables: one class per image, several labels, or masks."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore import files
from kaggle_tfr.explore.splits import MISSING
from kaggle_tfr.schema import NO_MASK, Labels, find_code_problem

Table = tuple[pd.DataFrame, Labels]  # one row per image, and what its labels are

FLAGS = {"1": 1, "1.0": 1, "true": 1, "0": 0, "0.0": 0, "false": 0}

NO_LABEL_MAP = "LABEL_MAP numbers one class per image. Leave it empty for several."

INTEGER = re.compile("0|-?[1-9][0-9]*")  # as Python would write it: "007" stays text

# What the steps call their own columns; a CSV's column of such a name gets the prefix "csv_".
RESERVED = {
    *(
        "image_id",
        "path",
        "split",
        "label",
        "label_name",
        "problem",
        "height",
        "width",
        "n_bytes",
    ),
    *(
        "format",
        "orientation",
        "note",
        "cluster",
        "distance",
        "keep",
        "reason",
        "fold",
        "shard",
    ),
    *(
        "part",
        "position",
        "source",
        "digest",
        "file",
        "record",
        "source_height",
        "source_width",
    ),
}


def read_classes(input_dir: str, label_map: str | Mapping[str, int]) -> list | None:
    """The classes of LABEL_MAP, given by value or file, so that index = label; None for no map."""
    given: Any = label_map
    if not given:
        return None
    source = "LABEL_MAP"
    if isinstance(given, str):
        path = storage.resolve(input_dir, given)
        files.check_named_file(path, input_dir, "LABEL_MAP")
        source = f"the label map '{path}'"
        try:
            given = json.loads(files.read_named_file(path, "LABEL_MAP"))
        except ValueError as error:
            raise ValueError(f"{source} is not JSON: {error}") from None
    items = list(given.items() if isinstance(given, Mapping) else ())
    wrong = [item for item in items if not isinstance(item[1], int) or item[1] < 0]
    if wrong or not items:
        what = "'{}' has {!r}".format(*wrong[0]) if wrong else f"it is {given!r:.40}"
        mend = "Mend the map, or leave LABEL_MAP empty to number the sorted classes."
        raise ValueError(
            f'{source} takes {{"class": label}}, labels from 0, but {what}. {mend}'
        )
    kind = int if all(INTEGER.fullmatch(str(name)) for name in given) else str
    classes: list = [None] * (max(given.values()) + 1)
    for name, label in items:
        if classes[label] is not None:
            both = f"both '{classes[label]}' and '{name}'. Give each class its own."
            raise ValueError(f"{source} gives label {label} to {both}")
        classes[label] = kind(name)
    return classes


def number_classes(
    text: pd.Series, classes: list | None = None
) -> tuple[np.ndarray, list]:
    """(int64 label of each row, -1 for none; the classes, sorted when not given: index = label).

    >>> number_classes(pd.Series(["10", "9", "", "10"]))
    (array([ 1,  0, -1,  1]), [9, 10])
    """
    codes, different = pd.factorize(text.where(~text.isin(MISSING)))
    names = list(map(str, different))
    kind: Any = int if all(map(INTEGER.fullmatch, names)) else str
    classes = sorted(map(kind, names)) if classes is None else classes
    label_of = {
        str(name): label for label, name in enumerate(classes) if name is not None
    }
    if unknown := [name for name in names if name not in label_of]:
        what = f"lacks {len(unknown)} of the data, the first is '{unknown[0]}'"
        mend = "Add them, or leave it empty to number the sorted classes."
        raise ValueError(f"LABEL_MAP has {len(label_of)} classes and {what}. {mend}")
    return np.array([label_of[name] for name in names] + [-1], np.int64)[codes], classes


def single_label_table(text: pd.Series, classes: list | None = None) -> Table:
    """Columns label, label_name, problem of images with one class each."""
    label, classes = number_classes(text, classes)
    table = pd.DataFrame(
        {"label": label, "label_name": text.where(label >= 0, "").astype(object)}
    )
    table["problem"] = np.where(label < 0, "no label", "").astype(object)
    return table, Labels("single", tuple(classes))


def multi_label_table(columns: pd.DataFrame, kind: str, problem: Any) -> Table:
    """Columns label (of the combination), label_name ("Fish|Sugar"), problem, given ones."""
    present = columns.to_numpy() != ("" if kind == "masks" else 0)
    combinations, row = np.unique(present, axis=0, return_inverse=True)
    text = np.array(["|".join(columns.columns[one]) for one in combinations], object)[
        row.ravel()
    ]
    table = pd.DataFrame(
        {"label": pd.factorize(text, sort=True)[0], "label_name": text}
    )
    table = table.set_index(columns.index).assign(problem=problem)
    names = tuple(map(str, columns))
    return pd.concat([table, columns], axis=1), Labels(kind, names, names)


def read_flags(
    rows: pd.DataFrame, is_test: pd.Series, kind: str, classes: list | None
) -> Table:
    """The table of columns of text, each of a label and 0 or 1 in every row.

    One class per image or several labels, as LABEL_KIND says; "auto" goes by the rows that are not
    of a given test split.
    """
    flags = rows.apply(lambda text: text.str.strip().str.lower().map(FLAGS))
    problem = pd.Series("", index=rows.index, dtype=object)
    for name in rows:
        wrong = rows[name][flags[name].isna()].astype(object)
        problem[wrong.index] = (
            f"label column '{name}' holds '" + wrong + "', not 0 or 1"
        )
        problem[rows[name].isin(MISSING)] = f"no label in column '{name}'"
    flags = flags.fillna(0).astype(np.int8)
    is_good = problem == ""
    ones = flags.sum(axis=1)
    if kind == "auto":
        decisive = ones[is_good & ~is_test]
        kind = "single" if len(decisive) and (decisive == 1).all() else "multi"
        if kind == "single":
            print(
                f"Each row has exactly one 1 in {len(rows.columns)} label columns: they are read "
                f"as one class per image. Set LABEL_KIND: multi to read them as several labels."
            )
    if kind == "multi":
        if classes:
            raise ValueError(NO_LABEL_MAP)
        return multi_label_table(flags, "multi", problem)

    names = pd.Series(list(rows), dtype=str)
    classes = classes or number_classes(names)[1]
    chosen = pd.Series(
        names.to_numpy()[flags.to_numpy().argmax(axis=1)], index=rows.index
    )
    table, labels = single_label_table(chosen.where(is_good & (ones == 1), ""), classes)
    problem = problem.mask(is_good & (ones == 0), "no label: no label column holds 1")
    has_several = is_good & (ones > 1)
    listed = [", ".join(names[row]) for row in flags[has_several].to_numpy(bool)]
    reasons = [f"several labels where one is expected: {one}" for one in listed]
    problem[has_several] = np.array(reasons, object)
    return table.assign(problem=problem), labels


def split_labels(text: pd.Series, separator: str) -> Table:
    """The multi-label table of separated lists of classes."""
    single = (
        text.mask(missing := text.isin(MISSING), "")
        .str.split(separator)
        .explode()
        .str.strip()
    )
    single = single[single != ""]
    label, classes = number_classes(single)
    flags = np.zeros((len(text), len(classes)), np.int8)
    flags[text.index.get_indexer(single.index), label] = 1
    columns = pd.DataFrame(flags, text.index, list(map(str, classes)))
    table, labels = multi_label_table(
        columns, "multi", np.where(missing, "no label", "")
    )
    return table, replace(labels, classes=tuple(classes))


def spread_codes(
    rows: pd.DataFrame,
    id_column: str,
    label_columns: Sequence[str],
    *,
    plain: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(one row per image, with a column `problem`; a column of codes per label, "" for no mask)."""
    ids, codes = rows[id_column], rows[label_columns[-1]].str.strip()
    codes = codes.where(~codes.isin(NO_MASK), "")
    if plain:
        names = pd.Series(label_columns[-1], index=rows.index)
        several = ids.duplicated(keep=False) & (codes != "")
        codes = ids.map(codes[several].groupby(ids[several]).agg(join_codes)).fillna(
            codes
        )
    elif len(label_columns) == 2:
        names = rows[label_columns[0]]
    else:
        bad = ids[~ids.str.contains("_", regex=False)]
        if len(bad):
            what = f"{len(bad)} of {len(ids)} have no '_', the first is '{bad.iloc[0]}'"
            mend = "Set LABEL_COLUMN to [label, code] when the label has a column of its own."
            raise ValueError(
                f"'rle_csv' takes ids such as '0011165.jpg_Fish', but {what}. {mend}"
            )
        halves = ids.str.rpartition("_")
        ids, names = halves[0], halves[2]
    image, different = pd.factorize(ids)
    label, classes = pd.factorize(names, sort=True)
    spread = np.full((len(different), len(classes)), "", object)
    spread[image, label] = codes.to_numpy(object)
    problem = np.full(len(different), "", object)
    again = pd.DataFrame({"image": image, "label": label}).duplicated().to_numpy() & (
        not plain
    )
    problem[image[again]] = [
        f"label '{name}' listed twice" for name in classes[label[again]]
    ]
    images = rows.drop(columns=label_columns)[~ids.duplicated()].reset_index(drop=True)
    images[id_column], images["problem"] = different, problem
    return images, pd.DataFrame(spread, columns=list(classes))


def join_codes(codes: Sequence[str]) -> str:
    """The run-length code of all the masks together; the first broken code when there is one."""
    broken = [
        code for code in codes if find_code_problem(code, 1 << 31, 1 << 31)
    ]  # of any size
    if broken:
        return broken[0]
    runs = np.array(" ".join(codes).split(), np.int64).reshape(-1, 2)
    starts, lengths = runs[runs[:, 0].argsort()].T
    ends = np.maximum.accumulate(starts + lengths)
    gaps = starts[1:] > ends[:-1]
    merged = zip(
        starts[np.append(True, gaps)], ends[np.append(gaps, True)], strict=True
    )
    return " ".join(f"{start} {end - start}" for start, end in merged)
