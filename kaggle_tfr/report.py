"""report.html: whether a run can be trained on, why, and its clusters, on one page.

The executed notebooks are its chapters. All pages work without network.
"""

import csv
import os
import re
import time
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from os.path import getmtime
from pathlib import Path
from typing import Any

import jinja2

from kaggle_tfr import parallel, storage
from kaggle_tfr.deduplicate import load_clusters
from kaggle_tfr.explore import load_images
from kaggle_tfr.gallery import Gallery, make_gallery, read_decisions
from kaggle_tfr.mounts import output_dir, work_dir
from kaggle_tfr.notebook import MARKS, WRITING, Finding, read_findings
from kaggle_tfr.parameters import DEFAULTS, Values
from kaggle_tfr.shards import list_own_parts, read_part_table
from kaggle_tfr.tables import count_of
from kaggle_tfr.version import __version__

ALONE = ("train", "test")  # splits without one for validation
HAS_CHAPTERS = find_spec("nbconvert") is not None
FOLDER = Path(__file__).parent  # of the templates and the script
LINK = re.compile(r'<a href="[\w./]+\.ipynb">(.*?)</a>')  # to another notebook


def decide(findings: Sequence[Finding]) -> str:
    """Return whether the records can be trained on and published, and why not.

    findings: the most serious first, as `read_findings` returns them.
    """
    subjects = {finding.subject: finding for finding in reversed(findings)}
    license_finding = subjects.pop("license", None)
    if "stop" in subjects:
        return subjects["stop"].text
    for finding in findings:
        if finding.mark == "✗" and finding.subject != "license":
            return f"Train: no. {finding.text}"
    if "parts" not in subjects:
        return "Train: not yet, 04_write has not run on this plan."
    has_clusters = any(finding.step == "02_deduplicate" for finding in findings)
    if has_clusters and "plan" not in subjects:
        return "Train: not yet, 03_plan has not run on these images."

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
    work = work_dir(values["WORK_DIR"], values["NAME"])
    if os.environ.get(storage.INSIDE) != work:
        write_report({**values, "WORK_DIR": work})


def write_report(values: Values, copies: Path | None = None) -> None:
    """Write report.html to WORK_DIR, also after a run that has stopped.

    values: the run's parameters. copies: the folder of the executed notebooks; those
    without a chapter get one. Without it, the page links the notebooks themselves.
    """
    # 04, which calls this without a driver, has no parameters of the input.
    sources = [values["INPUT_DIR"]] if "INPUT_DIR" in values else []
    values = {**DEFAULTS, **values}
    sources += [settings["INPUT_DIR"] for settings in values["MORE_INPUTS"]]
    work = values["WORK_DIR"]
    parts = list_own_parts(output_dir(values["OUT_DIR"] or work), work)
    findings = read_findings(work)
    accounting = storage.read_text(storage.join(work, "accounting.csv"))
    of_deduplicate = {
        finding.subject for finding in findings if finding.step == "02_deduplicate"
    }
    # Before 02 has ended, the clusters are of an earlier table of images.
    has_clusters = of_deduplicate and "stop" not in of_deduplicate
    write_page(
        storage.join(work, "report.html"),
        values["NAME"],
        decide(findings),
        findings,
        _load_gallery(work, values["N_JOBS"]) if has_clusters else None,
        date=time.strftime("%Y-%m-%d ·"),
        sources=sources,
        values=values,
        parts=parts,
        can_validate=any(map(_can_validate, parts)),
        accounting=list(csv.DictReader(accounting.splitlines())),
        chapters=_link_notebooks(work, copies, {finding.step for finding in findings}),
    )


def write_page(
    path: str,
    title: str,
    headline: str,
    findings: Sequence[Finding],
    gallery: Gallery | None = None,
    **sections: Any,
) -> None:
    """Write a page of findings and clusters.

    sections: values of the template's other names; what is left out is not displayed.
    """
    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True)
    page = environment.get_template("report.html").render(
        title=title,
        headline=headline,
        findings=sorted(findings, key=lambda finding: MARKS.index(finding.mark)),
        gallery=gallery,
        version=__version__,
        **sections,
    )
    storage.write_atomically(path, page.encode())


def _can_validate(part: str) -> bool:
    """Return whether the shards of a part are in folds, or some are for validation."""
    shards = read_part_table(part)
    return bool(shards["fold"].max() > 0 or not shards["split"].isin(ALONE).all())


def _load_gallery(work: str, n_jobs: int) -> Gallery | None:
    """Return the clusters of a run, None without any."""
    clusters, settings = load_clusters(work)
    if clusters.empty:
        return None
    images, labels = load_images(work)
    parallel.use_backend(n_jobs)
    decisions = read_decisions(work)
    return make_gallery(images, clusters, labels, decisions, settings.max_bits)


def _link_notebooks(
    work: str, copies: Path | None, steps: Collection[str]
) -> dict[str, str]:
    """Return the address of each executed notebook, or of its chapter, by its name.

    steps: those with findings. Before 04 has any, others are of an earlier run.
    """
    folder = copies or Path(work, "notebooks")
    address = folder.as_uri() if storage.is_remote(work) else folder.name
    suffix = ".html" if copies and HAS_CHAPTERS else ".ipynb"
    paths = sorted(folder.glob("0?_*.ipynb"))
    current = [path for path in paths if WRITING in steps or path.stem in steps]
    links = {}
    for copy in current:
        page = copy.with_suffix(suffix)
        if not page.exists() or getmtime(page) < getmtime(copy):
            write_chapter(copy, [path.stem for path in current])
        displayed = page if page.exists() else copy
        links[copy.stem] = f"{address}/{displayed.name}"
    return links


def write_chapter(copy: Path, names: Collection[str]) -> None:
    """Write an executed notebook as HTML beside it, its code folded.

    Without nbconvert and its templates nothing is written.
    names: the notebooks that have or will have a chapter. Links to these lead to it,
    other links between notebooks become text.
    """
    if not HAS_CHAPTERS:
        return
    from nbconvert import HTMLExporter

    template = (FOLDER / "chapter.html").read_text()
    try:
        page, _ = HTMLExporter(raw_template=template).from_filename(str(copy))
    except (ValueError, jinja2.TemplateError) as error:  # nbconvert lacks its templates
        print(f"No chapter: {error}")
        return
    page = re.sub(rf'href="({"|".join(names)})\.ipynb"', r'href="\1.html"', page)
    page = LINK.sub(r"\1", page)
    storage.write_atomically(copy.with_suffix(".html"), page.encode())
