"""Folders without labels: their splits are read, and no record has a label."""

import json

import pandas as pd
import pytest
from support.inputs import put_image
from support.scenes import saved, scene

from kaggle_tfr import build_dataset
from kaggle_tfr.explore import InputSettings, layout, read_table
from kaggle_tfr.parameters import make_settings

# The files of each layout, the PATTERN that `init` writes, and the images of a split.
LAYOUTS = {
    "flat": (["a.jpg", "b.jpg"], "*", {"train": 2}),
    "flat, with tests": (
        ["a.jpg", "b.jpg", "c.jpg", "test/d.jpg"],
        "*",
        {"train": 3, "test": 1},
    ),
    "splits": (
        ["train/a.jpg", "test/b.jpg", "val/c.jpg"],
        "*/*",
        {"train": 1, "test": 1, "val": 1},
    ),
    "YOLO": (
        ["images/train/a.jpg", "images/val/b.jpg", "labels/train/a.txt"],
        "images/*/*",
        {"train": 1, "val": 1},
    ),
    "YOLO of Roboflow": (
        ["train/images/a.jpg", "valid/images/b.jpg", "train/labels/a.txt"],
        "*/images/*",
        {"train": 1, "valid": 1},
    ),
    "COCO": (
        ["train2017/a.jpg", "val2017/b.jpg", "annotations/instances_val2017.json"],
        "*/*",
        {"train": 1, "validation": 1},
    ),
    "images and masks": (["images/a.png", "masks/a.png"], "images/*", {"train": 1}),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_without_labels_is_detected_and_read(name, tmp_path, capsys):
    """The recipe contains that there are no labels, and so does what 01 prints."""
    files, pattern, splits = LAYOUTS[name]
    others = [file for file in files if file.endswith((".txt", ".json"))]
    for file in files:
        put_image(tmp_path / file.replace(".txt", ".png").replace(".json", ".png"))
    for file in others:
        path = tmp_path / file
        path.with_suffix(".png").rename(path)

    recipe = layout.detect_layout(str(tmp_path))

    parameters = recipe.parameters
    has_validation = not {"val", "valid", "validation"}.isdisjoint(splits)
    assert parameters["PATTERN"] == pattern
    assert parameters["LABEL_COLUMN"] == []
    assert ("N_FOLDS" in parameters) == has_validation
    comments = "\n".join(recipe.comments)
    assert comments.startswith("No labels found: no class folders and no CSV")
    assert [f"such as {file} are not read" in comments for file in others[:1]] == (
        [True] * len(others)
    )

    settings = make_settings(InputSettings, parameters)
    images, labels = read_table(str(tmp_path), settings)
    assert images["split"].value_counts().to_dict() == splits
    assert set(images["label"]) == {-1}
    assert set(images["problem"]) == {""}
    assert labels.classes == ()
    assert "No labels: LABEL_COLUMN is empty" in capsys.readouterr().out


def test_folders_of_masks_and_images_may_be_classes(tmp_path):
    """Only a folder of images that is called so is not a class."""
    for name in ("with_mask/a.jpg", "without_mask/b.jpg"):
        put_image(tmp_path / name)
    assert "LABEL_COLUMN" not in layout.detect_layout(str(tmp_path)).parameters


def test_images_at_other_depths_are_named(tmp_path):
    """What PATTERN leaves out is not lost without a word."""
    for name in ("a.jpg", "b.jpg", "more/c.jpg"):
        put_image(tmp_path / name)
    comments = layout.detect_layout(str(tmp_path)).comments
    assert "not sure: images such as more/c.jpg are left out by PATTERN" in comments


def test_shards_of_a_flat_folder_have_no_label_and_keep_groups(tmp_path):
    """Folds are made without strata; `from names` keeps the patients in one fold."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(24):
        photo = scene(60, 80, seed=number)
        name = f"patient{number // 3}_slice{number % 3}.jpg"
        (folder / name).write_bytes(saved(photo))
    work = tmp_path / "work"
    values = layout.detect_layout(str(folder)).parameters
    values |= {"INPUT_DIR": str(folder), "WORK_DIR": str(work)}

    shards = build_dataset(
        **values, GROUP_COLUMN="from names", N_FOLDS=4, IMAGE_SIZE=48
    )

    assert shards["count"].sum() == 24
    assert sorted(shards["fold"].unique()) == [0, 1, 2, 3]
    schema = json.loads((work / "part-1" / "schema.json").read_text())
    names = [field["name"] for field in schema["fields"]]
    assert names == ["image", "height", "width", "image_id"]
    planned = pd.read_parquet(work / "plan.parquet")
    patients = planned["image_id"].str.split("_").str[0]
    assert planned.groupby(patients)["fold"].nunique().max() == 1


def test_images_in_a_folder_of_masks_only_are_read(tmp_path):
    """There is nothing else to read."""
    for name in ("masks/images/a.png", "masks/images/b.png", "notes/x.txt"):
        put_image(tmp_path / name.replace("txt", "png"))
    (tmp_path / "notes" / "x.png").rename(tmp_path / "notes" / "x.txt")
    recipe = layout.detect_layout(str(tmp_path))
    assert recipe.parameters["PATTERN"] == "masks/images/*"
