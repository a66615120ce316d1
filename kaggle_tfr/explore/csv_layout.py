"""Infer from the first rows of CSVs which columns are ids, labels, groups, splits."""

import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import pandas as pd

from kaggle_tfr.explore.features import LABEL_NAME
from kaggle_tfr.explore.labels import FLAGS
from kaggle_tfr.explore.recipe import Recipe
from kaggle_tfr.explore.splits import FOLDER_COLUMN, MISSING, name_split
from kaggle_tfr.naming import split_of
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.storage import OUTSIDE

Parts = tuple[str, ...]  # of a path: folders, then the name of the file

RUNS = re.compile(r"\d+ \d+( \d+ \d+)*")
ROWS = 500  # inspected of a CSV
IDS = 12  # looked for among the files
ODD_SHARE = 0.05  # of a column of 0 and 1, the cells that may be something else
_TAIL = r"s?([ _-]?(id|no|nr|number|name|key|code|index|idx|uid|instance_?uid))?"
# Names of columns whose values keep images together, the likeliest first.
GROUP_NAMES = [
    re.compile(rf"(?i)(.*[ _-])?({words}){_TAIL}")
    for words in (
        "patient|subject|person|participant|individual|animal|donor",
        "lesion|specimen|slide|case|exam|study",
        "series|session|sequence|video|burst",
    )
]
GROUP_NAMES.append(
    re.compile(rf"(?i)(group|site|hospital|clinic|center|centre|camera){_TAIL}")
)


@dataclass(frozen=True, eq=False)
class Csv:
    """A CSV with a column of ids that name existing images.

    name: path below the folder, or a pattern of several.
    table: the first rows, as text.
    template: the path of an image by its id.
    """

    name: str
    table: pd.DataFrame
    id_column: str
    template: str

    @property
    def ids(self) -> pd.Series:
        return self.table[self.id_column]

    @property
    def is_test(self) -> bool:
        """Whether it is a sample submission, or names the images of a test folder."""
        top_folder = self.template.partition("/")[0]
        return "submission" in self.name.lower() or split_of(top_folder) == "test"


@dataclass(frozen=True, eq=False)
class Column:
    """A column that may contain labels, groups or splits.

    cells: the stripped text, without missing cells.
    """

    name: str
    cells: pd.Series

    @property
    def n_values(self) -> int:
        return self.cells.nunique()

    @property
    def flags(self) -> pd.Series:
        """Cells as 0 or 1, missing for other text."""
        return self.cells.str.lower().map(FLAGS)

    @property
    def is_flag(self) -> bool:
        """Whether it contains 0 and 1, and at most a few cells with something else."""
        is_odd = self.flags.isna()
        is_mixed = self.flags.nunique() == 2 and is_odd.mean() <= ODD_SHARE
        return is_mixed or not is_odd.any()

    @property
    def is_code(self) -> bool:
        """Whether it contains run-length codes of masks."""
        return self.cells.str.fullmatch(RUNS).mean() > 0.9

    @property
    def has_splits(self) -> bool:
        """Whether it contains several given splits, and nothing else."""
        splits = set(self.cells.map(name_split))
        return len(splits) > 1 and "" not in splits and not self.has_label_name

    @property
    def has_label_name(self) -> bool:
        return LABEL_NAME.fullmatch(self.name) is not None

    @property
    def label_rank(self) -> tuple[bool, bool, int]:
        """Sort key: likely names first, then few values; one value labels nothing."""
        return not self.has_label_name, self.n_values == 1, self.n_values

    @property
    def group_rank(self) -> int:
        """Position of its name in GROUP_NAMES; -1 for a column that is no group."""
        if 1 < self.n_values < len(self.cells):
            for rank, pattern in enumerate(GROUP_NAMES):
                if pattern.fullmatch(self.name):
                    return rank
        return -1


def match_csvs(
    recipe: Recipe, folder: str, names: Sequence[str], images: Iterable[Parts]
) -> list[Csv]:
    """Return the CSVs that name images; comment on the others.

    Several CSVs with the same name and form, one in each split folder, become one.
    names: of the CSVs below the folder. images: some images in the folder.
    """
    templates = {template for parts in images for template in _list_templates(parts)}
    csvs = []
    unmatched = []
    for name in names:
        for table in _read_tables(os.path.join(folder, name)):
            csv = _match_csv(folder, name, table, templates)
            if csv:
                csvs.append(csv)
                break
        else:
            unmatched.append(name)
    if unmatched:
        recipe.doubt(
            f"not used, because they are not in UTF-8, or because no column names "
            f"existing images: {', '.join(unmatched)}"
        )
    return _merge_splits(csvs, names)


def _read_tables(path: str) -> list[pd.DataFrame]:
    """Return the first rows as text, for each separator that gives a table."""
    tables: list[pd.DataFrame] = []
    if not os.path.isfile(path):  # a pipe would block for ever
        return tables
    for separator in ",;\t":
        with suppress(ValueError, OSError):
            table = pd.read_csv(
                path,
                sep=separator,
                nrows=ROWS,
                encoding="utf-8-sig",
                dtype=str,
                keep_default_na=False,
            )
            names = table.columns.astype(str)
            stripped = names.str.strip()
            is_unique = ~stripped.duplicated(keep=False)
            table.columns = stripped.where(is_unique, names)
            tables.append(table.reset_index(drop=True))
    return tables


def _match_csv(
    folder: str, name: str, table: pd.DataFrame, templates: Iterable[str]
) -> Csv | None:
    """Return the CSV with the column and template that name most images.

    None if no column names at least half of the images.
    """
    beside = f"{_escape_braces(os.path.dirname(name))}/"
    # Splits may number their images alike: those beside the CSV are likelier.
    ordered = sorted(
        templates, key=lambda t: (not t.startswith(beside), t.count("/"), t)
    )
    # The first ids may be those of other folders.
    sample = table.iloc[:: max(1, len(table) // IDS)]
    best = None
    most_hits = 0
    for column in map(str, table):
        ids = [text for text in sample[column] if text not in MISSING]
        # Of an image and a label, such as "0011165.jpg_Fish".
        half_ids = [text.rpartition("_")[0] for text in ids if "_" in text]
        for texts, template in product((ids, half_ids), ordered):
            hits = _count_images(folder, template, texts)
            if hits > most_hits and 2 * hits >= len(texts):
                most_hits = hits
                best = Csv(name, table, column, template)
    return best


def _count_images(folder: str, template: str, ids: Sequence[str]) -> int:
    """Return how many ids name files; 0 if none of the first four does."""
    count = 0
    for number, image_id in enumerate(ids):
        if number == 4 and not count:
            break
        # The id may be shorter than the template's folders, or contain NUL.
        with suppress(IndexError, ValueError):
            path = template.format(image_id=image_id)
            is_inside = not OUTSIDE.search(path)
            count += is_inside and os.path.isfile(os.path.join(folder, path))
    return count


def _list_templates(parts: Parts) -> list[str]:
    """Return templates that may give the path of an image from its id.

    The id has the extension of the file or not. It may begin with some of the folders,
    or the folders may be its first characters.
    """
    *names, file = parts
    stem, extension = os.path.splitext(file)
    folders = [_escape_braces(name) for name in names]
    heads = [folders[:depth] for depth in range(len(folders) + 1)]
    for count in range(len(folders), 0, -1):
        if names[-count:] == list(stem[:count]):
            characters = [f"{{image_id[{place}]}}" for place in range(count)]
            heads[-1] = [*folders[:-count], *characters]
            break
    tails = ["{image_id}", "{image_id}" + _escape_braces(extension)]
    return ["/".join([*head, tail]) for head in heads for tail in tails]


def _escape_braces(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


def _merge_splits(csvs: list[Csv], names: Sequence[str]) -> list[Csv]:
    """Return the CSVs; those with the same form in several split folders as one."""
    groups = defaultdict(list)
    for csv in csvs:
        folder, _, file = csv.name.partition("/")
        prefix = f"{_escape_braces(folder)}/"
        if split_of(folder) and csv.template.startswith(prefix):
            tail = csv.template[len(prefix) :]
            groups[file, csv.id_column, tail].append(csv)
    for (file, id_column, tail), group in groups.items():
        alike = [name for name in names if name.endswith(f"/{file}")]
        if 1 < len(group) == len(alike):
            tables = [
                csv.table.assign(**{FOLDER_COLUMN: csv.name.partition("/")[0]})
                for csv in group
            ]
            # A test set may lack the columns of labels.
            table = pd.concat(tables, ignore_index=True).fillna("")
            template = f"{{{FOLDER_COLUMN}}}/{tail}"
            merged = Csv(f"*/{glob.escape(file)}", table, id_column, template)
            csvs = [merged, *(csv for csv in csvs if csv not in group)]
    return csvs


def detect_csvs(recipe: Recipe, csvs: Sequence[Csv], images: Iterable[Parts]) -> None:
    """Add the parameters for labels and test images in these CSVs.

    csvs: at least one is not of test images. images: some images in the folder.
    """
    csv, *others = [csv for csv in csvs if not csv.is_test]
    recipe.parameters |= {
        "SOURCE": "csv",
        "LABELS_CSV": csv.name,
        "ID_COLUMN": csv.id_column,
        "PATH_TEMPLATE": csv.template,
    }
    recipe.note(
        f"{csv.name}: its column '{csv.id_column}' names the images {csv.template}"
    )
    _detect_columns(recipe, csv)
    for other in others:
        recipe.doubt(
            f"{other.name} names images too ({other.template}): "
            f"other labels, or data for MORE_INPUTS?"
        )
    _detect_tests(recipe, csv, [csv for csv in csvs if csv.is_test], images)


def _detect_columns(recipe: Recipe, csv: Csv) -> None:
    """Add the parameters for the columns of labels, splits and groups."""
    columns = _list_columns(csv)
    splits = [column for column in columns if column.has_splits]
    rest = [c for c in columns if c not in splits and c.name != FOLDER_COLUMN]
    groups = [column for column in rest if column.group_rank >= 0]
    groups.sort(key=lambda column: column.group_rank)
    candidates = [column for column in rest if column not in groups] or rest
    labels = _detect_labels(recipe, csv, candidates)
    _detect_splits(recipe, csv, splits)
    if "N_FOLDS" not in recipe.parameters:  # with folds
        for group in groups:
            if group not in labels:
                _detect_group(recipe, csv, group, labels)


def _list_columns(csv: Csv) -> list[Column]:
    """Return the columns besides that of the ids, without empty ones."""
    columns = []
    for name, text in csv.table.items():
        cells = text[~text.isin(MISSING)].str.strip()
        if name != csv.id_column and len(cells):
            columns.append(Column(str(name), cells))
    return columns


def _detect_labels(recipe: Recipe, csv: Csv, columns: Iterable[Column]) -> list[Column]:
    """Add the parameters for labels; return the columns of LABEL_COLUMN."""
    flags = [column for column in columns if column.is_flag]
    columns = sorted(columns, key=lambda column: column.label_rank)
    codes = [column for column in columns if column.is_code]
    if codes:
        return _add_masks(recipe, csv, columns, codes)
    if len(flags) > 1 and (columns[0] in flags or not columns[0].has_label_name):
        _add_flags(recipe, csv, flags)
        labels = flags
    elif columns:
        _add_classes(recipe, columns[0])
        labels = columns[:1]
    else:
        recipe.parameters["LABEL_COLUMN"] = []
        recipe.doubt("no column labels the images: they are read without labels")
        return []
    others = [c.name for c in columns if c not in labels and c.n_values > 1]
    if others:
        recipe.doubt(f"LABEL_COLUMN could also be one of {', '.join(others)}")
    return labels


def _add_masks(
    recipe: Recipe, csv: Csv, columns: Sequence[Column], codes: Sequence[Column]
) -> list[Column]:
    """Add the parameters for run-length codes, whose labels may be another column."""
    others = [column for column in columns if column not in codes]
    labels = list(codes[:1])
    if csv.ids.duplicated().any():
        labels = [*others[:1], *labels]
    names = [column.name for column in labels]
    recipe.parameters |= {
        "SOURCE": "rle_csv",
        "LABEL_COLUMN": names if len(names) > 1 else names[0],
        "KEEP": "all",
        "CONFLICTS": "keep",
    }
    recipe.note(
        f"'{codes[0].name}': run-length codes of masks, "
        f"which are drawn by hand, so those of duplicates differ"
    )
    return labels


def _add_flags(recipe: Recipe, csv: Csv, columns: Sequence[Column]) -> None:
    """Add LABEL_COLUMN for columns of 0 and 1; comment on cells that are neither."""
    recipe.parameters["LABEL_COLUMN"] = [column.name for column in columns]
    ones = pd.DataFrame({c.name: c.flags for c in columns}).dropna().sum(axis=1)
    if len(ones) and (ones == 1).all():
        meaning = f", exactly one 1 in each of {len(ones)} rows: one class per image"
    else:
        meaning = ": an image can have several labels"
    recipe.note(f"{len(columns)} columns of 0 and 1{meaning}")
    for column in columns:
        odd = column.cells[column.flags.isna()]
        if len(odd):
            recipe.doubt(
                f"column '{column.name}' has '{odd.iloc[0]}' for "
                f"'{csv.ids[odd.index[0]]}', which is not 0 or 1: "
                f"{len(odd)} rows are rejected"
            )


def _add_classes(recipe: Recipe, column: Column) -> None:
    """Add LABEL_COLUMN for a column of one class, or of several separated by blanks."""
    recipe.parameters["LABEL_COLUMN"] = column.name
    recipe.note(
        f"'{column.name}': {column.n_values} values in {len(column.cells)} rows"
    )
    words = set(column.cells.str.split().explode())
    if len(words) < column.n_values and column.cells.str.contains(" ").any():
        recipe.parameters["LABEL_SEPARATOR"] = " "
        recipe.doubt(
            "blanks separate labels; if they are in names, drop LABEL_SEPARATOR"
        )


def _detect_splits(recipe: Recipe, csv: Csv, columns: Sequence[Column]) -> None:
    """Add SPLIT_COLUMN: a column of splits, or the ids, if they begin with splits."""
    if not columns:
        top_folders = Column(csv.id_column, csv.ids.str.partition("/")[0])
        columns = [top_folders] if top_folders.has_splits else []
    if not columns:
        return
    column = min(columns, key=lambda column: column.name != FOLDER_COLUMN)
    recipe.parameters["SPLIT_COLUMN"] = column.name
    listed = ", ".join(sorted(set(column.cells)))
    recipe.note(f"'{column.name}': given splits ({listed}), which are kept")
    detect_validation(recipe, column.cells.map(name_split))


def detect_validation(recipe: Recipe, splits: Iterable[str]) -> None:
    """Turn folds off if the splits contain validation images.

    With folds, 06 would validate on a fold, and never on these images.
    """
    if "validation" in set(splits):
        recipe.parameters["N_FOLDS"] = 0
        recipe.note("N_FOLDS is 0: the validation images are given")


def _detect_group(
    recipe: Recipe, csv: Csv, group: Column, labels: Sequence[Column]
) -> None:
    """Add GROUP_COLUMN, or a comment on why the column may be none."""
    could_be = f"GROUP_COLUMN could be '{group.name}'"
    values_of_class = pd.Series(dtype=int)
    if len(labels) == 1:
        values_of_class = group.cells.groupby(labels[0].cells).nunique()
    if group.n_values < DEFAULTS["N_FOLDS"]:
        recipe.doubt(
            f"{could_be}, but it has {group.n_values} values, "
            f"fewer than there are folds"
        )
    elif values_of_class.max() == 1:
        recipe.doubt(f"{could_be}, but each class has one value")
    elif "GROUP_COLUMN" in recipe.parameters:
        recipe.doubt(could_be)
    else:
        recipe.parameters["GROUP_COLUMN"] = group.name
        recipe.note(
            f"'{group.name}' repeats its values ({group.n_values} in "
            f"{len(csv.table)} rows): GROUP_COLUMN keeps images with the same value "
            f"in one fold"
        )


def _detect_tests(
    recipe: Recipe, csv: Csv, tests: Sequence[Csv], images: Iterable[Parts]
) -> None:
    """Add the parameters for the images to predict, and for the CSV that names them."""
    recipe.parameters["TEST_PATH_TEMPLATE"] = ""
    elsewhere = [test for test in tests if test.template != csv.template]
    if elsewhere:
        test = min(elsewhere, key=lambda test: test.id_column != csv.id_column)
        recipe.parameters["TEST_CSV"] = test.name
        recipe.parameters["TEST_PATH_TEMPLATE"] = test.template
        recipe.note(f"{test.name} names the test images {test.template}")
        if test.id_column != csv.id_column:
            recipe.parameters["TEST_ID_COLUMN"] = test.id_column
            recipe.note(f"its ids are in the column '{test.id_column}'")
        return
    if tests:
        recipe.doubt(
            f"{tests[0].name} names images among the labelled ones, "
            f"so they are not read as test images"
        )
    if FOLDER_COLUMN in csv.table:  # all splits have their CSVs
        return
    pattern = _find_test_images(csv, images)
    if pattern:
        recipe.parameters["TEST_CSV"] = ""
        recipe.parameters["TEST_PATH_TEMPLATE"] = pattern
        recipe.doubt(f"{pattern} are test images? No CSV names them")
    elif not tests:
        recipe.doubt("no test images were found")


def _find_test_images(csv: Csv, images: Iterable[Parts]) -> str:
    """Return the pattern of images in a test folder; "" if the CSV names them."""
    for folder, *below in images:
        is_test = below and split_of(folder) == "test"
        if is_test and not csv.ids.str.startswith(f"{folder}/").any():
            return "/".join([folder, *"*" * len(below)])
    return ""
