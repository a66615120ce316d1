"""Given splits: the column of a CSV that says which images train, validate and test."""

import re
from collections.abc import Iterable

import pandas as pd

from kaggle_tfr.naming import SPLIT_NAMES, near_miss, split_of

FOLDER_COLUMN = "csv_folder"  # not in the file: the folder of the CSV below INPUT_DIR
_NAMES = SPLIT_NAMES | {
    "testing": "test",
    "eval": "validation",
    "evaluation": "validation",
}
_COLUMN_NAME = re.compile(
    r"(?i).*(split|subset|partition|phase|usage|stage)s?|.*[ _-]?set|mode"
)
MISSING = ("", "nan", "NaN", "<NA>")  # in the text of a table's cell


def name_split(value: str) -> str:
    """The split, "train", "validation" or "test", that a table's word means; "" for another word.

    Of a path the last folder that is called like a split counts.

    >>> name_split("Valid"), name_split("train_images"), name_split("data/testing"), name_split("x")
    ('validation', 'train', 'test', '')
    >>> name_split("train/more/0001.png")
    'train'
    """
    for name in reversed(value.strip().rstrip("/").split("/")):
        if split := _NAMES.get(split_of(name), "") or _NAMES.get(name.lower(), ""):
            return split
    return ""


def looks_like_splits(column: str, values: Iterable[str]) -> bool:
    """True for a column that is called like one of splits and holds nothing else."""
    if not _is_called_like_splits(column):
        return False
    held = {value for value in map(str, values) if value not in MISSING}
    splits = {name_split(value) for value in held}
    return "" not in splits and bool(splits - {"train"})


def _is_called_like_splits(column: str) -> bool:
    return column == FOLDER_COLUMN or bool(_COLUMN_NAME.fullmatch(column))


def read_splits(rows: pd.DataFrame, column: str) -> tuple[pd.Series, pd.Series]:
    """(split, problem) of each row, by that column; without a column all rows are of train.

    Raises: ValueError: there is no such column, or none of its values names a split.
    """
    split = pd.Series("train", index=rows.index, dtype=object)
    problem = pd.Series("", index=rows.index, dtype=object)
    if not column:
        return split, problem
    if column not in rows:
        known = list(map(str, rows))
        what = (
            f"SPLIT_COLUMN '{column}' is not in LABELS_CSV.{near_miss(column, known)}"
        )
        raise ValueError(
            f'{what} It has {", ".join(known)}. Set SPLIT_COLUMN to one of them or "".'
        )

    text = rows[column].fillna("").astype(str).str.strip()
    named = text.map({value: name_split(value) for value in text.unique()})
    if (named == "").all():
        seen = ", ".join(repr(value) for value in text.unique()[:5])
        mend = 'Set SPLIT_COLUMN to a column of "train", "validation" and "test", or to "".'
        raise ValueError(
            f"SPLIT_COLUMN '{column}' names no split: it holds {seen}. {mend}"
        )

    if (named == "test").all():
        what = f"SPLIT_COLUMN '{column}' makes every row a test image"
        raise ValueError(
            f'{what}: nothing is left to train on. Set SPLIT_COLUMN to "".'
        )

    is_missing = text.isin(MISSING)
    unknown = f"column '{column}' holds '" + text + "', which is not a split"
    problem = problem.mask(named == "", unknown).mask(
        is_missing, f"no split in column '{column}'"
    )
    return named.where(named != "", "train").astype(object), problem


def warn_unused(rows: pd.DataFrame, used: Iterable[str]) -> None:
    """Prints a warning that names a column of splits, when SPLIT_COLUMN is empty.

    used: the columns of ids and labels, which mean something else.
    """
    for column in rows.columns.difference(list(used)):
        if not _is_called_like_splits(str(column)):
            continue
        values = rows[column].dropna().astype(str).str.strip()
        if looks_like_splits(str(column), values.unique()):
            counts = values.map(name_split).value_counts()
            listed = ", ".join(
                f"{count:,} {split}" for split, count in counts.items() if split
            )
            print(
                f"WARNING: the column '{column}' of LABELS_CSV names splits ({listed}), but "
                f"SPLIT_COLUMN is empty: every row becomes an image to train on. "
                f'Set SPLIT_COLUMN: "{column}" to keep the given splits.'
            )
