"""01: rows, labels, the table of images, the sample."""

from kaggle_tfr.explore.rows import InputSettings, read_table
from kaggle_tfr.explore.sample import input_or_sample, write_sample
from kaggle_tfr.explore.table import load_images, measure, sample_per_class, save_images
