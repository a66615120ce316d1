"""Audit a dataset with the splits that it has: copies, leaks, conflicts and rejects.

The work of 01 and 02, without a recipe. Nothing is written but the folder of the audit;
its subfolder cache/ holds what a second audit need not read again. A copy is a pair of
images that 02 accepts.
"""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import yaml

from kaggle_tfr import deduplicate, explore, notebook, storage
from kaggle_tfr.explore.checks import name_reasons
from kaggle_tfr.explore.features import UnclearLabelError
from kaggle_tfr.explore.files import list_files
from kaggle_tfr.explore.layout import Recipe, format_recipe, propose_recipe, to_line
from kaggle_tfr.mounts import find_input, output_dir
from kaggle_tfr.naming import is_shard_name
from kaggle_tfr.notebook import MARKS, Finding
from kaggle_tfr.parameters import DEFAULTS, Values, check_parameters, select_parameters
from kaggle_tfr.report import make_gallery, write_page
from kaggle_tfr.schema import Labels
from kaggle_tfr.tables import escape_markdown, format_csv
from kaggle_tfr.version import __version__

CACHE = "cache"
# What `audit_dataset` takes by other names.
ARGUMENTS = ("WORK_DIR", "INPUT_DIR", "OUT_DIR", "FOLDS_FROM", "COMPARE_WITH")
RECIPE = "recipe.yaml"  # in the cache: how the input was read
# Of more images, mirrored copies are not searched by default: they take 9 times as
# long as the others, for 200,000 images half a minute.
MOST_MIRRORED = 500_000
# The columns of copies.csv, and those of an image in another dataset.
COLUMNS = [
    "file_a",
    "split_a",
    "label_name_a",
    "file_b",
    "split_b",
    "label_name_b",
    "distance",
    "match",
    "conflict",
    "dataset_b",
]
OVERLAP = {
    "row": "a",
    "distance": "distance",
    "orientation": "orientation",
    "image_id_a": "file_b",
    "split_a": "split_b",
    "label_name_a": "label_name_b",
    "digest_a": "digest_b",
    "dataset": "dataset_b",
}
ICONS = {"✗": "❌", "!": "❌", "·": "ℹ️", "✓": "✅"}  # in an issue on GitHub


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    headline: the result in a line. findings: of 01 and 02, the most serious first.
    copies: the rows of copies.csv. counts: of audit.json. out_dir: has the files.
    """

    headline: str
    findings: Sequence[Finding]
    copies: pd.DataFrame
    counts: dict[str, Any]
    out_dir: str

    @property
    def found(self) -> bool:
        """Return whether there is a copy, here or in another dataset, or a reject."""
        return bool(len(self.copies) or self.counts["rejected"])


def audit_dataset(
    source: str,
    out: str | None = None,
    against: Sequence[str] = (),
    **parameters: Any,
) -> Audit:
    """Audit a folder or Kaggle input; write the findings to a folder and return them.

    The folder gets audit.html, audit.md, audit.json and copies.csv.
    out: the folder, by default audit-NAME. against: COMPARE_WITH, published parts that
    may contain the same images. parameters: those of 01 and 02 that differ from what
    the layout of the input suggests, such as MAX_BITS=20.
    Raises: OSError, ValueError: there is no such input or part, it contains no image,
    or its layout is not clear; FileExistsError: `out` contains something else.
    """
    _check_changes(parameters)
    deduplicate.read_datasets(against)  # before any work
    recipe = propose_recipe(source)
    recipe = replace(recipe, parameters={**recipe.parameters, **parameters})
    values = {**recipe.parameters, "COMPARE_WITH": list(against)}
    out_dir = output_dir(out or f"audit-{values['NAME']}")
    _prepare_folder(out_dir, recipe)
    values |= {"WORK_DIR": f"{out_dir}/{CACHE}", "OUT_DIR": out_dir}
    try:
        work = notebook.start("01_explore", {**DEFAULTS, **values})
        audit = _run(values, work)
    finally:
        notebook.end()
    command = _format_command(source, values, parameters, against)
    _write(audit, values["NAME"], command)
    return audit


def _check_changes(parameters: Values) -> None:
    """Raise a ValueError unless the parameters are those of 01 and 02."""
    check_parameters(parameters)
    known = select_parameters("01") | select_parameters("02")
    for name in parameters:
        if name in ARGUMENTS or name not in known:
            raise ValueError(
                f"An audit does not use {name}: it takes the parameters of 01 and 02, "
                "the input as its first argument, the folder to write as --out, and "
                "COMPARE_WITH as --against, in Python as `against`."
            )


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
    for part in against:
        words += ["--against", deduplicate.name_dataset(part)]
    for parameter, value in parameters.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += ["-p", f"{parameter}={text}"]
    return to_line(shlex.join(words))


def _run(values: Values, work: str) -> Audit:
    """Do the work of 01 and 02, and return what was found."""
    _explore(values)
    images, labels = explore.load_images(work)
    if "MIRRORED" not in values:
        n_images = int((images["problem"] == "").sum())
        values = {**values, "MIRRORED": n_images <= MOST_MIRRORED}
    # Nothing is dropped, so that each copy is a remark.
    values = {**DEFAULTS, "KEEP": "all", "CONFLICTS": "keep", **values}
    found = deduplicate.run(values)
    _, settings = deduplicate.load_clusters(work)

    folder = os.path.abspath(find_input(values["INPUT_DIR"]))
    images["file"] = images["path"].str.removeprefix(f"{folder}/")
    copies = _list_copies(images, found)
    counts = _count(images, found)
    counts["conflicting_pairs"] = int(copies["conflict"].sum())
    _note_unread(folder, images["path"])
    _note_limits(settings, labels)

    headline = _format_headline(counts, settings)
    findings = list(map(_adapt, notebook.read_findings(work)))
    findings.sort(key=lambda finding: MARKS.index(finding.mark))
    write_page(
        storage.join(values["OUT_DIR"], "audit.html"),
        f"Audit of {values['NAME']}",
        headline,
        findings,
        make_gallery(
            images,
            found.clusters,
            labels,
            None,
            settings.max_bits,
        ),
    )
    return Audit(headline, findings, copies, counts, values["OUT_DIR"])


def _adapt(finding: Finding) -> Finding:
    """Return a finding without advice on the next steps; what is found is a remark."""
    is_found = finding.mark == "·" and finding.subject in ("input", "copies")
    return replace(finding, advice="", mark="!" if is_found else finding.mark)


def _explore(values: Values) -> None:
    """Do the work of 01; shards without a clear label are read without labels."""
    values = {**DEFAULTS, **values}
    try:
        explore.run(values)
    except UnclearLabelError as error:
        explore.run({**values, "LABEL_COLUMN": []})
        notebook.note("!", f"No labels were read: {error}", "labels: unclear")


def _list_copies(images: pd.DataFrame, found: deduplicate.Found) -> pd.DataFrame:
    """Return the rows of copies.csv: in two splits, in one split, in other datasets.

    match: "file" for equal files, "hash" within MAX_BITS, "mirrored" within four fifths
    of it in another orientation, "details" if the second look confirmed the pair.
    """
    facts = images[["file", "split", "label_name", "digest"]]
    pairs = found.pairs[found.pairs["accepted"]]
    rank_a = deduplicate.rank_splits(pairs["split_a"])
    rank_b = deduplicate.rank_splits(pairs["split_b"])
    is_swapped = rank_a > rank_b
    here = pd.DataFrame(
        {
            "a": pairs["a"].mask(is_swapped, pairs["b"]),
            "b": pairs["b"].mask(is_swapped, pairs["a"]),
            "distance": pairs["bits"],
            "verdict": pairs["verdict"],
            "orientation": pairs["orientation"],
            "is_within": rank_a == rank_b,
            "dataset_b": "",
        }
    )
    here = here.sort_values(["is_within", "a", "distance", "b"])
    here = here.join(facts.add_suffix("_b"), on="b")
    elsewhere = found.overlap[[*OVERLAP]].rename(columns=OVERLAP)
    table = pd.concat([here, elsewhere], ignore_index=True)
    table = table.join(facts.add_suffix("_a"), on="a")
    matches = {
        "file": table["digest_a"] == table["digest_b"],
        "details": table["verdict"] == "geometry",
        "mirrored": table["orientation"] != 1,
    }
    table["match"] = np.select([*matches.values()], [*matches], "hash")
    # Another dataset may have other names for the same classes.
    has_labels = (table["label_name_a"] != "") & (table["label_name_b"] != "")
    is_different = table["label_name_a"] != table["label_name_b"]
    table["conflict"] = has_labels & is_different & (table["dataset_b"] == "")
    return table[COLUMNS]


def _count(images: pd.DataFrame, found: deduplicate.Found) -> dict[str, Any]:
    """Return the counts of audit.json."""
    good = images[images["problem"] == ""]
    reasons = name_reasons(images["problem"].drop(good.index))
    clusters = found.clusters
    by_cluster = clusters.groupby("cluster")["split"]
    return {
        "images": len(good),
        "rejected": len(images) - len(good),
        "reasons": reasons.value_counts().to_dict(),
        "splits": good["split"].value_counts().to_dict(),
        "copied_images": int((by_cluster.transform("size") > 1).sum()),
        "leaking_images": int((by_cluster.transform("nunique") > 1).sum()),
        "leaks": deduplicate.count_leaks(found.leaks).to_dict("records"),
        "images_in_other_datasets": found.overlap["row"].nunique(),
    }


def _note_unread(folder: str, paths: pd.Series) -> None:
    """Note the images and shards in a folder that were not read."""
    if storage.is_remote(folder):
        return
    files = list_files(folder, ["*"])  # masks, too
    shards = [name for name in files.others if is_shard_name(name)]
    names = {*files.images, *shards}
    unread = names.difference(
        paths.str.removeprefix(f"{folder}/").str.partition("#")[0]
    )
    if unread:
        notebook.note(
            "!",
            f"Images, masks and shards that were not read: {len(unread):,}, such as "
            f"'{to_line(min(unread))}'.",
            "input: not read",
            "Set PATTERN or LABELS_CSV if they belong to the dataset.",
        )


def _note_limits(settings: deduplicate.DuplicateSettings, labels: Labels) -> None:
    """Note what was not searched."""
    missed = ["copies rotated by other than right angles", "most smaller crops"]
    if not settings.mirrored:
        missed.append("mirrored and rotated copies")
    if not settings.second_look:
        missed.append("crops, and copies with borders or other colours")
    if not labels.classes:
        missed.append("conflicts of labels, of which none were read")
    text = f"Not searched: {', '.join(missed)}, and images that only mean the same."
    notebook.note("·", text, "copies: limits")


def _format_headline(
    counts: dict[str, Any], settings: deduplicate.DuplicateSettings
) -> str:
    """Return the result, such as "0 of 7,774 images leak at 25 bits."."""
    n_copied = counts["leaking_images"]
    verb = "leak"
    if len(counts["splits"]) == 1:
        n_copied = counts["copied_images"]
        verb = "have a copy"
    text = f"{n_copied:,} of {counts['images']:,} images {verb}"
    text += f" at {settings.max_bits} bits"
    if settings.second_look:
        text += " or by details"
    n_others = counts["images_in_other_datasets"]
    if n_others:
        text += f"; {n_others:,} are also in other datasets"
    return f"{text}."


def _write(audit: Audit, name: str, command: str) -> None:
    """Write the files of the audit beside its page."""
    content = {
        "name": name,
        "headline": audit.headline,
        "found": audit.found,
        "version": __version__,
        "command": command,
        "counts": audit.counts,
        "findings": [asdict(finding) for finding in audit.findings],
    }
    lines = [
        f"- {ICONS[finding.mark]} {escape_markdown(str(finding)[2:])}"
        for finding in audit.findings
    ]
    pieces = [
        f"## Audit of {escape_markdown(name)}",
        f"**{audit.headline}**",
        "\n".join(lines),
        "copies.csv lists the pairs.",
        f"kaggle-tfr {__version__}:\n\n    {command}\n",
    ]
    # Readers take a carriage return for the end of a line.
    copies = audit.copies.replace("\r", r"\\r", regex=True)
    texts = {
        "audit.json": json.dumps(content, ensure_ascii=False, indent=1) + "\n",
        "copies.csv": format_csv(copies),
        "audit.md": "\n\n".join(pieces),
    }
    for file, text in texts.items():
        storage.write_atomically(storage.join(audit.out_dir, file), text.encode())
