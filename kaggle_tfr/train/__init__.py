"""06 and 07: devices, a small model, its confusions, a submission, what leakage costs."""

from kaggle_tfr.train.devices import Devices, find_devices, predict
from kaggle_tfr.train.submission import fill_submission, write_submission
from kaggle_tfr.train.training import (
    build_model,
    compare_throughput,
    count_confusions,
    estimate_inflation,
    list_mistakes,
    score_folds,
    time_epochs,
)
