"""submission.csv: every id once, in the template's order and in its form."""

from io import StringIO

import numpy as np
import pandas as pd
import pytest

from kaggle_tfr.train import fill_submission

SCORES = np.array([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.3, 0.6, 0.1]])
CLASSES = ("x", "y", "z")
IDS = ["b.jpg", "a.jpg", "c.jpg"]


@pytest.mark.parametrize(
    ("classes", "template", "expected"),
    [
        (CLASSES, "id,label\na.jpg,z\nb.jpg,z", "id,label\na.jpg,y\nb.jpg,x\n"),
        ((10, 20, 30), "image_id,id\na.jpg,30", "image_id,id\na.jpg,20\n"),
        (CLASSES, "image_id,z,x\nb.jpg,0.5,0.5", "image_id,z,x\nb.jpg,0.0,0.9\n"),
        (CLASSES, "label,file\nx,c.jpg", "label,file\ny,c.jpg\n"),
    ],
)
def test_the_template_decides_the_form(classes, template, expected):
    """Names of classes or scores, in the template's order.

    The ids may be in any column.
    """
    template = pd.read_csv(StringIO(template), dtype=str)
    filled = fill_submission(IDS, SCORES, classes, template)
    assert filled.to_csv(index=False) == expected


def test_an_image_that_was_not_read_gets_the_mean_of_all(capsys):
    """It is named; without a template the ids come as they were read."""
    template = pd.DataFrame({"id": ["a.jpg", "lost.jpg", "c.jpg"], "y": "0", "z": "0"})
    filled = fill_submission(IDS, SCORES, CLASSES, template)
    assert filled["y"].to_numpy() == pytest.approx([0.7, 1.4 / 3, 0.6])
    assert "could not be read: 1, such as lost.jpg" in capsys.readouterr().out
    assert fill_submission(IDS, SCORES, CLASSES)["image_id"].tolist() == IDS


def test_ids_of_class_folders_lose_folder_and_ending(tmp_path):
    template = pd.DataFrame({"id": ["a", "b", "c"], "label": "x"})
    ids = [f"test/{name}" for name in IDS]
    filled = fill_submission(ids, SCORES, CLASSES, template)
    assert "".join(filled["label"]) == "yxy"
    with pytest.raises(ValueError, match="none of 3 predicted images is in sample_s"):
        fill_submission(["q", "r", "s"], SCORES, CLASSES, template)
    with pytest.raises(ValueError, match="the columns label, x, but the classes are"):
        fill_submission(ids, SCORES, CLASSES, template.assign(x=0))
