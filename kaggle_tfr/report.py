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
from kaggle_tfr.shards import choose_folders
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

    It is one line, such as "Train: yes, with 2 remarks. Publish: yes."
    findings: the most serious first, as `read_findings` returns them.
    """
    marks = [finding.mark for finding in findings]
    if "✗" in marks:
        return f"Train: no. {findings[0].text}"
    # Marks: ✗ a wrong result, ! to decide, · for information, ✓ all is well.
    # 04_write notes "license" after all records of a part are verified, also if it is
    # set; but "license: part 1" while other parts of the plan are not finished.
    licenses = [finding for finding in findings if "license" in finding.subject]
    if "license" not in [finding.subject for finding in licenses]:
        return "Train: not yet on records, 04_write has not finished all parts."

    remarks = count_of(marks.count("!"), "remark")
    # Of several parts, the most serious one is the first.
    publish = "yes." if licenses[0].mark == "✓" else f"not yet, {licenses[0].text}"
    return f"Train: yes, with {remarks}. Publish: {publish}"


def write_report(values: Values) -> None:
    """Write report.html to WORK_DIR, also after a run that has stopped.

    In a notebook of `kaggle-tfr run`, which writes it after the last one, nothing is
    done.
    values: the run's parameters. The executed notebooks in WORK_DIR become chapters.
    """
    # `kaggle-tfr run` sets INSIDE for its kernels.
    if os.environ.get(storage.INSIDE):
        return
    values = {**DEFAULTS, **values}
    work = work_dir(values)
    findings = read_findings(work)
    subjects = {finding.subject for finding in findings}
    accounting = storage.read_text(f"{work}/accounting.csv")
    write_page(
        f"{work}/report.html",
        title=values["NAME"],
        headline=decide(findings),
        findings=findings,
        # 02 always notes "copies"; before 02 there are no clusters.
        gallery=load_gallery(work) if "copies" in subjects else None,
        values=values,
        parts=choose_folders([], values["OUT_DIR"], work),
        accounting=list(csv.DictReader(accounting.splitlines())),
        chapters=_write_chapters(work, findings),
    )


def _write_chapters(work: str, findings: list[Finding]) -> list[str]:
    """Write the executed notebooks as HTML beside them, their code folded.

    Return the names of those notebooks, such as "01_explore", in order.
    findings: of all steps; the executed copy of a notebook without any is of an earlier
    run.
    """
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_file=f"{FOLDER}/chapter.html")
    names = []
    # "04_write part 2" is of the notebook 04_write.
    for step in sorted({finding.step.split()[0] for finding in findings}):
        copy = f"{work}/notebooks/{step}.ipynb"
        if os.path.exists(copy):
            page, _ = exporter.from_filename(copy)
            storage.write_atomically(f"{work}/notebooks/{step}.html", page)
            names.append(step)
    return names


def write_page(path: str, **sections: Any) -> None:
    """Write a page of findings and clusters in HTML.

    sections: values of the template's names, such as title, headline, findings (the
    most serious first) and gallery (of `load_gallery`); those that are left out are not
    displayed.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), autoescape=True
    )
    template = environment.get_template("report.html")
    storage.write_atomically(path, template.render(sections, version=__version__))


def load_gallery(work: str) -> dict[str, Any]:
    """Return the clusters of a run to inspect first, with 600 images at most.

    Conflicts are first, then leaks, then the clusters with the most distant copies.
    The values, by their keys:
    clusters: a list of images for each cluster; an image is a mapping of the columns of
        duplicates.parquet, height, width, name (unique), thumbnail (WebP in base64),
        and of the cluster's n_images, is_conflict and is_leak.
    n_clusters: number of all clusters, also of those that are left out.
    classes: the names to propose as labels, [] unless an image has one class.
    decisions: the rows of OVERRIDES that 02 has applied.
    """
    images, labels = load_images(work)
    clusters, _ = load_clusters(work)
    decisions = storage.read_parquet(f"{work}/{overrides.FILE}", overrides.COLUMNS)
    # Both are indexed by the row numbers of images.parquet.
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
    """Return the images to display: at most 24 of each cluster, and 600 in all.

    Columns: those of `clusters` (duplicates.parquet), and for the cluster n_images,
    is_conflict (its labels differ), is_leak (its splits differ) and farthest (bits).
    Conflicts are first, then leaks, then the farthest; in a cluster the kept images are
    first, and the original before its copies.
    """
    # Without a label or split, "", an image contradicts no other one.
    of_cluster = clusters.replace("", None).groupby("cluster")
    members = clusters.assign(
        n_images=of_cluster["image_id"].transform("size"),
        # The labels of test images count, too.
        is_conflict=of_cluster["label_name"].transform("nunique") > 1,
        is_leak=of_cluster["split"].transform("nunique") > 1,
        farthest=of_cluster["distance"].transform("max"),
    )
    # ORDER: is_conflict, is_leak, farthest, cluster, keep, distance. The largest value,
    # or True, is first, but the smallest distance: it is 0 for the original.
    members = members.sort_values(
        ORDER, ascending=[column == "distance" for column in ORDER]
    )
    return members.groupby("cluster").head(MAX_OF_CLUSTER).head(MAX_IMAGES)


def _name_images(images: pd.DataFrame) -> pd.DataFrame:
    """Return height, width and name of the images that can be read; the index is kept.

    The name is the id, or "test/1.jpg" if images of two splits have the id "1.jpg".
    """
    good = images[images["problem"] == ""]
    names = good["image_id"]
    names = names.mask(names.duplicated(keep=False), good["split"] + "/" + names)
    return good[["height", "width"]].assign(name=names)


def _make_thumbnail(path: str) -> str:
    """Return an image with at most 160 pixels a side, as WebP in base64 text.

    An image that cannot be read is grey.
    """
    thumbnail = Image.fromarray(load_pixels(path, SIDE))
    thumbnail.thumbnail((SIDE, SIDE))
    file = BytesIO()
    thumbnail.save(file, "WEBP", quality=60)
    return b64encode(file.getvalue()).decode()
