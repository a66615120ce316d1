"""Verify pairs by their geometry: whether the same details are in the same places.

Each image is described by SIFT features: places with a description of the pixels around
them. Features with similar descriptions in two images are matched. If one shift,
rotation and scale carries at least 12 of the matched places of one image onto those of
the other (the inliers of RANSAC), both show the same scene.

Sources: Lowe, 2004 (SIFT, ratio test); Arandjelović and Zisserman, 2012 (RootSIFT).
"""

from functools import lru_cache

import cv2
import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import are_near
from kaggle_tfr.explore.cache import compute_columns
from kaggle_tfr.images.convert import load_pixels

SIDE = 192  # pixels of the short side: more costs time and blurs small images
MIN_INLIERS = 12
MAX_WITNESSED = 500  # pairs within MAX_BITS that are compared
ROTATED = (1, 8, 3, 6)  # EXIF orientations after 0 to 3 quarter turns to the right

# Places x and y in pixels, float32 (n, 2), and their descriptors, uint8 (n, 128).
Features = tuple[np.ndarray, np.ndarray]


def verify_geometry(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    settings: DuplicateSettings,
    work_dir: str = "",
) -> pd.DataFrame:
    """Return the pairs with the columns inliers (int64), verdict and accepted (bool).

    images: columns path and n_bytes. pairs: of `find_candidates`; a and b are row
    numbers of `images`.
    inliers: places of image a that one shift, rotation and scale carries onto places
    of image b; -1 for a pair that is not compared.
    verdict: "hash" within MAX_BITS (see `are_near`), "geometry" with 12 inliers, else
    "rejected", which is not accepted. With SECOND_LOOK, the first 500 pairs within
    MAX_BITS are compared, too, for information: they stay accepted. Mirrored pairs are
    never compared. The orientation of a pair with 12 inliers becomes that of the
    transform.
    work_dir: `geometry.parquet` in it is saved during the work; a rerun reads it and
    verifies new pairs only.
    """
    is_near = are_near(pairs, settings)
    n_witnessed = MAX_WITNESSED if settings.second_look else 0
    # ROTATED: orientations without mirroring, because a transform cannot mirror.
    is_compared = ~is_near | (np.cumsum(is_near) <= n_witnessed)
    compared = pairs[is_compared & pairs["orientation"].isin(ROTATED)]
    verified = _compare_places(images, compared, work_dir).reindex(pairs.index)
    inliers = verified["inliers"].fillna(-1).astype(np.int64)
    is_verified = inliers >= MIN_INLIERS
    orientation = verified["orientation"].where(is_verified, pairs["orientation"])
    verdict = np.select([is_near, is_verified], ["hash", "geometry"], "rejected")
    return pairs.assign(
        orientation=orientation.astype(np.int64),
        inliers=inliers,
        verdict=verdict,
        accepted=is_verified | is_near,
    )


def _compare_places(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    work_dir: str,
) -> pd.DataFrame:
    """Compare the images of each pair; return a table with inliers and orientation.

    Its index is that of `pairs`; inliers and orientation are as in `_compare_block`.
    Known pairs are read from geometry.parquet: those whose paths and numbers of bytes
    are the same.
    images: columns path and n_bytes. pairs: a, b, row numbers of `images`.
    """
    files = pd.DataFrame(
        {
            f"{column}_{end}": images[column].to_numpy()[pairs[end]]
            for column in ("path", "n_bytes")
            for end in ("a", "b")
        }
    )
    table = compute_columns(
        _compare_block,
        files.assign(inliers=-1, orientation=1),  # with the dtypes of the results
        names=["inliers", "orientation"],
        key=[*files],
        path=work_dir and f"{work_dir}/geometry.parquet",
        label="Verifying geometry",
    )
    find_features.cache_clear()  # the files may change before the next call
    return table.set_axis(pairs.index)


def _compare_block(table: pd.DataFrame) -> list[tuple[int, int]]:
    """Return (inliers, orientation) of the images in path_a and path_b of each row.

    inliers: matching places, see `find_transform`. orientation: EXIF's number of the
    quarter turn (1, 8, 3 or 6) that rotates b as a is.
    """
    results = []
    for path_a, path_b in table[["path_a", "path_b"]].itertuples(index=False):
        transform, inliers = find_transform(path_a, path_b)
        # The complex number by which it multiplies x + yi; 0 if there is none.
        factor = complex(*transform[:, 0])
        quarters = round(np.angle(factor, deg=True) / 90) % 4
        results.append((inliers, ROTATED[quarters]))
    return results


# At most 56 kB each, mostly half of it. Unit vectors would need four times as much, and
# are computed from these in a hundredth of the time that the features take.
@lru_cache(1 << 15)
def find_features(path: str) -> Features:
    """Return at most 400 SIFT features of an image, none if it cannot be read.

    Two arrays: the places of the features, float32 (n, 2), x and y in pixels of the
    image at a short side of `SIDE` (192; narrow images are smaller), and descriptors of
    the pixels around them, uint8 (n, 128).
    """
    # Half of OpenCV's contrast threshold, because small images have few features.
    sift = cv2.SIFT.create(400, contrastThreshold=0.02)
    points, descriptors = sift.detectAndCompute(_load_grey(path), None)
    places = np.array(cv2.KeyPoint.convert(points), np.float32)
    if descriptors is None:
        descriptors = np.empty((0, 128))
    return places.reshape(-1, 2), descriptors.astype(np.uint8)


def _load_grey(path: str) -> np.ndarray:
    """Return an image in grey, uint8 (h, w); one shade if it cannot be read.

    Its short side has `SIDE` pixels, but its long side at most four times as many.
    """
    grey = cv2.cvtColor(load_pixels(path, SIDE), cv2.COLOR_RGB2GRAY)
    # Without the limit a narrow strip would become a huge image. At least one pixel is
    # left of its short side.
    short, long = sorted(grey.shape)
    scale = max(1 / short, min(SIDE / short, 4 * SIDE / long))
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return cv2.resize(grey, None, fx=scale, fy=scale, interpolation=method)


def find_transform(path_a: str, path_b: str) -> tuple[np.ndarray, int]:
    """Return the transform of places of image a to those of b, and how many fit it.

    The transform, float64 (2, 3), is a shift, rotation and scale as in
    `cv2.warpAffine`, in images with a short side of `SIDE` pixels. If none is found, it
    is all 0, with 0 places that fit (inliers).
    """
    features = find_features(path_a)  # places, and their descriptors
    others = find_features(path_b)
    transform = None
    if len(others[0]):  # `_match` needs one to choose from
        places, other_places = _match(features, others)
        if len(places) > 2:  # any two fit a transform exactly
            transform, is_inlier = cv2.estimateAffinePartial2D(
                places,
                other_places,
                ransacReprojThreshold=4,
            )
    # The scale, which is the length of the first column: copies are at most twice as
    # large as the other image, or half as large.
    if transform is None or not 0.5 <= np.hypot(*transform[:, 0]) <= 2:
        return np.zeros((2, 3)), 0
    return transform, int(is_inlier.sum())


def _match(features: Features, others: Features) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of matching features in both images, float32 (n, 2) each.

    Row i of both results is one match. features, others: of `find_features`; at least
    one of the others.
    """
    places, descriptors = features
    other_places, other_descriptors = others
    cosine = _to_vectors(descriptors) @ _to_vectors(other_descriptors).T
    nearest = cosine.argmax(axis=1)
    # Half the squared distance of unit vectors.
    distance = 1 - cosine.max(axis=1)
    # Without the best match of each feature, the maximum is the second best.
    np.put_along_axis(cosine, nearest[:, None], -1, axis=1)
    second_distance = 1 - cosine.max(axis=1)
    # Lowe's ratio test: the best match must be clearly nearer than the second best. The
    # ratio of 0.8 is squared as the distances are.
    matched = np.flatnonzero(distance < 0.8**2 * second_distance)
    # Each feature of the other image is matched once, or it would count several times.
    order = np.argsort(distance[matched], kind="stable")
    matched = matched[order]
    _, first = np.unique(nearest[matched], return_index=True)
    matched = matched[first]
    return places[matched], other_places[nearest[matched]]


def _to_vectors(descriptors: np.ndarray) -> np.ndarray:
    """Return descriptors as unit vectors, float32 (n, 128): RootSIFT.

    They are the square roots of the descriptors divided by their sums.
    """
    sums = descriptors.sum(axis=1, dtype=np.float32, keepdims=True)
    return np.sqrt(descriptors / np.maximum(sums, 1))
