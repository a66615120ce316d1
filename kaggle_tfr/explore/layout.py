"""Propose the recipe for a folder from the names of its files and its CSVs."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from kaggle_tfr import mounts
from kaggle_tfr.explore import csvs
from kaggle_tfr.explore.checks import name_reasons
from kaggle_tfr.explore.files import (
    Files,
    check_images,
    is_generic,
    list_files,
    name_split,
)
from kaggle_tfr.explore.groups import SUBJECTS, add_groups, find_rule, follow_classes
from kaggle_tfr.explore.inputs import LABEL_NAME, read_input
from kaggle_tfr.explore.labels import FLAGS, MANY, MISSING, RUNS, number_labels
from kaggle_tfr.explore.names import AMBIGUOUS, join_names, remove_ending
from kaggle_tfr.explore.recipe import Recipe, save_recipe, to_line
from kaggle_tfr.explore.records import list_shards
from kaggle_tfr.explore.rows import FOLDER, NAMES
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.images.masks import EMPTY_CODES
from kaggle_tfr.parameters import DEFAULTS, make_settings
from kaggle_tfr.storage import IMAGE_NAME

ROWS = 2_000  # of a CSV, which are inspected
MOST_CSVS = 20
_ID = r"s?([ _-]?(id|no|nr|number|name|key|code|index|uid))?"
SUBJECT_NAME = re.compile(rf"(?i)(.*[ _-])?({SUBJECTS}|individual|exam){_ID}")
SITE_NAME = re.compile(rf"(?i)(group|site|hospital|clinic|center|centre|camera){_ID}")
FACT_NAME = re.compile("(?i)sex|gender|age|width|height")  # taken for labels last
SEX_NAME = re.compile("(?i)sex|gender")  # never taken for labels
# Folders of one subject: patient12, P-003, 0017.
SUBJECT_FOLDER = rf"(?i)(.*({SUBJECTS})|[a-z]{{0,3}})[ _.-]*\d+"
# The words that begin a name, before its number: cat.17, Great_Dane_3.
PREFIX = r"(?:^|/)([A-Za-z]+(?:[ _-][A-Za-z]+)*)[ ._-]*[0-9][^/]*$"
CAMERA = re.compile(
    r"(?i)(img|image|pict?|picture|photo|foto|dsc[nf]?|mvi|pxl|gopr|p|wp|sam|scan|file"
    r"|frame|screenshot|train|test|val|isic)([ _-].*)?"
)
TEST_CSV = re.compile(r"(?i)submission|(^|[/_-])test")
OTHER_TABLE = re.compile(r"(?i)\.(jsonl?|xlsx?|xml|parquet|mat)$")


def write_recipe(
    source: str, out: str | None = None, *, with_table: bool = False
) -> tuple[str, list[str]]:
    """Write a commented recipe for a folder or Kaggle slug; return its path, comments.

    out: None for NAME.yaml. with_table: add what 01 would read to the comments that are
    returned.
    Raises: OSError, of which FileExistsError: the recipe exists; and as
    `propose_recipe`.
    """
    recipe = propose_recipe(source)
    path = out or f"{recipe.parameters['NAME']}.yaml"
    title = f"Made by kaggle-tfr init from {recipe.parameters['INPUT_DIR']}."
    save_recipe(recipe.parameters, [title, *recipe.comments], path)
    table = _describe_table(recipe) if with_table else []
    return path, list(map(to_line, recipe.comments + table))


def propose_recipe(source: str) -> Recipe:
    """Return the recipe for a folder or Kaggle slug.

    Raises: FileNotFoundError: there are no images; ValueError: a CSV has no header.
    """
    folder, name, input_dir = locate(source)
    recipe = detect_layout(folder)
    usual = ("IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS")
    defaults = {parameter: DEFAULTS[parameter] for parameter in usual}
    names = {"NAME": name, "INPUT_DIR": input_dir}
    return replace(recipe, parameters={**names, **defaults, **recipe.parameters})


def _describe_table(recipe: Recipe) -> list[str]:
    """Return what 01 would read: counts, classes and three images; or why it stops."""
    settings = make_settings(InputSettings, recipe.parameters)
    settings = replace(settings, input_dir=recipe.files.folder)
    try:
        images, labels = read_input(settings, files=recipe.files)
        images, labels = number_labels(images, labels)
        images = add_groups(images, settings.group_column)
    except (ValueError, OSError) as error:
        return [f"01 will stop: {error}"]
    good = images[images["problem"] == ""]
    problems = name_reasons(images["problem"]).replace("", "good")
    counts = images.groupby(["split", problems]).size().to_dict()
    classes = good["label_name"][good["label_name"] != ""].value_counts()
    if labels.class_columns:
        classes = good[list(labels.class_columns)].astype(bool).sum()
    examples = good[["image_id", "label_name", "split", "path"]]
    examples = examples.iloc[:: max(1, len(good) // 3)].head(3)
    return [
        f"{len(images):,} images: {counts}",
        f"{len(classes):,} classes ({labels.kind}): {classes.head(9).to_dict()}",
        *(", ".join(row) for row in examples.astype(str).to_numpy()),
    ]


def locate(source: str) -> tuple[str, str, str]:
    """Return the folder of an input, and NAME and INPUT_DIR of its recipe."""
    folder = mounts.find_input(source)
    input_dir = folder
    if "://" not in folder:
        folder = os.path.abspath(folder)
        input_dir = mounts.name_input(source, folder, folder)
    name = mounts.to_slug(os.path.basename(input_dir))[:40]
    return folder, name or "images", input_dir


def detect_layout(folder: str) -> Recipe:
    """Return the parameters that 01 needs to read a folder, and comments.

    Raises: as `propose_recipe`.
    """
    files = list_files(folder)
    recipe = Recipe(files=files)
    has_names = any(map(IMAGE_NAME.search, files.images))
    if not has_names and len(list_shards(InputSettings(input_dir=folder))):
        return Recipe({"INPUT_SCHEMA": "auto"}, ["TFRecord shards"], files)
    check_images(files)
    names = [name for name in files.others if csvs.TABLE_NAME.search(name)]
    names.sort(key=lambda name: (name.count("/"), "train" not in name.lower(), name))
    tables = _read_tables(names, files, recipe)
    tests = [name for name in tables if TEST_CSV.search(name)]
    used = []
    if len(tables) > len(tests):
        used = _detect_csv(recipe, tables, tests)
        paths = pd.Series(files.images).map(remove_ending)
        _detect_rule(recipe, paths, pd.Series("", paths.index))
    else:
        _detect_names(recipe, files, names)
    for name in names:
        if name in tests and name not in used:
            recipe.parameters.setdefault("TEST_CSV", name)
        elif name not in used:
            recipe.comments.append(f"{name} is not used")
    words = [word for name in used for word in re.split(r"[/.]", name)]
    splits = {*files.splits.values(), *map(name_split, words)}
    if "SPLIT_COLUMN" in recipe.parameters or splits.difference(["", "train", "test"]):
        recipe.parameters["N_FOLDS"] = 0
        recipe.comments.append("N_FOLDS is 0, because validation images are given")
    return recipe


def _read_tables(
    names: Sequence[str], files: Files, recipe: Recipe
) -> dict[str, pd.DataFrame]:
    """Return some rows of the CSVs whose ids name images, with the ids as index."""
    tables = {}
    for name in names[:MOST_CSVS]:
        try:
            rows = csvs.read_csvs(name, files, files.folder, "CSV")
        except ValueError as error:
            recipe.comments.append(f"not sure: {error}")
            continue
        rows = rows.iloc[:: max(1, len(rows) // ROWS)]
        rows = rows.drop(columns=[csvs.CSV, csvs.LONG])
        of_masks = any(_is_code(rows[column]) for column in rows)
        id_column, has_tails = csvs.find_ids(rows, files.names, of_masks=of_masks)
        if id_column:
            names_of_rows, template = _find_template(rows, id_column, files)
            tables[name] = rows.drop(columns=id_column).set_index(names_of_rows)
            tables[name].attrs = {"has_tails": has_tails, "template": template}
    return tables


def _find_template(
    rows: pd.DataFrame, id_column: str, files: Files
) -> tuple[pd.Series, str]:
    """Return the names of images, and the PATH_TEMPLATE by which most have one file.

    The template is "" if the ids suffice.
    """
    ids = rows[id_column]
    if (join_names(ids, files.names) == AMBIGUOUS).mean() > 0.5:
        for column in rows.columns.drop(id_column):
            names = rows[column] + "/" + ids
            if (join_names(names, files.names) >= 0).mean() > 0.5:
                return names, f"{{{column}}}/{{{id_column}}}"
    return ids, ""


def _is_code(cells: pd.Series) -> bool:
    """Return whether a column contains run-length codes of masks."""
    codes = cells.str.strip()
    codes = codes[~codes.isin(EMPTY_CODES)]
    return len(codes) > 0 and bool(codes.str.fullmatch(RUNS).mean() > 0.9)


def _detect_csv(
    recipe: Recipe, tables: dict[str, pd.DataFrame], tests: Sequence[str]
) -> list[str]:
    """Add the parameters for the CSV of most images, and for those like it, of other
    splits; return their names.
    """
    n_images = {
        name: rows.index.nunique()
        * (1 + any(map(LABEL_NAME.fullmatch, map(str, rows))))
        for name, rows in tables.items()
        if name not in tests
    }
    chosen = max(n_images, key=lambda name: n_images[name])
    rows = tables[chosen]
    alike = [name for name in tables if list(tables[name]) == list(rows)]
    is_of_split = [any(map(name_split, re.split(r"[/.]", name))) for name in alike]
    used = alike if len(alike) > 1 and all(is_of_split) else [chosen]
    recipe.parameters["LABELS_CSV"] = used if len(used) > 1 else chosen
    recipe.parameters["ID_COLUMN"] = str(rows.index.name)
    if rows.attrs["template"]:
        recipe.parameters["ID_COLUMN"] = ""
        recipe.parameters["PATH_TEMPLATE"] = rows.attrs["template"]
    kinds = _sort_columns(rows)
    if kinds["split"]:
        recipe.parameters["SPLIT_COLUMN"] = kinds["split"][0]
    label = _choose_label(recipe, rows, kinds)
    recipe.parameters["LABEL_COLUMN"] = label
    if isinstance(label, str) and label:
        _detect_kind(recipe, rows[label])
    _detect_groups(recipe, rows, kinds["group"], str(label))
    return used


def _sort_columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Return the columns by what they may contain; constant ones are left out."""
    columns = defaultdict[str, list[str]](list)
    for name in map(str, rows):
        cells = rows[name][~rows[name].isin(MISSING)].str.strip().str.lower()
        kind = "other"
        if _is_code(cells):
            kind = "code"
        elif cells.empty or rows[name].nunique() < 2 or name.startswith("Unnamed"):
            continue
        elif all(map(name_split, cells.unique())):
            kind = "split"
        elif cells.str.removesuffix(".0").isin([*FLAGS, "-1"]).mean() > 0.95:
            kind = "flag"
        elif SUBJECT_NAME.fullmatch(name) or SITE_NAME.fullmatch(name):
            kind = "group"
        columns[kind].append(name)
    return columns


def _choose_label(
    recipe: Recipe, rows: pd.DataFrame, kinds: dict[str, list[str]]
) -> str | list[str]:
    """Return LABEL_COLUMN by the names of columns, "" if that is not clear."""
    flags = kinds["flag"]
    others = kinds["other"] + (flags if len(flags) == 1 else [])
    named = [name for name in others + kinds["group"] if LABEL_NAME.fullmatch(name)]
    if kinds["code"]:
        recipe.parameters |= {"LABEL_KIND": "masks", "KEEP": "all", "CONFLICTS": "keep"}
        return [*([] if rows.attrs["has_tails"] else named[:1]), kinds["code"][0]]
    is_one_hot = (rows[flags].isin(["1", "1.0"]).sum(axis=1) == 1).mean() > 0.9
    facts = list(filter(FACT_NAME.match, others))
    if len(flags) > 1 and not named and (is_one_hot or others == facts):
        return flags
    candidates = named or others
    counts = rows[candidates].nunique()
    recipe.comments.append(f"columns and their numbers of values: {counts.to_dict()}")
    is_only = len(others) == 1 and len(flags) < 2 and not SEX_NAME.match(others[0])
    # Several names of the same classes are as good as one.
    is_one = named and len(rows[named].drop_duplicates()) == counts.max()
    if is_only or is_one:
        texts = [
            name for name in candidates if rows[name].str.contains("[a-zA-Z]").any()
        ]
        return [*texts, *candidates][0]
    flags_or_folder = f"the columns {flags}, folder" if flags else "folder"
    recipe.comments.append(
        f"not sure: set LABEL_COLUMN to one of them, {flags_or_folder}, "
        "'names: REGEX', or [] for no labels"
    )
    return ""


def _detect_kind(recipe: Recipe, cells: pd.Series) -> None:
    """Add LABEL_SEPARATOR or LABEL_KIND if a column does not have one class a row."""
    values = cells[~cells.isin(MISSING)]
    numbers = pd.to_numeric(values, errors="coerce").dropna()
    is_many = numbers.nunique() > len(values) / 4
    is_class = LABEL_NAME.fullmatch(str(cells.name))
    is_dense = numbers.mod(1).any() or (is_many and not is_class)
    if is_dense and numbers.nunique() > MANY and len(numbers) > 0.9 * len(values):
        recipe.parameters["LABEL_KIND"] = "number"
        return
    if cells.groupby(level=0).nunique().max() > 1:
        recipe.parameters["LABEL_KIND"] = "multi"
    for separator in ("||", "|", ";", ",", " "):
        words = values.str.split(separator, regex=False).explode().str.strip().unique()
        # Names of classes can have commas and blanks.
        is_list = separator in "||" or pd.Series(words).isin(values).mean() > 0.5
        if is_list and values.str.contains(separator, regex=False).any():
            recipe.parameters["LABEL_SEPARATOR"] = separator
            return


def _detect_groups(
    recipe: Recipe, rows: pd.DataFrame, names: Sequence[str], label: str
) -> None:
    """Add the column of groups: of the fewest subjects, else of sites."""
    rows = rows.reset_index(drop=True)
    classes = rows[label] if label in rows else pd.Series("", rows.index)
    usable = []
    for name in names:
        sizes = rows[name][rows[name] != ""].value_counts()
        is_spread = len(sizes) > 2 and 1 < sizes.iloc[0] <= len(rows) / 2
        if is_spread and not follow_classes(rows[name], classes):
            usable.append((SITE_NAME.fullmatch(name) is not None, len(sizes), name))
    if usable:
        _, n_groups, recipe.parameters["GROUP_COLUMN"] = min(usable)
        recipe.parameters["N_FOLDS"] = min(n_groups, DEFAULTS["N_FOLDS"])


def _detect_names(recipe: Recipe, files: Files, tables: Sequence[str]) -> None:
    """Add the parameters for labels and groups in the names of folders and files."""
    images = [image for image in files.images if files.split_of(image) != "test"]
    paths = pd.Series(images or files.images).map(remove_ending)
    folders = paths.map(os.path.dirname)
    classes = folders.map(files.classes)
    above = folders.map(os.path.dirname).map(files.classes)
    label: str | list[str] = []
    if len(set(classes)) > 1 and (classes != "").mean() > 0.5:
        label = FOLDER
        is_inside = above.groupby(classes).nunique().max() == 1 < len(set(above))
        if is_inside and classes.str.fullmatch(SUBJECT_FOLDER).mean() > 0.9:
            classes = above
            label = f"{NAMES}([^/]+)/[^/]+/[^/]+$"
            recipe.parameters["GROUP_COLUMN"] = FOLDER
        if any(map(is_generic, set(classes) - {""})):
            label = ""  # 01 doubts them
    else:
        classes = paths.str.extract(PREFIX)[0].fillna("")
        words = classes.unique()
        is_few = 1 < len(words) <= len(paths) / 3 and (classes != "").mean() > 0.9
        if is_few and not any(map(CAMERA.fullmatch, words)):
            label = NAMES + PREFIX
        elif tables or any(map(OTHER_TABLE.search, files.others)):
            label = ""
    counts = classes[classes != ""].value_counts().head(9).to_dict()
    recipe.comments.append(f"classes: {counts if label else 'no labels were found'}")
    recipe.parameters["LABELS_CSV"] = "" if label or not tables else tables[0]
    recipe.parameters["LABEL_COLUMN"] = label
    _detect_rule(recipe, paths, classes)


def _detect_rule(recipe: Recipe, paths: pd.Series, classes: pd.Series) -> None:
    """Add the rule by which names are those of groups, unless there are groups."""
    rule = find_rule(paths, classes)
    if rule:
        recipe.parameters.setdefault("GROUP_COLUMN", rule)
