"""Which pairs the second look verifies, by their number and their distances."""

import numpy as np
import pandas as pd
import pytest
from support.splits import make_hashes

from kaggle_tfr.deduplicate import pairs as candidates
from kaggle_tfr.deduplicate import search
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_candidates
from kaggle_tfr.images.hashing import FINE_HASH

SETTINGS = DuplicateSettings()
# The bits of the four hashes and of the fine hash in which each image differs from the
# first one. 128 is the mean distance of two different images.
DISTANCES = [(0, 0), (20, 128), (45, 128), (46, 124), (70, 60), (70, 102), (71, 0)]


@pytest.fixture
def hashes():
    """Seven images at known distances from the first one, and 13 unrelated images."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, (20, 2, 256), np.uint8)
    for row, distances in enumerate(DISTANCES):
        for number, n_changed in enumerate(distances):
            changed = rng.permutation(256)[:n_changed]
            bits[row, number] = bits[0, number]
            bits[row, number, changed] ^= 1
    codes, fine_codes = np.packbits(bits, axis=2).transpose(1, 0, 2).copy()
    fine_words = fine_codes.view(np.uint64).T
    return make_hashes(codes).assign(**dict(zip(FINE_HASH, fine_words, strict=True)))


def list_partners(pairs):
    """Return the images that are paired with the first one."""
    return pairs["b"][pairs["a"] == 0].tolist()


def test_few_candidates_are_all_verified(hashes):
    """These are the pairs within 70 bits, as with SECOND_LOOK = True."""
    pairs, settings = find_candidates(hashes, SETTINGS)

    assert settings.second_look == "all"
    assert list_partners(pairs) == [1, 2, 3, 4, 5]
    always, _ = find_candidates(hashes, DuplicateSettings(second_look=True))
    pd.testing.assert_frame_equal(pairs, always)


def test_of_many_candidates_the_likeliest_are_verified(hashes, monkeypatch):
    """Those first that are near by all five hashes."""
    monkeypatch.setattr(candidates, "MAX_VERIFIED", 2)

    pairs, settings = find_candidates(hashes, SETTINGS)

    assert settings.second_look == "nearest"
    beyond = pairs[pairs["distance"] > 25]
    assert beyond[["a", "b"]].to_numpy().tolist() == [[0, 3], [0, 4]]
    assert list_partners(pairs) == [1, 3, 4]


@pytest.mark.parametrize(
    ("module", "limit", "value"),
    [(search, "MAX_PAIRS", 1), (candidates, "MAX_IMAGES", 19)],
)
def test_too_many_candidates_are_not_verified(  # noqa: PLR0917
    hashes, monkeypatch, capsys, module, limit, value
):
    """The pairs within MAX_BITS remain, and a line names the alternative."""
    monkeypatch.setattr(module, limit, value)

    pairs, settings = find_candidates(hashes, SETTINGS)

    assert settings.second_look == ""
    assert list_partners(pairs) == [1]
    assert "verifies nothing: 20 images" in capsys.readouterr().out
