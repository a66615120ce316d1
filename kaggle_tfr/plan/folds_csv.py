"""folds.csv: what became of every input image, for all frameworks."""

import hashlib

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


def list_folds(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    folded: pd.DataFrame,
    label_columns: tuple[str, ...],
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
    table = match_clusters(images, clusters, ["reason"])
    is_good = images["problem"] == ""
    reason = table["reason"].fillna("kept: no copy found")
    reason = reason.mask(~is_good, "rejected: " + images["problem"])
    if "part" in images:
        record = "earlier: part " + images["part"].astype(str)
        reason = reason.mask(mark_recorded(images), record)

    # Copies that are dropped go with those that are kept: all rows together have no
    # copy in two folds, unless earlier parts have.
    place = folded[["split", "fold"]].reindex(table.index)
    is_test = table["split"] == "test"
    group = table["cluster"].where(table["cluster"] >= 0, -1 - table.index)
    places = place.mask(is_test).groupby(group)
    is_torn = (places.transform("nunique") > 1).any(axis=1)
    place = place.fillna(places.transform("first").mask(is_test | is_torn))
    is_gone = images["path"].str.startswith(GONE)
    paths = images.groupby("input_dir", observed=True)["path"]
    path = paths.transform(lambda paths: paths.str.removeprefix(f"{paths.name}/"))
    table = table.assign(
        path=path.mask(is_gone, ""),
        cluster=table["cluster"].mask(is_torn, -1),
        split=place["split"].fillna(table["split"]),
        fold=place["fold"].fillna(-1).astype("int64"),
        keep=table["keep"] & is_good & ~is_gone,
        reason=reason,
    )
    return table[[*COLUMNS, *label_columns]]


def save_folds(folds: pd.DataFrame, work_dir: str) -> tuple[int, str]:
    """Write folds.csv, and return its bytes and its SHA-256.

    folds: of `list_folds`.
    """
    data = format_csv(folds).encode()
    storage.write_atomically(storage.join(work_dir, FOLDS_FILE), data)
    return len(data), hashlib.sha256(data).hexdigest()
