"""Audit a dataset with the splits that it has: copies, leaks, conflicts and rejects.

The work of 01 and 02, without a recipe. Nothing is written but the folder of the audit;
its subfolder cache/ holds what a second audit need not read again. A copy is a pair of
images that 02 accepts.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from kaggle_tfr import deduplicate, explore, notebook, storage
from kaggle_tfr.explore.layout import propose_recipe
from kaggle_tfr.find import find_input, output_dir
from kaggle_tfr.notebook import Finding
from kaggle_tfr.parameters import DEFAULTS, Values, check_parameters
from kaggle_tfr.report import make_gallery, write_page
from kaggle_tfr.schema import Labels
from kaggle_tfr.version import __version__
from kaggle_tfr.write.metadata import escape_markdown

# Nothing is dropped, so that each copy is found.
RULES = {"KEEP": "all", "CONFLICTS": "keep", "MIRRORED": True}
# The columns of copies.csv, as in `Found.pairs`; and those of `Found.overlap` for them.
COLUMNS = [
    "path_a",
    "split_a",
    "label_name_a",
    "path_b",
    "split_b",
    "label_name_b",
    "bits",
    "orientation",
    "verdict",
    "conflict",
    "dataset",
]
OVERLAP = {
    "path": "path_a",
    "split": "split_a",
    "label_name": "label_name_a",
    "image_id_a": "path_b",
    "split_a": "split_b",
    "label_name_a": "label_name_b",
    "distance": "bits",
}


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
    check_parameters(parameters)
    values = {**DEFAULTS, **RULES, **propose_recipe(source)[0], **parameters}
    out_dir = output_dir(out or f"audit-{values['NAME']}")
    work = _choose_work_dir(out_dir)
    values |= {"WORK_DIR": work, "OUT_DIR": out_dir, "COMPARE_WITH": list(against)}
    labels, found = _run(values)
    copies = _list_copies(found, os.path.abspath(find_input(values["INPUT_DIR"])))
    counts = _count(found, copies)
    _, settings = deduplicate.load_clusters(work)
    headline = _format_headline(counts, settings)
    findings = [
        replace(finding, advice="")  # on the next steps
        for finding in notebook.read_findings(work)
    ]
    gallery = make_gallery(found.images, found.clusters, labels, None)
    title = f"Audit of {values['NAME']}"
    write_page(f"{out_dir}/audit.html", title, headline, findings, gallery)
    audit = Audit(headline, findings, copies, counts, out_dir)
    _write_texts(audit, title)
    return audit


def _choose_work_dir(out_dir: str) -> str:
    """Return the folder for what a second audit need not read again.

    Raises: FileExistsError: `out_dir` contains files that are not of an audit.
    """
    names = os.listdir(out_dir) if os.path.isdir(out_dir) else []
    if names and "cache" not in names:
        raise FileExistsError(
            f"'{out_dir}' contains other files, which may be replaced. Name another "
            "folder with --out."
        )
    return os.path.join(out_dir, "cache")


def _run(values: Values) -> tuple[Labels, deduplicate.Found]:
    """Do the work of 01 and 02."""
    try:
        notebook.start("01_explore", values)
        _, labels = explore.run(values)
        return labels, deduplicate.run(values)
    finally:
        notebook.end()


def _list_copies(found: deduplicate.Found, folder: str) -> pd.DataFrame:
    """Return the rows of copies.csv: pairs of images, then those of other datasets.

    folder: of the input; the paths below it are listed.
    """
    pairs = found.pairs[found.pairs["accepted"]].assign(dataset="")
    overlap = found.overlap.rename(columns=OVERLAP).assign(verdict="hash")
    copies = pd.concat([pairs, overlap], ignore_index=True)
    for path in ("path_a", "path_b"):
        copies[path] = copies[path].str.removeprefix(f"{folder}/")
    # Another dataset may have other names for the same classes.
    label = copies["label_name_a"]
    other_label = copies["label_name_b"]
    has_labels = (label != "") & (other_label != "") & (copies["dataset"] == "")
    return copies.assign(conflict=has_labels & (label != other_label))[COLUMNS]


def _count(found: deduplicate.Found, copies: pd.DataFrame) -> dict[str, Any]:
    """Return the counts of audit.json."""
    good = found.images[found.images["problem"] == ""]
    split = found.clusters.groupby("cluster")["split"]
    return {
        "images": len(good),
        "rejected": len(found.images) - len(good),
        "splits": good["split"].value_counts().to_dict(),
        "copied_images": int((split.transform("size") > 1).sum()),
        "leaking_images": int((split.transform("nunique") > 1).sum()),
        "leaks": deduplicate.count_leaks(found.leaks).to_dict("records"),
        "conflicting_pairs": int(copies["conflict"].sum()),
        "images_in_other_datasets": found.overlap["row"].nunique(),
    }


def _format_headline(
    counts: dict[str, Any], settings: deduplicate.DuplicateSettings
) -> str:
    """Return the result, such as "0 of 7,774 images leak at 25 bits."."""
    text = f"{counts['leaking_images']:,} of {counts['images']:,} images leak"
    if len(counts["splits"]) == 1:
        text = f"{counts['copied_images']:,} of {counts['images']:,} images have a copy"
    text += f" at {settings.max_bits} bits"
    if settings.second_look:
        text += " or by details"
    if counts["images_in_other_datasets"]:
        text += f"; {counts['images_in_other_datasets']:,} are also in other datasets"
    return f"{text}."


def _write_texts(audit: Audit, title: str) -> None:
    """Write the files of the audit beside its page."""
    content = {
        "headline": audit.headline,
        "version": __version__,
        "counts": audit.counts,
        "findings": list(map(vars, audit.findings)),
    }
    lines = [f"- {escape_markdown(str(finding))}" for finding in audit.findings]
    texts = {
        "audit.json": json.dumps(content, ensure_ascii=False, indent=1),
        "copies.csv": storage.format_csv(audit.copies),
        "audit.md": "\n".join(
            [
                f"## {escape_markdown(title)}",
                "",
                f"**{audit.headline}**",
                "",
                *lines,
                "",
            ]
        ),
    }
    for name, text in texts.items():
        storage.write_atomically(f"{audit.out_dir}/{name}", text.encode())
