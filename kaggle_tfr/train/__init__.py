"""06 and 07: devices, a small network, a submission, and what leakage costs."""

from kaggle_tfr.train.devices import Devices, find_devices
from kaggle_tfr.train.leakage import estimate_inflation, score_folds
from kaggle_tfr.train.model import (
    IMAGENET,
    build_model,
    check_labels,
    compare_throughput,
    count_confusions,
    list_mistakes,
    normalization,
    predict,
    time_epochs,
)
from kaggle_tfr.train.submission import fill_submission, write_submission
