"""Given splits: the column of a CSV with the images to train, validate and test on."""

import re
from collections.abc import Iterable

import pandas as pd

from kaggle_tfr.naming import SPLIT_NAMES, near_miss, split_of

# A column that `read_csv` adds: the folder of the CSV below INPUT_DIR.
FOLDER_COLUMN = "csv_folder"
MISSING = ("", "nan", "NaN", "<NA>")  # how empty cells look as text
_NAMES = SPLIT_NAMES | {
    "testing": "test",
    "eval": "validation",
    "evaluation": "validation",
}
_COLUMN_NAME = re.compile(
    rf"(?i){FOLDER_COLUMN}|.*(split|subset|partition|phase|usage|stage)s?"
    r"|.*[ _-]?set|mode"
)


def name_split(value: str) -> str:
    """Return "train", "validation" or "test" for a word of a table, "" for other words.

    In a path the last folder counts that is called like a split.

    >>> name_split("Valid"), name_split("train_images"), name_split("data/testing")
    ('validation', 'train', 'test')
    >>> name_split("train/more/0001.png"), name_split("x")
    ('train', '')
    """
    for name in reversed(value.strip().rstrip("/").split("/")):
        split = _NAMES.get(split_of(name) or name.lower())
        if split:
            return split
    return ""


def check_column(name: str, table: pd.DataFrame, source: str, parameter: str) -> None:
    """Raise a ValueError unless the table, read from `source`, has a column."""
    columns = list(map(str, table))
    if name not in columns:
        raise ValueError(
            f"{source} has no column '{name}'.{near_miss(name, columns)} "
            f"It has {', '.join(columns)}. Set {parameter} to one of them."
        )


def read_splits(rows: pd.DataFrame, column: str) -> tuple[pd.Series, pd.Series]:
    """Return the split of each row by SPLIT_COLUMN ("train" without), and its problem.

    Raises: ValueError: there is no such column, or it cannot be one of splits.
    """
    if not column:
        return pd.Series("train", rows.index), pd.Series("", rows.index)
    check_column(column, rows, "LABELS_CSV", "SPLIT_COLUMN")
    text = rows[column].fillna("").astype(str).str.strip()
    split = text.map(_name_splits(text.unique(), column))
    problem = f"column '{column}' holds '" + text + "', which is not a split"
    problem = problem.mask(text.isin(MISSING), f"no split in column '{column}'")
    return split.replace("", "train"), problem.where(split == "", "")


def _name_splits(words: Iterable[str], column: str) -> dict[str, str]:
    """Return the split of each word. Raises: ValueError: none is to train on."""
    split_of_word = {word: name_split(word) for word in words}
    if set(split_of_word.values()) <= {"", "test"}:
        listed = ", ".join(map(repr, list(split_of_word)[:5]))
        raise ValueError(
            f"SPLIT_COLUMN '{column}' has no row to train on: it holds {listed}. Set "
            "it to a column of 'train', 'validation' and 'test', or leave it empty."
        )
    return split_of_word


def warn_unused(rows: pd.DataFrame, used: Iterable[str]) -> None:
    """Print a warning that names each column of splits, if SPLIT_COLUMN is empty.

    used: the columns of ids and labels.
    """
    for column in rows.columns.difference(list(used)):
        if _COLUMN_NAME.fullmatch(str(column)) and _has_splits(rows[column]):
            print(
                f"WARNING: the column '{column}' of LABELS_CSV names splits, but "
                "SPLIT_COLUMN is empty: every row becomes an image to train on. Set "
                f"SPLIT_COLUMN to '{column}' to keep the given splits."
            )


def _has_splits(cells: pd.Series) -> bool:
    """Return whether cells name splits only, and not only "train"."""
    words = set(cells.map(str)).difference(MISSING)
    splits = set(map(name_split, words))
    return "" not in splits and not splits <= {"train"}
