"""Audit a dataset with the splits that it has: copies, leaks, conflicts and rejects.

The work of 01 and 02, without a recipe. Nothing is written but the folder of the audit;
its subfolder cache/ holds what a second audit need not read again. A copy is a pair of
images that 02 accepts.
"""

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from kaggle_tfr import deduplicate, explore, notebook, storage
from kaggle_tfr.explore.layout import propose_recipe
from kaggle_tfr.find import output_dir
from kaggle_tfr.parameters import DEFAULTS, Values, check_parameters
from kaggle_tfr.report import load_gallery, write_page

# Nothing is dropped, so that each copy is found.
RULES = {"KEEP": "all", "CONFLICTS": "keep", "MIRRORED": True}
# Columns of `Found.overlap` as in `Found.pairs`.
OVERLAP = {
    "image_id": "image_id_a",
    "split": "split_a",
    "label_name": "label_name_a",
    "image_id_a": "image_id_b",
    "split_a": "split_b",
    "label_name_a": "label_name_b",
    "distance": "bits",
}


class Audit(NamedTuple):
    """What an audit found.

    findings: of 01 and 02, the most serious first. copies: the rows of copies.csv.
    counts: of audit.json. out_dir: has the files.
    """

    findings: list[notebook.Finding]
    copies: pd.DataFrame
    counts: dict[str, int]
    out_dir: str

    @property
    def headline(self) -> str:
        """The result in one sentence, with numbers of `counts`."""
        return (
            "{leaking_images:,} of {images:,} images have a copy in another split, "
            "{copied_images:,} have any copy, {images_in_other_datasets:,} are in "
            "other datasets."
        ).format(**self.counts)


def audit_dataset(
    source: str,
    out: str | None = None,
    against: Sequence[str] = (),
    **parameters: Any,
) -> Audit:
    """Audit a folder or Kaggle input; write the findings to a folder and return them.

    The folder gets audit.html, audit.json and copies.csv.
    out: the folder, by default audit-NAME. against: published parts, as folders or
    slugs, whose images are compared by their published hashes. parameters: those of 01
    and 02 that differ from what the layout of the input suggests, such as MAX_BITS=20.
    Raises: OSError, ValueError: there is no such input or part, it contains no image,
    or its layout is not clear; FileExistsError: `out` contains something else.
    """
    check_parameters(parameters)
    # The proposed recipe is the first item; comments follow it. RULES make 02 drop no
    # image, so that each copy is found.
    values = {**DEFAULTS, **RULES, **propose_recipe(source)[0], **parameters}
    out_dir = output_dir(out or f"audit-{values['NAME']}")
    work = f"{out_dir}/cache"
    # A folder with cache/ is that of an earlier audit, which is replaced.
    if os.path.isdir(out_dir) and not os.path.isdir(work):
        raise FileExistsError(
            f"'{out_dir}' exists, and its files may be replaced. Name another folder "
            "with --out."
        )
    values |= {"WORK_DIR": work, "OUT_DIR": out_dir}
    if against:
        values["COMPARE_WITH"] = list(against)
    found = _run(values)
    audit = Audit(
        notebook.read_findings(work), _list_copies(found), _count(found), out_dir
    )
    _write(audit, title=f"Audit of {values['NAME']}", gallery=load_gallery(work))
    return audit


def _run(values: Values) -> deduplicate.Found:
    """Do the work of 01 and 02, which note findings in WORK_DIR; return the result."""
    try:
        notebook.start("01_explore", values)
        explore.run(values)
        return deduplicate.run(values)
    finally:
        notebook.end()  # releases the lock of WORK_DIR


def _list_copies(found: deduplicate.Found) -> pd.DataFrame:
    """Return the rows of copies.csv: pairs of images, then those with other datasets.

    Columns: image_id, split and label_name of both images (…_a, …_b); bits; orientation
    (EXIF), which rotates b as a is; verdict: what decided; dataset: of b, "" for the
    audited one.
    """
    pairs = found.pairs[found.pairs["accepted"]].assign(dataset="")
    # In `overlap` the image of the other dataset has the columns with "_a": it becomes
    # the second one, "_b". Its pixels are not here, so only hashes have decided.
    overlap = found.overlap.rename(columns=OVERLAP).assign(verdict="hash")
    # "inner" keeps the columns that both have; a and b are row numbers.
    return pd.concat([pairs, overlap], join="inner").drop(columns=["a", "b"])


def _count(found: deduplicate.Found) -> dict[str, int]:
    """Return the counts of audit.json, each a number of images.

    copied: with another image in the cluster. leaking: in a cluster with two splits.
    """
    n_rejected = found.counts.get("rejected", 0)
    split = found.clusters.groupby("cluster")["split"]
    return {
        "images": len(found.images) - n_rejected,
        "rejected": n_rejected,
        "copied_images": int((split.transform("size") > 1).sum()),
        "leaking_images": int((split.transform("nunique") > 1).sum()),
        # An image has a row for each dataset that contains it.
        "images_in_other_datasets": found.overlap["row"].nunique(),
    }


def _write(audit: Audit, **sections: Any) -> None:
    """Write audit.html, audit.json and copies.csv.

    sections: more values for `write_page`: title and gallery.
    """
    write_page(
        f"{audit.out_dir}/audit.html",
        headline=audit.headline,
        findings=audit.findings,
        **sections,
    )
    content = {
        "headline": audit.headline,
        "counts": audit.counts,
        "findings": [finding._asdict() for finding in audit.findings],
    }
    storage.write_atomically(
        f"{audit.out_dir}/audit.json",
        json.dumps(content, ensure_ascii=False, indent=1),
    )
    storage.write_atomically(
        f"{audit.out_dir}/copies.csv", storage.format_csv(audit.copies)
    )
