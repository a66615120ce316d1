"""Decide what an audit found: copies in and across splits, conflicts and rejects.

A copy is a pair of images that 02 accepts. It matches in one of four ways, the first
that fits: equal files; hashes within MAX_BITS; hashes within four fifths of it after
one image is mirrored or rotated; or, beyond, the same details in the same places.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.compare import compare_datasets
from kaggle_tfr.deduplicate.display import pairs_added
from kaggle_tfr.deduplicate.leaks import find_copies, list_splits
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings, match_clusters
from kaggle_tfr.images.hashing import FLAT
from kaggle_tfr.schema import Labels

MATCHES = ("file", "hash", "mirrored", "details")


@dataclass(frozen=True)
class Dataset:
    """The input of an audit, as 01 has read it.

    images: rows of 01 with the column `file`, the path below the folder of the input.
    out_dir: the folder of the audit's files. command: which repeats the audit.
    hashes: of `load_hashes`.
    unread: images and shards in the folder that are not in the rows.
    others: the fingerprints of other datasets, of `read_datasets`.
    """

    name: str
    out_dir: str
    command: str
    images: pd.DataFrame
    labels: Labels
    hashes: pd.DataFrame
    unread: Sequence[str]
    others: pd.DataFrame


@dataclass(frozen=True)
class AuditResult:
    """What an audit found, and what it did not search for.

    settings: the radii in bits, and which searches were made.
    images: rows of 01 with `file`, and `cluster`, -1 for an image without a copy.
    copies: one row per pair: a, b (row numbers of `images`), distance (bits), match
        (one of `MATCHES`), and conflict: whether the images have different labels.
    splits: one row per split, with the numbers of files, rejected files and images.
    classes: one row per class, with its number of images in each split.
    shared: one row per pair of splits, and per split with itself: images of the one and
        of the other that have a copy there, copies, and copies of each match.
    rejects: the number of files by their problem.
    conflicts: one row per cluster with several labels: cluster, images, labels.
    others: the number of images of each dataset of `--against`, by its name.
    overlap: the pairs with these datasets, of `compare_datasets`.
    gaps: sentences about what was not searched.
    name, out_dir, command, unread: as in `Dataset`.
    """

    name: str
    out_dir: str
    command: str
    settings: DuplicateSettings
    images: pd.DataFrame
    copies: pd.DataFrame
    splits: pd.DataFrame
    classes: pd.DataFrame
    shared: pd.DataFrame
    rejects: dict[str, int]
    conflicts: pd.DataFrame
    others: dict[str, int]
    overlap: pd.DataFrame
    gaps: list[str]
    unread: Sequence[str]

    @property
    def found(self) -> bool:
        """Return whether there is a copy, a conflict of labels or a rejected file.

        A copy in another dataset is one.
        """
        return bool(len(self.copies) or len(self.overlap) or self.rejects)

    @property
    def n_images(self) -> int:
        """Return the number of images that were compared."""
        return int(self.splits["images"].sum())

    @property
    def n_leaking(self) -> int:
        """Return the number of images that have a copy in another split."""
        split = self.images["split"].to_numpy()
        is_leak = split[self.copies["a"]] != split[self.copies["b"]]
        return np.unique(self.copies.loc[is_leak, ["a", "b"]]).size

    @property
    def badge(self) -> str:
        """Return the result in a line, such as "0 of 7,774 images leak at 25 bits"."""
        count = self.n_leaking
        verb = "leak"
        if len(self.splits) == 1:
            count = int((self.images["cluster"] >= 0).sum())
            verb = "have a copy"
        details = " or by details" if self.settings.second_look else ""
        text = (
            f"{count:,} of {self.n_images:,} images {verb} "
            f"at {self.settings.max_bits} bits{details}"
        )
        if self.others:
            text += f"; {self.overlap['a'].nunique():,} are also in other datasets"
        return text


def judge(
    dataset: Dataset,
    pairs: pd.DataFrame,
    clusters: pd.DataFrame,
    settings: DuplicateSettings,
) -> AuditResult:
    """Return what an audit found.

    pairs, clusters, settings: of 02, see `accept_pairs` and `load_clusters`.
    """
    images = match_clusters(dataset.images, clusters)
    copies = _list_copies(images, pairs, dataset.hashes, settings)
    splits = _count_splits(images)
    reasons = name_reasons(images).value_counts()
    sizes = dataset.others["dataset"].value_counts(sort=False)
    return AuditResult(
        name=dataset.name,
        out_dir=dataset.out_dir,
        command=dataset.command,
        settings=settings,
        images=images,
        copies=copies,
        splits=splits,
        classes=_count_classes(images, dataset.labels),
        shared=_count_shared(images, copies, list(splits.index)),
        rejects={str(reason): int(count) for reason, count in reasons.items()},
        conflicts=_list_conflicts(images),
        others={str(name): n for name, n in sizes.items()},
        overlap=compare_datasets(dataset.hashes, dataset.others, settings),
        gaps=list(_list_gaps(dataset, settings)),
        unread=dataset.unread,
    )


def _list_copies(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
) -> pd.DataFrame:
    """Return the copies; see `AuditResult`."""
    beyond = pairs_added(pairs, hashes, settings.max_bits)
    match = pd.Series("hash", pairs.index)
    match[beyond.index] = "mirrored"
    if "inliers" in beyond:  # -1: not verified
        match[beyond.index[beyond["inliers"] >= 0]] = "details"
    columns = pairs[["a", "b", "distance"]].assign(match=match)
    copies = find_copies(images, columns)

    a = copies["a"]
    b = copies["b"]
    digest = images["digest"].to_numpy()
    label = images["label"].to_numpy()
    is_labelled = (label[a] >= 0) & (label[b] >= 0)
    is_equal = digest[a] == digest[b]
    return copies.assign(
        match=copies["match"].mask(is_equal, "file"),
        conflict=is_labelled & (label[a] != label[b]),
    )


def name_reasons(images: pd.DataFrame) -> pd.Series:
    """Return the reasons of the rejected files, without their details."""
    rejected = images["problem"][images["problem"] != ""]
    return rejected.str.replace(r"(?s):.*", "", regex=True)


def _count_splits(images: pd.DataFrame) -> pd.DataFrame:
    """Return files, rejected and images of each split."""
    is_rejected = images["problem"] != ""
    groups = is_rejected.groupby(images["split"])
    n_files = groups.size()
    n_rejected = groups.sum()
    splits = pd.DataFrame(
        {
            "files": n_files,
            "rejected": n_rejected,
            "images": n_files - n_rejected,
        }
    )
    return splits.loc[list_splits(images["split"])]


def _count_classes(images: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return the number of images of each class in each split, none without labels."""
    good = images[images["problem"] == ""]
    if labels.class_columns:
        blanks = pd.Series(labels.blanks())
        has_label = good[list(labels.class_columns)].ne(blanks)
        counts = has_label.groupby(good["split"]).sum().T
    else:
        labelled = good[good["label"] >= 0]
        counts = pd.crosstab(labelled["label_name"], labelled["split"])
    splits = list_splits(images["split"])
    return counts.reindex(columns=splits, fill_value=0).rename_axis(None)


def _count_shared(
    images: pd.DataFrame,
    copies: pd.DataFrame,
    splits: Sequence[str],
) -> pd.DataFrame:
    """Count the images and copies of each pair of splits; see `AuditResult`."""
    split = images["split"].to_numpy()
    split_a = split[copies["a"]]
    split_b = split[copies["b"]]
    rows = []
    for name, other in combinations_with_replacement(splits, 2):
        between = copies[(split_a == name) & (split_b == other)]
        counts = {
            "split": name,
            "other": other,
            "images": between["a"].nunique(),
            "other_images": between["b"].nunique(),
            "copies": len(between),
        }
        if name == other:
            n_images = np.unique(between[["a", "b"]]).size
            counts |= {"images": n_images, "other_images": n_images}
        matches = between["match"].value_counts()
        rows.append(counts | {match: int(matches.get(match, 0)) for match in MATCHES})
    return pd.DataFrame(rows)


def _list_conflicts(images: pd.DataFrame) -> pd.DataFrame:
    """Return the clusters with several labels; test images count if they have one."""
    members = images[(images["cluster"] >= 0) & (images["label"] >= 0)]
    names = members.groupby("cluster")["label_name"]
    conflicts = pd.DataFrame(
        {
            "images": names.size(),
            "labels": names.unique().map(sorted).str.join(", "),
        }
    )
    is_conflict = names.nunique() >= 2
    return conflicts[is_conflict].reset_index()


def _list_gaps(dataset: Dataset, settings: DuplicateSettings) -> Iterator[str]:
    """Yield sentences about what was not searched, the most general one last."""
    if len(list_splits(dataset.images["split"])) == 1:
        yield "Leaks: the input has one split."
    if dataset.unread:
        yield (
            f"Files outside the layout that was read: {len(dataset.unread):,} images "
            "or shards."
        )
    n_rejected = int((dataset.images["problem"] != "").sum())
    if n_rejected:
        yield f"Rejected files: {n_rejected:,} could not be compared."
    if len(dataset.others):
        yield (
            "Crops, and copies with borders or other colours, in other datasets: their "
            "images are not here for a second look."
        )
    yield _describe_second_look(settings)
    if not settings.mirrored:
        yield "Mirrored and rotated copies: they were not searched."
    yield "Copies rotated by other than right angles: only some were found."
    n_flat = int(_find_flat(dataset.hashes).sum())
    if n_flat:
        yield (
            f"Images with almost no texture: {n_flat:,} were compared only as files, "
            "byte for byte."
        )
    if (dataset.images["label"] < 0).all():
        yield "Conflicts of labels: no labels were read."
    yield (
        "Different images of the same object, scene, patient or recording, and images "
        "that only mean the same: they are not copies."
    )


def _find_flat(hashes: pd.DataFrame) -> pd.Series:
    """Return which good images have almost no texture."""
    return (hashes["problem"] == "") & (hashes["texture"] < FLAT)


def _describe_second_look(settings: DuplicateSettings) -> str:
    """Return what the second look missed. Source of the shares: docs/duplicates.md."""
    smaller = "Crops that keep less than nine tenths of each side: most were not found"
    radius = f"up to {settings.candidate_bits} of 256 bits"
    if settings.second_look == "all":
        return f"{smaller}. The second look verified all pairs {radius}."
    if settings.second_look == "nearest":
        return (
            f"{smaller}; nor were about half of the larger crops. The second look "
            f"verified only the most similar pairs {radius}."
        )
    return (
        "Crops, and copies with borders or other colours: most were not found, because "
        "the second look was not made."
    )
