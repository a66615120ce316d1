"""folds.csv: what became of every input image, for all frameworks."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.earlier import GONE, mark_recorded
from kaggle_tfr.naming import FOLDS_FILE
from kaggle_tfr.tables import format_csv

COLUMNS = [
    "image_id",
    "source",
    "path",
    "label",
    "label_name",
    "split",
    "fold",
    "cluster",
    "keep",
    "reason",
]


@dataclass(frozen=True)
class FoldsFile:
    """The folds.csv of a plan."""

    n_bytes: int = 0
    sha256: str = ""


def list_folds(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    folded: pd.DataFrame,
    label_columns: Sequence[str] = (),
) -> pd.DataFrame:
    """Return one row per input image, none missing, in the order of `images`.

    With FOLDS_FROM, also one per image of an earlier part whose file is gone.

    images, clusters: of 01 and 02. folded: of `assign_folds`, from the rows that
    `choose_rows` returns for them. label_columns: as there.

    Columns: `COLUMNS` and `label_columns`. path: below the INPUT_DIR of its source (0:
    the main input, else the number in MORE_INPUTS). fold: -1 outside the folds. A copy
    that is dropped has the split and the fold of its cluster. cluster: -1 for none.
    keep: whether the image is written, or an earlier part has it and its file is here.
    reason: why, or why not.
    """
    names = ["image_id", "source", "label", "label_name", "split", *label_columns]
    table = match_clusters(images[names], clusters, ["reason"])
    is_good = images["problem"] == ""
    is_kept = is_good & table["keep"]
    reason = table["reason"].fillna("kept: no copy found")
    reason = reason.mask(~is_good, "rejected: " + images["problem"])
    if "part" in images:
        record = "earlier: part " + images["part"].astype(str)
        reason = reason.mask(mark_recorded(images), record)

    # Copies that are dropped go with those that are kept: all rows together have no
    # copy in two folds.
    place = folded[["split", "fold"]].reindex(table.index)
    is_member = is_kept & (table["cluster"] >= 0) & (table["split"] != "test")
    members = place.where(is_member).groupby(table["cluster"])
    place = place.fillna(members.transform("first"))
    is_gone = images["path"].str.startswith(GONE)
    paths = images.groupby("input_dir", observed=True)["path"]
    path = paths.transform(lambda paths: paths.str.removeprefix(f"{paths.name}/"))
    table = table.assign(
        path=path.mask(is_gone, ""),
        split=place["split"].fillna(table["split"]),
        fold=place["fold"].fillna(-1).astype("int64"),
        keep=is_kept & ~is_gone,
        reason=reason,
    )
    return table[[*COLUMNS, *label_columns]]


def save_folds(
    folds: pd.DataFrame,
    outcomes: Mapping[str, int],
    work_dir: str,
) -> FoldsFile:
    """Write folds.csv, and return its size and checksum for `make_plan`.

    folds: of `list_folds`. outcomes: of `count_outcomes`.
    Raises: RuntimeError: an image has no outcome, or several.
    """
    n_counted = sum(outcomes.values())
    if n_counted != len(folds):
        raise RuntimeError(
            f"the accounting does not close: {FOLDS_FILE} would have {len(folds):,} "
            f"rows, but 02 counted {n_counted:,} images. Run again from 02_deduplicate."
        )
    data = format_csv(folds).encode()
    storage.write_atomically(storage.join(work_dir, FOLDS_FILE), data)
    return FoldsFile(len(data), hashlib.sha256(data).hexdigest())
