"""Figures of pairs: side by side, and moved onto each other."""

import numpy as np
import pandas as pd
import pytest
from support.scenes import scene

from kaggle_tfr import figures


@pytest.fixture
def pairs(tmp_path):
    """A photograph with its crop, which has a transform, and with another one."""
    photo = scene(240, 320, seed=1)
    images = {"a": photo, "b": photo.crop((40, 30, 320, 240)), "c": scene(240, 320)}
    for name, image in images.items():
        image.save(tmp_path / f"{name}.jpg")
    # The crop has 210 of 240 rows and begins at (40, 30); a short side is 1 long.
    transform = np.array([[210, 0, 40], [0, 210, 30]]) / 240
    pairs = pd.DataFrame({"transform": [transform, None], "image_id_b": ["b", "c"]})
    pairs["path_b"] = [str(tmp_path / f"{name}.jpg") for name in "bc"]
    first = {"image_id_a": "a", "split_a": "test", "label_name_a": "rose"}
    second = {"split_b": "train", "label_name_b": ["rose", "tulip"]}
    pairs = pairs.assign(path_a=str(tmp_path / "a.jpg"), **first, **second)
    return pairs.assign(orientation=1, bits=[1, 60], matches=[40, 0])


def test_a_pair_has_its_distance_and_two_labels_have_two_colours(pairs):
    """Each image has its id, split and label."""
    figure = figures.plot_pairs(pairs)

    labels = [axis.xaxis.label for axis in figure.axes]
    texts = [label.get_text() for label in labels]
    assert texts[2:] == ["a\ntest\nrose", "c\ntrain\ntulip"]
    colors = [label.get_color() for label in labels]
    assert colors[0] == colors[1]
    assert colors[2] != colors[3]
    headings = [axis.get_title() for axis in figure.axes]
    assert headings == ["1 of 256 bits", "", "60 of 256 bits", ""]
    assert len(figures.plot_pairs(pairs, most=1).axes) == 2


def test_a_crop_is_moved_onto_its_original(pairs):
    """The chequerboard of both is nearly the original where the crop has pixels."""
    figure = figures.plot_aligned(pairs, ["crop", "other"])

    pixels = [axis.images[0].get_array() for axis in figure.axes]
    first, moved, both = (image.astype(int) for image in pixels[:3])
    has_pixels = (moved < 255).any(axis=2)
    assert 0.6 < has_pixels.mean() < 0.9
    assert np.abs(first - moved)[has_pixels].mean() < 10
    is_first = (both == first).all(axis=2)
    is_second = (both == moved).all(axis=2)
    assert (is_first | is_second).all()
    assert 0.4 < is_first.mean() < 0.9
    assert figure.axes[2].get_xlabel().startswith("bits: 1\n")
