"""Note what 02 found: copies, labels that disagree, leaks, and other datasets."""

import pandas as pd

from kaggle_tfr.deduplicate.clusters import FAR
from kaggle_tfr.deduplicate.leaks import count_copies
from kaggle_tfr.notebook import note
from kaggle_tfr.tables import count_of


def note_clusters(
    images: pd.DataFrame, clusters: pd.DataFrame, decisions: pd.DataFrame
) -> None:
    """Note the copies, chains and conflicts, and pairs that are still in one cluster.

    images, decisions: of `correct_images` and `read_overrides`. clusters: of
    `find_clusters`.
    """
    n_images = (images["problem"] == "").sum()
    size = clusters.groupby("cluster")["keep"].transform("size")
    copied = clusters[size > 1]
    n_clusters = copied["cluster"].nunique()
    counted = count_of(n_clusters, "cluster")
    total = count_of(n_images, "image")
    if n_clusters:
        note(
            "·",
            f"{len(copied):,} of {total} have a near-duplicate ({counted}).",
            "copies",
        )
    else:
        note("✓", f"None of {total} has a near-duplicate.", "copies")

    kept = clusters[clusters["reason"] == FAR]
    if len(kept):
        note(
            "·",
            f"{count_of(kept['cluster'].nunique(), 'cluster')} of near-duplicates "
            "contain images that are far apart, as in a slow fade. "
            f"{len(kept):,} of their images are kept.",
            "chains",
            "They share a fold. Set MAX_BITS lower if they are not copies.",
        )

    label = images["label"].loc[copied.index]
    has_vote = (label >= 0) & (copied["reason"] != "override: dropped")
    labelled = copied[has_vote].assign(label=label)
    n_labels = labelled.groupby("cluster")["label"].transform("nunique")
    conflicts = labelled[n_labels > 1]
    if len(conflicts):
        note(
            "!",
            f"Labels disagree in {conflicts['cluster'].nunique():,} of {counted} of "
            f"near-duplicates ({count_of(len(conflicts), 'image')}).",
            "conflicts",
            f"CONFLICTS drops {(~conflicts['keep']).sum():,} of them, and never test "
            "images. Inspect their clusters, and correct labels by OVERRIDES.",
        )
    elif labelled["cluster"].duplicated().any():
        text = f"None of {counted} of near-duplicates has two labels."
        note("✓", text, "conflicts")

    cut = decisions[decisions["action"] == "different"]
    first, second = (clusters["cluster"].reindex(cut[end]) for end in ("a", "b"))
    n_joined = (first.to_numpy() == second.to_numpy()).sum()
    if n_joined:
        note(
            "!",
            f"{count_of(n_joined, 'pair')} that OVERRIDES calls different: other "
            "images still connect both.",
            "overrides",
            "Separate the other images, too.",
        )


def note_leaks(
    images: pd.DataFrame, clusters: pd.DataFrame, leaks: pd.DataFrame
) -> None:
    """Note the copies in two splits, with all copies of a split in one finding.

    leaks: of `find_leaks`.
    """
    n_images = images["split"][images["problem"] == ""].value_counts()
    counts = count_copies(clusters, n_images.index)
    between = counts[(counts["split"] != counts["other"]) & (counts["images"] > 0)]
    for row in between.itertuples():
        is_shared = (leaks["split_a"] == row.split) & (leaks["split_b"] == row.other)
        is_kept = row.split == "test" and leaks["keep_b"][is_shared].any()
        verb = "has" if row.images == 1 else "have"
        note(
            "!" if is_kept else "·",
            f"{row.images:,} of {n_images[row.split]:,} {row.split} images {verb} a "
            f"copy in {row.other} ({row.other_images:,} of {n_images[row.other]:,} "
            "there).",
            f"leaks: {row.split}, {row.other}",
            "LEAKS = drop leaves labelled copies of test images out. 03 puts the "
            "images of other pairs in one split.",
        )
    if between.empty:
        note("✓", "No image has a copy in another split.", "leaks")


def note_overlap(others: pd.DataFrame, overlap: pd.DataFrame, n_images: int) -> None:
    """Note for each other dataset how many images are also in it.

    others, overlap: of `read_datasets` and `find_overlap`.
    """
    for dataset, n_there in others["dataset"].value_counts(sort=False).items():
        found = overlap[overlap["dataset"] == dataset]
        size = count_of(n_there, "image")
        mark = "✓"
        text = f"None of {n_images:,} images is also in {dataset} ({size})."
        advice = ""
        if len(found):
            verb = "is" if len(found) == 1 else "are"
            text = (
                f"{len(found):,} of {n_images:,} images {verb} also in {dataset} "
                f"({size})."
            )
            mark = "!" if found["keep_b"].any() else "·"
            advice = "leaks.csv lists them; LEAKS = drop leaves labelled images out."
        note(mark, text, f"leaks: {dataset}", advice)
