"""What a CSV says of images, by its first rows: ids, labels, groups, splits and tests."""

import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pandas as pd

from kaggle_tfr.explore.labels import FLAGS
from kaggle_tfr.explore.recipe import shorten
from kaggle_tfr.explore.records import LABEL_NAME
from kaggle_tfr.explore.splits import (
    FOLDER_COLUMN,
    MISSING,
    looks_like_splits,
    name_split,
)
from kaggle_tfr.naming import split_of
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.storage import OUTSIDE

Detected = tuple[
    dict[str, Any], list[str]
]  # parameters; lines on what they were chosen by

UNSURE = "not sure: "
RUNS = re.compile(r"\d+ \d+( \d+ \d+)*")
ROWS = 500  # inspected of a CSV
IDS = 12  # looked for among the files
ODD_SHARE = 0.05  # of a column of 0 and 1, the cells that can be something else
_TAIL = r"s?([ _-]?(id|no|nr|number|name|key|code|index|idx|uid|instance_?uid))?"
# Names of columns whose values keep images together; those further to the front are preferred.
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


@dataclass(frozen=True)
class Csv:
    """A CSV whose column of ids names images that are there.

    name: below the folder, or a pattern for several. table: its first rows, as text.
    template: leads to an image by its id. halved: ids are cut before their last "_", as those of
    "0011165.jpg_Fish".
    """

    name: str
    table: pd.DataFrame
    id_column: str
    template: str
    halved: bool = False

    def is_test(self) -> bool:
        """True for a sample submission, and for the ids of images in a folder of tests."""
        if "submission" in self.name.lower():
            return True
        return split_of(self.template.partition("/")[0]) == "test"


def match_csvs(
    folder: str, names: Sequence[str], images: Sequence[Sequence[str]]
) -> tuple[list[Csv], list[str]]:
    """The CSVs that name images, and lines on those that do not.

    Several CSVs of one name and form, one in each folder of a split, become one.
    """
    csvs: list[Csv] = []
    unmatched: list[str] = []
    comments: list[str] = []
    for name in names:
        try:
            tables = _read_rows(os.path.join(folder, name))
        except (ValueError, OSError):
            comments.append(f"{UNSURE}{shorten(name)} cannot be read as a CSV in UTF-8")
            continue
        matches = (_match_csv(folder, name, table, images) for table in tables)
        if csv := next(filter(None, matches), None):
            csvs.append(csv)
        else:
            unmatched.append(name)
    if unmatched:
        listed = shorten(", ".join(unmatched))
        comments.append(
            f"{UNSURE}not used, for no column names images that are there: {listed}"
        )
    return _merge_splits(csvs, names), comments


def detect_csvs(csvs: Sequence[Csv], images: Sequence[Sequence[str]]) -> Detected:
    """The parameters for labels and test images in these CSVs, one of which is not of tests."""
    labelled = [csv for csv in csvs if not csv.is_test()]
    main, *others = labelled
    values, comments = _detect_labels(main)
    for other in others:
        what = f"{shorten(other.name)} names pictures too ({shorten(other.template)})"
        comments.append(f"{UNSURE}{what}: other labels, or data for MORE_INPUTS?")
    tests = [csv for csv in csvs if csv.is_test()]
    test_values, test_comments = _detect_tests(main, tests, images)
    return values | test_values, comments + test_comments


def detect_validation(splits: Iterable[str], values: dict[str, Any]) -> list[str]:
    """Lines on given validation images, for which `values` gets no folds.

    With folds, 06 would validate on a fold, and never on the images that are given for it.
    """
    if "validation" not in splits:
        return []
    values["N_FOLDS"] = 0
    return ["N_FOLDS is 0: the validation images are given"]


def _read_rows(path: str) -> list[pd.DataFrame]:
    """The first rows of a CSV as text, by the separators that its header may have: widest first.

    Raises: ValueError: it is not a CSV in UTF-8.
    """
    if not os.path.isfile(path):  # a pipe would wait for ever
        raise ValueError(path)
    tables = []
    for sep in ",;\t":
        with suppress(pd.errors.ParserError):
            tables.append(_read_separated(path, sep))
    if not tables:
        raise ValueError(path)
    tables.sort(key=lambda table: -len(table.columns))
    return [tables[0], *(table for table in tables[1:] if len(table.columns) > 1)]


def _read_separated(path: str, sep: str) -> pd.DataFrame:
    """The first rows of a CSV as text; blanks around a column's name are left out, as in 01."""
    options: dict[str, Any] = {
        "encoding": "utf-8-sig",
        "dtype": str,
        "keep_default_na": False,
    }
    table = pd.read_csv(path, sep=sep, nrows=ROWS, **options).reset_index(drop=True)
    stripped = [str(name).strip() for name in table]
    names = [
        s if stripped.count(s) == 1 else name
        for name, s in zip(table, stripped, strict=True)
    ]
    return table.set_axis(names, axis=1)


def _match_csv(
    folder: str, name: str, table: pd.DataFrame, images: Sequence[Sequence[str]]
) -> Csv | None:
    """The CSV with the column and template that lead to most images; None if they lead to few."""

    @cache
    def leads(template: str, image_id: str) -> bool:
        with suppress(
            IndexError, ValueError
        ):  # shorter than the template's folders; NUL
            path = template.format(image_id=image_id)
            return not OUTSIDE.search(path) and os.path.isfile(
                os.path.join(folder, path)
            )
        return False

    best = None
    most_hits = 0
    templates = {template for parts in images for template in _list_templates(parts)}
    beside = _escape_braces(name.rpartition("/")[0])
    # Splits may number their images alike: those beside the CSV are likelier.
    rank = {t: (not t.startswith(f"{beside}/"), t.count("/"), t) for t in templates}
    ordered = sorted(templates, key=rank.__getitem__)
    # The first ids may be those of other folders.
    sample = table.iloc[:: max(1, len(table) // IDS)]
    for column in table:
        whole_ids = [text for text in sample[column] if text not in MISSING]
        half_ids = [text.rpartition("_")[0] for text in whole_ids if "_" in text]
        for ids, template in product((whole_ids, half_ids), ordered):
            if not any(leads(template, text) for text in ids[:4]):
                continue
            hits = sum(leads(template, text) for text in ids)
            if hits > most_hits and 2 * hits >= len(ids):
                most_hits = hits
                best = Csv(name, table, str(column), template, halved=ids is half_ids)
    return best


def _list_templates(parts: Sequence[str]) -> Iterator[str]:
    """Templates that can lead to an image by its id: a name without its ending or with it.

    The id may begin with some of the folders, or the folders be its first characters.
    """
    stem, ending = os.path.splitext(parts[-1])
    folders = [_escape_braces(name) for name in parts[:-1]]
    ids = ["{image_id}", "{image_id}" + _escape_braces(ending)]
    whole = list(folders)
    for count in range(len(folders), 0, -1):
        if list(parts[:-1])[-count:] == list(stem[:count]):
            whole[-count:] = [f"{{image_id[{place}]}}" for place in range(count)]
            break
    above = [folders[:depth] for depth in range(len(folders))]
    for names, image_id in product([whole, *above], ids):
        yield "/".join([*names, image_id])


def _escape_braces(name: str) -> str:
    """The name as a template has it: without fields."""
    return name.replace("{", "{{").replace("}", "}}")


def _merge_splits(csvs: Sequence[Csv], names: Sequence[str]) -> list[Csv]:
    """The CSVs; those of one name and form, one in each folder of a split, as one."""
    groups: dict[str, list[Csv]] = {}
    for csv in csvs:
        folder, _, name = csv.name.rpartition("/")
        above = folder.rpartition("/")[0]
        pattern = "/".join(filter(None, [glob.escape(above), "*", glob.escape(name)]))
        if split_of(folder) and csv.template.startswith(f"{_escape_braces(folder)}/"):
            groups.setdefault(pattern, []).append(csv)

    merged: list[Csv] = list(csvs)
    for pattern, group in groups.items():
        level = pattern.count("/")
        matching = [
            n
            for n in names
            if n.count("/") == level and fnmatch.fnmatchcase(n, pattern)
        ]
        tails = {_remove_folder(csv) for csv in group}
        id_columns = {csv.id_column for csv in group}
        if len(group) < 2 or len(group) < len(matching):
            continue
        if len(tails) == len(id_columns) == 1:
            folders = [os.path.dirname(csv.name) for csv in group]
            tables = [csv.table for csv in group]
            rows = [
                table.assign(**{FOLDER_COLUMN: folder})
                for table, folder in zip(tables, folders, strict=True)
            ]
            # A test set may lack the columns of labels.
            table = pd.concat(rows, ignore_index=True).fillna("")
            template = f"{{{FOLDER_COLUMN}}}{tails.pop()}"
            one = Csv(pattern, table, id_columns.pop(), template)
            merged = [one, *(csv for csv in merged if csv not in group)]
    return merged


def _remove_folder(csv: Csv) -> str:
    """The template without the CSV's own folder, such as "/{image_id}"."""
    return csv.template.removeprefix(_escape_braces(os.path.dirname(csv.name)))


def _detect_labels(csv: Csv) -> Detected:
    """Where the images are and what labels them: codes of masks, flags, a list, or a class."""
    values: dict[str, Any] = {
        "SOURCE": "csv",
        "LABELS_CSV": csv.name,
        "ID_COLUMN": csv.id_column,
    }
    values["PATH_TEMPLATE"] = csv.template
    what = (
        f"{shorten(csv.name)}: its column '{shorten(csv.id_column)}' names the images"
    )
    comments = [f"{what} {shorten(csv.template)}"]

    cells = {
        name: csv.table[name] for name in map(str, csv.table) if name != csv.id_column
    }
    cells = {
        name: text[~text.isin(MISSING)].str.strip() for name, text in cells.items()
    }
    cells = {name: text for name, text in cells.items() if len(text)}
    split_values, split_comments = _detect_splits(csv, cells)
    splits = [name for name in cells if _holds_splits(name, cells[name])] + [
        FOLDER_COLUMN
    ]
    rest = {name: text for name, text in cells.items() if name not in splits}
    groups = _list_groups(rest)
    rest = {name: text for name, text in rest.items() if name not in groups} or rest

    label_values, label_comments = _detect_label_columns(csv, rest)
    labels = label_values["LABEL_COLUMN"]
    label_names = [labels] if isinstance(labels, str) else labels
    groups = [name for name in groups if name not in label_names]
    group_values: dict[str, Any] = {}
    if "N_FOLDS" in split_values:  # for validation is given
        group_comments = _detect_moves(csv, groups, split_values["SPLIT_COLUMN"])
    else:
        group_values, group_comments = _detect_groups(csv, groups, labels)
    comments += label_comments + group_comments + split_comments
    return values | label_values | group_values | split_values, comments


def _detect_label_columns(csv: Csv, cells: dict[str, pd.Series]) -> Detected:
    """LABEL_COLUMN and what belongs to it. cells: of each column that can hold labels."""
    values: dict[str, Any] = {}
    comments = []
    codes = [
        name for name, text in cells.items() if text.str.fullmatch(RUNS).mean() > 0.9
    ]
    flags = _list_flags(cells)
    n_values = {name: text.nunique() for name, text in cells.items()}
    # Likely names first, then few values; a column with one value labels nothing.
    rank = {
        n: (not LABEL_NAME.fullmatch(n), n_values[n] == 1, n_values[n]) for n in cells
    }
    order = sorted(cells, key=rank.__getitem__)
    if codes:
        repeats = csv.table[csv.id_column].duplicated().any() and not csv.halved
        keys = [name for name in order if name not in codes]
        keys = [n for n in keys if not csv.table.duplicated([csv.id_column, n]).any()]
        label = [keys[0], codes[0]] if repeats and keys else codes[0]
        values |= {
            "SOURCE": "rle_csv",
            "LABEL_COLUMN": label,
            "KEEP": "all",
            "CONFLICTS": "keep",
        }
        what = f"'{shorten(codes[0])}': run-length codes of masks"
        comments.append(f"{what}, which are drawn by hand: none agree")
    elif len(flags) > 1 and (order[0] in flags or not LABEL_NAME.fullmatch(order[0])):
        values["LABEL_COLUMN"] = flags
        comments += _detect_flags(csv, flags)
        others = [name for name in order if name not in flags]
        comments += _detect_others(
            [n for n in others if 1 < n_values[n] < len(cells[n]) / 2]
        )
    elif order:
        label = order[0]
        different = set(cells[label])
        values["LABEL_COLUMN"] = label
        comments.append(
            f"'{shorten(label)}': {len(different)} values in {len(cells[label])} rows"
        )
        words = {word for text in different for word in text.split()}
        if len(words) < len(different) and any(" " in text for text in different):
            values["LABEL_SEPARATOR"] = " "
            what = "blanks separate labels; if they are in names, drop LABEL_SEPARATOR"
            comments.append(f"{UNSURE}{what}")
        comments += _detect_others([name for name in order[1:] if n_values[name] > 1])
    else:
        values["LABEL_COLUMN"] = []
        comments.append(
            f"{UNSURE}no column labels the images: they are read without labels"
        )
    return values, comments


def _detect_others(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"{UNSURE}LABEL_COLUMN could also be one of {shorten(', '.join(names))}"]


def _list_flags(cells: dict[str, pd.Series]) -> list[str]:
    """The columns of 0 and 1, of which a few cells may be something else."""
    is_flag = {
        name: text.str.lower().isin(FLAGS.keys()) for name, text in cells.items()
    }
    flags = [name for name in cells if is_flag[name].all()]
    if not flags:
        return []
    found = set(flags)
    for name, good in is_flag.items():
        held = {FLAGS[text] for text in cells[name][good].str.lower()}
        if held == {0, 1} and (~good).sum() <= ODD_SHARE * len(good):
            found.add(name)
    return [name for name in cells if name in found]


def _detect_flags(csv: Csv, flags: Sequence[str]) -> list[str]:
    """Lines on columns of 0 and 1: how many labels an image has, and which cells are odd."""
    text = csv.table[flags].apply(lambda column: column.str.strip().str.lower())
    known = text.isin(FLAGS.keys())
    whole_rows = text[known.all(axis=1)]
    ones = whole_rows.apply(lambda column: column.map(FLAGS)).sum(axis=1)
    what = f"{len(flags)} columns of 0 and 1"
    if len(ones) and (ones == 1).all():
        comments = [
            f"{what}, exactly one 1 in each of {len(ones)} rows: one class per image"
        ]
    else:
        comments = [f"{what}: an image can have several labels"]
    for name in flags:
        odd = csv.table[name][~known[name] & ~csv.table[name].isin(MISSING)]
        if len(odd):
            image_id = csv.table[csv.id_column][odd.index[0]]
            cell = f"'{shorten(odd.iloc[0])}' for '{shorten(image_id)}'"
            what = f"column '{shorten(name)}' has {cell}, which is not 0 or 1"
            comments.append(f"{UNSURE}{what}: {len(odd)} rows are rejected")
    return comments


def _list_groups(cells: dict[str, pd.Series]) -> list[str]:
    """The columns that are called like groups and repeat values, the likeliest first."""
    names = []
    for pattern in GROUP_NAMES:
        for name, text in cells.items():
            repeats = 1 < text.nunique() < len(text)
            if repeats and pattern.fullmatch(name) and name not in names:
                names.append(name)
    return names


def _detect_groups(csv: Csv, names: Sequence[str], labels: str | list[str]) -> Detected:
    """GROUP_COLUMN: the likeliest column with enough values for the folds."""
    values: dict[str, Any] = {}
    comments = []
    for name in names:
        count = csv.table[name].nunique()
        quoted = f"'{shorten(name)}'"
        if count < DEFAULTS["N_FOLDS"]:
            few = f"but it has {count} values, fewer than there are folds"
            comments.append(f"{UNSURE}GROUP_COLUMN could be {quoted}, {few}")
        elif isinstance(labels, str) and _follows(csv.table, labels, name):
            comments.append(
                f"{UNSURE}GROUP_COLUMN could be {quoted}, but each class has one value"
            )
        elif values:
            comments.append(f"{UNSURE}GROUP_COLUMN could also be {quoted}")
        else:
            values["GROUP_COLUMN"] = name
            what = f"{quoted} repeats its values ({count} in {len(csv.table)} rows)"
            comments.append(
                f"{what}: GROUP_COLUMN keeps images of one value in one fold"
            )
    return values, comments


def _detect_moves(csv: Csv, names: Sequence[str], split_column: str) -> list[str]:
    """Lines on groups whose images are in several given splits, where there are no folds."""
    splits = csv.table[split_column].map(name_split)
    is_test = splits == "test"
    n_splits = {
        name: splits[~is_test].groupby(csv.table[name]).nunique().max()
        for name in names
    }
    return [
        f"{UNSURE}GROUP_COLUMN could be '{shorten(name)}', whose values are in several given "
        f"splits: it would move their images into one of them"
        for name in names
        if n_splits[name] > 1
    ]


def _follows(table: pd.DataFrame, labels: str, name: str) -> bool:
    """True where all images of a class have one value in that column."""
    return bool(table.groupby(labels)[name].nunique().max() < 2)


def _holds_splits(name: str, text: pd.Series) -> bool:
    """True for a column of given splits, by its name or by having several of them."""
    if looks_like_splits(name, text):
        return True
    splits = set(text.map(name_split))
    return len(splits) > 1 and "" not in splits and not LABEL_NAME.fullmatch(name)


def _detect_splits(csv: Csv, cells: dict[str, pd.Series]) -> Detected:
    """SPLIT_COLUMN: the column of given splits, or that of the CSVs' folders."""
    values: dict[str, Any] = {}
    found = [name for name in cells if _holds_splits(name, cells[name])]
    if not found:
        folders = csv.table[csv.id_column].str.partition("/")[0]
        splits = sorted(set(folders))
        if len(splits) < 2 or not all(map(name_split, splits)):
            return {}, []
        values["SPLIT_COLUMN"] = csv.id_column
        comments = [
            f"ids begin with given splits ({', '.join(splits)}), which are kept"
        ]
        return values, comments + detect_validation(map(name_split, splits), values)
    name = FOLDER_COLUMN if FOLDER_COLUMN in found else found[0]
    values["SPLIT_COLUMN"] = name
    listed = shorten(", ".join(sorted(set(cells[name]))))
    comments = [f"'{shorten(name)}': given splits ({listed}), which are kept"]
    if others := [other for other in found if other != name]:
        comments.append(
            f"{UNSURE}SPLIT_COLUMN could also be {shorten(', '.join(others))}"
        )
    comments += detect_validation(set(cells[name].map(name_split)), values)
    return values, comments


def _detect_tests(
    csv: Csv, tests: Sequence[Csv], images: Sequence[Sequence[str]]
) -> Detected:
    """Where the images to predict are, and which CSV names them."""
    others = [test for test in tests if test.template != csv.template]
    others.sort(key=lambda test: test.id_column != csv.id_column)
    if others:
        test = others[0]
        values = {"TEST_CSV": test.name, "TEST_PATH_TEMPLATE": test.template}
        comments = [
            f"{shorten(test.name)} names the test images {shorten(test.template)}"
        ]
        if test.id_column != csv.id_column:
            values["TEST_ID_COLUMN"] = test.id_column
            comments.append(f"its ids are in the column '{shorten(test.id_column)}'")
        return values, comments
    comments = []
    if tests:
        what = f"{shorten(tests[0].name)} names images among the labelled ones"
        comments.append(f"{UNSURE}{what}, so they are not read as test images")
    if csv.template.startswith(f"{{{FOLDER_COLUMN}}}"):
        return {"TEST_PATH_TEMPLATE": ""}, comments
    labelled_folders = {path.partition("/")[0] for path in _fill_template(csv)}
    for folder, *below in images:
        if split_of(folder) == "test" and below and folder not in labelled_folders:
            values = {
                "TEST_CSV": "",
                "TEST_PATH_TEMPLATE": "/".join([folder, *"*" * len(below)]),
            }
            comments.append(f"{UNSURE}{folder}/ has test images? No CSV names them")
            return values, comments
    if not tests:
        comments.append(f"{UNSURE}no test images were seen")
    return {"TEST_PATH_TEMPLATE": ""}, comments


def _fill_template(csv: Csv) -> Iterator[str]:
    """The paths of the images that the first rows name."""
    for image_id in csv.table[csv.id_column]:
        with suppress(IndexError):  # shorter than the template's folders
            yield csv.template.format(image_id=image_id)
