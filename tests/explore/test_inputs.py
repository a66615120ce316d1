"""Test images, given splits and further inputs are rows of one table."""

from pathlib import Path

import pytest
from support.inputs import put, put_csv, read, read_cells, rows_of

from kaggle_tfr.explore.step import save_template
from kaggle_tfr.explore.table import measure
from kaggle_tfr.plan import assign_folds

ROWS = "image_id,label\na.jpg,x\nb.jpg,y\n"
SUBMISSION = "label,file\nx,t2.jpg\nx,t1.jpg\n"


def test_a_competitions_test_images_are_rows_without_a_label():
    """They are found by default, in the CSV's order; those that it lacks follow.

    A TEST_CSV that is not called a submission may have answers: it is not published.
    """
    put_csv("in", ROWS, ["a.jpg", "b.jpg"])
    texts = {"sample_submission.csv": SUBMISSION, "test_images/t2.jpg": "no image"}
    put("in", ["test_images/t1.jpg", "test_images/t3.jpg"], texts)

    images = measure(*read("in"))

    tests = images[images["split"] == "test"]
    found = rows_of(tests, "problem", "label", "label_name")
    assert found == {
        "test_images/t3.jpg": ["", -1, ""],
        "t2.jpg": ["not an image", -1, ""],
        "t1.jpg": ["", -1, ""],
    }
    assert list(found)[1:] == ["t2.jpg", "t1.jpg"]
    images, _ = read("in", test_csv="")
    names = [f"test_images/t{number}.jpg" for number in (1, 2, 3)]
    assert images["image_id"][images["split"] == "test"].tolist() == names

    template = Path("sample_submission.csv")
    save_template("in", template.name, ".")
    assert template.read_text() == SUBMISSION
    put("in", [], {"test.csv": SUBMISSION})
    save_template("in", "test.csv", ".")
    assert not template.exists()


def test_given_splits_stay():
    """They have the names of kaggle-tfr; other words reject the row.

    Test images may have labels, but placeholders are not labels.
    """
    cells = ["x,train", "y,Valid", "x,TEST", "?,test", ",test", "x,holdout", "x,"]

    images, labels = read_cells("label,split", cells, split_column="split")

    splits = ["train", "validation", *["test"] * 3, "train", "train"]
    assert images["split"].tolist() == splits
    odd = [f"not a split in column 'split': '{word}'" for word in ("holdout", "")]
    assert images["problem"].tolist() == [*[""] * 5, *odd]
    assert labels.classes == ("x", "y")
    assert images["label"].tolist() == [0, 1, 0, -1, -1, 0, 0]
    images, _ = read(split_column="split", limit=2)
    assert images["image_id"].tolist() == ["0", "3"]
    with pytest.raises(ValueError, match=r"SPLIT_COLUMN is 'spilt', .*'split': 6"):
        read(split_column="spilt")


def test_further_inputs_join_by_the_names_of_their_classes():
    """Folders, columns and names may differ; a repeated id gets the input's number."""
    put_csv("main", ROWS, ["a.jpg", "b.jpg"])
    csv = {"more.csv": "id,kind\na.jpg,why\nc.jpg,x\n"}
    put("main/more", ["img/a.jpg", "img/c.jpg"], csv)
    more = {"INPUT_DIR": "more", "LABELS_CSV": "more.csv", "LABEL_COLUMN": "kind"}

    images, labels = read("main", more_inputs=[more | {"LABEL_MAP": {"why": "y"}}])

    assert labels.classes == ("x", "y")
    assert rows_of(images, "source", "label", "problem") == {
        "a.jpg": [0, 0, ""],
        "b.jpg": [0, 1, ""],
        "1/a.jpg": [1, 1, ""],
        "c.jpg": [1, 0, ""],
    }
    assert images["path"].iloc[2].endswith("/main/more/img/a.jpg")
    with pytest.raises(ValueError, match=r"1 classes are not .* 'why'. .*{\"why\": "):
        read("main", more_inputs=[more])
    with pytest.raises(FileNotFoundError, match="Looked in /.*/main/more/typo and"):
        read("main", more_inputs=[{"INPUT_DIR": "more/typo"}])
    images, _ = read("main", label_column=[], more_inputs=[{"INPUT_DIR": "more"}])
    assert not any(images["problem"])


def test_further_inputs_of_several_labels_line_up_their_columns():
    """A label that the second input lacks is 0; LABEL_MAP may leave out several."""
    put_csv("more", "image_id,z,y,v,w\nm.jpg,1,0,1,0\n", ["m.jpg"])
    more = {
        "INPUT_DIR": "more",
        "LABEL_COLUMN": ["z", "y", "v", "w"],
        "LABEL_MAP": {"z": "x", "v": "", "w": ""},
    }
    images, _ = read_cells(
        "x,y",
        ["0,1"],
        label_column=["x", "y"],
        label_kind="multi",
        more_inputs=[more],
    )

    found = rows_of(images, "x", "y", "label_name", "label")
    assert found == {"0": [0, 1, "y", 1], "m.jpg": [1, 0, "x", 0]}


def test_validation_images_of_a_further_input_train_nowhere():
    """They have the name that the main input has for them; test images are rejected."""
    put("in", ["train/x/1.jpg", "val/x/2.jpg", "train/y/3.jpg"])
    put("old", ["train/x/1.jpg", "valid/y/4.jpg", "test/y/5.jpg"])
    text = "image_id,label,split\nm.jpg,x,train\nv.jpg,y,Dev\n"
    put_csv("more", text, ["m.jpg", "v.jpg"])
    more = {"INPUT_DIR": "../more", "SPLIT_COLUMN": "split"}

    images, _ = read("in", more_inputs=[{"INPUT_DIR": "../old"}, more])

    assert rows_of(images, "split") == {
        "train/x/1.jpg": "train",
        "train/y/3.jpg": "train",
        "val/x/2.jpg": "val",
        "1/train/x/1.jpg": "train",
        "valid/y/4.jpg": "val",
        "test/y/5.jpg": "test",
        "m.jpg": "train",
        "v.jpg": "val",
    }
    problem_of = rows_of(images, "problem")
    assert problem_of.pop("test/y/5.jpg") == "test image of a further input"
    assert not any(problem_of.values())
    folded = assign_folds(images[images["problem"] == ""], n_folds=2, seed=0)
    assert rows_of(folded, "fold")["v.jpg"] == -1


def test_a_second_csv_of_the_same_folder_adds_its_images_once():
    """What neither CSV lists is rejected once."""
    csvs = {"train.csv": ROWS, "more.csv": "image_id,label\nb.jpg,x\nc.jpg,y\n"}
    put("in", ["i/a.jpg", "i/b.jpg", "i/c.jpg", "i/d.jpg"], csvs)
    more = {"INPUT_DIR": str(Path("in").absolute()), "LABELS_CSV": "more.csv"}
    images, _ = read("in", more_inputs=[more])
    assert rows_of(images, "source", "label_name", "problem") == {
        "a.jpg": [0, "x", ""],
        "b.jpg": [0, "y", ""],
        "i/d.jpg": [0, "", "no row in train.csv"],
        "c.jpg": [1, "y", ""],
    }
