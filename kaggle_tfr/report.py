"""report.html: the results of a run on one page without code or network."""

import io
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import pandas as pd
from markupsafe import Markup, escape
from PIL import Image

from kaggle_tfr import storage
from kaggle_tfr.mounts import locate_input, output_dir
from kaggle_tfr.parameters import DEFAULTS, Values
from kaggle_tfr.shards import is_of_plan
from kaggle_tfr.tables import clean_table, show_table

PAGE = Path(__file__).with_suffix(".html")
WIDE = Markup('<div class="wide">{}</div>')
FIGURE = Markup('<img alt="{}" src="data:image/webp;base64,{}">')
HEADING = re.compile(r"(#+) (?:\d+[.·]? ?·? )?(.*)")  # without its number
LEFT_OUT = {"Parameters", "Save", "Next"}  # sections of the notebooks
HideFolders = Callable[[str], str]  # replaces private folders in a text


def write_report(values: Values, copies: Path) -> None:
    """Write report.html to WORK_DIR and to the parts of its plan.

    It has the headings, figures and tables of the executed notebooks, without lessons.
    Parts in a bucket get no copy.
    values: the run's parameters. copies: the folder of the executed notebooks.
    """
    values = {**DEFAULTS, **values}
    work = values["WORK_DIR"]
    page = _render(values, copies).encode()
    storage.write_atomically(f"{work}/report.html", page)
    parts_dir = Path(output_dir(values["OUT_DIR"] or work))
    for table in parts_dir.glob("part-*/shards.csv"):
        part = str(table.parent)
        if is_of_plan(part, work):
            storage.write_atomically(f"{part}/report.html", page)


def _render(values: Values, copies: Path) -> str:
    """Return the page as HTML."""
    hide = partial(_hide_folders, _name_folders(values))
    accounting = show_table(read_accounting(values["WORK_DIR"]), {"share": "{:.1%}"})
    executed = sorted(copies.glob("0?_*.ipynb"))
    notebooks = {copy.stem: _read_notebook(copy, hide) for copy in executed}
    template = jinja2.Template(
        PAGE.read_text(),
        autoescape=True,
        trim_blocks=True,
    )
    return template.render(
        name=values["NAME"],
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        accounting=clean_table(accounting.html, hide),
        notebooks=notebooks,
    )


def read_accounting(work: str) -> pd.DataFrame:
    """Return the table of accounting.csv, empty if there is no file."""
    text = storage.read_text(f"{work}/accounting.csv")
    if not text:
        return pd.DataFrame()
    return pd.read_csv(io.StringIO(text), keep_default_na=False)


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


def _read_notebook(copy: Path, hide: HideFolders) -> list[Markup]:
    """Return the headings, texts and outputs of a notebook as HTML."""
    section = ""
    pieces: list[Markup] = []
    for cell in nbformat.read(copy, 4).cells:
        heading = HEADING.match(cell.source)
        is_text = cell.cell_type == "markdown"
        if is_text and heading:
            section = heading[2]
        is_lesson = "lesson" in cell.metadata.get("tags", ())
        if is_lesson or section in LEFT_OUT:
            continue
        if is_text:
            pieces += _format_text(cell.source)
        for output in cell.get("outputs", ()):
            pieces.append(_format_output(output, section, hide))
    return pieces


def _format_text(text: str) -> Iterator[Markup]:
    """Yield a heading of Markdown and the paragraph below it as HTML."""
    heading = HEADING.match(text)
    if heading:
        level = len(heading[1]) + 1  # h1 is the page's title
        yield Markup("<h{0}>{1}</h{0}>").format(level, heading[2])
        text = text[heading.end() :].strip()
    if text:
        words = re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))
        yield Markup(f"<p>{words}</p>")  # noqa: S704


def _format_output(output: Any, section: str, hide: HideFolders) -> Markup:
    """Return a figure, a table or printed lines as HTML, "" for other outputs."""
    data = output.get("data", {})
    if "image/png" in data:
        webp = _compress(data["image/png"])
        return WIDE.format(FIGURE.format(section, webp))
    # A progress bar has both.
    if "text/html" in data and "text/markdown" not in data:
        return WIDE.format(clean_table(data["text/html"], hide))
    if output.get("name") == "stdout":
        printed = hide(output.text.strip())
        return Markup("<pre>{}</pre>").format(printed)
    return Markup()


def _compress(png: str) -> str:
    """Return a PNG in base64 as WebP, a sixth of the size for photographs."""
    data = b64decode(png)
    image = Image.open(io.BytesIO(data))
    webp = io.BytesIO()
    image.save(webp, "WEBP", quality=85)
    return b64encode(webp.getvalue()).decode()
