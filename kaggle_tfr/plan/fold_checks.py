"""Check finished folds: their shares, classes that are missing, and leakage."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.figures.folds import NEVER_VALIDATES
from kaggle_tfr.figures.words import NO_LABEL, list_marks
from kaggle_tfr.images.hashing import FLAT, HASHES
from kaggle_tfr.plan.folds import number_groups
from kaggle_tfr.schema import Labels

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
        counts = counts.reindex(counts.index.union(names), fill_value=0)
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

    clusters_across_folds: clusters and other groups; must be 0. A split counts as a
        fold; test does not, and groups of earlier images alone do not count.
    clusters_across_test: clusters with test rows and other rows.
    max_share_deviation: largest difference between a class's share of a fold and its
        mean share.
    sampled_…: only with `hashes` (of `load_hashes`; the table has their index). 300
        images are compared with all others, test images and images of almost no texture
        aside: pairs within `max_bits` bits across_folds, which must be 0. Each pair is
        counted once; cut_pairs (of `load_corrected`) and pairs of earlier images are
        not.
    Raises: ValueError: a number that must be 0 is not.
    """
    rows = table.assign(place=name_places(table), is_new=~mark_recorded(table))
    groups = rows.groupby(number_groups(table, group_column))
    is_crossing = groups["is_new"].any() & groups["place"].nunique().gt(1)
    is_test = (table["split"] == "test")[table["cluster"] >= 0]
    is_leak = is_test.groupby(table["cluster"]).nunique().gt(1)
    train = table[table["fold"] >= 0]
    shares = pd.crosstab(train["label"], train["fold"], normalize="columns").T
    deviation = (shares - shares.mean()).abs().to_numpy()
    numbers = {
        "clusters_across_folds": int(is_crossing.sum()),
        "clusters_across_test": int(is_leak.sum()),
        "max_share_deviation": float(deviation.max(initial=0)),
    }
    if hashes is not None:
        numbers |= _count_near_pairs(rows, hashes, max_bits, cut_pairs)

    checks = pd.Series(numbers, name="folds", dtype=object)
    leaks = checks.filter(like="_across_folds")
    if leaks.any():
        raise ValueError(
            f"The folds leak into one another: {leaks.to_dict()}. "
            "Run 02_deduplicate and 03_plan again."
        )
    return checks


def _count_near_pairs(
    rows: pd.DataFrame,
    hashes: pd.DataFrame,
    max_bits: int,
    cut_pairs: Sequence[tuple[str, str]],
) -> dict[str, int]:
    """Compare sampled rows with all others. rows: with columns place and is_new."""
    rows = rows.join(hashes[[*HASHES, "texture"]])
    rows = rows[(rows["texture"] >= FLAT) & (rows["split"] != "test")]
    words = np.ascontiguousarray(rows[[*HASHES]].to_numpy().T)
    sampled = np.random.default_rng(0).permutation(len(rows))[:N_SAMPLED]
    pairs = set[frozenset[str]]()  # each pair once
    for number in sampled:
        n_bits = np.bitwise_count(words ^ words[:, [number]]).sum(axis=0)
        row = rows.iloc[number]
        near = rows[n_bits <= max_bits]
        near = near[(near["place"] != row["place"]) & (near["is_new"] | row["is_new"])]
        pairs |= {frozenset([row["path"], path]) for path in near["path"]}
    pairs.difference_update(map(frozenset, cut_pairs))
    return {
        "sampled_images": len(sampled),
        "sampled_pairs_across_folds": len(pairs),
    }
