"""01: rows, labels, the table of images."""

from kaggle_tfr.explore.bundled import input_or_sample
from kaggle_tfr.explore.groups import add_groups, find_groups
from kaggle_tfr.explore.inputs import read_table
from kaggle_tfr.explore.step import run
from kaggle_tfr.explore.table import (
    load_hashes,
    load_images,
    measure,
    save_images,
    save_rejects,
)
