"""report.html: a verdict on a run and its findings, on one page without network."""

import io
import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from kaggle_tfr import parallel, storage
from kaggle_tfr.downloads import cache_folder
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.figures import count_of, list_marks
from kaggle_tfr.gallery import Gallery, make_gallery, read_decisions
from kaggle_tfr.mounts import locate_input, output_dir
from kaggle_tfr.notebook import read_accounting
from kaggle_tfr.overview import load_overview
from kaggle_tfr.parameters import DEFAULTS, Values
from kaggle_tfr.schema import Labels
from kaggle_tfr.shards import list_own_parts
from kaggle_tfr.tables import clean_table, show_table
from kaggle_tfr.verdict import (
    FAULT,
    GOOD,
    LOOK,
    NOTE,
    Finding,
    Run,
    judge_run,
    load_run,
    summarize,
)
from kaggle_tfr.version import __version__
from kaggle_tfr.waterfall import NARROW, plot_overview

PAGE = Path(__file__).with_suffix(".html")
SCRIPT = Path(__file__).with_suffix(".js")
STYLES = {GOOD: "good", NOTE: "note", LOOK: "look", FAULT: "fault"}
FIGURE = Markup('<img class="plot" alt="{}" src="data:image/webp;base64,{}"{}>')
WIDTH = Markup(' width="{}"')
PICTURE = Markup(
    '<picture><source media="(max-width: 40rem)" '
    'srcset="data:image/webp;base64,{}">{}</picture>'
)
FOLDED = Markup('<details><summary>{}</summary><div class="table">{}</div></details>')
HEADING = re.compile(r"(#+) (?:\d+[.·]? ?·? )?(.*)")  # without its number
H3 = Markup("<h3>{}</h3>")
LEAD = Markup('<p class="lead">{}</p>')
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE = re.compile(r"(?s).*?[.?!](?=\s|$)")
VERSION_LINE = re.compile(r"(?m)^kaggle-tfr \d\S*$")  # each notebook prints it
HEADER_CELL = re.compile(r"<th[^<>]*>([^<]+)</th>")
LEFT_OUT = {"Parameters", "Save", "Next"}  # sections of the notebooks
ACCOUNTING = "Accounting"  # the last section of each notebook
# The parameters of 02 and 03 on which the records depend, in plan.json.
PARAMETERS = {
    "checks": ["MAX_BITS", "SECOND_LOOK", "LEAKS"],
    "settings": [
        "IMAGE_SIZE",
        "RESIZE",
        "QUALITY",
        "N_FOLDS",
        "VALIDATION_SIZE",
        "GROUP_COLUMN",
        "SEED",
    ],
}
REJECT_COLUMNS = ["image_id", "split", "problem"]
PIXELS_OF_INCH = 110  # of the waterfall; its file has more, for fine screens
MAX_REJECTS = 200  # rows of the table
MAX_CLASSES = 40
QUALITY = 75  # of WebP
HideFolders = Callable[[str], str]  # replaces private folders in a text


@dataclass(frozen=True)
class Section:
    """The findings of a notebook: HTML in `pieces`.

    name: of its file. title: of the link to it.
    """

    name: str
    title: str
    heading: str
    pieces: Sequence[Markup]


def write_report(values: Values, copies: Path) -> None:
    """Write report.html to WORK_DIR and to the parts of its plan, without earlier ones.

    It has a verdict, a gallery of the clusters, and the headings, figures, tables and
    printed lines of the executed notebooks, without lessons, each section with its
    first sentence. Parts in a bucket get no copy.
    values: the run's parameters. copies: the folder of the executed notebooks.
    """
    values = {**DEFAULTS, **values}
    work = values["WORK_DIR"]
    parts_dir = output_dir(values["OUT_DIR"] or work)
    parts = list_own_parts(parts_dir, work)
    page = _render(values, copies, parts).encode()
    storage.write_atomically(storage.join(work, "report.html"), page)
    for part in parts:
        if not storage.is_remote(part):
            storage.write_atomically(f"{part}/report.html", page)


def _render(values: Values, copies: Path, parts: Sequence[str]) -> str:
    """Return the page as HTML. parts: the folders of the plan's parts."""
    work = values["WORK_DIR"]
    hide = partial(_hide_folders, _name_folders(values))
    executed = {
        copy.stem: nbformat.read(copy, 4) for copy in sorted(copies.glob("0?_*.ipynb"))
    }
    findings, pieces = _judge(values, parts, executed, hide)
    accounting = read_accounting(work)
    accounted = max(executed, default="")  # the notebook whose accounting is displayed
    if len(accounting):
        table = show_table(accounting, {"share": "{:.1%}"})
        pieces["accounting"] = _fold_table(table.html, hide, "Outcome of every image")
        accounted = ""
    notebooks = [
        _show_notebook(name, notebook, hide, has_accounting=name == accounted)
        for name, notebook in executed.items()
    ]
    template = jinja2.Template(
        PAGE.read_text(),
        autoescape=True,
        trim_blocks=True,
    )
    return template.render(
        name=values["NAME"],
        facts=_describe_run(values),
        parameters=_show_parameters(work, hide),
        headline=summarize(findings),
        findings=findings,
        styles=STYLES,
        sections=_list_sections(pieces, executed),
        notebooks=notebooks,
        script=Markup(SCRIPT.read_text()),  # noqa: S704
        **pieces,
    )


def _judge(
    values: Values,
    parts: Sequence[str],
    executed: Mapping[str, Any],
    hide: HideFolders,
) -> tuple[list[Finding], dict[str, Any]]:
    """Return the findings, and the pieces of the page that show the tables of the run.

    executed: the notebooks by their names.
    """
    findings: list[Finding] = []
    pieces: dict[str, Any] = {}
    try:
        run = load_run(values["WORK_DIR"], parts, _list_printed(executed))
        if run:
            findings = judge_run(run, values["GROUP_COLUMN"], values["LABEL_COLUMN"])
            pieces = _show_clusters(run, values)
            pieces["rejects"] = _show_rejects(run.images, hide)
            pieces["classes"] = _show_classes(run, hide)
        pieces["overview"] = _plot_overview(values["WORK_DIR"])
    except ValueError as error:  # tables of different runs
        brief = "the tables are of different runs"
        findings.insert(0, Finding(FAULT, str(error), brief))
    findings = [
        replace(finding, text=hide(finding.text), brief=hide(finding.brief))
        for finding in findings
    ]
    return findings, pieces


def _list_printed(executed: Mapping[str, Any]) -> dict[str, str]:
    """Return what each notebook printed."""
    printed = {}
    for name, notebook in executed.items():
        outputs = [
            output for cell in notebook.cells for output in cell.get("outputs", ())
        ]
        texts = [output.text for output in outputs if output.get("name") == "stdout"]
        printed[name] = "\n".join(texts)
    return printed


def _list_sections(pieces: Mapping[str, Any], executed: Mapping[str, Any]) -> set[str]:
    """Return the ids of the page's sections."""
    sections = set(executed)
    names = ("overview", "accounting", "classes", "rejects")
    if any(pieces.get(name) for name in names):
        sections.add("overview")
    if "gallery" in pieces:
        sections.add("clusters")
    return sections


def _describe_run(values: Values) -> str:
    """Return the date, the version and the names of the sources."""
    inputs = [settings["INPUT_DIR"] for settings in values["MORE_INPUTS"]]
    if values["INPUT_DIR"]:
        inputs.insert(0, values["INPUT_DIR"])
    else:
        inputs.insert(0, "the bundled sample")
    # Folders of this machine are private, their names are not.
    names = [os.path.basename(output_dir(source)) for source in inputs]
    return (
        f"{datetime.now(UTC):%Y-%m-%d} · kaggle-tfr {__version__} · "
        f"source: {', '.join(names)}"
    )


def _show_parameters(work: str, hide: HideFolders) -> Markup:
    """Return the table of the plan's parameters, "" without a plan."""
    plan = json.loads(storage.read_text(storage.join(work, "plan.json")) or "{}")
    rows = [
        {"parameter": name, "value": str(plan[part][name.lower()])}
        for part, names in PARAMETERS.items()
        for name in names
        if name.lower() in plan.get(part, {})
    ]
    if not rows:
        return Markup()
    return _fold_table(show_table(pd.DataFrame(rows)).html, hide, "Parameters")


def _show_rejects(images: pd.DataFrame, hide: HideFolders) -> Markup:
    """Return the table of the rejected images, "" if there is none."""
    rejected = images.loc[images["problem"] != "", REJECT_COLUMNS]
    if rejected.empty:
        return Markup()
    listed = rejected.head(MAX_REJECTS)
    summary = f"Rejected images: {len(listed):,} of {len(rejected):,}"
    return _fold_table(show_table(listed).html, hide, summary)


def _show_classes(run: Run, hide: HideFolders) -> Markup:
    """Return the table of the images of each class, "" before the plan."""
    if run.plan is None or not run.labels.classes:
        return Markup()
    is_usable = (run.images["problem"] == "") & (run.images["split"] != "test")
    usable = run.images[is_usable]
    planned = run.plan[run.plan["split"] != "test"]
    counts = _count_classes(planned, run.labels)
    table = pd.DataFrame(
        {
            "usable images": _count_classes(usable, run.labels),
            "in the records": counts,
            "share of the records": counts / max(1, len(planned)),
        }
    ).fillna(0)
    table = table.astype({"usable images": int, "in the records": int})
    table = table.sort_values("in the records", ascending=False, kind="stable")
    formats = {"share of the records": "{:.1%}"}
    shown = show_table(
        table.head(MAX_CLASSES).rename_axis("class").reset_index(), formats
    )
    summary = f"Classes: {len(planned):,} labelled images in the records"
    if len(table) > MAX_CLASSES:
        summary += f", the largest {MAX_CLASSES} of {len(table):,} classes"
    return _fold_table(shown.html, hide, summary)


def _count_classes(table: pd.DataFrame, labels: Labels) -> pd.Series:
    """Return the number of images of each class by its name."""
    if labels.class_columns:
        return list_marks(table, labels.class_columns).sum()
    names = {label: name for name, label in number_names(labels.classes).items()}
    return table["label"].map(names).value_counts()


def _show_clusters(run: Run, values: Values) -> dict[str, Any]:
    """Return the gallery and its summary, {} without clusters."""
    if run.clusters is None or run.clusters.empty:
        return {}
    parallel.use_backend(values["N_JOBS"])
    decisions = read_decisions(values["WORK_DIR"])
    gallery = make_gallery(
        run.images,
        run.clusters,
        run.labels,
        decisions,
        run.settings.max_bits,
    )
    summary = _summarize_gallery(gallery, run.clusters)
    return {"gallery": gallery, "summary": summary}


def _summarize_gallery(gallery: Gallery, clusters: pd.DataFrame) -> str:
    """Return how many clusters and images there are, and which are on the page.

    Other places count the clusters that keep an image, and those with several labelled
    images, so these numbers are named too.
    """
    is_labelled = clusters["split"] != "test"
    n_labelled = clusters["cluster"][is_labelled].value_counts()
    n_kept = clusters["cluster"][clusters["keep"]].nunique()
    text = (
        f"{count_of(gallery.n_clusters, 'cluster')} with "
        f"{count_of(gallery.n_images, 'image')}, of which "
        f"{gallery.n_dropped:,} are dropped. Clusters that keep an image: {n_kept:,}; "
        f"clusters of two or more labelled images: {(n_labelled > 1).sum():,}."
    )
    n_displayed = len(gallery.clusters)
    if n_displayed < gallery.n_clusters:
        text += (
            f" This page shows {n_displayed:,} of {gallery.n_clusters:,} clusters: "
            "those with two labels or in two splits first, then the largest."
        )
    return text


def _plot_overview(work: str) -> Markup:
    """Return the waterfall of the run as a figure.

    It is "" before 04_write, if nothing was removed or found, and if the images of its
    examples cannot be read.
    Raises: ValueError: the accounting is not that of the tables.
    """
    try:
        overview = load_overview(work)
    except OSError:
        return Markup()
    if not overview.steps:  # it would print a line in place of a figure
        return Markup()
    wide = plot_overview(overview)
    narrow = plot_overview(overview, NARROW)
    if wide is None or narrow is None:
        return Markup()
    width = WIDTH.format(int(wide.get_figwidth() * PIXELS_OF_INCH))
    image = FIGURE.format("what each step removed", _draw(wide), width)
    return PICTURE.format(_draw(narrow), image)


def _draw(figure: Figure) -> str:
    """Return a figure as WebP in base64."""
    png = io.BytesIO()
    figure.savefig(png, dpi="figure")
    return _compress(png.getvalue())


def _name_folders(values: Values) -> dict[str, str]:
    """Return the name to show in place of each folder."""
    names = {}
    for settings in values["MORE_INPUTS"]:
        source = settings["INPUT_DIR"]
        for folder in (output_dir(source), locate_input(source)):
            names[folder] = os.path.basename(source.rstrip("/"))
    if values["INPUT_DIR"]:
        names[locate_input(values["INPUT_DIR"])] = "INPUT_DIR"
    for parameter in ("INPUT_DIR", "OUT_DIR", "WORK_DIR"):
        folder = values[parameter]
        if folder:
            names[output_dir(folder)] = parameter
    names[cache_folder()] = "KAGGLEHUB_CACHE"
    for prefix in ("", "/"):  # every path begins with these
        names.pop(prefix, None)
    return names


def _hide_folders(names: Mapping[str, str], text: str) -> str:
    """Replace the folder at the beginning of a path: the page may be published."""
    for folder in sorted(names, key=len, reverse=True):
        name = names[folder]
        pattern = rf"(?<![\w.-]){re.escape(folder)}(?!\.?[\w-])"
        text = name.join(re.split(pattern, text))
        # pandas truncates long texts.
        is_truncated = len(text) > 4 and text.endswith("...")
        if is_truncated and folder.startswith(text[:-3]):
            text = f"{name}..."
    return text


def _show_notebook(
    name: str,
    notebook: Any,
    hide: HideFolders,
    *,
    has_accounting: bool,
) -> Section:
    """Return the headings and outputs of a notebook as HTML, without its lessons.

    Of each text the first sentence stays. Texts without outputs below are left out.
    """
    title = name
    heading_of_section = ""
    due: list[Markup] = []  # what is above the next output
    left_out = LEFT_OUT if has_accounting else LEFT_OUT | {ACCOUNTING}
    pieces: list[Markup] = []
    for cell in notebook.cells:
        is_lesson = "lesson" in cell.metadata.get("tags", ())
        if cell.cell_type == "markdown":
            lead = _find_lead(cell.source)
            heading = HEADING.match(cell.source)
            if heading:
                heading_of_section = heading[2]
            if heading and heading[1] == "#":
                title = heading_of_section
                pieces.append(lead)
            elif heading:
                due = [H3.format(heading_of_section), lead]
            elif not is_lesson:
                due.append(lead)
        if is_lesson or heading_of_section in left_out:
            continue
        for output in cell.get("outputs", ()):
            piece = _format_output(output, heading_of_section, hide)
            if piece:
                pieces += [*due, piece]
                due = []
    return Section(
        name=name,
        title=title.partition(":")[0],
        heading=title,
        pieces=pieces,
    )


def _find_lead(source: str) -> Markup:
    r"""Return the first sentence below the heading, without the marks of Markdown.

    >>> _find_lead("## 1. Sizes\n\nImages **shrink** to [384](#size). Why?")
    Markup('<p class="lead">Images shrink to 384.</p>')
    """
    if HEADING.match(source):
        _, _, source = source.partition("\n")
    paragraph, _, _ = source.strip().partition("\n\n")
    sentence = SENTENCE.match(paragraph)
    text = sentence[0] if sentence else paragraph
    text = LINK.sub(r"\1", text).replace("**", "").replace("`", "")
    return LEAD.format(text) if text else Markup()


def _format_output(output: Any, heading: str, hide: HideFolders) -> Markup:
    """Return a figure, a table or printed lines as HTML, "" for other outputs."""
    data = output.get("data", {})
    if "image/png" in data:
        webp = _compress(b64decode(data["image/png"]))
        return FIGURE.format(heading, webp, "")
    # A progress bar has both.
    if "text/html" in data and "text/markdown" not in data:
        return _fold_table(data["text/html"], hide, f"Table: {heading}")
    if output.get("name") == "stdout":
        printed = VERSION_LINE.sub("", output.text).strip()
        return Markup("<pre>{}</pre>").format(hide(printed)) if printed else Markup()
    return Markup()


def _fold_table(html: str, hide: HideFolders, summary: str) -> Markup:
    """Return a table below its summary, to be opened by a click.

    A list of files is not a finding, so a table with a column "path" is left out.
    """
    table = clean_table(html, hide)
    head, _, _ = table.partition("</thead>")
    columns = [Markup(name).unescape() for name in HEADER_CELL.findall(head)]  # noqa: S704
    if "path" in columns:
        return Markup()
    return FOLDED.format(summary, table)


def _compress(png: bytes) -> str:
    """Return a PNG as WebP in base64, a tenth of the size for photographs."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    webp = io.BytesIO()
    image.save(webp, "WEBP", quality=QUALITY, method=6)
    return b64encode(webp.getvalue()).decode()
