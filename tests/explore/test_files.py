"""Links out of INPUT_DIR, output of kaggle-tfr and system folders are not input."""

import os

import pytest
from support.inputs import put_csv, put_image, read
from support.readers import make_example, make_picture, write_shard

from kaggle_tfr.explore.inputs import read_table, save_submission
from kaggle_tfr.explore.settings import InputSettings
from kaggle_tfr.explore.table import count_rows, measure, save_images
from kaggle_tfr.parameters import make_settings

OUTSIDE = "link leads outside INPUT_DIR"


def problems(images):
    return dict(zip(images["image_id"], images["problem"], strict=True))


def test_links_of_class_folders_stay_within_the_input(tmp_path):
    """Links to files and class folders outside are rejected; a link inside is read."""
    put_image(tmp_path / "secret" / "s.jpg")
    put_image(tmp_path / "real" / "cat" / "1.jpg")
    put_image(tmp_path / "real" / "dog" / "2.jpg")
    os.symlink(tmp_path / "secret" / "s.jpg", tmp_path / "real" / "cat" / "file.jpg")
    os.symlink("../cat/1.jpg", tmp_path / "real" / "dog" / "inside.jpg")
    put_image(
        tmp_path / "real-2" / "3.jpg"
    )  # its path begins as that of INPUT_DIR does
    os.symlink("../../real-2/3.jpg", tmp_path / "real" / "dog" / "beside.jpg")
    os.symlink("../secret", tmp_path / "real" / "evil")
    os.symlink("real", tmp_path / "input")  # INPUT_DIR itself may be a link

    images, labels = read(tmp_path / "input", source="folders")

    expected = {
        "cat/1.jpg": "",
        "cat/file.jpg": OUTSIDE,
        "dog/2.jpg": "",
        "dog/inside.jpg": "",
    }
    assert problems(images) == expected | {
        "dog/beside.jpg": OUTSIDE,
        "evil/s.jpg": OUTSIDE,
    }
    assert labels.classes == ("cat", "dog")


def test_links_of_a_csv_stay_within_the_input(tmp_path):
    """Links to images and folders of images are rejected; a linked CSV is an error."""
    folder = put_csv(tmp_path / "in", "image_id,label\na.jpg,x\nb.jpg,x\n", ["a.jpg"])
    put_image(tmp_path / "secret" / "t.jpg")
    os.symlink(tmp_path / "secret" / "t.jpg", folder / "train_images" / "b.jpg")
    os.symlink(tmp_path / "secret", folder / "test_images")
    (folder / "sample_submission.csv").write_text("image_id,label\nt.jpg,x\n")

    images, _ = read(folder)

    assert problems(images) == {"a.jpg": "", "b.jpg": OUTSIDE, "t.jpg": OUTSIDE}
    os.symlink("../secret/submission.csv", folder / "submission.csv")
    (tmp_path / "secret" / "submission.csv").write_text("image_id,label\nt.jpg,x\n")
    chosen = make_settings(InputSettings, {"TEST_CSV": "submission.csv"})
    with pytest.raises(ValueError, match=r"TEST_CSV '.*submission.csv' is a link"):
        save_submission(images, str(folder), chosen, str(tmp_path))
    assert not (tmp_path / "sample_submission.csv").exists()
    os.rename(folder / "train.csv", tmp_path / "secret" / "train.csv")
    os.symlink("../secret/train.csv", folder / "train.csv")
    with pytest.raises(
        ValueError, match=r"LABELS_CSV '.*train.csv' is a link that leads outside"
    ):
        read(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [("LABELS_CSV", "*/labels.csv"), ("LABEL_MAP", "train_images/map.json")],
)
def test_a_named_file_that_is_a_link_out_of_the_input_is_an_error(
    tmp_path, name, value
):
    """A CSV of a pattern and a label map would reveal the content of other files."""
    folder = put_csv(tmp_path / "in", "image_id,label\na.jpg,x\n", ["a.jpg"])
    file = value.rpartition("/")[2]
    (tmp_path / file).write_text(
        '{"x": 0}' if name == "LABEL_MAP" else "image_id,label\na.jpg,x\n"
    )
    os.symlink(f"../../{file}", folder / "train_images" / file)
    with pytest.raises(
        ValueError, match=rf"{name} '.*/{file}' is a link that leads outside"
    ):
        read(folder, **{name.lower(): value})


def test_links_to_shards_stay_within_the_input(tmp_path):
    write_shard(
        tmp_path / "in" / "a.tfrec", [make_example(image=make_picture(9), label=0)]
    )
    write_shard(tmp_path / "b.tfrec", [make_example(image=make_picture(9), label=0)])
    os.symlink("../b.tfrec", tmp_path / "in" / "b.tfrec")

    images, _ = read(tmp_path / "in", source="tfrecords")

    rows = images[["image_id", "problem"]].to_numpy().tolist()
    assert rows == [
        ["a.tfrec#0", ""],
        ["b.tfrec#0", OUTSIDE],
    ]  # not its record beside it


@pytest.mark.parametrize("source", ["folders", "csv", "tfrecords"])
def test_our_own_folders_in_the_input_are_never_input(tmp_path, source, capsys):
    """WORK_DIR and OUT_DIR below INPUT_DIR hold images, CSVs and shards.

    Nor are they named as folders that an image is missing from.
    """
    put_csv(tmp_path, "image_id,label\ncat/1.jpg,x\n")
    put_image(tmp_path / "cat" / "1.jpg")
    shard = [make_example(image=make_picture(9), label=0)]
    write_shard(tmp_path / "cat" / "a.tfrec", shard)
    for ours in ("work", "out", "work/figures"):
        put_image(tmp_path / ours / "2.jpg")
        put_csv(tmp_path / ours, "image_id,label\n2.jpg,x\n")
        write_shard(tmp_path / ours / "part-1.tfrec", shard)
    parameters = {
        "SOURCE": source,
        "PATH_TEMPLATE": "{image_id}",
        "LABELS_CSV": "*.csv",
    }
    parameters |= {"PATTERN": "*/*.jpg"} if source == "folders" else {}
    os.symlink(tmp_path, tmp_path.with_name("link"))

    for folder in (tmp_path, tmp_path.with_name("link")):
        chosen = make_settings(InputSettings, parameters)
        images, _ = read_table(
            str(folder), chosen, [str(tmp_path / "work"), f"{folder}/out"]
        )

        read = images["image_id"].str.partition(".")[0].tolist()
        # In a folder of images a shard is a file without a row.
        expected = ["cat/1", "cat/a"] if source == "csv" else ["cat/1"]
        assert read == (["cat/a"] if source == "tfrecords" else expected)
    tmp_path.with_name("link").unlink()
    assert "work" not in capsys.readouterr().out


def test_work_folders_of_other_recipes_are_never_input(tmp_path, monkeypatch):
    """The default WORK_DIR is below INPUT_DIR where a run starts in the images."""
    monkeypatch.chdir(tmp_path)
    put_image(tmp_path / "train" / "cat" / "1.jpg")
    put_image(tmp_path / "work" / "figures" / "1.png")
    put_image(tmp_path / "work" / "other" / "figures" / "1.png")
    chosen = make_settings(InputSettings, {"SOURCE": "folders", "PATTERN": "*/*/*"})

    images, _ = read_table(".", chosen, [str(tmp_path / "work" / "mine")])

    assert images["image_id"].tolist() == ["train/cat/1.jpg"]


PATHS = {"PATH_TEMPLATE": "{image_id}", "TEST_CSV": ""}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"SOURCE": "folders"}, ["cat/1.jpg", "test/c/3.jpg"]),
        ({**PATHS, "TEST_PATH_TEMPLATE": ""}, ["cat/1.jpg"]),
        ({**PATHS, "TEST_PATH_TEMPLATE": "test/*/*"}, ["cat/1.jpg", "c/3.jpg"]),
    ],
)
def test_other_folders_and_files_are_no_input_wherever_they_are(
    tmp_path, parameters, expected
):
    """System folders, output and texts are not input, beside test images as well."""
    put_csv(tmp_path, "image_id,label\ncat/1.jpg,x\n")
    others = ["@eaDir/9.jpg", "test/@eaDir/9.jpg", "test/work/9.jpg"]
    for name in ("cat/1.jpg", "test/c/3.jpg", *others):
        put_image(tmp_path / name)
    (tmp_path / "test" / "c" / "notes.txt").write_text("no image")

    images, _ = read_table(
        str(tmp_path),
        make_settings(InputSettings, parameters),
        [f"{tmp_path}/test/work"],
    )

    assert images["image_id"].tolist() == expected


@pytest.mark.parametrize("source", ["folders", "tfrecords"])
def test_an_input_that_is_our_own_folder_is_refused(tmp_path, source):
    """All files in it would be read, those of the last run as well."""
    put_image(tmp_path / "cat" / "1.jpg")
    chosen = make_settings(InputSettings, {"SOURCE": source})
    with pytest.raises(ValueError, match="is also WORK_DIR or OUT_DIR.*Set OUT_DIR"):
        read_table(str(tmp_path), chosen, [str(tmp_path / "work"), str(tmp_path)])


def test_class_folders_without_images_are_named_and_left_out(tmp_path, capsys):
    """Empty folders and those of texts are named; system folders are not classes."""
    for name in ("rose/1.jpg", "heic/1.heic", "__MACOSX/2.jpg"):
        put_image(tmp_path / name) if name.endswith("jpg") else None
    (tmp_path / "heic").mkdir()
    (tmp_path / "heic" / "1.heic").write_bytes(b"\0\0\0\x18ftypheic")
    (tmp_path / "tulip").mkdir()
    (tmp_path / ".ipynb_checkpoints").mkdir()
    put_csv(tmp_path / "lily", "text")

    images, labels = read(tmp_path, source="folders")

    assert images["image_id"].tolist() == ["heic/1.heic", "rose/1.jpg"]
    assert labels.classes == ("heic", "rose")
    output = capsys.readouterr().out
    empty = f"{tmp_path}/lily, {tmp_path}/tulip"
    warning = f"2 of 4 class folders hold no image and are left out, such as {empty}"
    assert warning in output


def test_a_run_without_any_good_image_saves_its_reasons(tmp_path):
    """rejects.csv names each image when none of them is good."""
    put_csv(tmp_path / "in", "image_id,label\na.png,x\nb.png,y\n")
    (tmp_path / "in" / "train_images").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "in" / "train_images" / name).write_bytes(b"")
    work = tmp_path / "work"
    for count in (2, 0):
        images, labels = read(tmp_path / "in")
        images = measure(images[:count], labels, str(work))
        with pytest.raises(ValueError, match=f"none of the {count} images can be used"):
            save_images(images, labels, str(work))
        assert count_rows(images) == {"good": 0, "rejected": count}
        rejects = (work / "rejects.csv").read_text().splitlines()
        assert len(rejects) == count + 1
        assert all(line.endswith("empty file") for line in rejects[1:])
