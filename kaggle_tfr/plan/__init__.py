"""03: folds, the forecast, the plan."""

from kaggle_tfr.plan.findings import note_folds
from kaggle_tfr.plan.fold_checks import check_leakage, find_missing_classes
from kaggle_tfr.plan.folds import assign_folds
from kaggle_tfr.plan.folds_csv import FoldsFile, list_folds, save_folds
from kaggle_tfr.plan.forecast import make_forecast
from kaggle_tfr.plan.growth import check_growth, check_schema, drop_between, select_new
from kaggle_tfr.plan.part_hashes import save_fingerprints
from kaggle_tfr.plan.plan import Plan, PlanSettings, make_plan, read_plan, save_plan
from kaggle_tfr.plan.step import Planned, run
