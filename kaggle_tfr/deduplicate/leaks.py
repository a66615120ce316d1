"""Find leaks: near-duplicates in two splits, such as test and train."""

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph

from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.deduplicate.pairs import MAX_EQUAL, select_accepted
from kaggle_tfr.naming import SPLIT_NAMES

RANKS = {"test": 0, "validation": 1, "train": 2}


def find_leaks(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    clusters: pd.DataFrame,
) -> pd.DataFrame:
    """Find pairs of near-duplicates in two splits, one row per pair.

    pairs: as in `find_clusters`. Columns: a, b (row numbers of `images`), distance
    (bits), and test_id, test_split of a and image_id, label_name, split, keep of b.
    Image a is the test image, or the validation image of a pair with train. If more
    than 20 images have equal hashes, each has pairs with the first one of every other
    split only.
    """
    leaks = _pair_splits(images, select_accepted(pairs))
    leaks = leaks.sort_values(["a", "distance", "b"])
    leaks = leaks.drop_duplicates(["a", "b"], ignore_index=True)

    first = images.iloc[leaks["a"]]
    leaks = leaks.assign(
        test_id=first["image_id"].to_numpy(),
        test_split=first["split"].to_numpy(),
    )
    second = match_clusters(images.iloc[leaks["b"]], clusters)
    return leaks.join(second[["image_id", "label_name", "split", "keep"]])


def _group_crowds(pairs: pd.DataFrame, n_images: int) -> np.ndarray:
    """Return a number of each image: its row, or a common one of over 20 equal hashes.

    `find_pairs` pairs only the first of these with other images. As one group, all of
    them have its pairs.
    """
    equal = pairs[pairs["distance"] == 0]
    ends = (equal["a"], equal["b"])
    edges = (np.ones(len(equal)), ends)
    graph = coo_matrix(edges, shape=(n_images, n_images))
    _, component = csgraph.connected_components(graph, directed=False)
    size = np.bincount(component)[component]
    return np.where(
        size > MAX_EQUAL,
        -1 - component,
        np.arange(n_images),
    )


def _pair_splits(images: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return columns a, b, distance: the images of near groups that are in two splits.

    Each image of a group is paired with the first image of each split of the other.
    """
    group = _group_crowds(pairs, len(images))
    members = pd.DataFrame({"group": group})
    members["row"] = members.index
    split = images["split"].map(SPLIT_NAMES)
    members["rank"] = split.map(RANKS).to_numpy()
    firsts = members.drop_duplicates(["group", "rank"])

    near = pairs[["distance"]].assign(
        group_a=group[pairs["a"]],
        group_b=group[pairs["b"]],
    )
    near = near.drop_duplicates()
    swapped_groups = {"group_a": "group_b", "group_b": "group_a"}
    near = pd.concat([near, near.rename(columns=swapped_groups)])
    near = near.merge(members.add_suffix("_a"))
    near = near.merge(firsts.add_suffix("_b"))

    is_earlier = near["rank_a"] < near["rank_b"]
    is_later = near["rank_a"] > near["rank_b"]
    found = near[is_earlier].rename(columns={"row_a": "a", "row_b": "b"})
    swapped = near[is_later].rename(columns={"row_a": "b", "row_b": "a"})
    leaks = pd.concat([found, swapped])
    return leaks[["a", "b", "distance"]]
