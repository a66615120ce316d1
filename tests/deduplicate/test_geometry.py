"""The geometric verification of pairs, on scenes and their copies."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps
from support.scenes import saved, scene

from kaggle_tfr.deduplicate import geometry
from kaggle_tfr.deduplicate.geometry import find_transform, verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings

SETTINGS = DuplicateSettings()


@pytest.fixture
def images(tmp_path):
    """A scene, its crop, a rotated copy, another scene, no image, two blanks."""
    first = scene(240, 320, seed=1)
    second = scene(240, 320, seed=2)
    shifted = first.crop((40, 30, 320, 240))
    recoloured = ImageOps.colorize(first.convert("L"), "navy", "yellow")
    recoloured = recoloured.transpose(Image.Transpose.ROTATE_90)
    blank = saved(Image.new("L", (90, 90), 200))
    files = [saved(image) for image in (first, shifted, recoloured, second)]
    files += [b"no image", blank, blank]

    paths = [tmp_path / f"{number}.jpg" for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    images = pd.DataFrame({"path": map(str, paths)})
    return images.assign(n_bytes=[len(data) for data in files])


@pytest.fixture
def pairs():
    """All pairs of the seven images, far apart by their hashes."""
    above_diagonal = np.triu(np.ones((7, 7)), 1)
    ends = np.argwhere(above_diagonal)
    pairs = pd.DataFrame(ends, columns=["a", "b"])
    return pairs.assign(distance=60, orientation=1)


def test_copies_are_accepted_and_other_scenes_are_not(images, pairs, monkeypatch):
    """Geometry is a second witness of the first pairs that are near by their hashes."""
    pairs.loc[[2, 5], "distance"] = 10
    monkeypatch.setattr(geometry, "MAX_WITNESSED", 1)

    verified = verify_geometry(images, pairs, SETTINGS)

    accepted = verified[verified["accepted"]]
    ends = accepted[["a", "b"]].to_numpy().tolist()
    assert ends == [[0, 1], [0, 2], [0, 3], [0, 6], [1, 2]]
    # The copy was rotated counterclockwise, and is upright after a clockwise turn.
    assert accepted["orientation"].tolist() == [1, 6, 1, 1, 6]
    by_hash = [False, False, True, True, False]
    assert (accepted["verdict"] == "hash").tolist() == by_hash
    assert verified["inliers"][5] == -1
    assert verified["inliers"].drop([0, 1, 6]).max() <= 6


def test_a_rotated_pair_is_accepted_unverified_within_a_smaller_radius(images, pairs):
    """The radius is four fifths: round flowers are 21 to 25 bits from rotated ones."""
    pairs = pairs[pairs["b"] == 4].assign(
        distance=[25, 20, 21, 25],
        orientation=[1, 8, 8, 2],
    )

    verified = verify_geometry(images, pairs, DuplicateSettings(mirrored=True))

    assert verified["accepted"].tolist() == [True, True, False, False]
    assert verified["orientation"].tolist() == [1, 8, 8, 2]


def test_a_rerun_verifies_only_pairs_of_new_and_changed_images(
    images, pairs, monkeypatch, tmp_path
):
    """The other pairs are read from geometry.parquet."""
    work_dir = str(tmp_path)
    verified_rows = []

    def record_block(block):
        verified_rows.extend(block.index)
        return [(7, 1)] * len(block)

    first_result = verify_geometry(images, pairs, SETTINGS, work_dir)
    monkeypatch.setattr(geometry, "_compare_block", record_block)
    second_result = verify_geometry(images, pairs, SETTINGS, work_dir)

    pd.testing.assert_frame_equal(first_result, second_result)
    assert not verified_rows
    images.loc[3, "n_bytes"] += 1
    verify_geometry(images, pairs, SETTINGS, work_dir)
    has_changed = (pairs["a"] == 3) | (pairs["b"] == 3)
    assert sorted(verified_rows) == np.flatnonzero(has_changed).tolist()


def test_a_place_of_an_image_is_found_in_its_crop(tmp_path):
    """Both as if their short sides had 192 pixels."""
    first = scene(240, 320, seed=1)
    second = first.crop((40, 30, 320, 240))  # 280 × 210
    paths = [str(tmp_path / f"{name}.png") for name in "abc"]
    for path, image in zip(paths, (first, second, scene(240, 320, 9)), strict=True):
        image.save(path)

    transform, n_inliers = find_transform(*paths[:2])

    corners = np.array([(40, 30), (320, 240)]) * 192 / 240
    found = np.column_stack([corners, [1, 1]]) @ transform.T
    expected = np.array([(0, 0), (280, 210)]) * 192 / 210
    assert found == pytest.approx(expected, abs=3)
    assert n_inliers > 100
    assert find_transform(*paths[1:])[1] < 12
    assert find_transform(paths[0], "missing")[1] == 0
