"""05: from part folders to batches, and what people want to see of them."""

from kaggle_tfr.earlier import choose_folders
from kaggle_tfr.read.batches import (
    choose_fold,
    count_steps,
    list_folds,
    read_batches,
    read_images,
    to_devices,
)
from kaggle_tfr.read.display import (
    choose_displayed_shards,
    compare_speeds,
    count_images,
    cut_windows,
    describe_missing_classes,
    find_first_masks,
    format_labels,
    measure_speed,
    name_validation,
    pair_with_sources,
)
from kaggle_tfr.read.parts import find_images, find_submission, list_classes
from kaggle_tfr.read.records import Records
from kaggle_tfr.schema import list_fields
from kaggle_tfr.shards import find_shards
