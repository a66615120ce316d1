"""The cells of a kernel: its header, its parameters, the package, and the steps."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from kaggle_tfr.find import bundled
from kaggle_tfr.kaggle.carrier import format_carrier
from kaggle_tfr.parameters import DEFAULTS, PARAMETERS, Values, select_parameters

HEADER = Path(__file__).with_name("header.md")
_OPENING = """\
# Continue with the output of an earlier session, if it is attached.
from kaggle_tfr.kaggle import session

session.copy_output("{slug}", "/kaggle/working")
{more}"""
_KERNELSPEC = {"name": "python3", "display_name": "Python 3", "language": "python"}
# Folds a cell, in JupyterLab and on Kaggle.
_HIDDEN = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}
_LINKS = re.compile(r"\n\n.*\.ipynb\).*")  # of a notebook to the others


def format_notebook(
    metadata: Mapping[str, Any],
    steps: Sequence[str],
    values: Values,
    opening: str = "",
) -> str:
    """Return the JSON of a notebook that contains the package and runs these steps.

    Its cells are a header, the parameters, the package, and those of the notebooks.
    metadata: of kernel-metadata.json. steps: names of notebooks, such as "03_plan".
    values: the recipe's parameters. opening: more code that runs before the first step.
    Equal arguments give equal bytes.
    """
    cells_of_steps = [_read_cells(step) for step in steps]
    # A notebook's first line is its title.
    headings = [cells[0].source.splitlines()[0] for cells in cells_of_steps]
    template = jinja2.Template(HEADER.read_text(), trim_blocks=True)
    # Cells with _HIDDEN are folded. _OPENING copies the output of an earlier session of
    # this kernel, if that is attached; then it has the code `opening`.
    cells = [
        new_markdown_cell(template.render(headings=headings, metadata=metadata)),
        *_make_settings(steps, values),
        new_code_cell(format_carrier(), metadata=_HIDDEN),
        new_code_cell(_OPENING.format(slug=Path(metadata["id"]).name, more=opening)),
        *chain(*cells_of_steps),
    ]
    # The ids that nbformat makes are random.
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02d}"
    notebook = new_notebook(cells=cells, metadata={"kernelspec": _KERNELSPEC})
    # Whole sources instead of lists of lines: the archive's text stays smaller.
    return nbformat.writes(notebook, split_lines=False) + "\n"


def _make_settings(steps: Sequence[str], values: Values) -> list[Any]:
    """Return two cells that set the parameters of the steps.

    The first one, which is folded, has the defaults; the second one has the recipe's
    values.
    """
    names = [name for step in steps for name in select_parameters(step)]
    changes = {name: values[name] for name in names if name in values}
    defaults = {name: DEFAULTS[name] for name in names if name not in values}
    return [
        new_code_cell(_format_values(defaults), metadata=_HIDDEN),
        new_code_cell(_format_values(changes), metadata={"tags": ["parameters"]}),
    ]


def _format_values(values: Values) -> str:
    """Return a line of code for each parameter, with its description as a comment."""
    # Without a description, the comment is empty and is removed.
    lines = [
        f"{name} = {value!r}  # {PARAMETERS[name].description}".rstrip(" #")
        for name, value in values.items()
    ]
    return "\n".join(lines)


def _read_cells(step: str) -> list[Any]:
    """Return the cells of a notebook, without its parameters and links.

    step: the notebook's name, such as "03_plan".
    """
    path = bundled("notebooks") / f"{step}.ipynb"
    # Left out: text and code of the parameters, after the header, and the last cell,
    # which has a link to the next notebook.
    header, _, _, *cells, _ = nbformat.read(path, as_version=4).cells
    # A kernel has a table of contents in place of the links to the other notebooks.
    header.source = _LINKS.sub("", header.source)
    return [header, *cells]
