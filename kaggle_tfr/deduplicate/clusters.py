"""Join near-duplicates to clusters, and decide which images of a cluster are kept.

Images that are connected by pairs form one cluster. Example: image a is 4 bits from b,
and b is 3 bits from c. All three are one cluster, although a and c may be far apart.
The largest image, say c, is kept. The reasons read "kept: largest of 3" for c,
"duplicate of c" for b, and "duplicate of c by way of b" for a, which is two steps from
c.

Test images are always kept. They do not influence which labelled images are kept,
unless leaks are dropped. Neither do images of compared datasets. A cluster of test
images and one other image has the reason "kept: the only labelled image".

The user's decisions come first. An image that the user drops has no vote on the label
of its cluster, and another image is kept in its place; it still connects its
neighbours.

When a dataset grows, images with a record in an earlier part are always kept.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.sparse import csgraph, csr_matrix

from kaggle_tfr.earlier import mark_recorded
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
    keep: str = "largest",
    conflicts: str = "drop",
    leaks: str = "report",
    copies: Mapping[int, str] | None = None,
    kept_rows: Sequence[int] = (),
    dropped_rows: Sequence[int] = (),
) -> pd.DataFrame:
    """Return one row per image in a cluster of two or more: kept or dropped, and why.

    images: columns image_id, path, label, label_name, split, height, width, n_bytes,
        and optionally source and part; `pairs` contains its row
        numbers.
    pairs: columns a, b, distance (bits).
    keep: "largest" (pixels, then bytes, then name) or "first" image of the lowest
        source of each cluster, or "all".
    conflicts: if labels differ, "drop" the cluster, keep an image of the "majority", or
        "keep" an image of any label.
    leaks: "report" (keep) or "drop" the labelled images in a cluster with a test image,
        or with an image that another dataset also contains.
    copies: the names of the images in other datasets that show the same, by row
        numbers, of `name_copies`.
    kept_rows, dropped_rows: labelled images that the user keeps and drops, by their row
        numbers. An image without a near-duplicate that is dropped is a cluster, too.

    Columns: `COLUMNS`. cluster counts from 0 in the order of the table. steps: number
    of pairs on the way to the keeper, the image kept. distance: of the last of these
    pairs (bits). chain: an image of the cluster is more than two steps from the keeper.
    conflict: the cluster has several labels; never true for a test image.
    Raises: ValueError: `keep`, `conflicts` or `leaks` is unknown.
    """
    check_parameters({"KEEP": keep, "CONFLICTS": conflicts, "LEAKS": leaks})
    copies = copies if copies and leaks == "drop" else {}
    single_rows = [*dropped_rows, *_list_leaking(images, copies)]
    rows, graph = build_graph(pairs, single_rows)
    members = images.iloc[rows].reset_index(drop=True)
    members["cluster"] = _number_clusters(graph)
    members["test"] = members["split"] == "test"
    members["user_keeps"] = np.isin(rows, kept_rows)
    members["user_drops"] = np.isin(rows, dropped_rows)
    members["copy"] = pd.Series(rows).map(copies)
    members["recorded"] = mark_recorded(members)

    members = _compare_labels(members, conflicts)
    members["keeper"] = _choose_keepers(members, keep)
    members = _trace_steps(members, graph)
    members = _decide(members, keep, leaks)
    members["reason"] = _explain(members, keep)
    return members[COLUMNS]


def _list_leaking(images: pd.DataFrame, copies: Iterable[int]) -> list[int]:
    """Return the rows of `copies` that are dropped: no test images and no records."""
    is_kept = (images["split"] == "test") | mark_recorded(images)
    kept_rows = set(np.flatnonzero(is_kept))
    return [row for row in copies if row not in kept_rows]


def build_graph(
    pairs: pd.DataFrame,
    single_rows: Sequence[int] = (),
) -> tuple[np.ndarray, csr_matrix]:
    """Return the sorted rows in pairs, and the costs of the steps between them.

    The shortest way by these costs has the fewest steps, then the fewest bits.
    single_rows: rows that are nodes even if no pair has them.
    """
    ends = pairs[["a", "b"]].to_numpy(np.int64)
    rows = np.union1d(ends, np.array(single_rows, np.int64))
    node_a, node_b = np.searchsorted(rows, ends).T
    graph = csr_matrix(
        (_count_costs(pairs), (node_a, node_b)),
        shape=(len(rows), len(rows)),
    )
    return rows, graph


def _number_clusters(graph: csr_matrix) -> np.ndarray:
    """Return the number of each node's cluster, from 0: int64 (n,)."""
    _, component = csgraph.connected_components(graph, directed=False)
    return component.astype(np.int64)


def _count_costs(pairs: pd.DataFrame) -> np.ndarray:
    """Return the cost of the step between the images of each pair: int64 (n,).

    Equal hashes are not a step, but a direct pair is preferred to a way through them.
    """
    bits = pairs["distance"].to_numpy(np.int64)
    return np.where(bits > 0, STEP_COST + bits, EQUAL_COST)


def _compare_labels(
    members: pd.DataFrame,
    conflicts: str,
) -> pd.DataFrame:
    """Add conflict, and candidate: whether the labels allow that the image is kept.

    An image without a label agrees with every other image.
    """
    is_test = members["test"]
    is_dropped = members["user_drops"]
    cluster = members["cluster"]
    has_vote = (members["label"] >= 0) & ~is_test & ~is_dropped
    label = members["label"].where(has_vote)
    conflict = (_count_distinct(label, cluster) > 1) & ~is_test
    candidate = ~conflict | (conflicts == "keep")
    if conflicts == "majority":
        candidate |= _is_of_majority(label, cluster)
    candidate = (candidate & ~is_dropped) | members["recorded"]
    return members.assign(conflict=conflict, candidate=candidate)


def _is_of_majority(
    label: pd.Series,
    cluster: pd.Series,
) -> pd.Series:
    """Return whether more images of its cluster have an image's label than any other.

    label: NaN for an image without a vote.
    """
    votes = label.groupby([cluster, label]).transform("size")
    most_votes = votes.groupby(cluster).transform("max")
    winner = label.where(votes == most_votes)
    return winner.notna() & (_count_distinct(winner, cluster) == 1)


def _count_distinct(
    values: pd.Series,
    cluster: pd.Series,
) -> pd.Series:
    """Return for each row the number of distinct values in its cluster, without NaN."""
    return values.groupby(cluster).transform("nunique")


def _choose_keepers(
    members: pd.DataFrame,
    keep: str,
) -> pd.Series:
    """Return whether each image is the best one of its cluster to keep: bool."""
    ranks = _rank(members, keep)
    ranks = ranks.sort_values([*ranks])
    is_best = ~ranks["cluster"].duplicated()
    return is_best.sort_index()


def _rank(
    members: pd.DataFrame,
    keep: str,
) -> pd.DataFrame:
    """Return the columns that decide which image is the best, the first column first.

    The image with the lowest values is the best one.
    """
    ranks = {
        "cluster": members["cluster"],
        "test": members["test"],
        "not_recorded": ~members["recorded"],
        "minority": ~members["candidate"],
        "source": members.get("source", 0),
    }
    if keep != "first":
        height = members["height"].astype(np.int64)
        ranks["pixels"] = -height * members["width"]
        ranks["n_bytes"] = -members["n_bytes"]
        ranks["name"] = members["image_id"]
    return pd.DataFrame(ranks)


def _trace_steps(
    members: pd.DataFrame,
    graph: csr_matrix,
) -> pd.DataFrame:
    """Add steps, distance, chain, and through: the next image towards the keeper."""
    keepers = np.flatnonzero(members["keeper"])
    cost, following = _find_ways(graph, keepers)
    last_cost = cost - cost[following]
    steps = pd.Series(cost // STEP_COST)
    most_steps = steps.groupby(members["cluster"]).transform("max")
    return members.assign(
        steps=steps,
        distance=last_cost % EQUAL_COST,
        chain=most_steps > MAX_STEPS,
        through=members["image_id"].to_numpy()[following],
    )


def _find_ways(
    graph: csr_matrix,
    ends: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cost of the cheapest way from each node to an end, and its next node.

    The next node of an end is the end.
    """
    cost, following, _ = csgraph.dijkstra(
        graph,
        directed=False,
        indices=ends,
        min_only=True,
        return_predecessors=True,
    )
    following[ends] = ends
    return cost.astype(np.int64), following


def _decide(
    members: pd.DataFrame,
    keep: str,
    leaks: str,
) -> pd.DataFrame:
    """Add keep, and leak: whether an image is dropped because of the image shown_by."""
    test_id = _find_id(members, members["test"])
    copy_of_cluster = members["copy"].groupby(members["cluster"]).transform("first")
    shown_by = "test image " + test_id
    shown_by = shown_by.fillna(members["copy"]).fillna(copy_of_cluster)
    is_leak = shown_by.notna() & (leaks == "drop") & ~members["recorded"]
    is_chosen = members["keeper"] | (keep == "all")
    is_kept = (is_chosen & members["candidate"] & ~is_leak) | members["user_keeps"]
    return members.assign(
        shown_by=shown_by,
        leak=is_leak,
        keep=is_kept | members["recorded"] | members["test"],
    )


def _find_id(
    members: pd.DataFrame,
    is_chosen: pd.Series,
) -> pd.Series:
    """Return for each row the id of the first chosen image of its cluster, or NaN."""
    chosen_id = members["image_id"].where(is_chosen)
    return chosen_id.groupby(members["cluster"]).transform("first")


def _explain(
    members: pd.DataFrame,
    keep: str,
) -> pd.Series:
    """Return for each row why the image is kept or dropped; the last rule counts."""
    is_test = members["test"]
    is_counted = ~is_test & ~members["user_drops"]
    n_counted = is_counted.groupby(members["cluster"]).transform("sum")
    n_labelled = (~is_test).groupby(members["cluster"]).transform("sum")
    kept = f"kept: {keep} of " + n_counted.astype(str)
    kept = kept.mask(n_counted == 1, "kept: the others are dropped by overrides")
    kept = kept.mask(n_labelled == 1, "kept: the only labelled image")
    leak = "leak: " + members["shown_by"] + " shows the same"

    reason = _name_original(members)
    reason = reason.mask(members["keep"], kept)
    reason = reason.mask(~members["candidate"], _name_conflict(members))
    reason = reason.mask(members["leak"], leak)
    reason = reason.mask(members["user_keeps"], "override: kept")
    reason = reason.mask(members["user_drops"], "override: dropped")
    if "part" in members:
        record = "earlier: part " + members["part"].astype(str)
        reason = reason.mask(members["recorded"], record)
    return reason.mask(is_test, "test image: always kept")


def _name_original(members: pd.DataFrame) -> pd.Series:
    """Return the text that names the keeper of each image, and the way to it."""
    original = _find_id(members, members["keeper"])
    through = members["through"]
    direct = "duplicate of " + original
    return direct.mask(through != original, direct + " by way of " + through)


def _name_conflict(members: pd.DataFrame) -> pd.Series:
    """Return the text that names the labels of each image's cluster, NaN for one."""
    has_label = (members["label"] >= 0) & ~members["user_drops"]
    is_labelled = members["conflict"] & has_label
    labelled = members[is_labelled]
    names = pd.DataFrame(
        {"cluster": labelled["cluster"], "name": _name_labels(labelled)}
    )
    names = names.drop_duplicates().sort_values("name")
    labels = names.groupby("cluster")["name"].agg(", ".join)
    return members["cluster"].map("conflict: " + labels)


def _name_labels(images: pd.DataFrame) -> pd.Series:
    """Return the label names, with the source if an image is of a further input."""
    names = images["label_name"]
    if "source" in images and images["source"].any():
        names = names + " (source " + images["source"].astype(str) + ")"
    return names
