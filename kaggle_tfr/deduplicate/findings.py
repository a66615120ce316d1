"""What 02 found, and its notes: copies, labels that disagree, leaks, other datasets."""

from dataclasses import dataclass

import pandas as pd

from kaggle_tfr.notebook import count_of, note


@dataclass(frozen=True)
class Found:
    """What 02 found.

    images: all images of 01, with the labels of OVERRIDES.
    pairs: one row per pair within MAX_BITS or compared by its geometry, the nearest
        first. Columns: image_id, label_name, split and path of both images (…_a, …_b);
        bits;
        matches (-1: not compared); orientation (EXIF), which rotates b as a is;
        verdict: what decided ("hash", "geometry", "rejected" by geometry, "user");
        accepted: whether the pair counts; a, b: row numbers of `images`.
    clusters: as in duplicates.parquet; the index has the row numbers of `images`.
    leaks: of `find_leaks`.
    overlap: the images that COMPARE_WITH contains, too: see `find_overlap`.
    decisions: the rows of OVERRIDES.
    counts: number of images by outcome; their sum is len(images).
    """

    images: pd.DataFrame
    pairs: pd.DataFrame
    clusters: pd.DataFrame
    leaks: pd.DataFrame
    overlap: pd.DataFrame
    decisions: pd.DataFrame
    counts: dict[str, int]


def note_findings(found: Found, others: pd.DataFrame) -> None:
    """Note the copies, conflicts, leaks and overlaps with `others`.

    Rejected images do not count. others: of `read_datasets`.
    """
    images = found.images.query("problem == ''")
    total = count_of(len(images), "image")
    # A cluster of one has an image that LEAKS or the user drops, not a copy.
    size = found.clusters.groupby("cluster")["keep"].transform("size")
    copied = found.clusters[size > 1].join(images["label"])
    counted = count_of(copied["cluster"].nunique(), "cluster")
    note(
        "✓" if copied.empty else "·",
        f"{len(copied):,} of {total} have a near-duplicate ({counted}).",
        "copies",
    )
    _note_conflicts(copied, counted)
    _note_leaks(found.leaks, images["split"].value_counts())
    _note_overlap(found.overlap, others, total)


def _note_conflicts(copied: pd.DataFrame, counted: str) -> None:
    """Note the clusters whose labels disagree, also with those of test images.

    copied: a row for each image in a cluster of two or more; columns cluster, label (-1
    for none) and reason. counted: the number of all clusters, as "12 clusters".
    Nothing is noted if no image has a label.
    """
    # Labels of images that the user drops do not count.
    has_vote = (copied["label"] >= 0) & (copied["reason"] != "override: dropped")
    n_labels = copied[has_vote].groupby("cluster")["label"].transform("nunique")
    conflicts = copied.loc[n_labels.index[n_labels > 1]]
    if len(conflicts):
        note(
            "!",
            f"Labels disagree in {conflicts['cluster'].nunique():,} of {counted} of "
            f"near-duplicates ({count_of(len(conflicts), 'image')}).",
            "conflicts",
            f"CONFLICTS drops {(conflicts['reason'] == 'conflict').sum():,} of them, "
            "and never test images. Inspect their clusters, and correct labels by "
            "OVERRIDES.",
        )
    elif len(n_labels):
        note("✓", f"None of {counted} of near-duplicates has two labels.", "conflicts")


def _note_leaks(leaks: pd.DataFrame, n_images: pd.Series) -> None:
    """Note, for each two splits, the images with a copy in the other split.

    The note is marked "!" if labelled copies of test images are kept.
    leaks: of `find_leaks`: a row for each pair of images in two splits. n_images: of
    each split, by its name.
    """
    counts = leaks.groupby(["split_a", "split"], as_index=False).agg(
        n_copied=("image_id_a", "nunique"),
        n_others=("image_id", "nunique"),
        is_kept=("keep", "any"),  # one of the others, although it leaks
    )
    for split, other, n_copied, n_others, is_kept in counts.to_numpy().tolist():
        note(
            "!" if is_kept and split == "test" else "·",
            f"Copies in {split} and {other}: {n_copied:,} of {n_images[split]:,} and "
            f"{n_others:,} of {n_images[other]:,} images.",
            f"leaks: {split}, {other}",
            "LEAKS = drop leaves labelled copies of test images out. 03 puts the "
            "images of other pairs in one split.",
        )
    if leaks.empty:
        note("✓", "No image has a copy in another split.", "leaks")


def _note_overlap(overlap: pd.DataFrame, others: pd.DataFrame, total: str) -> None:
    """Note for each other dataset how many images are also in it; "!" if some are kept.

    overlap: a row for each of our images in each dataset that contains it; columns
    dataset, its name, and keep, whether 02 keeps our image. others: a row for each
    image of the other datasets. total: the number of our images, as "406 images".
    """
    for dataset, n_there in others["dataset"].value_counts(sort=False).items():
        kept = overlap["keep"][overlap["dataset"] == dataset]
        note(
            "!" if kept.any() else "·",
            f"{dataset} ({count_of(n_there, 'image')}) contains {len(kept):,} of "
            f"{total}.",
            f"leaks: {dataset}",
            "LEAKS = drop leaves these out." if kept.any() else "",
        )
