"""Choose the pairs beyond MAX_BITS that are verified by their geometry.

The hashes of crops and of framed or recoloured copies differ in 26 to 70 of 256 bits.
So do those of many pairs of different images, and their number grows with the square
of the number of images. SECOND_LOOK = "auto" verifies the likeliest of them.

The limits were measured on 4,317 photographs of flowers and on 15 copies of each of
1,000 photographs: see docs/duplicates.md.
"""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.geometry import are_near
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.deduplicate.search import MAX_PAIRS, TooManyPairs
from kaggle_tfr.images.hashing import FINE_HASH

CANDIDATE_BITS = 70
MAX_IMAGES = 50_000  # their hashes are compared, all with all, in half a minute
MAX_CANDIDATES = 5_000_000
MAX_VERIFIED = 100_000  # pairs, in minutes: 0.5 ms each, and 7 ms for each image


def find_candidates(
    hashes: pd.DataFrame, settings: DuplicateSettings
) -> tuple[pd.DataFrame, str]:
    """Find the pairs within MAX_BITS, and those that SECOND_LOOK verifies.

    hashes: of `load_hashes`.
    Return the pairs, as `find_pairs` does, and which pairs beyond MAX_BITS are among
    them: "all" within 70 bits, "nearest" for the likeliest of them, "" for none.
    Raises: TooManyPairs: more than 50 million.
    """
    is_auto = settings.second_look == "auto"
    if settings.second_look and not (is_auto and len(hashes) > MAX_IMAGES):
        radius = max(settings.max_bits, CANDIDATE_BITS)
        limit = MAX_CANDIDATES if is_auto else MAX_PAIRS
        try:
            pairs = find_pairs(hashes, radius, settings.rotated_bits, limit)
        except TooManyPairs:
            if not is_auto:
                raise
        else:
            most = MAX_VERIFIED if is_auto else len(pairs)
            return _choose_likeliest(pairs, hashes, settings.max_bits, most)

    if is_auto:
        print(
            f'SECOND_LOOK = "auto" verifies nothing: {len(hashes):,} images have too '
            "many candidates. Set SECOND_LOOK = True to verify all, however long it "
            "takes."
        )
    return find_pairs(hashes, settings.max_bits, settings.rotated_bits), ""


def _choose_likeliest(
    pairs: pd.DataFrame, hashes: pd.DataFrame, max_bits: int, most: int
) -> tuple[pd.DataFrame, str]:
    """Return the near pairs, and the others that are likeliest: "all" or "nearest".

    These have the lowest distance, of which the fine hash is a third.
    """
    far_pairs = pairs[~are_near(pairs, max_bits)]
    fine_words = hashes[[*FINE_HASH]].to_numpy(np.uint64)
    differing = fine_words[far_pairs["a"]] ^ fine_words[far_pairs["b"]]
    bits = 2 * far_pairs["distance"] + np.bitwise_count(differing).sum(axis=1)
    left_out = bits.sort_values(kind="stable").index[most:]
    n_verified = len(bits) - len(left_out)
    print(
        f"SECOND_LOOK verifies {n_verified:,} of {len(bits):,} pairs within "
        f"{CANDIDATE_BITS} bits, the likeliest."
    )
    chosen = pairs.drop(index=left_out).reset_index(drop=True)
    return chosen, "nearest" if len(left_out) else "all"
