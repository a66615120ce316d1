"""Assign images to folds and shards: stratified by class, whole clusters, seeded.

Rows that must share a fold (near-duplicates, images of a patient) form a group. Groups
are distributed one after the other, the largest first. Each goes to the fold with the
largest deficit in the group's classes: its share of the images seen so far, minus the
images that it has.

Example with two folds, and groups of 3, 2, 1 and 1 images of one class. The first goes
to fold 0. Of 5 images each fold should then have 2.5; fold 1 has none, so it gets the
group of 2. Of 6 images each should have 3, so fold 1 gets the next one, and now has 3
like fold 0. The last image goes to the fold that lacks more images of all classes
together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csgraph, csr_matrix, hstack

from kaggle_tfr.parameters import check_parameters


@dataclass(frozen=True)
class Groups:
    """Which rows of a table stay together, and where they belong: one value per row.

    number: int (n,), equal for rows that clusters or groups join.
    split: str (n,), equal for rows of a group, except test rows.
    may_validate: bool (n,), rows of train without rows of another source in their
        group.
    """

    number: np.ndarray
    split: np.ndarray
    may_validate: np.ndarray


def assign_folds(
    table: pd.DataFrame,
    *,
    n_folds: int,
    seed: int,
    validation_size: float = 0.0,
    group_column: str = "",
    label_columns: Sequence[str] = (),
    extra_in_validation: bool = False,
) -> pd.DataFrame:
    """Return the table with columns split and fold; rows of one cluster share both.

    table: columns label, split, and optionally cluster (-1 or NA: none) and source (0:
        the main one). A cluster over several splits goes to the smallest of these; test
        rows stay, and do not attract others.
    validation_size: share of the train rows that may validate, for split "validation".
    group_column: rows with equal values (patients, sites) stay together like clusters.
    label_columns: of multi-label images, 0/1 or a text that is empty for no.
    extra_in_validation: whether rows of other sources, and rows in their groups, may
        validate. Otherwise they stay in train, in fold -1 if there are folds.
    fold: int64, 0 to n_folds - 1 for train, always 0 if n_folds is below 2; otherwise
        -1.
    Raises: ValueError: there are more folds than clusters, a share is out of range, or
        a column is missing.
    """
    check_parameters({"VALIDATION_SIZE": validation_size})
    groups = join_groups(table, group_column, extra_in_validation)
    rows = np.flatnonzero(groups.may_validate)
    labels = mark_labels(table.iloc[rows], label_columns)
    is_multilabel = len(label_columns) > 1

    split = groups.split.copy()
    if validation_size > 0 and len(rows):
        shares = np.array([1 - validation_size, validation_size])
        chosen = stratified_group_split(
            groups.number[rows], labels, shares, seed, is_multilabel
        )
        split[rows[chosen == 1]] = "validation"
        rows = rows[chosen == 0]
        labels = labels[chosen == 0]

    if n_folds < 2:
        return table.assign(split=split, fold=np.where(split == "train", 0, -1))
    fold = np.full(len(table), -1)
    if (split == "train").any():
        shares = np.full(n_folds, 1 / n_folds)
        # With the same seed, folds would follow the order of the held-out draw.
        fold[rows] = stratified_group_split(
            groups.number[rows], labels, shares, seed + 1, is_multilabel
        )
    return table.assign(split=split, fold=fold)


def join_groups(
    table: pd.DataFrame, group_column: str = "", extra_in_validation: bool = False
) -> Groups:
    """Join the rows of each cluster and of each group; overlapping ones become one."""
    if group_column and group_column not in table:
        raise ValueError(
            f"The table has no column '{group_column}', only "
            f"{', '.join(map(str, table))}. "
            'Set GROUP_COLUMN to one of these, or to "".'
        )
    n_rows = len(table)
    graph = csr_matrix((n_rows, n_rows))
    for column in ("cluster", group_column):
        if column in table:
            edges = (np.arange(n_rows), list_first_rows(table, column))
            graph += csr_matrix((np.ones(n_rows), edges), (n_rows, n_rows))
    component = csgraph.connected_components(graph, directed=False)[1]
    number = pd.factorize(component)[0]

    codes, names = pd.factorize(table["split"])
    n_rows_of = np.bincount(codes)
    by_size = sorted(range(len(names)), key=lambda code: (n_rows_of[code], names[code]))
    rank = pd.Series(np.argsort(by_size)[codes])
    smallest = rank.groupby(number).transform("min")
    split = np.asarray(names, object)[by_size][smallest]

    is_extra = pd.Series(np.asarray(table.get("source", np.zeros(n_rows))) != 0)
    has_extra = is_extra.groupby(number).transform("any").to_numpy()
    may_validate = (split == "train") & (extra_in_validation | ~has_extra)
    return Groups(number, split, may_validate)


def list_first_rows(table: pd.DataFrame, column: str) -> np.ndarray:
    """Return the first row with the same value for each row: int (n,).

    It is the row itself for test rows, empty values, and cluster -1.
    """
    rows = np.arange(len(table))
    values = table[column]
    is_alone = values.isna()
    if column == "cluster":
        is_alone |= values.fillna(-1) == -1
    is_alone |= table["split"] == "test"
    codes = pd.factorize(values.mask(is_alone))[0]
    first = pd.Series(rows).groupby(codes).transform("min")
    return np.where(is_alone, rows, first)


def mark_labels(table: pd.DataFrame, label_columns: Sequence[str]) -> csr_matrix:
    """Return a sparse matrix (n, classes) with 1 for the classes of each row.

    Without `label_columns` the classes are the sorted values of the column label.
    """
    if not label_columns:
        codes, classes = pd.factorize(table["label"], sort=True)
        entries = (np.ones(len(table)), (np.arange(len(table)), codes))
        return csr_matrix(entries, shape=(len(table), max(1, len(classes))))
    marks = []
    for name in label_columns:
        column = table[name]
        is_number = column.dtype.kind in "iufb"
        marks.append(column > 0 if is_number else column.fillna("") != "")
    return csr_matrix(np.stack(marks, axis=1).astype(np.float64))


def count_moved(rows: pd.DataFrame, *, group_column: str = "") -> pd.DataFrame:
    """Count the images that `assign_folds` moves from their given split to another one.

    What `validation_size` holds out is not counted. Columns: given, split (where they
    go), images.
    """
    split = join_groups(rows, group_column).split
    moves = pd.DataFrame({"given": rows["split"], "split": split})
    moves = moves[moves["given"] != moves["split"]]
    return moves.value_counts().rename("images").reset_index()


def describe_moved(moved: pd.DataFrame) -> str:
    """Return one sentence about a table of `count_moved`."""
    if moved.empty:
        return "Every image stays in the split that it was given."
    counts = moved.itertuples(index=False, name=None)
    listed = ", ".join(f"{n:,} from {given} to {split}" for given, split, n in counts)
    total = int(moved["images"].sum())
    verb = "image leaves its" if total == 1 else "images leave their"
    return (
        f"{total:,} {verb} given split, because images of the same cluster or group "
        f"are there: {listed}."
    )


def assign_shards(
    table: pd.DataFrame,
    n_shards: Mapping[tuple[str, int], int],
    n_parts: int = 1,
    *,
    seed: int,
) -> pd.DataFrame:
    """Add int64 columns shard, part and position to the table, in the same order.

    n_shards: number for each (split, fold). Shards of one fold have the same number of
        images, also of each class, to within one; parts have the same number of shards.
    shard: from 0 within its split and fold. part: from 1. position: from 0 in the
        shard.
    Raises: ValueError: a split and fold has fewer images than shards, or no shards.
    """
    label = table["label"].to_numpy()
    shard = np.zeros(len(table), np.int64)
    position = np.zeros(len(table), np.int64)
    part = np.zeros(len(table), np.int64)
    n_before = 0
    groups: dict[Any, Any] = dict(table.groupby(["split", "fold"]).indices)
    for number, (split, fold) in enumerate(sorted(groups)):
        rows = groups[split, fold]
        n = n_shards.get((split, fold), 0)
        if not 1 <= n <= len(rows):
            raise ValueError(
                f"{len(rows)} images of '{split}', fold {fold}, cannot go to {n} "
                "shards. Set N_SHARDS lower, or SHARD_MB or SHARD_IMAGES higher."
            )
        rng = np.random.default_rng([seed, number])
        # Dealt like cards: sorted by label, each shard gets every n-th image.
        by_label = _sort_shuffled(rows, label, rng)
        shard[by_label] = np.arange(len(rows)) % n
        by_shard = _sort_shuffled(rows, shard, rng)
        position[by_shard] = pd.Series(rows).groupby(shard[by_shard]).cumcount()
        part[rows] = (n_before + shard[rows]) % n_parts + 1
        n_before += n
    return table.assign(shard=shard, part=part, position=position)


def _sort_shuffled(
    rows: np.ndarray, values: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the rows sorted by their values, in random order where these are equal."""
    rows = rng.permutation(rows)
    return rows[np.argsort(values[rows], kind="stable")]


def stratified_group_split(
    group: np.ndarray,
    labels: csr_matrix,
    shares: np.ndarray,
    seed: int,
    multilabel: bool = False,
) -> np.ndarray:
    """Return the bin of each row, int64 (n,): groups stay whole, classes are spread.

    group: int (n,). labels: of `mark_labels`; without `multilabel`, a row has one class
    at most, and rows without a class are a class, too. shares: of the bins, with sum 1.
    Raises: ValueError: there are fewer groups than bins.
    """
    _, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    if len(sizes) < len(shares):
        raise ValueError(
            f"{len(sizes)} clusters of train images cannot fill {len(shares)} folds or "
            "splits. Set N_FOLDS lower, or change GROUP_COLUMN, EXTRA_IN_VALIDATION."
        )
    counts = _count_members(group, labels, multilabel)
    if multilabel:
        return _split_multilabel(counts, shares, seed)[group]
    return _assign_clusters(counts, sizes, shares, seed)[group]


def _count_members(
    group: np.ndarray, labels: csr_matrix, multilabel: bool
) -> csr_matrix:
    """Count the images of each class in each group: sparse (groups, classes)."""
    is_unlabelled = labels.sum(axis=1) == 0
    if not multilabel and is_unlabelled.any():
        labels = hstack([labels, csr_matrix(is_unlabelled, dtype=float)])
    ones = np.ones(len(group))
    members = csr_matrix((ones, (group, np.arange(len(group)))))
    return (members @ labels).tocsr()


def _split_multilabel(counts: csr_matrix, shares: np.ndarray, seed: int) -> np.ndarray:
    """Return the bin of each cluster by iterative stratification: int64 (clusters,).

    counts: images of each class in each cluster. Their number is ignored, only whether
    there are any. Source: Sechidis et al., "On the Stratification of Multi-Label Data"
    (2011).
    """
    try:
        from iterstrat.ml_stratifiers import IterativeStratification
        from sklearn.utils import check_random_state
    except ImportError as error:
        raise ImportError(
            "Images of several labels are stratified by iterative-stratification, "
            f"which is not installed: {error}. On Kaggle turn the internet on, or "
            "attach its wheel; see docs/kaggle.md."
        ) from None
    rng = check_random_state(seed)
    order = rng.permutation(counts.shape[0])
    bins = np.empty(counts.shape[0], np.int64)
    bins[order] = IterativeStratification(counts[order].toarray() > 0, shares, rng)
    return bins


class ClassLoads:
    """How many images of each class have been assigned so far, in all and to each bin.

    Plain numbers, because NumPy arrays with so few elements take several times longer.
    """

    def __init__(self, counts: csr_matrix, shares: np.ndarray) -> None:
        """Begin with empty bins. counts: images of each class in each cluster."""
        self.shares = shares.tolist()
        self.labels = counts.indices.data
        self.images = counts.data.data
        self.sizes = np.asarray(counts.sum(axis=0))[0].tolist()
        self.seen = [0.0] * len(self.sizes)
        self.in_bins = np.zeros((len(self.sizes), len(shares))).tolist()

    def measure_deficits(self, entries: range) -> list[float]:
        """Return how many images each bin lacks in a cluster's classes.

        entries: of the cluster, in `counts`. A class has the weight of the share of its
        images that is in the cluster.
        """
        deficits = [0.0] * len(self.shares)
        for entry in entries:
            label = self.labels[entry]
            images = self.images[entry]
            weight = images / self.sizes[label]
            seen = self.seen[label] + images
            loads = self.in_bins[label]
            deficits = [
                deficits[k] + weight * (share * seen - loads[k])
                for k, share in enumerate(self.shares)
            ]
        return deficits

    def add(self, entries: range, chosen: int) -> None:
        """Add a cluster to the chosen bin."""
        for entry in entries:
            label = self.labels[entry]
            self.seen[label] += self.images[entry]
            self.in_bins[label][chosen] += self.images[entry]


def _assign_clusters(
    counts: csr_matrix, sizes: np.ndarray, shares: np.ndarray, seed: int
) -> np.ndarray:
    """Return the bin of each cluster: int64 (clusters,).

    It is the bin with the largest deficit in the cluster's classes; ties go to the bin
    with the largest overall deficit. With equal shares, a class then differs between
    bins by its largest cluster at most.

    Unequal shares (a validation set of 2 %) need two more rules, or small classes would
    never be held out: a deficit counts in whole clusters, rounded up, so that many bins
    tie; and no bin gets more than the largest cluster too many images.

    counts: images of each class in each cluster. sizes: images of each cluster.
    Sources: Tijdeman, "The chairman assignment problem" (1980); Graham, "Bounds on
    Multiprocessing Timing Anomalies" (1969).
    """
    rng = np.random.default_rng(seed)
    classes = ClassLoads(counts, shares)
    order = _draw_order(counts, sizes, np.array(classes.sizes), rng)
    is_unequal = bool(np.ptp(shares))
    # A random offset, so that every position is held out with the intended probability.
    n_seen = int(rng.integers(10_000)) * is_unequal
    loads = np.diff(np.round(np.cumsum(shares) * n_seen), prepend=0).tolist()
    max_excess = sizes.max() - 0.5 if is_unequal else inf

    starts = counts.indptr.data
    bins = np.empty(len(sizes), np.int64)
    for cluster, size in zip(order.data, sizes[order].data, strict=True):
        entries = range(starts[cluster], starts[cluster + 1])
        deficits = classes.measure_deficits(entries)
        if is_unequal and len(entries) == 1:
            # The weight of the class, times the cluster's images, is one cluster.
            unit = size / classes.sizes[classes.labels[entries[0]]] * size
            deficits = [ceil(deficit / unit - 1e-9) for deficit in deficits]

        n_seen += size
        lacking = [share * n_seen - loads[k] for k, share in enumerate(classes.shares)]
        ranks = [
            (lack >= size - max_excess, deficits[k], lack)
            for k, lack in enumerate(lacking)
        ]
        chosen = ranks.index(max(ranks))
        bins[cluster] = chosen
        loads[chosen] += size
        classes.add(entries, chosen)
    return bins


def _draw_order(
    counts: csr_matrix,
    sizes: np.ndarray,
    class_sizes: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the clusters in the order of assignment, the largest first.

    Clusters of equal size are sorted by their rarest class, the largest such class
    first; the rest is random.
    """
    largest_first = np.lexsort((rng.random(len(class_sizes)), -class_sizes))
    place = np.argsort(largest_first)
    rarest = np.maximum.reduceat(place[counts.indices], counts.indptr[:-1])
    return np.lexsort((rng.random(len(sizes)), rarest, -sizes))
