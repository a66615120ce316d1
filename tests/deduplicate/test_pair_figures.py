"""Figures of pairs, side by side."""

import pandas as pd
import pytest
from support.scenes import scene

from kaggle_tfr import figures


@pytest.fixture
def pairs(tmp_path):
    """A photograph with two others."""
    scene(240, 320).save(tmp_path / "a.jpg")
    pairs = pd.DataFrame({"image_id_b": ["b", "c"], "bits": [1, 60]})
    first = {"image_id_a": "a", "split_a": "test", "label_name_a": "rose"}
    second = {"split_b": "train", "label_name_b": ["rose", "tulip"]}
    path = str(tmp_path / "a.jpg")
    return pairs.assign(**first, **second, path_a=path, path_b=path, orientation=1)


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
