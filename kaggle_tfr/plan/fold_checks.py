"""Check finished folds: their shares, classes that are missing, and leakage."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.figures.folds import NEVER_VALIDATES
from kaggle_tfr.figures.words import NO_LABEL, list_marks
from kaggle_tfr.images.hashing import FLAT, HASHES
from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.plan.folds import Array, list_first_rows
from kaggle_tfr.schema import Labels
from kaggle_tfr.texts import find_texts

N_SAMPLED = 300


def count_by_fold(folded: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Count the images of each class (rows) in each fold and split (columns).

    folded: the result of `assign_folds`. The class with most images that are not test
        images is first. Images without a label are a row, but not test images.
    """
    is_labelled = folded["label_name"] != ""
    folded = folded[is_labelled | (folded["split"] != "test")]
    place = folded["split"]
    if folded["fold"].max() > 0:
        fold_names = "fold " + folded["fold"].astype(str)
        split_names = place.replace("train", NEVER_VALIDATES)
        place = fold_names.where(folded["fold"] >= 0, split_names)

    numbers = number_names(labels.classes)
    if labels.class_columns:
        marks = list_marks(folded, labels.class_columns)
        counts = marks.groupby(place).sum().T.set_axis([*numbers])
    else:
        names = {number: name for name, number in numbers.items()}
        class_names = folded["label"].map(names).fillna(NO_LABEL)
        counts = pd.crosstab(class_names, place)
        others = counts.index.difference([*numbers])
        counts = counts.reindex([*numbers, *others], fill_value=0)
    totals = counts.drop(columns="test", errors="ignore").sum(axis=1)
    return counts.iloc[np.argsort(-totals, kind="stable")]


def find_missing_classes(counts: pd.DataFrame) -> pd.DataFrame:
    """List the classes without an image in train, a fold, or the validation split.

    counts: of `count_by_fold`.
    One row a class, the largest class first. Columns: class (its name), images (with
    this class), missing_from (such as "fold 0, validation"; "train" means all
    folds).
    """
    counts = counts.drop(NO_LABEL, errors="ignore")
    counts = counts.drop(columns="test", errors="ignore")
    is_missing = counts == 0
    folds = is_missing.filter(like="fold ")
    train = is_missing.filter(regex="^(fold|train)")
    in_no_fold = train.all(axis=1)
    splits = is_missing.drop(columns=train.columns)
    is_missing = pd.concat(
        [folds.mul(~in_no_fold, axis=0), in_no_fold.rename("train"), splits], axis=1
    )
    is_missing = is_missing[is_missing.any(axis=1)]
    places = is_missing.columns
    return pd.DataFrame(
        {
            "class": is_missing.index,
            "images": counts.sum(axis=1)[is_missing.index].to_numpy(),
            "missing_from": [", ".join(places[row]) for row in is_missing.to_numpy()],
        }
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
        with all others: pairs within `max_bits` bits across_folds, which must be 0, and
        pairs with_test, of a test image and another image. Each pair is counted once.
        cut_pairs (of `load_corrected`) and pairs of earlier images are not.
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
    """Count the values of a column that are in several folds; not of records alone."""
    first_row = list_first_rows(table, column)
    is_crossing = fold != fold[first_row]
    has_new = np.isin(first_row, first_row[~mark_recorded(table)])
    return len(np.unique(first_row[is_crossing & has_new]))


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
    counts = pd.crosstab(train["label"], train["fold"])
    share_of_train = counts.sum(axis=1) / max(1, len(train))
    deviation = (counts / counts.sum()).sub(share_of_train, axis=0)
    return float(deviation.abs().to_numpy().max(initial=0.0))


def _count_near_pairs(
    table: pd.DataFrame,
    fold: Array,
    hashes: pd.DataFrame,
    max_bits: int,
    cut_pairs: Sequence[tuple[str, str]],
) -> dict[str, float]:
    """Compare sampled images with all others, except images of almost no texture."""
    path = table["path"].to_numpy(object)
    hashes = hashes.iloc[find_texts(table["path"], hashes["path"])]
    is_compared = (hashes["texture"] >= FLAT).to_numpy()
    words = np.ascontiguousarray(hashes[[*HASHES]].to_numpy(np.uint64).T)
    rng = np.random.default_rng(0)
    sampled = rng.permutation(len(table))[:N_SAMPLED]
    cut = {frozenset(pair) for pair in cut_pairs}
    pairs: set[tuple[int, int]] = set()  # each pair once
    for row in sampled[is_compared[sampled]].tolist():
        near = _find_near(words, row, max_bits)
        near = near[is_compared[near] & (fold[near] != fold[row])]
        pairs |= {
            (min(row, other), max(row, other))
            for other in near.tolist()
            if frozenset([path[row], path[other]]) not in cut
        }

    a, b = np.array([*pairs], int).reshape(-1, 2).T
    is_test = (table["split"] == "test").to_numpy()
    is_recorded = mark_recorded(table)
    has_test = is_test[a] | is_test[b]
    is_across = ~has_test & ~(is_recorded[a] & is_recorded[b])
    return {
        "sampled_images": len(sampled),
        "sampled_pairs_across_folds": int(is_across.sum()),
        "sampled_pairs_with_test": int(has_test.sum()),
    }


def _find_near(words: Array, row: int, max_bits: int) -> Array:
    """Return the images within `max_bits` of one image: int64 (m,).

    words: uint64 (4, n), the hashes of each image.
    """
    # One hash of the four leaves few images to compare.
    differing = np.bitwise_count(words[1] ^ words[1, row])
    candidates = np.flatnonzero(differing <= max_bits)
    differing = np.bitwise_count(words[:, candidates] ^ words[:, [row]])
    return candidates[differing.sum(axis=0) <= max_bits]
