"""Note what 03 found: the sizes of folds, what they share, and what they lack."""

import pandas as pd

from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.figures.words import NO_LABEL, shorten
from kaggle_tfr.notebook import note
from kaggle_tfr.plan.fold_checks import find_missing_classes
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
    is_grown = mark_recorded(folded).any()
    # These stay where they are.
    others = "Test and earlier images" if is_grown else "Test images"
    kept_apart = f"{others} aside, no cluster of near-duplicates"
    if group_column:
        kept_apart += f" and no value of '{shorten(group_column)}'"
    kept_apart += " is in two folds or splits."
    note("✓", f"{_describe_sizes(folded)}. {kept_apart}", "folds")

    n_shared = checks["clusters_across_test"]
    if n_shared:
        text = f"Clusters that contain test images and others: {n_shared:,}."
        advice = "Test images stay where they are; leaks.csv lists the pairs."
        note("·", text, "folds: test", advice)
    _note_classes(by_fold)
    excluded = "a test image" + (" or two earlier ones" if is_grown else "")
    note(
        "✓",
        f"{checks['sampled_images']:,} of {checks['images']:,} images were compared "
        f"with all others, bit by bit. Pairs within {max_bits} bits in two folds or "
        f"splits, without {excluded}: {checks['sampled_pairs_across_folds']}.",
        "folds: sample",
    )


def _describe_sizes(folded: pd.DataFrame) -> str:
    """Return how many labelled images each fold and each other split has."""
    n_folds = folded["fold"].max() + 1
    is_in_folds = (folded["fold"] >= 0) & (n_folds > 1)
    counts = folded["split"][~is_in_folds].value_counts().drop("test", errors="ignore")
    texts = []
    if n_folds > 1:
        sizes = folded["fold"][is_in_folds].value_counts().sort_index()
        listed = join_words([f"{size:,}" for size in sizes])
        texts.append(f"{n_folds} folds of {listed} images")
        counts = counts.rename({"train": "train of every fold (MORE_INPUTS)"})
    texts += [f"{count_of(n, 'image')} in {split}" for split, n in counts.items()]
    return ", ".join(texts) or "0 labelled images"


def _note_classes(by_fold: pd.DataFrame) -> None:
    """Note the classes that are not in every fold and split; nothing for one class."""
    n_classes = len(by_fold.drop(NO_LABEL, errors="ignore"))
    missing = find_missing_classes(by_fold)
    named = [
        f"{shorten(row['class'])} ({count_of(row['images'], 'image')}) is missing from "
        f"{join_words(row['missing_from'].split(', '))}"
        for row in missing.head(MAX_NAMED).to_dict("records")
    ]
    advice = "Scores there do not cover it. Add images, or use fewer folds."
    if named:
        text = f"Class {'; '.join(named)}."
        if len(missing) > 1:
            text = (
                f"{len(missing):,} of {n_classes:,} classes are not in every fold and "
                f"split. {text}"
            )
        note("!", text, "folds: classes", advice)
    elif n_classes > 1:
        text = f"All {n_classes:,} classes are in each fold and split, test aside."
        note("✓", text, "folds: classes")
