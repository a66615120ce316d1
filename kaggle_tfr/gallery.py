"""The clusters of near-duplicates with small images, for the gallery of a page."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pandas as pd
from PIL import Image

from kaggle_tfr import parallel, storage
from kaggle_tfr.deduplicate import geometry, overrides
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.schema import Labels

MAX_IMAGES = 600  # less than 3 MB of thumbnails
MAX_OF_CLUSTER = 24
MAX_CLASSES = 1000  # whose names are proposed as labels
SIDE = 160  # pixels of a thumbnail
QUALITY = 60  # of WebP
# Clusters with two labels are first, then those in two splits, then the farthest; in a
# cluster the kept images are first, and of these the one that the others are copies of.
ORDER = ["is_conflict", "is_leak", "farthest", "cluster", "keep", "distance"]

Row = dict[Any, Any]  # values by the names of columns


@dataclass(frozen=True)
class Gallery:
    """The clusters to inspect first.

    clusters: the rows of their images, with columns of duplicates.parquet; n_images,
        is_conflict and is_leak of the cluster; height, width, name (unique), thumbnail
        (WebP, base64) and matrix, of SVG, which puts the image on the first one (the
        short side of each is 1 long); [] within the radius, or without a transform.
    n_clusters: of all clusters, displayed or not.
    classes: the names to propose as labels; without any, labels cannot be changed.
    decisions: image_id, action and value of the rows of OVERRIDES that the run had;
        None for a page on which nothing can be decided.
    """

    clusters: Sequence[Sequence[Row]]
    n_clusters: int
    classes: Sequence[str]
    decisions: Sequence[Sequence[str]] | None


def make_gallery(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    labels: Labels,
    decisions: Sequence[Sequence[str]] | None = (),
    max_bits: int = 256,
) -> Gallery:
    """Return the clusters in `ORDER` with thumbnails, at most `MAX_IMAGES` images.

    images, clusters: of 01 and 02. max_bits: the radius of 02; images beyond it are
    aligned by their geometry.
    """
    displayed = _choose_displayed(
        clusters.assign(is_far=clusters["distance"] > max_bits)
    )
    displayed = displayed.merge(_name_images(images), on=["image_id", "split"])
    groups = [
        group.to_dict("records")
        for _, group in displayed.groupby("cluster", sort=False)
    ]
    rows = [row for group in groups for row in group]
    tasks = [
        (row["path"], group[0]["path"] if row["is_far"] else "")
        for group in groups
        for row in group
    ]
    drawn = parallel.run(_draw, tasks, label="Thumbnails")
    for row, (thumbnail, matrix) in zip(rows, drawn, strict=True):
        row["thumbnail"] = thumbnail
        row["matrix"] = matrix
    is_single = labels.kind == "single"
    return Gallery(
        clusters=groups,
        n_clusters=clusters["cluster"].nunique(),
        classes=[*number_names(labels.classes)][:MAX_CLASSES] if is_single else [],
        decisions=decisions,
    )


def _choose_displayed(clusters: pd.DataFrame) -> pd.DataFrame:
    """Return the first images in `ORDER`, of each cluster at most 24."""
    of_cluster = clusters.groupby("cluster")
    names = clusters["label_name"].where(clusters["label_name"] != "")
    members = clusters.assign(
        n_images=of_cluster["image_id"].transform("size"),
        # The labels of test images count, too.
        is_conflict=names.groupby(clusters["cluster"]).transform("nunique") > 1,
        is_leak=of_cluster["split"].transform("nunique") > 1,
        farthest=of_cluster["distance"].transform("max"),
    )
    is_ascending = [column == "distance" for column in ORDER]
    members = members.sort_values(ORDER, ascending=is_ascending)
    position = members.groupby("cluster").cumcount()
    return members[position < MAX_OF_CLUSTER].head(MAX_IMAGES)


def _name_images(images: pd.DataFrame) -> pd.DataFrame:
    """Return image_id, split, height, width and name of the good images.

    The name is the id, or "test/1.jpg" if images of two splits have the id "1.jpg".
    """
    columns = ["image_id", "split", "height", "width"]
    good = images.loc[images["problem"] == "", columns]
    is_repeated = good["image_id"].duplicated(keep=False)
    full_name = good["split"] + "/" + good["image_id"]
    return good.assign(name=good["image_id"].mask(is_repeated, full_name))


def _draw(task: tuple[str, str]) -> tuple[str, list[float]]:
    """Return the thumbnail of an image, and the matrix that puts it on another one.

    task: the paths of both; "" for no other one.
    """
    path, other_path = task
    thumbnail = Image.fromarray(load_pixels(path, SIDE))
    thumbnail.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    webp = BytesIO()
    thumbnail.save(webp, "WEBP", quality=QUALITY)
    matrix = geometry.align(other_path, path) if other_path else None
    numbers = [] if matrix is None else matrix.T.ravel().tolist()
    return b64encode(webp.getvalue()).decode(), numbers


def read_decisions(work_dir: str) -> list[list[str]]:
    """Return image_id, action and value of each decision that 02 has applied."""
    path = storage.join(work_dir, overrides.FILE)
    columns = overrides.COLUMNS
    return storage.read_parquet(path, columns=columns).to_numpy().tolist()
