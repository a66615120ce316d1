"""Names that are not text and paths that are not files are rejected one by one."""

import os
import shutil
import socket

import pandas as pd
import pytest
from support.chain import draw_pictures, run_chain, save_picture
from support.inputs import put_csv, put_image, read

from kaggle_tfr.explore import input_or_sample
from kaggle_tfr.explore.table import load_images, measure, save_images
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.verify import verify_parts

NO_FILE, NO_TEXT = "unreadable: no regular file", "name is not text"
LOOP = "unreadable: Too many levels of symbolic links"


def explore(folder, **changes):
    """Return the labels and {image_id: problem} of rejects.csv, equal after a rerun."""
    work = folder.parent / "work"
    for _ in range(2):
        images, labels = read(folder, **changes)
        images = measure(images, labels, str(work))
        save_images(images, labels, str(work))
    pd.testing.assert_frame_equal(load_images(str(work))[0], images)
    rejects = pd.read_csv(work / "rejects.csv", keep_default_na=False)
    return labels, dict(zip(rejects["image_id"], rejects["problem"], strict=True))


@pytest.fixture
def special(tmp_path, monkeypatch):
    """A function that creates special files in a folder and returns their problems."""

    def put(folder):
        monkeypatch.chdir(folder)
        os.mkfifo("pipe.jpg")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket.jpg")
        os.symlink("/dev/zero", "device.jpg")
        os.symlink("loop.jpg", "loop.jpg")
        os.symlink("1.jpg/x", "through.jpg")
        os.symlink("nowhere", "broken.jpg")
        os.mkdir("folder.jpg")
        monkeypatch.chdir(tmp_path)
        expected = dict.fromkeys(["pipe.jpg", "socket.jpg"], NO_FILE)
        expected |= {"device.jpg": "link leads outside INPUT_DIR"}
        expected |= {
            "folder.jpg": "unreadable: Is a directory",
            "broken.jpg": "missing file",
        }
        return expected | {
            "loop.jpg": LOOP,
            "through.jpg": "unreadable: Not a directory",
        }

    return put


def test_bad_names_and_special_files_of_a_csv(tmp_path, special):
    """Listed files have the reason of the disk; others have no row in the CSV."""
    folder = put_csv(tmp_path / "in", "image_id,label\n1.jpg,x\n", ["1.jpg"])
    expected = special(folder / "train_images")
    put_image(folder / "train_images" / "\udce9.jpg")  # as Python names the byte E9
    for name in ("1.jpg", "\udce9.jpg"):
        put_image(folder / "test_images" / name)
    (folder / "sample_submission.csv").write_text("image_id,label\n1.jpg,x\n")
    listed = "".join(
        f"{name},x\n" for name in [*expected, "n\0.jpg", "../1.jpg", "3" * 300]
    )
    (folder / "train.csv").write_text(f"image_id,label\n1.jpg,x\n{listed}")

    _, rejected = explore(folder)

    expected |= {"n\\x00.jpg": NO_TEXT, "../1.jpg": "id is outside INPUT_DIR"}
    expected |= {"3" * 300: "unreadable: File name too long"}
    tests = "no row in sample_submission.csv"
    assert rejected.pop("\\udce9.jpg") == tests
    assert rejected == expected
    (folder / "train.csv").write_text("image_id,label\n1.jpg,x\n")
    shutil.rmtree(folder / "test_images")
    (folder / "sample_submission.csv").unlink()
    names = [
        name for name in expected if os.path.lexists(folder / "train_images" / name)
    ]
    unlisted = dict.fromkeys(
        {*names, "\\udce9.jpg"} - {"../1.jpg"}, "no row in train.csv"
    )
    assert explore(folder)[1] == unlisted


def test_bad_names_and_special_files_in_class_folders(tmp_path, special):
    r"""A folder whose name is not text is not a class, and a "\" in a name stays."""
    folder = tmp_path / "in"
    for name in ("cat/1.jpg", "dog/a\\b.jpg"):
        put_image(folder / name)
    expected = {
        f"cat/{name}": problem for name, problem in special(folder / "cat").items()
    }
    for name in ("cat/\udce9.jpg", "\udce9/a\\b.jpg"):
        put_image(folder / name)
    os.symlink("loop", folder / "loop")

    labels, rejected = explore(folder, source="folders")

    assert labels.classes == ("cat", "dog")
    expected |= {
        "cat/\\udce9.jpg": NO_TEXT,
        "\\udce9/a\\b.jpg": "class name is not text",
    }
    assert rejected == expected


def test_a_pipe_as_the_csv_is_named(tmp_path):
    """Reading it does not wait for a writer."""
    folder = put_csv(tmp_path, "image_id,label\n", ["1.jpg"])
    (folder / "train.csv").unlink()
    os.mkfifo(folder / "train.csv")
    with pytest.raises(OSError, match=r"no regular file: '.*/train.csv'"):
        read(folder)


def test_every_name_comes_through_the_chain_and_a_pipe_stops_it(tmp_path):
    """Names may hold line ends, quotes and commas; an image as a pipe stops 04."""
    names = [
        "\r",
        "a\rb",
        "a\nb",
        "a\r\nb",
        'a"b',
        "a,b",
        " a ",
        "a\u2028b",
        *"0123456789",
    ]
    for number, picture in enumerate(draw_pictures(len(names), 90, 120)):
        save_picture(
            picture, tmp_path / "in" / "x\r"[number % 2] / f"{names[number]}.jpg"
        )
    save_picture(picture, tmp_path / "in" / "x" / "\r.png")
    os.truncate(tmp_path / "in" / "x" / "\r.png", 99)
    changes = {"INPUT_DIR": str(tmp_path / "in"), "N_SHARDS": 2, "VALIDATION_SIZE": 0.0}
    work = str(tmp_path / "work")

    images, _, shards = run_chain("flowers", work, **changes)

    part = tmp_path / "work" / "part-1"
    assert verify_parts(str(part), work).faults.empty
    written = pd.read_csv(part / "train.csv", keep_default_na=False)[
        "image_id"
    ].tolist()
    assert sorted(written) == sorted(images["image_id"][images["problem"] == ""])
    rejects = pd.read_csv(tmp_path / "work" / "rejects.csv")
    assert rejects[["image_id", "problem"]].to_numpy().tolist() == [
        ["x/\\r.png", "truncated"]
    ]
    (part / shards["file"].iloc[0]).unlink()
    for path in images["path"]:
        os.remove(path)
        os.mkfifo(path)
    with pytest.raises(
        OSError, match=r"Stopped after 1 of 2 shards.*no regular file: '.*jpg'"
    ):
        write_parts(work)


def test_the_work_folder_cannot_be_the_input(tmp_path):
    """The user's labels.json and rejects.csv stay, also when reached by a link."""
    (tmp_path / "in").mkdir()
    os.symlink("in", tmp_path / "link")
    with pytest.raises(
        ValueError, match=r"WORK_DIR and INPUT_DIR are both '.*/link'.*Set WORK_D"
    ):
        input_or_sample(str(tmp_path / "link"), str(tmp_path / "in"))
    assert input_or_sample(
        str(tmp_path / "in"), str(tmp_path / "in" / "work")
    ).endswith("/in")
