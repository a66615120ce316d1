"""Rows are joined to files by their names, and never to files of other names."""

import os
import re
from functools import partial
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.inputs import put, read, rows_of

from kaggle_tfr.explore.files import Files

NUMBERS = st.integers(0, 20).map("{:04}".format)
WORDS = st.sampled_from(["Löwe", "x.y", "IMG 7", "n_1"])
PARTS = (
    st.sampled_from(["", "a/", "b/c/", "Büro/"]),
    st.one_of(NUMBERS, WORDS),
    st.sampled_from([".jpg", ".PNG"]),
)
FILES = st.sets(st.tuples(*PARTS).map("".join), min_size=1)
# How ids differ from paths, in the order in which they are changed.
CHANGES = {
    "without folders": os.path.basename,
    "without ending": lambda path: os.path.splitext(path)[0],
    "without zeros": partial(re.compile(r"(?<![^/])0+(?=\d)").sub, ""),
    "upper case": str.upper,
    "decomposed": partial(normalize, "NFD"),
    "of another machine": "data/{}".format,
    "backslashes": lambda path: path.replace("/", "\\"),
}


def name_of(path):
    name = os.path.basename(normalize("NFC", path).casefold())
    stem = os.path.splitext(name)[0]
    return int(stem) if stem.isdecimal() else stem


@given(FILES, st.sets(st.sampled_from(list(CHANGES))))
def test_no_id_is_joined_to_a_file_of_another_name(files, changes):
    """An id finds its file if no other has its name, however the id is written."""
    files = sorted(files)
    file_of = {}
    for file in files:
        name = file
        for change, write in CHANGES.items():
            name = write(name) if change in changes else name
        file_of.setdefault(name, file)

    *found, unknown = Files("", files, [], [], {}, {}).join([*file_of, "none.jpg"])

    assert unknown == ()
    for file, joined in zip(file_of.values(), found, strict=True):
        alike = [other for other in files if name_of(other) == name_of(file)]
        assert set(joined) <= set(alike)
        if len(alike) == 1:
            assert joined == (file,)


def test_a_name_of_several_files_is_one_rejected_row():
    """The row names two of them; more than 1 % of such rows stop the run."""
    names = [f"a/{number}.jpg" for number in range(2, 101)]
    rows = "id,label\n1.jpg,x\n" + "".join(f"{name},x\n" for name in names)
    put(".", ["a/1.jpg", "b/1.jpg", "b/2.jpg", *names], {"train.csv": rows})

    images, _ = read()

    problem_of = rows_of(images, "problem")
    assert problem_of["1.jpg"] == "several files: 'a/1.jpg', 'b/1.jpg'"
    assert problem_of["a/2.jpg"] == ""
    put(".", [], {"train.csv": f"{rows}2.jpg,x\n"})
    with pytest.raises(ValueError, match="2 of the images, 2%, .*PATTERN"):
        read()


@pytest.mark.parametrize(
    ("csv", "file"),
    [
        ("train.csv", "/train_images/1.jpg"),
        ("more/train.csv", "/more/images/1.jpg"),
    ],
)
def test_the_folders_of_the_csv_and_of_the_split_decide(csv, file):
    """Equal names are in the main folder, one of further images, and their tests."""
    folders = ["train_images", "more/images", "test_images", "more/test"]
    names = [f"{folder}/1.jpg" for folder in folders]
    images, _ = read(put(".", names, {csv: "id,label\n1.jpg,x\n"}), labels_csv=csv)
    assert images["path"][0].endswith(file)
    assert images["problem"][0] == ""


def test_a_column_of_splits_finds_folders_with_another_word_for_them():
    """The word "valid" in the column and the folder val/ are the same split."""
    table = {"train.csv": "id,label,set\n1.jpg,x,train\n1.jpg,y,valid\n"}
    folder = put(".", ["train/1.jpg", "val/1.jpg"], table)
    images, _ = read(folder, split_column="set")
    assert rows_of(images, "label_name") == {"train/1.jpg": "x", "val/1.jpg": "y"}
    assert set(images["problem"]) == {""}


def test_files_without_the_ending_of_an_image_can_be_named_by_a_csv():
    """No other file without such an ending is an image."""
    rows = "id,label\nscan,x\nscan.dat,x\n2.jpg,y\n"
    texts = {"train.csv": rows, "scan": "", "scan.dat": "", "notes": "", "a.txt": ""}
    images, _ = read(put(".", ["2.jpg"], texts), id_column="id")
    assert rows_of(images, "problem") == {"scan": "", "scan.dat": "", "2.jpg": ""}
