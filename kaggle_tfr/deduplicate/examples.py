"""Choose the images that show best what was found, for the picture of a whole run.

The choice is by rule, so the same command makes the picture of any dataset: the largest
truncated file; the copy that is smallest beside the image kept; a mirrored or rotated
copy, or else the copy that shows the least of the image kept; and of the pairs with two
labels or in two splits, the nearest that a comparison of files would not find. Copies
must have equal pixels where they overlap: two photographs of one scene are no example.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.display import pairs_of_clusters
from kaggle_tfr.deduplicate.geometry import (
    MIN_INLIERS,
    UNDO,
    find_features,
    find_transform,
    read_grey,
)
from kaggle_tfr.explore.examples import load_damaged
from kaggle_tfr.images.convert import load_pixels
from kaggle_tfr.waterfall import Example

SIDE = 400  # pixels of an example; of a larger JPEG, up to twice as many
MOST_FILES = 20  # truncated files that are tried
MOST_PAIRS = 200  # pairs that are aligned
SAME_PIXELS = 0.97  # correlation; two photographs of one scene have less
WHOLE = 0.95  # share of an image; a copy that shows less is cropped
RESIZED = 1.2  # ratio of the widths of the two images of a pair


@dataclass(frozen=True)
class Alignment:
    """How image b fits image a.

    orientation: of EXIF; rotates b as a is.
    corners: of b in a, as shares of a's width and height, float64 (4, 2).
    share: of a that b shows.
    agreement: correlation of the grey levels where both overlap.
    """

    orientation: int
    corners: np.ndarray
    share: float
    agreement: float


def show_truncated(images: pd.DataFrame) -> list[Example]:
    """Return the largest truncated file with readable rows, as most libraries show it.

    images: the rejected rows. The list is empty if there is no such file.
    """
    is_truncated = images["problem"].str.startswith("truncated")
    truncated = images[is_truncated].sort_values(
        "n_bytes",
        ascending=False,
        kind="stable",
    )
    tiles, _ = load_damaged(truncated.head(MOST_FILES), most=1)
    caption = ("its end is lost",)
    return [Example("truncated file", (pixels,), caption) for pixels in tiles]


def show_conflict(images: pd.DataFrame, clusters: pd.DataFrame) -> list[Example]:
    """Return the nearest images with different labels, or no example."""
    pairs = pairs_of_clusters(images, clusters[clusters["conflict"]])
    pairs = _sort_nearest(images, pairs).head(1)
    return [
        Example("two labels", _load(images, pair), _take(images, pair, "label_name"))
        for pair in pairs.to_dict("records")
    ]


def show_leak(images: pd.DataFrame, leaks: pd.DataFrame) -> list[Example]:
    """Return the nearest images in two splits, or no example.

    leaks: columns of leaks.csv.
    """
    pairs = pd.DataFrame(
        {
            "a": _number_rows(images, leaks["test_id"], leaks["test_split"]),
            "b": _number_rows(images, leaks["image_id"], leaks["split"]),
            "distance": leaks["distance"].astype(int).to_numpy(),
        }
    )
    pairs = _sort_nearest(images, pairs).head(1)
    examples = []
    for pair in pairs.to_dict("records"):
        splits = _take(images, pair, "split")
        labels = _take(images, pair, "label_name")
        captions = [
            f"in {split}: {label}" if label else f"in {split}"
            for split, label in zip(splits, labels, strict=True)
        ]
        heading = f"found in {splits[1]}"
        examples.append(Example(heading, _load(images, pair), tuple(captions)))
    return examples


def _number_rows(
    images: pd.DataFrame,
    image_ids: pd.Series,
    splits: pd.Series,
) -> np.ndarray:
    """Return the row numbers of the good images with these ids and splits."""
    rows = np.flatnonzero(images["problem"] == "")
    good = images.iloc[rows]
    keys = pd.MultiIndex.from_arrays([good["image_id"].astype(str), good["split"]])
    wanted = pd.MultiIndex.from_arrays([image_ids, splits])
    return pd.Series(rows, keys).loc[wanted].to_numpy()


def show_copies(images: pd.DataFrame, clusters: pd.DataFrame) -> list[Example]:
    """Return up to two copies: a resized one, and a mirrored or else a cropped one.

    Another copy is returned if none of these was found, no example without copies.
    """
    is_single = ~clusters["conflict"]
    is_direct = clusters["steps"] <= 1
    pairs = pairs_of_clusters(
        images,
        clusters[is_single & is_direct],
        by="keep",
        all_images=True,
    )
    pairs = _sort_nearest(images, pairs.assign(ratio=_compare_widths(images, pairs)))
    likeliest = pd.concat(
        [
            pairs.nlargest(MOST_PAIRS // 2, "ratio"),
            pairs.nlargest(MOST_PAIRS // 2, "distance"),
        ]
    )
    likeliest = likeliest.drop_duplicates(["a", "b"])
    aligned = likeliest.join(_align_pairs(images, likeliest))
    is_same = aligned["agreement"] >= SAME_PIXELS
    chosen = _choose_copies(aligned[is_same])
    if chosen.empty:
        chosen = pairs.head(1).assign(heading="copy", corners=None)
    return [_show_copy(images, pair) for pair in chosen.to_dict("records")]


def _compare_widths(images: pd.DataFrame, pairs: pd.DataFrame) -> np.ndarray:
    """Return how many times as wide as the other the wider image of each pair is.

    It is 1 if the file of an image is gone, whose width is unknown.
    """
    width = images["width"].to_numpy(float)
    width[width == 0] = np.nan
    ratio = width[pairs["a"]] / width[pairs["b"]]
    return np.nan_to_num(np.maximum(ratio, 1 / ratio), nan=1)


def _choose_copies(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the most striking pair of each type, with its heading."""
    is_upright = pairs["orientation"] == 1
    is_whole = pairs["share"] >= WHOLE
    is_resized = pairs["ratio"] >= RESIZED

    resized = pairs[is_upright & is_whole & is_resized].nlargest(1, "ratio")
    resized = resized.assign(heading="resized copy", corners=None)

    rotated = pairs[~is_upright].nlargest(1, "agreement")
    is_mirrored = rotated["orientation"].isin(UNDO[1])
    headings = np.where(is_mirrored, "mirrored copy", "rotated copy")
    rotated = rotated.assign(heading=headings, corners=None)

    cropped = pairs[is_upright & ~is_whole].nsmallest(1, "share")
    cropped = cropped.assign(heading="cropped copy")
    return pd.concat([resized, cropped if rotated.empty else rotated])


def _show_copy(images: pd.DataFrame, pair: dict) -> Example:
    """Return the image kept and the copy, with the part that a cropped copy shows."""
    width, width_of_copy = _take(images, pair, "width")
    height, height_of_copy = _take(images, pair, "height")
    is_resized = pair["heading"] == "resized copy"
    return Example(
        pair["heading"],
        _load(images, pair),
        captions=(f"{width} × {height} kept", f"{width_of_copy} × {height_of_copy}"),
        scale=width_of_copy / width if is_resized else 1.0,
        outline=pair["corners"],
    )


def _sort_nearest(images: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs with the nearest hashes first, of these the largest images.

    Pairs of equal files are last.
    """
    digest = images["digest"].to_numpy()
    pixels = images["width"].to_numpy(np.int64) * images["height"].to_numpy(np.int64)
    order = pd.DataFrame(
        {
            "equal": digest[pairs["a"]] == digest[pairs["b"]],
            "distance": pairs["distance"].to_numpy(),
            "smallness": -pixels[pairs["a"]],
        }
    )
    order = order.sort_values([*order], kind="stable")
    return pairs.iloc[order.index].reset_index(drop=True)


def _load(images: pd.DataFrame, pair: dict) -> tuple[np.ndarray, ...]:
    """Load both images of a pair."""
    return tuple(load_pixels(_take(images, pair, "path"), SIDE))


def _take(images: pd.DataFrame, pair: dict, column: str) -> tuple:
    """Return the values of a column for both images of a pair."""
    return tuple(images[column].iloc[[pair["a"], pair["b"]]])


def _align_pairs(images: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the fields of `Alignment` for the pairs that could be aligned."""
    path = images["path"].to_numpy()
    rows = {}
    for index, a, b in zip(
        pairs.index, path[pairs["a"]], path[pairs["b"]], strict=True
    ):
        alignment = align(a, b)
        if alignment:
            rows[index] = vars(alignment)
    find_features.cache_clear()  # the files may change before the next call
    columns = ["orientation", "corners", "share", "agreement"]
    table = pd.DataFrame.from_dict(rows, "index", columns=columns)
    # Without rows, no column is of numbers.
    return table.astype({"share": float, "agreement": float})


def align(path_a: str, path_b: str) -> Alignment | None:
    """Return how image b fits image a; None if fewer than 12 features match."""
    features_a = find_features(path_a)
    features_b = find_features(path_b)
    upright, inliers = find_transform(features_a, features_b)
    mirrored, mirrored_inliers = find_transform(features_a, features_b.mirror())
    if max(inliers, mirrored_inliers) < MIN_INLIERS:
        return None

    grey_a = read_grey(path_a)
    grey_b = read_grey(path_b)
    is_mirrored = mirrored_inliers > inliers
    if not is_mirrored:
        return _measure(grey_a, grey_b, upright, UNDO[0])
    # The places of the mirror image are negative.
    mirrored[0, 2] += grey_b.shape[1] - 1
    return _measure(grey_a, grey_b[:, ::-1], mirrored, UNDO[1])


def _measure(
    grey_a: np.ndarray,
    grey_b: np.ndarray,
    transform: np.ndarray,
    orientations: Sequence[int],
) -> Alignment:
    """Return how b fits a, when `transform` carries places of a to b.

    orientations: of b after 0 to 3 quarter turns to the right.
    """
    size_a = grey_a.shape[::-1]
    size_b = grey_b.shape[::-1]
    carried = cv2.warpAffine(grey_a, transform, size_b)
    overlap = cv2.warpAffine(np.ones_like(grey_a), transform, size_b) > 0
    agreement = np.corrcoef(carried[overlap], grey_b[overlap])[0, 1]

    inverse = cv2.invertAffineTransform(transform)
    covered = cv2.warpAffine(np.ones_like(grey_b), inverse, size_a)
    width, height = size_b
    corners = np.array([(0, 0, 1), (width, 0, 1), (width, height, 1), (0, height, 1)])
    degrees = np.angle(complex(*transform[:, 0]), deg=True)
    return Alignment(
        orientation=int(orientations[round(degrees / 90) % 4]),
        corners=corners @ inverse.T / size_a,
        share=float(covered.mean()),
        agreement=float(agreement),
    )
