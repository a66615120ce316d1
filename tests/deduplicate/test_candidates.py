"""Which pairs the second look verifies, by their number and their distances."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from support.scenes import scene

from kaggle_tfr.deduplicate import candidates
from kaggle_tfr.deduplicate.candidates import find_candidates, verify_candidates
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.proposals import propose_copies
from kaggle_tfr.images.hashing import ALL_HASHES, FINE_HASH, FLAT, HASHES

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


@pytest.mark.parametrize("second_look", ["auto", True, False])
@pytest.mark.parametrize("mirrored", [True, False])
def test_candidates_of_a_grown_dataset_have_a_new_image(hashes, second_look, mirrored):
    """They are those of a search of everything."""
    rng = np.random.default_rng(6)
    draw = partial(rng.integers, 0, 2**63, len(hashes), np.uint64)
    hashes = hashes.assign(**{name: draw() for name in ALL_HASHES[4:10]})
    settings = replace(SETTINGS, second_look=second_look, mirrored=mirrored)
    is_new = np.isin(np.arange(20), [0, 9])

    chosen = find_candidates(hashes, settings, is_new)

    pairs = find_candidates(hashes, settings).pairs
    expected = pairs[is_new[pairs["a"]] | is_new[pairs["b"]]]
    pd.testing.assert_frame_equal(chosen.pairs, expected.reset_index(drop=True))
    assert len(chosen.pairs) >= 1


def test_the_likeliest_candidates_of_a_grown_dataset_have_a_new_image(
    hashes, monkeypatch
):
    """Pairs that are near by the fine hash included."""
    is_new = np.arange(20) == 0
    n_all = len(find_candidates(hashes, SETTINGS, is_new).pairs)
    monkeypatch.setattr(candidates, "MAX_CANDIDATES", n_all - 1)

    chosen = find_candidates(hashes, SETTINGS, is_new)

    assert chosen.second_look == "nearest"
    ends = chosen.pairs[["a", "b"]]
    assert ends.to_numpy().tolist() == [[0, 1], [0, 2], [0, 4]]


def test_a_large_dataset_that_grows_little_has_a_second_look(hashes, monkeypatch):
    """One new image among 20 is as much work as all pairs of 7 images."""
    is_new = np.arange(20) == 0
    monkeypatch.setattr(candidates, "MAX_IMAGES", 7)
    assert find_candidates(hashes, SETTINGS, is_new).second_look == "all"

    monkeypatch.setattr(candidates, "MAX_IMAGES", 6)
    chosen = find_candidates(hashes, SETTINGS, is_new)

    assert chosen.second_look == ""
    assert "1 new of 20 images have too many candidates" in chosen.explanation


def accept_pairs(*arguments):
    """Return the pairs that count, of `verify_candidates`."""
    verified = verify_candidates(*arguments)
    return verified[verified["accepted"]]


@pytest.fixture
def images(hashes, tmp_path):
    """Files of the 20 images: all show the same scene, and the hashes are made up."""
    scene().save(tmp_path / "scene.jpg")
    path = str(tmp_path / "scene.jpg")
    return pd.DataFrame({"path": path, "n_bytes": 1}, index=hashes.index)


def test_files_that_are_gone_or_changed_are_not_verified(hashes, images):
    """Pairs within MAX_BITS count, and the explanation names the number of others."""
    earlier = pd.Series("", index=images.index)
    earlier[[1, 3]] = "gone"
    earlier[4] = "changed"
    marked = images.assign(earlier=earlier)

    chosen = find_candidates(hashes, SETTINGS)
    pairs = accept_pairs(images, hashes, chosen, SETTINGS)
    assert list_partners(pairs) == [1, 2, 3, 4, 5]
    pairs = accept_pairs(marked, hashes, chosen, SETTINGS)
    assert list_partners(pairs) == [1, 2, 5]

    without = find_candidates(hashes, SETTINGS, images=marked)
    n_left_out = len(chosen.pairs) - len(without.pairs)
    assert list_partners(without.pairs) == [1, 2, 5]
    assert f"{n_left_out} more cannot be verified" in without.explanation
    assert "cannot" not in chosen.explanation


def test_shared_details_are_not_proposed_for_old_pairs_or_missing_files(hashes, images):
    """With MIRRORED and SECOND_LOOK = True, a new image finds the others of a scene."""
    hashes = hashes[13:].reset_index(drop=True)
    hashes = hashes.assign(**dict.fromkeys(ALL_HASHES[4:10], np.uint64(5)))
    settings = replace(SETTINGS, second_look=True, mirrored=True)
    earlier = ["", "", "", "", "", "gone", ""]
    images = images[13:].assign(earlier=earlier).reset_index(drop=True)
    is_new = np.arange(7) == 2
    chosen = find_candidates(hashes, settings, is_new, images)

    proposed = propose_copies(images, hashes, chosen.pairs, is_new=is_new)
    pairs = accept_pairs(images, hashes, chosen, settings)

    assert 5 not in proposed["b"].tolist()
    ends = pairs[["a", "b"]].to_numpy().tolist()
    assert ends == [[0, 2], [1, 2], [2, 3], [2, 4], [2, 6]]
