"""Propose the recipe for a folder from the names of its files and its CSVs.

Names from the data are escaped in it.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import filterfalse
from typing import Any

import pandas as pd

from kaggle_tfr.explore.columns import find_kind, find_labels, sort_columns
from kaggle_tfr.explore.files import Files, is_generic, list_files, list_texts
from kaggle_tfr.explore.groups import find_groups
from kaggle_tfr.explore.inputs import are_shards, read_table
from kaggle_tfr.explore.rows import FOLDER, NAMES, OF_CSV, find_ids, read_csvs
from kaggle_tfr.find import find_input, output_dir, to_slug
from kaggle_tfr.parameters import DEFAULTS, PARAMETERS
from kaggle_tfr.schema import Labels
from kaggle_tfr.storage import write_atomically

USUAL = ("IMAGE_SIZE", "RESIZE", "QUALITY", "N_FOLDS")
TEST_CSV = re.compile(r"(?i)submission|(^|[/_-])test")
OTHER_TABLE = re.compile(r"(?i)\.(csv|tsv|jsonl?|xlsx?|xml|parquet|mat)$")
# Classes in names: "cat" of cat_12.jpg.
PREFIX = r"(?:^|/)([A-Za-z]+(?:[ _-][A-Za-z]+)*)[ ._-]*[0-9][^/]*$"
NO_TEXT = re.compile(r"\\u0000|[\ud800-\udfff]")  # in JSON: NUL, bytes of no UTF-8

Recipe = dict[str, Any]  # parameters by their names
Layout = tuple[Recipe, list[str]]  # and comments on it


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
    """Return the text of a recipe: a line for each comment and for each parameter.

    Raises: ValueError: a value has NUL or bytes that are not UTF-8, which cannot be
    passed to a notebook.
    """
    lines = [f"# {to_line(comment)}" for comment in comments]
    for name, value in values.items():
        # JSON whose strings are printable is YAML, too. `NO_TEXT` finds NUL and bytes
        # that are not UTF-8.
        text = json.dumps(value, ensure_ascii=False)
        if NO_TEXT.search(text):
            raise ValueError(f"{name} cannot be {value!r}, which is not text.")
        setting = f"{name}: {to_line(text)}"
        # The description in the table of parameters, "" for a few of them.
        description = PARAMETERS[name].description or "as in the data"
        lines.append(f"{setting:48} # {description}")
    return "\n".join(lines) + "\n"


def write_recipe(source: str, out: str | None = None) -> tuple[str, list[str]]:
    """Write a commented recipe for a folder or Kaggle slug; return its path, comments.

    out: the path of the recipe, None for NAME.yaml.
    Raises: OSError, of which FileExistsError: `out` exists; and as `propose_recipe`.
    """
    path = out or f"{locate(source)[1]}.yaml"
    if os.path.lexists(path):
        raise FileExistsError(
            f"'{path}' exists, and init replaces nothing. Name another file for the "
            "recipe with -o."
        )
    values, comments = propose_recipe(source)
    write_atomically(path, format_recipe(values, comments))
    return path, list(map(to_line, comments))


def propose_recipe(source: str) -> Layout:
    """Return the recipe for a folder or Kaggle slug, and comments on it.

    The comments contain the doubts, and what notebook 01 would read with this recipe,
    or why it would stop.
    Raises: FileNotFoundError: there are no images; ValueError: a name is not text.
    """
    folder, name, input_dir = locate(source)
    files = list_files(folder)
    found, comments = detect_layout(files)
    values = {
        "NAME": name,
        "INPUT_DIR": input_dir,
        **{parameter: DEFAULTS[parameter] for parameter in USUAL},
        **found,
    }
    # If the labels cannot be read, `[]` reads the images without, for the comments.
    for label_column in (values.get("LABEL_COLUMN", ""), list[str]()):
        try:
            read = {**values, "LABEL_COLUMN": label_column}
            # It adds GROUP_COLUMN, N_FOLDS and comments.
            _add_table(values, comments, *read_table(folder, read, files=files))
            break
        except (ValueError, OSError) as error:
            comments.append(f"01 will stop: {error}")
    return values, list(dict.fromkeys(comments))


def locate(source: str) -> tuple[str, str, str]:
    """Return the absolute folder of an input, and NAME and INPUT_DIR of its recipe.

    source: a folder, a gs:// address or a Kaggle slug.
    """
    folder = output_dir(find_input(source))
    # The absolute path of a folder, or the slug as it is given.
    input_dir = folder if folder == output_dir(source) else source.strip("/")
    return folder, to_slug(os.path.basename(input_dir))[:40] or "images", input_dir


def detect_layout(files: Files) -> Layout:
    """Return the parameters of labels, splits and tests in a folder, and comments.

    The first CSV that names images has the labels. CSVs with the fewest folders in
    their paths come first, then those called train. The first one that is called test
    or submission is TEST_CSV.
    Raises: as `propose_recipe`.
    """
    if are_shards(files):
        return {"INPUT_SCHEMA": "auto"}, []
    names = sorted(
        filter(re.compile(r"(?i)\.(csv|tsv)$").search, files.others),
        key=lambda name: (name.count("/"), "train" not in name.lower(), name),
    )
    tests = list(filter(TEST_CSV.search, names))
    values = _detect_labels(list(filterfalse(TEST_CSV.search, names)), files)
    if tests:
        values["TEST_CSV"] = tests[0]
    used = [*list_texts(values["LABELS_CSV"]), *tests[:1]]
    return values, [f"{name} is not used" for name in names if name not in used]


def _detect_labels(names: Sequence[str], files: Files) -> Recipe:
    """Return the parameters of labels in CSVs; if there are none, in folders.

    names: of CSVs, of which the first 20 are read. The first one that names images is
    used, and with it all that name images and have the same columns.
    """
    images = [image for image in files.images if files.split_of(image) != "test"]
    has_classes = len(set(map(files.class_of, images))) > 1
    labelled = {}
    for name in names[:20]:
        with suppress(ValueError):  # 01 will raise it, too, if the CSV is used
            rows = read_csvs(name, files).filter(regex=OF_CSV)  # its own columns
            column = find_ids(rows, files)  # "" if it does not name images
            # Beside class folders, a CSV of few images does not have the labels.
            is_small = has_classes and len(rows) < len(images) / 10
            if column and not is_small:
                labelled[name] = rows.set_index(column)
    if not labelled:
        return _detect_folders(images, names, files)

    first, *_ = labelled.values()
    used = [name for name in labelled if first.columns.equals(labelled[name].columns)]
    return {"LABELS_CSV": used if len(used) > 1 else used[0], **_detect_columns(first)}


def _detect_columns(rows: pd.DataFrame) -> Recipe:
    """Return the parameters for the columns of a CSV, whose index has the ids.

    LABEL_COLUMN is "", at which 01 stops, if the labels are not clear.
    """
    values: Recipe = {
        "ID_COLUMN": rows.index.name,
        "LABEL_COLUMN": "",
    }
    columns = sort_columns(rows)  # names by what they contain; "code": of masks
    if columns["split"]:
        values["SPLIT_COLUMN"] = columns["split"][0]
    if columns["code"]:
        # Near-duplicates may have different masks, so 02 drops none of them.
        values |= {
            "LABEL_KIND": "masks",
            "KEEP": "all",
            "CONFLICTS": "keep",
        }
    with suppress(ValueError):  # 01 will raise it, too
        labels = find_labels(rows)
        values["LABEL_COLUMN"] = labels if len(labels) > 1 else labels[0]
        if len(labels) == 1 and not columns["code"]:
            values |= find_kind(rows[labels[0]])
    return values


def _detect_folders(
    images: Sequence[str],
    names: Sequence[str],
    files: Files,
) -> Recipe:
    """Return LABELS_CSV and LABEL_COLUMN for classes in folders or names of images.

    LABEL_COLUMN is "folder" for several class folders, "names: REGEX" if the names of
    images begin with classes, [] for images without labels. It is "", for which 01
    stops or notes a doubt, if a class is called like a split or a folder of images, or,
    without classes, if labels may be in a table (CSV, JSON, XLSX …) or behind a link.
    LABELS_CSV is then the first CSV, "" for none; otherwise always "".
    images: without those in test folders. names: of CSVs, none of which has labels.
    """
    classes = set(map(files.class_of, images))
    label_column: str | list[str] = []
    is_unsure = bool(files.outside) or any(map(OTHER_TABLE.search, files.others))
    if len(classes) > 1:
        label_column = FOLDER
        is_unsure = any(map(is_generic, classes))
    elif _have_classes(images):
        label_column = NAMES + PREFIX
        is_unsure = False
    if is_unsure:
        return {"LABELS_CSV": next(iter(names), ""), "LABEL_COLUMN": ""}
    return {"LABELS_CSV": "", "LABEL_COLUMN": label_column}


def _have_classes(images: Sequence[str]) -> bool:
    """Return whether the names of images begin with those of a few classes.

    Each name is a class and a number, as in cat_12.jpg. There are at least two classes,
    each has five images or more, and none is called like a split or a folder of images.
    """
    # Images of each class; those with other names are not counted.
    counts = pd.Series(images, dtype=str).str.extract(PREFIX)[0].value_counts()
    if len(counts) < 2 or counts.sum() < len(images) or counts.min() < 5:
        return False
    return not any(map(is_generic, counts.index))


def _add_table(
    values: Recipe,
    comments: list[str],
    images: pd.DataFrame,
    labels: Labels,
) -> None:
    """Add GROUP_COLUMN and N_FOLDS to a recipe, and comments on what 01 reads.

    values, comments: changed in place. images, labels: of `read_table`.
    """
    good = images[images["problem"] == ""].drop_duplicates("path")
    if group_column := find_groups(good):
        values["GROUP_COLUMN"] = group_column
    if set(images["split"]) - {"train", "test"}:
        values["N_FOLDS"] = 0
        comments.append("N_FOLDS is 0, because validation images are given")
    # Problems without their details, which follow a colon.
    problems = images["problem"].str.split(":").str[0].replace("", "good")
    counts = images.groupby(["split", problems]).size().to_dict()
    names = good["label_name"].replace("", None).value_counts()
    listed = f"{len(names):,} labels ({labels.kind}): {names.head(9).to_dict()}"
    comments += [
        f"{len(images):,} images: {counts}",
        "no labels" if names.empty else listed,
    ]
