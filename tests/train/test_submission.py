"""submission.csv: every id once, in the template's order and in its form."""

import numpy as np
import pandas as pd
import pytest

from kaggle_tfr.images.masks import decode_mask
from kaggle_tfr.schema import Labels
from kaggle_tfr.train import fill_submission

SCORES = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.3, 0.6, 0.1]])
IDS = ["b.jpg", "a.jpg", "c.jpg"]


def frame(**columns):
    return pd.DataFrame(columns).astype(str)


@pytest.mark.parametrize(
    ("classes", "kind", "template", "expected"),
    [
        (("x", "y", "z"), "single", {"label": ["z"] * 3}, {"label": ["y", "x", "y"]}),
        (("x", "y", "z"), "single", {"label": [2, 2, 2]}, {"label": [1, 0, 1]}),
        ((10, 20, 30), "single", {"id": [30, 10, 10]}, {"id": ["20", "10", "20"]}),
        (
            ("x", "y", "z"),
            "multi",
            {"labels": ["x y"] * 3},
            {"labels": ["y", "x", "y"]},
        ),
        (
            ("x", "y", "z"),
            "single",
            {"z": ["0.5"] * 3, "x": ["0.5"] * 3},
            {"z": [0.1, 0.0, 0.1], "x": [0.2, 0.9, 0.3]},
        ),
        (
            ("x", "y"),
            "multi",
            {"x": [0, 0, 0], "y": [1, 0, 0]},
            {"x": [0, 1, 0], "y": [1, 0, 1]},
        ),
    ],
)
def test_the_template_decides_the_form(classes, kind, template, expected):
    """Numbers or ids of classes, joined names, scores or flags; in the template's order."""
    template = frame(image_id=["a.jpg", "b.jpg", "c.jpg"], **template)
    scores = SCORES[:, : len(classes)]
    filled = fill_submission(IDS, scores, Labels(kind, classes), template)
    assert filled["image_id"].tolist() == ["a.jpg", "b.jpg", "c.jpg"]
    assert {name: filled[name].tolist() for name in expected} == expected
    assert list(filled) == list(template)


def test_an_image_that_was_not_read_gets_the_most_frequent_class(capsys):
    """It is named; without a template the ids come as they were read."""
    labels = Labels("single", ("x", "y", "z"))
    template = frame(id=["a.jpg", "lost.jpg", "c.jpg", "b.jpg"], label=["x"] * 4)
    filled = fill_submission(IDS, SCORES, labels, template)
    assert filled["label"].tolist() == ["y", "y", "y", "x"]
    assert "1 of 4 test images could not be read" in capsys.readouterr().out
    assert fill_submission(IDS, SCORES, labels)["image_id"].tolist() == IDS


def test_ids_of_class_folders_lose_folder_and_ending(tmp_path):
    labels, template = (
        Labels("single", ("x", "y", "z")),
        frame(id=["a", "b", "c"], label=["x"] * 3),
    )
    ids = [f"test/{name}" for name in IDS]
    assert fill_submission(ids, SCORES, labels, template)["label"].tolist() == [
        "y",
        "x",
        "y",
    ]
    with pytest.raises(
        ValueError, match="none of 3 predicted images is in sample_submission.csv"
    ):
        fill_submission(["q", "r", "s"], SCORES, labels, template)
    with pytest.raises(
        ValueError, match="column 'label', which is no class. There are x"
    ):
        fill_submission(ids, SCORES, labels, template.assign(lable=0, x=0))


@pytest.mark.parametrize("apart", [False, True])
def test_masks_become_run_length_codes(apart):
    """As clouds asks for them: a row an image and label, by its id or in a column of its own."""
    labels = Labels("masks", ("Fish", "Sugar"), ("Fish", "Sugar"))
    masks = np.zeros((1, 4, 6, 2), np.uint8)
    masks[0, 1:3, 2:5, 1] = 1
    names = [
        ("a.jpg", "Fish"),
        ("a.jpg", "Sugar"),
        ("lost.jpg", "Fish"),
        ("lost.jpg", "Sugar"),
    ]
    template = frame(Image_Label=["_".join(name) for name in names], code=["1 1"] * 4)
    if apart:
        template = frame(
            id=[n[0] for n in names], label=[n[1] for n in names], code=["1 1"] * 4
        )
    filled = fill_submission(["a.jpg"], masks, labels, template)
    assert filled["code"].tolist()[::2] == ["", ""]
    assert filled["code"].iloc[3] == ""
    assert (decode_mask(filled["code"].iloc[1], 4, 6) == masks[0, :, :, 1]).all()


def test_the_ids_may_stand_in_any_column_of_the_template():
    """The column that names the predicted images; the others are filled."""
    labels = Labels("single", ("x", "y", "z"))
    template = frame(label=["x"] * 3, file=["a.jpg", "b.jpg", "c.jpg"])
    filled = fill_submission(IDS, SCORES, labels, template)
    assert filled.to_dict("list") == {
        "label": ["y", "x", "y"],
        "file": ["a.jpg", "b.jpg", "c.jpg"],
    }
