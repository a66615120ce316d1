"""Join near-duplicates to clusters, and decide which images of a cluster are kept.

Images that are connected by pairs form one cluster. Example: image a is 4 bits from b,
and b is 3 bits from c. All three are one cluster, although a and c may be far apart.
The largest image, say c, is kept. The reasons read "kept: largest of 3" for c,
"duplicate of c" for b, and "duplicate of c by way of b" for a, which is two steps from
c.

Test images are always kept. They do not influence which labelled images are kept,
unless leaks are dropped.
"""

import numpy as np
import pandas as pd
from scipy.sparse import csgraph, csr_matrix

from kaggle_tfr.deduplicate.display import name_labels
from kaggle_tfr.parameters import check_parameters

COLUMNS = [
    "image_id",
    "cluster",
    "distance",
    "keep",
    "reason",
    "path",
    "label_name",
    "split",
    "steps",
    "chain",
    "conflict",
]
MAX_STEPS = 2  # images further from the keeper make their cluster a chain
STEP_COST = 1_000_000  # of a pair, plus its bits: more than all bits on a way
EQUAL_COST = 1000  # of a pair with equal hashes


def find_clusters(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    *,
    kind: str = "single",
    keep: str = "largest",
    conflicts: str = "drop",
    leaks: str = "report",
) -> pd.DataFrame:
    """Return one row per image in a cluster of two or more: kept or dropped, and why.

    images: columns image_id, path, label, label_name, split, height, width, n_bytes,
        and optionally source; `pairs` contains its row numbers.
    pairs: of `find_pairs` or `verify_geometry`, or columns a, b, distance (bits). If
        there is a column accepted, only accepted pairs count.
    kind: of labels; unless it is "single", labels are compared as sets.
    keep: "largest" (pixels, then bytes, then name) or "first" image of the lowest
        source of each cluster, or "all".
    conflicts: if labels differ, "drop" the cluster, keep an image of the "majority", or
        "keep" an image of any label.
    leaks: "report" (keep) or "drop" the labelled images in a cluster with a test image.

    Columns: `COLUMNS`. cluster counts from 0 in the order of the table. steps: number
    of pairs on the way to the keeper, the image kept. distance: of the last of these
    pairs (bits). chain: an image of the cluster is more than two steps from the keeper.
    conflict: the cluster has several labels; never true for a test image.
    Raises: ValueError: `keep`, `conflicts` or `leaks` is unknown.
    """
    check_parameters({"KEEP": keep, "CONFLICTS": conflicts, "LEAKS": leaks})
    if "accepted" in pairs:
        pairs = pairs[pairs["accepted"]]
    rows, graph = _build_graph(pairs)
    members = images.iloc[rows].reset_index(drop=True)
    component = csgraph.connected_components(graph, directed=False)[1]
    members["cluster"] = component.astype(np.int64)
    members["test"] = members["split"] == "test"

    members = _compare_labels(members, kind, conflicts)
    members["keeper"] = _choose_keepers(members, keep)
    members = _trace_steps(members, graph)
    members["test_id"] = _find_id(members, members["test"])
    is_leak = members["test_id"].notna()
    members["leak"] = is_leak & (leaks == "drop")
    is_chosen = members["keeper"] | (keep == "all")
    is_kept = is_chosen & members["candidate"] & ~members["leak"]
    members["keep"] = is_kept | members["test"]
    members["reason"] = _explain(members, keep)
    return members[COLUMNS]


def _build_graph(pairs: pd.DataFrame) -> tuple[np.ndarray, csr_matrix]:
    """Return the sorted rows in pairs, and the costs of the steps between them.

    The shortest way by these costs has the fewest steps, then the fewest bits.
    """
    ends = pairs[["a", "b"]].to_numpy(np.int64)
    rows, nodes = np.unique(ends, return_inverse=True)
    node_a, node_b = nodes.reshape(-1, 2).T
    bits = pairs["distance"].to_numpy(np.int64)
    # Equal hashes are not a step, but a direct pair is preferred to a way through them.
    cost = np.where(bits > 0, STEP_COST + bits, EQUAL_COST)
    graph = csr_matrix(
        (cost, (node_a, node_b)),
        shape=(len(rows), len(rows)),
    )
    return rows, graph


def _compare_labels(
    members: pd.DataFrame,
    kind: str,
    conflicts: str,
) -> pd.DataFrame:
    """Add conflict, and candidate: whether the labels allow that the image is kept.

    An image without a label agrees with every other image.
    """
    cluster = members["cluster"]
    is_labelled = (members["label"] >= 0) & ~members["test"]
    label = members["label"].where(is_labelled)
    if kind != "single":
        names = members["label_name"].str.split("|")
        codes, _ = pd.factorize(names.map(frozenset))
        label = label.mask(is_labelled, codes)
    n_labels = label.groupby(cluster).transform("nunique")
    conflict = (n_labels > 1) & ~members["test"]

    candidate = ~conflict | (conflicts == "keep")
    if conflicts == "majority":
        votes = label.groupby([cluster, label]).transform("size")
        most_votes = votes.groupby(cluster).transform("max")
        winner = label.where(votes == most_votes)
        n_winners = winner.groupby(cluster).transform("nunique")
        candidate |= winner.notna() & (n_winners == 1)
    return members.assign(conflict=conflict, candidate=candidate)


def _choose_keepers(members: pd.DataFrame, keep: str) -> pd.Series:
    """Return whether each image is the best one of its cluster to keep: bool."""
    order = {
        "cluster": members["cluster"],
        "test": members["test"],
        "minority": ~members["candidate"],
        "source": members.get("source", 0),
    }
    if keep != "first":
        height = members["height"].astype(np.int64)
        order["pixels"] = -height * members["width"]
        order["n_bytes"] = -members["n_bytes"]
        order["name"] = members["image_id"]
    ranked = pd.DataFrame(order).sort_values([*order])
    is_best = ~ranked["cluster"].duplicated()
    return is_best.sort_index()


def _trace_steps(members: pd.DataFrame, graph: csr_matrix) -> pd.DataFrame:
    """Add steps, distance, chain, and through: the next image towards the keeper."""
    keepers = np.flatnonzero(members["keeper"])
    cost, previous, _ = csgraph.dijkstra(
        graph,
        directed=False,
        indices=keepers,
        min_only=True,
        return_predecessors=True,
    )
    previous[keepers] = keepers
    last_cost = (cost - cost[previous]).astype(np.int64)
    steps = pd.Series(cost.astype(np.int64) // STEP_COST)
    most_steps = steps.groupby(members["cluster"]).transform("max")
    return members.assign(
        steps=steps,
        distance=last_cost % EQUAL_COST,
        chain=most_steps > MAX_STEPS,
        through=members["image_id"].to_numpy()[previous],
    )


def _find_id(members: pd.DataFrame, is_chosen: pd.Series) -> pd.Series:
    """Return for each row the id of the first chosen image of its cluster, or NaN."""
    chosen_id = members["image_id"].where(is_chosen)
    return chosen_id.groupby(members["cluster"]).transform("first")


def _explain(members: pd.DataFrame, keep: str) -> pd.Series:
    """Return for each row why the image is kept or dropped; the last rule counts."""
    cluster = members["cluster"]
    original = _find_id(members, members["keeper"])
    reason = "duplicate of " + original
    way = " by way of " + members["through"]
    reason = reason.mask(members["through"] != original, reason + way)

    is_labelled = ~members["test"]
    n_labelled = is_labelled.groupby(cluster).transform("sum")
    kept = f"kept: {keep} of " + n_labelled.astype(str)
    reason = reason.mask(members["keep"], kept)

    conflicting = name_labels(members)[members["conflict"]]
    labels = conflicting.groupby(cluster).unique()
    conflict = "conflict: " + labels.map(sorted).str.join(", ")
    conflict = cluster.map(conflict)
    reason = reason.mask(~members["candidate"], conflict)

    leak = "leak: test image " + members["test_id"] + " shows the same"
    reason = reason.mask(members["leak"], leak)
    return reason.mask(members["test"], "test image: always kept")
