"""01: rows, labels, the table of images, the sample."""

from kaggle_tfr.explore.inputs import read_table, save_submission
from kaggle_tfr.explore.sample import input_or_sample, write_sample
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.explore.table import (
    count_rows,
    load_hashes,
    load_images,
    measure,
    sample_per_class,
    save_images,
    save_rejects,
)
