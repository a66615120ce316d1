"""03: folds, the forecast, the plan."""

from kaggle_tfr.plan.folded import check_leakage, count_by_fold
from kaggle_tfr.plan.folds import assign_folds
from kaggle_tfr.plan.plan import Plan, PlanSettings, make_plan, read_plan, save_plan
from kaggle_tfr.plan.step import Planned, run
