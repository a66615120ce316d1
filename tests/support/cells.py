"""Run single cells of the notebooks, for the code that a reader copies."""

import numpy as np
import pandas as pd

from kaggle_tfr import explore, figures, notebook
from support.notebooks import list_cells

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
    names |= IMPORTED
    for cell in list_cells(ids[0][:2]):
        if cell["id"] in ids:
            exec("".join(cell["source"]), names)
    return names
