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

from kaggle_tfr.deduplicate.geometry import are_near, have_files, verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_fine_pairs, find_pairs
from kaggle_tfr.deduplicate.proposals import propose_copies
from kaggle_tfr.deduplicate.search import MAX_PAIRS, TooManyPairs

NEAR_BITS = 45  # of the four hashes: the likeliest candidates
FINE_BITS = 100  # or of the fine hash, within CANDIDATE_BITS of the four
# The fine hashes of more images are not compared, all with all. If few images are new,
# the same number of comparisons is the limit.
MAX_IMAGES = 50_000
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
    is_new: bool (n,), the new images; each pair has one. None: they are not known.
    """

    pairs: pd.DataFrame
    second_look: str
    explanation: str
    is_new: np.ndarray | None = None


def find_candidates(
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
    is_new: np.ndarray | None = None,
    images: pd.DataFrame | None = None,
) -> Candidates:
    """Find the pairs within MAX_BITS, and those that SECOND_LOOK verifies.

    hashes: of `load_hashes`.
    is_new: bool (n,); with it, only pairs with a new image are found.
    images: with it, pairs to verify whose files are gone or changed are left out.
    Raises: TooManyPairs: more than 50 million.
    """
    if settings.second_look == "auto":
        return _choose_candidates(hashes, settings, is_new, images)
    if settings.second_look:
        pairs = _find_all(hashes, settings, is_new=is_new)
        kept = _keep_verifiable(pairs, images, settings)
        cost = _describe_cost(kept, len(pairs) - len(kept), settings)
        return Candidates(kept, "all", f"SECOND_LOOK verifies all {cost}", is_new)

    text = f"SECOND_LOOK is off: only pairs within {settings.max_bits} bits count."
    pairs = find_pairs(hashes, settings.max_bits, settings.rotated_bits, is_new=is_new)
    return Candidates(pairs, "", text, is_new)


def verify_candidates(
    images: pd.DataFrame,
    hashes: pd.DataFrame,
    candidates: Candidates,
    settings: DuplicateSettings,
    work_dir: str = "",
) -> pd.DataFrame:
    """Return all candidates, with the result of their geometry.

    Columns: as in `verify_geometry`. Without a second look, all pairs are near. With
    MIRRORED and SECOND_LOOK = True, pairs that share details are verified too.
    images: those with "gone" or "changed" in the column `earlier` have no file that
        could be verified.
    work_dir: see `verify_geometry`.
    """
    pairs = candidates.pairs
    if not candidates.second_look:
        return pairs.assign(is_near=True, inliers=-1, accepted=True)
    max_bits = settings.max_bits
    if settings.mirrored and settings.second_look is True:
        pairs = propose_copies(images, hashes, pairs, max_bits, candidates.is_new)
    pairs = _keep_verifiable(pairs, images, settings)
    return verify_geometry(images, pairs, work_dir, max_bits=max_bits)


def _choose_candidates(
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
    is_new: np.ndarray | None,
    images: pd.DataFrame | None,
) -> Candidates:
    """Return all candidates, the likeliest ones or none, as their number allows."""
    is_good = (hashes["problem"] == "").to_numpy()
    n_images = int(is_good.sum())
    n_new = n_images if is_new is None else int((is_good & is_new).sum())
    n_comparisons = n_new * (n_images - n_new / 2)
    ways = {"all": _find_all, "nearest": _find_nearest}
    if n_comparisons > MAX_IMAGES**2 / 2:
        ways = {}
    for second_look, find in ways.items():
        with suppress(TooManyPairs):
            pairs = find(hashes, settings, MAX_CANDIDATES, is_new)
            kept = _keep_verifiable(pairs, images, settings)
            if _estimate_seconds(_select_far(kept, settings)) <= MAX_SECONDS:
                cost = _describe_cost(kept, len(pairs) - len(kept), settings)
                which = "all" if second_look == "all" else "the likeliest"
                text = f'SECOND_LOOK = "auto" verifies {which} {cost}'
                return Candidates(kept, second_look, text, is_new)

    pairs = find_pairs(hashes, settings.max_bits, settings.rotated_bits, is_new=is_new)
    new = "" if is_new is None else f"{n_new:,} new of "
    text = (
        f'SECOND_LOOK = "auto" verifies nothing: {new}{n_images:,} images have too '
        f"many candidates. Only pairs within {settings.max_bits} bits count. Set "
        "SECOND_LOOK = True to verify all candidates, however long it takes."
    )
    return Candidates(pairs, "", text, is_new)


def _keep_verifiable(
    pairs: pd.DataFrame,
    images: pd.DataFrame | None,
    settings: DuplicateSettings,
) -> pd.DataFrame:
    """Return the pairs within MAX_BITS, and those of which both files can be read."""
    if images is None:
        return pairs
    has_file = have_files(images)
    is_verifiable = has_file[pairs["a"]] & has_file[pairs["b"]]
    is_near = are_near(pairs, settings.max_bits)
    return pairs[is_near | is_verifiable].reset_index(drop=True)


def _find_all(
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
    limit: int = MAX_PAIRS,
    is_new: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return all pairs within CANDIDATE_BITS."""
    radius = max(settings.max_bits, 70)
    return find_pairs(hashes, radius, settings.rotated_bits, limit, is_new)


def _find_nearest(
    hashes: pd.DataFrame,
    settings: DuplicateSettings,
    limit: int,
    is_new: np.ndarray | None,
) -> pd.DataFrame:
    """Return the pairs within CANDIDATE_BITS that are near by one of two measures."""
    radius = max(settings.max_bits, min(NEAR_BITS, 70))
    near = find_pairs(hashes, radius, settings.rotated_bits, limit, is_new)
    fine = find_fine_pairs(hashes, FINE_BITS, 70, limit, is_new)
    pairs = pd.concat([near, fine]).drop_duplicates(["a", "b"])
    return pairs.sort_values(["a", "b"], ignore_index=True)


def _estimate_seconds(pairs: pd.DataFrame) -> float:
    """Return how long one core verifies the pairs."""
    n_images = np.unique(pairs[["a", "b"]]).size
    return n_images * SECONDS_PER_IMAGE + len(pairs) * SECONDS_PER_PAIR


def _select_far(pairs: pd.DataFrame, settings: DuplicateSettings) -> pd.DataFrame:
    """Return the pairs that count only if they are verified."""
    return pairs[~are_near(pairs, settings.max_bits)]


def _describe_cost(
    pairs: pd.DataFrame, n_left_out: int, settings: DuplicateSettings
) -> str:
    """Return the number of pairs beyond MAX_BITS and the time to verify them.

    n_left_out: number of pairs that cannot be verified.
    """
    far_pairs = _select_far(pairs, settings)
    text = (
        f"{len(far_pairs):,} pairs of {settings.max_bits + 1} to "
        f"{70} bits, an estimated "
        f"{_estimate_seconds(far_pairs):,.0f} s of one core after a start of some "
        "seconds."
    )
    if n_left_out:
        text += (
            f" {n_left_out:,} more cannot be verified, because the file of an earlier "
            "image is gone or has changed."
        )
    return text
