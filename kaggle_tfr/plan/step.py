"""03 in one call: assign folds, forecast the size, and plan the shards.

A plan may continue earlier parts: their images keep their folds.
"""

from dataclasses import dataclass

import pandas as pd

from kaggle_tfr import deduplicate, explore, notebook, storage
from kaggle_tfr.earlier import load_earlier, mark_recorded
from kaggle_tfr.explore.table import HASHED
from kaggle_tfr.parameters import Values, make_settings
from kaggle_tfr.plan.folded import check_leakage, compare_sample, list_folds, note_folds
from kaggle_tfr.plan.folds import assign_folds, number_groups
from kaggle_tfr.plan.plan import Plan, PlanSettings, make_plan, save_plan
from kaggle_tfr.schema import RecordSchema, load_schema
from kaggle_tfr.shards import PlanId

# Settings that may differ from those of the earlier parts.
FREE = {
    "shard_mb",
    "n_shards",
    "shard_images",
    "shard_name",
    "part_limit_gb",
    "max_part_files",
}


@dataclass(frozen=True)
class Planned:
    """What 03 decided.

    folds: the table of folds.csv, one row per input image, also of dropped ones.
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
    images, labels, different_rows = deduplicate.load_corrected(work)
    clusters, duplicates = deduplicate.load_clusters(work)
    rows = deduplicate.choose_rows(images, clusters)
    earlier = load_earlier(work)
    settings = make_settings(PlanSettings, {**values, "BIT_DEPTH": labels.bit_depth})
    # Images with a record are not written, and may have no file and no row in a CSV.
    schema = load_schema(values["SCHEMA"], rows[~mark_recorded(rows)], labels)
    if earlier:  # the parts in FOLDS_FROM
        schema = check_growth(earlier, settings, schema)
    if "part" in rows:  # also if FOLDS_FROM is a folds.csv, without parts
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
    # For plan.json, with the settings of 02 (`duplicates`), such as max_bits.
    checks = vars(duplicates) | check_leakage(folded, settings.group_column)
    checks |= compare_sample(folded, hashes, duplicates.max_bits, different_rows)
    note_folds(folded, labels, checks)
    folds = list_folds(images, clusters, folded, labels.label_columns)
    folds_csv = storage.format_csv(folds)
    storage.write_atomically(f"{work}/folds.csv", folds_csv)

    plan, table = make_plan(
        folded,
        labels,
        schema,
        settings,
        earlier=PlanId.from_dict(earlier),
        folds_csv=folds_csv,
        outcomes=deduplicate.count_outcomes(images, clusters),
        checks=checks,
    )
    # With the hashes, which 04 publishes if PUBLISH_HASHES is set.
    save_plan(plan, table.join(hashes[[*HASHED]]), work)
    return Planned(folds, folded, plan, table)


def check_growth(
    earlier: dict,
    settings: PlanSettings,
    schema: RecordSchema,
) -> RecordSchema:
    """Return the schema of a dataset that grows; check the parameters of 03.

    It is that of the earlier parts, so that test images keep their fields; if no
    earlier test image lacks a label, it is `schema`, with the `test_fields` of the new
    ones.
    earlier: of `load_earlier`, the newest plan.json of the parts. schema: of the new
    images.
    Raises: ValueError: parameters contradict the earlier parts. Those in `FREE`, such
    as the size of shards, may differ; so may those that the version of the earlier
    parts did not have.
    """
    schema_of_parts = RecordSchema.from_dict(earlier["schema"])
    before = earlier["settings"] | {"schema": schema_of_parts}
    parameters = vars(settings) | {"schema": schema}
    for name, value in parameters.items():
        if name not in FREE and before.get(name, value) != value:
            raise ValueError(
                f"{name.upper()} is {value!r:.99}, but the parts of FOLDS_FROM have "
                f"{before[name]!r:.99}. Set it to that, or make a new dataset."
            )
    return schema_of_parts if schema_of_parts.test_fields else schema


def drop_between(
    rows: pd.DataFrame,
    clusters: pd.DataFrame,
    settings: PlanSettings,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give new images the split and fold of the earlier ones in their group; drop some.

    New images are dropped if earlier images of their group are in two folds or splits,
    because a copy would then be in another fold; or, unless EXTRA_IN_VALIDATION, if
    they are of MORE_INPUTS, which must not validate, and their group is in a fold or in
    the split validation.
    rows: of `choose_rows`, with part (0: new) and fold. clusters: of 02, may be empty.
    Return the rows that are left, in which fold is NA for new images without earlier
    ones in their group, and cluster, keep and reason of `clusters` by row, with dropped
    rows as "between folds".
    Raises: ValueError: N_FOLDS is too low for the folds that images have.
    """
    if rows["fold"].max() >= max(1, settings.n_folds):
        raise ValueError(
            f"N_FOLDS is {settings.n_folds}, but FOLDS_FROM has images in fold "
            f"{rows['fold'].max()}. Set it to the number of folds, which count from 0."
        )
    is_new = rows["part"] == 0
    place = rows[["split", "fold"]].mask(is_new)
    # NA of new images does not count.
    groups = place.groupby(number_groups(rows, settings.group_column))
    is_between = (groups.transform("nunique") > 1).any(axis=1)
    place = place.fillna(groups.transform("first"))
    validates = place["split"] == "validation"
    if settings.n_folds > 1:  # otherwise all images of train are in fold 0
        validates |= place["fold"] >= 0
    if not settings.extra_in_validation:
        is_between |= (rows["source"] > 0) & validates

    place = place.fillna(rows[["split"]])
    dropped = pd.DataFrame(
        {"cluster": -1, "keep": False, "reason": "between folds"},
        rows.index[is_new & is_between],
    )
    if len(dropped):
        notebook.note(
            "!",
            f"{len(dropped):,} new images are dropped, because earlier images of their "
            "group are in two folds, or validate while these are of MORE_INPUTS.",
            "between folds",
            "Move those of MORE_INPUTS to INPUT_DIR, or set EXTRA_IN_VALIDATION.",
        )
    # `combine_first` replaces what 02 decided about these rows. In other columns, such
    # as distance, they would have no values.
    clusters = dropped.combine_first(clusters[[*dropped]])
    return rows.assign(**place).drop(dropped.index), clusters
