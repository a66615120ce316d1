"""Prepare pairs of near-duplicates for tables and figures."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.images.hashing import HASHES
from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation

RADIUS_COLUMNS = ["radius", "pairs", "agree", "new", "new_agree"]


def count_by_radius(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    radii: Iterable[int],
) -> pd.DataFrame:
    """Count the pairs within each radius, and how many of them have the same label.

    images: column label; `pairs` contains its row numbers. radii: ascending.
    Columns: radius (bits), pairs, agree (share of those with two labels), new (pairs
    beyond the previous radius), new_agree. A share of no pairs is NaN.
    """
    agrees = _compare_labels(images["label"].to_numpy(), pairs)
    distance = pairs["distance"].to_numpy()
    rows = []
    previous_radius = -1
    for radius in radii:
        is_within = distance <= radius
        within = agrees[is_within]
        new = agrees[is_within & (distance > previous_radius)]
        rows.append((radius, len(within), within.mean(), len(new), new.mean()))
        previous_radius = radius
    return pd.DataFrame(rows, columns=RADIUS_COLUMNS)


def _compare_labels(
    label: np.ndarray,
    pairs: pd.DataFrame,
) -> pd.Series:
    """Return 1 for pairs with the same label, 0 for others, NaN without two labels."""
    label_a = label[pairs["a"]]
    label_b = label[pairs["b"]]
    is_labelled = (label_a >= 0) & (label_b >= 0)
    agrees = pd.Series(label_a == label_b, dtype=float)
    return agrees.where(is_labelled)


def examples_around(
    pairs: pd.DataFrame,
    radius: int,
    count: int = 6,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the `count` pairs just within the radius and the `count` just beyond it.

    The pairs nearest the radius come first.
    """
    ordered = pairs.sort_values("distance", kind="stable")
    is_within = ordered["distance"] <= radius
    within = ordered[is_within].iloc[::-1]
    beyond = ordered[~is_within]
    return within.head(count), beyond.head(count)


def pairs_added(
    pairs: pd.DataFrame,
    hashes: pd.DataFrame,
    max_bits: int,
) -> pd.DataFrame:
    """Return the pairs over `max_bits` apart when no image is rotated."""
    words = hashes[[*HASHES]].to_numpy(np.uint64)
    differing = words[pairs["a"]] ^ words[pairs["b"]]
    return pairs[np.bitwise_count(differing).sum(axis=1) > max_bits]


def pairs_of_clusters(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    by: str = "label_name",
    *,
    all_images: bool = False,
) -> pd.DataFrame:
    """Return a pair per cluster: the image kept, and an image that differs in `by`.

    by: "label_name", or "keep" for an image that is dropped. Clusters without such an
    image, and test images, are left out. all_images: return a pair for each image that
    differs. Columns: a, b (row numbers of `images`), distance.
    """
    clusters = clusters[clusters["split"] != "test"]
    # Images with the hashes of the one kept are 0 steps from it, too.
    clusters = clusters.sort_values(
        ["cluster", "keep", "steps"],
        kind="stable",
        ascending=[True, False, True],
    )
    columns = clusters.groupby("cluster")[["image_id", by]]
    kept = columns.transform("first")
    is_differing = clusters[by] != kept[by]
    differing = clusters[is_differing]
    if not all_images:
        differing = differing.drop_duplicates("cluster")
    kept_id = kept["image_id"][differing.index]

    row = _number_labelled(images)
    return pd.DataFrame(
        {
            "a": row[kept_id].to_numpy(),
            "b": row[differing["image_id"]].to_numpy(),
            "distance": differing["distance"].to_numpy(),
        }
    )


def _number_labelled(images: pd.DataFrame) -> pd.Series:
    """Return the row numbers of the good images that are not test images, by id."""
    is_good = images["problem"] == ""
    is_test = images["split"] == "test"
    rows = np.flatnonzero(is_good & ~is_test)
    return pd.Series(rows, images["image_id"].iloc[rows])


def load_pairs(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    most: int = 12,
    outcomes: Sequence[str] = (),
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[str, str]]]:
    """Load the first `most` pairs: two pixel arrays and two titles for each pair.

    pairs: of `find_pairs` or `verify_geometry`, or their columns a, b and distance. If
    a pair has an orientation, its second image is rotated as the first one is.
    outcomes: of the first and of the second images, such as "kept" and "dropped";
        titles then contain them and the sizes in place of the labels.
    """
    pairs = pairs.head(most)
    ends = pairs[["a", "b"]].to_numpy()
    rows = images.iloc[ends.ravel()]
    pixels = load_pixels(list(rows["path"]), side=200)
    if "orientation" in pairs:
        pixels[1::2] = map(apply_orientation, pixels[1::2], pairs["orientation"])

    captions = _describe_sizes(rows, outcomes) if outcomes else _describe_labels(rows)
    names = _name_images(rows["image_id"], pairs)
    titles = map("\n".join, zip(names, captions, strict=True))
    return _pair(pixels), _pair(list(titles))


def _pair(values: list[Any]) -> list[tuple[Any, Any]]:
    """Return each value at an even position with the next value."""
    firsts = values[::2]
    seconds = values[1::2]
    return list(zip(firsts, seconds, strict=True))


def _describe_sizes(rows: pd.DataFrame, outcomes: Sequence[str]) -> list[str]:
    """Return texts such as "kept 640 × 480"; the outcomes alternate."""
    sizes = zip(rows["width"], rows["height"], strict=True)
    return [
        f"{outcome} {width} × {height}"
        for outcome, (width, height) in zip(cycle(outcomes), sizes, strict=False)
    ]


def _describe_labels(rows: pd.DataFrame) -> list[str]:
    """Return label names, and splits other than train."""
    split = " (" + rows["split"] + ")"
    split = split.where(rows["split"] != "train", "")
    caption = name_labels(rows) + split
    return caption.str.strip().tolist()


def _name_images(ids: pd.Series, pairs: pd.DataFrame) -> list[str]:
    """Return the ids of both images of each pair, the second with the distance."""
    names = list(ids)
    for number, pair in enumerate(pairs.to_dict("records")):
        names[2 * number + 1] += ": " + _describe_distance(pair)
    return names


def _describe_distance(pair: dict[Any, Any]) -> str:
    unit = "bit" if pair["distance"] == 1 else "bits"
    texts = [f"{pair['distance']} {unit}"]
    if pair.get("inliers", -1) >= 0:  # verified
        texts.append(f"{pair['inliers']} matches")
    if pair.get("orientation", 1) > 1:
        texts.append(ORIENTATIONS[pair["orientation"]].name)
    return ", ".join(texts)


def name_labels(images: pd.DataFrame) -> pd.Series:
    """Return the label names, with the source if an image is of a further input."""
    names = images["label_name"]
    if "source" in images and images["source"].any():
        names = names + " (source " + images["source"].astype(str) + ")"
    return names
