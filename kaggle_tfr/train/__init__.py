"""06: devices, a small model, its confusions."""

from kaggle_tfr.train.training import (
    build_model,
    compare_throughput,
    count_confusions,
    list_mistakes,
    strategy,
    time_epochs,
)
