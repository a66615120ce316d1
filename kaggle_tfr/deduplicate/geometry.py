"""A second look at candidate pairs: whether their details lie in the same places."""

import time
from functools import lru_cache

import cv2
import numpy as np
import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.images.colour import RefusedImage
from kaggle_tfr.images.convert import read_pixels

SIDE = (
    192  # pixels: the short side that pictures are looked at; more costs time and blurs small ones
)


MAX_FEATURES = 400  # of a picture, the strongest


RATIO = 0.8  # Lowe's: the best match must be that much nearer than the second best


CONTRAST = 0.02  # half of what OpenCV takes: small pictures have few features


PIXELS_OFF = 4.0  # how far from its place a match may lie and still be an inlier


SCALES = 0.5, 2.0  # of one picture against the other


MIN_INLIERS = 12


BLOCK = 64  # pairs looked at by one task


MAX_HELD = 4096  # pictures whose features are kept: about 55 kB each


SAMPLE = 64


SECONDS_BETWEEN_SAVES = 30


KEY = ["path_a", "path_b"]


COLUMNS = [*KEY, "bytes_a", "bytes_b", "inliers"]


def verify_geometry(images, pairs, work_dir="", *, max_bits=25, min_inliers=MIN_INLIERS):
    """The pairs with columns inliers (int64) and accepted (bool) added.

    images: columns path and n_bytes; its rows are what `pairs` numbers. Of each pair SIFT features
    are matched and a similarity transform fitted; inliers counts the matches that it explains.
    accepted: within `max_bits` by their hashes, or at least `min_inliers`.

    `second_look.parquet` in work_dir is saved as the work goes on, and not done again.
    Source: Lowe, "Distinctive Image Features from Scale-Invariant Keypoints"; Arandjelović and
    Zisserman, "Three things everyone should know to improve object retrieval" (RootSIFT).
    """
    find_features.cache_clear()  # of an earlier call, since when files may have changed
    table = _name(images, pairs)
    cache_path = storage.join(work_dir, "second_look.parquet") if work_dir else ""
    inliers = _known_inliers(table, cache_path)
    # Sorted, so that the features of a picture serve its pairs one after another.
    todo = np.flatnonzero(inliers < 0)
    todo = todo[np.lexsort((table["path_b"].to_numpy()[todo], table["path_a"].to_numpy()[todo]))]
    a, b = table["path_a"].to_numpy(), table["path_b"].to_numpy()
    items = [(rows, a[rows], b[rows]) for rows in parallel.blocks(todo, BLOCK)]
    wait_until = time.monotonic() + SECONDS_BETWEEN_SAVES
    for rows, found in parallel.run(
        _look_at_block, items, label="Looking again", total=len(todo), advance=lambda r: len(r[0])
    ):
        inliers[rows] = found
        if cache_path and time.monotonic() > wait_until:
            _save(table.assign(inliers=inliers), cache_path)
            wait_until = time.monotonic() + SECONDS_BETWEEN_SAVES
    if cache_path and len(todo):
        _save(table.assign(inliers=inliers), cache_path)
    accepted = (pairs["distance"].to_numpy() <= max_bits) | (inliers >= min_inliers)
    return pairs.assign(inliers=inliers, accepted=accepted)


def estimate_geometry_seconds(images, pairs, *, seed=0):
    """Seconds that `verify_geometry` will take here, from looking at 64 of the pairs."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(pairs))[:SAMPLE])
    table = _name(images, pairs.iloc[chosen])
    paths = list(dict.fromkeys([*table["path_a"], *table["path_b"]]))
    start = time.monotonic()
    for path in paths:
        find_features(path)
    a_picture = (time.monotonic() - start) / max(1, len(paths))
    start = time.monotonic()
    for a, b in zip(table["path_a"], table["path_b"], strict=True):
        count_inliers(find_features(a), find_features(b))
    a_pair = (time.monotonic() - start) / max(1, len(chosen))
    n_pictures = len(np.union1d(pairs["a"], pairs["b"]))
    return n_pictures * a_picture + len(pairs) * a_pair


@lru_cache(MAX_HELD)
def find_features(path):
    """(float32 (n, 2) places, float32 (n, 128) RootSIFT descriptors); none when unreadable."""
    try:
        pixels = read_pixels(storage.read_bytes(path), at_least=(SIDE, SIDE))
    except (OSError, RefusedImage):
        return np.empty((0, 2), np.float32), np.empty((0, 128), np.float32)
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    scale = SIDE / min(grey.shape)
    # A strip of a picture must not become a wall of one.
    size = [max(1, min(round(side * scale), 4 * SIDE)) for side in grey.shape[::-1]]
    grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    detector = cv2.SIFT_create(MAX_FEATURES, contrastThreshold=CONTRAST)
    points, descriptors = detector.detectAndCompute(grey, None)
    places = np.float32([point.pt for point in points]).reshape(-1, 2)
    if descriptors is None:
        return places, np.empty((0, 128), np.float32)
    return places, np.sqrt(descriptors / np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-6))


def count_inliers(features, others):
    """How many matches of two pictures' features one similarity transform explains."""
    (places, descriptors), (other_places, other_descriptors) = features, others
    if min(len(places), len(other_places)) < 3:
        return 0
    likeness = descriptors @ other_descriptors.T  # of unit vectors: 1 - half the distance squared
    best = likeness.argmax(axis=1)
    rows = np.arange(len(best))
    nearest = 1 - likeness[rows, best]
    likeness[rows, best] = -1
    matched = np.flatnonzero(nearest < RATIO**2 * (1 - likeness.max(axis=1)))
    matched = matched[np.argsort(nearest[matched], kind="stable")]
    # A feature that many match to would count as many inliers.
    matched = matched[np.unique(best[matched], return_index=True)[1]]
    if len(matched) < 3:
        return 0
    transform, inlier = cv2.estimateAffinePartial2D(
        places[matched],
        other_places[best[matched]],
        method=cv2.RANSAC,
        ransacReprojThreshold=PIXELS_OFF,
    )
    if transform is None or not SCALES[0] <= np.hypot(*transform[:, 0]) <= SCALES[1]:
        return 0
    return int(inlier.sum())


def _look_at_block(item):
    rows, a, b = item
    pairs = zip(a, b, strict=True)
    return rows, [count_inliers(find_features(x), find_features(y)) for x, y in pairs]


def _name(images, pairs):
    """The pairs by path and size: what their inliers depend on."""
    path, n_bytes = images["path"].to_numpy(), images["n_bytes"].to_numpy()
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    return pd.DataFrame(
        {"path_a": path[a], "path_b": path[b], "bytes_a": n_bytes[a], "bytes_b": n_bytes[b]}
    )


def _known_inliers(table, cache_path):
    """int64 (n,): from the cache, -1 where it does not know."""
    inliers = np.full(len(table), -1, np.int64)
    if not cache_path or not storage.exists(cache_path):
        return inliers
    cache = storage.read_parquet(cache_path)
    key = COLUMNS[:-1]
    place = pd.MultiIndex.from_frame(cache[key]).get_indexer(pd.MultiIndex.from_frame(table[key]))
    return np.where(place >= 0, cache["inliers"].to_numpy()[place], -1) if len(cache) else inliers


def _save(table, cache_path):
    known = table[table["inliers"] >= 0].drop_duplicates(COLUMNS[:-1])
    storage.write_parquet(known, cache_path)
