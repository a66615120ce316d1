"""Propose the recipe for a folder from the names of its files and its CSVs.

Names from the data are escaped in it.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from kaggle_tfr.explore import csvs
from kaggle_tfr.explore.checks import name_reasons
from kaggle_tfr.explore.columns import find_kind, find_labels, sort_columns
from kaggle_tfr.explore.files import Files, check_images, is_generic, list_files
from kaggle_tfr.explore.groups import add_groups, find_groups
from kaggle_tfr.explore.inputs import are_shards, limit_rows, read_table
from kaggle_tfr.explore.names import join_names, remove_ending
from kaggle_tfr.explore.rows import FOLDER, NAMES
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.find import find_input, output_dir, to_slug
from kaggle_tfr.naming import SPLIT_NAMES
from kaggle_tfr.parameters import DEFAULTS, PARAMETERS, check_parameters, make_settings
from kaggle_tfr.storage import write_atomically

ROWS = 2_000  # of a CSV, which are inspected
MOST_CSVS = 20
USUAL = ("IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS")
# The words that begin a name, before its number: cat.17, Great_Dane_3.
PREFIX = r"(?:^|/)([A-Za-z]+(?:[ _-][A-Za-z]+)*)[ ._-]*[0-9][^/]*$"
CAMERA = re.compile(
    r"(?i)(img|image|pict?|picture|photo|foto|dsc[nf]?|mvi|pxl|gopr|p|wp|sam|scan|file"
    r"|frame|screenshot|train|test|val|isic)([ _-].*)?"
)
TEST_CSV = re.compile(r"(?i)submission|(^|[/_-])test")
OTHER_TABLE = re.compile(r"(?i)\.(jsonl?|xlsx?|xml|parquet|mat)$")


@dataclass
class Recipe:
    """The files of a folder, parameters, and comments on what they follow from."""

    files: Files
    parameters: dict[str, Any] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)


def to_line(text: str) -> str:
    r"""Return the text as one line of printable characters; others are escaped.

    YAML reads these escapes in double quotes.

    >>> print(to_line("a\nOVERWRITE: true"))
    a\nOVERWRITE: true
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )


def format_recipe(values: Mapping[str, Any], comments: Sequence[str]) -> str:
    """Return the text of a recipe: a line for each comment and for each parameter."""
    lines = [f"# {to_line(comment)}" for comment in comments]
    for name, value in values.items():
        # JSON whose strings are printable is YAML, too.
        setting = f"{name}: {to_line(json.dumps(value, ensure_ascii=False))}"
        description = PARAMETERS[name].description or "as in the data"
        lines.append(f"{setting:48} # {description}")
    return "\n".join(lines) + "\n"


def write_recipe(source: str, out: str | None = None) -> tuple[str, list[str]]:
    """Write a commented recipe for a folder or Kaggle slug; return its path, comments.

    out: None for NAME.yaml.
    Raises: OSError, of which FileExistsError: `out` exists; and as `propose_recipe`.
    """
    path = out or f"{locate(source)[1]}.yaml"
    if os.path.lexists(path):
        raise FileExistsError(
            f"'{path}' exists, and init replaces nothing. Name another file for the "
            "recipe with -o."
        )
    recipe = propose_recipe(source)
    text = format_recipe(recipe.parameters, recipe.comments)
    write_atomically(path, text.encode())
    return path, list(map(to_line, recipe.comments))


def propose_recipe(source: str) -> Recipe:
    """Return the recipe for a folder or Kaggle slug.

    The comments tell the doubts, and what 01 would read.
    Raises: FileNotFoundError: there are no images; ValueError: a name is not text.
    """
    folder, name, input_dir = locate(source)
    recipe = detect_layout(folder)
    _add_table(recipe)
    defaults = {parameter: DEFAULTS[parameter] for parameter in USUAL}
    names = {"NAME": name, "INPUT_DIR": input_dir}
    recipe.parameters = {**names, **defaults, **recipe.parameters}
    check_parameters(recipe.parameters)
    return recipe


def locate(source: str) -> tuple[str, str, str]:
    """Return the folder of an input, and NAME and INPUT_DIR of its recipe."""
    folder = find_input(source)
    input_dir = folder
    if "://" not in folder:
        folder = os.path.abspath(folder)
        # A path, or the slug as it is given.
        input_dir = folder if folder == output_dir(source) else source.strip("/")
    name = to_slug(os.path.basename(input_dir))[:40]
    return folder, name or "images", input_dir


def detect_layout(folder: str) -> Recipe:
    """Return the parameters of labels, splits and tests in a folder, and comments.

    Raises: as `propose_recipe`.
    """
    files = list_files(folder)
    recipe = Recipe(files)
    if are_shards(files, InputSettings(input_dir=folder)):
        recipe.parameters["INPUT_SCHEMA"] = "auto"
        return recipe
    check_images(files)
    names = sorted(
        filter(csvs.TABLE_NAME.search, files.others),
        key=lambda name: (name.count("/"), "train" not in name.lower(), name),
    )
    tables = _read_tables(names[:MOST_CSVS], recipe)
    tests = list(filter(TEST_CSV.search, tables))
    used = []
    if len(tables) > len(tests):
        used = _detect_csv(recipe, tables)
    else:
        _detect_names(recipe, names)
    tests = [name for name in tests if name not in used]
    if tests:
        recipe.parameters["TEST_CSV"] = tests[0]
    unused = set(names).difference(used, tests[:1])
    recipe.comments += [f"{name} is not used" for name in sorted(unused)]
    return recipe


def _read_tables(names: Sequence[str], recipe: Recipe) -> dict[str, pd.DataFrame]:
    """Return some rows of the CSVs whose ids name images.

    Their index has the positions of the images, with the column of the ids as its name.
    """
    files = recipe.files
    tables = {}
    for name in names:
        try:
            rows = csvs.read_csvs(name, files, files.folder, "CSV")
            step = max(1, len(rows) // ROWS)
            rows = rows.iloc[::step].filter(regex="^[^/]")
            of_masks = "code" in sort_columns(rows)
            column, _ = csvs.find_ids(rows, files, of_masks=of_masks)
        except ValueError as error:
            recipe.comments.append(f"not sure: {error}")
            continue
        if column:
            images = join_names(rows.pop(column), files.names)
            tables[name] = rows.set_axis(pd.Index(images, name=column))
    return tables


def _detect_csv(recipe: Recipe, tables: dict[str, pd.DataFrame]) -> list[str]:
    """Add the parameters for the CSV of most images, and for those like it, of other
    splits; return their names.
    """
    values = recipe.parameters
    n_images = {
        name: rows.index.nunique() * (1 + ("label" in sort_columns(rows)))
        for name, rows in tables.items()
        if not TEST_CSV.search(name)
    }
    chosen = max(n_images, key=lambda name: n_images[name])
    rows = tables[chosen]
    used = [
        name
        for name, other in tables.items()
        if other.columns.equals(rows.columns) and csvs.find_split(name, recipe.files)
    ]
    if chosen not in used:
        used = [chosen]
    values["LABELS_CSV"] = used if len(used) > 1 else chosen
    values["ID_COLUMN"] = rows.index.name
    columns = sort_columns(rows)
    if columns["split"]:
        values["SPLIT_COLUMN"] = columns["split"][0]
    values["LABEL_COLUMN"] = ""
    with suppress(ValueError):  # 01 will raise it, too
        labels = find_labels(rows)
        values["LABEL_COLUMN"] = labels if len(labels) > 1 else labels[0]
        if len(labels) == 1 and not columns["code"]:
            values.update(find_kind(rows[labels[0]]))
    if columns["code"]:
        values.update(LABEL_KIND="masks", KEEP="all", CONFLICTS="keep")
    return used


def _detect_names(recipe: Recipe, tables: Sequence[str]) -> None:
    """Add the parameters for labels in the names of folders and files."""
    files = recipe.files
    images = [image for image in files.images if files.split_of(image) != "test"]
    paths = pd.Series(images or files.images).map(remove_ending)
    classes = paths.map(files.class_of)
    label: str | list[str] = []
    if len(set(classes)) > 1 and (classes != "").mean() > 0.5:
        label = FOLDER
        if any(map(is_generic, set(classes) - {""})):
            label = ""  # 01 doubts them
    else:
        words = paths.str.extract(PREFIX)[0].dropna()
        is_few = 1 < words.nunique() <= len(paths) / 3 and len(words) > 0.9 * len(paths)
        if is_few and not any(map(CAMERA.fullmatch, words.unique())):
            label = NAMES + PREFIX
        elif tables or any(map(OTHER_TABLE.search, files.others)):
            label = ""
    recipe.parameters["LABELS_CSV"] = "" if label or not tables else tables[0]
    recipe.parameters["LABEL_COLUMN"] = label


def _add_table(recipe: Recipe) -> None:
    """Add groups, and comments on what 01 would read, or on why it stops."""
    values = recipe.parameters
    settings = make_settings(InputSettings, values)
    for label_column in (settings.label_column, []):  # without labels, if they fail
        settings = replace(settings, label_column=label_column)
        try:
            images, labels = read_table(
                recipe.files.folder, settings, files=recipe.files
            )
            break
        except (ValueError, OSError) as error:
            stop = f"01 will stop: {error}"
            if stop not in recipe.comments:
                recipe.comments.append(stop)
    else:
        return
    good = images[images["problem"] == ""]
    if group_column := find_groups(good):
        values["GROUP_COLUMN"] = group_column
        groups = add_groups(good, group_column)[group_column].replace("", None)
        values["N_FOLDS"] = min(groups.nunique(), DEFAULTS["N_FOLDS"])
    if "validation" in set(images["split"].map(SPLIT_NAMES)):
        values["N_FOLDS"] = 0
        recipe.comments.append("N_FOLDS is 0, because validation images are given")
    problems = name_reasons(images["problem"]).replace("", "good")
    counts = images.groupby(["split", problems]).size().to_dict()
    classes = good["label_name"].replace("", None).value_counts()
    shown = f"{len(classes):,} classes ({labels.kind}): {classes.head(9).to_dict()}"
    recipe.comments += [
        f"{len(images):,} images: {counts}",
        shown if len(classes) else "no labels",
    ]
    for row in limit_rows(good, 3).to_dict("records"):
        line = "{image_id}: {label_name}, {split}, {path}".format_map(row)
        recipe.comments.append(line.replace(f"{recipe.files.folder}/", ""))
