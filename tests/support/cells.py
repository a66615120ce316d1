"""Run single cells of the notebooks, for the code that a reader copies."""

import json
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import explore, figures, notebook, tables
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.images.masks import decode_mask
from support.chain import ROOT

IMPORTED = {
    "decode_mask": decode_mask,
    "display": print,
    "explore": explore,
    "figures": figures,
    "load_pixels": load_pixels,
    "notebook": notebook,
    "np": np,
    "pd": pd,
    "tables": tables,
}


def run_cells(*ids: str, **names: Any) -> dict[str, Any]:
    """Return the names after these cells of 01, which begin with `names`."""
    content = json.loads((ROOT / "notebooks" / "01_explore.ipynb").read_text())
    cells = {cell["id"]: "".join(cell["source"]) for cell in content["cells"]}
    names |= IMPORTED
    for cell_id in ids:
        exec(cells[cell_id], names)
    return names
