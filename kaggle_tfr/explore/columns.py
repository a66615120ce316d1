"""What the columns of a CSV contain, by their names and values."""

import re
from collections import defaultdict

import pandas as pd

from kaggle_tfr.explore.files import SUBJECTS, name_split
from kaggle_tfr.explore.labels import FLAGS, MANY, MISSING, RUNS
from kaggle_tfr.images.masks import EMPTY_CODES

_ID = r"s?([ _-]?(id|no|nr|number|name|key|code|index|uid))?"
SUBJECT_NAME = re.compile(rf"(?i)(.*[ _-])?({SUBJECTS}|individual|exam){_ID}")
SITE_NAME = re.compile(
    r"(?i)(group|site|hospital|clinic|center|centre|camera|scanner|station|garden|farm"
    rf"|plot|photographer|observer|user){_ID}"
)
LABEL_NAME = re.compile(
    r"(?i)(.*[ _-])?(labels?|class(es)?|targets?|categor(y|ies)|diagnos[ei]s|dx|breed"
    r"|species|landmark|tags?|emotion|disease)([ _-]?(ids?|idx|index|names?|codes?))?"
)

Columns = defaultdict[str, list[str]]  # their names by what they contain


def sort_columns(rows: pd.DataFrame) -> Columns:
    """Return the names of a CSV's columns by what they contain; [] for a missing key.

    Keys: "code" (run-length codes of masks), "label" (called like labels), "single"
    (one value in all rows), "split" (train, test …), "flag" (0 and 1), "group" (called
    like subjects or sites), "other". Each column has the first key that fits.
    rows: every cell is text.
    """
    columns = Columns(list)
    for name in map(str, rows):
        columns[_sort_column(rows[name])].append(name)
    return columns


def _sort_column(cells: pd.Series) -> str:
    """Return what a column contains: a key of `sort_columns`, such as "label"."""
    name = str(cells.name)
    cells = cells.str.strip().str.lower().str.removesuffix(".0")
    values = set(cells).difference(MISSING)  # without "", "nan" …
    codes = values.difference(EMPTY_CODES)  # nor "-1", which also means no mask
    # RUNS matches a run-length code, "start length start length …".
    if codes and all(re.fullmatch(RUNS, code) for code in codes):
        return "code"
    if LABEL_NAME.fullmatch(name):
        return "label"
    if cells.nunique() < 2:  # an empty cell beside one value is a second value
        return "single"
    if all(map(name_split, values)):  # each is a word such as train, val or test
        return "split"
    # Besides 0, 1, true and false, -1 for an uncertain label.
    if values.issubset([*FLAGS, "-1"]):
        return "flag"
    if SUBJECT_NAME.fullmatch(name) or SITE_NAME.fullmatch(name):
        return "group"
    return "other"


def find_labels(rows: pd.DataFrame) -> list[str]:
    """Return the names of the label columns in a CSV, by their names and values.

    With run-length codes: the first column called like labels, if there is one, and
    the first column of codes. Otherwise the only column called like labels. If none is
    called so, columns of splits, of groups and with one value are left out: the only
    one left, or all that are left if they have only 0 and 1.
    rows: of the CSV, every cell is text.
    Raises: ValueError: it is not clear which columns they are.
    """
    columns = sort_columns(rows)
    if columns["code"]:
        return [*columns["label"][:1], columns["code"][0]]
    flags = columns["flag"]
    candidates = columns["label"] or [*flags, *columns["other"]]
    if len(candidates) == 1 or (flags and candidates == flags):
        return candidates
    raise ValueError(
        "LABEL_COLUMN is empty. Set it to the column of labels; these are the columns "
        f"with their numbers of values: {rows.nunique().to_dict()}. It can also be a "
        "list of columns of 0 and 1, 'folder', 'names: REGEX', or [] for none."
    )


def find_kind(cells: pd.Series) -> dict[str, str]:
    """Return the parameters for a column of labels: {} if each cell is a class.

    {"LABEL_KIND": "number"} for a quantity: there are more different numbers than
    `MANY`, 20, and than a quarter of the cells, and the column is not called like
    labels. {"LABEL_SEPARATOR": …} for lists of labels, as "cat|dog".
    """
    values = cells[~cells.isin(MISSING)].drop_duplicates()
    numbers = pd.to_numeric(values, errors="coerce")
    is_quantity = numbers.nunique() > max(MANY, len(cells) / 4)
    if is_quantity and not LABEL_NAME.fullmatch(str(cells.name)):
        return {"LABEL_KIND": "number"}
    for separator in "|;, ":  # each of the four characters
        # All parts of all cells, one a row.
        words = values.str.split(separator, regex=False).explode().str.strip()
        # Names of classes can have commas and blanks, but hardly "|". In lists, each
        # word is also the only one of some cell, or there are few different words.
        is_list = words.isin(values).all() or 2 * words.nunique() < len(values)
        # More words than values: the separator is in some of them.
        if len(words) > len(values) and (is_list or separator == "|"):
            return {"LABEL_SEPARATOR": separator}
    return {}
