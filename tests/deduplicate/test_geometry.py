import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps
from support.scenes import saved, scene

from kaggle_tfr.deduplicate import geometry
from kaggle_tfr.deduplicate.geometry import estimate_geometry_seconds, verify_geometry


@pytest.fixture
def images(tmp_path):
    """A scene, its shifted and its recoloured copy, another scene, and a file that is no image."""
    first, other = scene(240, 320, seed=1), scene(240, 320, seed=2)
    shifted = first.crop((40, 30, 320, 240))
    recoloured = ImageOps.colorize(first.convert("L"), "navy", "yellow")
    pictures = [first, shifted, recoloured, other]
    for number, picture in enumerate(pictures):
        (tmp_path / f"{number}.jpg").write_bytes(saved(picture))
    (tmp_path / "4.jpg").write_bytes(b"no image")
    paths = [tmp_path / f"{number}.jpg" for number in range(5)]
    return pd.DataFrame({"path": map(str, paths), "n_bytes": [p.stat().st_size for p in paths]})


@pytest.fixture
def pairs():
    a, b = np.triu_indices(5, 1)
    return pd.DataFrame({"a": a, "b": b, "distance": 60})


def test_the_same_scene_is_told_from_another(images, pairs):
    """
    Shifted and recoloured copies lie where one transform says; other scenes and no image do not.
    """
    looked = verify_geometry(images, pairs)

    accepted = looked[looked["accepted"]]
    assert set(zip(accepted["a"], accepted["b"], strict=True)) == {(0, 1), (0, 2), (1, 2)}
    assert looked["inliers"][~looked["accepted"]].max() <= 6


def test_pairs_within_the_radius_stay_accepted_and_get_their_inliers(images, pairs):
    """
    What the hashes settle is not undone, only shown with what the look found.
    """
    looked = verify_geometry(images, pairs.assign(distance=[30, 30, 10] + [30] * 7))

    assert looked["accepted"].tolist() == [True, True, True, False, True] + [False] * 5
    assert looked["inliers"][2] < geometry.MIN_INLIERS


def test_a_rerun_looks_only_at_what_is_new(images, pairs, monkeypatch, tmp_path):
    """
    Pairs already looked at come from second_look.parquet, unless a picture has changed.
    """
    first = verify_geometry(images, pairs, str(tmp_path))
    looks = []
    monkeypatch.setattr(
        geometry, "_look_at_block", lambda item: looks.extend(item[0]) or (item[0], 7)
    )

    again = verify_geometry(images, pairs, str(tmp_path))
    assert not looks
    pd.testing.assert_frame_equal(first, again)
    images.loc[3, "n_bytes"] += 1
    verify_geometry(images, pairs, str(tmp_path))
    assert sorted(looks) == sorted(np.flatnonzero((pairs["a"] == 3) | (pairs["b"] == 3)))


def test_the_forecast_is_in_proportion_to_the_pairs(images, pairs):
    """
    A thousand times the pairs of the same pictures take longer, and no pairs take no time.
    """
    many = pd.concat([pairs] * 1000, ignore_index=True)

    assert (
        estimate_geometry_seconds(images, many)
        > 10 * estimate_geometry_seconds(images, pairs) * 0.5
    )
    assert estimate_geometry_seconds(images, pairs[:0]) == 0


def test_a_plain_picture_has_nothing_to_compare(tmp_path):
    """
    Two blank pages have no features, so nothing says that they show the same.
    """
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_bytes(saved(Image.new("L", (90, 90), 200), "PNG"))
    images = pd.DataFrame({"path": [str(tmp_path / "a.png"), str(tmp_path / "b.png")]})

    looked = verify_geometry(
        images.assign(n_bytes=1), pd.DataFrame({"a": [0], "b": [1], "distance": [60]})
    )

    assert looked["inliers"].tolist() == [0]
    assert not looked["accepted"].any()
