"""Check finished folds: classes that are missing, and leakage."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.blocks import list_slices
from kaggle_tfr.explore.growth import mark_recorded
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.images.hashing import FLAT, HASHES
from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.plan.folds import Array, list_first_rows, mark_labels
from kaggle_tfr.schema import Labels
from kaggle_tfr.texts import find_texts

N_SAMPLED = 300


def find_missing_classes(folded: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """List the classes without an image in train, a fold, or the validation split.

    folded: the result of `assign_folds`. Test images and images without a label are
        not counted.
    One row a class, the largest class first. Columns: class (its name), images (with
    this class), missing_from (such as "fold 0, validation"; "train" means all
    folds).
    """
    labelled = folded[folded["split"] != "test"]
    columns = labels.class_columns
    if not columns:
        labelled = labelled[labelled["label"] >= 0]
    row, label = mark_labels(labelled, columns).nonzero()
    fold_name = "fold " + labelled["fold"].astype(str)
    place = labelled["split"].mask(labelled["fold"] >= 0, fold_name).to_numpy()
    counts = pd.crosstab(label, place[row])
    if not columns:
        counts.index = np.unique(labelled["label"])
    classes = number_names(labels.classes)
    names = {label: name for name, label in classes.items()}
    counts = counts.reindex(list(names), fill_value=0)
    is_fold = counts.columns.str.startswith("fold")
    folds = counts.columns[is_fold].tolist()
    counts = counts[[*folds, *counts.columns[~is_fold]]]
    is_missing = counts == 0
    is_missing["train"] = is_missing.filter(regex="^(fold|train)").all(axis=1)
    # A single fold does not validate.
    is_missing.loc[is_missing["train"] | (len(folds) == 1), folds] = False
    is_missing = is_missing[is_missing.any(axis=1)]
    places = is_missing.columns
    missing_from = [", ".join(places[row]) for row in is_missing.to_numpy()]
    table = pd.DataFrame(
        {
            "class": [names[label] for label in is_missing.index],
            "images": counts.sum(axis=1)[is_missing.index].to_numpy(),
            "missing_from": missing_from,
        }
    )
    return table.sort_values(
        "images",
        ascending=False,
        kind="stable",
        ignore_index=True,
    )


def check_leakage(
    table: pd.DataFrame,
    *,
    hashes: pd.DataFrame | None = None,
    max_bits: int = 25,
    group_column: str = "",
    cut_pairs: Sequence[tuple[str, str]] = (),
) -> pd.Series:
    """Count what crosses the folds of a finished table: a Series of numbers.

    clusters: with two or more rows that are not test rows.
    clusters_across_folds, groups_across_folds: must be 0. A split counts as a fold;
        test does not.
    clusters_across_test: clusters with test rows and other rows.
    max_share_deviation: largest difference between a class's share of a fold and of
        train.
    sampled_…: only with `hashes` (of `load_hashes`). 300 sampled images are compared
        with all others: pairs within `max_bits` bits across_folds, which must be 0,
        pairs with_test, of a test image and another image, and pairs of_earlier images
        across folds, which stay. Each pair is counted once, and cut_pairs (of
        `list_cut_pairs`) are not.
    Raises: ValueError: a number that must be 0 is not.
    """
    places = table.groupby(["split", "fold"])
    fold = places.ngroup().to_numpy()
    numbers: dict[str, float] = {
        "images": len(table),
        "clusters": _count_clusters(table),
        "clusters_across_folds": _count_crossing(table, "cluster", fold),
        "max_share_deviation": measure_deviation(table[table["fold"] >= 0]),
        "clusters_across_test": _count_shared_with_test(table),
    }
    if group_column:
        numbers["groups_across_folds"] = _count_crossing(table, group_column, fold)
    if OVERRIDE_GROUP in table:
        n_crossing = _count_crossing(table, OVERRIDE_GROUP, fold)
        numbers["override_groups_across_folds"] = n_crossing
    if hashes is not None:
        numbers |= _count_near_pairs(table, fold, hashes, max_bits, cut_pairs)
    _check_across_folds(numbers)
    return pd.Series(numbers, name="folds", dtype=object)


def _check_across_folds(numbers: dict[str, float]) -> None:
    """Raise a ValueError with the leaks from fold to fold, if there are any."""
    leaks = [
        f"{name} {number}"
        for name, number in numbers.items()
        if name.endswith("_across_folds") and number
    ]
    if leaks:
        raise ValueError(
            f"The folds leak into one another: {', '.join(leaks)}. "
            "Run 02_deduplicate and 03_plan again."
        )


def _count_clusters(table: pd.DataFrame) -> int:
    """Count the clusters with two or more rows that are not test rows."""
    sizes = np.bincount(list_first_rows(table, "cluster"))
    return int((sizes > 1).sum())


def _count_crossing(table: pd.DataFrame, column: str, fold: Array) -> int:
    """Count the values of a column that are in several folds."""
    first_row = list_first_rows(table, column)
    return len(np.unique(first_row[fold != fold[first_row]]))


def _count_shared_with_test(table: pd.DataFrame) -> int:
    """Count the clusters with test rows and other rows."""
    is_test = table["split"] == "test"
    clusters = table["cluster"].dropna()
    shared = set(clusters[is_test]) & set(clusters[~is_test])
    return len(shared - {-1})


def measure_deviation(train: pd.DataFrame) -> float:
    """Return the largest difference between a class's share of a fold and of train.

    train: columns label and fold.
    """
    label, classes = pd.factorize(train["label"])
    fold, folds = pd.factorize(train["fold"])
    shape = (len(classes), len(folds))
    counts = np.bincount(label * len(folds) + fold, minlength=len(classes) * len(folds))
    counts = counts.reshape(shape)
    share_of_train = counts.sum(axis=1) / max(1, len(train))
    deviation = np.abs(counts / counts.sum(axis=0) - share_of_train[:, None])
    return float(deviation.max(initial=0.0))


def _count_near_pairs(
    table: pd.DataFrame,
    fold: Array,
    hashes: pd.DataFrame,
    max_bits: int,
    cut_pairs: Sequence[tuple[str, str]],
) -> dict[str, float]:
    """Compare sampled images with all others, except images of almost no texture."""
    rows_cut_from = _number_cut_pairs(table["path"], cut_pairs)
    hashes = match_hashes(table, hashes)
    is_compared = (hashes["texture"] >= FLAT).to_numpy()
    words = np.ascontiguousarray(hashes[[*HASHES]].to_numpy(np.uint64).T)
    is_test = (table["split"] == "test").to_numpy()
    is_recorded = mark_recorded(table)
    rng = np.random.default_rng(0)
    sampled = rng.permutation(len(table))[:N_SAMPLED]
    is_done = np.zeros(len(table), bool)
    n_across = 0
    n_with_test = 0
    n_of_earlier = 0
    for row in sampled[is_compared[sampled]]:
        near = _find_near(words, row, max_bits)
        near = near[is_compared[near] & (fold[near] != fold[row]) & ~is_done[near]]
        near = np.setdiff1d(near, rows_cut_from.get(row, []))
        is_done[row] = True  # its pairs are counted
        has_test = is_test[near] | is_test[row]
        n_with_test += int(has_test.sum())
        is_of_earlier = is_recorded[near] & is_recorded[row] & ~has_test
        n_of_earlier += int(is_of_earlier.sum())
        n_across += int((~has_test & ~is_of_earlier).sum())
    numbers: dict[str, float] = {
        "sampled_images": len(sampled),
        "sampled_pairs_across_folds": n_across,
        "sampled_pairs_with_test": n_with_test,
    }
    if is_recorded.any():
        numbers["sampled_pairs_of_earlier"] = n_of_earlier
    return numbers


def match_hashes(table: pd.DataFrame, hashes: pd.DataFrame) -> pd.DataFrame:
    """Return the hashes of each row of a table. hashes: of `load_hashes`."""
    return hashes.iloc[find_texts(table["path"], hashes["path"])]


def _number_cut_pairs(
    path: pd.Series,
    cut_pairs: Sequence[tuple[str, str]],
) -> dict[int, list[int]]:
    """Return the rows of the images from which each row's image was cut."""
    cut_paths = {end for pair in cut_pairs for end in pair}
    rows = np.flatnonzero(path.isin(cut_paths))
    row_of_path = dict(zip(path.iloc[rows], rows.tolist(), strict=True))
    others: dict[int, list[int]] = {}
    for pair in cut_pairs:
        ends = [row_of_path[end] for end in pair if end in row_of_path]
        for row, other in permutations(ends, 2):
            others.setdefault(row, []).append(other)
    return others


def _find_near(words: Array, row: int, max_bits: int) -> Array:
    """Return the images within `max_bits` of one image: int64 (m,).

    words: uint64 (4, n), the hashes of each image.
    """
    # One hash of the four leaves few images to compare. Slices fit into the cache.
    found = []
    for rows in list_slices(words.shape[1]):
        differing = np.bitwise_count(words[1, rows] ^ words[1, row])
        found.append(np.flatnonzero(differing <= max_bits) + rows.start)
    candidates = np.concatenate(found)
    differing = np.bitwise_count(words[:, candidates] ^ words[:, [row]])
    return candidates[differing.sum(axis=0) <= max_bits]
