"""Infer from the first rows of CSVs which columns are ids, labels, groups, splits."""

import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import pandas as pd

from kaggle_tfr.explore.csvs import SEPARATORS, parse_text
from kaggle_tfr.explore.features import LABEL_NAME
from kaggle_tfr.explore.labels import FLAGS
from kaggle_tfr.explore.recipe import Recipe
from kaggle_tfr.explore.splits import FOLDER_COLUMN, MISSING, name_split
from kaggle_tfr.naming import split_of
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.storage import OUTSIDE

RUNS = re.compile(r"\d+ \d+( \d+ \d+)*")
ROWS = 500  # inspected of a CSV
IDS = 12  # looked for among the files
ODD_SHARE = 0.05  # of a column of 0 and 1, the cells that may be something else
_TAIL = r"s?([ _-]?(id|no|nr|number|name|key|code|index|idx|uid|instance_?uid))?"
# Names of columns whose values keep images together, the likeliest first.
GROUP_NAMES = [
    re.compile(rf"(?i){words}{_TAIL}")
    for words in (
        "(.*[ _-])?(patient|subject|person|participant|individual|animal|donor)",
        "(.*[ _-])?(lesion|specimen|slide|case|exam|study)",
        "(.*[ _-])?(series|session|sequence|video|burst)",
        "(group|site|hospital|clinic|center|centre|camera)",
    )
]


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
    def top_folder(self) -> str:
        return self.name.partition("/")[0]

    @property
    def is_test(self) -> bool:
        """Whether it is a sample submission, or names the images of a test folder."""
        image_folder = self.template.partition("/")[0]
        return "submission" in self.name.lower() or split_of(image_folder) == "test"


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
    def counts(self) -> str:
        """The numbers of its values and rows, for a comment."""
        return f"{self.n_values} values in {len(self.cells)} rows"

    @property
    def is_flag(self) -> bool:
        """Whether it contains 0 and 1, and at most a few cells with something else."""
        flags = self.cells.str.lower().map(FLAGS)
        return flags.isna().mean() <= ODD_SHARE

    @property
    def is_code(self) -> bool:
        """Whether it contains run-length codes of masks."""
        return self.cells.str.fullmatch(RUNS).mean() > 0.9

    @property
    def has_splits(self) -> bool:
        """Whether it contains several given splits, and nothing else."""
        splits = set(self.cells.map(name_split))
        return len(splits) > 1 and "" not in splits

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
    recipe: Recipe, folder: str, names: Sequence[str], images: Iterable[str]
) -> list[Csv]:
    """Return the CSVs that name images; comment on the others.

    CSVs with the same name, id column and template, one in each split folder, become
    one, if that holds for all CSVs of the name.
    names: of the CSVs below the folder. images: paths of some images below the folder,
    from which the templates of paths are inferred.
    """
    templates = {template for image in images for template in _list_templates(image)}
    csvs = [_match_file(folder, name, templates) for name in names]
    unmatched = [name for name, csv in zip(names, csvs, strict=True) if not csv]
    if unmatched:
        recipe.doubt(
            "not used, because they are not in UTF-8, or because no column names "
            f"existing images: {', '.join(unmatched)}"
        )
    return _merge_splits(list(filter(None, csvs)), names)


def _match_file(folder: str, name: str, templates: Iterable[str]) -> Csv | None:
    """Return the CSV by the first separator with which it names images."""
    for table in _read_by_each_separator(os.path.join(folder, name)):
        csv = _match_csv(folder, name, table, templates)
        if csv:
            return csv
    return None


def _read_by_each_separator(path: str) -> Iterator[pd.DataFrame]:
    """Yield the first rows as text, for each separator that gives a table."""
    if not os.path.isfile(path):  # a pipe would block for ever
        return
    for separator in SEPARATORS:
        with suppress(ValueError, OSError):
            table = parse_text(path, separator, nrows=ROWS)
            yield table.reset_index(drop=True)


def _match_csv(
    folder: str, name: str, table: pd.DataFrame, templates: Iterable[str]
) -> Csv | None:
    """Return the CSV with the column and template that name most images.

    None if no column names at least half of the images.
    """
    ordered = _sort_templates(templates, os.path.dirname(name))
    best = None
    most_hits = 0
    for column in map(str, table):
        for ids, template in product(_sample_ids(table[column]), ordered):
            hits = _count_images(folder, template, ids)
            if hits > most_hits and 2 * hits >= len(ids):
                most_hits = hits
                best = Csv(name, table, column, template)
    return best


def _sort_templates(templates: Iterable[str], csv_folder: str) -> list[str]:
    """Return the likeliest templates first: those of images beside the CSV.

    Splits may number their images alike.
    """
    beside = f"{_escape_braces(csv_folder)}/"
    return sorted(
        templates,
        key=lambda path: (not path.startswith(beside), path.count("/"), path),
    )


def _sample_ids(cells: pd.Series) -> tuple[list[str], list[str]]:
    """Return a sample of the ids, and the image ids of those that end in a label.

    "0011165.jpg_Fish" is the id of an image and a label.
    """
    # The first ids may be those of other folders.
    step = max(1, len(cells) // IDS)
    ids = [text for text in cells[::step] if text not in MISSING]
    return ids, [text.rpartition("_")[0] for text in ids if "_" in text]


def _count_images(folder: str, template: str, ids: Sequence[str]) -> int:
    """Return how many ids name files; 0 if none of the first four does."""
    paths = [_fill_template(folder, template, image_id) for image_id in ids]
    if not any(map(os.path.isfile, paths[:4])):
        return 0
    return sum(map(os.path.isfile, paths))


def _fill_template(folder: str, template: str, image_id: str) -> str:
    """Return the path of an image; "" if its id is too short or leads out."""
    try:
        path = template.format(image_id=image_id)
    except IndexError:
        return ""
    return "" if OUTSIDE.search(path) else os.path.join(folder, path)


def _list_templates(image: str) -> list[str]:
    """Return templates that may give the path of an image from its id.

    The id has the extension of the file or not. It may begin with some of the folders,
    or the folders may be its first characters.
    """
    *names, file = image.split("/")
    stem, extension = os.path.splitext(file)
    folders = _name_folders(names, stem)
    tails = ["{image_id}", "{image_id}" + _escape_braces(extension)]
    heads = [folders[:depth] for depth in range(len(folders) + 1)]
    return ["/".join([*head, tail]) for head in heads for tail in tails]


def _name_folders(names: list[str], stem: str) -> list[str]:
    """Return the templates of folders; the last ones may be characters of the id."""
    folders = [_escape_braces(name) for name in names]
    for count in range(len(names), 0, -1):
        if names[-count:] == list(stem[:count]):
            folders[-count:] = [f"{{image_id[{place}]}}" for place in range(count)]
            break
    return folders


def _escape_braces(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


def _merge_splits(csvs: list[Csv], names: Sequence[str]) -> list[Csv]:
    """Return the CSVs; those with the same form in several split folders as one."""
    for (file, _, tail), group in _group_by_form(csvs).items():
        alike = [name for name in names if name.endswith(f"/{file}")]
        if 1 < len(group) == len(alike):
            rest = [csv for csv in csvs if csv not in group]
            csvs = [_merge(group, file, tail), *rest]
    return csvs


def _group_by_form(csvs: Iterable[Csv]) -> dict[tuple[str, str, str], list[Csv]]:
    """Return the CSVs in split folders that read images there, by their form.

    The form is the CSV's name, its column of ids and the template, without the folder.
    """
    groups = defaultdict(list)
    for csv in csvs:
        prefix = f"{_escape_braces(csv.top_folder)}/"
        if split_of(csv.top_folder) and csv.template.startswith(prefix):
            file = csv.name.partition("/")[2]
            tail = csv.template.removeprefix(prefix)
            groups[file, csv.id_column, tail].append(csv)
    return groups


def _merge(csvs: Sequence[Csv], file: str, tail: str) -> Csv:
    """Return CSVs with the same form as one, with a column of their split folders.

    file, tail: the CSV's name and the template, both below the split folder.
    """
    tables = [csv.table.assign(**{FOLDER_COLUMN: csv.top_folder}) for csv in csvs]
    # A test set may lack the columns of labels.
    table = pd.concat(tables, ignore_index=True).fillna("")
    template = f"{{{FOLDER_COLUMN}}}/{tail}"
    return Csv(f"*/{glob.escape(file)}", table, csvs[0].id_column, template)


def detect_csvs(recipe: Recipe, csvs: Sequence[Csv], images: Iterable[str]) -> None:
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
            "other labels, or data for MORE_INPUTS?"
        )
    _detect_tests(recipe, csv, [csv for csv in csvs if csv.is_test], images)


def _detect_columns(recipe: Recipe, csv: Csv) -> None:
    """Add the parameters for the columns of labels, splits and groups."""
    columns = _list_columns(csv)
    rest = [column for column in columns if not column.has_splits]
    groups = _find_groups(rest)
    candidates = [column for column in rest if column not in groups] or rest
    labels = _detect_labels(recipe, csv, candidates)
    top_folders = csv.ids.str.partition("/")[0]
    _detect_splits(recipe, [*columns, Column(csv.id_column, top_folders)])
    if "N_FOLDS" not in recipe.parameters:  # with folds
        for group in groups:
            if group not in labels:
                _detect_group(recipe, group, labels)


def _find_groups(columns: Iterable[Column]) -> list[Column]:
    """Return the columns that may be groups, the likeliest first."""
    groups = [column for column in columns if column.group_rank >= 0]
    return sorted(groups, key=lambda column: column.group_rank)


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
    if any(column.is_code for column in columns):
        labels = _add_masks(recipe, csv, columns)
    elif len(flags) > 1 and (columns[0] in flags or not columns[0].has_label_name):
        labels = flags
        recipe.note(f"{len(flags)} columns of 0 and 1")
    elif columns:
        labels = columns[:1]
        _add_classes(recipe, *columns)
    else:
        labels = []
        recipe.doubt("no column labels the images: they are read without labels")
    names = [column.name for column in labels]
    recipe.parameters["LABEL_COLUMN"] = names[0] if len(names) == 1 else names
    return labels


def _add_masks(recipe: Recipe, csv: Csv, columns: Sequence[Column]) -> list[Column]:
    """Add the parameters for run-length codes; return the columns of LABEL_COLUMN."""
    code, *_ = [column for column in columns if column.is_code]
    recipe.parameters |= {"SOURCE": "rle_csv", "KEEP": "all", "CONFLICTS": "keep"}
    recipe.note(
        f"'{code.name}': run-length codes of masks, "
        "which are drawn by hand, so those of duplicates differ"
    )
    names = [column for column in columns if not column.is_code]
    return [code] if csv.ids.is_unique else [*names[:1], code]


def _add_classes(recipe: Recipe, column: Column, *others: Column) -> None:
    """Comment on a column of classes; add LABEL_SEPARATOR if its cells list several.

    others: columns that could be the labels, too.
    """
    recipe.note(f"'{column.name}': {column.counts}")
    words = column.cells.str.split().explode()
    if words.nunique() < column.n_values:
        recipe.parameters["LABEL_SEPARATOR"] = " "
        recipe.doubt(
            "blanks separate labels; if they are in names, drop LABEL_SEPARATOR"
        )
    names = [other.name for other in others if other.n_values > 1]
    if names:
        recipe.doubt(f"LABEL_COLUMN could also be one of {', '.join(names[:5])}")


def _detect_splits(recipe: Recipe, columns: Sequence[Column]) -> None:
    """Add SPLIT_COLUMN: the first column that contains given splits."""
    for column in columns:
        if column.has_splits:
            recipe.parameters["SPLIT_COLUMN"] = column.name
            splits = sorted(set(column.cells.map(name_split)))
            recipe.note(f"'{column.name}': given splits ({', '.join(splits)})")
            detect_validation(recipe, splits)
            break


def detect_validation(recipe: Recipe, splits: Iterable[str]) -> None:
    """Turn folds off if the splits contain validation images.

    With folds, 06 would validate on a fold, and never on these images.
    """
    if "validation" in set(splits):
        recipe.parameters["N_FOLDS"] = 0
        recipe.note("N_FOLDS is 0: the validation images are given")


def _detect_group(recipe: Recipe, group: Column, labels: Sequence[Column]) -> None:
    """Add GROUP_COLUMN, or a comment if the column has few values or names classes."""
    is_small = group.n_values < DEFAULTS["N_FOLDS"]
    has_group = "GROUP_COLUMN" in recipe.parameters
    if is_small or has_group or _names_classes(group, labels):
        recipe.doubt(f"GROUP_COLUMN could be '{group.name}' ({group.counts})")
        return
    recipe.parameters["GROUP_COLUMN"] = group.name
    recipe.note(
        f"'{group.name}' repeats its values ({group.counts}): "
        "GROUP_COLUMN keeps images with the same value in one fold"
    )


def _names_classes(group: Column, labels: Sequence[Column]) -> bool:
    """Return whether all images of a class have the same value in the column."""
    if len(labels) != 1:
        return False
    return group.cells.groupby(labels[0].cells).nunique().max() == 1


def _detect_tests(
    recipe: Recipe, csv: Csv, tests: Sequence[Csv], images: Iterable[str]
) -> None:
    """Add the parameters for the images to predict, and for the CSV that names them."""
    recipe.parameters["TEST_PATH_TEMPLATE"] = ""
    elsewhere = [test for test in tests if test.template != csv.template]
    if elsewhere:
        _add_tests(recipe, elsewhere[0])
    elif tests:
        recipe.doubt(
            f"{tests[0].name} names images among the labelled ones, "
            "so they are not read as test images"
        )
    elif pattern := _find_test_images(csv, images):
        recipe.parameters |= {"TEST_CSV": "", "TEST_PATH_TEMPLATE": pattern}
        recipe.doubt(f"{pattern} are test images? No CSV names them")


def _add_tests(recipe: Recipe, test: Csv) -> None:
    """Add the parameters for a CSV of test images."""
    recipe.parameters |= {
        "TEST_CSV": test.name,
        "TEST_ID_COLUMN": test.id_column,
        "TEST_PATH_TEMPLATE": test.template,
    }
    recipe.note(f"{test.name} names the test images {test.template}")


def _find_test_images(csv: Csv, images: Iterable[str]) -> str:
    """Return the pattern of images in a test folder; "" if the CSV names them."""
    if FOLDER_COLUMN in csv.table:  # each split has a CSV
        return ""
    for image in images:
        folder, *below = image.split("/")
        is_test = below and split_of(folder) == "test"
        if is_test and not csv.ids.str.startswith(f"{folder}/").any():
            return "/".join([folder, *"*" * len(below)])
    return ""
