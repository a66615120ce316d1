"""report.html: what a run has shown, on one page that needs no code, no server and no network."""

import io
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import pandas as pd
from markupsafe import Markup, escape
from PIL import Image

from kaggle_tfr import storage
from kaggle_tfr.parameters import DEFAULTS, NOTEBOOKS
from kaggle_tfr.paths import work_dir
from kaggle_tfr.shards import is_of_plan

COUNTED = re.compile(r"(?m)^.*: [\d,]+ of [\d,]+ in [\d,]+ s \(.*/s.*\)\n?")  # lines of progress
PAGE = Path(__file__).with_suffix(".html")


def write_report(values: Mapping[str, Any], copies: str | Path) -> str:
    """The path of report.html in WORK_DIR: headings, figures and tables of executed notebooks.

    A copy goes to each finished part of this plan, beside the shards (local folders only). copies:
    the folder of the notebooks; what is not there is left out, as lessons are. values: the run's
    parameters.
    """
    folder, paths = values["WORK_DIR"], {n: Path(copies, f"{n}.ipynb") for n in NOTEBOOKS}
    read = {name: nbformat.read(path, 4).cells for name, path in paths.items() if path.exists()}
    said, accounting = storage.read_text(storage.join(folder, "accounting.csv")), Markup()
    if said:
        table = pd.read_csv(io.StringIO(said), keep_default_na=False)
        formats = {"share": "{:.1%}".format}
        accounting = Markup(table.to_html(index=False, border=0, formatters=formats))  # noqa: S704
    unshown = {"Parameters", "Save", "Next"} | ({"Accounting"} if said else set())
    parts = [(name, *_read_cells(cells, unshown)) for name, cells in read.items()]
    page = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(PAGE.read_text())
    shown = {"name": values.get("NAME") or DEFAULTS["NAME"], "accounting": accounting}
    html = page.render(parts=parts, day=f"{datetime.now(UTC):%Y-%m-%d}", **shown)
    # It may be published, so nobody's folders are in it.
    folders = {values[one]: one for one in ("INPUT_DIR", "OUT_DIR", "WORK_DIR") if values.get(one)}
    more = [one["INPUT_DIR"] for one in values.get("MORE_INPUTS", ())]
    folders = {one: one.rstrip("/").rpartition("/")[2] for one in more} | folders
    for place in sorted(folders, key=lambda one: len(work_dir(one)), reverse=True):
        html = html.replace(str(escape(work_dir(place))), folders[place])
    whole = Path(work_dir(values.get("OUT_DIR") or folder)).glob("part-*/shards.csv")
    written = [path.parent for path in whole if is_of_plan(str(path.parent), folder)]
    for place in (*written, folder):
        storage.write_atomically(storage.join(place, "report.html"), html.encode())
    return storage.join(folder, "report.html")


def _read_cells(cells: Sequence[Any], unshown: set[str]) -> tuple[str, list[Markup]]:
    """The notebook's title, and the HTML of what is shown in its sections."""
    title, section, pieces = "", "", list[Markup]()
    for cell in cells:
        text = cell.source if cell.cell_type == "markdown" else ""
        if heading := re.match(r"#+ (?:\d+[.·]? ?·? )?(.*)", text):
            section, text = heading[1], text[heading.end() :].strip()
        if section in unshown or "lesson" in cell.metadata.get("tags", ()):
            continue
        title = title or section
        if heading and section != title:
            pieces.append(Markup("<h3>{}</h3>").format(section))
        if text:
            words = re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))
            pieces.append(Markup(f"<p>{words}</p>"))  # noqa: S704
        pieces += filter(None, (_show(one, section) for one in cell.get("outputs", ())))
    return title, pieces


def _show(output: Any, section: str) -> Markup:
    """A figure, a table or printed lines as HTML; nothing for progress bars and other values."""
    data = output.get("data", {})
    if "image/png" in data:
        small = io.BytesIO()  # a sixth of a PNG of photographs
        Image.open(io.BytesIO(b64decode(data["image/png"]))).save(small, "WEBP", quality=85)
        form = Markup('<div class="wide"><img alt="{}" src="data:image/webp;base64,{}"></div>')
        return form.format(section, b64encode(small.getvalue()).decode())
    if "text/html" in data and "text/markdown" not in data:
        table = data["text/html"].replace('border="1"', "")
        return Markup(f'<div class="wide">{table}</div>')  # noqa: S704
    said = COUNTED.sub("", output.text).strip() if output.get("name") == "stdout" else ""
    return Markup("<pre>{}</pre>").format(said) if said else Markup()
