"""Run the code of a notebook in this process, without a kernel."""

import ast
import json
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent


def list_cells(number):
    """Return the cells of code of a notebook, such as "06"."""
    [path] = ROOT.glob(f"notebooks/{number}_*.ipynb")
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run_notebook(number, values, until="", show=print):
    """Return the names that a notebook leaves.

    values: of its parameters; others are left out. until: the id of the last cell.
    show: what to do with the values that a cell displays.
    """
    names = {"display": show}
    for cell in list_cells(number):
        statements = ast.Interactive(ast.parse("".join(cell["source"])).body)
        with mock.patch.object(sys, "displayhook", show):
            exec(compile(statements, cell["id"], "single"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            names |= {key: value for key, value in values.items() if key in names}
        if cell["id"] == until:
            break
    return names
