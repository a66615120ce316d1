"""03 in one call: folds, the forecast, the plan, and what it found."""

from dataclasses import dataclass, replace

import pandas as pd

from kaggle_tfr import deduplicate, explore, notebook
from kaggle_tfr.parameters import Values, make_settings
from kaggle_tfr.plan.findings import note_folds
from kaggle_tfr.plan.fold_checks import check_leakage, match_hashes
from kaggle_tfr.plan.folds import assign_folds
from kaggle_tfr.plan.folds_csv import list_folds, save_folds
from kaggle_tfr.plan.forecast import Forecast, make_forecast
from kaggle_tfr.plan.growth import check_growth, check_schema, drop_between, select_new
from kaggle_tfr.plan.part_hashes import save_fingerprints
from kaggle_tfr.plan.plan import (
    Plan,
    PlanSettings,
    compare_with_limits,
    list_planned,
    make_plan,
    save_plan,
)
from kaggle_tfr.schema import load_schema


@dataclass(frozen=True)
class Planned:
    """What 03 decided.

    folds: a row for every input image, as in folds.csv.
    folded: the kept images, with split and fold. hashes: theirs, row by row.
    checks: of `check_leakage`.
    table: the images to write, in the order of the records, as in plan.parquet.
    shards: one row a shard. limits: the forecast against the limits.
    outcomes: input images by what becomes of them.
    """

    folds: pd.DataFrame
    folded: pd.DataFrame
    hashes: pd.DataFrame
    checks: pd.Series
    forecast: Forecast
    plan: Plan
    table: pd.DataFrame
    shards: pd.DataFrame
    limits: pd.DataFrame
    outcomes: dict[str, int]


def run(values: Values) -> Planned:
    """Assign folds, forecast the size, plan the shards; write and note the results.

    values: the parameters of 03. Writes folds.csv, plan.parquet, plan.json and
    fingerprints.parquet.
    Raises: ValueError: a parameter does not fit the images or the earlier parts.
    """
    work = notebook.begin("03_plan", values)
    images, labels, overrides = deduplicate.load_corrected(work)
    earlier = check_growth(work, values, labels.bit_depth)
    clusters, duplicates = deduplicate.load_clusters(work)
    group_column = values["GROUP_COLUMN"]
    rows, clusters = drop_between(
        deduplicate.choose_rows(images, clusters),
        clusters,
        group_column,
        extra_in_validation=values["EXTRA_IN_VALIDATION"],
    )
    folded = assign_folds(
        rows,
        n_folds=values["N_FOLDS"],
        seed=values["SEED"],
        validation_size=values["VALIDATION_SIZE"],
        label_columns=labels.class_columns,
        group_column=group_column,
        extra_in_validation=values["EXTRA_IN_VALIDATION"],
    )
    hashes = explore.load_hashes(images, work)
    checks = check_leakage(
        folded,
        hashes=hashes,
        max_bits=duplicates.max_bits,
        group_column=group_column,
        cut_pairs=deduplicate.list_cut_pairs(images, overrides),
    )
    note_folds(folded, labels, checks, duplicates.max_bits, group_column)

    counts = deduplicate.count_outcomes(images, clusters)
    folds = list_folds(images, clusters, folded, labels.label_columns)
    folds_file = save_folds(folds, counts, work)
    schema = load_schema(values["SCHEMA"], rows, labels)
    check_schema(schema, work)

    new = select_new(folded)
    settings = make_settings(PlanSettings, {**values, "BIT_DEPTH": labels.bit_depth})
    forecast = make_forecast(
        new,
        schema,
        settings.image,
        compression=values["COMPRESSION"],
        seed=values["SEED"],
    )
    plan, table = make_plan(
        new,
        forecast,
        labels,
        schema,
        settings,
        folds_file=folds_file,
        earlier=earlier,
    )
    save_fingerprints(plan, table, hashes, work)
    plan = replace(plan, outcomes=counts, checks={**vars(duplicates), **checks})
    save_plan(plan, table, work)
    return Planned(
        folds=folds,
        folded=folded,
        hashes=match_hashes(folded, hashes),
        checks=checks,
        forecast=forecast,
        plan=plan,
        table=table,
        shards=list_planned(plan),
        limits=compare_with_limits(plan, forecast, work),
        outcomes=_count_planned(counts, len(table)),
    )


def _count_planned(counts: dict[str, int], n_planned: int) -> dict[str, int]:
    """Return the outcomes of input images before a record is written."""
    n_labelled = n_planned - counts.get("test records", 0)
    planned = {**counts, "labelled records": n_labelled}
    return {
        outcome.replace("records", "images planned"): count
        for outcome, count in planned.items()
    }
