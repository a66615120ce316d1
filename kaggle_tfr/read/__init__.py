"""05: from part folders to batches, and single records."""

from kaggle_tfr.read.batches import (
    choose_fold,
    count_steps,
    list_folds,
    read_batches,
    to_devices,
)
from kaggle_tfr.read.parts import find_images, find_submission, list_classes
from kaggle_tfr.read.records import Records
from kaggle_tfr.shards import choose_folders, find_shards
