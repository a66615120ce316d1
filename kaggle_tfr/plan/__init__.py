"""03: folds, the forecast, the plan."""

from kaggle_tfr.plan.examples import (
    choose_fold_example,
    crop_to_difference,
    load_textured,
)
from kaggle_tfr.plan.fold_checks import (
    check_leakage,
    compare_shares,
    describe_checks,
    describe_missing_classes,
    find_missing_classes,
)
from kaggle_tfr.plan.folds import assign_folds, count_moved, describe_moved
from kaggle_tfr.plan.folds_csv import FoldsFile, count_folds, list_folds, save_folds
from kaggle_tfr.plan.forecast import describe_resizing, make_forecast
from kaggle_tfr.plan.growth import (
    check_growth,
    check_schema,
    describe_drift,
    drop_between,
    measure_drift,
    select_new,
)
from kaggle_tfr.plan.part_hashes import save_fingerprints
from kaggle_tfr.plan.plan import (
    Plan,
    PlanSettings,
    compare_with_limits,
    list_planned,
    make_plan,
    read_plan,
    save_plan,
)
