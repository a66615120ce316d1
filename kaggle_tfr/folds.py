"""Folds over clusters, then shards within folds: stratified, seeded, nothing split that belongs."""

from functools import partial

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph, csr_matrix

from kaggle_tfr.stratify import deal_groups


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
    _check(table, group_column, label_columns, validation_size)
    table = table.copy()
    group = join_groups(table, group_column)
    split = table["split"].to_numpy(object) if "split" in table else np.full(len(table), "train")
    split = _settle_splits(split.astype(object), group)
    labels = _indicators(table, label_columns)
    deal = partial(deal_groups, several=bool(label_columns))
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


def _check(table, group_column, label_columns, validation_size):
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
