"""Propose pairs of images that share details, such as crops, whatever their hashes.

A detail is one of the strongest SIFT features of an image. Its description becomes a
code of 256 bits, the signs of random projections: similar descriptions have codes that
differ in few bits, so they are searched like the hashes of images.

Source: Charikar, "Similarity Estimation Techniques from Rounding Algorithms", 2002.
"""

import numpy as np
import pandas as pd

from kaggle_tfr import parallel
from kaggle_tfr.deduplicate.geometry import (
    UNDO,
    Features,
    are_near,
    find_features,
    have_files,
    root_sift,
)
from kaggle_tfr.deduplicate.pairs import measure_pairs
from kaggle_tfr.deduplicate.search import compare_all, near_pairs
from kaggle_tfr.explore.cache import BLOCK
from kaggle_tfr.images.hashing import FLAT, HASHES, ROTATION_BITS

MAX_DETAILS = 64  # of an image, the strongest
DETAIL_BITS = 25  # the radius, of 256 bits
SAMPLE = 4096  # details
MAX_REPETITIONS = 8  # of a detail in the sample


def propose_copies(
    images: pd.DataFrame,
    hashes: pd.DataFrame,
    pairs: pd.DataFrame,
    max_bits: int = 25,
    is_new: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return the pairs and those that share two details, for `verify_geometry`.

    images: those without a file (see `have_files`) are in no proposed pair.
    hashes, pairs: of `load_hashes` and `find_pairs`, with `rotated_bits`.
    is_new: as in `find_pairs`.
    Images that share mirrored details are proposed as mirror images.
    """
    rows = _choose_rows(images, hashes)
    codes, position = _encode_images(images["path"].iloc[rows])
    row = rows[position]
    is_new_detail = None if is_new is None else is_new[row]
    words = hashes[[*HASHES, *ROTATION_BITS]].to_numpy(np.uint64)
    candidates = _list_orientations(_count_votes(codes, row, is_new_detail))
    proposed = measure_pairs(words, candidates)

    is_near = are_near(pairs, max_bits)
    table = pd.concat([pairs[is_near], proposed, pairs[~is_near]])
    table = table.drop_duplicates(["a", "b"])
    return table.sort_values(["a", "b"], ignore_index=True)


def _choose_rows(images: pd.DataFrame, hashes: pd.DataFrame) -> np.ndarray:
    """Return the rows of good images with texture and a file."""
    is_good = hashes["problem"] == ""
    is_flat = hashes["texture"] < FLAT
    return np.flatnonzero(is_good & ~is_flat & have_files(images))


def _list_orientations(votes: pd.DataFrame) -> pd.DataFrame:
    """Return each pair in four orientations, because details do not contain it.

    The nearest of the four by the hashes will be proposed.
    """
    candidates = votes.loc[votes.index.repeat(4), ["a", "b"]]
    orientations = UNDO[votes["mirrored"]]
    return candidates.assign(orientation=orientations.ravel())


def _encode_images(paths: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of all details, and the position of each one's image in `paths`.

    A code also describes the mirrored detail: uint8 (n, 64).
    """
    results = parallel.run(
        _encode_block,
        parallel.blocks(paths.tolist(), BLOCK),
        label="Describing details",
        total=len(paths),
        advance=len,
        ordered=True,
    )
    codes = [code for block in results for code in block]
    n_details = [len(code) for code in codes]
    position = np.repeat(np.arange(len(paths)), n_details)
    no_codes = np.empty((0, 64), np.uint8)
    return np.concatenate([no_codes, *codes]), position


def _encode_block(paths: list[str]) -> list[np.ndarray]:
    """Return codes of each image's details, and of these mirrored: uint8 (n, 64)."""
    rng = np.random.default_rng(0)
    planes = rng.standard_normal((128, 256)).astype(np.float32)
    # Descriptors are never negative: their common part must not decide the bits.
    planes -= planes.mean(axis=0)
    return [_encode_details(find_features(path), planes) for path in paths]


def _encode_details(
    features: Features,
    planes: np.ndarray,
) -> np.ndarray:
    """Return the codes of an image: on which side of each plane its details are."""
    order = np.argsort(-features.strength, kind="stable")
    strongest = order[:MAX_DETAILS]
    plain = root_sift(features.descriptors[strongest])
    mirrored = root_sift(features.mirror().descriptors[strongest])
    projections = np.hstack([plain @ planes, mirrored @ planes])
    return np.packbits(projections > 0, axis=1)


def _count_votes(
    codes: np.ndarray,
    row: np.ndarray,
    is_new: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return pairs of images that share two details or more: mirrored, a, b.

    codes: uint8 (n, 64) of details and of these mirrored. row: of the image, int64
        (n,), ascending. is_new: bool (n,), details of new images; each pair has one.
    mirrored: 1 if the details of a are in the mirror image of b, else 0.
    """
    is_rare = _count_repetitions(codes[:, :32]) <= MAX_REPETITIONS
    is_new = None if is_new is None else is_new[is_rare]
    shared = _find_shared_details(codes[is_rare], row[is_rare], is_new)
    pairs = shared.drop_duplicates().groupby(["mirrored", "a", "b"])
    votes = pairs.size().reset_index(name="size")
    votes = votes[votes["size"] > 1]
    votes = votes.sort_values("size", kind="stable", ascending=False)
    return votes.drop_duplicates(["a", "b"])


def _find_shared_details(
    codes: np.ndarray,
    row: np.ndarray,
    is_new: np.ndarray | None,
) -> pd.DataFrame:
    """Return pairs of images with near details: mirrored, a < b, detail (of a)."""
    plain_then_mirrored = np.concatenate(np.hsplit(codes, 2))
    is_new_code = None if is_new is None else np.tile(is_new, 2)
    detail, near = near_pairs(plain_then_mirrored, DETAIL_BITS, is_new=is_new_code)
    is_plain = detail < len(row)
    detail = detail[is_plain]
    mirrored, near = np.divmod(near[is_plain], len(row))
    shared = pd.DataFrame(
        {
            "mirrored": mirrored,
            "a": row[detail],
            "b": row[near],
            "detail": detail,
        }
    )
    return shared[shared["a"] < shared["b"]]


def _count_repetitions(codes: np.ndarray) -> np.ndarray:
    """Count how many of a sample of the details are near each detail: int64 (n,).

    A detail of many images, such as a watermark, would pair all of them.
    """
    codes = np.ascontiguousarray(codes)
    order = np.random.default_rng(0).permutation(len(codes))
    sample = codes[order[:SAMPLE]]
    counts = np.zeros(len(codes), np.int64)
    for _, near in compare_all(sample, codes, DETAIL_BITS):
        counts += np.bincount(near, minlength=len(codes))
    return counts
