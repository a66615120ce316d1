"""Run single cells of the notebooks, for the code that a reader copies."""

import json

import numpy as np
import pandas as pd

from kaggle_tfr import explore, figures, notebook
from support.chain import ROOT

IMPORTED = {
    "display": print,
    "explore": explore,
    "figures": figures,
    "notebook": notebook,
    "np": np,
    "pd": pd,
}


def run_cells(*ids, **names):
    """Return the names after these cells of a notebook, which begin with `names`."""
    [path] = ROOT.glob(f"notebooks/{ids[0][:2]}_*.ipynb")
    content = json.loads(path.read_text())
    cells = {cell["id"]: "".join(cell["source"]) for cell in content["cells"]}
    names |= IMPORTED
    for cell_id in ids:
        exec(cells[cell_id], names)
    return names
