"""Prepare pairs of near-duplicates for tables and figures."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.images.hashing import HASHES
from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation

Pictures = list[tuple[np.ndarray, np.ndarray]]
Titles = list[tuple[str, str]]


def count_by_radius(
    images: pd.DataFrame, pairs: pd.DataFrame, radii: Iterable[int]
) -> pd.DataFrame:
    """Count the pairs within each radius, and how many of them have the same label.

    images: column label; `pairs` contains its row numbers. radii: ascending.
    Columns: radius (bits), pairs, agree (share of those with two labels), new (pairs
    beyond the previous radius), new_agree. A share of no pairs is NaN.
    """
    label = images["label"].to_numpy()
    label_a = label[pairs["a"]]
    label_b = label[pairs["b"]]
    agrees = pd.Series(label_a == label_b, dtype=float)
    agrees[(label_a < 0) | (label_b < 0)] = np.nan

    radii = list(radii)
    smallest_radius = np.searchsorted(radii, pairs["distance"])
    new = agrees.groupby(smallest_radius).agg(["size", "sum", "count"])
    new = new.reindex(range(len(radii)), fill_value=0)
    within = new.cumsum()
    return pd.DataFrame(
        {
            "radius": radii,
            "pairs": within["size"],
            "agree": within["sum"] / within["count"],
            "new": new["size"],
            "new_agree": new["sum"] / new["count"],
        }
    )


def examples_around(
    pairs: pd.DataFrame, radius: int, count: int = 6
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the `count` pairs just within the radius and the `count` just beyond it.

    The pairs nearest the radius come first.
    """
    ordered = pairs.sort_values("distance", kind="stable")
    within = ordered[ordered["distance"] <= radius]
    beyond = ordered[ordered["distance"] > radius]
    return within.iloc[::-1].head(count), beyond.head(count)


def pairs_added(
    pairs: pd.DataFrame, hashes: pd.DataFrame, max_bits: int
) -> pd.DataFrame:
    """Return the pairs over `max_bits` apart when no image is rotated."""
    words = hashes[[*HASHES]].to_numpy(np.uint64)
    differing = np.bitwise_count(words[pairs["a"]] ^ words[pairs["b"]])
    return pairs[differing.sum(axis=1) > max_bits]


def pairs_of_clusters(
    images: pd.DataFrame, clusters: pd.DataFrame, by: str = "label_name"
) -> pd.DataFrame:
    """Return a pair per cluster: the image kept, and an image that differs in `by`.

    by: "label_name", or "keep" for an image that is dropped. Clusters without such an
    image, and test images, are left out. Columns: a, b (row numbers of `images`),
    distance.
    """
    clusters = clusters[clusters["split"] != "test"]
    # Images with the hashes of the one kept are 0 steps from it, too.
    clusters = clusters.sort_values(
        ["cluster", "keep", "steps"], kind="stable", ascending=[True, False, True]
    )
    kept = clusters.drop_duplicates("cluster").set_index("cluster")
    differs = clusters[by] != clusters["cluster"].map(kept[by])
    other = clusters[differs].drop_duplicates("cluster")

    is_good = (images["problem"] == "") & (images["split"] != "test")
    row = pd.Series(np.flatnonzero(is_good), images["image_id"][is_good])
    return pd.DataFrame(
        {
            "a": row[kept["image_id"][other["cluster"]]].to_numpy(),
            "b": row[other["image_id"]].to_numpy(),
            "distance": other["distance"].to_numpy(),
        }
    )


def load_pairs(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    most: int = 12,
    outcomes: Sequence[str] = (),
) -> tuple[Pictures, Titles]:
    """Load the first `most` pairs: two pixel arrays and two titles for each pair.

    pairs: of `find_pairs` or `verify_geometry`, or their columns a, b and distance. If
    a pair has an orientation, its second picture is rotated as the first one is.
    outcomes: of the first and of the second images, such as "kept" and "dropped";
        titles then contain them and the sizes in place of the labels.
    """
    pairs = pairs.head(most)
    rows = images.iloc[np.append(pairs["a"], pairs["b"])]
    captions = _describe_sizes(rows, outcomes) if outcomes else _describe_labels(rows)
    loaded = load_pixels(list(rows["path"]), side=200)
    titles = rows["image_id"].astype(str).tolist()
    for number, pair in enumerate(pairs.to_dict("records"), len(pairs)):
        loaded[number] = apply_orientation(loaded[number], pair.get("orientation", 1))
        titles[number] += ": " + _describe_distance(pair)
    titles = [f"{title}\n{text}" for title, text in zip(titles, captions, strict=True)]
    return _split_pairs(loaded), _split_pairs(titles)


def _describe_sizes(rows: pd.DataFrame, outcomes: Sequence[str]) -> list[str]:
    """Return texts such as "kept 640 × 480"; one outcome for each half of the rows."""
    sizes = zip(rows["width"], rows["height"], strict=True)
    outcome = np.repeat(outcomes, len(rows) // len(outcomes))
    return [
        f"{word} {width} × {height}"
        for word, (width, height) in zip(outcome, sizes, strict=True)
    ]


def _describe_labels(rows: pd.DataFrame) -> list[str]:
    """Return label names, and splits other than train; row k is paired with k + n/2."""
    pair_number = np.tile(np.arange(len(rows) // 2), 2)
    split = (" (" + rows["split"] + ")").where(rows["split"] != "train", "")
    return (name_labels(rows, pair_number) + split).str.strip().tolist()


def _split_pairs(values: list[Any]) -> list[tuple[Any, Any]]:
    """Pair the first half of the values with the second half."""
    half = len(values) // 2
    return list(zip(values[:half], values[half:], strict=True))


def _describe_distance(pair: dict[Any, Any]) -> str:
    unit = "bit" if pair["distance"] == 1 else "bits"
    texts = [f"{pair['distance']} {unit}"]
    if "inliers" in pair:
        texts.append(f"{pair['inliers']} matches")
    if pair.get("orientation", 1) > 1:
        texts.append(ORIENTATIONS[pair["orientation"]].name)
    return ", ".join(texts)


def name_labels(images: pd.DataFrame, group: np.ndarray) -> pd.Series:
    """Return the label names, with the source where a group has several sources."""
    if "source" not in images:
        return images["label_name"]
    labelled_source = images["source"].where(images["split"] != "test")
    n_sources = labelled_source.groupby(group).transform("nunique")
    source = " (source " + images["source"].astype(str) + ")"
    return images["label_name"] + source.where(n_sources > 1, "")
