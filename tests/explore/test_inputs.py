"""Test images, given splits and further inputs are rows of one table."""

from pathlib import Path

import pytest
from support.inputs import put, put_csv, put_image, read, read_cells, rows_of

from kaggle_tfr.explore.step import save_template
from kaggle_tfr.explore.table import measure
from kaggle_tfr.plan import assign_folds

ROWS = "image_id,label\na.jpg,x\nb.jpg,y\n"
SUBMISSION = "label,file\nx,t2.jpg\nx,t1.jpg\n"
DAMAGED = "truncated, or of an unsupported type"


@pytest.fixture
def competition():
    """A competition with two labelled and two test images, of which one is damaged."""
    folder = put_csv("in", ROWS, ["a.jpg", "b.jpg"])
    put(folder, ["test_images/t1.jpg"], {"sample_submission.csv": SUBMISSION})
    (folder / "test_images" / "t2.jpg").write_bytes(b"\xff\xd8\xff")
    return folder


def of_test(images):
    return images[images["split"] == "test"]


def test_a_competitions_test_images_are_rows_without_a_label(competition):
    """They are found by default, in the CSV's order.

    A TEST_CSV that is not called a submission may have answers: it is not published.
    """
    images = measure(*read(competition))

    found = rows_of(of_test(images), "problem", "label", "label_name")
    assert found == {"t2.jpg": [DAMAGED, -1, ""], "t1.jpg": ["", -1, ""]}
    assert list(found) == ["t2.jpg", "t1.jpg"]
    template = Path("sample_submission.csv")
    save_template(str(competition), template.name, ".")
    assert template.read_text() == SUBMISSION
    put(competition, [], {"test.csv": SUBMISSION})
    save_template(str(competition), "test.csv", ".")
    assert not template.exists()


def test_test_images_of_a_folder_that_test_csv_lacks_are_test_images(competition):
    """Their ids are their paths; without TEST_CSV all have such ids."""
    put_image(competition / "test_images" / "t3.jpg")
    images, _ = read(competition)
    expected = {"t2.jpg": "", "t1.jpg": "", "test_images/t3.jpg": ""}
    assert rows_of(of_test(images), "problem") == expected
    images, _ = read(competition, test_csv="")
    names = [f"test_images/t{number}.jpg" for number in (1, 2, 3)]
    assert of_test(images)["image_id"].tolist() == names


def test_given_splits_stay():
    """They have the names of kaggle-tfr; other words reject the row."""
    cells = ["x,train", "y,Valid", "x,TEST", "x,holdout", "x,"]

    images, _ = read_cells("label,split", cells, split_column="split")

    assert images["split"].tolist() == ["train", "validation", "test", "train", "train"]
    odd = [f"not a split in column 'split': '{word}'" for word in ("holdout", "")]
    assert images["problem"].tolist() == ["", "", "", *odd]
    with pytest.raises(ValueError, match=r"SPLIT_COLUMN is 'spilt', .*'split': 5"):
        read(split_column="spilt")


@pytest.mark.parametrize(
    ("names", "labels"),
    [("xyxy", [0, 1, 0, 1]), ("xy? ", [0, 1, -1, -1])],
)
def test_test_rows_may_have_labels(names, labels):
    """Placeholders are not labels."""
    cells = ["x,train", "y,train", *(f"{name},test" for name in names)]

    images, found = read_cells("label,split", cells, split_column="split")

    assert found.classes == ("x", "y")
    assert images["label"].tolist() == [0, 1, *labels]
    assert images["problem"].tolist() == [""] * 6


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
    with pytest.raises(FileNotFoundError, match="Looked in /.*/main/more/typo and"):
        read("main", more_inputs=[{"INPUT_DIR": "more/typo"}])


def test_further_inputs_of_several_labels_line_up_their_columns():
    """A label that the second input lacks is 0; LABEL_MAP may leave out several."""
    put_csv("more", "image_id,z,y,v,w\nm.jpg,1,0,1,0\n", ["m.jpg"])
    more = {
        "INPUT_DIR": "more",
        "LABEL_COLUMN": ["z", "y", "v", "w"],
        "LABEL_MAP": {"z": "x", "v": "", "w": ""},
    }
    changes = {"label_column": ["x", "y"], "label_kind": "multi"}

    images, _ = read_cells("x,y", ["0,1"], **changes, more_inputs=[more])

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
    put("in", ["i/a.jpg", "i/b.jpg", "i/c.jpg", "i/d.jpg"], {"train.csv": ROWS})
    put("in", [], {"more.csv": "image_id,label\nb.jpg,x\nc.jpg,y\n"})
    more = {"INPUT_DIR": str(Path("in").absolute()), "LABELS_CSV": "more.csv"}
    images, _ = read("in", more_inputs=[more])
    assert rows_of(images, "source", "label_name", "problem") == {
        "a.jpg": [0, "x", ""],
        "b.jpg": [0, "y", ""],
        "i/d.jpg": [0, "", "no row in train.csv"],
        "c.jpg": [1, "y", ""],
    }


def test_a_further_input_with_other_classes_is_an_error(competition):
    """The message says what to set."""
    put_csv(competition / "more", "image_id,label\nm.jpg,z\n", ["m.jpg"])
    with pytest.raises(ValueError, match=r"1 classes are not .* 'z'. .*{\"z\": "):
        read(competition, more_inputs=[{"INPUT_DIR": "more"}])
