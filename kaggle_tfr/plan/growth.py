"""A plan that continues earlier parts: what cannot be, and where new images go."""

from typing import Any

import pandas as pd

from kaggle_tfr.plan.folds import number_groups
from kaggle_tfr.plan.plan import PlanSettings
from kaggle_tfr.schema import RecordSchema

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
    before = earlier["settings"]
    before["schema"] = RecordSchema.from_dict(earlier["schema"])
    for name, value in {**vars(settings), "schema": schema}.items():
        if name not in FREE and before.get(name, value) != value:
            raise ValueError(
                f"{name.upper()} is {value!r:.99}, but the parts of FOLDS_FROM have "
                f"{before[name]!r:.99}. Set it to that, or make a new dataset."
            )


def drop_between(
    rows: pd.DataFrame, clusters: pd.DataFrame, settings: PlanSettings
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give new images the split and fold of the earlier images in their group.

    New images are dropped if earlier images of their group are in two folds or splits;
    or, unless EXTRA_IN_VALIDATION, if they are of MORE_INPUTS and their group is in a
    fold. fold is NA for new images without earlier ones in their group.
    rows: of `choose_rows`. clusters: of 02. Both are returned.
    """
    if "part" not in rows:
        return rows, clusters
    is_new = rows["part"] == 0
    place = rows[["split", "fold"]].mask(is_new)
    groups = place.groupby(number_groups(rows, settings.group_column))
    is_between = (groups.transform("nunique") > 1).any(axis=1)
    place = place.fillna(groups.transform("first"))
    # Without folds, all images of train are in fold 0.
    if settings.n_folds > 1 and not settings.extra_in_validation:
        is_between |= (rows["source"] > 0) & (place["fold"] >= 0)

    outcome = {"cluster": -1, "keep": False, "reason": "between folds"}
    dropped = pd.DataFrame(outcome, rows.index[is_new & is_between])
    place["split"] = place["split"].fillna(rows["split"])
    rows = rows.assign(**place).drop(dropped.index)
    return rows, dropped.combine_first(clusters)
