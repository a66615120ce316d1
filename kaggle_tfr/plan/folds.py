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

When a dataset grows, earlier images keep their fold, and their groups go there, too.
All other groups are distributed as if the earlier images had come first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil, inf
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csgraph, csr_matrix, hstack, vstack

from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.parameters import check_parameters

Array = np.ndarray
# A class of a cluster: its number, its images in the cluster, their share of the class,
# and its images in this and all earlier clusters.
ClassOfCluster = tuple[int, float, float, float]


@dataclass(frozen=True)
class Placed:
    """Images that have a bin already: their classes, and their bins, int (n,).

    labels: of `mark_labels`, with the same columns as those of the other images.
    """

    labels: csr_matrix
    bins: Array


@dataclass(frozen=True)
class Groups:
    """Which rows of a table stay together, and where they belong: one value per row.

    number: int (n,), equal for rows that clusters or groups join.
    split: str (n,), equal for rows of a group, except test rows.
    may_validate: bool (n,), rows of train without rows of another source in their
        group.
    """

    number: Array
    split: Array
    may_validate: Array


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

    table: columns label, split, and optionally cluster (-1 or NA: none), override_group
        (NA: none) and source (0: the main one). A cluster over several splits goes to
        the one with the fewest rows in the table; test rows stay, and do not attract
        others. Rows whose part is not 0 keep their split and fold, and attract the
        other rows of their cluster.
    validation_size: share of the train rows that may validate, for split "validation".
    group_column: rows with equal values (patients, sites) stay together like clusters.
    label_columns: of multi-label images, 0/1 or a text that is empty for no.
    extra_in_validation: whether rows of other sources, and rows in their groups, may
        validate. Otherwise they stay in train, in fold -1 if there are folds.
    Column fold: int64, 0 to n_folds - 1 for train, always 0 if n_folds is below 2;
        -1 for all other rows.
    Raises: ValueError: there are more folds than clusters, a share is out of range, or
        a column is missing.
    """
    check_parameters({"VALIDATION_SIZE": validation_size})
    groups = join_groups(table, group_column, extra_in_validation)
    is_placed, split, fold = place_earlier(table, groups)
    # Rows that get a fold: of train, without those that must never validate.
    rows = np.flatnonzero(groups.may_validate & ~is_placed)
    # Rows that had one, or were held out, before the dataset grew.
    placed = np.flatnonzero(is_placed & ((fold >= 0) | (split == "validation")))
    labels = mark_labels(table.iloc[np.append(rows, placed)], label_columns)
    labels_placed = labels[len(rows) :]
    labels = labels[: len(rows)]
    draw = partial(stratified_group_split, multilabel=len(label_columns) > 1)

    if validation_size and len(rows):
        shares = [1 - validation_size, validation_size]
        before = Placed(labels_placed, (fold[placed] < 0).astype(int))
        bins = draw(groups.number[rows], labels, shares, seed, before=before)
        is_held_out = bins == 1
        split[rows[is_held_out]] = "validation"
        rows = rows[~is_held_out]
        labels = labels[~is_held_out]

    is_train = split == "train"
    if n_folds < 2:
        fold[is_train] = 0
    elif is_train.any():
        # With the same seed, folds would follow the order of the held-out draw.
        shares = [1 / n_folds] * n_folds
        has_fold = fold[placed] >= 0
        before = Placed(labels_placed[has_fold], fold[placed[has_fold]])
        numbers = groups.number[rows]
        fold[rows] = draw(numbers, labels, shares, seed + 1, before=before)
    return table.assign(split=split, fold=fold)


def place_earlier(table: pd.DataFrame, groups: Groups) -> tuple[Array, Array, Array]:
    """Return which rows are placed by earlier images, and all splits and folds.

    Earlier images have their own place, other rows that of the first earlier image in
    their group. Rows that are not placed have the split of their group, and fold -1.
    bool, str and int64 (n,).
    """
    if "part" not in table:
        none = np.zeros(len(table), bool)
        return none, groups.split.copy(), np.full(len(table), -1)
    is_earlier = table["part"] != 0
    place = table[["split", "fold"]].where(is_earlier)
    place = place.fillna(place.groupby(groups.number).transform("first"))
    is_placed = place["split"].notna().to_numpy()
    split = place["split"].to_numpy(object, copy=True)
    split[~is_placed] = groups.split[~is_placed]
    fold = place["fold"].fillna(-1).to_numpy(np.int64, copy=True)
    return is_placed, split, fold


def join_groups(
    table: pd.DataFrame,
    group_column: str = "",
    extra_in_validation: bool = False,
) -> Groups:
    """Join the rows of each cluster and of each group; overlapping ones become one."""
    _check_column(table, group_column)
    number = _number_groups(table, group_column)
    split = _find_smallest_split(table["split"], number)
    may_validate = split == "train"
    if "source" in table and not extra_in_validation:
        extra = number[table["source"] != 0]
        may_validate &= ~np.isin(number, extra)
    return Groups(number, split, may_validate)


def _check_column(table: pd.DataFrame, group_column: str) -> None:
    """Raise a ValueError if the table lacks the column of GROUP_COLUMN."""
    if group_column and group_column not in table:
        raise ValueError(
            f"The table has no column '{group_column}', only "
            f"{', '.join(map(str, table))}. "
            'Set GROUP_COLUMN to one of these, or to "". For "folder" and '
            '"names: REGEX", run 01_explore with the same GROUP_COLUMN first.'
        )


def _find_smallest_split(split: pd.Series, number: Array) -> Array:
    """Return the split with the fewest rows in each row's group: str (n,)."""
    # Equally large splits are in the order of their names.
    sizes = split.groupby(split).size().sort_values(kind="stable")
    rank = pd.Series(pd.Categorical(split, sizes.index).codes)
    smallest = rank.groupby(number).transform("min")
    return sizes.index.to_numpy(object)[smallest]


def _number_groups(table: pd.DataFrame, group_column: str) -> Array:
    """Return the number of each row's group: int (n,), from 0 in order of the rows."""
    rows = np.arange(len(table))
    links = csr_matrix((len(rows), len(rows)))
    for column in ("cluster", OVERRIDE_GROUP, group_column):
        if column in table:
            first_rows = list_first_rows(table, column)
            entries = (np.ones(len(rows)), (rows, first_rows))
            links += csr_matrix(entries, links.shape)
    return csgraph.connected_components(links, directed=False)[1]


def list_first_rows(table: pd.DataFrame, column: str) -> Array:
    """Return the first row with the same value for each row: int (n,).

    It is the row itself for test rows, empty values, and cluster -1.
    """
    codes = pd.factorize(table[column])[0]
    codes[table["split"].isin(["test"])] = -1
    codes[table[column].isin([""])] = -1
    if column == "cluster":
        codes[table[column].isin([-1])] = -1
    rows = pd.Series(range(len(table)))
    first_rows = rows.groupby(codes).transform("min")
    return np.where(codes == -1, rows, first_rows)


def mark_labels(table: pd.DataFrame, label_columns: Sequence[str]) -> csr_matrix:
    """Return a sparse matrix (n, classes) with 1 for the classes of each row.

    Without `label_columns` the classes are the sorted values of the column label.
    """
    if not label_columns:
        return _mark_classes(table["label"])
    values = table[[*label_columns]]
    is_marked = ~values.isin([0, ""]) & values.notna()
    return csr_matrix(is_marked, dtype=float)


def _mark_classes(label: pd.Series) -> csr_matrix:
    """Return a sparse matrix (n, classes) with one 1 a row."""
    codes, classes = pd.factorize(label, sort=True)
    row_starts = np.arange(len(label) + 1)
    entries = (np.ones(len(label)), codes, row_starts)
    n_classes = max(1, len(classes))
    return csr_matrix(entries, shape=(len(label), n_classes))


def assign_shards(
    table: pd.DataFrame,
    n_shards: Mapping[tuple[str, int], int],
    n_parts: int,
    *,
    seed: int,
) -> pd.DataFrame:
    """Add int64 columns shard, part and position to the table, in the same order.

    n_shards: number for each (split, fold), at most its number of images. Shards of one
        fold have the same number of images, also of each class, to within one; parts
        have the same number of shards.
    shard: from 0 within its split and fold. part: from 1. position: from 0 in the
        shard.
    """
    label = table["label"].to_numpy()
    shard, part, position = np.zeros((3, len(table)), np.int64)
    n_before = 0
    folds = table.groupby(["split", "fold"])
    rows_of_folds: dict[Any, Any] = dict(folds.indices)
    for number, (place, rows) in enumerate(sorted(rows_of_folds.items())):
        rng = np.random.default_rng([seed, number])
        shard[rows], position[rows] = _deal_images(label[rows], n_shards[place], rng)
        part[rows] = (n_before + shard[rows]) % n_parts + 1
        n_before += n_shards[place]
    return table.assign(shard=shard, part=part, position=position)


def _deal_images(
    label: Array,
    n_shards: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Return the shard of each image of a fold, and its position there: int64 (n,).

    Dealt like cards: sorted by label, each shard gets every n-th image.
    """
    shard = np.empty(len(label), np.int64)
    shard[_sort_shuffled(label, rng)] = np.arange(len(label)) % n_shards
    by_shard = _sort_shuffled(shard, rng)
    position = np.empty_like(shard)
    shards = pd.Series(by_shard).groupby(shard[by_shard])
    position[by_shard] = shards.cumcount()
    return shard, position


def _sort_shuffled(values: Array, rng: np.random.Generator) -> Array:
    """Return the indices that sort the values; equal values are in random order."""
    rows = rng.permutation(len(values))
    return rows[np.argsort(values[rows], kind="stable")]


def stratified_group_split(
    group: Array,
    labels: csr_matrix,
    shares: list[float],
    seed: int,
    *,
    multilabel: bool = False,
    before: Placed | None = None,
) -> Array:
    """Return the bin of each row, int64 (n,): groups stay whole, classes are spread.

    group: int (n,). labels: of `mark_labels`; without `multilabel`, a row has one class
    at most, and rows without a class are a class, too. shares: of the bins, with sum 1.
    before: images that are in the bins already; the shares are of all images.
    Raises: ValueError: there are fewer groups than bins, and no images before.
    """
    _, group, sizes = np.unique(group, return_inverse=True, return_counts=True)
    if before and len(before.bins):
        return _add_to_bins(group, labels, shares, seed, before)
    if len(sizes) < len(shares):
        raise ValueError(
            f"{len(sizes)} clusters of train images cannot fill {len(shares)} folds or "
            "splits. Set N_FOLDS lower, or change GROUP_COLUMN, EXTRA_IN_VALIDATION."
        )
    if multilabel:
        bins = _split_multilabel(_count_images(group, labels), shares, seed)
    else:
        counts = _count_images(group, _add_unlabelled(labels))
        bins = _assign_clusters(counts, sizes, shares, seed)
    return bins[group]


def _add_to_bins(
    group: Array,
    labels: csr_matrix,
    shares: list[float],
    seed: int,
    before: Placed,
) -> Array:
    """Return the bin of each row, if there are images in the bins already.

    group: from 0. Rows of several classes count in each.
    """
    sizes = np.bincount(group)
    if not len(sizes):
        return np.empty(0, np.int64)
    all_labels = _add_unlabelled(vstack([labels, before.labels]).tocsr())
    counts = _count_images(group, all_labels[: len(group)])
    counts_before = _count_images(before.bins, all_labels[len(group) :], len(shares))
    loads = np.bincount(before.bins, minlength=len(shares)).astype(float).tolist()
    order = _draw_order(counts, sizes, np.random.default_rng(seed))
    bins = np.empty(len(sizes), np.int64)
    bins[order] = _fill_bins(
        counts[order], sizes[order], shares, loads, counts_before.toarray()
    )
    return bins[group]


def _count_images(
    group: Array, labels: csr_matrix, n_groups: int | None = None
) -> csr_matrix:
    """Return the images of each class in each group: (groups, classes).

    n_groups: by default, all groups have an image.
    """
    rows = np.arange(len(group))
    n_groups = n_groups or group.max(initial=-1) + 1
    shape = (n_groups, len(rows))
    members = csr_matrix((np.ones(len(rows)), (group, rows)), shape)
    return (members @ labels).tocsr()


def _add_unlabelled(labels: csr_matrix) -> csr_matrix:
    """Add a class for the rows without one, if there are any."""
    is_unlabelled = labels.sum(axis=1) == 0
    if not is_unlabelled.any():
        return labels
    return hstack([labels, csr_matrix(is_unlabelled)])


def _split_multilabel(counts: csr_matrix, shares: list[float], seed: int) -> Array:
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
            f"which is not installed: {error}. On Kaggle, enable the internet, or "
            "attach its wheel; see docs/kaggle.md."
        ) from None
    rng = check_random_state(seed)
    order = rng.permutation(counts.shape[0])
    bins = np.empty(counts.shape[0], np.int64)
    has_class = counts[order].toarray() > 0
    bins[order] = IterativeStratification(has_class, np.array(shares), rng)
    return bins


def _assign_clusters(
    counts: csr_matrix,
    sizes: Array,
    shares: list[float],
    seed: int,
) -> Array:
    """Return the bin of each cluster: int64 (clusters,).

    counts: images of each class in each cluster. sizes: images of each cluster.
    """
    rng = np.random.default_rng(seed)
    order = _draw_order(counts, sizes, rng)
    loads = [0.0] * len(shares)
    if np.ptp(shares):
        loads = _draw_loads(shares, rng)
    bins = np.empty(len(sizes), np.int64)
    bins[order] = _fill_bins(counts[order], sizes[order], shares, loads)
    return bins


def _draw_loads(shares: list[float], rng: np.random.Generator) -> list[float]:
    """Return the loads of the bins after a random number of images.

    With such an offset, every position is held out with the intended probability.
    """
    totals = np.round(np.cumsum(shares) * rng.integers(10_000))
    return np.diff(totals, prepend=0).tolist()


def _draw_order(counts: csr_matrix, sizes: Array, rng: np.random.Generator) -> Array:
    """Return the clusters in the order of assignment, the largest first.

    Clusters of equal size are sorted by their rarest class, the largest such class
    first; the rest is random.
    """
    class_sizes = np.asarray(counts.sum(axis=0))[0]
    largest_first = np.lexsort((rng.random(len(class_sizes)), -class_sizes))
    place = np.argsort(largest_first)
    rarest = np.maximum.reduceat(place[counts.indices], counts.indptr[:-1])
    tie_breaker = rng.random(len(sizes))
    return np.lexsort((tie_breaker, rarest, -sizes))


def _fill_bins(
    counts: csr_matrix,
    sizes: Array,
    shares: list[float],
    loads: list[float],
    counts_before: Array | None = None,
) -> list[int]:
    """Return the bin of each cluster, in the order of the clusters.

    It is the bin with the largest deficit in the cluster's classes, each weighted by
    the share of its images that is in the cluster; ties go to the bin with the largest
    overall deficit. With equal shares, a class then differs between bins by its largest
    cluster at most.

    Unequal shares (a validation set of 2 %) need two more rules, or small classes would
    never be held out: a deficit counts in whole clusters, rounded up, so that many bins
    tie; and no bin gets so many images too many as the largest cluster has.

    counts, sizes: as in `_assign_clusters`, the largest cluster first.
    loads: number of images in each bin at the start; the call changes it.
    counts_before: images of each class in each bin at the start (bins, classes); None
        for none.
    Sources: Tijdeman, "The chairman assignment problem" (1980); Graham, "Bounds on
    Multiprocessing Timing Anomalies" (1969).
    """
    # Lists, because NumPy arrays with so few elements take several times longer.
    if counts_before is None:
        counts_before = np.zeros((len(shares), counts.shape[1]))
    loads_of_class = counts_before.T.tolist()
    max_excess = float(sizes[0]) - 0.5 if np.ptp(shares) else inf
    seen = sum(loads)
    bins = list[int]()
    all_classes = _list_classes(counts, counts_before.sum(axis=0))
    for size, classes in zip(sizes.data, all_classes, strict=True):
        deficits = _measure_deficits(shares, classes, loads_of_class)
        if max_excess < inf and len(classes) == 1:
            deficits = _count_clusters(deficits, *classes)
        seen += size
        lacking = [share * seen - loads[k] for k, share in enumerate(shares)]
        chosen = _choose_bin(deficits, lacking, size - max_excess)
        bins.append(chosen)
        loads[chosen] += size
        for label, images, *_ in classes:
            loads_of_class[label][chosen] += images
    return bins


def _count_clusters(deficits: list[float], class_: ClassOfCluster) -> list[float]:
    """Return the deficits in clusters of this size, rounded up."""
    _, images, weight, _ = class_
    unit = weight * images
    return [ceil(deficit / unit - 1e-9) for deficit in deficits]


def _choose_bin(deficits: list[float], lacking: list[float], least_room: float) -> int:
    """Return the bin with the largest deficit, if possible one with enough room.

    lacking: images that each bin lacks in all classes together.
    """
    has_room = [lack >= least_room for lack in lacking]
    ranks = list(zip(has_room, deficits, lacking, strict=True))
    return ranks.index(max(ranks))


def _list_classes(
    counts: csr_matrix, sizes_before: Array
) -> Iterator[list[ClassOfCluster]]:
    """Yield the classes of each cluster.

    sizes_before: images of each class that are in the bins already.
    """
    new_sizes = np.bincount(counts.indices, counts.data, len(sizes_before))
    class_sizes = (new_sizes + sizes_before).tolist()
    seen = sizes_before.tolist()
    # Buffers yield plain numbers one by one, without lists of them all.
    entries = zip(counts.indices.data, counts.data.data, strict=True)
    for n_classes in np.diff(counts.indptr).data:
        classes = []
        for label, images in islice(entries, n_classes):
            seen[label] += images
            weight = images / class_sizes[label]
            classes.append((label, images, weight, seen[label]))
        yield classes


def _measure_deficits(
    shares: list[float],
    classes: list[ClassOfCluster],
    loads_of_class: list[list[float]],
) -> list[float]:
    """Return the weighted sum of each bin's deficits in the classes of a cluster."""
    deficits = [0.0] * len(shares)
    for label, _, weight, seen in classes:
        loads = loads_of_class[label]
        deficits = [
            deficits[k] + weight * (share * seen - loads[k])
            for k, share in enumerate(shares)
        ]
    return deficits
