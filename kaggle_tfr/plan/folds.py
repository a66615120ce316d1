"""Folds over clusters, then shards within folds: stratified, seeded, no cluster ever split."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csgraph, csr_matrix, hstack

from kaggle_tfr.deduplicate.hashing import FLAT, HASHES

MANY_CLASSES = 10_000


def assign_folds(
    table: pd.DataFrame,
    *,
    n_folds: int,
    seed: int,
    validation_size: float = 0.0,
    group_column: str = "",
    label_columns: Sequence[str] = (),
) -> pd.DataFrame:
    """The table with its columns split and fold; rows of one cluster share both.

    table: columns label, and maybe split (else "train") and cluster (-1 or NA for none). Clusters
    that span given splits go to the smallest of these, so that a test set stays whole.
    fold: int64, 0 to n_folds - 1 for train, all 0 for n_folds up to 1; -1 outside train.
    validation_size: share of train that becomes split "validation".
    group_column: its values (patients, sites) stay together like clusters, and with them.
    label_columns: of multi-label images, 0/1 or a code that is empty for no; else `label` counts.
    Raises: ValueError for more folds than clusters, a share outside [0, 1), an unknown column.
    """
    if missing := [name for name in (group_column, *label_columns) if name and name not in table]:
        what = f"The table has no column '{missing[0]}', only {', '.join(map(str, table))}."
        raise ValueError(f'{what} Set GROUP_COLUMN to one of these, or to "".')
    if not 0 <= validation_size < 1:
        raise ValueError(f"VALIDATION_SIZE is {validation_size}. Set a share from 0 to below 1.")
    group, split = _join_groups(table, group_column)
    labels, train = _label_matrix(table, label_columns), np.flatnonzero(split == "train")
    assign = partial(stratified_group_split, multilabel=len(label_columns) > 1)
    if validation_size > 0 and len(train):
        shares = np.array([1 - validation_size, validation_size])
        held_out = assign(group[train], labels[train], shares, seed) == 1
        split[train[held_out]] = "validation"
        train = train[~held_out]
    fold = np.where(split == "train", 0, -1)
    if n_folds > 1 and len(train):
        # A seed of its own, or the folds would follow the order of the held-out draw.
        fold[train] = assign(group[train], labels[train], np.full(n_folds, 1 / n_folds), seed + 1)
    return table.assign(split=split, fold=fold)


def _join_groups(table: pd.DataFrame, group_column: str) -> tuple[np.ndarray, np.ndarray]:
    """Of each row a number, equal where clusters or groups join rows, and the split of these."""
    n, graph = len(table), csr_matrix((len(table), len(table)))
    for column in {"cluster", group_column} & set(table):
        graph += csr_matrix((np.ones(n), (np.arange(n), _first_rows(table, column))), (n, n))
    group = pd.factorize(csgraph.connected_components(graph, directed=False)[1])[0]
    split = np.asarray(table.get("split", ["train"] * n)).astype(str)
    names, codes, sizes = np.unique(split, return_inverse=True, return_counts=True)
    by_size = np.argsort(sizes, kind="stable")
    smallest = pd.Series(np.argsort(by_size)[codes]).groupby(group).transform("min")
    return group, names[by_size].astype(object)[smallest]


def _first_rows(table: pd.DataFrame, column: str) -> np.ndarray:
    """Int (n,): the first row with the same value; the row itself for NA, and for cluster -1."""
    rows, values = np.arange(len(table)), table[column]
    first = pd.Series(rows).groupby(pd.factorize(values)[0]).transform("min")
    alone = values.isna() if column != "cluster" else values.fillna(-1) == -1
    return np.where(alone, rows, first)


def _label_matrix(table: pd.DataFrame, label_columns: Sequence[str]) -> csr_matrix:
    """Sparse (n, classes) of ones: which classes a row counts for."""
    if label_columns:
        columns = [table[name] for name in label_columns]
        yes = [c > 0 if c.dtype.kind in "iufb" else c.fillna("") != "" for c in columns]
        return csr_matrix(np.stack(yes, axis=1).astype(np.float64))
    n, codes = len(table), pd.factorize(table["label"], sort=True)[0]
    return csr_matrix((np.ones(n), (np.arange(n), codes)), shape=(n, codes.max(initial=0) + 1))


def assign_shards(
    table: pd.DataFrame, n_shards: Mapping[tuple[str, int], int], n_parts: int = 1, *, seed: int
) -> pd.DataFrame:
    """The table with int64 columns shard, part and position added; its rows keep their order.

    n_shards: of each (split, fold), which hold equally many records, also of each class, to within
    one; parts hold equally many shards of each.
    shard: from 0 within its split and fold; part: from 1; position: from 0 in the shard.
    Raises: ValueError for a split and fold with fewer images than shards, or without shards.
    """
    shard, position, part = np.zeros((3, len(table)), np.int64)
    groups: dict[Any, Any] = dict(table.groupby(["split", "fold"]).indices)
    n_before = 0
    for number, (key, rows) in enumerate(sorted(groups.items())):
        n = n_shards.get(key, 0)
        if not 1 <= n <= len(rows):
            what = f"{len(rows)} images of '{key[0]}', fold {key[1]}, cannot go to {n} shards."
            raise ValueError(f"{what} Set N_SHARDS lower, or SHARD_MB or SHARD_IMAGES higher.")
        rng = np.random.default_rng([seed, number])
        shard[_sort_shuffled(rows, table["label"].to_numpy(), rng)] = np.arange(len(rows)) % n
        by_shard = _sort_shuffled(rows, shard, rng)
        position[by_shard] = pd.Series(rows).groupby(shard[by_shard]).cumcount()
        part[rows] = (n_before + shard[rows]) % n_parts + 1
        n_before += n
    return table.assign(shard=shard, part=part, position=position)


def _sort_shuffled(rows: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    rows = rng.permutation(rows)
    return rows[np.argsort(values[rows], kind="stable")]


def stratified_group_split(
    group: np.ndarray, labels: csr_matrix, shares: np.ndarray, seed: int, multilabel: bool = False
) -> np.ndarray:
    """The bin of each row, int64 (n,): groups whole, each class near its share of every bin.

    group: int (n,). labels: sparse (n, classes) of ones, one a row at most, or with `multilabel`
    many; rows with none are a class of their own. shares: of the rows, one a bin, summing to 1.
    Raises: ValueError for fewer groups than bins.
    Source: Sechidis et al., "On the Stratification of Multi-Label Data" (2011).
    """
    from iterstrat.ml_stratifiers import IterativeStratification
    from sklearn.model_selection import StratifiedKFold
    from sklearn.utils import check_random_state

    group, sizes = np.unique(group, return_inverse=True, return_counts=True)[1:]
    if len(sizes) < len(shares):
        what = f"{len(sizes)} clusters of train images cannot fill {len(shares)} folds or splits."
        raise ValueError(f"{what} Set N_FOLDS lower, or a GROUP_COLUMN with more groups.")
    if not multilabel and (none := labels.sum(axis=1) == 0).any():
        labels = hstack([labels, csr_matrix(none, dtype=float)])
    counts = (csr_matrix((np.ones(len(group)), (group, np.arange(len(group))))) @ labels).tocsr()
    bins = np.empty(len(sizes), np.int64)
    if multilabel:
        order = (rng := check_random_state(seed)).permutation(len(sizes))
        bins[order] = IterativeStratification(counts[order].toarray() > 0, shares, rng)
        return bins[group]
    # StratifiedKFold knows no cluster sizes, refuses when all classes are rare, and looks at all
    # rows once a class: 37 s for landmark's, where the other way takes 12.
    fits = np.bincount(counts.indices).max() >= len(shares) and counts.shape[1] <= MANY_CLASSES
    if sizes.max() > 1 or np.ptp(shares) > 0 or not fits:
        return _split_clusters(counts, sizes, shares, seed)[group]
    splitter = StratifiedKFold(len(shares), shuffle=True, random_state=seed)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # rarer than folds
        for number, (_, held_out) in enumerate(splitter.split(bins, counts.indices)):
            bins[held_out] = number
    return bins[group]


def _split_clusters(
    counts: csr_matrix, sizes: np.ndarray, shares: np.ndarray, seed: int
) -> np.ndarray:
    """Largest cluster first, each into the bin that is furthest behind in the cluster's classes.

    Where clusters have one class, its images in two folds differ by its largest cluster at most.
    Source: Graham, "Bounds on Multiprocessing Timing Anomalies" (longest first); the half of
    the cluster that is counted in before choosing is Webster's rounding, for unequal shares.
    """
    chance = np.random.default_rng(seed).permutation(len(sizes))
    # Class by class where sizes are equal, so that what is left of each evens out the folds.
    order = np.lexsort((chance, counts.indices[counts.indptr[:-1]], -sizes))
    total = np.maximum(np.asarray(counts.sum(axis=0)).ravel(), 1)
    a_share = shares.max() / shares  # whole numbers where shares are equal: a tie is a tie
    filled, load = np.zeros((len(total), len(shares))), np.zeros(len(shares))
    bins = np.empty(len(sizes), np.int64)
    for cluster in order:
        own = slice(counts.indptr[cluster], counts.indptr[cluster + 1])
        classes, images = counts.indices[own], counts.data[own]
        if len(classes) == 1:
            behind = (filled[classes[0]] + images[0] / 2) * a_share
        else:
            behind = (images / total[classes]) @ ((filled[classes] + images[:, None] / 2) * a_share)
        bins[cluster] = chosen = np.lexsort((load * a_share, behind))[0]
        filled[classes, chosen] += images
        load[chosen] += sizes[cluster]
    return bins


def describe_rare_classes(table: pd.DataFrame) -> str:
    """One line: which classes of train are missing from some fold, or that none is."""
    train = table[table["fold"] >= 0]
    n_folds = train["fold"].max() + 1 if len(train) else 1
    present = train.groupby(train["label_name"].astype(str))["fold"].nunique()
    rare = present.index[present < n_folds]
    if not len(rare):
        return f"Every class is in every one of {n_folds} folds."
    count = f"{len(rare):,} of {len(present):,} classes have too few images or clusters"
    names = ", ".join(rare[:5]) + ", …" * (len(rare) > 5)
    return f"{count} to be in every one of {n_folds} folds: {names}"


def check_leakage(
    table: pd.DataFrame,
    *,
    hashes: pd.DataFrame | None = None,
    max_bits: int = 25,
    group_column: str = "",
) -> pd.Series:
    """Series of numbers: how far the folds of the finished table are from what they should be.

    clusters_across_folds, groups_across_folds: must be 0; a split counts as a fold.
    max_share_deviation: the largest difference between a class's share in a fold and in all train.
    sampled_images, sampled_pairs_across_folds: given `hashes` (of `hash_images`), by brute force,
    pairs within max_bits bits of 300 sampled images with all of other folds; must be 0.
    """
    fold = table.groupby(["split", "fold"], dropna=False).ngroup().to_numpy()
    train = table[table["fold"] >= 0]
    shares = pd.crosstab(train["label"], train["fold"], normalize="columns")
    off = shares.sub(train["label"].value_counts(normalize=True), axis=0).abs().to_numpy()
    numbers: dict[str, float] = {"images": len(table), "clusters_across_folds": 0}
    numbers["max_share_deviation"] = float(off.max(initial=0.0))
    for kind, column in (("clusters", "cluster"), ("groups", group_column)):
        if column in table:
            first = _first_rows(table, column)
            numbers[f"{kind}_across_folds"] = len(np.unique(first[fold != fold[first]]))
    if hashes is not None:
        chosen = np.random.default_rng(0).permutation(len(table))[:300]
        numbers["sampled_images"] = len(chosen)
        hashes = hashes.drop_duplicates("path")
        at = pd.Index(hashes["path"]).get_indexer(table["path"])
        usable = (hashes["problem"] == "") & (hashes["texture"] >= FLAT)
        hashable = usable.to_numpy()[at] & (at >= 0)
        words, leaks = [hashes[name].to_numpy()[at] for name in HASHES], 0
        for row in chosen[hashable[chosen]]:
            distance = sum(np.bitwise_count(word ^ word[row]).astype(np.int16) for word in words)
            leaks += int(((distance <= max_bits) & hashable & (fold != fold[row])).sum())
        numbers["sampled_pairs_across_folds"] = leaks
    return pd.Series(numbers, name="folds", dtype=object)
