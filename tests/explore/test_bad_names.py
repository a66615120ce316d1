"""Names that are not text and paths that are not files are rejected one by one."""

import os

import pandas as pd
import pytest
from support import layouts
from support.chain import run_chain
from support.inputs import put, put_csv, put_image, read, rows_of

from kaggle_tfr.explore import input_or_sample
from kaggle_tfr.explore.table import measure, save_rejects
from kaggle_tfr.write.verify import verify_parts

SPECIAL = {
    "pipe.jpg": "missing file",
    "device.jpg": "link leads outside INPUT_DIR",
    "loop.jpg": "unreadable: Too many levels of symbolic links",
    "through.jpg": "unreadable: Not a directory",
    "broken.jpg": "missing file",
}
NO_TEXT = "\udce9.jpg"  # as Python names the byte E9


def read_rejects(folder):
    """Return the classes and {image_id: problem} of rejects.csv."""
    images, labels = read(folder)
    save_rejects(measure(images, labels, "work"), "work")
    rejects = pd.read_csv("work/rejects.csv", keep_default_na=False)
    return labels.classes, rows_of(rejects, "problem")


def test_bad_names_and_special_files_of_a_csv(monkeypatch):
    """Files have the reason of the disk; names that no file can have are missing."""
    put_csv("in", "", ["1.jpg", NO_TEXT])
    monkeypatch.chdir("in/train_images")
    os.mkfifo("pipe.jpg")
    os.symlink("/dev/zero", "device.jpg")
    os.symlink("loop.jpg", "loop.jpg")
    os.symlink("1.jpg/x", "through.jpg")
    os.symlink("nowhere", "broken.jpg")
    monkeypatch.chdir("../..")
    missing = ["n\0.jpg", "../1.jpg", "3" * 300]
    rows = "".join(f"{name},x\n" for name in ["1.jpg", *SPECIAL, *missing])
    put_csv("in", f"image_id,label\n{rows}")

    _, rejected = read_rejects("in")

    assert rejected == {
        **SPECIAL,
        **dict.fromkeys(["n\\x00.jpg", *missing[1:]], "missing file"),
        "train_images/\\udce9.jpg": "no row in train.csv",
    }


def test_names_that_are_not_text_are_rejected():
    r"""They are shown with escapes; a "\" in a name stays."""
    names = ["cat/1.jpg", "dog/a\\b.jpg", f"cat/{NO_TEXT}", "\udce9/a\\b.jpg"]
    folder = put("in", names)
    os.symlink("loop", folder / "loop")

    classes, rejected = read_rejects(folder)

    assert classes == ("\\udce9", "cat", "dog")
    bad_names = ["cat/\\udce9.jpg", "\\udce9/a\\b.jpg"]
    assert rejected == dict.fromkeys(bad_names, "name is not text")


def test_a_pipe_as_the_csv_is_named():
    """Reading it does not wait for a writer."""
    put_image("1.jpg")
    os.mkfifo("train.csv")
    with pytest.raises(OSError, match=r"not a regular file: '.*/train.csv'"):
        read()


def test_every_name_comes_through_the_chain():
    """Names may hold line ends, quotes and commas, in all tables of a part."""
    odd_names = ["\r", "a\rb", "a\nb", "a\r\nb", 'a"b', "a,b", " a ", "a\u2028b"]
    names = [f"{'xy'[n % 2]}\r/{name}.jpg" for n, name in enumerate(odd_names)]
    layouts.put([f"in/{name}" for name in names], (40, 32))
    put("in", [], {"x\r/\r.png": "no image"})

    changes = {"INPUT_DIR": "in", "N_SHARDS": 2, "VALIDATION_SIZE": 0.0}
    images, _, _ = run_chain("flowers", "work", **changes)

    assert images["image_id"][images["problem"] == ""].tolist() == sorted(names)
    assert verify_parts(["work/part-1"], "work").faults.empty
    written = pd.read_csv("work/part-1/train.csv", keep_default_na=False)
    assert sorted(written["image_id"]) == sorted(names)
    assert pd.read_csv("work/rejects.csv")["image_id"].tolist() == ["x\r/\r.png"]


def test_the_work_folder_cannot_be_the_input():
    """The user's labels.json and rejects.csv stay, also when reached by a link."""
    os.mkdir("in")
    os.symlink("in", "link")
    with pytest.raises(ValueError, match=r"WORK_DIR and INPUT_DIR are both '.*/link'"):
        input_or_sample("link", "in")
    assert input_or_sample("in", "in/work") == os.path.abspath("in")
