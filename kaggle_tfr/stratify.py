"""Groups of rows dealt out to bins so that every bin has its share of every class."""

import warnings

import numpy as np
from scipy.sparse import csr_matrix

MANY_CLASSES = 10_000


def deal_groups(group, labels, shares, *, seed, several=False):
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
        # It warns of classes rarer than folds; `name_rare_classes` says which.
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
