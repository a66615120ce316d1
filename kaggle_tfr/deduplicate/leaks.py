"""Find leaks: near-duplicates in two splits, such as test and train."""

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph

from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.deduplicate.pairs import MAX_EQUAL
from kaggle_tfr.naming import SPLIT_NAMES

RANKS = {"test": 0, "validation": 1, "train": 2}


def find_leaks(
    images: pd.DataFrame, pairs: pd.DataFrame, clusters: pd.DataFrame
) -> pd.DataFrame:
    """Find pairs of near-duplicates in two splits, one row per pair.

    pairs: as in `find_clusters`. Columns: a, b (row numbers of `images`), distance
    (bits), and test_id, test_split of a and image_id, label_name, split, keep of b.
    Image a is the test image, or the validation image of a pair with train. If more
    than 20 images have equal hashes, each has pairs with the first one of every other
    split only.
    """
    if "accepted" in pairs:
        pairs = pairs[pairs["accepted"]]
    group = _group_crowds(pairs, len(images))
    members = pd.DataFrame({"group": group, "row": np.arange(len(images))})
    members["rank"] = images["split"].map(SPLIT_NAMES).map(RANKS).to_numpy()
    firsts = members.drop_duplicates(["group", "rank"])

    near = pd.DataFrame(
        {
            "group_a": group[pairs["a"]],
            "group_b": group[pairs["b"]],
            "distance": pairs["distance"].to_numpy(),
        }
    ).drop_duplicates()
    swapped = near.rename(columns={"group_a": "group_b", "group_b": "group_a"})
    near = pd.concat([near, swapped])
    # All rows of one group with the first of the other, and the other way round.
    leaks = pd.concat(
        [_match_rows(near, members, firsts), _match_rows(near, firsts, members)]
    )
    leaks = leaks.drop_duplicates()
    leaks = leaks.sort_values(["a", "distance", "b"], ignore_index=True)

    test = images.iloc[leaks["a"]].reset_index(drop=True)
    other = match_clusters(images.iloc[leaks["b"]].reset_index(drop=True), clusters)
    leaks = leaks.assign(test_id=test["image_id"], test_split=test["split"])
    return leaks.join(other[["image_id", "label_name", "split", "keep"]])


def _group_crowds(pairs: pd.DataFrame, n_images: int) -> np.ndarray:
    """Return a number of each image: its row, or a common one of over 20 equal hashes.

    `find_pairs` pairs only the first of these with other images. As one group, all of
    them have its pairs.
    """
    equal = pairs[pairs["distance"] == 0]
    ones = np.ones(len(equal))
    graph = coo_matrix((ones, (equal["a"], equal["b"])), (n_images, n_images))
    component = csgraph.connected_components(graph, directed=False)[1]
    is_crowded = np.bincount(component)[component] > MAX_EQUAL
    return np.where(is_crowded, -1 - component, np.arange(n_images))


def _match_rows(
    near: pd.DataFrame, members_a: pd.DataFrame, members_b: pd.DataFrame
) -> pd.DataFrame:
    """Return columns a, b and distance: rows of near groups, a in the earlier split."""
    members_a = members_a.set_axis(["group_a", "a", "rank_a"], axis=1)
    members_b = members_b.set_axis(["group_b", "b", "rank_b"], axis=1)
    rows = near.merge(members_a).merge(members_b)
    return rows.loc[rows["rank_a"] < rows["rank_b"], ["a", "b", "distance"]]
