"""Find leaks: clusters with images of two splits, such as test and train."""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.pairs import count_bits
from kaggle_tfr.naming import SPLIT_NAMES


def find_leaks(clusters: pd.DataFrame, codes: np.ndarray) -> pd.DataFrame:
    """Pair each image of a leak with the first one of another split in its cluster.

    clusters: of `find_clusters`. codes: of `read_codes`.
    Columns: distance (bits), dataset (""), and those of both images, of the test image
    (or the validation image of a pair with train) with the ending _a. Of several first
    images, one that is kept counts.
    """
    members = clusters.rename_axis("row").reset_index()
    members["rank"] = rank_splits(members["split"])
    firsts = members.sort_values("keep", ascending=False, kind="stable")
    firsts = firsts.drop_duplicates(["cluster", "rank"])
    tables = [
        a.merge(b, on="cluster", suffixes=("_a", ""))
        for a, b in ((members, firsts), (firsts, members))
    ]
    leaks = pd.concat(tables).drop_duplicates(["row_a", "row"])
    leaks = leaks[leaks["rank_a"] < leaks["rank"]]
    leaks["distance"] = count_bits(codes, leaks["row_a"], leaks["row"])
    leaks = leaks.sort_values(["row_a", "distance", "row"], ignore_index=True)
    return leaks.assign(dataset="")


def rank_splits(splits: pd.Series) -> pd.Series:
    """Return 0 for test, 1 for validation, 2 for train, whatever their names are."""
    return splits.map(SPLIT_NAMES).map({"test": 0, "validation": 1, "train": 2})


def count_leaks(leaks: pd.DataFrame) -> pd.DataFrame:
    """Count the images of each two splits that have a copy in the other one.

    leaks: of `find_leaks`. Columns: split_a, split, images (of split_a), other_images,
    and kept: whether one of the other images is kept although it leaks.
    """
    return leaks.groupby(["split_a", "split"], as_index=False).agg(
        images=("image_id_a", "nunique"),
        other_images=("image_id", "nunique"),
        kept=("keep", "any"),
    )
