"""What shows that folds can be trusted: counted on the finished table, not on how it was made."""

import numpy as np
import pandas as pd

from kaggle_tfr.hashes import FLAT, HASHES


def fold_report(table):
    """Images per class and fold: a row per label_name, a column per fold ("train 0", "test", …)."""
    folds = name_folds(table)
    return pd.crosstab(table["label_name"], folds, dropna=False)


def name_folds(table):
    """The split of each row, and its fold within train: "train 0", "test"."""
    split, fold = table["split"].astype(str), table["fold"]
    return split.where(fold < 0, split + " " + fold.astype(str)).rename("fold")


def name_rare_classes(table, show=5):
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


def prove_folds(table, *, hashes=None, max_bits=25, group_column="", sample=300, seed=0):
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
