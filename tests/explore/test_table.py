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
from kaggle_tfr.explore.rows import read_table
from kaggle_tfr.explore.table import load_images, measure, save_images
from kaggle_tfr.notebook import account


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
    return str(folder)


def read(folder, **changes):
    settings = {
        "labels_csv": "train.csv",
        "id_column": "image_id",
        "label_column": "label",
        "path_template": "train_images/{image_id}",
    }
    return read_table("csv", folder, **settings | changes)


def test_ids_keep_their_zeros_and_labels_their_type(tmp_path):
    """
    Ids are text, leading zeros included; whole-number labels stay integers in labels.json.
    """
    folder = put_csv(tmp_path / "in", "image_id,label\n007,10\n010,9\nNA,10\n", ["007.jpg"])

    table = read(folder, path_template="train_images/{image_id}.jpg")
    save_images(measure(table), tmp_path / "work")

    assert table["image_id"].tolist() == ["007", "010", "NA"]
    assert table["label"].tolist() == [1, 0, 1]
    assert json.loads((tmp_path / "work" / "labels.json").read_text()) == {"classes": [9, 10]}
    assert (tmp_path / "work" / "labels.txt").read_text() == "0:9\n1:10\n"
    assert json.loads((tmp_path / "work" / "label_map.json").read_text()) == {"9": 0, "10": 1}


def test_paths_index_into_the_id(tmp_path):
    """
    A template such as {id[0]}/{id[1]}/{id} finds images in nested folders.
    """
    folder = put_csv(tmp_path, "id,landmark_id\nab12,5\ncd34,70\n")
    put_image(tmp_path / "train" / "a" / "b" / "ab12.jpg")

    template = "train/{id[0]}/{id[1]}/{id}.jpg"
    table = read(folder, id_column="id", label_column="landmark_id", path_template=template)
    images = measure(table)

    assert table["path"].tolist()[0] == str(tmp_path / "train" / "a" / "b" / "ab12.jpg")
    assert images["problem"].tolist() == ["", "missing file"]
    assert images[["height", "width", "format"]].to_numpy().tolist()[0] == [24, 32, "JPEG"]


def test_other_columns_travel_along(tmp_path):
    """
    The CSV's other columns stay, whole numbers whole, under a prefix where ours have the name.
    """
    text = "image_id,label,patient,age,width\na.jpg,x,p1,30,640\n"
    folder = put_csv(tmp_path, text, ["a.jpg", "stray.jpg"])

    table = read(folder)

    assert table.loc[0, ["patient", "age", "csv_width"]].tolist() == ["p1", 30, 640]
    assert str(table["age"].dtype) == "Int64"
    assert table["image_id"].tolist() == ["a.jpg", "stray.jpg"]


def test_bad_rows_are_named_and_stay_in_the_table(tmp_path):
    """
    Ids listed twice or with two labels, missing labels and ids, stray files: a reason each.
    """
    text = "image_id,label\na.jpg,x\na.jpg,x\nb.jpg,x\nb.jpg,y\nc.jpg,\n,x\nd.jpg,y\n"
    folder = put_csv(tmp_path, text, ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"])

    images = measure(read(folder))

    assert images["problem"].tolist() == [
        "",
        "listed twice: the first row counts",
        "listed with different labels: x, y",
        "listed with different labels: x, y",
        "no label",
        "no id",
        "",
        "no row in train.csv",
    ]
    assert images["label"].tolist()[4] == -1
    assert images["label"].tolist()[7] == -1


def test_class_folders_may_have_any_name_and_kind_of_image(tmp_path):
    """
    Spaces, accents and other scripts in class names; JPEG, PNG and WebP mixed; sorted classes.
    """
    put_image(tmp_path / "näive rose" / "1.jpg")
    put_image(tmp_path / "菊" / "2.png", kind="PNG")
    put_image(tmp_path / "Aster" / "3.webp", kind="WEBP")
    (tmp_path / "Aster" / "notes.txt").write_text("no image")

    images = measure(read_table("folders", str(tmp_path), pattern="*/*"))

    assert images.attrs["classes"] == ["Aster", "näive rose", "菊"]
    assert images["image_id"].tolist() == [
        "Aster/3.webp",
        "Aster/notes.txt",
        "näive rose/1.jpg",
        "菊/2.png",
    ]
    assert images["problem"].tolist() == ["", "not an image", "", ""]
    assert images["format"].tolist() == ["WEBP", "", "JPEG", "PNG"]


def test_a_split_folder_on_top_gives_the_split(tmp_path):
    """
    split/class/file: the split is the top folder's name, the class the one below it.
    """
    for name in ("train/cat/1.JPEG", "val/cat/2.JPEG", "test/dog/3.JPEG", "train/dog/4.JPEG"):
        put_image(tmp_path / name)

    table = read_table("folders", str(tmp_path), pattern="*/*/*.JPEG")

    assert table["split"].tolist() == ["test", "train", "train", "val"]
    assert table["label_name"].tolist() == ["dog", "cat", "dog", "cat"]


def test_a_given_label_map_is_honoured(tmp_path):
    """
    Labels are the map's, in the order it has them, not the sorted one's.
    """
    put_image(tmp_path / "in" / "cat" / "1.jpg")
    put_image(tmp_path / "in" / "dog" / "2.jpg")
    (tmp_path / "in" / "label_map.json").write_text('{"dog": 0, "cat": 2, "cow": 1}')

    table = read_table("folders", str(tmp_path / "in"), label_map="label_map.json")

    assert table["label"].tolist() == [2, 0]
    assert table.attrs["classes"] == ["dog", "cow", "cat"]


def test_the_labels_of_another_run_number_this_one(tmp_path):
    """
    labels.json of one run is a label map for the next, so that two datasets share their numbers.
    """
    put_image(tmp_path / "cat" / "1.jpg")

    table = read_table("folders", str(tmp_path), label_map={"classes": ["ant", "bee", "cat"]})

    assert table["label"].tolist() == [2]
    assert table.attrs["classes"] == ["ant", "bee", "cat"]


def test_a_map_from_label_to_name_names_the_labels(tmp_path):
    """
    {"0": "blight"} is Kaggle's other habit: the CSV has the number, the map its name.
    """
    folder = put_csv(tmp_path, "image_id,label\na.jpg,1\nb.jpg,0\n", ["a.jpg", "b.jpg"])

    table = read(folder, label_map={"0": "blight", "1": "healthy"})

    assert table["label"].tolist() == [1, 0]
    assert table["label_name"].tolist() == ["healthy", "blight"]


def test_a_class_missing_from_the_map_is_named(tmp_path):
    """
    The error names the class and what to do.
    """
    put_image(tmp_path / "cat" / "1.jpg")

    with pytest.raises(ValueError, match=r"LABEL_MAP .* the first is 'cat'. Add them"):
        read_table("folders", str(tmp_path), label_map={"dog": 0})


def test_one_column_of_zeros_and_ones_per_label(tmp_path):
    """
    A list of label columns makes a multi-label table: int8 columns and the combination's name.
    """
    text = "image_id,rust,scab\na.jpg,1,1\nb.jpg,0,1\nc.jpg,0,0\nd.jpg,2,0\ne.jpg,,1\n"
    folder = put_csv(tmp_path, text, ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"])

    table = read(folder, label_column=["rust", "scab"])

    assert table.attrs["kind"] == "multi"
    assert table.attrs["classes"] == table.attrs["label_columns"] == ["rust", "scab"]
    assert table[["rust", "scab"]].to_numpy().tolist()[:3] == [[1, 1], [0, 1], [0, 0]]
    assert table["rust"].dtype == np.int8
    assert table["label_name"].tolist()[:3] == ["rust|scab", "scab", ""]
    assert table["label"].tolist()[:3] == [1, 2, 0]
    assert table["problem"].tolist() == [
        "",
        "",
        "",
        "label column 'rust' holds '2', not 0 or 1",
        "no label in column 'rust'",
    ]


def test_a_separated_list_of_labels(tmp_path):
    """
    LABEL_SEPARATOR splits one column into labels; numbers sort as numbers.
    """
    folder = put_csv(tmp_path, "image_id,label\na.jpg,10 9\nb.jpg,9\nc.jpg,\n", ["a.jpg", "b.jpg"])

    table = read(folder, label_separator=" ")

    assert table.attrs["classes"] == [9, 10]
    assert table[["9", "10"]].to_numpy().tolist() == [[1, 1], [1, 0], [0, 0]]
    assert table["problem"].tolist() == ["", "", "no label"]


def test_run_length_codes_by_image_and_label(tmp_path):
    """
    One row per image and label becomes one row per image; bad codes are named once sizes are known.
    """
    text = (
        "Image_Label,EncodedPixels\n"
        "a_1.jpg_Fish,1 2 5 3\na_1.jpg_Sugar,\n"
        "b.jpg_Fish,768 2\nb.jpg_Sugar,\n"
        "c.jpg_Fish,1 2 3\n"
    )
    folder = put_csv(tmp_path, text, ["a_1.jpg", "b.jpg", "c.jpg"])

    images = measure(
        read_table(
            "rle_csv",
            folder,
            labels_csv="train.csv",
            id_column="Image_Label",
            label_column="EncodedPixels",
            path_template="train_images/{image_id}",
        )
    )

    assert images.attrs["kind"] == "masks"
    assert images.attrs["classes"] == ["Fish", "Sugar"]
    assert images["image_id"].tolist() == ["a_1.jpg", "b.jpg", "c.jpg"]
    assert images["Fish"].tolist() == ["1 2 5 3", "768 2", "1 2 3"]
    assert images["Sugar"].tolist() == ["", "", ""]
    assert images["label_name"].tolist() == ["Fish", "Fish", "Fish"]
    assert images["problem"].tolist() == [
        "",
        "Fish: run-length code leaves the image: pixel 769 of 768",
        "Fish: run-length code is odd in length: 3 numbers",
    ]


def test_codes_may_have_a_label_column_of_their_own(tmp_path):
    """
    LABEL_COLUMN [label, code] reads CSVs whose ids are plain.
    """
    text = "ImageId,ClassId,EncodedPixels\na.jpg,3,1 2\na.jpg,1,9 1\na.jpg,3,4 4\n"
    folder = put_csv(tmp_path, text, ["a.jpg"])

    table = read_table(
        "rle_csv",
        folder,
        labels_csv="train.csv",
        id_column="ImageId",
        label_column=["ClassId", "EncodedPixels"],
        path_template="train_images/{image_id}",
    )

    assert table.attrs["label_columns"] == ["1", "3"]
    assert table.loc[0, "1"] == "9 1"
    assert table.loc[0, "problem"] == "label '3' listed twice"


def test_a_limit_takes_rows_from_everywhere(tmp_path):
    """
    LIMIT spreads over the table, so that sorted class folders are all seen.
    """
    for name in [f"{c}/{k}.jpg" for c in "abc" for k in range(4)]:
        put_image(tmp_path / name)

    table = read_table("folders", str(tmp_path), limit=3)

    assert table["label_name"].tolist() == ["a", "b", "c"]
    assert table.attrs["classes"] == ["a", "b", "c"]


def test_the_table_comes_back_from_disk_with_its_attrs(tmp_path):
    """
    load_images returns what save_images was given; rejects.csv lists the refused.
    """
    folder = put_csv(tmp_path / "in", "image_id,label\na.jpg,x\nb.jpg,y\n", ["a.jpg"])
    images = measure(read(folder))

    save_images(images, str(tmp_path / "work"))

    again = load_images(str(tmp_path / "work"))
    pd.testing.assert_frame_equal(again, images)
    assert again.attrs == images.attrs
    rejects = pd.read_csv(tmp_path / "work" / "rejects.csv")
    assert rejects.to_numpy().tolist() == [
        ["b.jpg", str(tmp_path / "in" / "train_images" / "b.jpg"), "missing file"]
    ]


@pytest.mark.parametrize(
    ("text", "changes", "error", "message"),
    [
        (None, {}, FileNotFoundError, r"no file '.*train.csv'. Set LABELS_CSV"),
        ("", {}, ValueError, r"train.csv' is empty. Set LABELS_CSV"),
        ("image_id,label\n", {}, ValueError, r"has a header and no row"),
        ("image_id,lable\na.jpg,x\n", {}, ValueError, r"no column 'label'. Did you mean \"lable\""),
        ("id,label\na.jpg,x\n", {}, ValueError, r"no column 'image_id'.* Set ID_COLUMN"),
        ('image_id,label\n"a.jpg,x\n', {}, ValueError, r"is no CSV in UTF-8"),
        (
            "image_id,label\na.jpg,x\n",
            {"path_template": "train_images/{imageid}"},
            ValueError,
            r"names the column 'imageid'.*Did you mean \"image_id\"",
        ),
        (
            "image_id,label\na.jpg,x\n",
            {"path_template": "../train_images/{image_id}"},
            ValueError,
            r"leads out of its folder",
        ),
        (
            "image_id,label\n../../etc/passwd,x\na.jpg,x\n",
            {},
            ValueError,
            r"leads out of its folder",
        ),
        (
            "image_id,label\na.jpg,x\n",
            {"path_template": "images/{image_id}"},
            FileNotFoundError,
            r"none of the 1 images is there.* set PATH_TEMPLATE",
        ),
        (
            "image_id,format\na.jpg,1\n",
            {"label_column": "format", "label_separator": ","},
            None,
            None,
        ),
    ],
)
def test_settings_that_do_not_fit_the_data(tmp_path, text, changes, error, message):
    """
    Each message says what is wrong, where, and what to set; nothing is written.
    """
    put_image(tmp_path / "train_images" / "a.jpg")
    if text is not None:
        (tmp_path / "train.csv").write_text(text)
    if error is None:
        assert read(str(tmp_path), **changes)["label_name"].tolist() == ["1"]
        return
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(error, match=message):
        read(str(tmp_path), **changes)
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
        read_table("folders", str(tmp_path))


def test_a_pattern_needs_a_class_folder(tmp_path):
    """
    A pattern of files only has no class to give.
    """
    with pytest.raises(ValueError, match="PATTERN '\\*.jpg' has no class folder"):
        read_table("folders", str(tmp_path), pattern="*.jpg")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        read_table("folders", str(tmp_path), pattern="*/*.jpg")


def test_a_label_named_like_one_of_our_columns_is_refused(tmp_path):
    """
    A label column called "path" would overwrite the images' paths.
    """
    folder = put_csv(tmp_path, "image_id,path,b\na.jpg,1,0\n", ["a.jpg"])

    with pytest.raises(ValueError, match="a label is called 'path'"):
        read(folder, label_column=["path", "b"])


def test_sizes_are_as_shown(data_dir):
    """
    Every EXIF orientation of one picture has the same height and width.
    """
    paths = sorted(str(path) for path in Path(data_dir / "exif").glob("*.jp*g"))
    images = pd.DataFrame({"image_id": paths, "path": paths, "problem": ""})
    images.attrs = {"kind": "single", "classes": [], "label_columns": []}

    measured = measure(images)

    assert len(measured[["height", "width"]].drop_duplicates()) == 1
    assert sorted(set(measured["orientation"])) == list(range(1, 9))


def test_the_account_closes_or_says_so():
    """
    Counts that do not add up to the total are an error with every number in it.
    """
    table = account({"written": 3, "refused": 1}, 4)

    assert table["images"].to_dict() == {"written": 3, "refused": 1, "total": 4}
    with pytest.raises(RuntimeError, match="3 written \\+ 1 refused = 4, but 5 came in"):
        account({"written": 3, "refused": 1}, 5)


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
