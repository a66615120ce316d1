import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps
from support.scenes import saved, scene

from kaggle_tfr.deduplicate import geometry
from kaggle_tfr.deduplicate.geometry import estimate_geometry_seconds, verify_geometry


@pytest.fixture
def images(tmp_path):
    """A scene, its shifted and its recoloured copy, another, no image, and two blank pages."""
    first, other = scene(240, 320, seed=1), scene(240, 320, seed=2)
    shifted = first.crop((40, 30, 320, 240))
    recoloured = ImageOps.colorize(first.convert("L"), "navy", "yellow")
    blank = saved(Image.new("L", (90, 90), 200))
    files = [*map(saved, (first, shifted, recoloured, other)), b"no image", blank, blank]
    paths = [tmp_path / f"{number}.jpg" for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    return pd.DataFrame({"path": map(str, paths), "n_bytes": [len(data) for data in files]})


@pytest.fixture
def pairs():
    a, b = np.triu_indices(7, 1)
    return pd.DataFrame({"a": a, "b": b, "distance": 60})


def test_the_same_scene_is_told_from_another(images, pairs):
    """
    Shifted and recoloured copies lie where one transform says; other scenes, blank pages and no
    image do not. A pair within the radius stays accepted, whatever its inliers.
    """
    pairs.loc[2, "distance"] = 10

    verified = verify_geometry(images, pairs)

    accepted = verified[verified["accepted"]]
    numbers = set(zip(accepted["a"], accepted["b"], strict=True))
    assert numbers == {(0, 1), (0, 2), (1, 2), (0, 3)}
    assert verified["inliers"][verified["accepted"]].min() == verified["inliers"][2] <= 6
    assert verified["inliers"][~verified["accepted"]].max() <= 6


def test_a_rerun_verifies_only_what_is_new(images, pairs, monkeypatch, tmp_path):
    """
    Pairs already verified come from geometry.parquet, unless a picture has changed.
    """
    first = verify_geometry(images, pairs, str(tmp_path))
    verified = []

    def count_block(block):
        verified.extend(block.index)
        return [(7,)] * len(block)

    monkeypatch.setattr(geometry, "_count_block", count_block)

    again = verify_geometry(images, pairs, str(tmp_path))
    assert not verified
    pd.testing.assert_frame_equal(first, again)
    images.loc[3, "n_bytes"] += 1
    verify_geometry(images, pairs, str(tmp_path))
    assert sorted(verified) == sorted(np.flatnonzero((pairs["a"] == 3) | (pairs["b"] == 3)))


def test_the_estimate_is_in_proportion_to_the_pairs(images, pairs):
    """
    A thousand times the pairs of the same pictures take longer, and no pairs take no time.
    """
    many = pd.concat([pairs] * 1000, ignore_index=True)

    few_seconds, many_seconds = (estimate_geometry_seconds(images, p) for p in (pairs, many))

    assert many_seconds > 5 * few_seconds
    assert estimate_geometry_seconds(images, pairs[:0]) == 0
