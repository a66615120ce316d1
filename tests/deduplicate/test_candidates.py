"""Which pairs the second look verifies, by their number and their distances."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from kaggle_tfr.deduplicate import candidates
from kaggle_tfr.deduplicate.candidates import find_candidates
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.images.hashing import FINE_HASH, FLAT, HASHES

SETTINGS = DuplicateSettings()
# The bits of the four hashes and of the fine hash in which each image differs from the
# first one. 128 is the mean distance of two different images.
DISTANCES = [(0, 0), (20, 128), (45, 128), (46, 128), (70, 100), (70, 102), (71, 0)]


def draw_code(rng, code=None, n_changed=0):
    """Return 256 random bits, or the code with so many of its bits changed."""
    if code is None:
        return rng.integers(0, 2, 256)
    changed = code.copy()
    changed[rng.permutation(256)[:n_changed]] ^= 1
    return changed


def to_words(codes):
    return np.packbits(np.stack(codes), axis=1).view(">u8").astype(np.uint64)


@pytest.fixture
def hashes():
    """Seven images at known distances from the first one, and 13 unrelated images."""
    rng = np.random.default_rng(5)
    code, fine = draw_code(rng), draw_code(rng)
    codes = [draw_code(rng, code, bits) for bits, _ in DISTANCES]
    fine_codes = [draw_code(rng, fine, bits) for _, bits in DISTANCES]
    codes += [draw_code(rng) for _ in range(13)]
    fine_codes += [draw_code(rng) for _ in range(13)]
    table = pd.DataFrame(to_words(codes), columns=[*HASHES])
    table[[*FINE_HASH]] = to_words(fine_codes)
    return table.assign(texture=FLAT, digest="", problem="")


def list_partners(pairs):
    """Return the images that are paired with the first one."""
    return pairs["b"][pairs["a"] == 0].tolist()


def test_few_candidates_are_all_verified(hashes):
    """These are the pairs within CANDIDATE_BITS, as with SECOND_LOOK = True."""
    chosen = find_candidates(hashes, SETTINGS)

    assert chosen.second_look == "all"
    assert list_partners(chosen.pairs) == [1, 2, 3, 4, 5]
    always = find_candidates(hashes, replace(SETTINGS, second_look=True))
    pd.testing.assert_frame_equal(chosen.pairs, always.pairs)
    n_beyond = (chosen.pairs["distance"] > 25).sum()
    assert f"verifies all {n_beyond} pairs of 26 to 70 bits" in chosen.explanation


def test_of_many_candidates_the_nearest_are_verified(hashes, monkeypatch):
    """They are within 45 bits, or within 70 and near by the fine hash."""
    n_all = len(find_candidates(hashes, SETTINGS).pairs)
    monkeypatch.setattr(candidates, "MAX_CANDIDATES", n_all - 1)

    chosen = find_candidates(hashes, SETTINGS)

    assert chosen.second_look == "nearest"
    assert "verifies the likeliest 2 pairs of 26 to 70 bits" in chosen.explanation
    assert list_partners(chosen.pairs) == [1, 2, 4]
    assert chosen.pairs["distance"][0] == 20


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_SECONDS", 0), ("MAX_CANDIDATES", 0), ("MAX_IMAGES", 19)]
)
def test_too_many_candidates_are_not_verified(hashes, monkeypatch, limit, value):
    """The pairs within MAX_BITS remain, and the explanation names the alternative."""
    monkeypatch.setattr(candidates, limit, value)

    chosen = find_candidates(hashes, SETTINGS)

    assert chosen.second_look == ""
    assert list_partners(chosen.pairs) == [1]
    assert "verifies nothing: 20 images" in chosen.explanation
    assert "SECOND_LOOK = True" in chosen.explanation


def test_without_a_second_look_only_near_pairs_are_found(hashes):
    """A larger CANDIDATE_BITS changes nothing then."""
    settings = replace(SETTINGS, second_look=False, candidate_bits=100)

    chosen = find_candidates(hashes, settings)

    assert chosen.second_look == ""
    assert list_partners(chosen.pairs) == [1]
    assert "SECOND_LOOK is off" in chosen.explanation
