"""Clusters of near-duplicates: which picture of each is kept, and what its labels say."""

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph, csr_matrix

from kaggle_tfr import storage
from kaggle_tfr.parameters import check_parameters
from kaggle_tfr.schema import Saved

COLUMNS = ["image_id", "cluster", "distance", "keep", "reason", "path", "label_name", "split",
           "steps", "chain", "conflict"]  # fmt: skip


@dataclass(frozen=True)
class DuplicateSettings(Saved):
    """What duplicates.json holds: the radius in bits of 256, and which hashes it was taken with."""

    max_bits: int = 25
    exact_hashes: bool = False


def find_clusters(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    *,
    kind: str = "single",
    keep: str = "largest",
    conflicts: str = "drop",
) -> pd.DataFrame:
    """One row per image of a cluster of two or more: which is kept, and why each other is not.

    images: columns image_id, path, label, label_name, split, height, width, n_bytes.
    pairs: row numbers a, b and distance (bits); with a column accepted, only those accepted.
    kind: of the labels; unless "single", they are compared as sets.
    keep: "largest" picture (most pixels, then bytes, then first image_id), "first" row, or "all".
    conflicts: of different labels "drop" all, keep what the "majority" says, or "keep" whichever.
    Columns: `COLUMNS`; cluster counts from 0 in the table's order, steps the pairs on the way from
    the picture kept; distance is of the last (bits); chain: one of the cluster is over two away;
    conflict: several labels.
    Raises: ValueError for an unknown `keep` or `conflicts`.
    """
    check_parameters({"KEEP": keep, "CONFLICTS": conflicts})
    pairs = (pairs[pairs["accepted"]] if "accepted" in pairs else pairs).drop_duplicates(["a", "b"])
    n, bits = len(images), pairs["distance"].to_numpy(np.int64)  # 0 is stored where hashes agree
    graph = coo_matrix((bits, (pairs["a"], pairs["b"])), shape=(n, n)).tocsr()
    component = csgraph.connected_components(graph, directed=False)[1]
    rows = np.flatnonzero(np.bincount(component, minlength=n)[component] > 1)
    members = images.reset_index(drop=True).loc[rows]
    members = members.assign(cluster=pd.factorize(component[rows])[0])
    members = _trace_steps(_compare_labels(members, kind, keep, conflicts), graph)
    members["keep"] = members["candidate" if keep == "all" else "keeper"] & ~members["dropped"]
    return members.assign(reason=_explain(members, keep, conflicts))[COLUMNS].reset_index(drop=True)


def _compare_labels(members: pd.DataFrame, kind: str, keep: str, conflicts: str) -> pd.DataFrame:
    """Columns conflict, dropped (with its whole cluster), candidate (may be kept), keeper added."""
    label, cluster = members["label"], members["cluster"]
    if kind != "single":
        sets = [frozenset(str(names).split("|")) for names in members["label_name"]]
        codes = pd.factorize(pd.Series(sets, dtype=object))[0]
        label = label.where(label < 0, codes)  # an image without a label agrees with every other
    votes = members[label >= 0].groupby([cluster, label.rename("label")]).size()
    conflict = cluster.map(votes.groupby("cluster").size()).fillna(0) > 1
    dropped, candidate = conflict & (conflicts == "drop"), conflict.notna()
    if conflicts == "majority":
        most = votes[votes == votes.groupby("cluster").transform("max")].reset_index("label")
        tied = most.index.duplicated()
        dropped = cluster.isin(most.index[tied])
        candidate = ~conflict | (label == cluster.map(most["label"][~tied]))
    order = {"cluster": cluster, "minority": ~candidate}
    if keep != "first":
        pixels, name = members["height"].astype(np.int64) * members["width"], members["image_id"]
        order |= {"pixels": -pixels, "n_bytes": -members["n_bytes"], "name": name.astype(str)}
    first = pd.DataFrame(order).sort_values(list(order), kind="stable").drop_duplicates("cluster")
    members = members.assign(conflict=conflict, dropped=dropped, candidate=candidate)
    return members.assign(keeper=members.index.isin(first.index))


def _trace_steps(members: pd.DataFrame, graph: csr_matrix) -> pd.DataFrame:
    """Columns steps, through (image_id before it on the way from the keeper), distance, chain."""
    if members.empty:
        return members.assign(steps=0, through="", distance=0, chain=False)
    rows, keeper = members.index.to_numpy(), members["keeper"].to_numpy()
    cost = graph.astype(float)
    # Equal hashes are no step (a thousandth: a sparse matrix has no edge of length nought).
    cost.data = np.where(graph.data > 0, 1.0, 1e-3) + graph.data * 1e-6
    options = {"directed": False, "min_only": True, "return_predecessors": True}
    length, before, _ = csgraph.dijkstra(cost, indices=rows[keeper], **options)
    before = np.where(keeper, rows, before[rows])
    steps = pd.Series(length[rows].astype(np.int64), members.index)
    chain = steps.groupby(members["cluster"]).transform("max") > 2
    through = members["image_id"].reindex(before).to_numpy()
    distance = np.asarray(graph[rows, before] + graph[before, rows]).ravel()
    return members.assign(steps=steps, through=through, distance=distance, chain=chain)


def _explain(members: pd.DataFrame, keep: str, conflicts: str) -> np.ndarray:
    """A line for each row, object (n,), that says why it is kept, or dropped."""
    cluster, label = members["cluster"], members["label_name"]
    labels = label.groupby(cluster).agg(lambda names: ", ".join(sorted(set(names))))
    keeper = members[members["keeper"]].set_index("cluster")
    columns = labels, cluster.value_counts(), keeper["image_id"], keeper["label_name"]
    said, size, original, its_label = (cluster.map(column).astype(str) for column in columns)
    before = members["through"].astype(str)
    via = (" by way of " + before).where(before != original, "")
    other = (", which says " + its_label).where(members["conflict"] & (conflicts == "keep"), "")
    tie = "conflict: " + said + (" are equally many" if conflicts == "majority" else "")
    minority = "conflict: " + label + ", but most say " + its_label
    kept = ("kept: all " if keep == "all" else f"kept: {keep} of ") + size
    tests = [members["dropped"], ~members["candidate"], members["keep"]]
    return np.select(tests, [tie, minority, kept], "duplicate of " + original + via + other)


def pairs_of_clusters(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """Rows a, b of `images` and bits: of each conflict the first member and one that disagrees."""
    row = pd.Series(range(len(images)), images["image_id"].to_numpy())
    first = clusters.drop_duplicates("cluster").set_index("cluster")
    differs = clusters["label_name"] != clusters["cluster"].map(first["label_name"])
    other = clusters[differs].drop_duplicates("cluster").set_index("cluster")
    a, b = row[first["image_id"][other.index]], row[other["image_id"]]
    return pd.DataFrame(zip(a, b, other["distance"], strict=True), columns=["a", "b", "distance"])


def save_clusters(clusters: pd.DataFrame, settings: DuplicateSettings, work_dir: str) -> None:
    """Writes duplicates.json, and duplicates.parquet, which `find_clusters` gave, last."""
    path = storage.join(work_dir, "duplicates.json")
    storage.write_atomically(path, settings.to_json().encode())
    storage.write_parquet(clusters, storage.join(work_dir, "duplicates.parquet"))


def load_clusters(work_dir: str) -> tuple[pd.DataFrame, DuplicateSettings]:
    """What `save_clusters` wrote. Raises: FileNotFoundError where 02_deduplicate has not run."""
    table, values = (storage.join(work_dir, f"duplicates.{kind}") for kind in ("parquet", "json"))
    if missing := [path for path in (table, values) if not storage.exists(path)]:
        raise FileNotFoundError(f"no '{missing[0]}'. Run 02_deduplicate with this WORK_DIR first.")
    return storage.read_parquet(table), DuplicateSettings(**json.loads(storage.read_bytes(values)))


def choose_rows(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """The good rows that no cluster drops; rows of one `cluster` (-1: none) must share a fold."""
    cluster = images["image_id"].map(clusters.set_index("image_id")["cluster"])
    dropped = images["image_id"].isin(clusters.loc[~clusters["keep"], "image_id"])
    table = images.assign(cluster=cluster.fillna(-1).astype("int64"))
    return table[(images["problem"] == "") & ~dropped].reset_index(drop=True)


def count_outcomes(images: pd.DataFrame, clusters: pd.DataFrame) -> dict[str, int]:
    """Images by what becomes of them; each is counted once: a refused one is in no cluster."""
    refused, reasons = int((images["problem"] != "").sum()), clusters["reason"][~clusters["keep"]]
    conflicts = int(reasons.str.startswith("conflict").sum())
    counts = {"written": len(images) - refused - len(reasons)}
    counts |= {"duplicates dropped": len(reasons) - conflicts, "conflicts dropped": conflicts}
    return counts | {"refused": refused}
