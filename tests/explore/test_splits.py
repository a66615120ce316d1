"""Given splits: SPLIT_COLUMN, CSVs in the folders of splits, and further inputs."""

import pytest
from support.inputs import put_csv, put_image, read

from kaggle_tfr.explore.inputs import read_table, save_submission
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.parameters import make_settings
from kaggle_tfr.plan import assign_folds

SPLITS = """image_id,label,split
a.jpg,x,train
b.jpg,y,Valid
c.jpg,x,TEST
d.jpg,x,holdout
e.jpg,x,
"""
ROBOFLOW = {
    "labels_csv": "*/_classes.csv",
    "id_column": "filename",
    "label_column": ["cat", "dog"],
    "path_template": "{csv_folder}/{image_id}",
    "split_column": "csv_folder",
    "test_path_template": "",
}


def rows_of(images, *columns):
    return {
        row[0]: row[1:] for row in images[["image_id", *columns]].to_numpy().tolist()
    }


def put_roboflow(folder):
    """Create an export of Roboflow: a CSV beside the images of each split."""
    for split, rows in {
        "train": ["a,1, 0", "b,0,1"],
        "valid": ["c,1,0"],
        "test": ["d,0,1"],
    }.items():
        lines = [row.replace(",", ".jpg,", 1) for row in rows]
        for row in rows:
            put_image(folder / split / f"{row[0]}.jpg")
        text = "\n".join(["filename, cat, dog", *lines, ""])
        (folder / split / "_classes.csv").write_text(text)
    return folder


def test_given_splits_stay(tmp_path):
    """They have the names of kaggle-tfr, in 03 too; other words reject the row."""
    folder = put_csv(tmp_path, SPLITS, [f"{name}.jpg" for name in "abcde"])
    images, _ = read(folder, split_column="split")

    problem = "column 'split' holds 'holdout', which is not a split"
    assert rows_of(images, "split", "label", "problem") == {
        "a.jpg": ["train", 0, ""],
        "b.jpg": ["validation", 1, ""],
        "c.jpg": ["test", 0, ""],
        "d.jpg": ["train", 0, problem],
        "e.jpg": ["train", 0, "no split in column 'split'"],
    }
    folded = assign_folds(images[images["problem"] == ""], n_folds=1, seed=0)
    assert folded["split"].tolist() == ["train", "validation", "test"]
    with pytest.raises(
        ValueError,
        match=r"SPLIT_COLUMN 'label' has no row to train on: it holds 'x', 'y'",
    ):
        read(folder, split_column="label")
    (tmp_path / "train.csv").write_text(
        "image_id,label,split\na.jpg,x,test\nb.jpg,y,TEST\n"
    )
    with pytest.raises(
        ValueError, match=r"'split' has no row to train on: it holds 'test', 'TEST'"
    ):
        read(folder, split_column="split")
    with pytest.raises(
        ValueError, match=r"SPLIT_COLUMN is 'split', but SOURCE is 'folders'"
    ):
        read(folder, split_column="split", source="folders")
    with pytest.raises(
        ValueError, match=r"no column 'spilt'.*Did you mean \"split\".*Set SPLIT_COLUMN"
    ):
        read(folder, split_column="spilt")


@pytest.mark.parametrize(("column", "warned"), [("subset", True), ("group", False)])
def test_a_column_of_splits_that_is_not_used_is_named(tmp_path, capsys, column, warned):
    text = f"image_id,label,{column}\na.jpg,x,train\nb.jpg,y,val\n"
    read(put_csv(tmp_path, text, ["a.jpg", "b.jpg"]))
    assert (
        f"the column '{column}' of LABELS_CSV names splits" in capsys.readouterr().out
    ) == warned


def test_test_rows_of_a_csv_keep_their_labels_or_need_none(tmp_path, capsys):
    """All test rows have labels, or none; placeholders are not labels."""
    names = [f"{name}.jpg" for name in "abcd"]
    text = "image_id,label,split\na.jpg,x,train\nb.jpg,y,train\n"
    text += "c.jpg,{},test\nd.jpg,{},test\n"
    expected = {
        ("x", "y"): [0, 1],
        ("", ""): [-1, -1],
        ("?", "?"): [-1, -1],
        ("x", ""): [0, -1],
    }
    for pair, found in expected.items():
        images, labels = read(
            put_csv(tmp_path, text.format(*pair), names), split_column="split"
        )
        assert labels.classes == ("x", "y")
        assert images["label"].tolist() == [0, 1, *found]
        lost = "no label" if pair == ("x", "") else ""
        assert images["problem"].tolist() == ["", "", "", lost]
    assert "labels such as '?'" in capsys.readouterr().out


def test_roboflows_export_is_read_whole(tmp_path, capsys):
    """Three CSVs are one table with their splits and labels; CSVs are not images."""
    folder = put_roboflow(tmp_path)
    put_image(folder / "valid" / "unlisted.jpg")

    images, labels = read(folder, **ROBOFLOW)

    assert (labels.kind, labels.classes) == ("single", ("cat", "dog"))
    assert rows_of(images, "split", "label", "problem") == {
        "a.jpg": ["train", 0, ""],
        "b.jpg": ["train", 1, ""],
        "c.jpg": ["validation", 0, ""],
        "d.jpg": ["test", 1, ""],
        "valid/unlisted.jpg": ["train", -1, "no row in _classes.csv"],
    }
    assert "exactly one 1 in 2 label columns" in capsys.readouterr().out


def test_one_id_in_several_folders_is_several_images(tmp_path):
    """Hugging Face has train/0.png and test/0.png; the CSV of tests lacks labels."""
    texts = {
        "train": "file_name,label\n0.jpg,x\n1.jpg,y\n",
        "test": "file_name\n0.jpg\n",
    }
    for split, text in texts.items():
        for name in ("0.jpg", "1.jpg"):
            put_image(tmp_path / split / name)
        (tmp_path / split / "metadata.csv").write_text(text)
    changes = {
        "labels_csv": "*/metadata.csv",
        "id_column": "file_name",
        "label_column": "label",
    }

    images, _ = read(tmp_path, **ROBOFLOW | changes)

    assert rows_of(images, "split", "label", "problem") == {
        "train/0.jpg": ["train", 0, ""],
        "1.jpg": ["train", 1, ""],
        "test/0.jpg": ["test", -1, ""],
        "test/1.jpg": ["train", -1, "no row in metadata.csv"],
    }


def test_a_test_csv_with_answers_is_not_published(tmp_path):
    """Only a TEST_CSV that is called a submission is copied to WORK_DIR."""
    folder = put_roboflow(tmp_path / "in")
    work = tmp_path / "work"
    work.mkdir()
    parameters = {name.upper(): value for name, value in ROBOFLOW.items()}
    parameters |= {"LABELS_CSV": "train/_classes.csv", "SPLIT_COLUMN": ""}
    parameters |= {"TEST_ID_COLUMN": "file", "TEST_PATH_TEMPLATE": "test/{file}"}
    text = "file,cat,dog\nd.jpg,0,1\n"
    for name in ("submission.csv", "_classes.csv"):
        (folder / "test" / name).write_text(text)
        parameters["TEST_CSV"] = f"test/{name}"
        settings = make_settings(InputSettings, parameters)
        images, _ = read_table(str(folder), settings)

        save_submission(images, str(folder), settings, str(work))

        copy = work / "sample_submission.csv"
        assert copy.exists() == (name == "submission.csv")
        assert not copy.exists() or copy.read_text() == text


def test_labels_that_a_test_csv_without_labels_would_lose_are_named(tmp_path, capsys):
    """All records of a split have the same fields, so labels may get lost."""
    text = "image_id,label,split\na.jpg,x,train\nb.jpg,x,test\n"
    folder = put_csv(tmp_path, text, ["a.jpg", "b.jpg"])
    put_image(folder / "test_images" / "c.jpg")
    for template in ("test_images/*", ""):
        read(folder, split_column="split", test_csv="", test_path_template=template)
        lost = "1 images of the input's test split have labels, the 1 of TEST_CSV"
        assert (lost in capsys.readouterr().out) == bool(template)


def test_validation_images_of_a_further_input_are_called_as_those_of_the_main_one(
    tmp_path,
):
    """Readers validate on one split: two names would leave images out."""
    for name in (
        "in/train/x/1.jpg",
        "in/val/x/2.jpg",
        "old/train/x/3.jpg",
        "old/valid/x/4.jpg",
    ):
        put_image(tmp_path / name)
    more = [{"INPUT_DIR": str(tmp_path / "old")}]

    images, _ = read(
        tmp_path / "in", source="folders", pattern="*/*/*", more_inputs=more
    )

    main_splits = images["split"][:2].tolist()
    further_splits = images["split"][2:].tolist()
    assert sorted(main_splits) == sorted(further_splits)
    assert "train" in main_splits


def test_validation_images_of_a_further_input_train_nowhere(tmp_path, capsys):
    """They keep their split, of SPLIT_COLUMN or of folders, which a line reports."""
    put_csv(tmp_path, "image_id,label\na.jpg,x\nb.jpg,y\n", ["a.jpg", "b.jpg"])
    more = put_csv(
        tmp_path / "more", "image_id,label,split\nm.jpg,x,train\nv.jpg,y,valid\n"
    )
    for name in ("m.jpg", "v.jpg"):
        put_image(more / "train_images" / name)
    for name in ("train/x/1.jpg", "val/y/2.jpg", "test/y/3.jpg"):
        put_image(tmp_path / "old" / name)
    inputs = [{"INPUT_DIR": "more", "SPLIT_COLUMN": "split"}]
    inputs += [{"INPUT_DIR": "old", "SOURCE": "folders", "PATTERN": "*/*/*"}]

    images, _ = read(tmp_path, more_inputs=inputs)

    splits = {name: split for name, (split,) in rows_of(images, "split").items()}
    assert splits["v.jpg"] == splits["val/y/2.jpg"] == "validation"
    assert splits["m.jpg"] == splits["train/x/1.jpg"] == "train"
    assert rows_of(images, "problem")["test/y/3.jpg"] == [
        "test image of a further input"
    ]
    output = capsys.readouterr().out
    assert "MORE_INPUTS, input 1: 1 images of its validation split stay" in output
    folded = assign_folds(images[images["problem"] == ""], n_folds=2, seed=0)
    assert folded.set_index("image_id").loc["v.jpg", ["split", "fold"]].tolist() == [
        "validation",
        -1,
    ]
