"""The geometric verification of pairs, on scenes, photographs and their copies."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps
from support.scenes import saved, scene

from kaggle_tfr import figures
from kaggle_tfr.deduplicate import geometry
from kaggle_tfr.deduplicate.geometry import find_transform, verify_geometry
from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.explore.table import load_hashes, measure

SETTINGS = DuplicateSettings()


@pytest.fixture
def images(tmp_path):
    """A scene, its crop, a rotated copy, another scene, no image, a blank, a strip."""
    first = scene(240, 320, seed=1)
    second = scene(240, 320, seed=2)
    shifted = first.crop((40, 30, 320, 240))  # 280 × 210
    recoloured = ImageOps.colorize(first.convert("L"), "navy", "yellow")
    recoloured = recoloured.transpose(Image.Transpose.ROTATE_90)
    blank = saved(Image.new("L", (90, 90), 200))
    files = [saved(image) for image in (first, shifted, recoloured, second)]
    strip = saved(Image.new("L", (1600, 1), 200))  # one pixel high
    files += [b"no image", blank, strip]
    return save_files(files, tmp_path)


def save_files(files, folder):
    """Write 0.jpg, 1.jpg, … and return their table."""
    paths = [folder / f"{number}.jpg" for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    return list_files(paths)


def list_files(paths):
    images = pd.DataFrame({"path": map(str, paths), "problem": ""})
    sizes = [path.stat().st_size for path in paths]
    return images.assign(image_id=images["path"], n_bytes=sizes)


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
    """The other pairs are read from geometry.parquet. 12 matches are a copy, 11 not."""
    work_dir = str(tmp_path)
    verified_rows = []

    def record_block(block):
        verified_rows.extend(block.index)
        return [(12, 1), (11, 1)] * (len(block) // 2)

    first_result = verify_geometry(images, pairs, SETTINGS, work_dir)
    monkeypatch.setattr(geometry, "_compare_block", record_block)
    second_result = verify_geometry(images, pairs, SETTINGS, work_dir)

    pd.testing.assert_frame_equal(first_result, second_result)
    assert geometry.find_features.cache_info().currsize == 0  # files may change
    assert not verified_rows
    images.loc[3, "n_bytes"] += 1
    third_result = verify_geometry(images, pairs, SETTINGS, work_dir)
    changed = third_result[(pairs["a"] == 3) | (pairs["b"] == 3)]
    assert sorted(verified_rows) == changed.index.tolist()
    assert changed["verdict"].tolist() == ["geometry", "rejected"] * 3


def test_a_place_of_an_image_is_found_in_its_crop(images, tmp_path):
    """Both as if their short sides had 192 pixels. A copy is at most twice as large."""
    first, crop, _, other, *_ = images["path"]

    transform, n_inliers = find_transform(first, crop)

    corners = np.array([(40, 30), (320, 240)]) * 192 / 240
    found = np.column_stack([corners, [1, 1]]) @ transform.T
    expected = np.array([(0, 0), (280, 210)]) * 192 / 210
    assert found == pytest.approx(expected, abs=3)
    assert n_inliers > 100
    detail = str(tmp_path / "detail.png")
    Image.open(first).crop((0, 0, 136, 102)).save(detail)
    for paths in ((first, detail), (detail, first), (first, "missing")):
        assert find_transform(*paths)[1] == 0
    assert find_transform(crop, other)[1] < 12


def test_geometry_confirms_near_pairs_and_finds_further_ones(data_dir, tmp_path):
    """All 32 near pairs and about a dozen others are accepted, all of one scene.

    Ranges, because another version of OpenCV accepts a few pairs more or fewer.
    """
    flowers = list_files(sorted((data_dir / "flowers").glob("*/*")))
    measured = measure(flowers, work_dir=str(tmp_path))
    pairs = find_pairs(load_hashes(measured, str(tmp_path)), 45)

    verified = verify_geometry(flowers, pairs, DuplicateSettings(max_bits=-1))

    assert len(verified) in range(301, 312)
    is_near = verified["distance"] <= 25
    assert is_near.sum() == 32
    assert (verified["inliers"][is_near] >= 12).all()
    assert verified["accepted"].sum() in range(42, 47)


def test_a_pair_is_drawn_with_its_distance_and_labels(images):
    """Each image has its id, split and label; two labels have two colours."""
    path = images["path"][0]
    pairs = pd.DataFrame({"image_id_b": ["b", "c"], "bits": [1, 60]})
    first = {"image_id_a": "a", "split_a": "test", "label_name_a": "rose"}
    second = {"split_b": "train", "label_name_b": ["rose", "tulip"]}
    pairs = pairs.assign(**first, **second, path_a=path, path_b=path, orientation=1)

    figure = figures.plot_pairs(pairs)

    labels = [axis.xaxis.label for axis in figure.axes]
    texts = [label.get_text() for label in labels]
    assert texts[2:] == ["a\ntest\nrose", "c\ntrain\ntulip"]
    colors = [label.get_color() for label in labels]
    assert colors[0] == colors[1]
    assert colors[2] != colors[3]
    headings = [axis.get_title() for axis in figure.axes]
    assert headings == ["1 of 256 bits", "", "60 of 256 bits", ""]
