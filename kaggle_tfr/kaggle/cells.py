"""The cells of a kernel: its header, its parameters, the package, and the steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from papermill.translators import PythonTranslator

from kaggle_tfr.kaggle.carrier import describe_package, format_carrier
from kaggle_tfr.mounts import OWNER_PLACEHOLDER, bundled, to_slug
from kaggle_tfr.parameters import (
    DEFAULT_NOTEBOOKS,
    DEFAULTS,
    PARAMETERS,
    format_cell,
    select_parameters,
)
from kaggle_tfr.version import REPOSITORY, __version__

Values = Mapping[str, Any]

PLANNING = DEFAULT_NOTEBOOKS[:3]
EXPLORE = DEFAULT_NOTEBOOKS[0]
WRITE = DEFAULT_NOTEBOOKS[3]
TRAINING = (DEFAULT_NOTEBOOKS[4], "06_train")

_KERNELSPEC = {"name": "python3", "display_name": "Python 3", "language": "python"}
# Folds a cell, in JupyterLab and on Kaggle.
_HIDDEN = {"jupyter": {"source_hidden": True}, "_kg_hide-input": True}
MAX_LINE = 100  # of the visible parameters, before a comment gets its own line

# What a kernel does, by its last step.
_PURPOSES = {
    "03_plan": """\
Checks the labelled images {images}, finds their near-duplicates and the images that \
are also in the test set, and plans the TFRecord files: near-duplicates stay together \
in one fold or split. Other notebooks write the parts of this plan.""",
    "04_write": """\
Writes part {part} of a plan as TFRecord files that train fast on a TPU or GPU, reads \
every record again, and compares a sample with its source images. Another notebook has \
made the plan.""",
    "05_read_and_visualize": """\
Turns the labelled images {images} into TFRecord files that train fast on a TPU or \
GPU. Before it writes, it rejects unreadable images, finds near-duplicates, images \
with two labels, and images that are also in the test set, and keeps near-duplicates \
together in one fold or split.""",
    "06_train": """\
Reads TFRecord files, shows what a model receives, and trains a network for each fold, \
which shares no near-duplicate with the others. It leaves out-of-fold predictions, a \
mean score with its deviation, and an averaged submission.""",
}
# What a step does, and the files that it writes.
_STEPS = {
    "01_explore": (
        "reads every image once; rejects what cannot be used, with the reason",
        "`images.parquet`, `labels.json`, `rejects.csv`, `hashes.parquet`",
    ),
    "02_deduplicate": (
        "finds near-duplicates, contradicting labels, and labelled test images",
        "`duplicates.parquet`, `leaks.csv`",
    ),
    "03_plan": (
        "assigns the folds and the files; forecasts their size and the time to write",
        "`folds.csv`, `plan.parquet`, `plan.json`",
    ),
    "04_write": (
        "writes the TFRecord files; reads every record again",
        "a folder for each part: TFRecord files, `schema.json`, `SHA256SUMS` …",
    ),
    "05_read_and_visualize": (
        "shows batches and records beside their sources; measures the reading speed",
        "figures",
    ),
    "06_train": (
        "trains a model for each fold on the others, and predicts that fold",
        "`oof.csv`, `oof.npy`, a model per fold; `submission.csv` of test images",
    ),
}
# The three lines to change for other data: images, shards, and for training.
_OWN_IMAGES = ("INPUT_DIR", "LABELS_CSV", "LABEL_COLUMN")
_OWN_SHARDS = ("INPUT_DIR", "PATTERN", "INPUT_SCHEMA")
_OWN_PARTS = ("TFREC_DIRS", "FOLD", "EPOCHS")
# The inputs and their pages, by their keys in kernel-metadata.json.
_PAGES = {
    "competition_sources": ("the competition", "https://www.kaggle.com/competitions"),
    "dataset_sources": ("the dataset", "https://www.kaggle.com/datasets"),
    "kernel_sources": ("the output of", "https://www.kaggle.com/code"),
}
# What other data does not have: a second input, columns and files.
_THIS_DATA_ONLY = (
    "MORE_INPUTS",
    "GROUP_COLUMN",
    "SPLIT_COLUMN",
    "LABEL_MAP",
    "OVERRIDES",
)
_OUTPUT = """\
the files in the last column of the table, in `/kaggle/working`. *Output*, *New \
Dataset* on the notebook's page makes a dataset of them."""
_MINUTES = {
    "04_write": "the planning notebook has printed a forecast for each part.",
    "06_train": "about 1 for the bundled sample on two CPU cores; `EPOCHS` decides.",
}
_MINUTES_OF_ALL = """\
about 2 for 4,300 photographs of 500 × 375 pixels on two cores. Step 3 prints a \
forecast before anything is written, and `LIMIT = 500` makes a quick try."""


@dataclass(frozen=True)
class Kernel:
    """A kernel to write.

    steps: its notebooks. values: the recipe's parameters.
    metadata: keys of kernel-metadata.json that replace the usual values.
    openings: lines that call kaggle.session before a step, by step.
    family: "" for a kernel of its own, else the command that makes all of its recipe.
    preparation: what has to be done on Kaggle before it runs, in Markdown.
    """

    title: str
    steps: Sequence[str]
    values: Values
    metadata: dict[str, Any] = field(default_factory=dict)
    openings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    family: str = ""
    preparation: str = ""

    @property
    def slug(self) -> str:
        """Return the slug that Kaggle makes of its title."""
        return to_slug(self.title)

    @property
    def own_data(self) -> tuple[str, ...]:
        """Return the parameters to change for other data, () if they do not suffice."""
        if self.family:
            return ()
        if EXPLORE not in self.steps:
            return _OWN_PARTS
        return _OWN_SHARDS if self.values.get("INPUT_SCHEMA") else _OWN_IMAGES


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
            cells.append(_make_opening_cell(calls))
        cells += _read_cells(step)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:02d}"
    notebook = new_notebook(cells=cells, metadata={"kernelspec": _KERNELSPEC})
    # Whole sources instead of lists of lines: the archive's text stays smaller.
    return nbformat.writes(notebook, split_lines=False) + "\n"


def format_header(kernel: Kernel) -> str:
    """Return the first cell: what the kernel does, reads, writes, takes and needs."""
    purpose = _PURPOSES[kernel.steps[-1]].format(
        images=_name_images(kernel), part=kernel.values.get("PART")
    )
    facts = {
        "Input": _list_inputs(kernel),
        "Output": _OUTPUT,
        "Minutes": _MINUTES.get(kernel.steps[-1], _MINUTES_OF_ALL),
        "For your own images": _describe_change(kernel),
        "Code": _name_package(),
    }
    sections = [f"# {kernel.title}", purpose]
    if kernel.preparation:
        sections.append(kernel.preparation)
    sections.append("\n".join(f"- **{name}**: {text}" for name, text in facts.items()))
    sections.append(_format_contents(kernel.steps))
    return "\n\n".join(sections)


def _name_images(kernel: Kernel) -> str:
    name = kernel.values.get("INPUT_DIR")
    return (
        f"in `{name}`"
        if name
        else "of a sample competition, which this notebook draws,"
    )


def _list_inputs(kernel: Kernel) -> str:
    """Return the inputs, with links to their pages."""
    inputs = []
    for key, (noun, page) in _PAGES.items():
        for name in kernel.metadata.get(key, ()):
            slug = name.removeprefix(f"{OWNER_PLACEHOLDER}/")
            link = f"[{name}]({page}/{name})" if slug == name else f"your `{slug}`"
            inputs.append(f"{noun} {link}")
    if not inputs:
        return "nothing is attached."
    text = f"{', '.join(inputs)}; attached."
    if kernel.metadata.get("competition_sources"):
        text += " Accept the rules of the competition first."
    return text


def _describe_change(kernel: Kernel) -> str:
    """Return which lines to change for other data."""
    names = kernel.own_data
    if not names:
        return (
            "write a recipe with `kaggle-tfr init FOLDER`, and generate this notebook "
            f"and those that belong to it with `{kernel.family}`."
        )
    first, second, third = names
    text = (
        "attach them with *Add Input*, and change three lines of the "
        f"[settings](#Settings): `{first}`, `{second}` and `{third}`."
    )
    if "LABELS_CSV" in names:
        text += " `ID_COLUMN` and `LABEL_COLUMN` are the columns of that CSV."
    unfit = [f"`{name}`" for name in _THIS_DATA_ONLY if kernel.values.get(name)]
    if unfit:
        text += f" Remove what describes the present images only: {', '.join(unfit)}."
    return text


def _name_package() -> str:
    name = f"[kaggle-tfr]({REPOSITORY})" if REPOSITORY else "kaggle-tfr"
    return (
        f"{name} {__version__}, Apache 2.0. This notebook contains a copy; "
        "[the package](#The-package) explains how to check it."
    )


def _format_contents(steps: Sequence[str]) -> str:
    """Return a table of the steps, with links to their headings."""
    lines = ["| step | what it does | it writes |", "|---|---|---|"]
    for step in steps:
        heading = _read_cells(step)[0].source.splitlines()[0].removeprefix("# ")
        anchor = heading.replace(" ", "-")
        task, files = _STEPS[step]
        label = heading.partition(":")[0]
        lines.append(f"| [{label}](#{anchor}) | {task} | {files} |")
    return "\n".join(lines)


def _make_settings(kernel: Kernel) -> list[Any]:
    """Return the cells of the parameters; those of the recipe are visible."""
    known = [p.name for step in kernel.steps for p in select_parameters(step)]
    values = {name: DEFAULTS[name] for name in kernel.own_data}
    values |= {name: value for name, value in kernel.values.items() if name in known}
    # A parameter of several notebooks is listed once.
    defaults = dict.fromkeys(
        line
        for step in kernel.steps
        for line in format_cell(step).splitlines()
        if line[0] != "#" and line.partition(" = ")[0] not in values
    )
    text = (
        "## Settings\n\nThe visible cell has the settings of this dataset. The folded "
        "cell has all others, with their defaults; to change one, write its line into "
        "the visible cell, which is run after it."
    )
    return [
        new_markdown_cell(text),
        new_code_cell("\n".join(defaults), metadata=_HIDDEN),
        new_code_cell(_format_values(values), metadata={"tags": ["parameters"]}),
    ]


def _format_values(values: Values) -> str:
    """Return a line for each parameter, with its description."""
    lines = []
    for name in PARAMETERS:
        if name not in values:
            continue
        line = f"{name} = {PythonTranslator.translate(values[name])}"
        description = PARAMETERS[name].description
        comment = f"# {description}" if description else ""
        if len(line) + len(comment) < MAX_LINE:
            lines.append(f"{line}  {comment}".rstrip())
        else:
            lines += [comment, line]
    return "\n".join(lines)


def _make_opening_cell(calls: Sequence[str]) -> Any:
    """Return the cell that prepares the session for a step."""
    lines = [
        "# Continue with the output of earlier sessions, if it is attached.",
        "from kaggle_tfr.kaggle import session",
        "from kaggle_tfr.mounts import work_dir\n",
        *calls,
    ]
    return new_code_cell("\n".join(lines))


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
    title = cells[0]
    paragraphs = title.source.split("\n\n")
    kept = [text for text in paragraphs if ".ipynb)" not in text]
    title.source = "\n\n".join(kept)
    return cells
