"""Propose pairs of images that share details, such as crops, whatever their hashes.

A detail is one of the strongest SIFT features of an image. Its description becomes a
code
of 256 bits, the signs of random projections: similar descriptions have codes that
differ in few bits, so they are searched like the hashes of images.

Source: Charikar, "Similarity Estimation Techniques from Rounding Algorithms", 2002.
"""

import numpy as np
import pandas as pd

from kaggle_tfr import parallel
from kaggle_tfr.deduplicate.geometry import UNDO, are_near, find_features, root_sift
from kaggle_tfr.deduplicate.pairs import measure_pairs
from kaggle_tfr.deduplicate.search import compare_all, near_pairs, near_pairs_between
from kaggle_tfr.explore.cache import BLOCK
from kaggle_tfr.images.hashing import FLAT, HASHES, ROTATION_BITS

MAX_DETAILS = 64  # of an image, the strongest
DETAIL_BITS = 25  # the radius, of 256 bits


def propose_copies(
    images: pd.DataFrame, hashes: pd.DataFrame, pairs: pd.DataFrame, max_bits: int = 25
) -> pd.DataFrame:
    """Return the pairs and those that share two details, for `verify_geometry`.

    hashes, pairs: of `load_hashes` and `find_pairs`, with `rotated_bits`.
    Images that share mirrored details are proposed as mirror images.
    """
    is_searched = (hashes["problem"] == "") & (hashes["texture"] >= FLAT)
    rows = np.flatnonzero(is_searched)
    encoded_blocks = parallel.run(
        _encode_block,
        parallel.blocks(images["path"].iloc[rows].tolist(), BLOCK),
        label="Describing details",
        total=len(rows),
        advance=len,
        ordered=True,
    )
    codes = [code for block in encoded_blocks for code in block]
    row = np.repeat(rows, [len(code) for code in codes])
    votes = _count_votes(np.concatenate([np.empty((0, 64), np.uint8), *codes]), row)

    # Details do not contain the rotation: the nearest of four by the hashes is taken.
    candidates = votes.loc[votes.index.repeat(4), ["a", "b"]]
    candidates["orientation"] = UNDO[votes["mirrored"].astype(int)].ravel()
    words = hashes[[*HASHES, *ROTATION_BITS]].to_numpy(np.uint64)
    proposed = measure_pairs(words, candidates)

    near = are_near(pairs, max_bits)
    table = pd.concat([pairs[near], proposed, pairs[~near]]).drop_duplicates(["a", "b"])
    return table.sort_values(["a", "b"], ignore_index=True)


def _encode_block(paths: list[str]) -> list[np.ndarray]:
    """Return codes of each image's details, and of these mirrored: uint8 (n, 64)."""
    planes = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)
    # Descriptors have no negative values. What they have in common must not decide
    # bits.
    planes -= planes.mean(axis=0)
    codes = []
    for path in paths:
        features = find_features(path)
        order = np.argsort(-features.strength, kind="stable")[:MAX_DETAILS]
        signs = [
            root_sift(descriptors[order]) @ planes > 0
            for descriptors in (features.descriptors, features.mirror().descriptors)
        ]
        codes.append(np.packbits(np.concatenate(signs, axis=1), axis=1))
    return codes


def _count_votes(codes: np.ndarray, row: np.ndarray) -> pd.DataFrame:
    """Return pairs of images that share two details or more: mirrored, a, b, votes.

    codes: uint8 (n, 64) of details and of these mirrored. row: of the image, int64
        (n,).
    mirrored: whether the details of a are in the mirror image of b.
    """
    is_rare = _count_repetitions(codes[:, :32]) <= 8
    row = row[is_rare]
    plain = np.ascontiguousarray(codes[is_rare, :32])
    mirrored = np.ascontiguousarray(codes[is_rare, 32:])
    found = {
        False: near_pairs(plain, DETAIL_BITS),
        True: near_pairs_between(plain, mirrored, DETAIL_BITS),
    }
    shared = pd.concat(
        pd.DataFrame({"mirrored": mirrored, "a": row[a], "b": row[b], "detail": a})
        for mirrored, (a, b) in found.items()
    )
    shared = shared[shared["a"] != shared["b"]].drop_duplicates()
    votes = shared.groupby(["mirrored", "a", "b"]).size().reset_index(name="votes")
    votes = votes[votes["votes"] > 1]
    votes = votes.sort_values("votes", kind="stable", ascending=False)
    return votes.drop_duplicates(["a", "b"])


def _count_repetitions(codes: np.ndarray) -> np.ndarray:
    """Count how many of a sample of 4,096 details are near each detail: int64 (n,).

    A detail of many images, such as a watermark, would pair all of them.
    """
    codes = np.ascontiguousarray(codes)
    sample = codes[np.random.default_rng(0).permutation(len(codes))[:4096]]
    counts = np.zeros(len(codes), np.int64)
    for _, near in compare_all(sample, codes, DETAIL_BITS):
        counts += np.bincount(near, minlength=len(codes))
    return counts
