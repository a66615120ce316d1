"""Choose the pairs beyond MAX_BITS that are verified by their geometry.

The hashes of crops and of framed or recoloured copies differ in 26 to 70 of 256 bits.
So do those of many pairs of different images, and their number grows with the square
of the number of images. SECOND_LOOK = "auto" verifies as many of them as two minutes
allow, the likeliest first.

The limits were measured on 4,317 photographs of flowers and on 15 copies of each of
1,000 photographs: see docs/duplicates.md.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.geometry import are_near, verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.deduplicate.search import TooManyPairs
from kaggle_tfr.images.hashing import FINE_HASH

CANDIDATE_BITS = 70
MAX_IMAGES = 50_000  # their hashes are compared, all with all, in half a minute
MAX_CANDIDATES = 5_000_000
MAX_SECONDS = 240  # of one core: two minutes of two
SECONDS_PER_IMAGE = 0.007  # as measured, to find its features
SECONDS_PER_PAIR = 0.0005


@dataclass(frozen=True)
class Candidates:
    """Pairs of near-duplicates and pairs that must be verified.

    pairs: as `find_pairs` returns them.
    second_look: which pairs beyond MAX_BITS are included: "all" within 70 bits,
        "nearest" for the likeliest of them, "" for none.
    """

    pairs: pd.DataFrame
    second_look: str
    explanation: str


def find_candidates(hashes: pd.DataFrame, settings: DuplicateSettings) -> Candidates:
    """Find the pairs within MAX_BITS, and those that SECOND_LOOK verifies.

    hashes: of `load_hashes`. Raises: TooManyPairs: more than 50 million.
    """
    if settings.second_look == "auto":
        with suppress(TooManyPairs):
            return _find_likeliest(hashes, settings)
        explanation = (
            f'SECOND_LOOK = "auto" verifies nothing: {len(hashes):,} images have too '
            f"many candidates. Only pairs within {settings.max_bits} bits count. Set "
            "SECOND_LOOK = True to verify all candidates, however long it takes."
        )
    elif settings.second_look:
        radius = max(settings.max_bits, CANDIDATE_BITS)
        pairs = find_pairs(hashes, radius, radius if settings.mirrored else None)
        is_far = ~are_near(pairs, settings.max_bits)
        cost = _describe_cost(pairs[is_far], settings)
        return Candidates(pairs, "all", f"SECOND_LOOK verifies all {cost}")
    else:
        explanation = (
            f"SECOND_LOOK is off: only pairs within {settings.max_bits} bits count."
        )
    pairs = find_pairs(hashes, settings.max_bits, settings.rotated_bits)
    return Candidates(pairs, "", explanation)


def verify_candidates(
    images: pd.DataFrame,
    candidates: Candidates,
    settings: DuplicateSettings,
    work_dir: str = "",
) -> pd.DataFrame:
    """Return all candidates, with the result of their geometry.

    Columns: as in `verify_geometry`. Without a second look, all pairs are near.
    work_dir: see `verify_geometry`.
    """
    pairs = candidates.pairs
    if not candidates.second_look:
        return pairs.assign(is_near=True, inliers=-1, accepted=True)
    return verify_geometry(images, pairs, work_dir, max_bits=settings.max_bits)


def _find_likeliest(hashes: pd.DataFrame, settings: DuplicateSettings) -> Candidates:
    """Return as many of the candidates as can be verified in `MAX_SECONDS`.

    Raises: TooManyPairs: there are too many images, or too many pairs to choose from.
    """
    if len(hashes) > MAX_IMAGES:
        raise TooManyPairs
    radius = max(settings.max_bits, CANDIDATE_BITS)
    pairs = find_pairs(hashes, radius, settings.rotated_bits, MAX_CANDIDATES)
    far_pairs = pairs[~are_near(pairs, settings.max_bits)]
    fine_words = hashes[[*FINE_HASH]].to_numpy(np.uint64)
    differing = np.bitwise_count(
        fine_words[far_pairs["a"]] ^ fine_words[far_pairs["b"]]
    )
    likeliest_first = np.argsort(
        far_pairs["distance"] + differing.sum(axis=1), kind="stable"
    )
    far_pairs = far_pairs.iloc[likeliest_first]
    n_chosen = np.searchsorted(_add_seconds(far_pairs), MAX_SECONDS)
    chosen = far_pairs[:n_chosen]
    left_out = far_pairs[n_chosen:]

    cost = _describe_cost(chosen, settings)
    which = f"the likeliest of {len(far_pairs):,}" if len(left_out) else "all"
    explanation = f'SECOND_LOOK = "auto" verifies {which} {cost}'
    pairs = pairs.drop(index=left_out.index).reset_index(drop=True)
    return Candidates(pairs, "nearest" if len(left_out) else "all", explanation)


def _add_seconds(pairs: pd.DataFrame) -> np.ndarray:
    """Return how long one core verifies the pairs up to each one: float64 (n,)."""
    ends = pd.Series(pairs[["a", "b"]].to_numpy().ravel())
    n_images = np.cumsum(~ends.duplicated())[1::2]
    n_pairs = np.arange(len(pairs)) + 1
    return n_images.to_numpy() * SECONDS_PER_IMAGE + n_pairs * SECONDS_PER_PAIR


def _describe_cost(pairs: pd.DataFrame, settings: DuplicateSettings) -> str:
    """Return the number of pairs beyond MAX_BITS and the time to verify them."""
    seconds = _add_seconds(pairs).max(initial=0)
    return (
        f"{len(pairs):,} pairs of {settings.max_bits + 1} to {CANDIDATE_BITS} bits, an "
        f"estimated {seconds:,.0f} s of one core after a start of some seconds."
    )
