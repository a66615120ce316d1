"""A plan that continues earlier parts: what is new, and what cannot be."""

import json
from dataclasses import asdict
from typing import Any

import pandas as pd

from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.plan.folds import number_groups
from kaggle_tfr.plan.plan import PlanSettings
from kaggle_tfr.schema import RecordSchema

BETWEEN = "between folds"
# Settings that may differ from those of the earlier parts.
FREE = {
    "shard_mb",
    "n_shards",
    "shard_images",
    "shard_name",
    "part_limit_gb",
    "max_part_files",
}


def check_growth(
    earlier: dict[str, Any],
    rows: pd.DataFrame,
    settings: PlanSettings,
    schema: RecordSchema,
) -> None:
    """Raise a ValueError where parameters of 03 contradict the earlier parts.

    earlier: of `load_earlier`. rows: of `choose_rows`.
    """
    if "part" in rows and rows["fold"].max() >= max(1, settings.n_folds):
        raise ValueError(
            f"N_FOLDS is {settings.n_folds}, but FOLDS_FROM has images in fold "
            f"{rows['fold'].max()}. Set it to the number of folds that they have."
        )
    if not earlier:
        return
    before = earlier["settings"] | {"schema": earlier["schema"]}
    for name, value in (vars(settings) | {"schema": asdict(schema)}).items():
        # A list in JSON may be a tuple here.
        is_same = json.dumps(before.get(name, value)) == json.dumps(value)
        if not is_same and name not in FREE:
            raise ValueError(
                f"{name.upper()} is {value!r:.99}, but the parts of FOLDS_FROM have "
                f"{before[name]!r:.99}. Set it to that, or make a new dataset without "
                "FOLDS_FROM."
            )


def drop_between(
    rows: pd.DataFrame,
    clusters: pd.DataFrame,
    group_column: str = "",
    *,
    extra_in_validation: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Drop new images that cannot be in the folds of their group; return both tables.

    A new image cannot if earlier images of its group are in two folds or splits; or,
    unless `extra_in_validation`, if it is of MORE_INPUTS and its group is in a fold.
    rows: of `choose_rows`. clusters: of 02. A cluster whose records are in two folds is
    none in the results.
    """
    if "part" not in rows:
        return rows, clusters
    is_test = rows["split"] == "test"
    is_placed = (rows["part"] != 0) & ~is_test
    place = rows.groupby(["split", "fold"]).ngroup().where(is_placed)
    number = number_groups(rows, group_column)
    is_between = place.groupby(number).transform("nunique") > 1
    # Without folds, all images of train are in fold 0.
    if rows["fold"].max() > 0 and not extra_in_validation:
        is_in_fold = is_placed & (rows["fold"] >= 0)
        is_between |= is_in_fold.groupby(number).transform("any") & (rows["source"] > 0)
    is_dropped = is_between & ~is_placed & ~is_test

    place_of_record = place.where(mark_recorded(rows))
    n_places = place_of_record.groupby(rows["cluster"]).transform("nunique")
    split_clusters = rows["cluster"][n_places > 1]
    outcome = {"cluster": -1, "keep": False, "reason": BETWEEN}
    dropped = pd.DataFrame(outcome, rows.index[is_dropped])
    clusters = pd.concat([clusters.drop(dropped.index, errors="ignore"), dropped])
    rows = rows[~is_dropped]
    is_split = rows["cluster"].isin(split_clusters)
    rows = rows.assign(cluster=rows["cluster"].mask(is_split, -1))
    is_split = clusters["cluster"].isin(split_clusters)
    return rows, clusters.assign(cluster=clusters["cluster"].mask(is_split, -1))


def select_new(folded: pd.DataFrame) -> pd.DataFrame:
    """Return the images to write: those without a record in an earlier part.

    folded: of `assign_folds`. Raises: ValueError: there is none.
    """
    new = folded[~mark_recorded(folded)].reset_index(drop=True)
    if new.empty:
        raise ValueError(
            f"No image is new: all {len(folded):,} are in the parts of FOLDS_FROM, or "
            "were dropped. There is nothing to write; folds.csv is up to date."
        )
    return new.drop(columns="part", errors="ignore")
