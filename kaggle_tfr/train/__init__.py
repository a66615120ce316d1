"""06 and 07: devices, a small model, its errors, a submission, what leakage costs."""

from kaggle_tfr.train.training import (
    IMAGENET,
    Devices,
    build_model,
    check_labels,
    compare_throughput,
    count_confusions,
    estimate_inflation,
    fill_submission,
    find_devices,
    list_mistakes,
    normalization,
    predict,
    score_folds,
    time_epochs,
    write_submission,
)
