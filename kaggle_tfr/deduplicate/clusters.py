"""Join near-duplicates to clusters, and decide which images of a cluster are kept.

Images that are connected by pairs form one cluster. Example: image a is 4 bits from b,
and b is 3 bits from c. All three are one cluster, although a and c may be far apart.
The largest image, say c, is kept. The reasons read "kept: largest of 3" for c,
"duplicate of c" for b, and "duplicate of c by way of b" for a, which is two steps from
c.

Test images are always kept, and labelled images are resolved as if these did not exist.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph, csr_matrix

from kaggle_tfr.deduplicate.display import name_labels
from kaggle_tfr.parameters import check_parameters

COLUMNS = ["image_id", "cluster", "distance", "keep", "reason", "path", "label_name",
           "split", "steps", "chain", "conflict"]  # fmt: skip
MAX_STEPS = 2  # images further from the keeper make their cluster a chain


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
    pairs: columns a, b, distance (bits); with a column accepted, only accepted pairs.
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
    members["test"] = members["split"] == "test"
    component = csgraph.connected_components(graph, directed=False)[1]
    members["cluster"] = pd.factorize(component)[0]

    members = _compare_labels(members, kind, conflicts)
    members["keeper"] = _choose_keepers(members, keep)
    members = _trace_steps(members, graph)
    test_id = members["image_id"].where(members["test"])
    members["test_id"] = test_id.groupby(members["cluster"]).transform("first")
    members["leak"] = members["test_id"].notna() & (leaks == "drop")
    is_chosen = members["candidate" if keep == "all" else "keeper"]
    is_kept = is_chosen & ~members["dropped"] & ~members["leak"]
    members["keep"] = members["test"] | is_kept
    members["reason"] = _explain(members, keep, conflicts)
    return members[COLUMNS]


def _build_graph(pairs: pd.DataFrame) -> tuple[np.ndarray, csr_matrix]:
    """Return the sorted rows in pairs, and the distances between them as a graph.

    A distance of 0 is a stored element of the sparse matrix.
    """
    pairs = pairs.drop_duplicates(["a", "b"])
    ends = pairs[["a", "b"]].to_numpy(np.int64).T
    rows, nodes = np.unique(ends, return_inverse=True)
    bits = pairs["distance"].to_numpy(np.int64)
    shape = (len(rows), len(rows))
    return rows, coo_matrix((bits, tuple(nodes.reshape(2, -1))), shape).tocsr()


def _compare_labels(members: pd.DataFrame, kind: str, conflicts: str) -> pd.DataFrame:
    """Add conflict, dropped (with the whole cluster) and candidate (may be kept).

    An image without a label agrees with every other image.
    """
    cluster = members["cluster"]
    label = members["label"].where((members["label"] >= 0) & ~members["test"])
    if kind != "single":
        sets = [frozenset(names.split("|")) for names in members["label_name"].map(str)]
        label = label.mask(label.notna(), pd.factorize(pd.Series(sets))[0])
    n_labels = label.groupby(cluster).transform("nunique")
    conflict = (n_labels > 1) & ~members["test"]
    dropped = conflict & (conflicts == "drop")
    candidate = pd.Series(True, members.index)
    if conflicts == "majority":
        votes = label.groupby([cluster, label]).transform("size")
        winner = label.where(votes == votes.groupby(cluster).transform("max"))
        winners = winner.groupby(cluster)
        dropped = conflict & (winners.transform("nunique") > 1)
        candidate = ~conflict | (label == winners.transform("min"))
    return members.assign(conflict=conflict, dropped=dropped, candidate=candidate)


def _choose_keepers(members: pd.DataFrame, keep: str) -> pd.Series:
    """Return whether each image is the best one of its cluster to keep: bool."""
    order = {
        "cluster": members["cluster"],
        "test": members["test"],
        "minority": ~members["candidate"],
        "source": members.get("source", 0),
    }
    if keep != "first":
        order["pixels"] = -members["height"].astype(np.int64) * members["width"]
        order["n_bytes"] = -members["n_bytes"]
        order["name"] = members["image_id"].astype(str)
    ranked = pd.DataFrame(order).sort_values([*order], kind="stable")
    best = ranked.drop_duplicates("cluster").index
    return pd.Series(members.index.isin(best), members.index)


def _trace_steps(members: pd.DataFrame, graph: csr_matrix) -> pd.DataFrame:
    """Add steps, distance, chain, and through: the next image towards the keeper."""
    if members.empty:  # an empty sparse matrix cannot be indexed
        return members.assign(steps=0, distance=0, chain=False, through="")
    rows = np.arange(len(members))
    keepers = rows[members["keeper"]]
    cost = graph.astype(float)
    # Fewest steps first, then fewest bits. Equal hashes are no step: they cost a
    # thousandth, because a sparse matrix has no edge of length 0.
    cost.data = np.where(graph.data > 0, 1.0, 1e-3) + graph.data * 1e-6
    length, previous, _ = csgraph.dijkstra(
        cost,
        directed=False,
        indices=keepers,
        min_only=True,
        return_predecessors=True,
    )
    previous[keepers] = keepers
    steps = pd.Series(length.astype(np.int64))
    # Each pair is stored in one of two places of the matrix.
    distance = graph[rows, previous] + graph[previous, rows]
    return members.assign(
        steps=steps,
        through=members["image_id"].to_numpy()[previous],
        distance=np.asarray(distance).ravel(),
        chain=steps.groupby(members["cluster"]).transform("max") > MAX_STEPS,
    )


def _explain(members: pd.DataFrame, keep: str, conflicts: str) -> list[str]:
    """Return a sentence for each row: why the image is kept or dropped."""
    cluster = members["cluster"]
    label = name_labels(members, cluster.to_numpy())
    keeper = members[members["keeper"]].set_index("cluster")
    facts = pd.DataFrame(
        {
            "label": label,
            "labels": cluster.map(_list_labels(label[~members["test"]], cluster)),
            "original": cluster.map(keeper["image_id"]),
            "original_label": cluster.map(keeper["label_name"]),
            "size": (~members["test"]).groupby(cluster).transform("sum"),
        }
    )
    columns = ["test", "test_id", "leak", "dropped", "conflict", "candidate", "keep"]
    facts = facts.join(members[[*columns, "through"]])
    return [_explain_row(row, keep, conflicts) for row in facts.itertuples()]


def _list_labels(label: pd.Series, cluster: pd.Series) -> pd.Series:
    """Return the different labels of each cluster, as a text, by cluster."""
    labels = label.groupby(cluster)
    return labels.agg(lambda names: ", ".join(sorted(names.unique())))


def _explain_row(row: Any, keep: str, conflicts: str) -> str:
    """Return the sentence for one row of `_explain`, a named tuple."""
    same = f"test image {row.test_id} shows the same"
    if row.test:
        return "test image: always kept"
    if row.leak:
        return f"leak: {same}"
    if row.dropped and conflicts == "majority":
        return f"conflict: {row.labels} are equally many"
    if row.dropped:
        return f"conflict: {row.labels}"
    if not row.candidate:
        return f"conflict: {row.label}, but most say {row.original_label}"
    if row.keep:
        reason = f"kept: {'all ' if keep == 'all' else f'{keep} of '}{row.size}"
        return reason if pd.isna(row.test_id) else f"{reason}, though {same}"
    reason = f"duplicate of {row.original}"
    if row.through != row.original:
        reason += f" by way of {row.through}"
    if row.conflict and conflicts == "keep":
        reason += f", which says {row.original_label}"
    return reason
