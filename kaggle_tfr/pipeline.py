"""The steps of the notebooks as function calls, without their figures.

Each step reads the files of the previous step from the work folder and writes its own,
so a notebook can resume after any of them. `values` are parameters by their names.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from kaggle_tfr import deduplicate, explore, notebook, plan, write
from kaggle_tfr.mounts import output_dir
from kaggle_tfr.parameters import DEFAULTS, Values, check_parameters, make_settings
from kaggle_tfr.schema import Labels, RecordSchema, load_schema
from kaggle_tfr.shards import EarlierPlan
from kaggle_tfr.storage import read_parquet


def build_dataset(**parameters: Any) -> pd.DataFrame:
    """Write a dataset, as 01 to 04 do, and return one row per shard.

    parameters: those of a recipe, such as INPUT_DIR="photos"; the others have their
    defaults. The returned columns are those of shards.csv, `part` among them.
    Raises: ValueError: a parameter is unknown or does not fit; RuntimeError: a written
    record is not as planned.
    """
    check_parameters(parameters)
    values = {**DEFAULTS, **parameters}
    try:
        work = notebook.start("01_explore", values)
        explore_images(values, work)
        deduplicate_images(values, work)
        plan_dataset(values, work)
        shards = write_shards(values, work)
        verify_shards(values, work, shards)
    finally:
        notebook.end()
    return shards


def explore_images(values: Values, work: str) -> None:
    """List and measure the images, as 01 does."""
    notebook.begin("01_explore", {**values, "WORK_DIR": work})
    inputs = explore.input_or_sample(values["INPUT_DIR"], work)
    settings = make_settings(explore.InputSettings, values)
    listed, labels = explore.read_table(inputs, settings, [work, values["OUT_DIR"]])
    explore.reuse_hashes(values["FOLDS_FROM"], work)
    images = explore.measure(listed, labels, work, values["RLE_ORDER"])
    explore.save_rejects(images, work)
    explore.check_table(images)
    explore.note_doubts(images, labels, values["LABEL_COLUMN"])
    explore.save_images(images, labels, work)
    explore.save_submission(images, inputs, settings, work)


def deduplicate_images(values: Values, work: str) -> deduplicate.Found:
    """Find the near-duplicates and decide which images to keep, as 02 does."""
    return deduplicate.run({**values, "WORK_DIR": work})


def plan_dataset(values: Values, work: str) -> None:
    """Assign folds, forecast the size and plan the shards, as 03 does."""
    notebook.begin("03_plan", {**values, "WORK_DIR": work})
    images, labels, overrides = deduplicate.load_corrected(work)
    earlier = plan.check_growth(work, values, labels.bit_depth)
    clusters, duplicates = deduplicate.load_clusters(work)
    rows = deduplicate.choose_rows(images, clusters)
    rows, clusters = plan.drop_between(
        rows,
        clusters,
        values["GROUP_COLUMN"],
        extra_in_validation=values["EXTRA_IN_VALIDATION"],
    )
    folded = plan.assign_folds(
        rows,
        n_folds=values["N_FOLDS"],
        seed=values["SEED"],
        validation_size=values["VALIDATION_SIZE"],
        label_columns=labels.class_columns,
        group_column=values["GROUP_COLUMN"],
        extra_in_validation=values["EXTRA_IN_VALIDATION"],
    )
    hashes = explore.load_hashes(images, work)
    checks = plan.check_leakage(
        folded,
        hashes=hashes,
        max_bits=duplicates.max_bits,
        group_column=values["GROUP_COLUMN"],
        cut_pairs=deduplicate.list_cut_pairs(images, overrides),
    )
    plan.note_folds(folded, labels, checks, duplicates.max_bits, values["GROUP_COLUMN"])
    outcomes = deduplicate.count_outcomes(images, clusters)
    folds = plan.list_folds(images, clusters, folded, labels.label_columns)
    folds_file = plan.save_folds(folds, outcomes, work)
    schema = load_schema(values["SCHEMA"], rows, labels)
    plan.check_schema(schema, work)
    new = plan.select_new(folded)
    planned, table = _plan_shards(
        values, new, labels, schema, folds_file, earlier=earlier
    )
    plan.save_fingerprints(planned, table, hashes, work)
    planned = replace(planned, outcomes=outcomes, checks={**vars(duplicates), **checks})
    plan.save_plan(planned, table, work)


def _plan_shards(
    values: Values,
    folded: pd.DataFrame,
    labels: Labels,
    schema: RecordSchema,
    folds_file: plan.FoldsFile,
    *,
    earlier: Sequence[EarlierPlan],
) -> tuple[plan.Plan, pd.DataFrame]:
    """Forecast the size of records; return the plan and the table of its images."""
    settings = make_settings(
        plan.PlanSettings, {**values, "BIT_DEPTH": labels.bit_depth}
    )
    forecast = plan.make_forecast(
        folded,
        schema,
        settings.image,
        compression=values["COMPRESSION"],
        seed=values["SEED"],
    )
    return plan.make_plan(
        folded,
        forecast,
        labels,
        schema,
        settings,
        folds_file=folds_file,
        earlier=earlier,
    )


def write_shards(values: Values, work: str) -> pd.DataFrame:
    """Write the planned parts, as 04 does, and return one row per shard."""
    notebook.begin("04_write", {**values, "WORK_DIR": work})
    earlier_parts = write.list_parts_here(work, values["OUT_DIR"])
    write.check_earlier_parts(plan.read_plan(work), earlier_parts)
    return write.write_parts(
        work,
        output_dir(values["OUT_DIR"] or work),
        values["PART"],
        overwrite=values["OVERWRITE"],
        license_name=values["LICENSE"],
        publish_hashes=values["PUBLISH_HASHES"],
    )


def verify_shards(values: Values, work: str, shards: pd.DataFrame) -> None:
    """Read all records again, save their statistics and the accounting, as 04 does.

    Raises: RuntimeError: a record is not as planned.
    """
    parts_dir = output_dir(values["OUT_DIR"] or work)
    checked = write.verify_written(shards, parts_dir, work)
    for folder, sums in checked.stats.items():
        write.save_stats(sums, f"{folder}/stats.json")
    if values["MEAN_RGB"]:
        originals = read_parquet(f"{work}/plan.parquet", columns=["path", "split"])
        stats_of_files = write.channel_stats_of_files(originals)
        stats_of_records = write.combine_stats(checked.stats.values())
        write.save_mean_rgb(stats_of_files, stats_of_records, work)
    write.account_parts(plan.read_plan(work), shards, work)
