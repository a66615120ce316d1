"""Assign images to folds: stratified by class, whole clusters, seeded.

Rows that must share a fold (near-duplicates, images of a patient) form a group. Groups
are distributed one after the other, the largest first. Each goes to the fold with the
largest deficit in the group's classes: its share of the images seen so far, minus the
images that it has.

Example with two folds, and groups of 3, 2, 1 and 1 images of one class. The first goes
to fold 0. Of 5 images each fold should then have 2.5; fold 1 has none, so it gets the
group of 2. Of 6 images each should have 3, so fold 1 gets the next one, and now has 3
like fold 0. The last image goes to the fold that lacks more images of all classes
together.

When a dataset grows, 03 first puts the groups of earlier images into their folds. All
other groups are distributed as if these images had come first.
"""

from collections.abc import Sequence
from math import ceil, inf

import numpy as np
import pandas as pd
from scipy.sparse import csgraph, csr_matrix, hstack, identity

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
        others. Optional column fold: NA for rows to assign. Other rows keep their fold
        (-1: in no fold) and their split.
    validation_size: share of the train rows that may validate, for split "validation".
    group_column: rows with equal values (patients, sites) stay together like clusters.
    label_columns: of multi-label images, 0/1 or a text that is empty for no.
    extra_in_validation: whether rows of other sources, and rows in their groups, may
        validate. Otherwise they stay in train, in fold -1 if there are folds.
    Column fold: int64, 0 to n_folds - 1 for train, always 0 if n_folds is below 2;
        -1 for all other rows.
    Raises: ValueError: there are more folds than clusters, or a column is missing.
    """
    # All are aligned by the index of the table, also where their order is another.
    group = number_groups(table, group_column)
    labels = mark_labels(table, label_columns)
    rows = table.reindex(columns=["fold", "source"])  # NA without such a column
    is_placed = rows["fold"].notna()
    split = table["split"].where(is_placed, _choose_splits(table["split"], group))
    is_extra = (rows["source"] > 0).groupby(group).transform("any")
    may_validate = (split == "train") & (extra_in_validation | ~is_extra)
    fold = rows["fold"].where(is_placed | may_validate, -1)  # NA: not yet chosen

    if validation_size and fold.hasnans:
        # Bin 0 trains, whatever its fold; bin 1 is the validation split.
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
        fold = fill_bins(group, labels, fold, [1.0] * n_folds, seed + 1)
    return table.assign(split=split, fold=fold.astype(np.int64))


def _choose_splits(split: pd.Series, group: pd.Series) -> pd.Series:
    """Return one split for all rows of a group: its split with the fewest rows.

    The rows are counted in the whole table: images leave a large train split, and a
    small validation split stays whole. The result has the index of `split`, in another
    order. Test rows keep their split: `number_groups` puts each into its own group.
    """
    # `n_rows`: of the split of each row, sorted. In this order, the first row of each
    # group has the split with the fewest rows.
    n_rows = split.map(split.value_counts()).sort_values(kind="stable")
    return split[n_rows.index].groupby(group).transform("first")


def number_groups(table: pd.DataFrame, group_column: str) -> pd.Series:
    """Return the number of each row's group, from 0: rows that must share a fold.

    Rows of a cluster have the same number, and so have rows with the same value of
    `group_column` or of override_group; clusters and groups that share a row are one.
    A test row, or one without any (cluster -1, empty values), has its own number.
    group_column: "" for none. Raises: ValueError: the table has no such column.
    """
    if group_column and group_column not in table:
        raise ValueError(
            f"The table has no column '{group_column}'. Change GROUP_COLUMN, or run "
            "01_explore with it first."
        )
    rows = pd.Series(range(len(table)), table.index)
    links = identity(len(rows))
    for column in table.columns.intersection(["cluster", OVERRIDE_GROUP, group_column]):
        no_value = -1 if column == "cluster" else ""
        is_alone = (table["split"] == "test") | table[column].isin([no_value])
        # Objects, because floats cannot represent large numbers.
        values = table[column].astype(object).mask(is_alone)
        # Each row is linked to the first one with its value, or to itself.
        first_rows = rows.groupby(values).transform("first").fillna(rows)
        links += _mark_columns(first_rows, len(rows))
    # How many groups there are, and the number of each row's.
    _, number = csgraph.connected_components(links, directed=False)
    return pd.Series(number, table.index)


def mark_labels(table: pd.DataFrame, label_columns: Sequence[str]) -> csr_matrix:
    """Return a sparse matrix (n, classes + 1) with 1 for the classes of each row.

    Without `label_columns` the classes are the values of the column label. The last
    column is 1 for all rows: it counts images where the others count those of a class.
    """
    if label_columns:
        marks = csr_matrix(list_marks(table, label_columns), dtype=float)
    else:
        codes, classes = pd.factorize(table["label"])
        marks = _mark_columns(codes, len(classes))
    return hstack([marks, np.ones((len(table), 1))], format="csr")


def list_marks(table: pd.DataFrame, label_columns: Sequence[str]) -> pd.DataFrame:
    """Return which labels each image has: bool, one column per label.

    A label column holds 0 and 1, or the code of a mask, which is empty for "no".
    """
    values = table[list(label_columns)]
    return values.notna() & ~values.isin([0, ""])


def _mark_columns(columns: Array | pd.Series, n_columns: int) -> csr_matrix:
    """Return a sparse matrix (n, n_columns) with a 1 in one column of each row.

    columns: the number of that column, for each of the n rows.
    """
    # Row k of the identity has its 1 in column k.
    return identity(n_columns, format="csr")[np.asarray(columns, int)]


def fill_bins(
    group: pd.Series,
    labels: csr_matrix,
    bins: pd.Series,
    shares: list[float],
    seed: int,
) -> pd.Series:
    """Fill in the bin of each row: groups stay whole, classes are spread.

    Bins are the folds, or the splits train (0) and validation (1). Return `bins`, which
    is changed in place: numbers from 0 replace NA.
    group: of `number_groups`. labels: of `mark_labels`.
    shares: of each bin, in proportion; all 1, or two with sum 1.
    bins: NA for the rows to distribute, -1 for rows that stay in no bin. Rows in a bin
        stay there, and the shares are of all images in the bins.
    Raises: ValueError: there are fewer groups than bins, and no row has a bin.
    """
    is_free = bins.isna().to_numpy()
    is_placed = (bins >= 0).to_numpy()
    number, groups = pd.factorize(group[is_free])
    if len(groups) < len(shares) and not is_placed.any():
        raise ValueError(
            f"{len(groups)} clusters of train images cannot fill {len(shares)} folds "
            "or splits. Set N_FOLDS lower, or change GROUP_COLUMN, EXTRA_IN_VALIDATION."
        )
    # Images of each class, and of all: by group to distribute, and by bin so far.
    counts = _mark_columns(number, len(groups)).T @ labels[is_free]
    loads = labels[is_placed].T @ _mark_columns(bins[is_placed], len(shares))
    chosen = _choose_bins(counts.tocsr(), loads.toarray(), shares, seed)
    bins[is_free] = chosen[number]
    return bins


def _choose_bins(
    counts: csr_matrix,
    loads: Array,
    shares: list[float],
    seed: int,
) -> Array:
    """Return the bin of each group, int (groups,): a fold, or train and validation.

    Groups are placed one by one. A deficit of a bin is its share of the images so far,
    with those of the group to place, minus the images that it has. A group goes to the
    bin with the largest sum of deficits in the group's classes, each divided by the
    size of the class; ties go to the bin with the largest overall deficit, that of all
    images. With equal shares, a class whose groups have no other class differs between
    bins by its largest group at most.

    Two unequal shares (a validation set of 2 %) need three more rules, or small classes
    and large groups would never be held out. The sum of deficits is rounded up to whole
    groups, so that bins often tie and the overall deficit decides; not for groups that
    make up for others. A random phase, at most the size of the group in images, is
    added to the overall deficit of the last bin, so that some seeds hold out a large
    group; it is less for groups of more than a tenth of this bin, which would fill it.
    If all images have one class, and the bins were empty, no bin gets more images too
    many than the largest group has.

    counts: images of each class in each group; the last column has all its images.
    loads: images of each class that are in the bins (classes, bins); the last row has
        all images.
    shares: of each bin; all 1, or two with sum 1.
    Sources: Tijdeman, "The chairman assignment problem" (1980); Sechidis et al., "On
    the Stratification of Multi-Label Data" (2011).
    """
    rng = np.random.default_rng(seed)
    class_sizes = counts.sum(axis=0).A1 + loads.sum(axis=1)
    sizes = counts[:, -1].toarray().ravel()
    order = _draw_order(counts, sizes, class_sizes, rng)
    counts = counts[order]
    sizes = sizes[order]

    is_unequal = shares[0] < 1
    # Each image counts twice, in one class and in the column of all images.
    is_single = counts.sum() == 2 * sizes.sum()
    has_several = np.diff(counts.indptr) > 2  # classes in the group
    phase = rng.uniform(-1, 1) if is_unequal else 0
    max_shifted = 1 + shares[-1] * sizes.sum() / 10
    max_excess = sizes.max() if is_single and not loads.any() else inf
    rules = pd.DataFrame(
        {
            # Rounded: groups of one class if each image has one class, else groups of
            # several classes. The other groups make up for them.
            "is_rounded": is_unequal & (is_single != has_several),
            "shift": phase * sizes.clip(max=max_shifted),
            "room": sizes - max_excess,
        }
    )
    class_sizes[-1] = inf  # all images are not a class: their share of a deficit is 0
    bins = np.empty_like(order)
    bins[order] = _place_groups(counts, rules, loads, class_sizes, shares)
    return bins


def _place_groups(
    counts: csr_matrix,
    rules: pd.DataFrame,
    loads: Array,
    class_sizes: Array,
    shares: list[float],
) -> list[int]:
    """Return the bin of each group, chosen one after the other in the order of rows.

    counts, loads, shares: as in `_choose_bins`.
    rules: a row per group, with the three rules of `_choose_bins` for unequal shares:
        whether its deficits are rounded (so that bins tie, and the overall deficit
        decides), the shift of the overall deficit of the last bin (a random phase, so
        that this bin does not always get the last group), and what a bin must lack to
        have room. With equal shares: False, 0.
    class_sizes: images of each class, by which its deficits are divided.
    """
    total_share = sum(shares)
    # What each bin lacks of each class, and of all images, times the total share.
    lacking = loads.sum(axis=1, keepdims=True) * shares - loads * total_share
    # Lists, because arrays of so few numbers take twice the time.
    missing = lacking.tolist()
    sizes_of_classes = class_sizes.tolist()
    bins = []
    for number, is_rounded, shift, room in rules.itertuples():
        # The classes of the group and their images; the last one is all images. `data`
        # is a memoryview, whose items are Python's numbers, which are fast here.
        entries = slice(*counts.indptr.data[number : number + 2])
        labels = counts.indices.data[entries]
        classes = list(zip(labels, counts.data.data[entries], strict=True))
        deficits = [0.0] * len(shares)
        for label, images in classes:
            for k, share in enumerate(shares):
                # From now on bin k should have its share of this group, too.
                missing[label][k] += images * share
                deficits[k] += missing[label][k] / sizes_of_classes[label]
        overall = missing[-1].copy()
        if is_rounded:
            deficits = _round_deficits(deficits, overall, room)
        overall[-1] += shift
        ranks = list(zip(deficits, overall, strict=True))
        chosen = ranks.index(max(ranks))
        bins.append(chosen)
        for label, images in classes:
            missing[label][chosen] -= images * total_share
    return bins


def _round_deficits(
    deficits: list[float],
    overall: list[float],
    room: float,
) -> list[float]:
    """Return deficits in whole groups; -inf for a bin that lacks less than `room`.

    Rounded deficits are often equal, so that `overall` decides which bin gets a group.
    deficits: of each bin, in the classes of a group. overall: images that each lacks.
    """
    # Before the group is placed, all bins together lack just this group. The sum is 0
    # for a group without a class.
    unit = sum(deficits) or 1
    # Rounded up, but not for an error of floats.
    return [
        ceil(deficit / unit - 1e-9) if lack >= room else -inf
        for deficit, lack in zip(deficits, overall, strict=True)
    ]


def _draw_order(
    counts: csr_matrix,
    sizes: Array,
    class_sizes: Array,
    rng: np.random.Generator,
) -> Array:
    """Return the numbers of the groups in the order of assignment, large ones first.

    Groups of equal size are in the order of their number of classes, the most first:
    groups of fewer classes can make up for the others. Of several classes, the group
    with the rarest class is first. Groups of one class are in the order of classes, the
    most frequent first.
    """
    # The random part is below 1: it only decides between classes of equal size.
    rank = class_sizes + rng.random(len(class_sizes))
    rarest = np.minimum.reduceat(rank[counts.indices], counts.indptr[:-1])
    # Of each group, its classes and the column of all images.
    n_columns = np.diff(counts.indptr)
    rarest[n_columns == 2] *= -1  # of one class: the most frequent first
    # By the last key first; equal groups in a random order.
    return np.lexsort((rng.random(len(sizes)), rarest, -n_columns, -sizes))
