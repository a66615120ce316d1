"""Audit a dataset with the splits that it has: copies, leaks, conflicts and rejects.

The work of 01 and 02, without a recipe. Nothing is written but the folder of the audit;
its subfolder cache/ holds what a second audit need not read again.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import yaml

from kaggle_tfr import deduplicate, explore, notebook, pipeline, storage
from kaggle_tfr.audit_page import (
    format_copies,
    format_json,
    format_markdown,
    format_page,
)
from kaggle_tfr.audit_result import AuditResult, Dataset, judge
from kaggle_tfr.explore.features import UnclearLabelError
from kaggle_tfr.explore.files import list_files
from kaggle_tfr.explore.layout import Recipe, format_recipe, propose_recipe, to_line
from kaggle_tfr.mounts import locate_input, output_dir
from kaggle_tfr.naming import is_shard_name
from kaggle_tfr.parameters import (
    DEFAULTS,
    FOLDERS,
    PARAMETERS,
    Values,
    check_parameters,
)

CACHE = "cache"
RECIPE = "recipe.yaml"  # in the cache: how the input was read
# Of more images, mirrored copies are not searched by default: they take 9 times as
# long as the others, for 200,000 images half a minute.
MOST_MIRRORED = 500_000


def audit_dataset(
    source: str,
    out: str | None = None,
    against: Sequence[str] = (),
    **parameters: Any,
) -> AuditResult:
    """Audit a folder or Kaggle input; write the findings to a folder and return them.

    The folder gets audit.html, audit.md, audit.json and copies.csv.
    out: the folder, by default audit-NAME. against: published parts that may contain
    the same images, as COMPARE_WITH; only their fingerprints are read. parameters:
    those of 01 and 02 that differ from what the layout of the input suggests, such as
    MAX_BITS=20.
    Raises: OSError, ValueError: there is no such input or part, it contains no image,
    or its layout is not clear; FileExistsError: `out` contains something else.
    """
    _check_changes(parameters)
    others = deduplicate.read_datasets(against)
    recipe = _describe_input(source, parameters)
    values = recipe.parameters
    out_dir = output_dir(out or f"audit-{values['NAME']}")
    _prepare_folder(out_dir, recipe)
    values = {**values, "WORK_DIR": f"{out_dir}/{CACHE}", "OUT_DIR": out_dir}
    try:
        work = notebook.start("01_explore", {**DEFAULTS, **values})
        command = _format_command(source, values, parameters, against)
        result = _run(values, work, command, others)
        _write(result)
    finally:
        notebook.end()
    return result


def _check_changes(parameters: Values) -> None:
    """Raise a ValueError unless the parameters are those of 01 and 02."""
    check_parameters(parameters)
    if "COMPARE_WITH" in parameters:
        raise ValueError(
            "An audit takes the parts to compare with as --against, in Python as "
            "`against`, not as COMPARE_WITH."
        )
    for name in parameters:
        numbers = PARAMETERS[name].notebooks
        if name in FOLDERS or ("01" not in numbers and "02" not in numbers):
            raise ValueError(
                f"An audit does not use {name}: it takes the parameters of 01 and 02, "
                "the input as its first argument, and the folder to write as --out."
            )


def _describe_input(source: str, parameters: Values) -> Recipe:
    """Return the recipe for an input, with these parameters."""
    recipe = propose_recipe(source)
    return replace(recipe, parameters={**recipe.parameters, **parameters})


def _prepare_folder(out_dir: str, recipe: Recipe) -> None:
    """Write the recipe to the cache of the audit.

    Raises: FileExistsError: the folder contains another input's audit, or other files.
    """
    path = storage.join(out_dir, CACHE, RECIPE)
    earlier = storage.read_text(path)
    input_dir = recipe.parameters["INPUT_DIR"]
    names = os.listdir(out_dir) if os.path.isdir(out_dir) else []
    content = ""
    if earlier and yaml.safe_load(earlier)["INPUT_DIR"] != input_dir:
        content = "the audit of another input"
    elif not earlier and not {CACHE}.issuperset(names):
        content = "other files"
    if content:
        raise FileExistsError(
            f"'{out_dir}' contains {content}, which would be replaced. "
            "Name another folder with --out."
        )
    text = format_recipe(recipe.parameters, recipe.comments)
    storage.write_atomically(path, text.encode())


def _format_command(
    source: str, values: Values, parameters: Values, against: Sequence[str]
) -> str:
    """Return the command that repeats the audit, without private folders."""
    input_dir = values["INPUT_DIR"]
    name = f"{os.path.basename(input_dir)}/" if os.path.isabs(input_dir) else source
    words = ["kaggle-tfr", "audit", name]
    for part in deduplicate.name_datasets(against).values():
        words += ["--against", part]
    for parameter, value in parameters.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += ["-p", f"{parameter}={text}"]
    return to_line(shlex.join(words))


def _run(values: Values, work: str, command: str, others: pd.DataFrame) -> AuditResult:
    """Do the work of 01 and 02, and return what was found.

    others: of `read_datasets`.
    """
    _explore(values, work)
    images, labels = explore.load_images(work)
    if "MIRRORED" not in values:
        n_images = int((images["problem"] == "").sum())
        values = {**values, "MIRRORED": n_images <= MOST_MIRRORED}
    pairs = pipeline.deduplicate_images({**DEFAULTS, **values}, work)
    clusters, settings = deduplicate.load_clusters(work)

    folder = os.path.abspath(locate_input(values["INPUT_DIR"]))
    unread = _list_unread(folder, images["path"])
    dataset = Dataset(
        name=values["NAME"],
        out_dir=values["OUT_DIR"],
        command=command,
        images=images.assign(file=images["path"].str.removeprefix(f"{folder}/")),
        labels=labels,
        hashes=explore.load_hashes(images, work),
        unread=unread,
        others=others,
    )
    return judge(dataset, pairs, clusters, settings)


def _list_unread(folder: str, paths: pd.Series) -> list[str]:
    """Return the images and shards in a folder that were not read."""
    if storage.is_remote(folder):
        return []
    files = list_files(folder)
    shards = [name for name in files.others if is_shard_name(name)]
    names = {*files.images, *files.masks, *shards}
    read = paths.str.removeprefix(f"{folder}/").str.partition("#")[0]
    return sorted(names.difference(read))


def _explore(values: Values, work: str) -> None:
    """Do the work of 01; shards without a clear label are read without labels."""
    values = {**DEFAULTS, **values}
    try:
        pipeline.explore_images(values, work)
    except UnclearLabelError as error:
        print(f"WARNING: {error}\nThe audit reads the images without labels.")
        pipeline.explore_images({**values, "LABEL_COLUMN": []}, work)


def _write(result: AuditResult) -> None:
    """Write the files of the audit."""
    texts = {
        # First: it makes the folder one that is never taken for an input.
        "audit.json": format_json(result),
        "copies.csv": format_copies(result),
        "audit.md": format_markdown(result),
        "audit.html": format_page(result),
    }
    for name, text in texts.items():
        storage.write_atomically(storage.join(result.out_dir, name), text.encode())
