"""05: from part folders to batches, and what people want to see of them."""

from kaggle_tfr.read.batches import (
    choose_fold,
    count_steps,
    read_batches,
    read_images,
    to_devices,
)
from kaggle_tfr.read.display import (
    choose_displayed_shards,
    compare_speeds,
    count_images,
    describe_missing_classes,
    find_first_masks,
    format_labels,
    list_reader_steps,
    measure_speed,
    pair_with_sources,
)
from kaggle_tfr.read.records import Records
from kaggle_tfr.schema import list_fields
from kaggle_tfr.shards import find_shards
