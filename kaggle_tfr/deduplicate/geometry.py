"""Geometric verification of candidate pairs: whether their details lie in the same places."""

from functools import lru_cache

import cv2
import numpy as np
import pandas as pd

from kaggle_tfr import parallel, storage
from kaggle_tfr.deduplicate.pairs import compare_all, measure_pairs, near_pairs
from kaggle_tfr.explore.cache import BLOCK, compute_columns
from kaggle_tfr.images.convert import read_pixels
from kaggle_tfr.images.hashing import FLAT, HASHES, TURNED
from kaggle_tfr.images.header import RefusedImage

SIDE = 192  # pixels of the short side: more costs time and blurs small pictures
KEY = ["path_a", "path_b", "bytes_a", "bytes_b", "mirrored"]
DETAILS = 64  # the strongest of a picture by which it is looked for
DETAIL_BITS = 25  # of 256: of one detail in two pictures
# By quarters of a turn to the right, from a to b, or to b mirrored: EXIF's orientation, from 0,
# that undoes it.
UNDO = np.array([[0, 7, 2, 5], [1, 4, 3, 6]])
ACROSS = np.array([-1, 1], np.float32)  # what mirrors a place
Features = tuple[np.ndarray, ...]  # places, descriptors, strength


def propose_copies(
    images: pd.DataFrame, hashes: pd.DataFrame, pairs: pd.DataFrame, max_bits: int = 25
) -> pd.DataFrame:
    """The pairs, and others that share two details or more, as candidates for `verify_geometry`.

    hashes, pairs: of `load_hashes` and `find_pairs`, with `turned_bits`. Details are SIFT features,
    so that crops and turned pictures share them, mirrored ones mirrored details. Each is 256
    bits, the signs of random projections, and sought as hashes are.
    Source: Charikar, "Similarity Estimation Techniques from Rounding Algorithms", 2002.
    """
    rows = np.flatnonzero((hashes["problem"] == "") & (hashes["texture"] >= FLAT))
    tasks = parallel.blocks(images["path"].iloc[rows].tolist(), BLOCK)
    show: dict = {"label": "Describing details", "total": len(rows), "advance": len}
    found = parallel.run(_encode_block, tasks, **show, ordered=True)
    blocks = [codes for block in found for codes in block]
    row = np.repeat(rows, [len(codes) for codes in blocks])
    votes = _count_votes(np.concatenate([np.empty((0, 64), np.uint8), *blocks]), row)
    words, turned = (
        hashes[[*HASHES, *TURNED]].to_numpy(np.uint64),
        UNDO[votes["mirrored"]],
    )
    ends = (np.repeat(votes[end].to_numpy(), 4) for end in "ab")
    near = _are_near(pairs, max_bits)
    proposed = measure_pairs(words, turned.ravel(), *ends)
    table = pd.concat([pairs[near], proposed, pairs[~near]]).drop_duplicates(["a", "b"])
    return table.sort_values(["a", "b"], ignore_index=True)


def _count_votes(codes: np.ndarray, row: np.ndarray) -> pd.DataFrame:
    """Columns mirrored (0, 1), a, b, votes (2 or more): details of a that b or its mirror has.

    codes: uint8 (n, 64) of details and of these mirrored; row: int64 (n,), of the picture.
    """
    plain, few = np.ascontiguousarray(codes[:, :32]), np.zeros(len(codes), np.int64)
    # What many pictures have, such as a printed mark, would pair each of them with each.
    sample = plain[np.random.default_rng(0).permutation(len(codes))[:4096]]
    for _, found in compare_all(sample, plain, DETAIL_BITS):
        few += np.bincount(found, minlength=len(codes))
    codes, row = codes[few <= 8], row[few <= 8]
    mirrored, one, other = near_pairs(
        codes, DETAIL_BITS, np.arange(512).reshape(2, 256)
    )
    shared = pd.DataFrame(
        {"mirrored": mirrored, "a": row[one], "b": row[other], "detail": one}
    )
    shared = shared[shared["a"] != shared["b"]].drop_duplicates()
    votes = shared.groupby(["mirrored", "a", "b"]).size().reset_index(name="votes")
    votes = votes[votes["votes"] > 1].sort_values(
        "votes", kind="stable", ascending=False
    )
    return votes.drop_duplicates(["a", "b"])


def _encode_block(paths: list[str]) -> list[np.ndarray]:
    """Of each picture uint8 (n, 64): codes of its strongest details, and of them mirrored."""
    planes = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)
    # All details are brighter than nothing: what they have in common says nothing of them.
    planes -= planes.mean(axis=0)
    codes = []
    for _, descriptors, strength in map(find_features, paths):
        strongest = descriptors[np.argsort(-strength, kind="stable")[:DETAILS]]
        both = [
            root_sift(one) @ planes > 0
            for one in (strongest, mirror_features(strongest))
        ]
        codes.append(np.packbits(np.concatenate(both, axis=1), axis=1))
    return codes


def verify_geometry(
    images: pd.DataFrame, pairs: pd.DataFrame, work_dir: str = "", *, max_bits: int = 25
) -> pd.DataFrame:
    """The pairs with columns inliers (int64) and accepted (bool) added.

    images: columns path and n_bytes; its rows are what `pairs` numbers. inliers: matches of SIFT
    features that one similarity transform explains, mirrored where `orientation`, if there, says
    so; of those accepted by it, it is then the transform's. accepted: within `max_bits`, within
    four fifths of it if turned, or by 12 inliers.
    `geometry.parquet` in work_dir is saved as the work goes on, and its pairs not verified again.
    Source: Lowe, 2004 (SIFT, ratio test); Arandjelović and Zisserman, 2012 (RootSIFT).
    """
    # By what the inliers depend on.
    columns = [
        images[name].to_numpy()[pairs[x]] for name in ("path", "n_bytes") for x in "ab"
    ]
    mirrored = np.isin(pairs.get("orientation", np.ones(len(pairs))), UNDO[1] + 1)
    table = pd.DataFrame(dict(zip(KEY, [*columns, mirrored], strict=True)))
    table = table.assign(inliers=np.int64(-1), orientation=np.int64(1))
    path = work_dir and storage.join(work_dir, "geometry.parquet")
    names, show = ["inliers", "orientation"], {"label": "Verifying geometry"}
    table = compute_columns(_count_block, table, names, KEY, path, **show)
    find_features.cache_clear()  # until the next call files may change
    inliers = table["inliers"].to_numpy()
    accepted = _are_near(pairs, max_bits) | (inliers >= 12)
    if "orientation" in pairs:
        fits = np.where(inliers >= 12, table["orientation"], pairs["orientation"])
        pairs = pairs.assign(orientation=fits)
    return pairs.assign(inliers=inliers, accepted=accepted)


def _are_near(pairs: pd.DataFrame, max_bits: int) -> np.ndarray:
    """Which pairs count as they are: hashes of turned pictures are nearer to others by chance."""
    turned = pairs.get("orientation", pd.Series(1, pairs.index)) != 1
    return (
        pairs["distance"] <= np.where(turned, max_bits * 4 // 5, max_bits)
    ).to_numpy()


def pairs_added(
    pairs: pd.DataFrame, hashes: pd.DataFrame, max_bits: int
) -> pd.DataFrame:
    """Those that the plain search leaves out: over `max_bits` apart as the pictures stand."""
    words = hashes[[*HASHES]].to_numpy(np.uint64)
    apart = np.bitwise_count(words[pairs["a"]] ^ words[pairs["b"]]).sum(axis=1)
    return pairs[apart > max_bits]


def _count_block(table: pd.DataFrame) -> list[tuple[int, int]]:
    """(inliers, orientation by which b is turned as a is) of each pair."""
    counts = []
    for a, b, mirrored in table[["path_a", "path_b", "mirrored"]].itertuples(
        index=False
    ):
        places, descriptors, _ = find_features(b)
        if mirrored:
            places, descriptors = places * ACROSS, mirror_features(descriptors)
        inliers, quarters = count_inliers(find_features(a), (places, descriptors))
        counts.append((inliers, int(UNDO[int(mirrored), quarters]) + 1))
    return counts


def mirror_features(descriptors: np.ndarray) -> np.ndarray:
    """What SIFT says of the same details in a mirror image: 4 rows × 4 columns × 8 directions."""
    turned = descriptors.reshape(-1, 4, 4, 8)[:, ::-1, :, [0, 7, 6, 5, 4, 3, 2, 1]]
    return turned.reshape(-1, 128)


def root_sift(descriptors: np.ndarray) -> np.ndarray:
    """float32 (n, 128): unit vectors."""
    sums = descriptors.sum(axis=1, keepdims=True, dtype=np.float32)
    return np.sqrt(descriptors / np.maximum(sums, 1e-6))


@lru_cache(8192)  # at most 56 kB each
def find_features(path: str) -> Features:
    """(float32 (n, 2) places, uint8 (n, 128) of SIFT, float32 (n,) strength), maybe of none."""
    none = (
        np.empty((0, 2), np.float32),
        np.empty((0, 128), np.uint8),
        np.empty(0, np.float32),
    )
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
    strength = np.array([point.response for point in points], np.float32)
    return places, descriptors.astype(np.uint8), strength


def count_inliers(features: Features, others: Features) -> tuple[int, int]:
    """(how many matches one similarity transform explains, its quarters of a turn to the right)."""
    (places, descriptors), (other_places, other_descriptors) = features[:2], others[:2]
    if min(len(places), len(other_places)) < 3:
        return 0, 0
    # Of unit vectors: 1 - half the distance squared.
    cosine = root_sift(descriptors) @ root_sift(other_descriptors).T
    best, nearest = cosine.argmax(axis=1), 1 - cosine.max(axis=1)
    np.put_along_axis(cosine, best[:, None], -1, axis=1)
    # Lowe's ratio: the best match must be that much nearer than the second best.
    matched = np.flatnonzero(nearest < 0.8**2 * (1 - cosine.max(axis=1)))
    matched = matched[np.argsort(nearest[matched], kind="stable")]
    # A feature that many match to would count as many inliers.
    matched = matched[np.unique(best[matched], return_index=True)[1]]
    if len(matched) < 3:
        return 0, 0
    start, end = (
        places[matched],
        other_places[best[matched]],
    )  # by RANSAC, within four pixels
    transform, inlier = cv2.estimateAffinePartial2D(start, end, ransacReprojThreshold=4)
    # One picture is at most twice as large as the other.
    if transform is None or not 0.5 <= np.hypot(*transform[:, 0]) <= 2:
        return 0, 0
    quarters = np.arctan2(transform[1, 0], transform[0, 0]) / (np.pi / 2)
    return int(inlier.sum()), round(quarters) % 4
