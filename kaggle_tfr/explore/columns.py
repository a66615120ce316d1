"""What the columns of a CSV contain, by their names and values."""

import re
from collections import defaultdict

import pandas as pd

from kaggle_tfr.explore.files import SUBJECTS, name_split
from kaggle_tfr.explore.labels import FLAGS, MANY, MISSING, RUNS
from kaggle_tfr.images.masks import EMPTY_CODES

_ID = r"s?([ _-]?(id|no|nr|number|name|key|code|index|uid))?"
SUBJECT_NAME = re.compile(rf"(?i)(.*[ _-])?({SUBJECTS}|individual|exam){_ID}")
SITE_NAME = re.compile(rf"(?i)(group|site|hospital|clinic|center|centre|camera){_ID}")
LABEL_NAME = re.compile(
    r"(?i)(.*[ _-])?(labels?|class(es)?|targets?|categor(y|ies)|diagnos[ei]s|dx|breed"
    r"|species|landmark|tags?|emotion|disease)([ _-]?(ids?|idx|index|names?|codes?))?"
)

Columns = defaultdict[str, list[str]]  # their names by what they contain


def sort_columns(rows: pd.DataFrame) -> Columns:
    """Return the columns by what they contain.

    The keys are "code" of masks, "label", "single" value, "split", "flag" (0 and 1),
    "group", "other".
    """
    columns = Columns(list)
    for name in map(str, rows):
        columns[_sort_column(rows[name])].append(name)
    return columns


def _sort_column(cells: pd.Series) -> str:
    """Return what a column contains, as a key of `sort_columns`."""
    name = str(cells.name)
    cells = cells.str.strip().str.lower().str.removesuffix(".0")
    values = set(cells).difference(MISSING)
    codes = values.difference(EMPTY_CODES)
    if codes and all(re.fullmatch(RUNS, code) for code in codes):
        return "code"
    if LABEL_NAME.fullmatch(name):
        return "label"
    if cells.nunique() < 2:
        return "single"
    if all(map(name_split, values)):
        return "split"
    if values.issubset([*FLAGS, "-1"]):
        return "flag"
    if SUBJECT_NAME.fullmatch(name) or SITE_NAME.fullmatch(name):
        return "group"
    return "other"


def find_labels(rows: pd.DataFrame) -> list[str]:
    """Return the columns of labels: that of masks, one called so, or the only others.

    Raises: ValueError: it is not clear which columns they are.
    """
    columns = sort_columns(rows)
    if columns["code"]:
        return [*columns["label"][:1], columns["code"][0]]
    flags = columns["flag"]
    candidates = columns["label"] or [*flags, *columns["other"]]
    if len(candidates) == 1 or (flags and candidates == flags):
        return candidates
    counts = rows.nunique().to_dict()
    raise ValueError(
        "LABEL_COLUMN is empty. Set it to the column of labels; these are the columns "
        f"with their numbers of values: {counts}. It can also be a list of columns of "
        "0 and 1, 'folder', 'names: REGEX', or [] for none."
    )


def find_kind(cells: pd.Series) -> dict[str, str]:
    """Return LABEL_KIND of a quantity, LABEL_SEPARATOR of lists, {} for classes."""
    values = cells[~cells.isin(MISSING)].drop_duplicates()
    numbers = pd.to_numeric(values, errors="coerce")
    is_quantity = numbers.nunique() > max(MANY, len(cells) / 4)
    if is_quantity and not LABEL_NAME.fullmatch(str(cells.name)):
        return {"LABEL_KIND": "number"}
    for separator in "|;, ":
        words = values.str.split(separator, regex=False).explode().str.strip()
        # Names of classes can have commas and blanks, but few words are names, too.
        is_list = words.isin(values).all() or 2 * words.nunique() < len(values)
        if len(words) > len(values) and (is_list or separator == "|"):
            return {"LABEL_SEPARATOR": separator}
    return {}
