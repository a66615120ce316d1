"""Find leaks: clusters with images of two splits, such as test and train."""

from collections.abc import Iterable
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.pairs import count_bits
from kaggle_tfr.naming import SPLIT_NAMES

RANKS = {"test": 0, "validation": 1, "train": 2}


def find_leaks(clusters: pd.DataFrame, words: np.ndarray) -> pd.DataFrame:
    """Pair each image of a leak with the first one of another split in its cluster.

    clusters: of `find_clusters`. words: of `read_words`.
    Columns: distance (bits), dataset (""), and those of both images with the endings _a
    and _b. Image a is the test image, or the validation image of a pair with train. Of
    several first images, one that is kept counts.
    """
    members = clusters.rename_axis("row").reset_index()
    members["rank"] = members["split"].map(SPLIT_NAMES).map(RANKS)
    firsts = members.sort_values("keep", ascending=False, kind="stable")
    firsts = firsts.drop_duplicates(["cluster", "rank"])
    tables = [
        a.merge(b, on="cluster", suffixes=("_a", "_b"))
        for a, b in ((members, firsts), (firsts, members))
    ]
    leaks = pd.concat(tables).drop_duplicates(["row_a", "row_b"])
    leaks = leaks[leaks["rank_a"] < leaks["rank_b"]]
    leaks["distance"] = count_bits(words, leaks["row_a"], leaks["row_b"])
    leaks = leaks.sort_values(["row_a", "distance", "row_b"], ignore_index=True)
    return leaks.assign(dataset="")


def count_copies(clusters: pd.DataFrame, splits: Iterable[str]) -> pd.DataFrame:
    """Count the copies in each pair of splits, and in each split itself.

    clusters: of `find_clusters`. splits: their names. Columns: split, other, images (of
    the split with a copy in the other one) and other_images (with a copy in the split).
    """
    sizes = pd.crosstab(clusters["cluster"], clusters["split"])
    sizes = sizes.reindex(columns=list_splits(splits), fill_value=0)
    rows = []
    for split, other in combinations_with_replacement(sizes, 2):
        n_needed = 2 if split == other else 1
        is_shared = (sizes[[split, other]] >= n_needed).all(axis=1)
        shared = sizes[is_shared].sum()
        rows.append((split, other, shared[split], shared[other]))
    return pd.DataFrame(rows, columns=["split", "other", "images", "other_images"])


def list_splits(splits: Iterable[str]) -> list[str]:
    """Return the distinct splits: test, those of validation, train."""
    names = sorted(set(splits))
    return sorted(names, key=lambda name: RANKS[SPLIT_NAMES[name]])
