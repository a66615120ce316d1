"""What the columns of a CSV contain, by their names and values."""

import re
from collections import defaultdict
from collections.abc import Mapping

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
FACT_NAME = re.compile("(?i)sex|gender|age|width|height")  # taken for labels last
SEX_NAME = re.compile("(?i)sex|gender")  # never taken for labels


def sort_columns(rows: pd.DataFrame) -> Mapping[str, list[str]]:
    """Return the columns by what they contain, without others of a single value.

    The keys are "code" of masks, "label", "split", "flag" (0 and 1), "group", "other".
    """
    columns = defaultdict[str, list[str]](list)
    for name in map(str, rows):
        cells = rows[name].str.strip().str.lower().str.removesuffix(".0")
        cells = cells[~cells.isin(MISSING)]
        values = set(cells)
        codes = values.difference(EMPTY_CODES)
        kind = "other"
        if codes and all(re.fullmatch(RUNS, code) for code in codes):
            kind = "code"
        elif LABEL_NAME.fullmatch(name):
            kind = "label"
        elif cells.empty or rows[name].nunique() < 2 or name.startswith("Unnamed"):
            continue
        elif all(map(name_split, values)):
            kind = "split"
        elif cells.isin([*FLAGS, "-1"]).mean() > 0.95:
            kind = "flag"
        elif SUBJECT_NAME.fullmatch(name) or SITE_NAME.fullmatch(name):
            kind = "group"
        columns[kind].append(name)
    return columns


def find_labels(rows: pd.DataFrame) -> list[str]:
    """Return the columns of labels: one called so, that of masks, those of 0 and 1.

    Raises: ValueError: it is not clear which columns they are.
    """
    columns = sort_columns(rows)
    flags = columns["flag"]
    named = columns["label"]
    others = columns["other"] + (flags if len(flags) == 1 else [])
    if columns["code"]:
        return [*named[:1], columns["code"][0]]
    is_one_hot = (rows[flags].isin(["1", "1.0"]).sum(axis=1) == 1).mean() > 0.9
    has_only_facts = all(map(FACT_NAME.match, others))
    if len(flags) > 1 and not named and (is_one_hot or has_only_facts):
        return flags
    candidates = named or others
    counts = (rows[candidates] if candidates else rows).nunique()
    is_only = len(others) == 1 and len(flags) < 2 and not SEX_NAME.match(others[0])
    # Several names of the same classes are as good as one.
    are_one = len(rows[named].drop_duplicates()) == counts.min()
    if are_one if named else is_only:
        numbers = rows[candidates].apply(pd.to_numeric, errors="coerce")
        return [str(numbers.notna().all().idxmin())]  # the first with words
    raise ValueError(
        "LABEL_COLUMN is empty. Set it to the column of labels; these are the columns "
        f"with their numbers of values: {counts.to_dict()}. It can also be a list of "
        f"columns of 0 and 1 ({flags}), 'folder', 'names: REGEX', or [] for none."
    )


def find_kind(cells: pd.Series) -> dict[str, str]:
    """Return LABEL_KIND or LABEL_SEPARATOR, unless an image has one class in a cell.

    cells: of a column, by the positions of their images, of which those of known images
    are not negative.
    """
    values = cells[~cells.isin(MISSING)]
    numbers = pd.to_numeric(values, errors="coerce").dropna()
    n_numbers = numbers.nunique()
    is_many = n_numbers > len(values) / 4 and not LABEL_NAME.fullmatch(str(cells.name))
    is_dense = n_numbers > MANY and (is_many or numbers.mod(1).any())
    if is_dense and len(numbers) > 0.9 * len(values):
        return {"LABEL_KIND": "number"}
    for separator in ("||", "|", ";", ",", " "):
        words = values.str.split(separator, regex=False).explode().str.strip()
        unique = words.drop_duplicates()
        # Names of classes can have commas and blanks.
        is_list = separator in "||" or unique.isin(values).mean() > 0.5
        are_few = 2 * len(unique) < values.nunique()
        if len(words) > len(values) and (is_list or are_few):
            return {"LABEL_SEPARATOR": separator}
    n_labels = cells[cells.index >= 0].groupby(level=0).nunique()
    return {"LABEL_KIND": "multi"} if n_labels.max() > 1 else {}
