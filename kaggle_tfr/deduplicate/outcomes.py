"""Save the clusters, and report which images are kept and dropped because of them."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.schema import JsonDataclass

# The reason why an image is not written, and its outcome.
REASONS = {
    "duplicate": "duplicates dropped",
    "conflict": "conflicts dropped",
    "leak": "leaks dropped",
    "override: dropped": "dropped by overrides",
    "between folds": "between folds dropped",
}
NOT_OF_RECORDS = ["input_dir", "decision", "keep", "reason"]
LEAK_COLUMNS = [
    "test_id",
    "image_id",
    "label_name",
    "distance",
    "test_split",
    "split",
    "keep",
    "dataset",
]


@dataclass(frozen=True)
class DuplicateSettings(JsonDataclass):
    """The parameters of 02, as saved in duplicates.json. Radii are in bits of 256.

    second_look: the parameter (True, False, "auto"); in the file, what
    `find_candidates` did ("all", "nearest", ""). keep: "largest", "first" or "all".
    conflicts: "drop", "majority" or "keep". leaks: "report" or "drop".
    """

    max_bits: int = 25
    second_look: bool | str = "auto"
    mirrored: bool = False
    keep: str = "largest"
    conflicts: str = "drop"
    leaks: str = "report"

    @property
    def rotated_bits(self) -> int:
        """Return the radius of mirrored and rotated copies, -1 without a search.

        It is smaller, because eight orientations are eight chances for two different
        images to have similar hashes.
        """
        return self.max_bits * 4 // 5 if self.mirrored else -1


def save_clusters(
    clusters: pd.DataFrame,
    leaks: pd.DataFrame,
    settings: DuplicateSettings,
    work_dir: str,
) -> None:
    """Write leaks.csv, duplicates.json (the settings), and last duplicates.parquet.

    The last one shows that 02 is finished.
    clusters: of `find_clusters`; their index becomes the column row.
    leaks: pairs of images of two splits, of `find_leaks`; and of an image with one of
    another dataset, of `find_overlap`, with the former's id, label, path and cluster.
    In the CSV, image_id_a and split_a are called test_id and test_split, also for pairs
    without a test image.
    """
    leaks = leaks.rename(columns={"image_id_a": "test_id", "split_a": "test_split"})
    text = storage.format_csv(leaks[LEAK_COLUMNS])
    storage.write_atomically(f"{work_dir}/leaks.csv", text)
    storage.write_atomically(f"{work_dir}/duplicates.json", settings.to_json())
    rows = clusters.reset_index(names="row")
    storage.write_parquet(rows, f"{work_dir}/duplicates.parquet")


def load_clusters(work_dir: str) -> tuple[pd.DataFrame, DuplicateSettings]:
    """Return the clusters and settings that `save_clusters` wrote.

    The index of the clusters has the row numbers of images.parquet.
    Raises: ValueError: 02_deduplicate has not run.
    """
    path = f"{work_dir}/duplicates.json"
    text = storage.read_text(path)
    settings = DuplicateSettings.parse(text, path, "Run 02_deduplicate.")
    clusters = storage.read_parquet(f"{work_dir}/duplicates.parquet")
    return clusters.set_index("row"), settings


def choose_rows(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """Return the images that become records: not rejected, and kept by 02.

    They have the index of `images`, and a column cluster (-1: none); images of one
    cluster must share a fold. Without the columns `NOT_OF_RECORDS`: input_dir,
    decision, keep and reason. An image without a cluster is kept.
    images: of 01, with problem ("" for a good one). clusters: of `find_clusters`.
    Raises: ValueError: no row is left.
    """
    table = match_clusters(images, clusters)
    is_kept = (table["problem"] == "") & table["keep"]
    if not is_kept.any():
        raise ValueError(
            f"No image is left: {count_outcomes(images, clusters)}. Set CONFLICTS, "
            "LEAKS or MAX_BITS so that 02_deduplicate keeps images."
        )
    return table[is_kept].drop(columns=NOT_OF_RECORDS, errors="ignore")


def match_clusters(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """Return all images with the columns cluster, keep and reason of their clusters.

    cluster: -1 for none; keep: bool, True without a cluster; reason: NA without one.
    images, clusters: the index of both has row numbers of images.
    """
    table = images.join(clusters[["cluster", "keep", "reason"]])
    table["cluster"] = table["cluster"].fillna(-1).astype("int64")
    table["keep"] = table["keep"].ne(False)  # NA, without a cluster, is kept
    return table


def count_outcomes(images: pd.DataFrame, clusters: pd.DataFrame) -> dict[str, int]:
    """Count the images by outcome, the most frequent first; each image counts once.

    The outcome of an image is the first that fits: "rejected" (labelled and test
    images), "in earlier parts", "test records" and "labelled records" (images to be
    written), or that of its reason in `REASONS`, such as "duplicates dropped". Outcomes
    of no image are left out.
    """
    table = match_clusters(images, clusters)
    outcomes = {
        "rejected": table["problem"] != "",
        "in earlier parts": table["keep"] & mark_recorded(table),
        "test records": table["keep"] & (table["split"] == "test"),
        "labelled records": table["keep"],
    }
    conditions = list(outcomes.values())
    dropped = table["reason"].map(REASONS)
    # The first true condition decides; without one, the reason of a dropped image.
    return dict(Counter(np.select(conditions, list(outcomes), dropped)).most_common())
