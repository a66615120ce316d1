import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps
from support.scenes import saved, scene

from kaggle_tfr.deduplicate import geometry
from kaggle_tfr.deduplicate.geometry import verify_geometry


@pytest.fixture
def images(tmp_path):
    """A scene, its shifted and its recoloured copy, another, no image, and two blank pages."""
    first, other = scene(240, 320, seed=1), scene(240, 320, seed=2)
    recoloured = ImageOps.colorize(first.convert("L"), "navy", "yellow")
    pictures = [first, first.crop((40, 30, 320, 240)), recoloured, other]
    blank = saved(Image.new("L", (90, 90), 200))
    files = [*map(saved, pictures), b"no image", blank, blank]
    paths = [tmp_path / f"{number}.jpg" for number in range(len(files))]
    sizes = [path.write_bytes(data) for path, data in zip(paths, files, strict=True)]
    return pd.DataFrame({"path": map(str, paths), "n_bytes": sizes})


@pytest.fixture
def pairs():
    return pd.DataFrame(np.argwhere(np.tri(7, k=-1).T), columns=["a", "b"]).assign(
        distance=60, orientation=1
    )


def test_the_same_scene_is_told_from_another(images, pairs):
    """Copies lie where one transform says, other pictures do not; a near pair stays accepted."""
    pairs.loc[2, "distance"] = 10
    verified = verify_geometry(images, pairs)
    accepted, refused = (
        verified[verified["accepted"] == value] for value in (True, False)
    )
    assert accepted[["a", "b"]].to_numpy().tolist() == [[0, 1], [0, 2], [0, 3], [1, 2]]
    assert accepted["inliers"].min() == verified["inliers"][2] <= 6
    assert refused["inliers"].max() <= 6


def test_a_turned_pair_is_accepted_unverified_within_its_own_radius_alone(
    images, pairs
):
    """Four fifths of `max_bits`: round flowers are 21 to 25 bits from others that are turned."""
    far = pairs[pairs["b"] == 4].assign(
        distance=[25, 20, 21, 25], orientation=[1, 8, 8, 2]
    )
    verified = verify_geometry(images, far, max_bits=25)
    assert verified["accepted"].tolist() == [True, True, False, False]
    assert verified["orientation"].tolist() == [1, 8, 8, 2]


def test_a_rerun_verifies_only_what_is_new(images, pairs, monkeypatch, tmp_path):
    """Pairs already verified come from geometry.parquet, unless a picture has changed."""
    first, verified = verify_geometry(images, pairs, str(tmp_path)), []
    count_block = lambda block: verified.extend(block.index) or [(7, 1)] * len(block)  # noqa: E731
    monkeypatch.setattr(geometry, "_verify_block", count_block)
    pd.testing.assert_frame_equal(first, verify_geometry(images, pairs, str(tmp_path)))
    assert not verified
    images.loc[3, "n_bytes"] += 1
    verify_geometry(images, pairs, str(tmp_path))
    assert sorted(verified) == sorted(
        np.flatnonzero((pairs["a"] == 3) | (pairs["b"] == 3))
    )
