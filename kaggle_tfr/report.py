"""report.html: whether a run can be trained on, why, and its clusters, on one page.

The executed notebooks are its chapters. All pages work without network.
"""

import csv
import os
from base64 import b64encode
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
from kaggle_tfr.find import work_dir
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.notebook import Finding, count_of, read_findings
from kaggle_tfr.parameters import DEFAULTS, Values
from kaggle_tfr.shards import list_own_parts
from kaggle_tfr.version import __version__

FOLDER = Path(__file__).parent  # of the templates and the script
MAX_IMAGES = 600  # less than 3 MB of thumbnails
MAX_OF_CLUSTER = 24
SIDE = 160  # pixels of a thumbnail
# Clusters with two labels are first, then those in two splits, then the farthest; in a
# cluster the kept images are first, and of these the one that the others are copies of.
ORDER = ["is_conflict", "is_leak", "farthest", "cluster", "keep", "distance"]


def decide(findings: list[Finding]) -> str:
    """Return whether the records can be trained on and published, and why not.

    findings: the most serious first, as `read_findings` returns them.
    """
    marks = [finding.mark for finding in findings]
    if "✗" in marks:
        return f"Train: no. {findings[0].text}"
    subjects = {finding.subject: finding for finding in reversed(findings)}
    if "parts" not in subjects:
        return "Train: not yet, 04_write has not run on this plan."

    remarks = count_of(marks.count("!"), "remark")
    license_finding = subjects["license"]
    has_license = license_finding.mark == "✓"
    publish = "yes." if has_license else f"not yet, {license_finding.text}"
    return f"Train: yes, with {remarks}. Publish: {publish}"


def write_report(values: Values) -> None:
    """Write report.html to WORK_DIR, also after a run that has stopped.

    In a notebook of `run`, which writes it after the last one, nothing is done.
    values: the run's parameters. The executed notebooks in WORK_DIR get chapters.
    """
    if os.environ.get(storage.INSIDE):
        return
    values = {**DEFAULTS, **values}
    work = work_dir(values)
    findings = read_findings(work)
    steps = {finding.step.split()[0] for finding in findings}
    subjects = {finding.subject for finding in findings}
    accounting = storage.read_text(f"{work}/accounting.csv")
    write_page(
        f"{work}/report.html",
        title=values["NAME"],
        headline=decide(findings),
        findings=findings,
        gallery=load_gallery(work) if "copies" in subjects else None,
        values=values,
        parts=list_own_parts(values["OUT_DIR"], work),
        accounting=list(csv.DictReader(accounting.splitlines())),
        chapters=_write_chapters(work, steps),
    )


def _write_chapters(work: str, steps: set[str]) -> list[str]:
    """Write the executed notebooks as HTML beside them, their code folded.

    Return the names of those notebooks.
    steps: those with findings; the notebooks of others are of an earlier run.
    """
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_file=f"{FOLDER}/chapter.html")
    names = []
    for step in sorted(steps):
        copy = f"{work}/notebooks/{step}.ipynb"
        if os.path.exists(copy):
            page, _ = exporter.from_filename(copy)
            storage.write_atomically(f"{work}/notebooks/{step}.html", page)
            names.append(step)
    return names


def write_page(path: str, **sections: Any) -> None:
    """Write a page of findings and clusters.

    sections: values of the template's names, such as title, headline, findings (the
    most serious first) and gallery (of `load_gallery`); those that are left out are not
    displayed.
    """
    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True)
    template = environment.get_template("report.html")
    storage.write_atomically(path, template.render(sections, version=__version__))


def load_gallery(work: str) -> dict[str, Any]:
    """Return the clusters of a run to inspect first, in `ORDER`, 600 images at most.

    clusters: the rows of the images of each, with columns of duplicates.parquet,
    height, width, name (unique), thumbnail, and n_images, is_conflict and is_leak of
    the cluster. n_clusters: of all. classes: the names to propose as labels. decisions:
    the rows of OVERRIDES that 02 has applied.
    """
    images, labels = load_images(work)
    clusters, _ = load_clusters(work)
    decisions = storage.read_parquet(f"{work}/{overrides.FILE}", overrides.COLUMNS)
    displayed = _choose_displayed(clusters).join(_name_images(images))
    thumbnails = parallel.run(_make_thumbnail, displayed["path"], label="Thumbnails")
    groups = displayed.assign(thumbnail=list(thumbnails)).groupby("cluster", sort=False)
    return {
        "clusters": [group.to_dict("records") for _, group in groups],
        "n_clusters": clusters["cluster"].nunique(),
        "classes": [*number_names(labels.classes)] if labels.kind == "single" else [],
        "decisions": decisions.to_numpy().tolist(),
    }


def _choose_displayed(clusters: pd.DataFrame) -> pd.DataFrame:
    """Return the first images in `ORDER`, of each cluster at most 24."""
    of_cluster = clusters.replace("", None).groupby("cluster")
    members = clusters.assign(
        n_images=of_cluster["image_id"].transform("size"),
        # The labels of test images count, too.
        is_conflict=of_cluster["label_name"].transform("nunique") > 1,
        is_leak=of_cluster["split"].transform("nunique") > 1,
        farthest=of_cluster["distance"].transform("max"),
    )
    is_ascending = [column == "distance" for column in ORDER]
    members = members.sort_values(ORDER, ascending=is_ascending)
    return members.groupby("cluster").head(MAX_OF_CLUSTER).head(MAX_IMAGES)


def _name_images(images: pd.DataFrame) -> pd.DataFrame:
    """Return height, width and name of the images that can be read.

    The name is the id, or "test/1.jpg" if images of two splits have the id "1.jpg".
    """
    good = images[images["problem"] == ""]
    names = good["image_id"]
    is_repeated = names.duplicated(keep=False)
    names = names.mask(is_repeated, good["split"] + "/" + names)
    return good[["height", "width"]].assign(name=names)


def _make_thumbnail(path: str) -> str:
    """Return a small image as WebP in base64."""
    thumbnail = Image.fromarray(load_pixels(path, SIDE))
    thumbnail.thumbnail((SIDE, SIDE))
    file = BytesIO()
    thumbnail.save(file, "WEBP", quality=60)
    return b64encode(file.getvalue()).decode()
