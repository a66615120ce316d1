"""Pairs of near-duplicates → clusters, one picture kept of each, label conflicts settled."""

import json
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph

from kaggle_tfr import storage


def pairs_of_clusters(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """One pair a cluster, for the eye: its first member and the first of another label, if any.

    Columns a, b (row numbers of `images`) and distance (bits).
    """
    rows = pd.Series(range(len(images)), images["image_id"].to_numpy())
    first = clusters.drop_duplicates("cluster").set_index("cluster")
    others = clusters[~clusters["image_id"].isin(first["image_id"])]
    differs = others["label_name"] != others["cluster"].map(first["label_name"])
    other = others[differs].drop_duplicates("cluster").set_index("cluster")
    a, b = (rows[table["image_id"]].to_numpy() for table in (first.loc[other.index], other))
    return pd.DataFrame({"a": a, "b": b, "distance": other["distance"].to_numpy()})


KEEPS = ("largest", "first", "all")


POLICIES = ("drop", "majority", "keep")


LONGEST_CHAIN = 2  # pairs from the picture kept: further out nothing ties a picture to it


COLUMNS = [
    "image_id", "cluster", "distance", "keep", "reason",
    "path", "label_name", "split", "steps", "chain", "conflict",
]  # fmt: skip


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
    keep: "largest" picture (most pixels, then most bytes, then first image_id), "first" of the
    table, or "all".
    conflicts: of a cluster with different labels "drop" all, keep what the "majority" (more than
    any other label) says, or "keep" the picture whatever its label.

    Columns: image_id, cluster (from 0, in the order of the table), distance (bits, of the last pair
    on the way from the picture kept; 0 for itself), keep (bool), reason ("kept: …", "duplicate of
    …", "conflict: …"), path, label_name, split, steps (pairs on that way), chain (bool: some
    picture of the cluster is more than two steps away, so it may look quite different), conflict.

    Raises: ValueError for an unknown `keep` or `conflicts`.
    """
    for name, value, known in (("KEEP", keep, KEEPS), ("CONFLICTS", conflicts, POLICIES)):
        if value not in known:
            raise ValueError(f"{name} is '{value}'. Set it to one of {', '.join(known)}.")
    images = images.reset_index(drop=True)
    if "accepted" in pairs:
        pairs = pairs[pairs["accepted"]]
    pairs = pairs.drop_duplicates(["a", "b"])
    members = _connect(images, pairs, kind)
    members = _settle_labels(members, conflicts)
    members = _choose_keepers(members, keep)
    members = _walk(members, pairs, len(images))
    members["keep"] = members["candidate"] if keep == "all" else members["keeper"]
    members["keep"] &= ~members["dropped"]
    members["reason"] = np.array(_say_why(members, keep, conflicts), object)
    return members[COLUMNS].reset_index(drop=True)


def _connect(images: pd.DataFrame, pairs: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The images in clusters, with their cluster numbers; the index is the row of `images`."""
    n = len(images)
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    graph = coo_matrix((np.ones(len(a), np.int8), (a, b)), shape=(n, n))
    component = csgraph.connected_components(graph, directed=False)[1]
    rows = np.flatnonzero(np.bincount(component, minlength=n)[component] > 1)
    members = images.loc[rows].copy()
    members["cluster"] = pd.factorize(component[rows])[0].astype(np.int64)
    members["codes"] = _label_codes(members, kind)
    return members


def _label_codes(members, kind):
    """int64 (n,): equal for equal labels, as sets where an image has several; -1 for none."""
    label = members["label"].to_numpy(np.int64)
    if kind == "single":
        return label
    sets = [frozenset(str(names).split("|")) for names in members["label_name"]]
    codes = pd.factorize(pd.Series(sets, dtype=object))[0]
    return np.where(label < 0, -1, codes).astype(np.int64)


def _settle_labels(members, conflicts):
    """Columns conflict, dropped (with its whole cluster) and candidate (may be kept) added."""
    labelled = members[members["codes"] >= 0]
    votes = labelled.groupby(["cluster", "codes"]).size()
    n_labels = votes.groupby("cluster").size()
    members["conflict"] = members["cluster"].map(n_labels).fillna(0).to_numpy() > 1
    members["dropped"], members["candidate"] = False, True
    if conflicts == "keep":
        return members
    if conflicts == "drop":
        members["dropped"] = members["conflict"]
        return members
    most = votes.groupby("cluster").transform("max")
    winners = votes[votes == most].reset_index()
    tied = set(winners["cluster"][winners["cluster"].duplicated()])
    winner = winners.drop_duplicates("cluster").set_index("cluster")["codes"]
    wins = members["codes"].to_numpy() == members["cluster"].map(winner).to_numpy()
    members["candidate"] = wins | ~members["conflict"]
    members["dropped"] = members["cluster"].isin(tied)
    return members


def _choose_keepers(members, keep):
    """Column keeper added: true for the one picture of each cluster the others are copies of."""
    rank = pd.DataFrame(
        {
            "cluster": members["cluster"],
            "not_candidate": ~members["candidate"],
            "pixels": -members["height"].astype(np.int64) * members["width"],
            "bytes": -members["n_bytes"],
            "image_id": members["image_id"].astype(str),
        }
    )
    by = ["cluster", "not_candidate"]
    if keep != "first":
        by += ["pixels", "bytes", "image_id"]
    first = rank.sort_values(by, kind="stable").drop_duplicates("cluster").index
    members["keeper"] = members.index.isin(first)
    return members


def _walk(members, pairs, n_images):
    """Columns steps, through (image_id before it on the way from the keeper), distance, chain."""
    members["steps"], members["through"], members["distance"] = 0, "", 0
    members["chain"] = False
    if not len(members):
        return members
    a, b, bits = (pairs[name].to_numpy() for name in ("a", "b", "distance"))
    # Equal hashes are no step (a thousandth: a sparse matrix has no edge of length nought).
    cost = np.where(bits > 0, 1.0, 1e-3) + bits * 1e-6
    graph = coo_matrix((cost, (a, b)), shape=(n_images, n_images)).tocsr()
    keepers = members.index[members["keeper"]].to_numpy()
    far, before, _ = csgraph.dijkstra(
        graph, directed=False, indices=keepers, min_only=True, return_predecessors=True
    )
    rows = members.index.to_numpy()
    members["steps"] = far[rows].astype(np.int64)
    before = np.where(members["keeper"], rows, before[rows])
    members["through"] = members["image_id"].reindex(before).to_numpy()
    way = pd.MultiIndex.from_arrays([np.minimum(rows, before), np.maximum(rows, before)])
    lengths = pd.Series(bits, pd.MultiIndex.from_arrays([np.minimum(a, b), np.maximum(a, b)]))
    members["distance"] = lengths.reindex(way).fillna(0).to_numpy(np.int64)
    longest = members.groupby("cluster")["steps"].transform("max")
    members["chain"] = longest > LONGEST_CHAIN
    return members


def _say_why(members, keep, conflicts):
    """One line a row: why it is kept, or dropped."""
    names = members.groupby("cluster")["label_name"].agg(lambda all_: ", ".join(sorted(set(all_))))
    sizes = members["cluster"].map(members.groupby("cluster").size())
    kept = members[members["keeper"]].set_index("cluster")
    keeper_id, keeper_label = (members["cluster"].map(kept[c]) for c in ("image_id", "label_name"))
    reasons = []
    for row, size, labels, to, its_label in zip(
        members.itertuples(),
        sizes,
        members["cluster"].map(names),
        keeper_id,
        keeper_label,
        strict=True,
    ):
        if row.dropped:
            tie = " are equally many" if conflicts == "majority" else ""
            reasons.append(f"conflict: {labels}{tie}")
        elif not row.candidate:
            reasons.append(f"conflict: {row.label_name}, but most say {its_label}")
        elif row.keep:
            reasons.append(f"kept: {keep} of {size}" if keep != "all" else f"kept: all {size}")
        else:
            way = "" if row.through == to else f" by way of {row.through}"
            other = f", which says {its_label}" if row.conflict and conflicts == "keep" else ""
            reasons.append(f"duplicate of {to}{way}{other}")
    return reasons


@dataclass(frozen=True)
class DuplicateSettings:
    """What duplicates.json holds: the radius in bits of 256, and which hashes it was taken with."""

    max_bits: int = 25
    exact_hashes: bool = False


def save_clusters(clusters: pd.DataFrame, settings: DuplicateSettings, work_dir: str) -> None:
    """Writes duplicates.json, and duplicates.parquet, which `find_clusters` gave, last."""
    text = json.dumps(asdict(settings), indent=1) + "\n"
    storage.write_atomically(storage.join(work_dir, "duplicates.json"), text.encode())
    storage.write_parquet(clusters, storage.join(work_dir, "duplicates.parquet"))


def load_clusters(work_dir: str) -> tuple[pd.DataFrame, DuplicateSettings]:
    """(clusters, settings): what `save_clusters` wrote.

    Raises:
        FileNotFoundError: 02_deduplicate has not run with this WORK_DIR.
    """
    path = storage.join(work_dir, "duplicates.parquet")
    if not storage.exists(path):
        raise FileNotFoundError(
            f"there is no '{path}'. Run 02_deduplicate with this WORK_DIR first."
        )
    settings = json.loads(storage.read_bytes(storage.join(work_dir, "duplicates.json")))
    return storage.read_parquet(path), DuplicateSettings(**settings)


def choose_rows(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """The rows of `images` to write: good ones that no cluster drops.

    Gains `cluster` (int64), -1 for an image on its own; rows that share one must share a fold.
    """
    placed = images["image_id"].map(clusters.set_index("image_id")["cluster"])
    dropped = images["image_id"].isin(clusters.loc[~clusters["keep"], "image_id"])
    table = images.assign(cluster=placed.fillna(-1).astype("int64"))
    table = table[(images["problem"] == "") & ~dropped].reset_index(drop=True)
    return table


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
