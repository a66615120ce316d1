"""Note what 03 found: the sizes of folds, what they share, and what they lack."""

import pandas as pd

from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.figures.folds import NEVER_VALIDATES
from kaggle_tfr.figures.words import NO_LABEL, shorten
from kaggle_tfr.notebook import note
from kaggle_tfr.plan.fold_checks import name_places
from kaggle_tfr.tables import count_of, join_words

MAX_NAMED = 3  # classes in a sentence


def note_folds(
    folded: pd.DataFrame,
    by_fold: pd.DataFrame,
    checks: pd.Series,
    max_bits: int,
    group_column: str = "",
) -> None:
    """Note the folds of a table that `check_leakage` has checked.

    by_fold: of `count_by_fold`. checks: of `check_leakage`, with hashes, and with this
        max_bits and group_column.
    """
    fixed = "Test images"
    excluded = "a test image"
    if mark_recorded(folded).any():
        fixed = "Test and earlier images"
        excluded += " or two earlier ones"
    sizes = name_places(folded).value_counts().drop("test", errors="ignore")
    listed = [f"{n:,} in {place}" for place, n in sizes.sort_index().items()]
    joined = "cluster of near-duplicates"
    if group_column:
        joined += f" and no value of '{shorten(group_column)}'"
    note(
        "✓",
        f"Images: {join_words(listed or ['0'])}. {fixed} aside, no {joined} is in two "
        "folds or splits.",
        "folds",
    )
    if checks["clusters_across_test"]:
        note(
            "·",
            "Clusters that contain test images and others: "
            f"{checks['clusters_across_test']:,}.",
            "folds: test",
            "Test images stay where they are; leaks.csv lists the pairs.",
        )
    _note_classes(by_fold)
    note(
        "✓",
        f"{checks['sampled_images']:,} of {checks['images']:,} images were compared "
        f"with all others, bit by bit. Pairs within {max_bits} bits in two folds or "
        f"splits, without {excluded}: {checks['sampled_pairs_across_folds']}.",
        "folds: sample",
    )


def _note_classes(by_fold: pd.DataFrame) -> None:
    """Note the classes that are not in every fold and split; nothing for one class."""
    counts = by_fold.drop(index=NO_LABEL, columns="test", errors="ignore")
    is_missing = counts.drop(columns=NEVER_VALIDATES, errors="ignore") == 0
    missing = is_missing[is_missing.any(axis=1)]
    named = [
        f"{shorten(name)} ({count_of(counts.loc[name].sum(), 'image')}) is missing "
        f"from {join_words([*missing.columns[missing.loc[name]]])}"
        for name in missing.index[:MAX_NAMED].astype(str)
    ]
    if named:
        note(
            "!",
            f"{len(missing):,} of {len(counts):,} classes are not in every fold and "
            f"split. Class {'; '.join(named)}.",
            "folds: classes",
            "Scores there do not cover it. Add images, or use fewer folds.",
        )
    elif len(counts) > 1:
        text = f"All {len(counts):,} classes are in each fold and split, test aside."
        note("✓", text, "folds: classes")
