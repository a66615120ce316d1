"""Folds over clusters, then shards within folds: stratified, seeded, no cluster ever split."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csgraph, csr_matrix, hstack

from kaggle_tfr.images.hashing import FLAT, HASHES
from kaggle_tfr.parameters import check_parameters

BANDS = {"1": 1, "2 to 5": 5, "6 to 25": 25, "26 to 100": 100, "over 100": np.inf}


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
    """The table with its columns split and fold; rows of one cluster share both.

    table: columns label, and maybe split (else "train"), cluster (-1 or NA: none), source (0: the
    main one). Clusters over given splits go to the smallest; test rows neither move nor pull.
    fold: int64, 0 to n_folds - 1 for train, all 0 for n_folds up to 1; -1 outside train.
    validation_size: share that becomes split "validation" of all train rows that may validate.
    group_column: its values (patients, sites) stay together like clusters, and with them.
    label_columns: of multi-label images, 0/1 or a code that is empty for no; else `label` counts.
    extra_in_validation: else rows that are of another source, or joined to such a row, may not
    validate: they stay in train, in fold -1 where there are folds.
    Raises: ValueError for more folds than clusters, a share out of range, an unknown column.
    """
    check_parameters({"VALIDATION_SIZE": validation_size})
    group, split, rows = _join_groups(table, group_column, extra_in_validation)
    labels = _label_matrix(table.iloc[rows], label_columns)
    assign = partial(stratified_group_split, multilabel=len(label_columns) > 1)
    if validation_size > 0 and len(rows):
        shares = np.array([1 - validation_size, validation_size])
        held_out = assign(group[rows], labels, shares, seed) == 1
        split[rows[held_out]] = "validation"
        rows, labels = rows[~held_out], labels[~held_out]
    fold = np.where((split == "train") & (n_folds < 2), 0, -1)
    if n_folds > 1 and (split == "train").any():
        # A seed of its own, or the folds would follow the order of the held-out draw.
        fold[rows] = assign(
            group[rows], labels, np.full(n_folds, 1 / n_folds), seed + 1
        )
    return table.assign(split=split, fold=fold)


def _join_groups(
    table: pd.DataFrame, group_column: str = "", extra_in_validation: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each row a number, equal where clusters or groups join rows, and its split; then which
    rows may validate: those of train, unless they are, or are joined to, another source's.
    """
    if group_column and group_column not in table:
        what = f"The table has no column '{group_column}', only {', '.join(map(str, table))}."
        raise ValueError(f'{what} Set GROUP_COLUMN to one of these, or to "".')
    n, graph = len(table), csr_matrix((len(table), len(table)))
    for column in {"cluster", group_column} & set(table):
        graph += csr_matrix(
            (np.ones(n), (np.arange(n), _first_rows(table, column))), (n, n)
        )
    group = pd.factorize(csgraph.connected_components(graph, directed=False)[1])[0]
    split = np.asarray(table.get("split", ["train"] * n)).astype(str)
    names, codes, sizes = np.unique(split, return_inverse=True, return_counts=True)
    by_size = np.argsort(sizes, kind="stable")
    smallest = pd.Series(np.argsort(by_size)[codes]).groupby(group).transform("min")
    split = names[by_size].astype(object)[smallest]
    extra = np.asarray(table.get("source", np.zeros(n))) != 0
    joined = pd.Series(extra).groupby(group).transform("any").to_numpy()
    return (
        group,
        split,
        np.flatnonzero((split == "train") & (extra_in_validation | ~joined)),
    )


def count_moved(rows: pd.DataFrame, *, group_column: str = "") -> pd.DataFrame:
    """Count the images that `assign_folds` moves from their given split to another one.

    Of a cluster or group over several splits all images go to the smallest of these. What
    `validation_size` holds out is not counted. Columns: given, split (where they go), images.
    """
    given = np.asarray(rows.get("split", ["train"] * len(rows))).astype(str)
    split = _join_groups(rows, group_column)[1]
    moves = pd.DataFrame({"given": given, "split": split})[given != split]
    return moves.value_counts().rename("images").reset_index()


def describe_moved(moved: pd.DataFrame) -> str:
    """Return one sentence about a table of `count_moved`."""
    if moved.empty:
        return "Every image stays in the split that it was given."
    counts = moved.itertuples(index=False, name=None)
    listed = [f"{n:,} from {given} to {split}" for given, split, n in counts]
    total = int(moved["images"].sum())
    verb = "image leaves its" if total == 1 else "images leave their"
    why = "images of the same cluster or group are there"
    return f"{total:,} {verb} given split, because {why}: {', '.join(listed)}."


def _first_rows(table: pd.DataFrame, column: str) -> np.ndarray:
    """Int (n,): the first row with the same value; the row itself for test, NA and cluster -1."""
    rows, values = np.arange(len(table)), table[column]
    alone = values.isna() if column != "cluster" else values.fillna(-1) == -1
    alone |= table.get("split") == "test"
    first = (
        pd.Series(rows).groupby(pd.factorize(values.mask(alone))[0]).transform("min")
    )
    return np.where(alone, rows, first)


def _label_matrix(table: pd.DataFrame, label_columns: Sequence[str]) -> csr_matrix:
    """Sparse (n, classes) of ones: which classes a row counts for."""
    if label_columns:
        columns = [table[name] for name in label_columns]
        yes = [c > 0 if c.dtype.kind in "iufb" else c.fillna("") != "" for c in columns]
        return csr_matrix(np.stack(yes, axis=1).astype(np.float64))
    n, codes = len(table), pd.factorize(table["label"], sort=True)[0]
    return csr_matrix(
        (np.ones(n), (np.arange(n), codes)), shape=(n, codes.max(initial=0) + 1)
    )


def assign_shards(
    table: pd.DataFrame,
    n_shards: Mapping[tuple[str, int], int],
    n_parts: int = 1,
    *,
    seed: int,
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
            raise ValueError(
                f"{what} Set N_SHARDS lower, or SHARD_MB or SHARD_IMAGES higher."
            )
        rng = np.random.default_rng([seed, number])
        shard[_sort_shuffled(rows, table["label"].to_numpy(), rng)] = (
            np.arange(len(rows)) % n
        )
        by_shard = _sort_shuffled(rows, shard, rng)
        position[by_shard] = pd.Series(rows).groupby(shard[by_shard]).cumcount()
        part[rows] = (n_before + shard[rows]) % n_parts + 1
        n_before += n
    return table.assign(shard=shard, part=part, position=position)


def _sort_shuffled(
    rows: np.ndarray, values: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    rows = rng.permutation(rows)
    return rows[np.argsort(values[rows], kind="stable")]


def stratified_group_split(
    group: np.ndarray,
    labels: csr_matrix,
    shares: np.ndarray,
    seed: int,
    multilabel: bool = False,
) -> np.ndarray:
    """The bin of each row, int64 (n,): groups whole, each class near its share of every bin.

    group: int (n,). labels: sparse (n, classes) of ones, one a row at most, or with `multilabel`
    many; rows with none are a class of their own. shares: of the rows, one a bin, summing to 1.
    Raises: ValueError for fewer groups than bins.
    Source: Sechidis et al., "On the Stratification of Multi-Label Data" (2011).
    """
    group, sizes = np.unique(group, return_inverse=True, return_counts=True)[1:]
    if len(sizes) < len(shares):
        what = f"{len(sizes)} clusters of train images cannot fill {len(shares)} folds or splits."
        raise ValueError(
            f"{what} Set N_FOLDS lower, or change GROUP_COLUMN, EXTRA_IN_VALIDATION."
        )
    if not multilabel and (none := labels.sum(axis=1) == 0).any():
        labels = hstack([labels, csr_matrix(none, dtype=float)])
    counts = (
        csr_matrix((np.ones(len(group)), (group, np.arange(len(group))))) @ labels
    ).tocsr()
    if not multilabel:
        return _assign_clusters(counts, sizes, shares, seed)[group]
    try:
        from iterstrat.ml_stratifiers import IterativeStratification
        from sklearn.utils import check_random_state
    except ImportError as error:
        mend = (
            "On Kaggle turn the internet on, or attach its wheel; see docs/kaggle.md."
        )
        what = "Images of several labels are stratified by iterative-stratification"
        raise ImportError(f"{what}, which is not installed: {error}. {mend}") from None
    bins = np.empty(len(sizes), np.int64)
    order = (rng := check_random_state(seed)).permutation(len(sizes))
    bins[order] = IterativeStratification(counts[order].toarray() > 0, shares, rng)
    return bins[group]


def _assign_clusters(
    counts: csr_matrix, sizes: np.ndarray, shares: np.ndarray, seed: int
) -> np.ndarray:
    """The bin of each cluster: the one that is furthest behind in the cluster's classes, or where
    these agree, behind its share of the line of all clusters.

    Equal bins: a class differs between them by its largest cluster at most. Unequal ones agree on a
    cluster of one class when they lack as many of its size, rounded up (or small classes are never
    held out), and none gets more than the largest cluster too much. Sources: Tijdeman, "The
    chairman assignment problem" (1980); Graham, "Bounds on Multiprocessing Timing Anomalies", 1969.
    """
    rng, unequal = np.random.default_rng(seed), bool(np.ptp(shares))
    total = np.asarray(counts.sum(axis=0))[0].tolist()
    order = _draw_order(counts, sizes, total, rng)
    # As if so many images lay before: each place of the line has the chance that it should.
    seen, most = (
        int(rng.integers(10_000)) * unequal,
        sizes.max() - 0.5 if unequal else np.inf,
    )
    load = np.diff(np.round(np.cumsum(shares) * seen), prepend=0).tolist()
    seen_of, load_of = [0.0] * len(total), np.zeros((len(total), len(shares))).tolist()
    bins, each_bin, share = (
        np.empty(len(sizes), np.int64),
        range(len(shares)),
        shares.tolist(),
    )
    # Plain numbers: an array of so few takes several times longer.
    ends, classes, images = counts.indptr.data, counts.indices.data, counts.data.data
    for cluster, size in zip(order.data, sizes[order].data, strict=True):
        own, unit, behind = (
            range(ends[cluster], ends[cluster + 1]),
            0.0,
            [0.0] * len(share),
        )
        for i in own:
            c, n = classes[i], images[i]
            seen_of[c] = so_far = seen_of[c] + n
            weight, has = n / total[c], load_of[c]
            behind = [
                behind[k] + weight * (share[k] * so_far - has[k]) for k in each_bin
            ]
            unit += weight * n
        if unequal and len(own) == 1:
            behind = [ceil(images_behind / unit - 1e-9) for images_behind in behind]
        seen += size
        line = [share[k] * seen - load[k] for k in each_bin]
        ranks = [(line[k] >= size - most, behind[k], line[k]) for k in each_bin]
        bins[cluster] = chosen = ranks.index(max(ranks))
        load[chosen] += size
        for i in own:
            load_of[classes[i]][chosen] += images[i]
    return bins


def _draw_order(
    counts: csr_matrix,
    sizes: np.ndarray,
    total: Sequence[float],
    rng: np.random.Generator,
) -> np.ndarray:
    """Largest clusters first; equal ones by their rarest class, and of these the largest."""
    place = np.argsort(np.lexsort((rng.random(len(total)), np.negative(total))))
    rarest = np.maximum.reduceat(place[counts.indices], counts.indptr[:-1])
    return np.lexsort((rng.random(len(sizes)), rarest, -sizes))


def compare_shares(
    rows: pd.DataFrame,
    folded: pd.DataFrame,
    validation_size: float = 0.0,
    label_columns: Sequence[str] = (),
    **joins: Any,
) -> pd.DataFrame:
    """What was asked of `assign_folds`, which made `folded` of `rows` by these rules, and got.

    A row for each band of class sizes, and all; images: those that may validate, once a label.
    asked, validation: images; fold 0, …: shares of the rest; in every fold: classes.
    """
    free = _join_groups(rows, **joins)[2]
    fold = folded["fold"].to_numpy()[free, None]
    bins = np.arange(-1, fold.max(initial=0) + 1)
    counts = _label_matrix(rows.iloc[free], label_columns).astype(int).T @ (
        fold == bins
    )
    every, folds = (
        (counts[:, 1:] > 0).all(axis=1),
        [f"fold {number}" for number in bins[1:]],
    )
    table = pd.DataFrame(counts, columns=["validation", *folds], dtype=int)
    table = table.assign(
        classes=1, images=counts.sum(axis=1), **{"in every fold": every}
    )
    band = pd.cut(table["images"], [0, *BANDS.values()], labels=[*BANDS])
    table = (
        table.groupby(band.rename("class size"), observed=True).sum().rename(index=str)
    )
    table.loc["all"] = table.sum()
    table[folds] = table[folds].div(table[folds].sum(axis=1), axis=0).round(4)
    table["asked"] = table["images"] * validation_size
    shown = ["asked", "validation"] if validation_size else []
    return table[
        ["classes", "images", *shown, *([*folds, "in every fold"] if folds[1:] else [])]
    ]


def find_missing_classes(
    folded: pd.DataFrame, *, label_columns: Sequence[str] = ()
) -> pd.DataFrame:
    """List the classes that have no image in train, in a fold or in the validation split.

    folded: of `assign_folds`. Test images and images without a label are not counted.
    label_columns: of multi-label images; each column is a class.
    One row a class, the largest class first. Columns: class (its name), images (with this class),
    missing_from (such as "fold 0, validation"; "train" stands for all folds).
    """
    labelled = folded[folded["split"] != "test"]
    if not label_columns:
        labelled = labelled[labelled["label"] >= 0].sort_values("label", kind="stable")
    names = list(label_columns)
    if not names:
        column = "label_name" if "label_name" in labelled else "label"
        names = labelled.drop_duplicates("label")[column].tolist()
    marks = _label_matrix(labelled, label_columns)[:, : len(names)]

    split = labelled["split"].to_numpy()
    fold = labelled["fold"].to_numpy()
    is_trained = marks.T @ (split == "train").astype(int) > 0
    places = {"train": is_trained}
    if fold.max(initial=0) > 0:
        for number in range(fold.max() + 1):
            in_fold = marks.T @ (fold == number).astype(int) > 0
            places[f"fold {number}"] = in_fold | ~is_trained
    if (split == "validation").any():
        places["validation"] = marks.T @ (split == "validation").astype(int) > 0

    has_class = pd.DataFrame(places)
    images = np.asarray(marks.sum(axis=0))[0].astype(int)
    table = pd.DataFrame({"class": names, "images": images})
    is_missing = (table["images"] > 0) & ~has_class.all(axis=1)
    table, has_class = table[is_missing], has_class[is_missing]
    missing_from = [", ".join(has_class.columns[~row]) for row in has_class.to_numpy()]
    table = table.assign(missing_from=missing_from)
    return table.sort_values(
        "images", ascending=False, kind="stable", ignore_index=True
    )


def check_leakage(
    table: pd.DataFrame,
    *,
    hashes: pd.DataFrame | None = None,
    max_bits: int = 25,
    group_column: str = "",
) -> pd.Series:
    """Series of numbers: how far the folds of the finished table are from what they should be.

    clusters_across_folds, groups_across_folds: must be 0; a split counts as a fold, test does not.
    clusters_across_test: clusters with test rows and others.
    max_share_deviation: the largest difference between a class's share in a fold and in all train.
    sampled_…: given `hashes` (of `load_hashes`), pairs within max_bits bits of 300 sampled images
    with all others, across_folds, which must be 0, and with_test: a test image and another.
    Raises: ValueError: what must be 0 is not.
    """
    fold = table.groupby(["split", "fold"], dropna=False).ngroup().to_numpy()
    test, train = (table["split"] == "test").to_numpy(), table[table["fold"] >= 0]
    shares = pd.crosstab(train["label"], train["fold"], normalize="columns")
    off = (
        shares.sub(train["label"].value_counts(normalize=True), axis=0).abs().to_numpy()
    )
    numbers: dict[str, float] = {"images": len(table), "clusters_across_folds": 0}
    numbers["max_share_deviation"] = float(off.max(initial=0.0))
    for kind, column in (("clusters", "cluster"), ("groups", group_column)):
        if column in table:
            first = _first_rows(table, column)
            numbers[f"{kind}_across_folds"] = len(np.unique(first[fold != fold[first]]))
    if "cluster" in table:
        tests, others = (set(table["cluster"][rows].dropna()) for rows in (test, ~test))
        numbers["clusters_across_test"] = len((tests & others) - {-1})
    if hashes is not None:
        numbers |= _count_near_pairs(table["path"], fold, test, hashes, max_bits)
    across = {
        name: number
        for name, number in numbers.items()
        if name.endswith("_across_folds")
    }
    if any(across.values()):
        found = ", ".join(f"{name} {number}" for name, number in across.items())
        mend = "Run 02_deduplicate and 03_plan again."
        raise ValueError(f"the folds leak into one another: {found}. {mend}")
    return pd.Series(numbers, name="folds", dtype=object)


def _count_near_pairs(
    paths: pd.Series,
    fold: np.ndarray,
    test: np.ndarray,
    hashes: pd.DataFrame,
    max_bits: int,
) -> dict[str, int]:
    """The numbers of `check_leakage` by brute force; flat images tell nothing and are left out."""
    chosen = np.random.default_rng(0).permutation(len(paths))[:300]
    hashes = hashes.drop_duplicates("path")
    at = pd.Index(hashes["path"]).get_indexer(paths)
    usable = (hashes["problem"] == "") & (hashes["texture"] >= FLAT)
    hashable = usable.to_numpy()[at] & (at >= 0)
    words, pairs = [hashes[name].to_numpy()[at] for name in HASHES], np.zeros(2, int)
    for row in chosen[hashable[chosen]]:
        distance = sum(
            np.bitwise_count(word ^ word[row]).astype(np.int16) for word in words
        )
        near = (distance <= max_bits) & hashable & (fold != fold[row])
        pairs += np.bincount((test | test[row])[near], minlength=2)
    names = ("sampled_images", "sampled_pairs_across_folds", "sampled_pairs_with_test")
    return dict(zip(names, (len(chosen), *pairs.tolist()), strict=True))
