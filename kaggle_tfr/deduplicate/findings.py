"""Note what 02 found: copies, labels that disagree, leaks, and other datasets."""

from collections.abc import Hashable, Mapping

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.corrections import Corrections
from kaggle_tfr.deduplicate.leaks import count_copies, find_copies, list_splits
from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.notebook import note
from kaggle_tfr.tables import count_of, join_words


def note_findings(
    corrected: Corrections,
    leaks: pd.DataFrame,
    others: pd.DataFrame,
    overlap: pd.DataFrame,
) -> None:
    """Note the copies, conflicts and leaks, and the copies in other datasets.

    corrected: of `apply_overrides`. leaks: of `find_leaks`. others: of `read_datasets`.
    overlap: of `list_overlap`.
    """
    images = corrected.images
    clusters = corrected.clusters
    copies = find_copies(images, corrected.pairs[["a", "b", "distance"]])
    counts = count_copies(images, copies)
    counts = counts[counts["copies"] > 0]
    n_images = images["split"][images["problem"] == ""].value_counts().to_dict()
    n_clusters = (clusters["cluster"].value_counts() > 1).sum()

    _note_copies(copies, counts, n_images, n_clusters)
    columns = images[["image_id", "split", "label", "problem"]]
    matched = match_clusters(columns, clusters, ["reason"])
    _note_conflicts(matched, n_clusters)
    keep = matched["keep"].to_numpy()
    is_whole = keep[leaks["a"]] & keep[leaks["b"]]
    _note_leaks(counts, n_images, set(leaks["test_split"][is_whole]))
    _note_overlap(others, overlap, sum(n_images.values()))


def _note_copies(
    copies: pd.DataFrame,
    counts: pd.DataFrame,
    n_images: Mapping[Hashable, int],
    n_clusters: int,
) -> None:
    """Note how many images have a copy, and how many in their own split."""
    n_copied = np.unique(copies[["a", "b"]]).size
    total = count_of(sum(n_images.values()), "image")
    if not n_copied:
        text = f"None of {total} has a near-duplicate."
        note("✓", text, "copies")
        return

    text = (
        f"{n_copied:,} of {total} have a near-duplicate "
        f"({count_of(n_clusters, 'cluster')})."
    )
    within = counts[counts["split"] == counts["other"]]
    places = [
        f"{row['images']:,} of {n_images[row['split']]:,} {row['split']} images"
        for row in within.to_dict("records")
    ]
    if places:
        text += f" Copies in the same split: {', '.join(places)}."
    note("·", text, "copies")


def _note_conflicts(images: pd.DataFrame, n_clusters: int) -> None:
    """Note the clusters whose labels disagree, also with those of test images."""
    has_vote = (images["cluster"] >= 0) & (images["label"] >= 0)
    # A rejected row may repeat the id of an image in a cluster.
    has_vote &= images["problem"] == ""
    has_vote &= images["reason"] != "override: dropped"
    labelled = images[has_vote]
    n_labels = labelled.groupby("cluster")["label"].transform("nunique")
    conflicts = labelled[n_labels > 1]
    if len(conflicts):
        n_conflicts = conflicts["cluster"].nunique()
        n_dropped = (~conflicts["keep"]).sum()
        note(
            "!",
            f"Labels disagree in {n_conflicts:,} of {n_clusters:,} clusters of "
            f"near-duplicates ({len(conflicts):,} images).",
            "conflicts",
            f"CONFLICTS drops {n_dropped:,} of them, and never test images. Inspect "
            "their clusters, and correct labels by OVERRIDES.",
        )
    elif labelled["cluster"].duplicated().any():
        counted = count_of(n_clusters, "cluster")
        text = f"None of {counted} of near-duplicates has two labels."
        note("✓", text, "conflicts")


def _note_leaks(
    counts: pd.DataFrame, n_images: Mapping[Hashable, int], leaking_splits: set[str]
) -> None:
    """Note the copies in two splits, with all copies of a split in one finding.

    leaking_splits: those of which both images of some pair are kept.
    """
    between = counts[counts["split"] != counts["other"]]
    for split, rows in between.groupby("split"):
        mark = "·"
        advice = "At least one image of each pair is dropped."
        if split == "test" and split in leaking_splits:
            mark = "!"
            advice = (
                "Copies are kept, so a test score will be too good. LEAKS = drop "
                "leaves them out."
            )
        elif split in leaking_splits:
            advice = "03 puts the images of a pair in one split."
        texts = []
        for row in rows.to_dict("records"):
            other = row["other"]
            verb = "has" if row["images"] == 1 else "have"
            texts.append(
                f"{row['images']:,} of {n_images[str(split)]:,} {split} images {verb} "
                f"a copy in {other} ({row['other_images']:,} of {n_images[other]:,} "
                "there)."
            )
        note(mark, " ".join(texts), f"leaks: {split}", advice)
    if between.empty:
        others = list_splits(map(str, n_images))[:-1]
        n_others = sum(n_images[split] for split in others)
        text = "The input has one split, so no copy is in another one."
        if others:
            text = (
                f"None of {n_others:,} {join_words(others)} images has a copy in "
                "another split."
            )
        note("✓", text, "leaks")


def _note_overlap(others: pd.DataFrame, overlap: pd.DataFrame, n_images: int) -> None:
    """Note for each other dataset how many images are also in it."""
    for dataset, n_there in others["dataset"].value_counts(sort=False).items():
        found = overlap[overlap["dataset"] == dataset]
        found = found.drop_duplicates(["image_id", "split"])
        size = count_of(n_there, "image")
        text = f"None of {n_images:,} images is also in {dataset} ({size})."
        mark = "✓"
        advice = ""
        if len(found):
            verb = "is" if len(found) == 1 else "are"
            text = (
                f"{len(found):,} of {n_images:,} images {verb} also in {dataset} "
                f"({size})."
            )
            mark = "!" if found["keep"].any() else "·"
            advice = "leaks.csv lists them; LEAKS = drop leaves labelled images out."
        note(mark, text, f"leaks: {dataset}", advice)
