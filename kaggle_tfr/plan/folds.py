"""Folds over clusters, then shards within folds: stratified, seeded, nothing split that belongs."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph, csr_matrix

from kaggle_tfr.deduplicate.hashing import FLAT, HASHES


def assign_folds(table, *, n_folds, seed, validation_size=0.0, group_column="", label_columns=()):
    """The table with its columns split and fold set; rows of one cluster share both.

    table: columns label, and if there are such split ("train" without it) and cluster (-1 or NA for
    a picture on its own). Pictures of one value of `group_column` (patient, site) stay together
    with each other and with their clusters.
    fold: int64, 0 to n_folds - 1 for train, all 0 for n_folds up to 1; -1 outside train.
    validation_size: share of train that becomes split "validation".
    label_columns: of multi-label images, 0/1 or a code that is empty for no; else `label` counts.

    Clusters that span given splits go to the smallest of these, so that a test set stays whole.

    Raises: ValueError for more folds than clusters, a share outside [0, 1), an unknown column.
    """
    _check_settings(table, group_column, label_columns, validation_size)
    table = table.copy()
    group = join_groups(table, group_column)
    split = table["split"].to_numpy(object) if "split" in table else np.full(len(table), "train")
    split = _settle_splits(split.astype(object), group)
    labels = _indicators(table, label_columns)
    deal = partial(stratified_group_split, several=bool(label_columns))
    train = np.flatnonzero(split == "train")
    if validation_size > 0 and len(train):
        shares = np.array([1 - validation_size, validation_size])
        held_out = deal(group[train], labels[train], shares, seed=seed) == 1
        split[train[held_out]] = "validation"
        train = train[~held_out]
    fold = np.full(len(table), -1, np.int64)
    fold[train] = 0
    if n_folds > 1 and len(train):
        shares = np.full(n_folds, 1 / n_folds)
        # A seed of its own, or the folds would follow the order of the held-out draw.
        fold[train] = deal(group[train], labels[train], shares, seed=seed + 1)
    table["split"], table["fold"] = split, fold
    return table


def join_groups(table, group_column=""):
    """int64 (n,): equal for rows tied by a cluster, by `group_column`, or by a way over both."""
    n = len(table)
    ties = [np.arange(n)]
    for column in ("cluster", group_column):
        if column and column in table:
            values = table[column]
            alone = values.isna().to_numpy()
            if column == "cluster":
                alone = alone | (values.fillna(-1) == -1).to_numpy()
            codes = pd.factorize(values)[0]
            # Numbers above n name clusters and groups; a row on its own ties to itself.
            ties.append(np.where(alone, ties[0], codes + max(map(np.max, ties), default=0) + 1))
    size = int(max(map(np.max, ties), default=-1)) + 1 if n else 0
    rows = np.tile(np.arange(n), len(ties))
    graph = coo_matrix((np.ones(len(rows), np.int8), (rows, np.concatenate(ties))), (size, size))
    component = csgraph.connected_components(graph, directed=False)[1][:n] if n else ties[0]
    return pd.factorize(component)[0].astype(np.int64)


def _check_settings(table, group_column, label_columns, validation_size):
    missing = [c for c in [group_column, *label_columns] if c and c not in table]
    if missing:
        raise ValueError(
            f"The table has no column '{missing[0]}', only {', '.join(map(str, table))}. "
            'Set GROUP_COLUMN to one of these, or to "".'
        )
    if not 0 <= validation_size < 1:
        raise ValueError(
            f"VALIDATION_SIZE is {validation_size}, and must be a share from 0 up to, but not "
            "with, 1: 0.3 holds out 30 % of the training images."
        )


def _settle_splits(split, group):
    """The splits, with each group wholly in one: of those it spans, the one with fewest rows."""
    names, codes, sizes = np.unique(split.astype(str), return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(sizes, kind="stable"))[codes]
    least = np.full(int(group.max()) + 1 if len(group) else 0, len(names))
    np.minimum.at(least, group, rank)
    return names[np.argsort(sizes, kind="stable")].astype(object)[least[group]]


def _indicators(table, label_columns):
    """Sparse (n, classes) of ones: which classes a row counts for."""
    n = len(table)
    if not label_columns:
        codes = pd.factorize(table["label"], sort=True)[0]
        return csr_matrix((np.ones(n), (np.arange(n), codes)), shape=(n, codes.max(initial=0) + 1))
    columns = [table[name] for name in label_columns]
    yes = [
        c.to_numpy() > 0 if c.dtype.kind in "iufb" else (c.fillna("") != "").to_numpy()
        for c in columns
    ]
    return csr_matrix(np.stack(yes, axis=1).astype(np.float64))


def assign_shards(table, shards_per_group, n_parts=1, *, seed):
    """The table with int64 columns shard, part and position added; its rows keep their order.

    shards_per_group: (split, fold) → number of shards. shard: from 0 within its split and fold;
    part: from 1; position: from 0 in the shard. Shards of one split and fold hold equally many
    records of each class and in all, to within one; parts equally many shards of each.

    Raises: ValueError for more shards than images, or a split and fold without a number of shards.
    """
    shard, position, part = (np.zeros(len(table), np.int64) for _ in range(3))
    rows_of = table.groupby(["split", "fold"], sort=True).indices
    dealt = 0
    for number, (key, rows) in enumerate(sorted(rows_of.items())):
        n_shards = int(shards_per_group.get(key, 0))
        if not 1 <= n_shards <= len(rows):
            raise ValueError(
                f"{len(rows)} images of split '{key[0]}', fold {key[1]}, cannot go to {n_shards} "
                "shards. Set N_SHARDS lower, or SHARD_MB or SHARD_IMAGES higher."
            )
        rng = np.random.default_rng([seed, number])
        by_class = _sort_shuffled(rows, table["label"].to_numpy(), rng)
        shard[by_class] = np.arange(len(rows)) % n_shards
        by_shard = _sort_shuffled(rows, shard, rng)
        sizes = np.bincount(shard[rows])
        position[by_shard] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        part[rows] = (dealt + shard[rows]) % n_parts + 1
        dealt += n_shards
    return table.assign(shard=shard, part=part, position=position)


def _sort_shuffled(rows, values, rng):
    """The rows sorted by their values, in random order where these are equal."""
    rows = rng.permutation(rows)
    return rows[np.argsort(values[rows], kind="stable")]


MANY_CLASSES = 10_000


def stratified_group_split(group, labels, shares, *, seed, several=False):
    """The bin of each row, int64 (n,): groups whole, each class near its share of every bin.

    group: int (n,). labels: sparse (n, classes) of ones; with `several` a row may have many.
    shares: of the rows, one a bin, summing to 1.

    Raises: ValueError for fewer groups than bins.
    """
    group = np.unique(group, return_inverse=True)[1]
    n, n_groups = len(group), int(group.max()) + 1
    if n_groups < len(shares):
        raise ValueError(
            f"{n_groups} clusters of training images cannot fill {len(shares)} folds or splits. "
            "Set N_FOLDS lower, or a GROUP_COLUMN with more groups."
        )
    member = csr_matrix((np.ones(n), (group, np.arange(n))), shape=(n_groups, n))
    counts = (member @ labels).tocsr()
    sizes = np.bincount(group)
    if several and counts.shape[1] > 1:
        return _deal_multilabel(counts, shares, seed)[group]
    # StratifiedKFold knows no cluster sizes, refuses when all classes are rare, and looks at all
    # rows once a class: 37 s for landmark's, where the other way takes 12.
    fits = np.bincount(counts.indices).max() >= len(shares) and counts.shape[1] <= MANY_CLASSES
    if sizes.max() == 1 and np.ptp(shares) == 0 and fits:
        return _deal_equal(counts, len(shares), seed)[group]
    return _deal_unequal(counts, sizes, shares, seed)[group]


def _deal_multilabel(counts, shares, seed):
    from iterstrat.ml_stratifiers import (
        MultilabelStratifiedKFold,
        MultilabelStratifiedShuffleSplit,
    )

    present = (counts.toarray() > 0).astype(np.int8)
    bins = np.zeros(len(present), np.int64)
    if np.ptp(shares) == 0:
        splitter = MultilabelStratifiedKFold(len(shares), shuffle=True, random_state=seed)
    else:
        splitter = MultilabelStratifiedShuffleSplit(2, test_size=shares[1], random_state=seed)
        splitter.n_splits = 1
    for number, (_, held_out) in enumerate(splitter.split(present, present)):
        bins[held_out] = number if np.ptp(shares) == 0 else 1
    return bins


def _deal_equal(counts, n_folds, seed):
    from sklearn.model_selection import StratifiedKFold

    label = counts.indices
    bins = np.empty(len(label), np.int64)
    with warnings.catch_warnings():
        # It warns of classes rarer than folds; `describe_rare_classes` says which.
        warnings.simplefilter("ignore", UserWarning)
        splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
        for number, (_, held_out) in enumerate(splitter.split(label, label)):
            bins[held_out] = number
    return bins


def _deal_unequal(counts, sizes, shares, seed):
    """Largest cluster first, each into the bin that is furthest behind in the cluster's classes.

    StratifiedKFold deals clusters, whatever their size, and the images per fold drift apart. Here
    a class's images in two folds differ by no more than the largest cluster it is in, where
    clusters have one class.
    Source: Graham, "Bounds on Multiprocessing Timing Anomalies" (longest first); the half of
    the cluster that is counted in before choosing is Webster's rounding, for unequal shares.
    """
    chance = np.random.default_rng(seed).permutation(len(sizes))
    # Class by class where sizes are equal, so that what is left of each evens out the folds.
    order = np.lexsort((chance, counts.indices[counts.indptr[:-1]], -sizes))
    total = np.maximum(np.asarray(counts.sum(axis=0)).ravel(), 1)
    # In whole numbers where shares are equal, so that a tie is a tie.
    a_share = shares.max() / shares
    filled = np.zeros((len(total), len(shares)))
    load = np.zeros(len(shares))
    bins = np.empty(len(sizes), np.int64)
    for cluster in order:
        some = slice(counts.indptr[cluster], counts.indptr[cluster + 1])
        classes, images = counts.indices[some], counts.data[some]
        if len(classes) == 1:
            behind = (filled[classes[0]] + images[0] / 2) * a_share
        else:
            behind = (images / total[classes]) @ ((filled[classes] + images[:, None] / 2) * a_share)
        chosen = np.lexsort((load * a_share, behind))[0]
        bins[cluster] = chosen
        filled[classes, chosen] += images
        load[chosen] += sizes[cluster]
    return bins


def fold_report(table):
    """Images per class and fold: a row per label_name, a column per fold ("train 0", "test", …)."""
    folds = name_folds(table)
    return pd.crosstab(table["label_name"], folds, dropna=False)


def name_folds(table):
    """The split of each row, and its fold within train: "train 0", "test"."""
    split, fold = table["split"].astype(str), table["fold"]
    return split.where(fold < 0, split + " " + fold.astype(str)).rename("fold")


def describe_rare_classes(table, show=5):
    """One line: which classes of train are missing from some fold, or that none is."""
    train = table[table["fold"] >= 0]
    names, label = np.unique(train["label_name"].to_numpy(str), return_inverse=True)
    n_folds = int(train["fold"].max()) + 1 if len(train) else 1
    count = np.zeros((len(names), n_folds), np.int64)
    np.add.at(count, (label, train["fold"].to_numpy()), 1)
    rare = names[(count == 0).any(axis=1)]
    if not len(rare):
        return f"Every class is in every one of {n_folds} folds."
    shown = ", ".join(rare[:show]) + (", …" if len(rare) > show else "")
    return (
        f"{len(rare):,} of {len(names):,} classes have too few images or clusters to be in every "
        f"one of {n_folds} folds: {shown}"
    )


def check_leakage(table, *, hashes=None, max_bits=25, group_column="", sample=300, seed=0):
    """Series of numbers: how far the folds of the finished table are from what they should be.

    clusters_across_folds, groups_across_folds: must be 0; a split counts as a fold.
    max_share_deviation: the largest difference between a class's share in a fold and in all train.
    sampled_images, sampled_pairs_across_folds: brute force, when `hashes` (of `hash_images`) is
    given: pairs within max_bits bits of `sample` images with all images of other folds; must be 0.
    """
    place = pd.factorize(name_folds(table))[0]
    numbers = {
        "images": len(table),
        "clusters_across_folds": _count_split(table, "cluster", place),
        "max_share_deviation": _largest_deviation(table),
    }
    if group_column:
        numbers["groups_across_folds"] = _count_split(table, group_column, place)
    if hashes is not None:
        chosen = np.random.default_rng(seed).permutation(len(table))[:sample]
        numbers["sampled_images"] = len(chosen)
        numbers["sampled_pairs_across_folds"] = _count_leaks(table, hashes, place, chosen, max_bits)
    return pd.Series(numbers, name="folds", dtype=object)


def _count_split(table, column, place):
    """How many values of the column are found in more than one place; NA and -1 are no value."""
    if column not in table:
        return 0
    values = table[column]
    codes = pd.factorize(values)[0]
    known = codes >= 0
    if column == "cluster":
        known = known & (values.fillna(-1) != -1).to_numpy()
    pairs = np.unique(np.stack([codes[known], place[known]]), axis=1)
    return int((np.bincount(pairs[0]) > 1).sum()) if pairs.size else 0


def _largest_deviation(table):
    train = table[table["fold"] >= 0]
    if not len(train):
        return 0.0
    label = pd.factorize(train["label"])[0]
    fold = pd.factorize(train["fold"])[0]
    n_folds = fold.max() + 1
    count = np.bincount(label * n_folds + fold, minlength=(label.max() + 1) * n_folds)
    count = count.reshape(-1, n_folds)
    return float(np.abs(count / count.sum(axis=0) - count.sum(axis=1)[:, None] / len(train)).max())


def _count_leaks(table, hashes, place, chosen, max_bits):
    known = hashes.drop_duplicates("path").set_index("path").reindex(table["path"])
    telling = ((known["problem"] == "") & (known["texture"] >= FLAT)).to_numpy()
    words = [known[name].fillna(0).to_numpy(np.uint64) for name in HASHES]
    leaks = 0
    for row in chosen[telling[chosen]]:
        distance = sum(np.bitwise_count(word ^ word[row]).astype(np.int16) for word in words)
        leaks += int(((distance <= max_bits) & telling & (place != place[row])).sum())
    return leaks
