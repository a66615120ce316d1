"""01: rows, labels, the table of images, the sample."""

from kaggle_tfr.explore.rows import InputSettings, read_table
from kaggle_tfr.explore.sample import input_or_sample, write_sample
from kaggle_tfr.explore.table import load_images, measure, sample_per_class, save_images

__all__ = [
    "InputSettings",
    "input_or_sample",
    "load_images",
    "measure",
    "read_table",
    "sample_per_class",
    "save_images",
    "write_sample",
]
