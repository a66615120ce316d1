"""Which pictures to show, and the pictures, loaded small."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kaggle_tfr.images import RefusedImage, read_pixels
from kaggle_tfr.storage import exists, join, read_bytes, read_parquet

MISSING = np.full((64, 64, 3), 230, np.uint8)  # a light square in place of what cannot be read


def sample_per_class(images: pd.DataFrame, count: int, classes: int = 8) -> pd.DataFrame:
    """Up to `count` good images of each of the `classes` largest classes, the same every time."""
    good = images[images["problem"] == ""]
    largest = good["label_name"].value_counts().index[:classes]
    rows = [good[good["label_name"] == name].head(count) for name in largest]
    return pd.concat(rows) if rows else good


def load_pictures(paths: Sequence[str], side: int = 256) -> list[np.ndarray]:
    """uint8 (h, w, 3) arrays, decoded as small as `side` pixels allows; grey where unreadable."""
    return [_load_picture(path, side) for path in paths]


def _load_picture(path: str, side: int) -> np.ndarray:
    try:
        return read_pixels(read_bytes(path), at_least=(side, side))
    except (OSError, RefusedImage):
        return MISSING


def load_pairs(images: pd.DataFrame, pairs: pd.DataFrame, most: int = 12, side: int = 200):
    """(pictures, titles) of the first `most` pairs, as `plot_pairs` takes them.

    pairs: row numbers a, b of `images`, distance (bits), and inliers where there was a second look.
    """
    shown = pairs.head(most)
    left, right = images.iloc[shown["a"]], images.iloc[shown["b"]]
    pictures = zip(
        load_pictures(left["path"], side), load_pictures(right["path"], side), strict=True
    )
    why = [f"{bits} bits" for bits in shown["distance"]]
    if "inliers" in shown:
        why = [f"{said}, {n} matches" for said, n in zip(why, shown["inliers"], strict=True)]
    titles = [
        (f"{a.image_id}\n{a.label_name}", f"{b.image_id}: {said}\n{b.label_name}")
        for a, b, said in zip(left.itertuples(), right.itertuples(), why, strict=True)
    ]
    return list(pictures), titles


def pairs_of_clusters(images: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """One pair a cluster, for the eye: its first member and the first of another label, if any.

    Columns a, b (row numbers of `images`) and distance (bits).
    """
    rows = pd.Series(range(len(images)), images["image_id"].to_numpy())
    first = clusters.drop_duplicates("cluster").set_index("cluster")
    others = clusters[~clusters["image_id"].isin(first["image_id"])]
    differs = others["label_name"] != others["cluster"].map(first["label_name"])
    other = others[differs].drop_duplicates("cluster").set_index("cluster")
    a, b = (rows[table["image_id"]].to_numpy() for table in (first.loc[other.index], other))
    return pd.DataFrame({"a": a, "b": b, "distance": other["distance"].to_numpy()})


def find_sources(work_dir: str) -> dict[str, str]:
    """image_id → path of the source, from plan.parquet; {} where there is no plan."""
    path = join(work_dir, "plan.parquet")
    if not exists(path):
        return {}
    table = read_parquet(path, columns=["image_id", "path"])
    return dict(zip(table["image_id"], table["path"], strict=True))
