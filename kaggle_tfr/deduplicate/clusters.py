"""Clusters of near-duplicates: which picture of each is kept, and what its labels say."""

import json
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph

from kaggle_tfr import storage

KEEPS = ("largest", "first", "all")
POLICIES = ("drop", "majority", "keep")
LONGEST_CHAIN = 2  # pairs from the picture kept: further away a picture may look quite different
COLUMNS = [
    "image_id", "cluster", "distance", "keep", "reason",
    "path", "label_name", "split", "steps", "chain", "conflict",
]  # fmt: skip


@dataclass(frozen=True)
class DuplicateSettings:
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

    images: columns image_id, path, label, label_name, split, height, width, n_bytes, problem.
    pairs: row numbers a, b and distance (bits); with a column accepted, only those accepted.
    kind: of the labels; unless "single", they are compared as sets.
    keep: "largest" picture (most pixels, then most bytes, then first image_id), "first" of the
    table, or "all".
    conflicts: of a cluster with different labels "drop" all, keep what the "majority" (more than
    any other label) says, or "keep" the picture whatever its label.

    Columns: image_id, cluster (from 0, in the order of the table), distance (bits, of the last pair
    on the way from the picture kept; 0 for itself), keep (bool), reason ("kept: …", "duplicate of
    …", "conflict: …"), path, label_name, split, steps (pairs on that way), chain (bool: some
    picture of the cluster is more than two steps away), conflict (bool: several labels).

    Raises: ValueError for an unknown `keep` or `conflicts`.
    """
    for name, value, known in (("KEEP", keep, KEEPS), ("CONFLICTS", conflicts, POLICIES)):
        if value not in known:
            raise ValueError(f"{name} is '{value}'. Set it to one of {', '.join(known)}.")
    if "accepted" in pairs:
        pairs = pairs[pairs["accepted"]]
    pairs = pairs.drop_duplicates(["a", "b"])
    members = _connect(images.reset_index(drop=True), pairs)
    members = _compare_labels(members, kind, conflicts)
    members = _choose_keepers(members, keep)
    members = _trace_steps(members, pairs, len(images))
    members["keep"] = members["candidate" if keep == "all" else "keeper"] & ~members["dropped"]
    members["reason"] = _explain(members, keep, conflicts)
    return members[COLUMNS].reset_index(drop=True)


def _connect(images: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """The images in clusters, with their cluster numbers; the index is the row of `images`."""
    n = len(images)
    graph = coo_matrix((np.ones(len(pairs), np.int8), (pairs["a"], pairs["b"])), shape=(n, n))
    component = csgraph.connected_components(graph, directed=False)[1]
    rows = np.flatnonzero(np.bincount(component, minlength=n)[component] > 1)
    return images.loc[rows].assign(cluster=pd.factorize(component[rows])[0].astype(np.int64))


def _compare_labels(members: pd.DataFrame, kind: str, conflicts: str) -> pd.DataFrame:
    """Columns conflict, dropped (with its whole cluster) and candidate (may be kept) added."""
    label, cluster = members["label"], members["cluster"]
    if kind != "single":
        sets = [frozenset(str(names).split("|")) for names in members["label_name"]]
        codes = pd.factorize(pd.Series(sets, dtype=object))[0]
        label = label.where(label < 0, codes)  # an image without a label agrees with every other
    votes = members[label >= 0].groupby([cluster, label.rename("label")]).size()
    conflict = cluster.map(votes.groupby("cluster").size()).fillna(0) > 1
    if conflicts != "majority":
        dropped = conflict & (conflicts == "drop")
        return members.assign(conflict=conflict, dropped=dropped, candidate=True)
    most = votes[votes == votes.groupby("cluster").transform("max")].reset_index()
    winner = most.drop_duplicates("cluster").set_index("cluster")["label"]
    tied = cluster.isin(most["cluster"][most["cluster"].duplicated()])
    candidate = (label == cluster.map(winner)) | ~conflict
    return members.assign(conflict=conflict, dropped=tied, candidate=candidate)


def _choose_keepers(members: pd.DataFrame, keep: str) -> pd.DataFrame:
    """Column keeper added: true for the one picture of each cluster the others are copies of."""
    order = {"cluster": True, "candidate": False}  # by which, and whether ascending
    if keep != "first":
        order |= {"pixels": False, "n_bytes": False, "name": True}
    pixels = members["height"].astype(np.int64) * members["width"]
    ranked = members.assign(pixels=pixels, name=members["image_id"].astype(str))
    ranked = ranked.sort_values(list(order), ascending=list(order.values()), kind="stable")
    return members.assign(keeper=members.index.isin(ranked.drop_duplicates("cluster").index))


def _trace_steps(members: pd.DataFrame, pairs: pd.DataFrame, n_images: int) -> pd.DataFrame:
    """Columns steps, through (image_id before it on the way from the keeper), distance, chain."""
    if not len(members):
        return members.assign(steps=0, through="", distance=0, chain=False)
    a, b, bits = (pairs[name].to_numpy() for name in ("a", "b", "distance"))
    # Equal hashes are no step (a thousandth: a sparse matrix has no edge of length nought).
    cost = np.where(bits > 0, 1.0, 1e-3) + bits * 1e-6
    graph = coo_matrix((cost, (a, b)), shape=(n_images, n_images)).tocsr()
    keepers = members.index[members["keeper"]].to_numpy()
    length, before, _ = csgraph.dijkstra(
        graph, directed=False, indices=keepers, min_only=True, return_predecessors=True
    )
    rows = members.index.to_numpy()
    before = np.where(members["keeper"], rows, before[rows])
    edge = pd.MultiIndex.from_arrays([np.minimum(rows, before), np.maximum(rows, before)])
    edges = pd.MultiIndex.from_arrays([np.minimum(a, b), np.maximum(a, b)])
    members = members.assign(
        steps=length[rows].astype(np.int64),
        through=members["image_id"].reindex(before).to_numpy(),
        distance=pd.Series(bits, edges).reindex(edge).fillna(0).to_numpy(np.int64),
    )
    longest = members.groupby("cluster")["steps"].transform("max")
    return members.assign(chain=longest > LONGEST_CHAIN)


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
    return np.select(
        [members["dropped"], ~members["candidate"], members["keep"]],
        [
            "conflict: " + said + (" are equally many" if conflicts == "majority" else ""),
            "conflict: " + label + ", but most say " + its_label,
            ("kept: all " if keep == "all" else f"kept: {keep} of ") + size,
        ],
        "duplicate of " + original + via + other,
    )


def pairs_of_clusters(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """One pair a cluster to look at: its first member and the first of another label, if any.

    Columns a, b (row numbers of `images`) and distance (bits).
    """
    rows = pd.Series(range(len(images)), images["image_id"].to_numpy())
    first = clusters.drop_duplicates("cluster").set_index("cluster")
    differs = clusters["label_name"] != clusters["cluster"].map(first["label_name"])
    other = clusters[differs].drop_duplicates("cluster").set_index("cluster")
    a, b = (rows[table["image_id"]].to_numpy() for table in (first.loc[other.index], other))
    return pd.DataFrame({"a": a, "b": b, "distance": other["distance"].to_numpy()})


def save_clusters(clusters: pd.DataFrame, settings: DuplicateSettings, work_dir: str) -> None:
    """Writes duplicates.json, and duplicates.parquet, which `find_clusters` gave, last."""
    text = json.dumps(asdict(settings), indent=1) + "\n"
    storage.write_atomically(storage.join(work_dir, "duplicates.json"), text.encode())
    storage.write_parquet(clusters, storage.join(work_dir, "duplicates.parquet"))


def load_clusters(work_dir: str) -> tuple[pd.DataFrame, DuplicateSettings]:
    """(clusters, settings): what `save_clusters` wrote.

    Raises: FileNotFoundError when 02_deduplicate has not run with this WORK_DIR.
    """
    table, settings = (storage.join(work_dir, f"duplicates.{kind}") for kind in ("parquet", "json"))
    for path in (table, settings):
        if not storage.exists(path):
            raise FileNotFoundError(
                f"there is no '{path}'. Run 02_deduplicate with this WORK_DIR first."
            )
    saved = json.loads(storage.read_bytes(settings))
    return storage.read_parquet(table), DuplicateSettings(**saved)


def choose_rows(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """The rows of `images` to write: good ones that no cluster drops.

    Gains `cluster` (int64), -1 for an image on its own; rows that share one must share a fold.
    """
    cluster = images["image_id"].map(clusters.set_index("image_id")["cluster"])
    dropped = images["image_id"].isin(clusters.loc[~clusters["keep"], "image_id"])
    table = images.assign(cluster=cluster.fillna(-1).astype("int64"))
    return table[(images["problem"] == "") & ~dropped].reset_index(drop=True)


def count_outcomes(images: pd.DataFrame, clusters: pd.DataFrame) -> dict[str, int]:
    """Images by what becomes of them; each is counted once: a refused one is in no cluster."""
    refused = int((images["problem"] != "").sum())
    dropped = clusters[~clusters["keep"]]
    conflicts = int(dropped["reason"].str.startswith("conflict").sum())
    return {
        "written": len(images) - refused - len(dropped),
        "duplicates dropped": len(dropped) - conflicts,
        "conflicts dropped": conflicts,
        "refused": refused,
    }
