"""A plan that continues earlier parts: what is new, and what cannot be."""

from dataclasses import asdict

import pandas as pd

from kaggle_tfr.earlier import load_earlier, load_earlier_images
from kaggle_tfr.explore.growth import STATE, mark_recorded, name_places
from kaggle_tfr.folds_from import check_settings
from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.parameters import Values
from kaggle_tfr.plan.folds import join_groups, list_first_rows
from kaggle_tfr.schema import RecordSchema
from kaggle_tfr.shards import PlanId

BETWEEN = "between folds: its group has images in two earlier folds"
MUST_TRAIN = (
    "between folds: images of MORE_INPUTS train in every fold, but its group has an "
    "earlier image that validates"
)


def drop_between(
    rows: pd.DataFrame,
    clusters: pd.DataFrame,
    group_column: str = "",
    *,
    extra_in_validation: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Drop new images that cannot be in the folds of their group; return both tables.

    A new image cannot if its group connects two earlier folds; or, unless
    `extra_in_validation`, if it is of MORE_INPUTS and its group is in a fold.
    rows: of `choose_rows`. clusters: of 02, which has dropped those whose cluster alone
    connects two folds. Such an image has a line of `clusters` with its reason.
    Raises: ValueError: earlier images of one group are in two folds.
    """
    has_groups = group_column or OVERRIDE_GROUP in rows
    has_extra = False
    if "source" in rows and not extra_in_validation:
        has_extra = bool((rows["source"] != 0).any())
    if "earlier" not in rows or not (has_groups or has_extra):
        return rows, clusters
    place = name_places(rows)
    for column in (group_column, OVERRIDE_GROUP):
        if column in rows:
            _check_group_whole(rows, column, place)

    number = join_groups(rows, group_column).number
    n_places = place.groupby(number).transform("nunique")
    is_movable = ~mark_recorded(rows) & (rows["split"] != "test")
    reason = pd.Series(BETWEEN, rows.index).where(is_movable & (n_places > 1))
    # Without folds, all images of train are in fold 0.
    if has_extra and rows["earlier_fold"].max() > 0:
        has_fold = place.notna() & (rows["earlier_fold"] >= 0)
        is_in_fold = has_fold.groupby(number).transform("any")
        is_extra = (rows["source"] != 0) & (rows["earlier"] == "")
        reason = reason.mask(is_movable & is_extra & is_in_fold, MUST_TRAIN)
    return _drop_rows(rows, clusters, reason)


def _check_group_whole(rows: pd.DataFrame, column: str, place: pd.Series) -> None:
    """Raise a ValueError that names a group of earlier images in two folds.

    column: with the groups. place: of `name_places`.
    """
    n_places = place.groupby(list_first_rows(rows, column)).transform("nunique")
    is_split = place.notna() & (n_places > 1)
    if not is_split.any():
        return
    group = rows[column][is_split].iloc[0]
    members = place[is_split & (rows[column] == group)]
    places = " and ".join(sorted(members.unique())[:2])
    if column == OVERRIDE_GROUP:
        subject = f"OVERRIDES has a group '{group}'"
        advice = "Delete one of these rows of OVERRIDES"
    else:
        subject = f"GROUP_COLUMN '{column}' has a group '{group}'"
        advice = "Give these images the groups that they had then"
    raise ValueError(
        f"{subject} whose images are in {places} of FOLDS_FROM, where they must stay. "
        f"They were not one group when these folds were made. {advice}, or make new "
        "folds without FOLDS_FROM."
    )


def _drop_rows(
    rows: pd.DataFrame, clusters: pd.DataFrame, reason: pd.Series
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return both tables of `drop_between` without the rows that have a reason."""
    is_dropped = reason.notna()
    if not is_dropped.any():
        return rows, clusters
    dropped = rows.loc[is_dropped, ["image_id", "split", "label_name", "path"]]
    dropped["reason"] = reason[is_dropped]
    changes = dropped.assign(cluster=-1, keep=False, conflict=False)
    keys = ["image_id", "split"]
    reason_of = dropped.set_index(keys)["reason"]
    listed = reason_of.reindex(pd.MultiIndex.from_frame(clusters[keys])).to_numpy()
    is_listed = pd.notna(listed)
    changed = clusters.copy()
    changed["keep"] &= ~is_listed
    changed["reason"] = changed["reason"].mask(is_listed, listed)
    is_new = ~pd.MultiIndex.from_frame(changes[keys]).isin(
        pd.MultiIndex.from_frame(clusters[keys])
    )
    changed = pd.concat([changed, changes[is_new]], ignore_index=True)
    return rows[~is_dropped].reset_index(drop=True), changed


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
    return new.drop(columns=list(STATE), errors="ignore")


def check_growth(work_dir: str, values: Values, bit_depth: str) -> PlanId:
    """Return the plan that this one continues, without parts for none.

    work_dir: contains what 02 read of FOLDS_FROM. values: the parameters of 03.
    bit_depth: of the labels.
    Raises: ValueError: a parameter contradicts the earlier parts.
    """
    earlier = load_earlier(work_dir)
    settings = {name.lower(): value for name, value in values.items()}
    settings["bit_depth"] = bit_depth
    check_settings(earlier, settings, values["FOLDS_FROM"])
    if earlier.source and not earlier.n_parts:
        last = load_earlier_images(work_dir)["fold"].max()
        if last >= max(1, values["N_FOLDS"]):
            raise ValueError(
                f"N_FOLDS is {values['N_FOLDS']}, but FOLDS_FROM has images in fold "
                f"{last}. Set N_FOLDS to {last + 1}, or to the number of folds that it "
                "was made with."
            )
    return earlier.plan


def check_schema(schema: RecordSchema, work_dir: str) -> None:
    """Raise a ValueError unless new records have the features of the earlier parts."""
    before = load_earlier(work_dir).schema
    if before and asdict(schema) != asdict(RecordSchema.from_dict(before)):
        raise ValueError(
            "SCHEMA does not give the features that the parts of FOLDS_FROM have. Set "
            "it to theirs, or make a new dataset without FOLDS_FROM."
        )
