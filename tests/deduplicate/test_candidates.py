"""Which pairs the second look verifies, by their number and their distances."""

import numpy as np
import pandas as pd
import pytest
from support.splits import make_hashes

from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_candidates
from kaggle_tfr.parameters import make_settings

PACKAGE = "kaggle_tfr.deduplicate"
SETTINGS = DuplicateSettings()
# The bits of the four hashes and of the fine hash in which each image differs from the
# first one. 128 is the mean distance of two different images.
DISTANCES = [(0, 0), (20, 128), (45, 128), (46, 124), (70, 60), (70, 102), (71, 0)]


@pytest.fixture
def hashes(monkeypatch):
    """Seven images at known distances from the first one, and 13 unrelated images.

    There may be no more.
    """
    monkeypatch.setattr(f"{PACKAGE}.pairs.MAX_IMAGES", 20)
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, (20, 896), np.uint8)
    for row, (n_changed, n_fine) in enumerate(DISTANCES):
        bits[row] = bits[0]
        bits[row, rng.permutation(256)[:n_changed]] ^= 1
        bits[row, 640 + rng.permutation(256)[:n_fine]] ^= 1
    return make_hashes(np.packbits(bits, axis=1))


def list_partners(pairs):
    """Return the images that are paired with the first one."""
    return pairs["b"][pairs["a"] == 0].tolist()


def test_few_candidates_are_all_verified(hashes):
    """These are the pairs within 70 bits, as with SECOND_LOOK = True."""
    assert make_settings(DuplicateSettings, {}) == SETTINGS

    pairs, settings = find_candidates(hashes, SETTINGS)

    assert settings.second_look == "all"
    assert list_partners(pairs) == [1, 2, 3, 4, 5]
    always, _ = find_candidates(hashes, DuplicateSettings(second_look=True))
    pd.testing.assert_frame_equal(pairs, always)


def test_of_many_candidates_the_likeliest_are_verified(hashes, monkeypatch):
    """Those first that are near by all five hashes."""
    monkeypatch.setattr(f"{PACKAGE}.pairs.MAX_VERIFIED", 2)

    pairs, settings = find_candidates(hashes, SETTINGS)

    assert settings.second_look == "nearest"
    assert list_partners(pairs) == [1, 3, 4]
    assert len(pairs) == 3


@pytest.mark.parametrize(
    ("limit", "value"), [("search.MAX_PAIRS", 1), ("pairs.MAX_IMAGES", 19)]
)
def test_too_many_candidates_are_not_verified(
    hashes, monkeypatch, capsys, limit, value
):
    """The pairs within MAX_BITS remain, and a line names the alternative."""
    monkeypatch.setattr(f"{PACKAGE}.{limit}", value)

    pairs, settings = find_candidates(hashes, SETTINGS)

    assert settings.second_look == ""
    assert list_partners(pairs) == [1]
    assert "verifies nothing: 20 images" in capsys.readouterr().out
