"""folds.csv: what became of every input image, for all frameworks."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.earlier import GONE, mark_recorded
from kaggle_tfr.naming import FOLDS_FILE
from kaggle_tfr.plan.folds import number_groups
from kaggle_tfr.tables import format_csv

ROWS_AT_ONCE = 50_000  # as text in memory
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
    table = match_clusters(images, clusters, ["reason"])
    is_good = images["problem"] == ""
    reason = table["reason"].fillna("kept: no copy found")
    reason = reason.mask(~is_good, "rejected: " + images["problem"])
    if "part" in images:
        record = "earlier: part " + images["part"].astype(str)
        reason = reason.mask(mark_recorded(images), record)

    # Copies that are dropped go with those that are kept: all rows together have no
    # copy in two folds.
    place = folded[["split", "fold"]].reindex(table.index)
    number = number_groups(table[["cluster", "split"]])
    place = place.fillna(place.groupby(number).transform("first"))
    is_gone = images["path"].str.startswith(GONE)
    paths = images.groupby("input_dir", observed=True)["path"]
    path = paths.transform(lambda paths: paths.str.removeprefix(f"{paths.name}/"))
    table = table.assign(
        path=path.mask(is_gone, ""),
        split=place["split"].fillna(table["split"]),
        fold=place["fold"].fillna(-1).astype("int64"),
        keep=table["keep"] & is_good & ~is_gone,
        reason=reason,
    )
    return table[[*COLUMNS, *label_columns]]


def save_folds(folds: pd.DataFrame, work_dir: str) -> FoldsFile:
    """Write folds.csv, and return its size and checksum for `make_plan`.

    folds: of `list_folds`.
    """
    with storage.new_file(storage.join(work_dir, FOLDS_FILE)) as temporary:
        with open(temporary, "wb") as file:
            for start in range(0, len(folds), ROWS_AT_ONCE):
                rows = folds.iloc[start : start + ROWS_AT_ONCE]
                file.write(format_csv(rows, header=start == 0).encode())
            n_bytes = file.tell()
        sha256 = storage.sha256_of(temporary)
    return FoldsFile(n_bytes, sha256)
