"""Clusters of near-duplicates: which picture is kept, what labels say, which splits share it."""

import json
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph, csr_matrix

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.display import name_labels
from kaggle_tfr.deduplicate.pairs import MAX_EQUAL
from kaggle_tfr.naming import SPLIT_NAMES
from kaggle_tfr.parameters import check_parameters
from kaggle_tfr.schema import JsonDataclass

COLUMNS = ["image_id", "cluster", "distance", "keep", "reason", "path", "label_name", "split",
           "steps", "chain", "conflict"]  # fmt: skip
LEAK_COLUMNS = [
    "test_id",
    "image_id",
    "label_name",
    "distance",
    "test_split",
    "split",
    "keep",
]


@dataclass(frozen=True)
class DuplicateSettings(JsonDataclass):
    """What duplicates.json holds: parameters of 02, in bits of 256 those that are a radius."""

    max_bits: int = 25
    second_look: bool = False
    candidate_bits: int = 70
    leaks: str = "report"
    mirrored: bool = False


def find_clusters(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    *,
    kind: str = "single",
    keep: str = "largest",
    conflicts: str = "drop",
    leaks: str = "report",
) -> pd.DataFrame:
    """One row per image of a cluster of two or more: which is kept, and why each other is not.

    images: columns image_id, path, label, label_name, split, height, width, n_bytes, maybe source.
    Those of split "test" are all kept, and the others resolved as if these were not there.
    pairs: row numbers a, b and distance (bits); with a column accepted, only those accepted.
    kind: of the labels; unless "single", they are compared as sets.
    keep: "largest" (pixels, bytes, then first id) or "first" image of the lowest source, or "all".
    conflicts: of different labels "drop" all, keep what the "majority" says, or "keep" whichever.
    leaks: of a cluster with a test image "report" (keep) the others, or "drop" them all.
    Columns: `COLUMNS`; cluster counts from 0 in the table's order, steps the pairs on the way from
    the picture kept; distance is of the last (bits); chain: one of the cluster is over two away;
    conflict: several labels, outside test.
    Raises: ValueError for an unknown `keep`, `conflicts` or `leaks`.
    """
    check_parameters({"KEEP": keep, "CONFLICTS": conflicts, "LEAKS": leaks})
    pairs = (
        pairs[pairs["accepted"]] if "accepted" in pairs else pairs
    ).drop_duplicates(["a", "b"])
    bits = pairs["distance"].to_numpy(np.int64)  # 0 is stored where hashes agree
    rows, ends = np.unique(pairs[["a", "b"]].to_numpy(np.int64).T, return_inverse=True)
    graph = coo_matrix((bits, tuple(ends)), shape=(len(rows), len(rows))).tocsr()
    component = (
        csgraph.connected_components(graph, directed=False)[1] if len(rows) else rows
    )
    members = images.iloc[rows].reset_index(drop=True)
    test = members["split"] == "test"
    members = members.assign(cluster=pd.factorize(component)[0], test=test)
    members = _trace_steps(_compare_labels(members, kind, keep, conflicts), graph)
    shown_by = (
        members["image_id"].where(test).groupby(members["cluster"]).transform("first")
    )
    leak = shown_by.notna() & (leaks == "drop")
    kept = (
        members["candidate" if keep == "all" else "keeper"]
        & ~members["dropped"]
        & ~leak
    )
    members = members.assign(shown_by=shown_by, leak=leak, keep=test | kept)
    return members.assign(reason=_explain(members, keep, conflicts))[
        COLUMNS
    ].reset_index(drop=True)


def _compare_labels(
    members: pd.DataFrame, kind: str, keep: str, conflicts: str
) -> pd.DataFrame:
    """Columns conflict, dropped (with its whole cluster), candidate (may be kept), keeper added."""
    label, cluster, test = members["label"], members["cluster"], members["test"]
    if kind != "single":
        sets = [frozenset(str(names).split("|")) for names in members["label_name"]]
        codes = pd.factorize(pd.Series(sets, dtype=object))[0]
        label = label.where(
            label < 0, codes
        )  # an image without a label agrees with every other
    votes = (
        members[(label >= 0) & ~test].groupby([cluster, label.rename("label")]).size()
    )
    conflict = ~test & (cluster.map(votes.groupby("cluster").size()).fillna(0) > 1)
    dropped, candidate = conflict & (conflicts == "drop"), conflict.notna()
    if conflicts == "majority":
        most = votes[votes == votes.groupby("cluster").transform("max")].reset_index(
            "label"
        )
        tied = most.index.duplicated()
        dropped = conflict & cluster.isin(most.index[tied])
        candidate = ~conflict | (label == cluster.map(most["label"][~tied]))
    order = {"cluster": cluster, "test": test, "minority": ~candidate}
    order |= {"source": members["source"]} if "source" in members else {}
    if keep != "first":
        pixels, name = (
            members["height"].astype(np.int64) * members["width"],
            members["image_id"],
        )
        order |= {
            "pixels": -pixels,
            "n_bytes": -members["n_bytes"],
            "name": name.astype(str),
        }
    first = (
        pd.DataFrame(order)
        .sort_values(list(order), kind="stable")
        .drop_duplicates("cluster")
    )
    members = members.assign(conflict=conflict, dropped=dropped, candidate=candidate)
    return members.assign(keeper=members.index.isin(first.index))


def _trace_steps(members: pd.DataFrame, graph: csr_matrix) -> pd.DataFrame:
    """Columns steps, through (image_id before it on the way from the keeper), distance, chain."""
    if members.empty:
        return members.assign(steps=0, through="", distance=0, chain=False)
    rows, keeper = np.arange(len(members)), members["keeper"].to_numpy()
    cost = graph.astype(float)
    # Equal hashes are no step (a thousandth: a sparse matrix has no edge of length nought).
    cost.data = np.where(graph.data > 0, 1.0, 1e-3) + graph.data * 1e-6
    options = {"directed": False, "min_only": True, "return_predecessors": True}
    length, before, _ = csgraph.dijkstra(cost, indices=rows[keeper], **options)
    before = np.where(keeper, rows, before)
    steps = pd.Series(length.astype(np.int64))
    chain = steps.groupby(members["cluster"]).transform("max") > 2
    through = members["image_id"].to_numpy()[before]
    distance = np.asarray(graph[rows, before] + graph[before, rows]).ravel()
    return members.assign(steps=steps, through=through, distance=distance, chain=chain)


def _explain(members: pd.DataFrame, keep: str, conflicts: str) -> np.ndarray:
    """A line for each row, object (n,), that says why it is kept, or dropped."""
    cluster, test = members["cluster"], members["test"]
    label = name_labels(members, cluster.to_numpy())
    names = pd.DataFrame({"cluster": cluster, "label": label})[~test].drop_duplicates()
    names = names.sort_values("label")
    labels = (", " + names["label"]).groupby(names["cluster"]).sum().str[2:]
    keeper = members[members["keeper"]].set_index("cluster")
    columns = labels, keeper["image_id"], keeper["label_name"]
    said, original, its_label = (cluster.map(column).astype(str) for column in columns)
    size = (~test).groupby(cluster).transform("sum").astype(str)
    before = members["through"].astype(str)
    via = (" by way of " + before).where(before != original, "")
    other = (", which says " + its_label).where(
        members["conflict"] & (conflicts == "keep"), ""
    )
    tie = "conflict: " + said + (" are equally many" if conflicts == "majority" else "")
    minority = "conflict: " + label + ", but most say " + its_label
    shown = "test image " + members["shown_by"].astype(str) + " shows the same"
    kept = ("kept: all " if keep == "all" else f"kept: {keep} of ") + size
    kept += (", though " + shown).where(members["shown_by"].notna(), "")
    tests = [
        members["leak"],
        members["dropped"],
        ~members["candidate"],
        members["keep"],
    ]
    reasons = ["leak: " + shown, tie, minority, kept]
    why = np.select(tests, reasons, "duplicate of " + original + via + other)
    return np.where(test, "test image: always kept", why)


def pairs_of_clusters(
    images: pd.DataFrame, clusters: pd.DataFrame, by: str = "label_name"
) -> pd.DataFrame:
    """Rows a, b of `images` and bits: of each cluster the picture kept and one of another label.

    by: the column in which the two differ; "keep": one that is dropped. Test images are left out.
    """
    good = (images["problem"] == "") & (images["split"] != "test")
    rows = images[["image_id"]].assign(row=np.arange(len(images)))[good]
    row = rows.merge(clusters["image_id"].drop_duplicates()).set_index("image_id")[
        "row"
    ]
    clusters = clusters[clusters["split"] != "test"]
    # Distances are from the image kept; its equal copies are no step away either.
    order = clusters.assign(dropped=~clusters["keep"])
    clusters = order.sort_values(["cluster", "dropped", "steps"], kind="stable")
    first = clusters.drop_duplicates("cluster").set_index("cluster")
    differs = clusters[by] != clusters["cluster"].map(first[by])
    other = clusters[differs].drop_duplicates("cluster").set_index("cluster")
    a, b = row[first["image_id"][other.index]], row[other["image_id"]]
    return pd.DataFrame(
        zip(a, b, other["distance"], strict=True), columns=["a", "b", "distance"]
    )


def find_leaks(
    images: pd.DataFrame, pairs: pd.DataFrame, clusters: pd.DataFrame
) -> pd.DataFrame:
    """One row per pair of near-duplicates in two splits: test and another, or validation and train.

    pairs: as `find_clusters` takes them. Columns: a and b, row numbers of `images`; `LEAK_COLUMNS`:
    test_id and test_split are a's, the rest b's, distance in bits. Of over 20 equal hashes each has
    pairs with the first of every other split alone.
    """
    pairs = pairs[pairs["accepted"]] if "accepted" in pairs else pairs
    equal, n = pairs[pairs["distance"] == 0], len(images)
    graph = coo_matrix((np.ones(len(equal)), (equal["a"], equal["b"])), (n, n))
    node = csgraph.connected_components(graph, directed=False)[1]
    # Of many equal hashes `find_pairs` tells only the first one's pairs: here they are as one.
    node = np.where(np.bincount(node)[node] > MAX_EQUAL, -1 - node, np.arange(n))
    ends = {
        "x": node[pairs["a"]],
        "y": node[pairs["b"]],
        "distance": pairs["distance"].to_numpy(),
    }
    edges = pd.DataFrame(ends).drop_duplicates()
    edges = pd.concat([edges, edges.rename(columns={"x": "y", "y": "x"})])
    rows, found = (
        pd.DataFrame({"node": node, "row": np.arange(n)}),
        list[pd.DataFrame](),
    )
    named = images["split"].map(SPLIT_NAMES).to_numpy()
    for splits in combinations(("test", "validation", "train"), 2):
        a, b = (rows[named == split] for split in splits)
        for some, others in (
            (a, b.drop_duplicates("node")),
            (a.drop_duplicates("node"), b),
        ):
            half = edges.merge(some.set_axis(["x", "a"], axis=1))
            found.append(half.merge(others.set_axis(["y", "b"], axis=1)))
    leaks = pd.concat(found)[["a", "b", "distance"]].drop_duplicates()
    leaks = leaks.sort_values(["a", "distance", "b"], ignore_index=True)
    test, other = (images.iloc[leaks[end]].reset_index(drop=True) for end in "ab")
    leaks = leaks.assign(test_id=test["image_id"], test_split=test["split"])
    columns = ["image_id", "label_name", "split", "keep"]
    return leaks.join(match_clusters(other, clusters)[columns])


def save_clusters(
    clusters: pd.DataFrame,
    leaks: pd.DataFrame,
    settings: DuplicateSettings,
    work_dir: str,
) -> None:
    """Writes leaks.csv (`find_leaks`), duplicates.json, and last duplicates.parquet."""
    storage.remove_leftovers(work_dir)
    texts = {"leaks.csv": leaks[LEAK_COLUMNS].to_csv(index=False)}
    for name, text in (texts | {"duplicates.json": settings.to_json()}).items():
        storage.write_atomically(storage.join(work_dir, name), text.encode())
    storage.write_parquet(clusters, storage.join(work_dir, "duplicates.parquet"))


def load_clusters(work_dir: str) -> tuple[pd.DataFrame, DuplicateSettings]:
    """What `save_clusters` wrote. Raises: FileNotFoundError where 02_deduplicate has not run."""
    table, values = (
        storage.join(work_dir, f"duplicates.{kind}") for kind in ("parquet", "json")
    )
    if missing := [path for path in (table, values) if not storage.exists(path)]:
        raise FileNotFoundError(
            f"no '{missing[0]}'. Run 02_deduplicate with this WORK_DIR first."
        )
    return storage.read_parquet(table), DuplicateSettings(
        **json.loads(storage.read_bytes(values))
    )


def choose_rows(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """The good rows that no cluster drops; rows of one `cluster` (-1: none) must share a fold.

    Raises: ValueError: none is left.
    """
    table = match_clusters(images, clusters)
    kept = (table["problem"] == "") & table.pop("keep")
    if not kept.any():
        counts = count_outcomes(images, clusters)
        outcomes = ", ".join(
            f"{count:,} {name}" for name, count in counts.items() if count
        )
        raise ValueError(
            f"no image is left of {len(images):,}: {outcomes}. "
            "Set CONFLICTS, LEAKS or MAX_BITS so that 02_deduplicate keeps some."
        )
    return table[kept].reset_index(drop=True)


def match_clusters(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """The table with columns cluster (-1: none) and keep."""
    keys = ["image_id", "split"]  # a test image may be called as a labelled one is
    table = images.merge(clusters[[*keys, "cluster", "keep"]], "left", keys)
    cluster = table["cluster"].fillna(-1).astype("int64")
    return table.assign(cluster=cluster, keep=table["keep"].ne(False))


def count_outcomes(images: pd.DataFrame, clusters: pd.DataFrame) -> dict[str, int]:
    """Images by what becomes of them; each is counted once: a rejected image is in no cluster.

    Keys: written, duplicates dropped, conflicts dropped and rejected, of labelled images; only where
    there are any, leaks dropped, test images (to be written) and test images rejected.
    """
    test, good = images["split"] == "test", images["problem"] == ""
    kept = (
        good
        & match_clusters(images[["image_id", "split"]], clusters)["keep"].to_numpy()
    )
    reasons = clusters["reason"][~clusters["keep"]]
    counts = {
        "written": (kept & ~test).sum(),
        "duplicates dropped": reasons.str.startswith("duplicate").sum(),
        "conflicts dropped": reasons.str.startswith("conflict").sum(),
        "leaks dropped": reasons.str.startswith("leak").sum(),
        "rejected": (~good & ~test).sum(),
        "test images": (kept & test).sum(),
        "test images rejected": (~good & test).sum(),
    }
    return {
        name: int(n)
        for name, n in counts.items()
        if n or name[:4] not in ("leak", "test")
    }
