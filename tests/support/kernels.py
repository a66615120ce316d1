"""Kernels that `write_kernels` has made, read again."""

import json
from pathlib import Path

import nbformat

from kaggle_tfr.kaggle.metadata import KERNEL_FILE


def read_kernel(folder):
    """Return the cells and the metadata of a kernel."""
    cells = nbformat.read(Path(folder) / "kernel.ipynb", as_version=4).cells
    return cells, json.loads(Path(folder, KERNEL_FILE).read_text())
