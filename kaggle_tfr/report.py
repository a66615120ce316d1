"""report.html: whether a run can be trained on, why, and its clusters, on one page.

The executed notebooks are its chapters. All pages work without network.
"""

import csv
import os
import re
import time
from base64 import b64encode
from collections.abc import Collection, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from PIL import Image

from kaggle_tfr import parallel, storage
from kaggle_tfr.deduplicate import load_clusters, overrides
from kaggle_tfr.explore import load_images
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.find import output_dir, work_dir
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.notebook import STOP, Finding, count_of, read_findings
from kaggle_tfr.parameters import DEFAULTS, Values
from kaggle_tfr.schema import Labels
from kaggle_tfr.shards import list_own_parts, read_part_table
from kaggle_tfr.version import __version__

FOLDER = Path(__file__).parent  # of the templates and the script
LINK = re.compile(r'<a href="[\w./]+\.ipynb">(.*?)</a>')  # to another notebook
MAX_IMAGES = 600  # less than 3 MB of thumbnails
MAX_OF_CLUSTER = 24
MAX_CLASSES = 1000  # whose names are proposed as labels
SIDE = 160  # pixels of a thumbnail
# Clusters with two labels are first, then those in two splits, then the farthest; in a
# cluster the kept images are first, and of these the one that the others are copies of.
ORDER = ["is_conflict", "is_leak", "farthest", "cluster", "keep", "distance"]


def decide(findings: Sequence[Finding]) -> str:
    """Return whether the records can be trained on and published, and why not.

    findings: the most serious first, as `read_findings` returns them.
    """
    subjects = {finding.subject: finding for finding in reversed(findings)}
    license_finding = subjects.pop("license", None)
    if STOP in subjects:
        return subjects[STOP].text
    for finding in subjects.values():
        if finding.mark == "✗":
            return f"Train: no. {finding.text}"
    if "parts" not in subjects:
        return "Train: not yet, 04_write has not run on this plan."

    n_remarks = [finding.mark for finding in findings].count("!")
    remarks = f", with {count_of(n_remarks, 'remark')}" if n_remarks else ""
    headline = f"Train: yes{remarks}."
    if license_finding:
        is_good = license_finding.mark == "✓"
        publish = "yes." if is_good else f"not yet, {license_finding.text}"
        headline += f" Publish: {publish}"
    return headline


def write_alone(values: Values) -> None:
    """Write report.html, unless a `run` writes it after its last notebook."""
    if not os.environ.get(storage.INSIDE):
        write_report(values)


def write_report(values: Values) -> None:
    """Write report.html to WORK_DIR, also after a run that has stopped.

    values: the run's parameters. The executed notebooks in WORK_DIR get chapters.
    """
    values = {**DEFAULTS, **values}
    work = work_dir(values["WORK_DIR"], values["NAME"])
    findings = read_findings(work)
    has_clusters = any(finding.subject == "copies" for finding in findings)
    accounting = storage.read_text(storage.join(work, "accounting.csv"))
    parts = list_own_parts(output_dir(values["OUT_DIR"] or work), work)
    write_page(
        storage.join(work, "report.html"),
        values["NAME"],
        decide(findings),
        findings,
        _load_gallery(work, values["N_JOBS"]) if has_clusters else None,
        date=time.strftime("%Y-%m-%d ·"),
        values=values,
        parts=parts,
        can_validate=any(map(_can_validate, parts)),
        accounting=list(csv.DictReader(accounting.splitlines())),
        chapters=_write_chapters(work, {finding.step for finding in findings}),
    )


def _load_gallery(work: str, n_jobs: int) -> dict[str, Any]:
    """Return the clusters of a run, with the decisions that 02 has applied."""
    images, labels = load_images(work)
    clusters, _ = load_clusters(work)
    file = storage.join(work, overrides.FILE)
    decisions = storage.read_parquet(file, columns=overrides.COLUMNS)
    parallel.use_backend(n_jobs)
    return make_gallery(images, clusters, labels, decisions.to_numpy().tolist())


def _write_chapters(work: str, steps: Collection[str]) -> dict[str, str]:
    """Return the address of the chapter of each executed notebook by its name.

    steps: those with findings; the notebooks of others are of an earlier run.
    """
    chapters = {}
    for copy in sorted(Path(work, "notebooks").glob("0?_*.ipynb")):
        if copy.stem in steps:
            write_chapter(copy)
            chapters[copy.stem] = f"notebooks/{copy.stem}.html"
    return chapters


def _can_validate(part: str) -> bool:
    """Return whether the shards of a part are in folds, or some are for validation."""
    shards = read_part_table(part)
    has_folds = shards["fold"].max() > 0
    return bool(has_folds or not shards["split"].isin(["train", "test"]).all())


def write_chapter(copy: Path) -> None:
    """Write an executed notebook as HTML beside it, its code folded.

    Links to other notebooks become text.
    """
    from nbconvert import HTMLExporter

    template = (FOLDER / "chapter.html").read_text()
    page, _ = HTMLExporter(raw_template=template).from_filename(str(copy))
    page = LINK.sub(r"\1", page)
    storage.write_atomically(copy.with_suffix(".html"), page.encode())


def write_page(
    path: str,
    title: str,
    headline: str,
    findings: Sequence[Finding],
    gallery: dict[str, Any] | None = None,
    **sections: Any,
) -> None:
    """Write a page of findings and clusters.

    findings: the most serious first. gallery: of `make_gallery`. sections: values of
    the template's other names; what is left out is not displayed.
    """
    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True)
    page = environment.get_template("report.html").render(
        title=title,
        headline=headline,
        findings=findings,
        gallery=gallery,
        version=__version__,
        **sections,
    )
    storage.write_atomically(path, page.encode())


def make_gallery(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    labels: Labels,
    decisions: Sequence[Sequence[str]] | None,
) -> dict[str, Any]:
    """Return the clusters to inspect first, in `ORDER`, at most `MAX_IMAGES` images.

    images, clusters: of 01 and 02, with the same row numbers. decisions: image_id,
    action and value of the rows of OVERRIDES; None if nothing can be decided.

    clusters: the rows of the images of each, with columns of duplicates.parquet,
    height, width, name (unique), thumbnail, and n_images, is_conflict and is_leak of
    the cluster. n_clusters: of all. classes: the names to propose as labels.
    """
    displayed = _choose_displayed(clusters).join(_name_images(images))
    paths = displayed["path"].tolist()
    thumbnails = parallel.run(_make_thumbnail, paths, label="Thumbnails")
    groups = displayed.assign(thumbnail=list(thumbnails)).groupby("cluster", sort=False)
    classes = [*number_names(labels.classes)] if labels.kind == "single" else []
    return {
        "clusters": [group.to_dict("records") for _, group in groups],
        "n_clusters": clusters["cluster"].nunique(),
        "classes": classes[:MAX_CLASSES],
        "decisions": decisions,
    }


def _choose_displayed(clusters: pd.DataFrame) -> pd.DataFrame:
    """Return the first images in `ORDER`, of each cluster at most 24."""
    of_cluster = clusters.groupby("cluster")
    names = clusters["label_name"].where(clusters["label_name"] != "")
    members = clusters.assign(
        n_images=of_cluster["image_id"].transform("size"),
        # The labels of test images count, too.
        is_conflict=names.groupby(clusters["cluster"]).transform("nunique") > 1,
        is_leak=of_cluster["split"].transform("nunique") > 1,
        farthest=of_cluster["distance"].transform("max"),
    )
    is_ascending = [column == "distance" for column in ORDER]
    members = members.sort_values(ORDER, ascending=is_ascending)
    position = members.groupby("cluster").cumcount()
    return members[position < MAX_OF_CLUSTER].head(MAX_IMAGES)


def _name_images(images: pd.DataFrame) -> pd.DataFrame:
    """Return height, width and name of the images that can be read.

    The name is the id, or "test/1.jpg" if images of two splits have the id "1.jpg".
    """
    good = images[images["problem"] == ""]
    is_repeated = good["image_id"].duplicated(keep=False)
    full_name = good["split"] + "/" + good["image_id"]
    name = good["image_id"].mask(is_repeated, full_name)
    return good[["height", "width"]].assign(name=name)


def _make_thumbnail(path: str) -> str:
    """Return a small image as WebP in base64."""
    thumbnail = Image.fromarray(load_pixels(path, SIDE))
    thumbnail.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    file = BytesIO()
    thumbnail.save(file, "WEBP", quality=60)
    return b64encode(file.getvalue()).decode()
