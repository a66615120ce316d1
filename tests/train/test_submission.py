"""submission.csv: every id once, in the template's order and in its form."""

import numpy as np
import pandas as pd
import pytest

from kaggle_tfr.train import fill_submission

SCORES = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.3, 0.6, 0.1]])
CLASSES = ("x", "y", "z")
IDS = ["b.jpg", "a.jpg", "c.jpg"]


def frame(**columns):
    return pd.DataFrame(columns).astype(str)


@pytest.mark.parametrize(
    ("classes", "template", "expected"),
    [
        (("x", "y", "z"), {"label": ["z"] * 3}, {"label": ["y", "x", "y"]}),
        ((10, 20, 30), {"id": [30, 10, 10]}, {"id": ["20", "10", "20"]}),
        (
            ("x", "y", "z"),
            {"z": ["0.5"] * 3, "x": ["0.5"] * 3},
            {"z": [0.1, 0.0, 0.1], "x": [0.2, 0.9, 0.3]},
        ),
    ],
)
def test_the_template_decides_the_form(classes, template, expected):
    """Names of classes or scores, in the template's order."""
    template = frame(image_id=["a.jpg", "b.jpg", "c.jpg"], **template)
    scores = SCORES[:, : len(classes)]
    filled = fill_submission(IDS, scores, classes, template)
    assert filled["image_id"].tolist() == ["a.jpg", "b.jpg", "c.jpg"]
    assert {name: filled[name].tolist() for name in expected} == expected
    assert list(filled) == list(template)


def test_an_image_that_was_not_read_gets_the_most_frequent_class(capsys):
    """It is named; without a template the ids come as they were read."""
    template = frame(id=["a.jpg", "lost.jpg", "c.jpg", "b.jpg"], label=["x"] * 4)
    filled = fill_submission(IDS, SCORES, CLASSES, template)
    assert filled["label"].tolist() == ["y", "y", "y", "x"]
    assert "could not be read: 1 (lost.jpg)" in capsys.readouterr().out
    assert fill_submission(IDS, SCORES, CLASSES)["image_id"].tolist() == IDS


def test_ids_of_class_folders_lose_folder_and_ending(tmp_path):
    template = frame(id=["a", "b", "c"], label=["x"] * 3)
    ids = [f"test/{name}" for name in IDS]
    assert fill_submission(ids, SCORES, CLASSES, template)["label"].tolist() == [
        "y",
        "x",
        "y",
    ]
    with pytest.raises(
        ValueError, match="none of 3 predicted images is in sample_submission.csv"
    ):
        fill_submission(["q", "r", "s"], SCORES, CLASSES, template)
    with pytest.raises(
        ValueError, match="column 'label', which is not a class. There are x"
    ):
        fill_submission(ids, SCORES, CLASSES, template.assign(lable=0, x=0))


def test_the_ids_may_stand_in_any_column_of_the_template():
    """The column that names the predicted images; the others are filled."""
    template = frame(label=["x"] * 3, file=["a.jpg", "b.jpg", "c.jpg"])
    filled = fill_submission(IDS, SCORES, CLASSES, template)
    assert filled.to_dict("list") == {
        "label": ["y", "x", "y"],
        "file": ["a.jpg", "b.jpg", "c.jpg"],
    }
