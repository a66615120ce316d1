"""Propose the recipe for a folder from the names of its files and its CSVs."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from kaggle_tfr import mounts
from kaggle_tfr.explore import csvs
from kaggle_tfr.explore.files import (
    Files,
    check_images,
    is_generic,
    list_files,
    name_split,
)
from kaggle_tfr.explore.groups import SUBJECTS, find_rule, follow_classes
from kaggle_tfr.explore.inputs import LABEL_NAME
from kaggle_tfr.explore.labels import FLAGS, MANY, MISSING, NUMBER, RUNS
from kaggle_tfr.explore.names import AMBIGUOUS, join_names, remove_ending
from kaggle_tfr.explore.recipe import Recipe, save_recipe, to_line
from kaggle_tfr.explore.records import list_shards
from kaggle_tfr.explore.rows import FOLDER, NAMES
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.images.masks import EMPTY_CODES
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.storage import IMAGE_NAME

ROWS = 2_000  # of a CSV, which are inspected
MOST_CSVS = 20
_TAIL = r"s?([ _-]?(id|no|nr|number|name|key|code|index|uid))?"
SUBJECT_NAME = re.compile(rf"(?i)(.*[ _-])?({SUBJECTS}|individual|exam){_TAIL}")
SITE_NAME = re.compile(rf"(?i)(group|site|hospital|clinic|center|centre|camera){_TAIL}")
FACT_NAME = re.compile("(?i)sex|gender|age|width|height")  # never guessed as labels
# Folders of one subject: patient12, P-003, 0017.
SUBJECT_FOLDER = re.compile(rf"(?i)(.*({SUBJECTS})|[a-z]{{0,3}})[ _.-]*\d+")
# The words that begin a name, before its number: cat.17, Great_Dane_3.
PREFIX = r"(?:^|/)([A-Za-z]+(?:[ _-][A-Za-z]+)*)[ ._-]*[0-9][^/]*$"
CAMERA = re.compile(
    r"(?i)(img|image|pict?|picture|photo|foto|dsc[nf]?|mvi|pxl|gopr|p|wp|sam|scan|file"
    r"|frame|screenshot|train|test|val|isic)([ _-].*)?"
)
TEST_CSV = re.compile(r"(?i)submission|(^|[/_-])test")
OTHER_TABLE = re.compile(r"(?i)\.(jsonl?|xlsx?|xml|parquet|mat)$")
BOXES = re.compile(r"(?i)(^|/)(labels|annotations)/.*\.(txt|json|xml)$")


@dataclass(frozen=True)
class Place:
    """The folder of an input, its INPUT_DIR in a recipe, and the recipe's NAME."""

    folder: str
    input_dir: str
    name: str


@dataclass(frozen=True, eq=False)
class Table:
    """A CSV whose ids name images.

    rows: some of them, spread over all. template: PATH_TEMPLATE, if it is needed.
    """

    name: str
    rows: pd.DataFrame
    id_column: str
    has_tails: bool
    n_ids: int
    template: str = ""

    @property
    def columns(self) -> list[str]:
        return [str(name) for name in self.rows if name != self.id_column]


def write_recipe(source: str, out: str | None = None) -> tuple[str, list[str]]:
    """Write a commented recipe for a folder or Kaggle slug; return its path, comments.

    out: None for NAME.yaml.
    Raises: OSError, of which FileExistsError: the recipe exists; and as
    `propose_recipe`.
    """
    recipe = propose_recipe(source)
    path = out or f"{recipe.parameters['NAME']}.yaml"
    title = f"Made by kaggle-tfr init from {recipe.parameters['INPUT_DIR']}."
    save_recipe(recipe.parameters, [title, *recipe.comments], path)
    return path, [to_line(comment) for comment in recipe.comments]


def propose_recipe(source: str) -> Recipe:
    """Return the recipe for a folder or Kaggle slug.

    Raises: FileNotFoundError: there are no images; ValueError: a CSV has no header.
    """
    place = locate(source)
    recipe = detect_layout(place.folder)
    values = {"NAME": place.name, "INPUT_DIR": place.input_dir, **recipe.parameters}
    for parameter in ("IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS"):
        values.setdefault(parameter, DEFAULTS[parameter])
    return replace(recipe, parameters=values)


def locate(source: str) -> Place:
    """Return the place of a folder or Kaggle slug. Raises: FileNotFoundError."""
    folder = mounts.find_input(source)
    input_dir = source
    if "://" not in folder:
        folder = os.path.abspath(folder)
        input_dir = mounts.name_input(source, folder, folder)
    name = mounts.to_slug(os.path.basename(input_dir.rstrip("/")))[:40]
    return Place(folder, input_dir, name or "images")


def detect_layout(folder: str) -> Recipe:
    """Return the parameters that 01 needs to read a folder, and comments.

    Raises: as `propose_recipe`.
    """
    files = list_files(folder)
    recipe = Recipe()
    shards = list_shards(InputSettings(input_dir=folder))
    if len(shards) and not any(map(IMAGE_NAME.search, files.images)):
        recipe.parameters["INPUT_SCHEMA"] = "auto"
        recipe.note(f"TFRecord shards such as {os.path.basename(shards['path'][0])}")
        return recipe
    check_images(files, folder)
    tables = _read_tables(files, folder, recipe)
    labelled = [table for table in tables if not TEST_CSV.search(table.name)]
    others = {name for name in files.others if csvs.TABLE_NAME.search(name)}
    if labelled:
        table = max(labelled, key=_rank)
        used = _choose_csvs(recipe, table, tables)
        _detect_columns(recipe, table)
    else:
        used = []
        recipe.parameters["LABELS_CSV"] = ""
        _detect_names(recipe, files, sorted(others, key=_rank_name))
    tests = [table.name for table in tables if table.name not in used]
    tests = [name for name in tests if TEST_CSV.search(name)]
    if tests:
        recipe.parameters["TEST_CSV"] = tests[0]
    if unused := sorted(others.difference(used, tests)):
        recipe.note(f"CSVs that are not used: {', '.join(unused[:5])}")
    if boxes := [name for name in files.others if BOXES.search(name)]:
        recipe.note(f"files such as {boxes[0]} are not read: boxes are not labels here")
    splits = {files.splits[os.path.dirname(name)] for name in files.images}
    splits.update(name_split(os.path.basename(name).partition(".")[0]) for name in used)
    if "SPLIT_COLUMN" in recipe.parameters or splits.difference(["", "train", "test"]):
        recipe.parameters["N_FOLDS"] = 0
        recipe.note("N_FOLDS is 0, because validation images are given")
    return recipe


def _read_tables(files: Files, folder: str, recipe: Recipe) -> list[Table]:
    """Return the CSVs whose ids name images."""
    names = [name for name in files.others if csvs.TABLE_NAME.search(name)]
    names.sort(key=_rank_name)
    tables = []
    for name in names[:MOST_CSVS]:
        try:
            rows = csvs.read_csvs(name, files, folder, "CSV")
        except ValueError as error:
            recipe.doubt(str(error))
            continue
        n_rows = len(rows)
        rows = rows.iloc[:: max(1, n_rows // ROWS)]
        added = [csvs.FOLDER_COLUMN, csvs.SPLIT_OF_CSV, csvs.LONG]
        rows = rows.drop(columns=added)
        of_masks = any(map(_is_code, map(rows.get, rows)))
        id_column, has_tails = csvs.find_ids(rows, files.names, of_masks=of_masks)
        if id_column:
            template = _find_template(rows, id_column, files)
            n_ids = n_rows * rows[id_column].nunique() // len(rows)
            tables.append(Table(name, rows, id_column, has_tails, n_ids, template))
    return tables


def _find_template(rows: pd.DataFrame, id_column: str, files: Files) -> str:
    """Return a PATH_TEMPLATE by which most names have one file, "" if they have it."""
    ids = rows[id_column].head(csvs.SAMPLE)
    is_tied = join_names(ids, files.names) == AMBIGUOUS
    if is_tied.mean() < 0.5:
        return ""
    for column in rows.columns.drop(id_column):
        names = rows[column].head(csvs.SAMPLE) + "/" + ids
        if (join_names(names, files.names) >= 0).mean() > 0.5:
            return f"{{{column}}}/{{{id_column}}}"
    return ""


def _rank_name(name: str) -> tuple[int, bool, str]:
    """Return a sort key of CSVs: those at the top, and of training images, first."""
    return name.count("/"), "train" not in name.lower(), name


def _rank(table: Table) -> int:
    """Return how many images a CSV names, twice as many for one with labels."""
    has_label = any(map(LABEL_NAME.fullmatch, table.columns))
    return table.n_ids * (1 + has_label)


def _choose_csvs(recipe: Recipe, table: Table, tables: Sequence[Table]) -> list[str]:
    """Add the parameters for a CSV and those like it, of other splits; return names."""
    alike = [other.name for other in tables if other.columns == table.columns]
    stems = [name_split(re.split(r"[/.]", name)[-2]) for name in alike]
    base = os.path.basename(table.name)
    names: str | list[str] = table.name
    used = [table.name]
    if len(alike) > 1 and all(os.path.basename(name) == base for name in alike):
        names = f"*/{base}"
        used = alike
    elif len(alike) > 1 and all(stems) and len(set(stems)) > 1:
        names = used = alike
    recipe.parameters |= {"LABELS_CSV": names, "ID_COLUMN": table.id_column}
    if table.template:
        recipe.parameters |= {"ID_COLUMN": "", "PATH_TEMPLATE": table.template}
    return used


def _is_code(cells: pd.Series | None) -> bool:
    """Return whether a column contains run-length codes of masks."""
    codes = pd.Series(cells).str.strip()
    codes = codes[~codes.isin(EMPTY_CODES)]
    return len(codes) > 0 and bool(codes.str.fullmatch(RUNS).mean() > 0.9)


def _detect_columns(recipe: Recipe, table: Table) -> None:
    """Add the parameters for the labels, splits and groups of a CSV."""
    rows = table.rows
    columns = _sort_columns(table)
    flags = columns["flag"]
    others = columns["other"] + (flags if len(flags) == 1 else [])
    named = [name for name in table.columns if LABEL_NAME.fullmatch(name)]
    named = [name for name in named if name in others + columns["group"]]
    recipe.parameters |= dict(zip(["SPLIT_COLUMN"], columns["split"], strict=False))
    if columns["code"]:
        label = [] if table.has_tails else named[:1]
        recipe.parameters |= {"LABEL_KIND": "masks", "KEEP": "all", "CONFLICTS": "keep"}
        recipe.parameters["LABEL_COLUMN"] = [*label, columns["code"][0]]
        return
    is_one_hot = len(flags) > 1 and (_count_ones(rows[flags]) == 1).mean() > 0.9
    chosen: str | list[str] = ""
    if named and len(rows[named].drop_duplicates()) == rows[named[0]].nunique():
        texts = [name for name in named if not rows[name].str.fullmatch(NUMBER).all()]
        chosen = [*texts, *named][0]
    elif not named and len(flags) > 1 and (is_one_hot or not others):
        chosen = flags
    elif not named and len(others) == 1 and not FACT_NAME.match(others[0]):
        chosen = others[0]
    elif not named and len(others) == 1 and re.match("(?i)age", others[0]):
        chosen = others[0]
    recipe.parameters["LABEL_COLUMN"] = chosen
    counts = {name: rows[name].nunique() for name in [*named, *others]}
    listed = ", ".join(f"{name} ({count} values)" for name, count in counts.items())
    if not chosen:
        recipe.doubt(f"set LABEL_COLUMN to a column: {listed or 'none can be it'}")
        if len(flags) > 1:
            recipe.note(f"or to the columns of 0 and 1: {', '.join(flags)}")
        recipe.note("or to folder, 'names: REGEX', or [] for images without labels")
        return
    text = f"{len(chosen)} columns of 0 and 1"
    if isinstance(chosen, str):
        text = f"{chosen}; columns with values: {listed}"
        ids = [name for name in table.rows if name in table.template]
        _detect_kind(recipe, rows[chosen], rows[ids or [table.id_column]].sum(axis=1))
    recipe.note(f"LABEL_COLUMN: {text}")
    _detect_groups(recipe, table, columns["group"], chosen)


def _count_ones(flags: pd.DataFrame) -> pd.Series:
    """Return the number of columns with a 1 in each row."""
    is_one = flags.apply(lambda cells: cells.str.lower().isin(["1", "1.0", "true"]))
    return is_one.sum(axis=1)


def _sort_columns(table: Table) -> dict[str, list[str]]:
    """Return the columns by what they may contain; constant ones are left out."""
    columns: dict[str, list[str]] = {
        kind: [] for kind in ("code", "split", "flag", "group", "other")
    }
    for name in table.columns:
        cells = table.rows[name].str.strip()
        cells = cells[~cells.isin(MISSING)]
        is_flag = cells.str.lower().str.removesuffix(".0").isin([*FLAGS, "-1"])
        kind = "other"
        if _is_code(cells):
            kind = "code"
        elif cells.nunique() < 2 or re.match("Unnamed", name):
            continue
        elif all(map(name_split, cells.unique())):
            kind = "split"
        elif is_flag.mean() > 0.95:
            kind = "flag"
        elif SUBJECT_NAME.fullmatch(name) or SITE_NAME.fullmatch(name):
            kind = "group"
        columns[kind].append(name)
    return columns


def _detect_kind(recipe: Recipe, cells: pd.Series, ids: pd.Series) -> None:
    """Add LABEL_SEPARATOR or LABEL_KIND if a column does not have one class a row."""
    values = cells[~cells.isin(MISSING)]
    numbers = values[values.str.fullmatch(NUMBER)]
    n_numbers = numbers.nunique()
    has_fractions = pd.to_numeric(numbers).mod(1).any()
    is_many = n_numbers > MANY and (has_fractions or n_numbers > len(values) / 4)
    if is_many and len(numbers) > 0.9 * len(values):
        recipe.parameters["LABEL_KIND"] = "number"
        return
    for separator in ("||", "|", ";", ",", " "):
        words = values.str.split(separator, regex=False).explode().str.strip().unique()
        # Names of classes can have commas and blanks.
        is_word = pd.Series(words).isin(values).mean() > 0.5
        is_rare = separator in ("||", "|", ";")
        if values.str.contains(separator, regex=False).any() and (is_word or is_rare):
            recipe.parameters["LABEL_SEPARATOR"] = separator
            return
    if cells.groupby(ids).nunique().max() > 1:
        recipe.parameters["LABEL_KIND"] = "multi"


def _detect_groups(
    recipe: Recipe, table: Table, names: Sequence[str], label: str | list[str]
) -> None:
    """Add the column of groups: of the fewest subjects, else of sites."""
    rows = table.rows
    classes = rows[label] if isinstance(label, str) else pd.Series("", rows.index)
    usable = []
    for name in names:
        sizes = rows[name][rows[name] != ""].value_counts()
        is_split_up = len(sizes) > 2 and sizes.iloc[0] <= len(rows) / 2
        is_repeated = len(sizes) > 0 and sizes.iloc[0] > 1
        if is_repeated and is_split_up and not follow_classes(rows[name], classes):
            usable.append((SITE_NAME.fullmatch(name) is not None, len(sizes), name))
    if usable:
        _, n_groups, name = min(usable)
        recipe.parameters["GROUP_COLUMN"] = name
        recipe.note(f"GROUP_COLUMN: {name} with {n_groups} values")
        if n_groups < DEFAULTS["N_FOLDS"]:
            recipe.parameters["N_FOLDS"] = n_groups


def _detect_names(recipe: Recipe, files: Files, tables: Sequence[str]) -> None:
    """Add the parameters for labels and groups in the names of folders and files."""
    images = [name for name in files.images if files.split_of(name) != "test"]
    images = images or list(files.images)
    paths = pd.Series(images).map(remove_ending)
    folders = paths.map(os.path.dirname)
    classes = folders.map(files.classes)
    above = folders.map(os.path.dirname).map(files.classes)
    prefixes = paths.str.extract(PREFIX)[0]
    sizes = prefixes.value_counts()
    is_named = prefixes.notna().mean() > 0.9 and 1 < len(sizes) <= len(paths) / 3
    label: str | list[str] = []
    if classes.nunique() > 1 and (classes != "").mean() > 0.5:
        label = FOLDER
        is_unique = above.groupby(folders).nunique().max() == 1
        is_subject = classes.map(lambda name: bool(SUBJECT_FOLDER.fullmatch(name)))
        if is_subject.mean() > 0.9 and is_unique and above.nunique() > 1:
            label = f"{NAMES}([^/]+)/[^/]+/[^/]+$"
            classes = above
            recipe.parameters["GROUP_COLUMN"] = FOLDER
            recipe.note("the class is the folder above the last one, which is a group")
        counts = classes[classes != ""].value_counts()
        listed = ", ".join(f"{name} ({count})" for name, count in counts[:6].items())
        recipe.note(f"{len(counts)} classes by folders: {listed}")
        if any(map(is_generic, counts.index)):
            label = ""
    elif is_named and not any(map(CAMERA.fullmatch, sizes.index)):
        label = NAMES + PREFIX
        classes = prefixes
        listed = ", ".join(f"{name} ({count})" for name, count in sizes[:6].items())
        recipe.note(f"{len(sizes)} classes by the beginnings of names: {listed}")
    elif tables or any(map(OTHER_TABLE.search, files.others)):
        label = ""
        recipe.parameters["LABELS_CSV"] = tables[0] if tables else ""
        recipe.doubt("no CSV names the images; set LABELS_CSV to one with image_id,label")
        recipe.note("or set LABEL_COLUMN: [] to read the images without labels")
    else:
        recipe.note("No labels found: the images are read without labels")
    recipe.parameters["LABEL_COLUMN"] = label
    rule = find_rule(paths, classes)
    if rule and "GROUP_COLUMN" not in recipe.parameters:
        recipe.parameters["GROUP_COLUMN"] = rule
        recipe.note("GROUP_COLUMN: images of one source, by their names")
