"""One row per image: from every kind of source, with every fault named and kept in the count."""

import json
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kaggle_tfr.explore.labels import number_classes, sort_classes
from kaggle_tfr.explore.rows import InputSettings, join_codes, read_table
from kaggle_tfr.explore.table import load_images, measure, save_images

CSV = {
    "labels_csv": "train.csv",
    "id_column": "image_id",
    "label_column": "label",
    "path_template": "train_images/{image_id}",
}
CODES = {"source": "rle_csv", "id_column": "id", "label_column": "code"}


def put_image(path, size=(32, 24), kind="JPEG"):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(zlib.crc32(path.name.encode()))
    pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, kind)


def put_csv(folder, text, images=()):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.csv").write_text(text, encoding="utf-8")
    for name in images:
        put_image(folder / "train_images" / name)
    return folder


def read(folder, **changes):
    return read_table(str(folder), InputSettings(**CSV | changes))


def read_folders(folder, **changes):
    return read_table(str(folder), InputSettings(source="folders", **changes))


def test_ids_keep_their_zeros_and_labels_their_type(tmp_path):
    """
    Ids are text, leading zeros included; whole-number labels stay integers in labels.json.
    """
    folder = put_csv(tmp_path / "in", "image_id,label\n007,10\n010,9\nNA,10\n", ["007.jpg"])

    table, labels = read(folder, name="n", path_template="train_images/{image_id}.jpg")
    save_images(measure(table, labels), labels, str(tmp_path / "work"))

    assert table["image_id"].tolist() == ["007", "010", "NA"]
    assert table["label"].tolist() == [1, 0, 1]
    assert json.loads((tmp_path / "work" / "labels.json").read_text()) == {
        "kind": "single",
        "classes": [9, 10],
        "label_columns": [],
        "name": "n",
    }
    assert (tmp_path / "work" / "labels.txt").read_text() == "0:9\n1:10\n"
    assert json.loads((tmp_path / "work" / "label_map.json").read_text()) == {"9": 0, "10": 1}


def test_paths_index_into_the_id(tmp_path):
    """
    A template such as {id[0]}/{id[1]}/{id} finds images in nested folders, and names short ids.
    """
    put_csv(tmp_path, "id,landmark_id\nab12,5\ncd34,70\ne,5\n")
    put_image(tmp_path / "train" / "a" / "b" / "ab12.jpg")

    template = "train/{id[0]}/{id[1]}/{id}.jpg"
    images = measure(
        *read(tmp_path, id_column="id", label_column="landmark_id", path_template=template)
    )

    assert images["path"].tolist()[0] == str(tmp_path / "train" / "a" / "b" / "ab12.jpg")
    assert images["path"].tolist()[2] == ""
    assert images["problem"].tolist() == [
        "",
        "missing file",
        f"id too short for PATH_TEMPLATE '{template}'",
    ]
    assert images[["height", "width", "format"]].to_numpy().tolist()[0] == [24, 32, "JPEG"]


def test_other_columns_travel_along(tmp_path):
    """
    The CSV's other columns stay, whole numbers whole, under a prefix where ours have the name.
    """
    text = "image_id,label,patient,age,width\na.jpg,x,p1,30,640\n"

    table, _ = read(put_csv(tmp_path, text, ["a.jpg", "stray.jpg"]))

    assert table.loc[0, ["patient", "age", "csv_width"]].tolist() == ["p1", 30, 640]
    assert str(table["age"].dtype) == "Int64"
    assert table["image_id"].tolist() == ["a.jpg", "stray.jpg"]


def test_bad_rows_are_named_and_stay_in_the_table(tmp_path):
    """
    Ids listed twice, with two labels, or leading out; no label, no id; stray files: a reason each.
    """
    rows = ["a.jpg,x", "a.jpg,x", "b.jpg,x", "b.jpg,y", "c.jpg,", ",x", "d.jpg,y"]
    rows += ["../../etc/passwd,x", "..\\..\\boot.ini,x", "a..b.jpg,x"]
    names = ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]
    folder = put_csv(tmp_path, "\n".join(["image_id,label", *rows, ""]), names)

    images = measure(*read(folder))

    assert images["problem"].tolist() == [
        "",
        "listed twice: the first row counts",
        "listed with different labels: x, y",
        "listed with different labels: x, y",
        "no label",
        "no id",
        "",
        "id leads out of INPUT_DIR",
        "id leads out of INPUT_DIR",
        "missing file",
        "no row in train.csv",
    ]
    assert images["label"].tolist() == [0, 0, 0, 1, -1, 0, 1, 0, 0, 0, -1]
    assert set(images["path"][7:9]) == {""}


def test_class_folders_may_have_any_name_and_kind_of_image(tmp_path):
    """
    Spaces, accents and other scripts in class names; JPEG, PNG and WebP mixed; sorted classes.
    """
    put_image(tmp_path / "näive rose" / "1.jpg")
    put_image(tmp_path / "菊" / "2.png", kind="PNG")
    put_image(tmp_path / "Aster" / "3.webp", kind="WEBP")
    (tmp_path / "Aster" / "notes.txt").write_text("no image")

    table, labels = read_folders(tmp_path, pattern="*/*")
    images = measure(table, labels)

    assert labels.classes == ("Aster", "näive rose", "菊")
    assert images[["image_id", "format", "problem"]].to_numpy().tolist() == [
        ["Aster/3.webp", "WEBP", ""],
        ["Aster/notes.txt", "", "not an image"],
        ["näive rose/1.jpg", "JPEG", ""],
        ["菊/2.png", "PNG", ""],
    ]


def test_a_split_folder_on_top_gives_the_split(tmp_path):
    """
    split/class/file: the split is the top folder's name, the class the one below it.
    """
    for name in ("train/cat/1.JPEG", "val/cat/2.JPEG", "test/dog/3.JPEG", "train/dog/4.JPEG"):
        put_image(tmp_path / name)

    table, _ = read_folders(tmp_path, pattern="*/*/*.JPEG")

    assert table["split"].tolist() == ["test", "train", "train", "val"]
    assert table["label_name"].tolist() == ["dog", "cat", "dog", "cat"]


def test_a_given_label_map_is_honoured(tmp_path):
    """
    Labels are the map's, in the order it has them, not the sorted one's.
    """
    put_image(tmp_path / "in" / "cat" / "1.jpg")
    put_image(tmp_path / "in" / "dog" / "2.jpg")
    (tmp_path / "in" / "label_map.json").write_text('{"dog": 0, "cat": 2, "cow": 1}')

    table, labels = read_folders(tmp_path / "in", label_map="label_map.json")

    assert table["label"].tolist() == [2, 0]
    assert labels.classes == ("dog", "cow", "cat")


@pytest.mark.parametrize(
    ("label_map", "message"),
    [
        ({"dog": 0}, "LABEL_MAP .* the first is 'cat'. Add them"),
        ({"0": "cat"}, "takes {\"class\": label} with labels from 0, but '0' has 'cat'. Mend"),
        ({"classes": ["cat"]}, "but 'classes' has \\['cat'\\]"),
        ({"cat": 0, "dog": 0}, "label 0 to both 'cat' and 'dog'"),
    ],
)
def test_a_label_map_that_does_not_fit_is_explained(tmp_path, label_map, message):
    """
    The error names the class and what to do; only {"class": label} is a map.
    """
    put_image(tmp_path / "cat" / "1.jpg")

    with pytest.raises(ValueError, match=message):
        read_folders(tmp_path, label_map=label_map)


def test_one_column_of_zeros_and_ones_per_label(tmp_path):
    """
    A list of label columns makes a multi-label table: int8 columns and the combination's name.
    """
    text = "image_id,rust,scab\na.jpg,1,1\nb.jpg,0,1\nc.jpg,0,0\nd.jpg,2,0\ne.jpg,,1\n"
    folder = put_csv(tmp_path, text, ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"])

    table, labels = read(folder, label_column=["rust", "scab"])

    assert labels.kind == "multi"
    assert labels.classes == labels.label_columns == ("rust", "scab")
    assert table[["rust", "scab"]].to_numpy().tolist()[:3] == [[1, 1], [0, 1], [0, 0]]
    assert table["rust"].dtype == np.int8
    assert table["label_name"].tolist()[:3] == ["rust|scab", "scab", ""]
    assert table["label"].tolist()[:3] == [1, 2, 0]
    assert table["problem"].tolist() == [
        *("", "", ""),
        "label column 'rust' holds '2', not 0 or 1",
        "no label in column 'rust'",
    ]


def test_a_separated_list_of_labels(tmp_path):
    """
    LABEL_SEPARATOR splits one column into labels; numbers sort as numbers.
    """
    text = "image_id,label\na.jpg,10 9\nb.jpg,9\nc.jpg,\n"

    table, labels = read(put_csv(tmp_path, text, ["a.jpg", "b.jpg"]), label_separator=" ")

    assert labels.classes == (9, 10)
    assert table[["9", "10"]].to_numpy().tolist() == [[1, 1], [1, 0], [0, 0]]
    assert table["problem"].tolist() == ["", "", "no label"]


def test_run_length_codes_by_image_and_label(tmp_path):
    """
    One row per image and label becomes one row per image; bad codes are named once sizes are known.
    """
    text = (
        "id,code\n"
        "a_1.jpg_Fish,1 2 5 3\na_1.jpg_Sugar,\n"
        "b.jpg_Fish,768 2\nb.jpg_Sugar,\n"
        "c.jpg_Fish,1 2 3\n"
    )
    folder = put_csv(tmp_path, text, ["a_1.jpg", "b.jpg", "c.jpg"])

    table, labels = read(folder, **CODES)

    assert labels.kind == "masks"
    assert labels.classes == labels.label_columns == ("Fish", "Sugar")
    columns = ["image_id", "Fish", "Sugar", "label_name", "problem"]
    assert measure(table, labels)[columns].to_numpy().tolist() == [
        ["a_1.jpg", "1 2 5 3", "", "Fish", ""],
        ["b.jpg", "768 2", "", "Fish", "Fish: run-length code leaves the image: pixel 769 of 768"],
        ["c.jpg", "1 2 3", "", "Fish", "Fish: run-length code is odd in length: 3 numbers"],
    ]


def test_codes_may_have_a_label_column_of_their_own(tmp_path):
    """
    LABEL_COLUMN [label, code] reads CSVs whose ids are plain.
    """
    text = "id,ClassId,code\na.jpg,3,1 2\na.jpg,1,9 1\na.jpg,3,4 4\n"

    table, labels = read(
        put_csv(tmp_path, text, ["a.jpg"]), **CODES | {"label_column": ["ClassId", "code"]}
    )

    assert labels.label_columns == ("1", "3")
    assert table.loc[0, "1"] == "9 1"
    assert table.loc[0, "problem"] == "label '3' listed twice"


@pytest.mark.parametrize("name", ["{}.jpg", "car_{}.jpg", "{}_01.jpg", "car_{}"])
def test_plain_ids_have_one_mask_class(tmp_path, name):
    """
    Ids that name files, "_" or not: one class, called like the codes' column, and several rows of
    an image are one mask; a broken code is its image's problem alone.
    """
    codes = {"0": ["40 3", "1 2", "41 5"], "1": [""], "2": ["7 1"], "3": ["1 2 3", "9"], "4": ["x"]}
    rows = [f"{name.format(image)},{code}\n" for image in codes for code in codes[image]]
    template = "train_images/{image_id}" + ("" if name.endswith("jpg") else ".jpg")
    files = [template.partition("/")[2].format(image_id=name.format(image)) for image in codes]
    folder = put_csv(tmp_path, "id,code\n" + "".join(rows), files)

    table, labels = read(folder, **CODES, path_template=template)

    assert (labels.kind, labels.classes, labels.label_columns) == ("masks", ("code",), ("code",))
    assert table["image_id"].tolist() == [name.format(image) for image in codes]
    assert table["code"].tolist()[:3] == ["1 2 40 6", "", "7 1"]
    assert table["label_name"].tolist() == ["code", "", "code", "code", "code"]
    assert measure(table, labels)["problem"].tolist() == [
        *("", "", ""),
        "code: run-length code is odd in length: 3 numbers",
        "code: run-length code holds something else than whole numbers",
    ]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("id,code\na_1.jpg,1 1\nb.jpg,1 1\n", "code", "1 of 2 have no '_', the first is 'b.jpg'"),
        ("id,code\nb.jpg,1 1\n", [], "LABEL_COLUMN is \\[\\].*set it to the column of run-length"),
    ],
)
def test_ids_and_columns_of_codes_that_cannot_be_read(tmp_path, text, column, message):
    """
    Ids with and without a label in one CSV, or no column of codes, are an error that says so.
    """
    folder = put_csv(tmp_path, text, ["b.jpg"])

    with pytest.raises(ValueError, match=message):
        read(folder, **CODES | {"label_column": column})


@given(st.lists(st.sets(st.integers(1, 40), min_size=1), min_size=1, max_size=4))
def test_joined_codes_hold_every_pixel_once(masks):
    """
    The join of several masks' codes is the union of their pixels, in runs that ascend.
    """
    joined = join_codes([" ".join(f"{pixel} 1" for pixel in sorted(mask)) for mask in masks])

    numbers = list(map(int, joined.split()))
    runs = zip(numbers[::2], numbers[1::2], strict=True)
    pixels = [start + k for start, length in runs for k in range(length)]
    assert pixels == sorted(set().union(*masks))


def test_a_limit_takes_rows_from_everywhere(tmp_path):
    """
    LIMIT spreads over the table, so that sorted class folders are all seen.
    """
    for name in [f"{c}/{k}.jpg" for c in "abc" for k in range(4)]:
        put_image(tmp_path / name)

    table, labels = read_folders(tmp_path, limit=3)

    assert table["label_name"].tolist() == ["a", "b", "c"]
    assert labels.classes == ("a", "b", "c")


def test_the_table_and_its_labels_come_back_from_disk(tmp_path):
    """
    load_images returns what save_images was given; rejects.csv lists the refused.
    """
    folder = put_csv(tmp_path / "in", "image_id,label\na.jpg,x\nb.jpg,y\n", ["a.jpg"])
    table, labels = read(folder, name="letters")
    images, work = measure(table, labels), str(tmp_path / "work")

    with pytest.raises(FileNotFoundError, match=r"no '.*images.parquet'. Run 01_explore"):
        load_images(work)
    save_images(images, labels, work)

    again, labels_again = load_images(work)
    pd.testing.assert_frame_equal(again, images)
    assert labels_again == labels
    rejects = pd.read_csv(tmp_path / "work" / "rejects.csv")
    assert rejects.to_numpy().tolist() == [
        ["b.jpg", str(tmp_path / "in" / "train_images" / "b.jpg"), "missing file"]
    ]


ROW = "image_id,label\na.jpg,x\n"


@pytest.mark.parametrize(
    ("text", "changes", "error", "message"),
    [
        (None, {}, FileNotFoundError, r"no file '.*train.csv'. Set LABELS_CSV"),
        ("", {}, ValueError, r"train.csv' is empty. Set LABELS_CSV"),
        ("image_id,label\n", {}, ValueError, r"has a header and no row"),
        ("image_id,lable\na.jpg,x\n", {}, ValueError, r"no column 'label'. Did you mean \"lable\""),
        ("id,label\na.jpg,x\n", {}, ValueError, r"no column 'image_id'.* Set ID_COLUMN"),
        ('image_id,label\n"a.jpg,x\n', {}, ValueError, r"is no CSV in UTF-8"),
        ("image_id,path,b\na.jpg,1,0\n", {"label_column": ["path", "b"]}, ValueError,
         r"a label is called 'path'"),
        (ROW, {"path_template": "train_images/{imageid}"}, ValueError,
         r"names the column 'imageid'.*Did you mean \"image_id\""),
        (ROW, {"path_template": "../train_images/{image_id}"}, ValueError,
         r"'../train_images/{image_id}' leads out of its folder"),
        (ROW, {"path_template": "images/{image_id}"}, FileNotFoundError,
         r"none of the 1 images is there.* set PATH_TEMPLATE"),
        (ROW, {"label_map": "no.json"}, FileNotFoundError, r"no file '.*no.json'. Set LABEL_MAP"),
        (ROW, {"label_map": "train.csv"}, ValueError, r"label map '.*train.csv' is not JSON"),
        (ROW, {"label_map": {"x": 0}, "label_separator": " "}, ValueError, r"Leave it empty for"),
        (ROW, {"source": "tables"}, ValueError, r'SOURCE is "tables". Set it to "csv"'),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_the_data(tmp_path, text, changes, error, message):
    """
    Each message says what is wrong, where, and what to set; nothing is written.
    """
    put_image(tmp_path / "train_images" / "a.jpg")
    if text is not None:
        (tmp_path / "train.csv").write_text(text)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(error, match=message):
        read(tmp_path, **changes)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_input_folder_is_named():
    """
    The message names INPUT_DIR and what it can be.
    """
    with pytest.raises(FileNotFoundError, match=r"INPUT_DIR '/no/such/folder' is no folder. Give"):
        read("/no/such/folder")


@pytest.mark.parametrize("files", [[], ["notes.txt"]])
def test_a_class_folder_without_an_image_is_named(tmp_path, files):
    """
    An empty class is a slip or a lost download: the run does not begin.
    """
    put_image(tmp_path / "rose" / "1.jpg")
    (tmp_path / "tulip").mkdir()
    for name in files:
        (tmp_path / "tulip" / name).write_text("text")

    with pytest.raises(ValueError, match=r"1 of 2 class folders hold no image, .*tulip'.*PATTERN"):
        read_folders(tmp_path)


def test_a_pattern_needs_a_class_folder(tmp_path):
    """
    A pattern of files only has no class to give.
    """
    with pytest.raises(ValueError, match="PATTERN '\\*.jpg' has no class folder"):
        read_folders(tmp_path, pattern="*.jpg")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        read_folders(tmp_path, pattern="*/*.jpg")


def test_sizes_are_as_shown(data_dir):
    """
    Every EXIF orientation of one picture has the same height and width.
    """
    paths = sorted(str(path) for path in Path(data_dir / "exif").glob("*.jp*g"))

    measured = measure(pd.DataFrame({"image_id": paths, "path": paths, "problem": ""}))

    assert len(measured[["height", "width"]].drop_duplicates()) == 1
    assert sorted(set(measured["orientation"])) == list(range(1, 9))


@given(st.lists(st.one_of(st.integers(0, 10**12).map(str), st.text("ab0", max_size=3))))
def test_labels_are_contiguous_and_sorted(names):
    """
    Any labels become 0 … n−1 in sorted order, and the classes lead back to the label.
    """
    label, classes = number_classes(pd.Series(names, dtype=object))
    known = [name for name in names if name]

    assert classes == sort_classes(known)
    assert sorted(set(label.tolist()) - {-1}) == list(range(len(classes)))
    back = [str(classes[k]) if k >= 0 else "" for k in label]
    assert back == names
