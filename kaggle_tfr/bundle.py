"""One notebook out of several, with the package inside: what `kaggle kernels push` can carry."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kaggle_tfr.carrier import PACKAGE, carrier_cell, find_requirements, zip_package
from kaggle_tfr.kaggle_rules import MAX_NOTEBOOK_BYTES

NOTEBOOKS = PACKAGE.parent / "notebooks"


def join_notebooks(
    names: Sequence[str],
    values: Mapping[str, Any],
    *,
    title: str,
    openings: Mapping[str, Sequence[str]] | None = None,
    replacements: Mapping[str, str] | None = None,
) -> dict:
    """A notebook with the cells of several, one parameters cell, and the package in its first cell.

    values: parameters to fill in, as papermill does it.
    openings: cells to run before a notebook's own, by notebook.
    replacements: text to put in place of another; each must occur.

    Raises:
        ValueError: the notebook is larger than Kaggle takes, or a text to replace is not there.
    """
    body, parameters, metadata = [], [], {}
    for name in names:
        step = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
        metadata = step["metadata"]
        cells = [dict(cell) | {"source": "".join(cell["source"])} for cell in step["cells"]]
        parameters += [cell["source"] for cell in cells if _is_parameters(cell)]
        body += [_code(source) for source in (openings or {}).get(name, [])]
        body += [cell for cell in cells if not _is_frame(cell)]
    _replace(body, replacements or {})
    sources = [cell["source"] for cell in body if cell["cell_type"] == "code"]
    joined = [
        _markdown(f"# {title}\n\nMade by `python -m kaggle_tfr kernel` out of {_list(names)}."),
        _code(carrier_cell(zip_package(), find_requirements(sources))),
        _markdown("## Parameters\n\nThe defaults, and below them what the recipe sets."),
        _code(_merge_parameters(parameters), ["parameters"]),
        *([_code(_injected(values), ["injected-parameters"])] if values else []),
        *body,
    ]
    notebook = {
        "cells": [cell | {"id": f"cell-{number:02d}"} for number, cell in enumerate(joined)],
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    _check_size(notebook)
    return notebook


def to_text(notebook: Mapping) -> str:
    """The notebook as the text of its file."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _is_parameters(cell: Mapping) -> bool:
    return "parameters" in cell["metadata"].get("tags", [])


def _is_frame(cell: Mapping) -> bool:
    """Whether a cell is a single notebook's own frame: its parameters and what comes next."""
    headings = ("## Parameters", "## Next")
    is_heading = cell["cell_type"] == "markdown" and cell["source"].startswith(headings)
    return is_heading or _is_parameters(cell)


def _replace(cells: Iterable[dict], replacements: Mapping[str, str]) -> None:
    cells = list(cells)
    for old, new in replacements.items():
        found = [cell for cell in cells if old in cell["source"]]
        if not found:
            raise ValueError(f"No notebook holds the line '{old}', which a kernel has to replace.")
        for cell in found:
            cell["source"] = cell["source"].replace(old, new)


def _check_size(notebook: Mapping) -> None:
    size = len(to_text(notebook).encode())
    if size >= MAX_NOTEBOOK_BYTES:
        raise ValueError(
            f"The notebook has {size:,} bytes and Kaggle takes less than {MAX_NOTEBOOK_BYTES:,}. "
            "Put a large parameter, such as a label map, into an attached dataset."
        )


def _merge_parameters(sources: Iterable[str]) -> str:
    """Every parameter once, with its comment, in the order of the notebooks."""
    lines = {}
    for source in sources:
        for line in source.splitlines():
            lines.setdefault(line.split("=")[0].strip(), line)
    return "\n".join(lines.values())


def _injected(values: Mapping[str, Any]) -> str:
    from papermill.translators import PythonTranslator

    return PythonTranslator.codify(dict(values), "From the recipe").rstrip()


def _code(source: str, tags: Sequence[str] = ()) -> dict:
    metadata = {"tags": list(tags)} if tags else {}
    empty = {"execution_count": None, "outputs": []}
    return {"cell_type": "code", "metadata": metadata, "source": source, **empty}


def _markdown(source: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
