"""Links out of INPUT_DIR, output, system folders and masks are not input."""

import os

import pandas as pd
import pytest
from support.inputs import put, put_csv, read, rows_of
from support.readers import make_example, make_picture, write_shard

from kaggle_tfr.explore.inputs import read_table, save_submission
from kaggle_tfr.explore.settings import InputSettings

OUTSIDE = "link leads outside INPUT_DIR"
ROWS = "image_id,label\na.jpg,x\n"


def test_links_of_class_folders_stay_within_the_input(tmp_path):
    """Links to files and folders outside are rejected; a link inside is read."""
    folder = put(tmp_path / "real", ["cat/1.jpg", "dog/2.jpg"])
    # The path of the second one begins as that of INPUT_DIR does.
    put(tmp_path, ["secret/s.jpg", "real-2/3.jpg"])
    os.symlink(tmp_path / "secret" / "s.jpg", folder / "cat" / "file.jpg")
    os.symlink("../cat/1.jpg", folder / "dog" / "inside.jpg")
    os.symlink("../../real-2/3.jpg", folder / "dog" / "beside.jpg")
    os.symlink("../secret", folder / "evil")
    os.symlink("real", tmp_path / "input")  # INPUT_DIR itself may be a link

    images, _ = read(tmp_path / "input")

    outside = ["cat/file.jpg", "dog/beside.jpg", "evil/s.jpg"]
    inside = ["cat/1.jpg", "dog/2.jpg", "dog/inside.jpg"]
    expected = dict.fromkeys(outside, OUTSIDE) | dict.fromkeys(inside, "")
    assert rows_of(images, "problem") == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LABELS_CSV", "*/labels.csv"),
        ("TEST_CSV", "train_images/labels.csv"),
        ("LABEL_MAP", "train_images/map.json"),
    ],
)
def test_a_named_file_that_is_a_link_out_of_the_input_is_an_error(
    tmp_path, name, value
):
    """Its content would be read, or published with the part."""
    folder = put_csv(tmp_path / "in", ROWS, ["a.jpg", "b.jpg"])
    file = os.path.basename(value)
    put(tmp_path, [], {"labels.csv": "image_id,label\nb.jpg,x\n", "map.json": "{}"})
    os.symlink(f"../../{file}", folder / "train_images" / file)
    outside = rf"{name} '.*/{file}' is a link that leads outside"
    with pytest.raises(ValueError, match=outside):
        read(folder, **{name.lower(): value})
    images = pd.DataFrame({"split": ["test"]})
    settings = InputSettings(test_csv="train_images/submission.csv")
    os.symlink("../../labels.csv", folder / "train_images" / "submission.csv")
    with pytest.raises(ValueError, match="is a link that leads outside"):
        save_submission(images, str(folder), settings, str(tmp_path))


def test_links_to_shards_stay_within_the_input(tmp_path):
    """The record of a shard outside is not read."""
    shard = [make_example(image=make_picture(9), label=0)]
    write_shard(tmp_path / "in" / "a.tfrec", shard)
    write_shard(tmp_path / "b.tfrec", shard)
    os.symlink("../b.tfrec", tmp_path / "in" / "b.tfrec")

    images, _ = read(tmp_path / "in")

    assert rows_of(images, "problem") == {"a.tfrec#0": "", "b.tfrec#0": OUTSIDE}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["cat/1.jpg"]),
        ({"labels_csv": "*.csv"}, ["cat/1.jpg"]),
        ({"input_schema": "auto"}, ["cat/a.tfrec#0"]),
    ],
    ids=["folders", "CSV", "shards"],
)
def test_folders_of_output_and_of_systems_are_never_input(
    tmp_path, monkeypatch, changes, expected
):
    """WORK_DIR, OUT_DIR and the work folders of other recipes hold images and CSVs."""
    folder = put(tmp_path / "in", ["cat/1.jpg"], {"all.csv": "id,label\ncat/1.jpg,x\n"})
    shard = [make_example(image=make_picture(9), label=0)]
    write_shard(folder / "cat" / "a.tfrec", shard)
    ours = ["work/mine", "work/mine/figures", "work/other/figures", "out"]
    for name in [*ours, "cat/@eaDir", "__MACOSX/cat", ".ipynb_checkpoints"]:
        put(folder / name, ["2.jpg"], {"2.csv": "id,label\n2.jpg,x\n"})
        write_shard(folder / name / "b.tfrec", shard)
    os.symlink("in", tmp_path / "link")
    monkeypatch.chdir(folder)

    for input_dir in (".", str(tmp_path / "link")):
        excluded = [str(folder / "work" / "mine"), f"{input_dir}/out"]
        images, _ = read_table(input_dir, InputSettings(**changes), excluded)

        assert images["image_id"].tolist() == expected


@pytest.mark.parametrize(
    ("images", "masks", "n_classes"),
    [
        (["cat/1.png", "dog/death_mask.png"], ["cat/1_mask.png"], 2),
        (["images/1.png"], ["masks/1.png"], 0),
        (["with_mask/1.png", "without_mask/1.png"], [], 2),
        (["masks/images/1.png"], [], 0),
    ],
)
def test_masks_are_left_out_with_a_remark(tmp_path, capsys, images, masks, n_classes):
    """They are called like an image; PATTERN reads all files as images."""
    put(tmp_path, images + masks)
    column = "folder" if n_classes else []
    table, labels = read(tmp_path, label_column=column)
    assert table["image_id"].tolist() == images
    assert len(labels.classes) == n_classes
    output = capsys.readouterr().out
    assert ("1 files are called like masks, such as" in output) == bool(masks)
    table, _ = read(tmp_path, label_column=[], pattern="*")
    assert len(table) == len(images + masks)
