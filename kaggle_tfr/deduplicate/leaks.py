"""Find copies, and leaks: copies in two splits, such as test and train."""

from collections.abc import Iterable
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph

from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.naming import SPLIT_NAMES

MAX_EQUAL = 1  # `find_pairs` pairs only the first of equal hashes with others
RANKS = {"test": 0, "validation": 1, "train": 2}
COUNTS = ["split", "other", "images", "other_images", "copies"]


def find_leaks(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    clusters: pd.DataFrame,
) -> pd.DataFrame:
    """Find pairs of near-duplicates in two splits, one row per pair.

    pairs: as in `find_clusters`. Columns: a, b (row numbers of `images`), distance
    (bits), test_id, test_split of a and image_id, label_name, split, keep of b, and
    dataset, which is "": both images are of this dataset. Image a is the test image, or
    the validation image of a pair with train. If more than 20 images have equal hashes,
    each has pairs with the first one of every other split only.
    """
    copies = find_copies(images, pairs[["a", "b", "distance"]])
    use = images["split"].map(SPLIT_NAMES).to_numpy()
    is_leak = use[copies["a"]] != use[copies["b"]]
    leaks = copies[is_leak].reset_index(drop=True)
    first = images.iloc[leaks["a"]]
    leaks["test_id"] = first["image_id"].to_numpy()
    leaks["test_split"] = first["split"].to_numpy()
    second = match_clusters(images.iloc[leaks["b"]], clusters)
    leaks = leaks.join(second[["image_id", "label_name", "split", "keep"]])
    return leaks.assign(dataset="")


def find_copies(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
) -> pd.DataFrame:
    """Find pairs of near-duplicates in two splits or in one, one row per pair.

    pairs: columns a, b (row numbers of `images`), distance (bits), and others, which
    stay. Image a is of the first split in the order of `list_splits`, or has the lower
    row. If more than 20 images have equal hashes, each has pairs with the first one of
    each split only: an image with copies in a split is in a pair with one of them.
    """
    group = _group_crowds(pairs, len(images))
    members = _list_members(images["split"], group)
    firsts = members.drop_duplicates(["group", "rank"])

    near = _pair_groups(group, pairs)  # in both orders
    near = near.merge(members.add_suffix("_a"))
    near = near.merge(firsts.add_suffix("_b"))
    is_before = near["rank_a"] < near["rank_b"]
    is_before |= (near["rank_a"] == near["rank_b"]) & (near["row_a"] < near["row_b"])
    copies = near[pairs.columns.drop(["a", "b"])].assign(
        a=near["row_a"].where(is_before, near["row_b"]),
        b=near["row_b"].where(is_before, near["row_a"]),
    )
    copies = copies[copies["a"] != copies["b"]]
    copies = copies.sort_values(["a", "distance", "b"], kind="stable")
    return copies.drop_duplicates(["a", "b"], ignore_index=True)


def count_copies(images: pd.DataFrame, copies: pd.DataFrame) -> pd.DataFrame:
    """Count the copies in each pair of splits, and in each split itself.

    copies: of `find_copies`. Columns: split, other, images (of the split with a copy in
    the other one), other_images (with a copy in the split) and copies (pairs).
    """
    split = images["split"].to_numpy()
    split_a = split[copies["a"]]
    split_b = split[copies["b"]]
    rows = []
    for name, other in combinations_with_replacement(list_splits(images["split"]), 2):
        between = copies[(split_a == name) & (split_b == other)]
        n_images = between["a"].nunique()
        n_others = between["b"].nunique()
        if name == other:
            n_images = n_others = np.unique(between[["a", "b"]]).size
        rows.append((name, other, n_images, n_others, len(between)))
    return pd.DataFrame(rows, columns=COUNTS)


def list_splits(split: Iterable[str]) -> list[str]:
    """Return the distinct splits: test, those of validation, train."""
    names = sorted(set(split))
    return sorted(names, key=lambda name: RANKS[SPLIT_NAMES[name]])


def _group_crowds(
    pairs: pd.DataFrame,
    n_images: int,
) -> np.ndarray:
    """Return a number of each image: its row, or a common one of over 20 equal hashes.

    `find_pairs` pairs only the first of these with other images. As one group, all of
    them have its pairs.
    """
    equal = pairs[pairs["distance"] == 0]
    edges = (np.ones(len(equal)), (equal["a"], equal["b"]))
    graph = coo_matrix(edges, shape=(n_images, n_images))
    _, component = csgraph.connected_components(graph, directed=False)
    size = np.bincount(component)[component]
    row = np.arange(n_images)
    return np.where(size > MAX_EQUAL, -1 - component, row)


def _list_members(
    split: pd.Series,
    group: np.ndarray,
) -> pd.DataFrame:
    """Return group, rank (of the split) and row of each image."""
    rank = pd.Categorical(split, list_splits(split)).codes
    members = pd.DataFrame({"group": group, "rank": rank})
    return members.assign(row=members.index)


def _pair_groups(
    group: np.ndarray,
    pairs: pd.DataFrame,
) -> pd.DataFrame:
    """Return group_a, group_b and the other columns of near groups, in both orders."""
    near = pairs.drop(columns=["a", "b"]).assign(
        group_a=group[pairs["a"]],
        group_b=group[pairs["b"]],
    )
    near = near.drop_duplicates()
    swapped_groups = {"group_a": "group_b", "group_b": "group_a"}
    return pd.concat([near, near.rename(columns=swapped_groups)])
