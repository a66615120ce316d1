"""Kernels that `write_kernels` has made, read again."""

from pathlib import Path

import nbformat

from kaggle_tfr.kaggle.metadata import KERNEL_FILE, check_metadata


def read_kernel(folder):
    """Return the cells and the metadata of a kernel."""
    cells = nbformat.read(Path(folder) / "kernel.ipynb", as_version=4).cells
    return cells, check_metadata(str(folder), KERNEL_FILE)
