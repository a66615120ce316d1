"""report.html: what a run has shown, on one page that needs no code, no server and no network."""

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

COUNTED = re.compile(
    r"(?m)^.*: [\d,]+ of [\d,]+ in [\d,]+ s \(.*/s.*\)\n?"
)  # lines of progress
PAGE = Path(__file__).with_suffix(".html")


def write_report(values: Mapping[str, Any], copies: str | Path) -> str:
    """The path of report.html in WORK_DIR: headings, figures and tables of executed notebooks.

    A copy goes to each finished part of this plan, beside the shards (local folders only). copies:
    the folder of the notebooks; what is not there is left out, as lessons are. values: the run's
    parameters.
    """
    folder, paths = (
        values["WORK_DIR"],
        {n: Path(copies, f"{n}.ipynb") for n in NOTEBOOKS},
    )
    read = {
        name: nbformat.read(path, 4).cells
        for name, path in paths.items()
        if path.exists()
    }
    hide = partial(_hide_folders, _name_folders(values))
    said, accounting = (
        storage.read_text(storage.join(folder, "accounting.csv")),
        Markup(),
    )
    if said:
        table = pd.read_csv(io.StringIO(said), keep_default_na=False)
        accounting = clean_table(show_table(table, {"share": "{:.1%}"}).html, hide)
    unshown = {"Parameters", "Save", "Next"} | ({"Accounting"} if said else set())
    parts = [(name, *_read_cells(cells, unshown, hide)) for name, cells in read.items()]
    page = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(
        PAGE.read_text()
    )
    shown = {"name": values.get("NAME") or DEFAULTS["NAME"], "accounting": accounting}
    html = page.render(parts=parts, day=f"{datetime.now(UTC):%Y-%m-%d}", **shown)
    whole = Path(work_dir(values.get("OUT_DIR") or folder)).glob("part-*/shards.csv")
    written = [path.parent for path in whole if is_of_plan(str(path.parent), folder)]
    for place in (*written, folder):
        storage.write_atomically(storage.join(place, "report.html"), html.encode())
    return storage.join(folder, "report.html")


def _name_folders(values: Mapping[str, Any]) -> dict[str, str]:
    """The name to show in place of each folder of a run, the longest folder first."""
    names = dict[str, str]()
    for given in values.get("MORE_INPUTS", ()):
        place = given["INPUT_DIR"]
        names[work_dir(place)] = place.rstrip("/").rpartition("/")[2]
    for parameter in ("INPUT_DIR", "OUT_DIR", "WORK_DIR"):
        if values.get(parameter):
            names[work_dir(values[parameter])] = parameter
    names.pop("/", None)  # the top of every path
    return dict(sorted(names.items(), key=lambda item: len(item[0]), reverse=True))


def _hide_folders(names: Mapping[str, str], text: str) -> str:
    """The text with a name in place of each folder: the page may be published.

    A folder counts where a path begins with it. pandas cuts long texts, which end in "...".
    """
    for folder, name in names.items():
        as_path = rf"(?<![\w.-]){re.escape(folder)}(?!\.?[\w-])"
        text = name.join(re.split(as_path, text))
        if text.endswith("...") and len(text) > 4 and folder.startswith(text[:-3]):
            text = f"{name}..."
    return text


def _read_cells(
    cells: Sequence[Any], unshown: set[str], hide: Callable[[str], str]
) -> tuple[str, list[Markup]]:
    """The notebook's title, and the HTML of what is shown in its sections.

    hide: a function that takes private folders out of a text.
    """
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
        outputs = (_show(output, section, hide) for output in cell.get("outputs", ()))
        pieces += filter(None, outputs)
    return title, pieces


def _show(output: Any, section: str, hide: Callable[[str], str]) -> Markup:
    """A figure, a table or printed lines as HTML; nothing for progress bars and other values."""
    data = output.get("data", {})
    if "image/png" in data:
        small = io.BytesIO()  # a sixth of a PNG of photographs
        Image.open(io.BytesIO(b64decode(data["image/png"]))).save(
            small, "WEBP", quality=85
        )
        form = Markup(
            '<div class="wide"><img alt="{}" src="data:image/webp;base64,{}"></div>'
        )
        return form.format(section, b64encode(small.getvalue()).decode())
    if "text/html" in data and "text/markdown" not in data:
        return Markup('<div class="wide">{}</div>').format(
            clean_table(data["text/html"], hide)
        )
    said = (
        COUNTED.sub("", output.text).strip() if output.get("name") == "stdout" else ""
    )
    return Markup("<pre>{}</pre>").format(hide(said)) if said else Markup()
