"""Verify pairs by their geometry: whether the same details are in the same places.

Each image is described by SIFT features: places with a description of the pixels around
them. Features with similar descriptions in two images are matched. If one shift,
rotation and scale carries at least 12 of the matched places of one image onto those of
the other (the inliers of RANSAC), both show the same scene.

Sources: Lowe, 2004 (SIFT, ratio test); Arandjelović and Zisserman, 2012 (RootSIFT).
"""

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.explore.cache import compute_columns
from kaggle_tfr.images.convert import read_pixels
from kaggle_tfr.images.header import RejectedImage
from kaggle_tfr.images.orientation import CLOCKWISE_TURNS, INVERSE, compose
from kaggle_tfr.records import read_image_bytes

SIDE = 192  # pixels of the short side: more costs time and blurs small images
MIN_INLIERS = 12
MOST_NEAR = 500  # pairs within MAX_BITS that are compared, too: a second witness
CACHE = "geometry.parquet"  # in WORK_DIR
# Columns of geometry.parquet: see `load_transforms`.
TRANSFORM = ["x_x", "x_y", "x_0", "y_x", "y_y", "y_0"]
# Its computed columns, of a pair that is not verified yet.
UNKNOWN = {"inliers": -1, "orientation": 1, **dict.fromkeys(TRANSFORM, np.nan)}
# The EXIF orientation that rotates b as a is, by whether b is mirrored and by the
# number of quarter turns to the right from a to b, or to b mirrored.
UNDO = np.array(
    [[compose(mirror, INVERSE[turn]) for turn in CLOCKWISE_TURNS] for mirror in (1, 2)]
)


@dataclass(frozen=True)
class Features:
    """SIFT features of an image, maybe none.

    places: x and y in pixels, float32 (n, 2).
    descriptors: uint8 (n, 128).
    """

    places: np.ndarray
    descriptors: np.ndarray

    def mirror(self) -> "Features":
        """Return the features of the mirror image."""
        # A descriptor is a grid of 4 rows × 4 columns × 8 directions of edges.
        grid = self.descriptors.reshape(-1, 4, 4, 8)
        directions = -np.arange(8) % 8
        mirrored = grid[:, ::-1, :, directions]
        places = self.places * np.array([-1, 1], np.float32)
        return Features(places, mirrored.reshape(-1, 128))


NO_FEATURES = Features(np.empty((0, 2), np.float32), np.empty((0, 128), np.uint8))


def verify_geometry(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    work_dir: str = "",
    *,
    max_bits: int = 25,
) -> pd.DataFrame:
    """Return the pairs with the columns is_near, inliers (int64) and accepted.

    images: columns path and n_bytes; `pairs` contains its row numbers. A pair whose
    orientation is a mirror image is compared with the mirror image of b.
    is_near: within `max_bits` (see `are_near`). accepted: near, or by 12 inliers. The
    first 500 near pairs are compared, too; the others have -1 inliers. The orientation
    of a pair with 12 inliers becomes that of the transform.
    work_dir: `geometry.parquet` in it is saved during the work; a rerun reads it and
    verifies new pairs only. It contains the transforms: see `load_transforms`.
    """
    is_near = are_near(pairs, max_bits)
    is_first = np.cumsum(is_near) <= MOST_NEAR
    compared = pairs[~is_near | is_first]
    key = _identify(images, compared)
    table = compute_columns(
        _verify_block,
        key.assign(**UNKNOWN),
        names=[*UNKNOWN],
        key=[*key],
        path=work_dir and storage.join(work_dir, CACHE),
        label="Verifying geometry",
    )
    find_features.cache_clear()  # the files may change before the next call

    verified = table.set_axis(compared.index).reindex(pairs.index)
    inliers = verified["inliers"].fillna(-1).astype(np.int64)
    is_verified = inliers >= MIN_INLIERS
    orientation = verified["orientation"].where(is_verified, pairs["orientation"])
    return pairs.assign(
        orientation=orientation.astype(np.int64),
        is_near=is_near,
        inliers=inliers,
        accepted=is_verified | is_near,
    )


def _identify(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
) -> pd.DataFrame:
    """Return the paths and sizes of the files of each pair, and whether b is mirrored.

    A pair with the same values needs no second verification.
    """
    key = {
        f"{name}_{end}": images[column].to_numpy()[pairs[end]]
        for name, column in (("path", "path"), ("bytes", "n_bytes"))
        for end in ("a", "b")
    }
    return pd.DataFrame(key).assign(mirrored=np.isin(pairs["orientation"], UNDO[1]))


def are_near(pairs: pd.DataFrame, max_bits: int) -> pd.Series:
    """Return which pairs count without verification: bool, with the index of `pairs`.

    The radius of rotated pairs is four fifths of `max_bits`, because eight orientations
    are eight chances for two different images to have similar hashes.
    """
    is_rotated = pairs["orientation"] != 1
    return 5 * pairs["distance"] <= max_bits * (5 - is_rotated)


def _verify_block(table: pd.DataFrame) -> list[tuple[float, ...]]:
    """Return inliers, orientation and `TRANSFORM` of each pair."""
    pairs = table[["path_a", "path_b", "mirrored"]]
    return [_verify_pair(*pair) for pair in pairs.itertuples(index=False)]


def _verify_pair(path_a: str, path_b: str, is_mirrored: bool) -> tuple[float, ...]:
    """Return inliers, orientation and `TRANSFORM` of a pair."""
    features_a = find_features(path_a)
    features_b = find_features(path_b)
    if is_mirrored:
        features_b = features_b.mirror()
    transform, inliers = find_transform(features_a, features_b)
    # The complex number by which the transform multiplies x + yi; 0 if there is none.
    factor = complex(*transform[:, 0])
    quarters = round(np.angle(factor, deg=True) / 90) % 4
    orientation = int(UNDO[int(is_mirrored), quarters])

    onto_a = np.full((2, 3), np.nan)
    if inliers >= MIN_INLIERS:
        onto_a = np.asarray(cv2.invertAffineTransform(transform))
        onto_a[:, 2] /= SIDE
        if is_mirrored:
            onto_a[:, 0] *= -1
    return inliers, orientation, *onto_a.ravel()


def load_transforms(work_dir: str) -> dict[tuple[str, str], np.ndarray]:
    """Return the transforms of the pairs with 12 inliers by their paths (a, b).

    A transform, float64 (2, 3), moves image b onto image a: the point (x, y) of b to
    [[x_x, x_y, x_0], [y_x, y_y, y_0]] @ (x, y, 1) of a. Both are measured from the
    upper left corner, in units of the short side of their image. Each pair is there as
    (b, a), too.
    """
    path = storage.join(work_dir, CACHE)
    if not storage.exists(path):
        return {}
    table = storage.read_parquet(path)[["path_a", "path_b", *TRANSFORM]]
    transforms = {}
    for path_a, path_b, *values in table.dropna().itertuples(index=False):
        onto_a = np.array(values, np.float64).reshape(2, 3)
        transforms[path_a, path_b] = onto_a
        transforms[path_b, path_a] = np.asarray(cv2.invertAffineTransform(onto_a))
    return transforms


def root_sift(descriptors: np.ndarray) -> np.ndarray:
    """Return roots of descriptors scaled to sum 1: unit vectors, float32 (n, 128)."""
    sums = descriptors.sum(axis=1, keepdims=True, dtype=np.float32)
    return np.sqrt(descriptors / np.maximum(sums, 1e-6))


# At most 56 kB each, mostly half of it. Unit vectors would need four times as much, and
# are computed from these in a hundredth of the time that the features take.
@lru_cache(1 << 15)
def find_features(path: str) -> Features:
    """Return at most 400 features of an image, none if it cannot be read.

    Their places are those in the image with a short side of `SIDE` pixels.
    """
    try:
        pixels = read_pixels(read_image_bytes(path), at_least=(SIDE, SIDE))
    except (OSError, RejectedImage):
        return NO_FEATURES

    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    height, width = grey.shape
    scale = SIDE / min(height, width)
    # Without the limit a narrow strip would become a huge image.
    size = [min(round(side * scale), 4 * SIDE) for side in (width, height)]
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    grey = cv2.resize(grey, size, interpolation=method)
    # Half of OpenCV's contrast threshold, because small images have few features.
    sift = cv2.SIFT.create(400, contrastThreshold=0.02)
    points, descriptors = sift.detectAndCompute(grey, None)
    if descriptors is None:
        return NO_FEATURES
    places = np.array(cv2.KeyPoint.convert(points))
    return Features(places, descriptors.astype(np.uint8))


def find_transform(
    features: Features,
    others: Features,
) -> tuple[np.ndarray, int]:
    """Return the transform of places to places of the other image, and its inliers.

    The transform, float64 (2, 3), is a shift, rotation and scale as in
    `cv2.warpAffine`; it is 0 where none is found.
    """
    nothing = (np.zeros((2, 3)), 0)
    if not len(others.places):
        return nothing
    places, other_places = _match(features, others)
    if len(places) < 3:
        return nothing
    transform, is_inlier = cv2.estimateAffinePartial2D(
        places,
        other_places,
        ransacReprojThreshold=4,
    )
    # Copies are at most twice as large as the other image.
    if transform is None or not 0.5 <= np.hypot(*transform[:, 0]) <= 2:
        return nothing
    return transform, int(is_inlier.sum())


def _match(
    features: Features,
    others: Features,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of matching features in both images, float32 (n, 2) each."""
    cosine = root_sift(features.descriptors) @ root_sift(others.descriptors).T
    nearest = cosine.argmax(axis=1)
    # Half the squared distance of unit vectors.
    distance = 1 - cosine.max(axis=1)
    np.put_along_axis(cosine, nearest[:, None], -1, axis=1)
    second_distance = 1 - cosine.max(axis=1)
    # Lowe's ratio test: the best match must be clearly nearer than the second best.
    matched = np.flatnonzero(distance < 0.8**2 * second_distance)
    # Each feature of the other image is matched once, or it would count several times.
    matched = matched[np.argsort(distance[matched], kind="stable")]
    matched = matched[np.unique(nearest[matched], return_index=True)[1]]
    return features.places[matched], others.places[nearest[matched]]
