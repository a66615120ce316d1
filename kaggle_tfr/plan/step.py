"""03 in one call: assign folds, forecast the size, and plan the shards."""

from dataclasses import dataclass, replace

import pandas as pd

from kaggle_tfr import deduplicate, explore, notebook
from kaggle_tfr.earlier import load_earlier
from kaggle_tfr.fingerprints import add_fingerprints
from kaggle_tfr.parameters import Values, make_settings
from kaggle_tfr.plan.fold_checks import check_leakage, compare_sample, note_folds
from kaggle_tfr.plan.folds import assign_folds
from kaggle_tfr.plan.folds_csv import list_folds, save_folds
from kaggle_tfr.plan.growth import check_growth, drop_between
from kaggle_tfr.plan.plan import Plan, PlanSettings, make_plan, save_plan
from kaggle_tfr.schema import load_schema
from kaggle_tfr.shards import PlanId


@dataclass(frozen=True)
class Planned:
    """What 03 decided.

    folds: the table of folds.csv, one row per image.
    folded: the images that are kept, with their split and fold.
    plan: as 04 needs it. table: of the planned images, one row per record.
    """

    folds: pd.DataFrame
    folded: pd.DataFrame
    plan: Plan
    table: pd.DataFrame


def run(values: Values) -> Planned:
    """Assign folds, forecast the size, plan the shards, and save the files for 04.

    values: the parameters of 03 by name, for example a notebook's `globals()`.
    Raises: FileNotFoundError: 01 or 02 has not run; ValueError: no folds or parts
    fulfil the parameters, or the folds leak.
    """
    work = notebook.begin("03_plan", values)
    images, labels, cut_pairs = deduplicate.load_corrected(work)
    clusters, duplicates = deduplicate.load_clusters(work)
    rows = deduplicate.choose_rows(images, clusters)
    earlier = load_earlier(work)
    settings = make_settings(PlanSettings, {**values, "BIT_DEPTH": labels.bit_depth})
    schema = load_schema(values["SCHEMA"], rows, labels)
    check_growth(earlier, rows, settings, schema)
    rows, clusters = drop_between(rows, clusters, settings)

    folded = assign_folds(
        rows,
        n_folds=settings.n_folds,
        seed=settings.seed,
        validation_size=settings.validation_size,
        label_columns=labels.class_columns,
        group_column=settings.group_column,
        extra_in_validation=settings.extra_in_validation,
    )
    hashes = explore.load_hashes(images, work)
    checks = check_leakage(folded, settings.group_column)
    checks |= compare_sample(folded, hashes, duplicates.max_bits, cut_pairs)
    note_folds(folded, labels, checks, duplicates.max_bits)
    folds = list_folds(images, clusters, folded, labels.label_columns)
    folds_bytes, folds_sha256 = save_folds(folds, work)

    plan, table = make_plan(
        folded,
        labels,
        schema,
        settings,
        earlier=PlanId.from_dict(earlier),
        folds_bytes=folds_bytes,
    )
    plan = replace(
        plan,
        outcomes=deduplicate.count_outcomes(images, clusters),
        checks=vars(duplicates) | checks,
        folds_sha256=folds_sha256,
    )
    save_plan(plan, add_fingerprints(table, hashes), work)
    return Planned(folds, folded, plan, table)
