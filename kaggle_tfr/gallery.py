"""The clusters of near-duplicates with small images, for the gallery of report.html."""

import csv
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import Any

import pandas as pd
from PIL import Image

from kaggle_tfr import parallel, storage
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.schema import Labels

MAX_IMAGES = 600  # less than 3 MB of thumbnails
MAX_OF_CLUSTER = 24
MAX_CLASSES = 1000  # whose names are proposed as labels
SIDE = 160  # pixels of a thumbnail
QUALITY = 60  # of WebP

Row = dict[Any, Any]  # values by the names of columns


@dataclass(frozen=True)
class Cluster:
    """A cluster with its first images.

    splits: those of all its images. has_second_look: an image is in it because its
    details match, not because of its hashes.
    images: columns of duplicates.parquet; height, width, name (unique), thumbnail
    (WebP, base64) and match, how it was found.
    """

    number: int
    n_images: int
    is_conflict: bool
    splits: Sequence[str]
    has_second_look: bool
    images: Sequence[Row]

    @property
    def is_leak(self) -> bool:
        """Return whether its images are in several splits."""
        return len(self.splits) > 1

    @property
    def subjects(self) -> list[str]:
        """Return the values of the page's filter that show the cluster."""
        subjects = {
            "conflict": self.is_conflict,
            "leak": self.is_leak,
            "second": self.has_second_look,
        }
        return [name for name, is_true in subjects.items() if is_true]


@dataclass(frozen=True)
class Gallery:
    """The clusters of a run, those to inspect first, and what its script needs.

    n_clusters, n_images, n_dropped: of all clusters, displayed or not.
    data: rows (name, keep, label) of the displayed images in order, classes, decisions.
    """

    clusters: Sequence[Cluster]
    n_clusters: int
    n_images: int
    n_dropped: int
    data: Row


def make_gallery(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    labels: Labels,
    decisions: Sequence[Sequence[str]] = (),
    max_bits: int = 256,
) -> Gallery:
    """Return the clusters with thumbnails, at most `MAX_IMAGES` images.

    Clusters with two labels or in two splits are first, then the largest ones.
    decisions: image_id, action and value of the rows of OVERRIDES that the run had.
    max_bits: the radius of 02; what is farther from its original was found by the
        second look.
    """
    members = _sort_members(_describe_matches(clusters, decisions, max_bits))
    displayed = _select_displayed(members)
    displayed = displayed.merge(_describe_images(images), on=["image_id", "split"])
    thumbnails = parallel.run(
        _make_thumbnail,
        displayed["path"],
        label="Thumbnails",
        ordered=True,
    )
    displayed["thumbnail"] = list(thumbnails)
    groups = displayed.groupby("cluster", sort=False)
    return Gallery(
        clusters=[_make_cluster(group) for _, group in groups],
        n_clusters=members["cluster"].nunique(),
        n_images=len(members),
        n_dropped=int((~members["keep"]).sum()),
        data={
            "rows": _list_rows(displayed, labels),
            "classes": [*number_names(labels.classes)][:MAX_CLASSES],
            "decisions": decisions,
        },
    )


def _describe_images(images: pd.DataFrame) -> pd.DataFrame:
    """Return image_id, split, height, width, label and name of the good images.

    The name is the id, or "test/1.jpg" if images of two splits have the id "1.jpg".
    """
    columns = ["image_id", "split", "height", "width", "label"]
    good = images.loc[images["problem"] == "", columns]
    is_repeated = good["image_id"].duplicated(keep=False)
    full_name = good["split"] + "/" + good["image_id"]
    return good.assign(name=good["image_id"].mask(is_repeated, full_name))


def _describe_matches(
    clusters: pd.DataFrame,
    decisions: Sequence[Sequence[str]],
    max_bits: int,
) -> pd.DataFrame:
    """Add is_second_look and match, such as "33 of 256 bits, confirmed by geometry"."""
    joined_by_user = {
        name
        for image_id, action, value in decisions
        if action == "same"
        for name in (image_id, value)
    }
    is_far = clusters["distance"] > max_bits
    is_direct = clusters["steps"] == 1
    is_second_look = is_far & is_direct & ~clusters["image_id"].isin(joined_by_user)
    match = clusters["distance"].astype(str) + " of 256 bits"
    match = match.mask(is_second_look, match + ", confirmed by geometry")
    match = match.where(clusters["distance"] > 0, "")
    return clusters.assign(is_second_look=is_second_look, match=match)


def _sort_members(clusters: pd.DataFrame) -> pd.DataFrame:
    """Return the clusters to inspect first before the others, then the largest ones.

    Within a cluster kept images are first, then one image of each split and label.
    Added columns: n_images, is_conflict, is_leak, has_second_look and splits of the
    cluster.
    """
    of_cluster = clusters.groupby("cluster")
    members = clusters.assign(
        n_images=of_cluster["image_id"].transform("size"),
        is_conflict=of_cluster["conflict"].transform("any"),
        is_leak=of_cluster["split"].transform("nunique") > 1,
        has_second_look=of_cluster["is_second_look"].transform("any"),
    )
    splits = of_cluster["split"].unique().map(sorted)
    members["splits"] = members["cluster"].map(splits)
    members = members.sort_values("keep", ascending=False, kind="stable")
    alike = members.groupby(["cluster", "split", "label_name"])
    is_plain = ~(members["is_conflict"] | members["is_leak"])
    members = members.assign(is_plain=is_plain, repetition=alike.cumcount())
    return members.sort_values(
        ["is_plain", "n_images", "cluster", "keep", "repetition"],
        ascending=[True, False, True, False, True],
        kind="stable",
    )


def _select_displayed(members: pd.DataFrame) -> pd.DataFrame:
    """Return the first images of each cluster, as many clusters as fit.

    members: of `_sort_members`.
    """
    position = members.groupby("cluster").cumcount()
    firsts = members[position < MAX_OF_CLUSTER]
    n_in_cluster = firsts.groupby("cluster", sort=False).size()
    is_within = n_in_cluster.cumsum() <= MAX_IMAGES
    return firsts[firsts["cluster"].isin(is_within.index[is_within])]


def _make_thumbnail(path: str) -> str:
    """Return the image in a square of `SIDE` pixels, as WebP in base64.

    A light grey square stands for an image that cannot be read any more.
    """
    (pixels,) = load_pixels([path], SIDE)
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    webp = BytesIO()
    image.save(webp, "WEBP", quality=QUALITY)
    return b64encode(webp.getvalue()).decode()


def _make_cluster(displayed: pd.DataFrame) -> Cluster:
    """Return a cluster with its displayed images."""
    images = displayed.to_dict("records")
    first = images[0]
    return Cluster(
        number=first["cluster"],
        n_images=first["n_images"],
        is_conflict=first["is_conflict"],
        splits=first["splits"],
        has_second_look=first["has_second_look"],
        images=images,
    )


def _list_rows(displayed: pd.DataFrame, labels: Labels) -> list[Row]:
    """Return name, keep and label of the images; None where it cannot be changed.

    Test images are always kept, and several labels are not one class.
    """
    rows = []
    for image in displayed.to_dict("records"):
        is_test = image["split"] == "test"
        has_class = labels.kind == "single" and image["label"] >= 0
        rows.append(
            {
                "name": image["name"],
                "keep": None if is_test else image["keep"],
                "label": image["label_name"] if has_class else None,
            }
        )
    return rows


def read_decisions(work_dir: str) -> list[list[str]]:
    """Return image_id, action and value of each decision that 02 has applied."""
    text = storage.read_text(storage.join(work_dir, "decisions.csv"))
    rows = csv.DictReader(StringIO(text, newline=""))
    return [[row["image_id"], row["action"], row["value"]] for row in rows]
