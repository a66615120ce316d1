"""Choose the pairs beyond MAX_BITS that are verified by their geometry.

The hashes of crops and of framed or recoloured copies differ in 26 to 70 of 256 bits.
So do those of many pairs of different images, and their number grows with the square
of the number of images. With SECOND_LOOK = "auto" all of them are verified if they are
few, else the likeliest of them, else none.

The limits were measured on 4,317 photographs of flowers and on 15 copies of each of
1,000 photographs: see docs/duplicates.md.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.geometry import are_near, verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_fine_pairs, find_pairs
from kaggle_tfr.deduplicate.proposals import propose_copies
from kaggle_tfr.deduplicate.search import MAX_PAIRS, TooManyPairs

NEAR_BITS = 45  # of the four hashes: the likeliest candidates
FINE_BITS = 100  # or of the fine hash, within CANDIDATE_BITS of the four
MAX_IMAGES = 50_000  # the fine hashes of more are not compared, all with all
MAX_CANDIDATES = 1_000_000
MAX_SECONDS = 300  # of one core: 75 s on the four of Kaggle
SECONDS_PER_IMAGE = 0.007  # as measured, to find its features
SECONDS_PER_PAIR = 0.0005


@dataclass(frozen=True)
class Candidates:
    """Pairs of near-duplicates and pairs that must be verified.

    pairs: as `find_pairs` returns them.
    second_look: which pairs beyond MAX_BITS are included: "all" within CANDIDATE_BITS,
        "nearest" for the likeliest of them, "" for none.
    """

    pairs: pd.DataFrame
    second_look: str
    explanation: str


def find_candidates(hashes: pd.DataFrame, settings: DuplicateSettings) -> Candidates:
    """Find the pairs within MAX_BITS, and those that SECOND_LOOK verifies.

    hashes: of `load_hashes`.
    Raises: TooManyPairs: more than 50 million.
    """
    if settings.second_look == "auto":
        return _choose_candidates(hashes, settings)
    if settings.second_look:
        pairs = _find_all(hashes, settings)
        far_pairs = pairs[~are_near(pairs, settings.max_bits)]
        text = f"SECOND_LOOK verifies all {_describe_cost(far_pairs, settings)}."
        return Candidates(pairs, second_look="all", explanation=text)

    text = f"SECOND_LOOK is off: only pairs within {settings.max_bits} bits count."
    pairs = find_pairs(hashes, settings.max_bits, settings.rotated_bits)
    return Candidates(pairs, second_look="", explanation=text)


def accept_pairs(
    images: pd.DataFrame,
    hashes: pd.DataFrame,
    candidates: Candidates,
    settings: DuplicateSettings,
    work_dir: str = "",
) -> pd.DataFrame:
    """Return the pairs within MAX_BITS and those that their geometry confirms.

    With MIRRORED and SECOND_LOOK = True, pairs that share details are verified too.
    work_dir: see `verify_geometry`.
    """
    pairs = candidates.pairs
    if not candidates.second_look:
        return pairs
    if settings.mirrored and settings.second_look is True:
        pairs = propose_copies(images, hashes, pairs, settings.max_bits)
    pairs = verify_geometry(images, pairs, work_dir, max_bits=settings.max_bits)
    return pairs[pairs["accepted"]]


def _choose_candidates(
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
) -> Candidates:
    """Return all candidates, the likeliest ones or none, as their number allows."""
    n_images = int((hashes["problem"] == "").sum())
    ways = {"all": _find_all, "nearest": _find_nearest}
    if n_images > MAX_IMAGES:
        ways = {}
    for second_look, find in ways.items():
        with suppress(TooManyPairs):
            pairs = find(hashes, settings, MAX_CANDIDATES)
            far_pairs = pairs[~are_near(pairs, settings.max_bits)]
            if _estimate_seconds(far_pairs) <= MAX_SECONDS:
                cost = _describe_cost(far_pairs, settings)
                which = "all" if second_look == "all" else "the likeliest"
                text = f'SECOND_LOOK = "auto" verifies {which} {cost}.'
                return Candidates(pairs, second_look, text)

    pairs = find_pairs(hashes, settings.max_bits, settings.rotated_bits)
    text = (
        f'SECOND_LOOK = "auto" verifies nothing: {n_images:,} images have too many '
        f"candidates. Only pairs within {settings.max_bits} bits count. Set "
        "SECOND_LOOK = True to verify all candidates, however long it takes."
    )
    return Candidates(pairs, second_look="", explanation=text)


def _find_all(
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
    limit: int = MAX_PAIRS,
) -> pd.DataFrame:
    """Return all pairs within CANDIDATE_BITS."""
    radius = max(settings.max_bits, settings.candidate_bits)
    return find_pairs(hashes, radius, settings.rotated_bits, limit)


def _find_nearest(
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
    limit: int,
) -> pd.DataFrame:
    """Return the pairs within CANDIDATE_BITS that are near by one of two measures."""
    radius = max(settings.max_bits, min(NEAR_BITS, settings.candidate_bits))
    near = find_pairs(hashes, radius, settings.rotated_bits, limit)
    fine = find_fine_pairs(hashes, FINE_BITS, settings.candidate_bits, limit)
    pairs = pd.concat([near, fine]).drop_duplicates(["a", "b"])
    return pairs.sort_values(["a", "b"], ignore_index=True)


def _estimate_seconds(pairs: pd.DataFrame) -> float:
    """Return how long one core verifies the pairs."""
    n_images = np.unique(pairs[["a", "b"]]).size
    return n_images * SECONDS_PER_IMAGE + len(pairs) * SECONDS_PER_PAIR


def _describe_cost(far_pairs: pd.DataFrame, settings: DuplicateSettings) -> str:
    """Return the number of pairs beyond MAX_BITS and the time to verify them."""
    return (
        f"{len(far_pairs):,} pairs of {settings.max_bits + 1} to "
        f"{settings.candidate_bits} bits, about {_estimate_seconds(far_pairs):,.0f} s "
        "for one core"
    )
