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

from kaggle_tfr.deduplicate.geometry import are_near
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
    max_bits = settings.max_bits
    radius = max(max_bits, CANDIDATE_BITS)
    explanation = f"SECOND_LOOK is off: only pairs within {max_bits} bits count."
    if settings.second_look == "auto":
        explanation = (
            f'SECOND_LOOK = "auto" verifies nothing: {len(hashes):,} images have too '
            f"many candidates. Only pairs within {max_bits} bits count. Set "
            "SECOND_LOOK = True to verify all candidates, however long it takes."
        )
        with suppress(TooManyPairs):
            if len(hashes) <= MAX_IMAGES:
                pairs = find_pairs(
                    hashes, radius, settings.rotated_bits, MAX_CANDIDATES
                )
                return _choose_likeliest(pairs, hashes, max_bits, MAX_SECONDS)
    elif settings.second_look:
        pairs = find_pairs(hashes, radius, settings.rotated_bits)
        return _choose_likeliest(pairs, hashes, max_bits, np.inf)

    pairs = find_pairs(hashes, max_bits, settings.rotated_bits)
    return Candidates(pairs, "", explanation)


def _choose_likeliest(
    pairs: pd.DataFrame, hashes: pd.DataFrame, max_bits: int, max_seconds: float
) -> Candidates:
    """Return the near pairs, and the others that one core verifies in this time.

    The likeliest have the lowest distance, of which the fine hash is a third.
    """
    far_pairs = pairs[~are_near(pairs, max_bits)]
    fine_words = hashes[[*FINE_HASH]].to_numpy(np.uint64)
    a = fine_words[far_pairs["a"]]
    b = fine_words[far_pairs["b"]]
    bits = 2 * far_pairs["distance"] + np.bitwise_count(a ^ b).sum(axis=1)
    far_pairs = far_pairs.loc[bits.sort_values(kind="stable").index]

    ends = pd.Series(far_pairs[["a", "b"]].to_numpy().ravel())
    n_images = (~ends.duplicated()).cumsum().to_numpy()[1::2]
    n_pairs = 1 + np.arange(len(far_pairs))
    seconds = n_images * SECONDS_PER_IMAGE + n_pairs * SECONDS_PER_PAIR
    n_chosen = np.searchsorted(seconds, max_seconds)
    left_out = far_pairs.index[n_chosen:]
    which = f"the likeliest {n_chosen:,} of" if len(left_out) else "all"
    explanation = (
        f"SECOND_LOOK verifies {which} {len(far_pairs):,} pairs of {max_bits + 1} to "
        f"{CANDIDATE_BITS} bits, an estimated {seconds[:n_chosen].max(initial=0):,.0f} "
        "s of one core after a start of some seconds."
    )
    pairs = pairs.drop(index=left_out).reset_index(drop=True)
    return Candidates(pairs, "nearest" if len(left_out) else "all", explanation)
