"""Prepare pairs of near-duplicates for tables and figures."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import cv2
import numpy as np
import pandas as pd
from scipy.cluster import hierarchy

from kaggle_tfr.deduplicate.pairs import words_to_codes
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.images.hashing import HASHES
from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation
from kaggle_tfr.tables import format_bytes

FULL_DIFFERENCE = 64  # grey levels that are drawn in the last colour


def examples_around(
    pairs: pd.DataFrame,
    radius: int,
    count: int = 6,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the `count` pairs just within the radius and the `count` just beyond it.

    The pairs nearest the radius come first; no image is in two of them.
    """
    ordered = pairs.sort_values("distance", kind="stable")
    is_within = ordered["distance"] <= radius
    within = ordered[is_within].iloc[::-1]
    beyond = ordered[~is_within]
    return choose_disjoint(within, count), choose_disjoint(beyond, count)


def choose_disjoint(pairs: pd.DataFrame, count: int) -> pd.DataFrame:
    """Return the first `count` pairs that share no image with an earlier one."""
    seen = set[int]()
    chosen: list[int] = []
    for position, ends in enumerate(zip(pairs["a"], pairs["b"], strict=True)):
        if len(chosen) == count:
            break
        if seen.isdisjoint(ends):
            chosen.append(position)
            seen.update(ends)
    return pairs.iloc[chosen]


def choose_verified(
    verified: pd.DataFrame,
    hashes: pd.DataFrame,
    max_bits: int,
    count: int = 12,
) -> pd.DataFrame:
    """Return `count` pairs beyond `max_bits`: confirmed ones, then rejected ones.

    The rejected pairs, a third of `count`, are those with the nearest hashes. An image
    is in one confirmed and in one rejected pair at most.
    verified: of `verify_candidates`.
    """
    is_accepted = verified["accepted"]
    added = pairs_added(verified[is_accepted], hashes, max_bits)
    rejected = verified[~is_accepted].sort_values("distance", kind="stable")
    nearest = choose_disjoint(rejected, count // 3)
    return pd.concat([choose_disjoint(added, count - len(nearest)), nearest])


def pairs_added(
    pairs: pd.DataFrame,
    hashes: pd.DataFrame,
    max_bits: int,
) -> pd.DataFrame:
    """Return the pairs over `max_bits` apart when no image is rotated."""
    return pairs[_count_bits(hashes, pairs["a"], pairs["b"]) > max_bits]


def _count_bits(hashes: pd.DataFrame, a: pd.Series, b: pd.Series) -> np.ndarray:
    """Return in how many of 256 bits the rows a and b of `hashes` differ: int (n,)."""
    words = hashes[[*HASHES]].to_numpy(np.uint64)
    return np.bitwise_count(words[a] ^ words[b]).sum(axis=1)


def pairs_of_clusters(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    by: str = "label_name",
) -> pd.DataFrame:
    """Return a pair per cluster: the image kept, and an image that differs in `by`.

    by: "label_name", or "keep" for an image that is dropped. Clusters without such an
    image, and test images, are left out. Columns: a, b (row numbers of `images`),
    distance.
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
    differing = clusters[is_differing].drop_duplicates("cluster")
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


def compare_pairs(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
) -> tuple[list[np.ndarray], list[str]]:
    """Load both images of each pair and a map of their difference, with captions.

    The map is black where the images are equal, and yellow from 64 grey levels on; the
    second image is rotated and resized to the first.
    """
    tiles: list[np.ndarray] = []
    captions: list[str] = []
    loaded, _ = load_pairs(images, pairs, most=len(pairs))
    for pair, (first, second) in zip(pairs.to_dict("records"), loaded, strict=True):
        rows = images.iloc[[pair["a"], pair["b"]]]
        height, width = first.shape[:2]
        fitted = cv2.resize(second, (width, height), interpolation=cv2.INTER_AREA)
        levels = cv2.absdiff(first, fitted).max(axis=2)
        tiles += [first, second, _color_difference(levels)]
        captions += _describe_files(rows)
        captions[-1] += f"\n{_describe_distance(pair)}"
        captions.append(_describe_difference(rows, levels))
    return tiles, captions


def _color_difference(levels: np.ndarray) -> np.ndarray:
    """Return grey levels as colours: black 0, red 32, yellow 64 or more."""
    scaled = cv2.convertScaleAbs(levels, alpha=255 / FULL_DIFFERENCE)  # 255 at most
    colors = cv2.applyColorMap(scaled, cv2.COLORMAP_INFERNO)
    return cv2.cvtColor(colors, cv2.COLOR_BGR2RGB)


def _describe_files(rows: pd.DataFrame) -> list[str]:
    """Return the id, the size and the bytes of each image."""
    columns = rows[["image_id", "width", "height", "n_bytes"]]
    return [
        f"{image_id}\n{width} × {height}, {format_bytes(n_bytes)}"
        for image_id, width, height, n_bytes in columns.itertuples(index=False)
    ]


def _describe_difference(rows: pd.DataFrame, levels: np.ndarray) -> str:
    first, second = rows["digest"]
    if first == second:
        return "the same bytes"
    if not levels.any():
        return "the same pixels"
    return f"mean {levels.mean():.1f} levels,\nat most {levels.max()}"


def arrange_by_hash(
    hashes: pd.DataFrame,
    pairs: pd.DataFrame,
    max_bits: int,
    count: int = 64,
) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` rows, sorted so that images with similar hashes are neighbours.

    Up to half of them are from the nearest pairs, the others from the other good
    images. The second array, bool, is whether each image is within `max_bits` of the
    image before it.
    """
    nearest = pairs.sort_values("distance", kind="stable")
    ends = nearest[["a", "b"]].to_numpy(np.int64)
    paired = pd.unique(ends.ravel())[: count // 2]
    good = np.flatnonzero(hashes["problem"] == "")
    others = np.setdiff1d(good, ends)
    n_others = min(count - len(paired), len(others))
    chosen = np.random.default_rng(0).choice(others, n_others, replace=False)
    rows = np.concatenate([paired, chosen])

    words = hashes[[*HASHES]].to_numpy(np.uint64)[rows]
    bits = np.unpackbits(words_to_codes(words), axis=1).astype(bool)
    if len(rows) > 1:
        tree = hierarchy.linkage(bits, "average", "hamming", optimal_ordering=True)
        order = hierarchy.leaves_list(tree)
        rows = rows[order]
        bits = bits[order]
    is_linked = np.zeros(len(rows), bool)
    is_linked[1:] = (bits[1:] != bits[:-1]).sum(axis=1) <= max_bits
    return rows, is_linked


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
    """Return the ids of both images of each pair, the second with the distance.

    The first contains that the pair was rejected.
    """
    names = list(ids)
    for number, pair in enumerate(pairs.to_dict("records")):
        if not pair.get("accepted", True):
            names[2 * number] = "rejected: " + names[2 * number]
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
