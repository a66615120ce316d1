"""Note what 03 found: the sizes of folds, what they share, and what they lack."""

import pandas as pd

from kaggle_tfr.figures.folds import NEVER_VALIDATES
from kaggle_tfr.figures.words import NO_LABEL, shorten
from kaggle_tfr.notebook import note
from kaggle_tfr.plan.fold_checks import name_places
from kaggle_tfr.tables import join_words

MAX_NAMED = 3  # classes in a sentence


def note_folds(
    folded: pd.DataFrame, by_fold: pd.DataFrame, checks: pd.Series, max_bits: int
) -> None:
    """Note the folds of a table that `check_leakage` has checked.

    by_fold: of `count_by_fold`. checks: of `check_leakage`, with hashes and max_bits.
    """
    sizes = name_places(folded).value_counts().sort_index()
    listed = [f"{n:,} in {place}".replace("\n", " ") for place, n in sizes.items()]
    note(
        "✓",
        f"Images: {join_words(listed)}. Test and earlier images aside, no cluster of "
        "near-duplicates and no group is in two folds or splits. Clusters that contain "
        f"test images and others: {checks['clusters_across_test']:,}.",
        "folds",
    )
    counts = by_fold.drop(
        index=NO_LABEL, columns=["test", NEVER_VALIDATES], errors="ignore"
    )
    missing = counts[(counts == 0).any(axis=1)]
    named = []
    for name in missing.index[:MAX_NAMED]:
        places = missing.columns[missing.loc[name] == 0]
        named.append(f"{shorten(name)} (none in {join_words([*places])})")
    if named:
        note(
            "!",
            f"{len(missing):,} of {len(counts):,} classes are not in every fold and "
            f"split, such as {'; '.join(named)}.",
            "folds: classes",
            "Scores there do not cover them. Add images, or use fewer folds.",
        )
    note(
        "✓",
        f"{checks['sampled_images']:,} images were compared with all others, bit by "
        f"bit. Pairs within {max_bits} bits in two folds or splits, test images and "
        f"pairs of earlier images aside: {checks['sampled_pairs_across_folds']}.",
        "folds: sample",
    )
