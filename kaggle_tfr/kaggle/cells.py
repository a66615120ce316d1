"""The cells of a kernel: its header, its parameters, the package, and the steps."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from papermill.translators import PythonTranslator

from kaggle_tfr.find import OWNER_PLACEHOLDER, bundled, to_slug
from kaggle_tfr.kaggle.carrier import describe_package, format_carrier
from kaggle_tfr.kaggle.folders import LocalFolder, list_commands
from kaggle_tfr.parameters import DEFAULTS, PARAMETERS, Values, select_parameters
from kaggle_tfr.version import REPOSITORY, __version__

HEADER = Path(__file__).with_name("header.md")
EXPLORE = "01_explore"

# Above the calls of kaggle.session before a step.
_OPENING = """\
# Continue with the output of earlier sessions, if it is attached.
from kaggle_tfr.kaggle import session
from kaggle_tfr.find import work_dir
"""
_KERNELSPEC = {"name": "python3", "display_name": "Python 3", "language": "python"}
# Folds a cell, in JupyterLab and on Kaggle.
_HIDDEN = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}
_LINKS = re.compile(r"\n\n.*\.ipynb\).*")  # of a notebook to the others
MAX_LINE = 100  # of the visible parameters, before a comment gets its own line


@dataclass(frozen=True)
class Kernel:
    """A kernel to write.

    steps: its notebooks. values: the recipe's parameters.
    metadata: keys of kernel-metadata.json that replace the usual values.
    openings: lines that call kaggle.session before a step, by step.
    family: "" for a kernel of its own, else the command that makes all of its recipe.
    new_datasets: of folders of this machine, to create before it runs.
    """

    title: str
    steps: Sequence[str]
    values: Values
    metadata: dict[str, Any] = field(default_factory=dict)
    openings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    family: str = ""
    new_datasets: Sequence[LocalFolder] = ()

    @property
    def slug(self) -> str:
        """Return the slug that Kaggle makes of its title."""
        return to_slug(self.title)

    @property
    def own_data(self) -> tuple[str, ...]:
        """Return the three parameters to change for other data.

        It is () if they do not suffice.
        """
        if self.family:
            return ()
        if EXPLORE not in self.steps:
            return "TFREC_DIRS", "FOLD", "EPOCHS"
        if self.values.get("INPUT_SCHEMA"):
            return "INPUT_DIR", "PATTERN", "INPUT_SCHEMA"
        return "INPUT_DIR", "LABELS_CSV", "LABEL_COLUMN"


def format_notebook(kernel: Kernel) -> str:
    """Return the text of a notebook that carries the package and has all its steps.

    Equal kernels give equal bytes.
    """
    cells = [new_markdown_cell(format_header(kernel))]
    cells += _make_settings(kernel)
    cells.append(new_markdown_cell(describe_package()))
    cells.append(new_code_cell(format_carrier(), metadata=_HIDDEN))
    for step in kernel.steps:
        if calls := kernel.openings.get(step):
            cells.append(new_code_cell("\n".join([_OPENING, *calls])))
        cells += _read_cells(step)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02d}"
    notebook = new_notebook(cells=cells, metadata={"kernelspec": _KERNELSPEC})
    # Whole sources instead of lists of lines: the archive's text stays smaller.
    return nbformat.writes(notebook, split_lines=False) + "\n"


def format_header(kernel: Kernel) -> str:
    """Return the first cell: what the kernel does, reads, writes, takes and needs."""
    return jinja2.Template(HEADER.read_text(), trim_blocks=True).render(
        kernel=kernel,
        placeholder=OWNER_PLACEHOLDER,
        repository=REPOSITORY,
        version=__version__,
        list_commands=list_commands,
    )


def _make_settings(kernel: Kernel) -> list[Any]:
    """Return the cells of the parameters; those of the recipe are visible."""
    parameters = [name for step in kernel.steps for name in select_parameters(step)]
    values = {name: DEFAULTS[name] for name in kernel.own_data}
    values |= {
        name: value for name, value in kernel.values.items() if name in parameters
    }
    others = {name: DEFAULTS[name] for name in parameters if name not in values}
    return [
        new_code_cell(_format_values(others), metadata=_HIDDEN),
        new_code_cell(_format_values(values), metadata={"tags": ["parameters"]}),
    ]


def _format_values(values: Values) -> str:
    """Return a line for each parameter, with its description."""
    lines = []
    for name, value in values.items():
        line = f"{name} = {PythonTranslator.translate(value)}"
        comment = f"# {PARAMETERS[name].description}"
        if len(line) + len(comment) < MAX_LINE:
            lines.append(f"{line}  {comment}".rstrip(" #"))  # a few have no comment
        else:
            lines += [comment, line]
    return "\n".join(lines)


def _read_cells(step: str) -> list[Any]:
    """Return the cells of a notebook, without its parameters and links."""
    notebook = nbformat.read(bundled("notebooks") / f"{step}.ipynb", as_version=4)
    cells = []
    for cell in notebook.cells:
        is_parameters = "parameters" in cell.metadata.get("tags", [])
        is_left_out = cell.source.startswith(("## Parameters", "## Next"))
        if not is_parameters and not is_left_out:
            cells.append(cell)
    # A kernel has a table of contents in place of the links to the other notebooks.
    cells[0].source = _LINKS.sub("", cells[0].source)
    return cells
