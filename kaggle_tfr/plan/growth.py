"""A plan that continues earlier parts: what is new, and how its folds drift."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from kaggle_tfr.earlier import check_settings, load_earlier, load_earlier_images
from kaggle_tfr.explore.growth import STATE, mark_recorded
from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.parameters import Values
from kaggle_tfr.plan.fold_checks import measure_deviation
from kaggle_tfr.plan.folds import join_groups
from kaggle_tfr.schema import RecordSchema
from kaggle_tfr.shards import EarlierPlan


def drop_between(
    rows: pd.DataFrame, clusters: pd.DataFrame, group_column: str = ""
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Drop new images whose group connects two earlier folds; return both tables.

    rows: of `choose_rows`. clusters: of 02, which has dropped those whose cluster alone
    connects two folds. Such an image has a line of `clusters` with its reason.
    """
    has_groups = group_column or OVERRIDE_GROUP in rows
    if "earlier" not in rows or not has_groups:
        return rows, clusters
    number = join_groups(rows, group_column).number
    is_fixed = (rows["earlier"] != "") & (rows["split"] != "test")
    place = rows["split"] + " " + rows["earlier_fold"].astype(str)
    n_places = place.where(is_fixed).groupby(number).transform("nunique")
    is_movable = ~mark_recorded(rows) & (rows["split"] != "test").to_numpy()
    is_dropped = is_movable & (n_places > 1).to_numpy()
    if not is_dropped.any():
        return rows, clusters

    dropped = rows.loc[is_dropped, ["image_id", "split", "label_name", "path"]]
    reason = "between folds: its group has images in two earlier folds"
    changes = dropped.assign(cluster=-1, keep=False, reason=reason, conflict=False)
    keys = ["image_id", "split"]
    is_listed = pd.MultiIndex.from_frame(clusters[keys]).isin(
        pd.MultiIndex.from_frame(dropped[keys])
    )
    changed = clusters.copy()
    changed.loc[is_listed, "keep"] = False
    changed.loc[is_listed, "reason"] = reason
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


def check_growth(
    work_dir: str, values: Values, bit_depth: str
) -> tuple[EarlierPlan, ...]:
    """Return the plans that this one continues, the oldest first; () for none.

    work_dir: contains what 02 read of FOLDS_FROM. values: the parameters of 03.
    bit_depth: of the labels.
    Raises: ValueError: a parameter contradicts the earlier parts.
    """
    earlier = load_earlier(work_dir)
    settings = {name.lower(): value for name, value in values.items()}
    settings["bit_depth"] = bit_depth
    check_settings(earlier, settings, values["FOLDS_FROM"])
    if earlier.source and not earlier.plans:
        _check_number_of_folds(work_dir, values["N_FOLDS"])
    return earlier.plans


def check_schema(schema: RecordSchema, work_dir: str) -> None:
    """Raise a ValueError unless new records have the features of the earlier parts."""
    before = load_earlier(work_dir).schema
    if before and asdict(schema) != asdict(RecordSchema.from_dict(before)):
        raise ValueError(
            "SCHEMA does not give the features that the parts of FOLDS_FROM have. Set "
            "it to theirs, or make a new dataset without FOLDS_FROM."
        )


def _check_number_of_folds(work_dir: str, n_folds: int) -> None:
    """Raise a ValueError if the CSV of FOLDS_FROM has more folds than N_FOLDS."""
    last = load_earlier_images(work_dir)["fold"].max()
    if last >= max(1, n_folds):
        raise ValueError(
            f"N_FOLDS is {n_folds}, but FOLDS_FROM has images in fold {last}. Set "
            f"N_FOLDS to {last + 1}, or to the number of folds that it was made with."
        )


def measure_drift(folded: pd.DataFrame) -> pd.DataFrame:
    """Compare the folds of the earlier images alone with those of all images.

    folded: of `assign_folds`. Rows: before, now. Columns: images (in folds), smallest
    and largest (fold, as shares of these), deviation (the largest difference between
    a class's share of a fold and of all folds), and validation (share of validation
    among these images and itself).
    """
    is_earlier = folded.get("earlier", pd.Series("", folded.index)) != ""
    rows = {"before": _measure(folded[is_earlier]), "now": _measure(folded)}
    return pd.DataFrame.from_dict(rows, orient="index")


def _measure(table: pd.DataFrame) -> dict[str, Any]:
    """Return a row of `measure_drift`."""
    in_folds = table[table["fold"] >= 0]
    sizes = in_folds["fold"].value_counts(normalize=True)
    n_validation = (table["split"] == "validation").sum()
    return {
        "images": len(in_folds),
        "smallest": sizes.min() if len(sizes) else 0.0,
        "largest": sizes.max() if len(sizes) else 0.0,
        "deviation": measure_deviation(in_folds),
        "validation": n_validation / max(1, len(in_folds) + n_validation),
    }


def describe_drift(drift: pd.DataFrame) -> str:
    """Return lines about a table of `measure_drift`."""
    before = drift.loc["before"]
    now = drift.loc["now"]
    if not before["images"]:
        return "No image has an earlier fold."
    n_new = int(now["images"] - before["images"])
    lines = [f"{int(before['images']):,} images keep their fold, {n_new:,} are new."]
    lines.append(
        f"A fold has {now['smallest']:.1%} to {now['largest']:.1%} of them (before: "
        f"{before['smallest']:.1%} to {before['largest']:.1%})."
    )
    lines.append(
        "In each fold, the share of every class differs from its share of all by at "
        f"most {100 * now['deviation']:.1f} percentage points (before: "
        f"{100 * before['deviation']:.1f})."
    )
    if now["validation"]:
        lines.append(
            f"The validation split has {now['validation']:.1%} of the images (before: "
            f"{before['validation']:.1%})."
        )
    return "\n".join(lines)
