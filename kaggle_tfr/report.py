"""report.html: the results of a run on one page without code or network."""

import io
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
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
from kaggle_tfr.mounts import work_dir
from kaggle_tfr.parameters import DEFAULTS, NOTEBOOKS
from kaggle_tfr.shards import is_of_plan
from kaggle_tfr.tables import clean_table, show_table

PAGE = Path(__file__).with_suffix(".html")
WIDE = Markup('<div class="wide">{}</div>')
LEFT_OUT = {"Parameters", "Save", "Next"}  # sections of the notebooks
HideFolders = Callable[[str], str]  # replaces private folders in a text


def write_report(values: Mapping[str, Any], copies: str | Path) -> None:
    """Write report.html to WORK_DIR and to the parts of its plan.

    It has the headings, figures and tables of the executed notebooks, without lessons.
    Parts in a bucket get no copy.
    values: the run's parameters. copies: the folder of the executed notebooks.
    """
    work = values["WORK_DIR"]
    hide = partial(_hide_folders, _name_folders(values))
    accounting = show_table(read_accounting(work), {"share": "{:.1%}"})
    template = jinja2.Template(PAGE.read_text(), autoescape=True, trim_blocks=True)
    html = template.render(
        name=values.get("NAME") or DEFAULTS["NAME"],
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        accounting=clean_table(accounting.html, hide),
        parts=_read_notebooks(copies, hide),
    )

    parts_dir = Path(work_dir(values.get("OUT_DIR") or work))
    part_dirs = [str(table.parent) for table in parts_dir.glob("part-*/shards.csv")]
    for folder in [work, *part_dirs]:
        if is_of_plan(folder, work):
            storage.write_atomically(f"{folder}/report.html", html.encode())


def read_accounting(work: str) -> pd.DataFrame:
    """Return the table of accounting.csv, empty if there is no file."""
    text = storage.read_text(f"{work}/accounting.csv")
    if not text:
        return pd.DataFrame()
    return pd.read_csv(io.StringIO(text), keep_default_na=False)


def _read_notebooks(
    copies: str | Path, hide: HideFolders
) -> list[tuple[str, str, list[Markup]]]:
    """Return the name, title and HTML of each executed notebook."""
    notebooks = []
    for name in NOTEBOOKS:
        path = Path(copies, f"{name}.ipynb")
        if path.exists():
            cells = nbformat.read(path, 4).cells
            notebooks.append((name, *_read_cells(cells, hide)))
    return notebooks


def _name_folders(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the names to show in place of folders, the longest folder first."""
    names = dict[str, str]()
    for settings in values.get("MORE_INPUTS", ()):
        folder = settings["INPUT_DIR"]
        names[work_dir(folder)] = folder.rstrip("/").rpartition("/")[2]
    for parameter in ("INPUT_DIR", "OUT_DIR", "WORK_DIR"):
        if values.get(parameter):
            names[work_dir(values[parameter])] = parameter
    names.pop("/", None)  # every path begins with it
    return {folder: names[folder] for folder in sorted(names, key=len, reverse=True)}


def _hide_folders(names: Mapping[str, str], text: str) -> str:
    """Replace the folder at the beginning of a path: the page may be published."""
    for folder, name in names.items():
        pattern = rf"(?<![\w.-]){re.escape(folder)}(?!\.?[\w-])"
        text = name.join(re.split(pattern, text))
        # pandas truncates long texts.
        if text.endswith("...") and len(text) > 4 and folder.startswith(text[:-3]):
            text = f"{name}..."
    return text


def _read_cells(cells: Sequence[Any], hide: HideFolders) -> tuple[str, list[Markup]]:
    """Return a notebook's title, and the HTML of its sections' texts and outputs."""
    title = ""
    section = ""
    pieces = list[Markup]()
    for cell in cells:
        text = cell.source if cell.cell_type == "markdown" else ""
        heading = re.match(r"#+ (?:\d+[.·]? ?·? )?(.*)", text)
        if heading:
            section = heading[1]
            text = text[heading.end() :].strip()
        if section in LEFT_OUT or "lesson" in cell.metadata.get("tags", ()):
            continue
        title = title or section
        if heading and section != title:
            pieces.append(Markup("<h3>{}</h3>").format(section))
        if text:
            words = re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))
            pieces.append(Markup(f"<p>{words}</p>"))  # noqa: S704
        for output in cell.get("outputs", ()):
            pieces.append(_format_output(output, section, hide))
    return title, pieces


def _format_output(output: Any, section: str, hide: HideFolders) -> Markup:
    """Return a figure, a table or printed lines as HTML, "" for other outputs."""
    data = output.get("data", {})
    if "image/png" in data:
        figure = Markup('<img alt="{}" src="data:image/webp;base64,{}">')
        return WIDE.format(figure.format(section, _compress(data["image/png"])))
    # A progress bar has both.
    if "text/html" in data and "text/markdown" not in data:
        return WIDE.format(clean_table(data["text/html"], hide))
    if output.get("name") == "stdout" and output.text.strip():
        return Markup("<pre>{}</pre>").format(hide(output.text.strip()))
    return Markup()


def _compress(png: str) -> str:
    """Return a PNG in base64 as WebP, a sixth of the size for photographs."""
    webp = io.BytesIO()
    Image.open(io.BytesIO(b64decode(png))).save(webp, "WEBP", quality=85)
    return b64encode(webp.getvalue()).decode()
