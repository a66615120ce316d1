"""Pairs prepared for tables and figures."""

import numpy as np
import pandas as pd
import pytest
from support.scenes import saved, scene

from kaggle_tfr.deduplicate import find_pairs
from kaggle_tfr.deduplicate.display import (
    arrange_by_hash,
    choose_verified,
    compare_pairs,
    examples_around,
    load_pairs,
)
from kaggle_tfr.explore import load_hashes, measure


@pytest.fixture
def images(tmp_path):
    """Rows 0, 2, 5: a photograph, its file again, a small copy; others between."""
    photo = scene(200, 240)
    files = [
        saved(photo),
        saved(scene(200, 240, 1)),
        saved(photo),
        saved(scene(200, 240, 2)),
        saved(scene(200, 240, 3)),
        saved(photo.reduce(2)),
    ]
    paths = [tmp_path / f"{number}.jpg" for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    table = pd.DataFrame(
        {
            "image_id": [path.name for path in paths],
            "path": list(map(str, paths)),
            "label": 0,
            "label_name": "a",
            "split": "train",
            "problem": "",
        }
    )
    return measure(table, work_dir=str(tmp_path))


@pytest.fixture
def hashes(images, tmp_path):
    return load_hashes(images, str(tmp_path))


def test_examples_come_from_both_sides_of_the_radius():
    """The two nearest the radius within it and beyond it; no image is in two of them.

    A large cluster would fill the figure with pairs of the same images.
    """
    pairs = pd.DataFrame({"distance": [3, 25, 26, 10, 40, 24]})
    pairs = pairs.assign(a=[0, 2, 4, 6, 8, 2], b=[1, 3, 5, 7, 9, 11])

    within, beyond = examples_around(pairs, 25, 2)

    assert within["distance"].tolist() == [25, 10]
    assert beyond["distance"].tolist() == [26, 40]


def test_a_pair_has_a_map_of_its_difference(images, hashes):
    """It is black for equal files, and says what differs otherwise."""
    pairs = find_pairs(hashes, 25).set_index(["a", "b"], drop=False)

    tiles, captions = compare_pairs(images, pairs.loc[[(0, 2), (0, 5)]])

    n_bytes = images["n_bytes"]
    assert captions[0] == f"0.jpg\n240 × 200, {n_bytes[0] / 1000:.3g} kB"
    assert captions[1].endswith("\n0 bits")
    assert captions[2] == "the same bytes"
    assert (tiles[2] == tiles[2][0, 0]).all()
    assert captions[4].startswith("5.jpg\n120 × 100")
    assert captions[5].startswith("mean ")
    assert tiles[5].shape == tiles[3].shape
    assert tiles[5].std() > 0


def test_a_small_difference_is_dark_and_a_large_one_bright(images, hashes, monkeypatch):
    """Levels of 64 and more have the brightest colour."""
    loaded = [np.full((9, 9, 3), level, np.uint8) for level in (100, 101, 100, 180)]
    pairs = find_pairs(hashes, 25).head(2)
    monkeypatch.setattr(
        "kaggle_tfr.deduplicate.display.load_pixels", lambda *_, **__: loaded
    )

    tiles, captions = compare_pairs(images, pairs)

    assert tiles[2].max() < 30
    assert tiles[5].min() > 150
    assert captions[5] in ("the same bytes", "mean 80.0 levels,\nat most 80")


def test_near_duplicates_are_neighbours_on_the_wall(images, hashes):
    """All good rows are there once, and those of one cluster are joined."""
    pairs = find_pairs(hashes, 25)

    rows, is_linked = arrange_by_hash(hashes, pairs, 25)

    assert sorted(rows) == list(range(6))
    assert not is_linked[0]
    joined = [{*rows[number - 1 : number + 1]} for number in np.flatnonzero(is_linked)]
    assert len(joined) == 2
    assert set.union(*joined) == {0, 2, 5}


def test_rejected_pairs_are_named_and_follow_those_that_are_confirmed(images, hashes):
    """Of three pairs one is confirmed; the nearest other one is displayed with it."""
    verified = pd.DataFrame(
        {
            "a": [0, 1, 3],
            "b": [1, 3, 4],
            "distance": [60, 55, 50],
            "inliers": [20, 3, 2],
            "accepted": [True, False, False],
        }
    )

    displayed = choose_verified(verified, hashes, 25, count=3)
    _, titles = load_pairs(images, displayed)

    assert list(displayed["distance"]) == [60, 50]
    assert [first.split("\n")[0] for first, _ in titles] == ["0.jpg", "rejected: 3.jpg"]
    assert "50 bits, 2 matches" in titles[1][1]
