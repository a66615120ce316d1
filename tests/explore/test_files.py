"""Links out of INPUT_DIR, output, system folders and masks are not input."""

import os

import pytest
from support.inputs import put, read, rows_of
from support.readers import make_example, make_picture, write_shard

from kaggle_tfr.explore.inputs import read_table
from kaggle_tfr.explore.step import save_template

OUTSIDE = "link leads outside INPUT_DIR"


def test_links_of_class_folders_stay_within_the_input():
    """Links that lead outside are rejected.

    Inside, a link to a file is read, but not one to a folder, which is listed anyway.

    A template outside is not copied to parts, which are published.
    """
    # The path of the last one begins as that of INPUT_DIR does.
    put(".", ["real/cat/1.jpg", "real/dog/2.jpg", "secret/s.jpg", "real-2/3.jpg"])
    os.symlink(os.path.abspath("secret/s.jpg"), "real/cat/file.jpg")
    os.symlink("../cat/1.jpg", "real/dog/inside.jpg")
    os.symlink("../../real-2/3.jpg", "real/dog/beside.jpg")
    os.symlink("../secret", "real/evil")
    os.symlink("cat", "real/again")
    os.symlink("../secret/s.jpg", "real/submission.csv")
    os.symlink("real", "input")  # INPUT_DIR itself may be a link

    save_template("input", "submission.csv", "work")
    assert not os.path.exists("work")
    images, _ = read("input")

    outside = ["cat/file.jpg", "dog/beside.jpg", "evil/"]
    inside = ["cat/1.jpg", "dog/2.jpg", "dog/inside.jpg"]
    expected = dict.fromkeys(outside, OUTSIDE) | dict.fromkeys(inside, "")
    assert rows_of(images, "problem") == expected


def test_links_to_shards_stay_within_the_input():
    """The record of a shard outside is not read."""
    shard = [make_example(image=make_picture(9), label=0)]
    write_shard("in/a.tfrec", shard)
    write_shard("b.tfrec", shard)
    os.symlink("../b.tfrec", "in/b.tfrec")

    images, _ = read("in")

    assert rows_of(images, "problem") == {"a.tfrec#0": "", "b.tfrec#0": OUTSIDE}


def test_folders_of_output_and_of_systems_are_never_input(monkeypatch):
    """WORK_DIR, OUT_DIR and work folders of other recipes hold images and shards."""
    put("in", ["cat/1.jpg"])
    put("in/work/other", [], {"images.parquet": ""})
    os.symlink("in", "link")
    link = os.path.abspath("link")
    monkeypatch.chdir("in")
    shard = [make_example(image=make_picture(9), label=0)]
    write_shard("cat/a.tfrec", shard)
    ours = ["work/mine/figures", "work/other/figures", "out"]
    for name in [*ours, "cat/@eaDir", "__MACOSX/cat", ".ipynb_checkpoints"]:
        put(name, ["2.jpg"])
        write_shard(f"{name}/b.tfrec", shard)

    excluded = [os.path.abspath("work/mine"), f"{link}/out"]
    images, _ = read_table(link, {}, excluded)
    records, _ = read_table(link, {"INPUT_SCHEMA": "auto"}, excluded)

    assert images["image_id"].tolist() == ["cat/1.jpg"]
    assert records["image_id"].tolist() == ["cat/a.tfrec#0"]


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        (["cat/a (1).png", "dog/death_mask.png"], ["cat/a (1)_mask.png"]),
        (["images/1.png"], ["masks/1.png"]),
        (["with_mask/1.png", "without_mask/1.png"], []),
    ],
)
def test_masks_are_left_out_with_a_remark(capsys, images, masks):
    """They are called like an image; PATTERN reads all files as images."""
    put(".", images + masks)
    table, _ = read(label_column=[])
    assert table["image_id"].tolist() == images
    output = capsys.readouterr().out
    assert ("1 files are called like masks, such as" in output) == bool(masks)
    table, _ = read(label_column=[], pattern="*")
    assert len(table) == len(images + masks)
