"""Geometric verification of candidate pairs: whether their details lie in the same places."""

import time
from functools import lru_cache

import cv2
import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.images.convert import read_pixels
from kaggle_tfr.images.header import RefusedImage
from kaggle_tfr.parallel import compute_columns

SIDE = 192  # pixels of the short side: more costs time and blurs small pictures
KEY = ["path_a", "path_b", "bytes_a", "bytes_b"]
Features = tuple[np.ndarray, np.ndarray]


def verify_geometry(
    images: pd.DataFrame, pairs: pd.DataFrame, work_dir: str = "", *, max_bits: int = 25
) -> pd.DataFrame:
    """The pairs with columns inliers (int64) and accepted (bool) added.

    images: columns path and n_bytes; its rows are what `pairs` numbers. inliers: matches of SIFT
    features that one similarity transform explains. accepted: within `max_bits`, or 12 inliers.
    `geometry.parquet` in work_dir is saved as the work goes on, and its pairs not verified again.
    Source: Lowe, 2004 (SIFT, ratio test); Arandjelović and Zisserman, 2012 (RootSIFT).
    """
    find_features.cache_clear()  # of an earlier call, since when files may have changed
    table = _list_pairs(images, pairs).assign(inliers=np.int64(-1))
    path = work_dir and storage.join(work_dir, "geometry.parquet")
    table = compute_columns(_count_block, table, ["inliers"], KEY, path, label="Verifying geometry")
    inliers = table["inliers"].to_numpy()
    accepted = (pairs["distance"].to_numpy() <= max_bits) | (inliers >= 12)
    return pairs.assign(inliers=inliers, accepted=accepted)


def estimate_geometry_seconds(images: pd.DataFrame, pairs: pd.DataFrame) -> float:
    """Seconds that `verify_geometry` will take here, estimated from 64 of the pairs."""
    table = _list_pairs(images, pairs.sample(min(64, len(pairs)), random_state=0))
    paths, start = set(table["path_a"]) | set(table["path_b"]), time.monotonic()
    for path in paths:
        find_features(path)
    ready = time.monotonic()
    _count_block(table)
    seconds = (time.monotonic() - ready) / max(1, len(table)) * len(pairs)
    return seconds + (ready - start) / max(1, len(paths)) * len(np.union1d(pairs["a"], pairs["b"]))


def _list_pairs(images: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """The pairs by path and size, on which their inliers depend; the index counts from 0."""
    columns = [images[name].to_numpy()[pairs[x]] for name in ("path", "n_bytes") for x in "ab"]
    return pd.DataFrame(dict(zip(KEY, columns, strict=True)))


def _count_block(table: pd.DataFrame) -> list[tuple[int]]:
    pairs = zip(table["path_a"], table["path_b"], strict=True)
    return [(count_inliers(find_features(a), find_features(b)),) for a, b in pairs]


@lru_cache(4096)  # about 55 kB each
def find_features(path: str) -> Features:
    """(float32 (n, 2) places, float32 (n, 128) RootSIFT descriptors); none when unreadable."""
    none = np.empty((0, 2), np.float32), np.empty((0, 128), np.float32)
    try:
        pixels = read_pixels(storage.read_bytes(path), at_least=(SIDE, SIDE))
    except (OSError, RefusedImage):
        return none
    grey, scale = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), SIDE / min(pixels.shape[:2])
    # A narrow strip of a picture must not become a huge one.
    size = [max(1, min(round(side * scale), 4 * SIDE)) for side in grey.shape[::-1]]
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    grey = cv2.resize(grey, size, interpolation=method)
    # The strongest 400, at half of OpenCV's contrast: small pictures have few features.
    sift = cv2.SIFT.create(400, contrastThreshold=0.02)
    points, descriptors = sift.detectAndCompute(grey, None)
    if descriptors is None:
        return none
    places = np.array([point.pt for point in points], np.float32)
    return places, np.sqrt(descriptors / np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-6))


def count_inliers(features: Features, others: Features) -> int:
    """How many matches of two pictures' features one similarity transform explains."""
    (places, descriptors), (other_places, other_descriptors) = features, others
    if min(len(places), len(other_places)) < 3:
        return 0
    cosine = descriptors @ other_descriptors.T  # of unit vectors: 1 - half the distance squared
    best, nearest = cosine.argmax(axis=1), 1 - cosine.max(axis=1)
    np.put_along_axis(cosine, best[:, None], -1, axis=1)
    # Lowe's ratio: the best match must be that much nearer than the second best.
    matched = np.flatnonzero(nearest < 0.8**2 * (1 - cosine.max(axis=1)))
    matched = matched[np.argsort(nearest[matched], kind="stable")]
    # A feature that many match to would count as many inliers.
    matched = matched[np.unique(best[matched], return_index=True)[1]]
    if len(matched) < 3:
        return 0
    start, end = places[matched], other_places[best[matched]]  # by RANSAC, within four pixels
    transform, inlier = cv2.estimateAffinePartial2D(start, end, ransacReprojThreshold=4)
    # One picture is at most twice as large as the other.
    likely = transform is not None and 0.5 <= np.hypot(*transform[:, 0]) <= 2
    return int(inlier.sum()) if likely else 0
