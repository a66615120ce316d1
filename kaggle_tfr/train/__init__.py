"""06 and 07: devices, a network for each fold, a submission, the cost of leakage."""

from kaggle_tfr.train.devices import Devices, find_devices
from kaggle_tfr.train.folds import (
    FoldResult,
    Predictions,
    list_mistakes,
    predict_records,
    save_oof,
    score_results,
    train_fold,
)
from kaggle_tfr.train.leakage import (
    check_classes,
    estimate_inflation,
    find_copies,
    measure_inflation,
    plant_copies,
    score_folds,
    tear_clusters,
)
from kaggle_tfr.train.model import (
    IMAGENET,
    build_model,
    check_labels,
    copy_state,
    normalization,
    predict,
    time_epochs,
)
from kaggle_tfr.train.submission import fill_submission, write_submission
from kaggle_tfr.train.weights import find_weights, load_backbone
