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

from collections.abc import Mapping, Sequence
from itertools import islice
from math import ceil, inf
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csgraph, csr_matrix

from kaggle_tfr.figures.words import list_marks
from kaggle_tfr.naming import OVERRIDE_GROUP

Array = np.ndarray


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
    Raises: ValueError: there are more folds than clusters, or a column is missing.
    """
    rows = table.reindex(columns=["split", "fold", "part", "source"], fill_value=0)
    group = number_groups(table, group_column)
    place = _find_places(rows, group)
    split = place["split"]
    is_extra = (rows["source"] != 0).groupby(group).transform("any")
    is_free = (split == "train") & place["fold"].isna()
    is_free &= extra_in_validation | ~is_extra
    fold = place["fold"].fillna(-1).mask(is_free)
    labels = mark_labels(table, label_columns)

    if validation_size and is_free.any():
        is_placed = place["fold"].notna()
        bins = fold.clip(upper=0).mask(is_placed & (split == "validation"), 1)
        shares = [1 - validation_size, validation_size]
        is_held_out = fill_bins(group, labels, bins, shares, seed) == 1
        split = split.mask(is_held_out, "validation")
        fold = fold.mask(is_held_out, -1)

    is_train = split == "train"
    if n_folds < 2:
        fold = fold.mask(is_train, 0)
    elif is_train.any():
        # With the same seed, folds would follow the order of the held-out draw.
        fold = fill_bins(group, labels, fold, [1 / n_folds] * n_folds, seed + 1)
    return table.assign(split=split, fold=fold.astype(np.int64))


def number_groups(table: pd.DataFrame, group_column: str = "") -> pd.Series:
    """Return the number of each row's group, from 0.

    Rows of a cluster, or of a group, have the same number; so have overlapping ones.
    """
    if group_column and group_column not in table:
        raise ValueError(
            f"The table has no column '{group_column}', only "
            f"{', '.join(map(str, table))}. "
            'Set GROUP_COLUMN to one of these, or to "". For "folder" and '
            '"names: REGEX", run 01_explore with the same GROUP_COLUMN first.'
        )
    n_rows = len(table)
    links = csr_matrix((n_rows, n_rows))
    for column in ("cluster", OVERRIDE_GROUP, group_column):
        if column in table:
            links += _mark(list_first_rows(table, column), n_rows)
    _, number = csgraph.connected_components(links, directed=False)
    return pd.Series(number, table.index)


def list_first_rows(table: pd.DataFrame, column: str) -> Array:
    """Return the first row with the same value for each row: int (n,).

    It is the row itself for test rows, empty values, and cluster -1.
    """
    nothing = -1 if column == "cluster" else ""
    is_alone = (table["split"] == "test") | table[column].isin([nothing])
    rows = pd.Series(range(len(table)), table.index)
    groups = rows.mask(is_alone).groupby(table[column], sort=False)
    first_rows = groups.transform("min").mask(is_alone).fillna(rows)
    return first_rows.to_numpy(np.int64)


def _find_places(rows: pd.DataFrame, group: pd.Series) -> pd.DataFrame:
    """Return the split and fold of each row as far as they are known, fold NA if not.

    Earlier images have their own place, other rows that of the first earlier image in
    their group. Without one, the group goes to its split with the fewest rows.
    """
    is_earlier = rows["part"] != 0
    place = rows[["split", "fold"]].assign(fold=rows["fold"].where(is_earlier))
    sizes = place["split"].map(place["split"].value_counts()).mask(is_earlier, 0)
    order = sizes.sort_values(kind="stable").index
    return place.where(is_earlier, place.loc[order].groupby(group).transform("first"))


def mark_labels(table: pd.DataFrame, label_columns: Sequence[str]) -> csr_matrix:
    """Return a sparse matrix (n, classes) with 1 for the classes of each row.

    Without `label_columns` the classes are the values of the column label. Rows without
    a label are a class, too.
    """
    if not label_columns:
        codes, classes = pd.factorize(table["label"], sort=True)
        return _mark(codes, len(classes))
    marks = list_marks(table, label_columns)
    return csr_matrix(marks.assign(unlabelled=~marks.any(axis=1)), dtype=float)


def _mark(columns: Array, n_columns: int) -> csr_matrix:
    """Return a sparse matrix (n, n_columns) with a 1 in one column of each row."""
    n_rows = len(columns)
    entries = (np.ones(n_rows), columns, np.arange(n_rows + 1))
    return csr_matrix(entries, shape=(n_rows, n_columns))


def fill_bins(
    group: pd.Series,
    labels: csr_matrix,
    bins: pd.Series,
    shares: list[float],
    seed: int,
) -> pd.Series:
    """Return the bin of each row: groups stay whole, classes are spread.

    labels: of `mark_labels`. shares: of the bins, with sum 1.
    bins: NA for the rows to distribute, -1 for rows that stay in no bin. Rows in a bin
        stay there, and the shares are of all images in the bins.
    Raises: ValueError: there are fewer groups than bins, and no row has a bin.
    """
    is_free = bins.isna().to_numpy()
    is_known = (bins >= 0).to_numpy()
    number, groups = pd.factorize(group[is_free])
    if len(groups) < len(shares) and not is_known.any():
        raise ValueError(
            f"{len(groups)} clusters of train images cannot fill {len(shares)} folds "
            "or splits. Set N_FOLDS lower, or change GROUP_COLUMN, EXTRA_IN_VALIDATION."
        )
    known = bins[is_known].astype(int)
    counts_before = _mark(known, len(shares)).T @ labels[is_known]
    counts = (_mark(number, len(groups)).T @ labels[is_free]).tocsr()
    sizes = np.bincount(number)
    rng = np.random.default_rng(seed)
    # As if a random number of images came before, so that each may be held out.
    totals = np.cumsum(shares) * len(shares) * rng.integers(10_000)
    loads = np.diff(np.rint(totals), prepend=0)
    loads += np.bincount(known, minlength=len(shares))
    order = _draw_order(counts, sizes, rng)
    chosen = np.empty(len(groups), np.int64)
    chosen[order] = _choose_bins(
        counts[order],
        sizes[order],
        shares,
        loads.tolist(),
        counts_before.toarray(),
    )
    filled = bins.copy()
    filled[is_free] = chosen[number]
    return filled


def _draw_order(counts: csr_matrix, sizes: Array, rng: np.random.Generator) -> Array:
    """Return the groups in the order of assignment, the largest first.

    Of equal size, groups of several classes are first, the rarest class before others:
    later groups can make up for them. Groups of one class follow, class by class, the
    largest first; the rest is random.
    """
    class_sizes = counts.sum(axis=0).A1
    rank = class_sizes + rng.random(len(class_sizes))
    rarest = np.minimum.reduceat(rank[counts.indices], counts.indptr[:-1])
    is_pure = np.diff(counts.indptr) == 1
    rarest[is_pure] *= -1
    return np.lexsort((rng.random(len(sizes)), rarest, is_pure, -sizes))


def _choose_bins(
    counts: csr_matrix,
    sizes: Array,
    shares: list[float],
    loads: list[float],
    counts_before: Array,
) -> list[int]:
    """Return the bin of each group, in the order of the groups.

    It is the bin with the largest deficit in the group's classes, as shares of these
    classes; ties go to the bin with the largest overall deficit. With equal shares, a
    class of which no group has other classes then differs between bins by its largest
    group at most.

    Unequal shares (a validation set of 2 %) need two more rules, or small classes would
    never be held out. A deficit in one class counts in whole groups, rounded up, so
    that many bins tie. If all images have one class, no bin gets so many images too
    many as the largest group has.

    counts: images of each class in each group. sizes: images of each group, the largest
        first.
    loads, counts_before: images in each bin at the start, and of each class (bins,
        classes).
    Sources: Tijdeman, "The chairman assignment problem" (1980); Sechidis et al., "On
    the Stratification of Multi-Label Data" (2011).
    """
    is_unequal = np.ptp(shares) > 0
    max_excess = inf
    if is_unequal and counts.sum() == sizes.sum():
        max_excess = sizes.max(initial=0) - 0.5
    # Lists, because NumPy arrays with so few elements take several times longer.
    loads_of_class = counts_before.T.tolist()
    class_sizes = (counts_before.sum(axis=0) + counts.sum(axis=0).A1).tolist()
    entries = zip(counts.indices.data, counts.data.data, strict=True)
    n_classes = np.diff(counts.indptr)
    bins = []
    for size, n_entries in zip(sizes.data, n_classes.data, strict=True):
        classes = list(islice(entries, n_entries))
        lacking = _measure_deficits(shares, loads, size)
        deficits = [0.0] * len(shares)
        for label, images in classes:
            of_class = _measure_deficits(shares, loads_of_class[label], images)
            weight = 1 / class_sizes[label]
            deficits = [
                deficit + weight * lack
                for deficit, lack in zip(deficits, of_class, strict=True)
            ]
        if is_unequal and n_entries == 1:
            deficits = [ceil(lack / size - 1e-9) for lack in of_class]
        has_room = [lack >= size - max_excess for lack in lacking]
        ranks = list(zip(has_room, deficits, lacking, strict=True))
        chosen = ranks.index(max(ranks))
        bins.append(chosen)
        loads[chosen] += size
        for label, images in classes:
            loads_of_class[label][chosen] += images
    return bins


def _measure_deficits(
    shares: list[float], loads: list[float], n_images: float
) -> list[float]:
    """Return how many images each bin lacks of its share, with `n_images` more."""
    seen = sum(loads) + n_images
    return [share * seen - load for share, load in zip(shares, loads, strict=True)]


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
    folds: dict[Any, Any] = dict(table.groupby(["split", "fold"]).indices)
    for number, (place, rows) in enumerate(sorted(folds.items())):
        rng = np.random.default_rng([seed, number])
        # Dealt like cards: sorted by label, each shard gets every n-th image.
        dealt = rows[_sort_shuffled(label[rows], rng)]
        shard[dealt] = np.arange(len(rows)) % n_shards[place]
        part[rows] = (n_before + shard[rows]) % n_parts + 1
        by_shard = rows[_sort_shuffled(shard[rows], rng)]
        position[by_shard] = pd.Series(by_shard).groupby(shard[by_shard]).cumcount()
        n_before += n_shards[place]
    return table.assign(shard=shard, part=part, position=position)


def _sort_shuffled(values: Array, rng: np.random.Generator) -> Array:
    """Return the indices that sort the values; equal values are in random order."""
    rows = rng.permutation(len(values))
    return rows[np.argsort(values[rows], kind="stable")]
