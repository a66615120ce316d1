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
from kaggle_tfr.plan.folds import list_values
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
    place = name_places(folded)
    names = [*number_names(labels.classes)]
    if labels.class_columns:
        marks = list_marks(folded, labels.class_columns)
        counts = marks.groupby(place).sum().T.set_axis(names)
    else:
        counts = pd.crosstab(folded["label_name"].replace("", NO_LABEL), place)
        others = counts.index.difference(names)
        counts = counts.reindex([*names, *others], fill_value=0)
    totals = counts.drop(columns="test", errors="ignore").sum(axis=1)
    return counts.iloc[np.argsort(-totals, kind="stable")]


def name_places(folded: pd.DataFrame) -> pd.Series:
    """Return the name of each image's fold, or of its split where it has no fold."""
    if folded["fold"].max() < 1:
        return folded["split"]
    split = folded["split"].replace("train", NEVER_VALIDATES)
    return split.mask(folded["fold"] >= 0, "fold " + folded["fold"].astype(str))


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
        test does not, and clusters of earlier images alone do not count.
    clusters_across_test: clusters with test rows and other rows.
    max_share_deviation: largest difference between a class's share of a fold and its
        mean share.
    sampled_…: only with `hashes` (of `load_hashes`). 300 sampled images are compared
        with all others: pairs within `max_bits` bits across_folds, which must be 0, and
        pairs with_test, of a test image and another image. Each pair is counted once.
        cut_pairs (of `load_corrected`) and pairs of earlier images are not.
    Raises: ValueError: a number that must be 0 is not.
    """
    place = name_places(table)
    is_new = ~mark_recorded(table)
    is_test = (table["split"] == "test")[table["cluster"] >= 0]
    train = table[table["fold"] >= 0]
    shares = pd.crosstab(train["label"], train["fold"], normalize="columns")
    deviation = shares.sub(shares.mean(axis=1), axis=0).abs().to_numpy()
    numbers: dict[str, float] = {
        "images": len(table),
        "clusters": int(list_values(table, "cluster").value_counts().gt(1).sum()),
        "clusters_across_test": len(_find_mixed(is_test, table["cluster"])),
        "max_share_deviation": float(deviation.max(initial=0.0)),
    }
    joins = {
        "clusters": "cluster",
        "groups": group_column,
        "override_groups": OVERRIDE_GROUP,
    }
    for name, column in joins.items():
        if column in table:
            value = list_values(table, column)
            crossing = _find_mixed(place, value).intersection([*value[is_new]])
            numbers[f"{name}_across_folds"] = len(crossing)
    if hashes is not None:
        numbers |= _count_near_pairs(table, hashes, max_bits, cut_pairs)

    checks = pd.Series(numbers, name="folds", dtype=object)
    leaks = checks.filter(like="_across_folds")
    if leaks.any():
        raise ValueError(
            f"The folds leak into one another: {leaks.to_dict()}. "
            "Run 02_deduplicate and 03_plan again."
        )
    return checks


def _find_mixed(values: pd.Series, group: pd.Series) -> pd.Index:
    """Return the groups that have several values."""
    n_values = values.groupby(group).nunique()
    return n_values.index[n_values > 1]


def _count_near_pairs(
    table: pd.DataFrame,
    hashes: pd.DataFrame,
    max_bits: int,
    cut_pairs: Sequence[tuple[str, str]],
) -> dict[str, int]:
    """Compare sampled images with all others, except images of almost no texture."""
    sampled = np.random.default_rng(0).permutation(len(table))[:N_SAMPLED]
    hashes = hashes.iloc[find_texts(table["path"], hashes["path"])]
    has_texture = (hashes["texture"] >= FLAT).to_numpy()
    words = np.ascontiguousarray(hashes[[*HASHES]].to_numpy(np.uint64).T)
    place = name_places(table).to_numpy()
    path = table["path"].to_numpy()
    pairs = set[frozenset[str]]()  # each pair once
    for row in sampled[has_texture[sampled]]:
        # One hash of the four leaves few images to compare.
        n_bits = np.bitwise_count(words[1] ^ words[1, row])
        near = np.flatnonzero((n_bits <= max_bits) & has_texture)
        n_bits = np.bitwise_count(words[:, near] ^ words[:, [row]]).sum(axis=0)
        near = near[(n_bits <= max_bits) & (place[near] != place[row])]
        pairs |= {frozenset([path[row], other]) for other in path[near]}
    recorded = {*path[mark_recorded(table)]}
    pairs.difference_update(map(frozenset, cut_pairs))
    pairs = {pair for pair in pairs if not pair <= recorded}
    tests = {*path[table["split"] == "test"]}
    n_with_test = sum(not tests.isdisjoint(pair) for pair in pairs)
    return {
        "sampled_images": len(sampled),
        "sampled_pairs_across_folds": len(pairs) - n_with_test,
        "sampled_pairs_with_test": n_with_test,
    }
