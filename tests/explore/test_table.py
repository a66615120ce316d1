"""The table has one row per image of every kind of source, and names each fault."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.inputs import put_csv, put_image, read

from kaggle_tfr.explore.labels import number_classes
from kaggle_tfr.explore.masks import draw_masks
from kaggle_tfr.explore.table import load_images, measure, save_images
from kaggle_tfr.images.masks import encode_mask, join_codes

CODES = {"source": "rle_csv", "id_column": "id", "label_column": "code"}


def test_the_table_and_its_labels_come_back_from_disk(tmp_path):
    """Ids stay text, whole numbers stay labels, and rejected images are listed."""
    folder = put_csv(
        tmp_path / "in", "image_id,label\n007,10\n010,9\nNA,10\n", ["007.jpg"]
    )
    table, labels = read(folder, name="n", path_template="train_images/{image_id}.jpg")
    images, work = measure(table, labels), tmp_path / "work"

    with pytest.raises(
        FileNotFoundError, match=r"no '.*images.parquet'. Run 01_explore"
    ):
        load_images(str(work))
    save_images(images, labels, str(work))
    again, labels_again = load_images(str(work))
    pd.testing.assert_frame_equal(again, images)
    assert labels_again == labels
    assert again["image_id"].tolist() == ["007", "010", "NA"]
    assert again["label"].tolist() == [1, 0, 1]
    classes = {"kind": "single", "classes": [9, 10], "label_columns": [], "name": "n"}
    classes["bit_depth"] = "scale"
    assert json.loads((work / "labels.json").read_text()) == classes
    assert (work / "labels.txt").read_text() == "0:9\n1:10\n"
    assert json.loads((work / "label_map.json").read_text()) == {"9": 0, "10": 1}
    missing = [
        f"{name},{folder}/train_images/{name}.jpg,missing file"
        for name in ("010", "NA")
    ]
    assert (work / "rejects.csv").read_text().splitlines()[1:] == missing


def test_paths_index_into_the_id(tmp_path):
    """A template such as {id[0]}/{id[1]}/{id} finds nested images; names short ids."""
    put_csv(tmp_path, "id,label\nab12,5\ncd34,70\ne,5\n")
    put_image(tmp_path / "train" / "a" / "b" / "ab12.jpg")
    template = "train/{id[0]}/{id[1]}/{id}.jpg"
    images = measure(*read(tmp_path, id_column="id", path_template=template))

    short = f"id too short for PATH_TEMPLATE '{template}'"
    paths = [f"{tmp_path}/train/a/b/ab12.jpg", f"{tmp_path}/train/c/d/cd34.jpg", ""]
    assert images["path"].tolist() == paths
    assert images["problem"].tolist() == ["", "missing file", short]
    assert images[["height", "width", "format"]].to_numpy().tolist()[0] == [
        24,
        32,
        "JPEG",
    ]


def test_bad_rows_are_named_and_stay_in_the_table(tmp_path):
    """Each row has its reason; other columns stay, with a prefix where names clash."""
    rows = ["a.jpg,x", "a.jpg,x", "b.jpg,x", "b.jpg,y", "c.jpg,", ",x", "d.jpg,y"]
    rows += ["../../etc/passwd,x", "..\\..\\boot.ini,x", "a..b.jpg,x"]
    names = ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]
    text = "\n".join(
        ["image_id,label,age,width", *(f"{row},30,640" for row in rows), ""]
    )

    images = measure(*read(put_csv(tmp_path, text, names)))

    clash, outside = "listed with different labels: x, y", "id is outside INPUT_DIR"
    assert images["problem"].tolist() == [
        *(
            "",
            "listed twice: the first row counts",
            clash,
            clash,
            "no label",
            "no id",
            "",
        ),
        *(outside, outside, "missing file", "no row in train.csv"),
    ]
    assert images["label"].tolist() == [0, 0, 0, 1, -1, 0, 1, 0, 0, 0, -1]
    assert set(images["path"][7:9]) == {""}
    assert images.loc[0, ["age", "csv_width", "width"]].tolist() == [30, 640, 32]
    assert str(images["age"].dtype) == "Int64"


@pytest.mark.parametrize("sep", [";", "\t"])
def test_a_csv_may_be_parted_by_semicolons_or_tabs(tmp_path, sep):
    """The separator is the one that splits off ID_COLUMN, in TEST_CSV as well."""
    text = 'image_id,label,note\na.jpg,x,"p;q"\nb.jpg,y,"p\tq"\n'
    folder = put_csv(tmp_path, text, ["a.jpg", "b.jpg"])
    put_image(folder / "test_images" / "c.jpg")
    (folder / "sample_submission.csv").write_text("image_id,label\nc.jpg,x\n")
    expected, labels = read(folder)
    for name in ("train.csv", "sample_submission.csv"):
        (folder / name).write_text((folder / name).read_text().replace(",", sep))

    table, labels_again = read(folder)

    pd.testing.assert_frame_equal(table, expected)
    assert labels_again == labels
    with pytest.raises(
        ValueError, match=r"no column 'id'.* It has image_id.label.note. Set ID_C"
    ):
        read(folder, id_column="id")


def test_cells_beyond_the_header_are_dropped(tmp_path):
    """A separator at the end of each line does not move the columns."""
    text = "image_id,label\na.jpg,x,\nb.jpg,y,\n"
    images, labels = read(put_csv(tmp_path, text, ["a.jpg", "b.jpg"]))

    assert images["image_id"].tolist() == ["a.jpg", "b.jpg"]
    assert labels.classes == ("x", "y")


def test_class_folders_may_have_any_name_and_kind_of_image(tmp_path):
    """Names may have spaces, accents and other scripts; a text is not an image."""
    for name in ("näive rose/1.jpg", "菊/2.png", "Aster/3.webp"):
        put_image(tmp_path / name)
    (tmp_path / "Aster" / "notes.txt").write_text("no image")

    table, labels = read(tmp_path, source="folders", pattern="*/*")

    assert labels.classes == ("Aster", "näive rose", "菊")
    assert measure(table, labels)[
        ["image_id", "format", "problem"]
    ].to_numpy().tolist() == [
        ["Aster/3.webp", "WEBP", ""],
        ["näive rose/1.jpg", "JPEG", ""],
        ["菊/2.png", "PNG", ""],
    ]


def test_a_split_folder_on_top_gives_the_split(tmp_path):
    """The class is the folder below; labels follow the map; LIMIT samples all rows."""
    for name in (
        "train/cat/1.JPEG",
        "val/cat/2.JPEG",
        "test/dog/3.JPEG",
        "train/dog/4.JPEG",
    ):
        put_image(tmp_path / name)
    (tmp_path / "map.json").write_text('{"dog": 0, "cat": 2, "cow": 1}')
    changes = {"source": "folders", "pattern": "*/*/*.JPEG", "label_map": "map.json"}
    table, labels = read(tmp_path, **changes)

    assert table["split"].tolist() == ["test", "train", "train", "val"]
    assert table["label_name"].tolist() == ["dog", "cat", "dog", "cat"]
    assert table["label"].tolist() == [0, 2, 0, 2]
    assert labels.classes == ("dog", "cow", "cat")
    assert read(tmp_path, **changes, limit=2)[0]["split"].tolist() == ["test", "train"]


def test_one_column_of_zeros_and_ones_per_label(tmp_path):
    """Label columns stay as int8 columns; label_name has the combination."""
    text = "image_id,rust,scab\na.jpg,1,1\nb.jpg,0,1\nc.jpg,0,0\nd.jpg,2,0\ne.jpg,,1\n"
    folder = put_csv(tmp_path, text, ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"])
    table, labels = read(folder, label_column=["rust", "scab"])

    assert labels.kind == "multi"
    assert labels.classes == labels.label_columns == ("rust", "scab")
    assert table[["rust", "scab"]].to_numpy().tolist()[:3] == [[1, 1], [0, 1], [0, 0]]
    assert table["rust"].dtype == np.int8
    assert table["label_name"].tolist()[:3] == ["rust|scab", "scab", ""]
    assert table["label"].tolist()[:3] == [1, 2, 0]
    problems = [
        "label column 'rust' contains '2', not 0 or 1",
        "no label in column 'rust'",
    ]
    assert table["problem"].tolist() == ["", "", "", *problems]


def test_a_separated_list_of_labels(tmp_path):
    """LABEL_SEPARATOR splits one column into labels; numbers sort as numbers."""
    text = "image_id,label\na.jpg,10 9\nb.jpg,9 nan\nc.jpg,\n"
    table, labels = read(
        put_csv(tmp_path, text, ["a.jpg", "b.jpg"]), label_separator=" "
    )

    assert labels.classes == (9, 10)
    assert table[["9", "10"]].to_numpy().tolist() == [[1, 1], [1, 0], [0, 0]]
    assert table["problem"].tolist() == ["", "", "no label"]


@pytest.mark.parametrize(
    ("head", "join", "column"),
    [("id,code", "_", "code"), ("id,ClassId,code", ",", ["ClassId", "code"])],
)
def test_run_length_codes_by_image_and_label(tmp_path, head, join, column):
    """One row per image, in the CSV's order; several codes of a label are one mask.

    Bad codes are named once the sizes of the images are known.
    """
    rows = ["b.jpg@Fish,768 2", "a_1.jpg@Fish,1 2 5 3", "a_1.jpg@1,nan", "b.jpg@1,-1"]
    rows += ["c.jpg@Fish,1 2 3", "d.jpg@1,9 1", "d.jpg@1,4 4"]
    text = "\n".join([head, *(row.replace("@", join) for row in rows), ""])
    folder = put_csv(tmp_path, text, ["a_1.jpg", "b.jpg", "c.jpg", "d.jpg"])
    table, labels = read(folder, **CODES | {"label_column": column})

    assert labels.kind == "masks"
    assert labels.classes == labels.label_columns == ("1", "Fish")
    columns = ["image_id", "Fish", "1", "label_name", "problem"]
    assert measure(table, labels)[columns].to_numpy().tolist() == [
        [
            "b.jpg",
            "768 2",
            "",
            "Fish",
            "Fish: run-length code leaves the image: pixel 769 of 768",
        ],
        ["a_1.jpg", "1 2 5 3", "", "Fish", ""],
        [
            "c.jpg",
            "1 2 3",
            "",
            "Fish",
            "Fish: run-length code is odd in length: 3 numbers",
        ],
        ["d.jpg", "", "4 4 9 1", "1", ""],
    ]


@pytest.mark.parametrize("name", ["{}.jpg", "car_{}.jpg", "{}_01.jpg", "car_{}"])
def test_plain_ids_have_one_mask_class(tmp_path, name):
    """Rows of plain ids are one mask; a broken code rejects its image alone."""
    codes = {
        "0": ["40 3", "1 2", "41 5"],
        "1": [""],
        "2": ["7 1"],
        "3": ["1 2 3", "9"],
        "4": ["x"],
    }
    rows = [
        f"{name.format(image)},{code}\n" for image in codes for code in codes[image]
    ]
    template = "train_images/{image_id}" + ("" if name.endswith("jpg") else ".jpg")
    files = [
        template.partition("/")[2].format(image_id=name.format(image))
        for image in codes
    ]
    folder = put_csv(tmp_path, "id,code\n" + "".join(rows), files)
    table, labels = read(folder, **CODES, path_template=template)

    assert (labels.kind, labels.classes, labels.label_columns) == (
        "masks",
        ("code",),
        ("code",),
    )
    assert table["image_id"].tolist() == [name.format(image) for image in codes]
    assert table["code"].tolist()[:3] == ["1 2 40 6", "", "7 1"]
    assert table["label_name"].tolist() == ["code", "", "code", "code", "code"]
    assert measure(table, labels)["problem"].tolist() == [
        *("", "", ""),
        "code: run-length code is odd in length: 3 numbers",
        "code: run-length code contains something else than whole numbers",
    ]


MASKS = {
    "source": "rle_csv",
    "label_column": "EncodedPixels",
    "test_csv": "",
    "test_path_template": "",
}


def put_masks(folder, order, sizes=((40, 64), (40, 64), (64, 40), (50, 50))):
    """Write images and their masks, a rectangle each; return the codes by columns."""
    rows = ["image_id, EncodedPixels\n", "0.png, -1\n"]
    codes = []
    for number, (height, width) in enumerate(sizes, 1):
        mask = np.zeros((height, width), np.uint8)
        mask[5:25, 10:30] = 1
        codes.append(encode_mask(mask))
        rows.append(
            f"{number}.png,{encode_mask(mask.T if order == 'rows' else mask)}\n"
        )
    put_csv(folder, "".join(rows))
    (folder / "train_images").mkdir()
    for number, (height, width) in enumerate([(9, 9), *sizes]):
        image = Image.new("RGB", (width, height), "teal")
        image.save(folder / "train_images" / f"{number}.png")
    return codes


@pytest.mark.parametrize("order", ["columns", "rows"])
def test_codes_by_rows_are_noticed_and_converted(tmp_path, order):
    """Three masks are drawn, with a warning unless RLE_ORDER is right."""
    codes = put_masks(tmp_path, order)
    listed, labels = read(tmp_path, **MASKS)

    images = measure(listed, labels, rle_order=order)

    assert images["problem"].tolist() == [""] * 5
    assert images["EncodedPixels"].tolist() == ["", *codes]
    figure, warning = draw_masks(images, labels)
    assert warning == ""
    assert figure.get_suptitle().startswith("3 masks: if they do not fit")
    if order == "rows":
        figure, warning = draw_masks(measure(listed, labels), labels)
        assert warning == (
            "The masks look like combs: their codes may count by rows. If so, set "
            "RLE_ORDER: rows."
        )
        assert figure.get_suptitle() == warning


def test_a_code_that_does_not_fit_is_a_problem_in_any_order(tmp_path):
    """It is named, and not converted."""
    put_csv(tmp_path, "image_id,EncodedPixels\na.jpg,1 2 3\n", ["a.jpg"])

    images = measure(*read(tmp_path, **MASKS), rle_order="rows")

    assert images["EncodedPixels"][0] == "1 2 3"
    assert images["problem"][0].startswith("EncodedPixels: run-length code is odd")


@given(st.lists(st.sets(st.integers(1, 40), min_size=1), min_size=1, max_size=4))
def test_joined_codes_hold_every_pixel_once(masks):
    """The joined code of masks is the union of their pixels, in ascending runs."""
    codes = [" ".join(f"{pixel} 1" for pixel in sorted(mask)) for mask in masks]
    numbers = list(map(int, join_codes(codes).split()))
    runs = zip(numbers[::2], numbers[1::2], strict=True)
    pixels = [start + k for start, length in runs for k in range(length)]
    assert pixels == sorted(set().union(*masks))


ROW, MISSING, WRONG = "image_id,label\na.jpg,x\n", FileNotFoundError, ValueError


@pytest.mark.parametrize(
    ("text", "changes", "error", "message"),
    [
        (None, {}, MISSING, r"no file '.*train.csv'. Set LABELS_CSV"),
        (
            "",
            {},
            WRONG,
            r"LABELS_CSV '.*train.csv' is not a CSV file in UTF-8: No columns",
        ),
        ("image_id,label\n", {}, WRONG, r"has a header and no row"),
        (
            "image_id,lable\na.jpg,x\n",
            {},
            WRONG,
            r"no column 'label'. Did you mean \"lable\"",
        ),
        ("id,label\na.jpg,x\n", {}, WRONG, r"no column 'image_id'.* Set ID_COLUMN"),
        (
            ROW,
            {"id_column": "label"},
            WRONG,
            r"LABEL_COLUMN both name 'label'. Set LABEL_COLUMN",
        ),
        (ROW, {"label_column": ["label", "image_id"]}, WRONG, r"both name 'image_id'"),
        ('image_id,label\n"a.jpg,x\n', {}, WRONG, r"is not a CSV file in UTF-8"),
        (
            "image_id,path,b\na,1,1\n",
            {"label_column": ["path", "b"]},
            WRONG,
            r"is called 'path'",
        ),
        (
            ROW,
            {"path_template": "{imageid}"},
            WRONG,
            r"'imageid'.*Did you mean \"image_id\"",
        ),
        (
            ROW,
            {"path_template": "{image_id[9]}"},
            WRONG,
            r"fits no row, .* 'a.jpg': id too short",
        ),
        (
            "image_id,label\n../../x,x\n",
            {},
            WRONG,
            r"fits no row.*: id is outside INPUT_DIR",
        ),
        (
            ROW,
            {"path_template": "../x/{image_id}"},
            WRONG,
            r"'../x/{image_id}' is outside its",
        ),
        (
            ROW,
            {"path_template": "x/{image_id}"},
            MISSING,
            r"none of the 1 .* set PATH_TEMPLATE",
        ),
        (ROW, {"label_map": "no.json"}, MISSING, r"no file '.*no.json'. Set LABEL_MAP"),
        (
            ROW,
            {"label_map": "train.csv"},
            WRONG,
            r"LABEL_MAP '.*train.csv' is not JSON",
        ),
        (
            ROW,
            {"label_map": {"x": 0}, "label_separator": " "},
            WRONG,
            r"Leave it empty for",
        ),
        (ROW, {"input": "no"}, MISSING, r"INPUT_DIR '.*/no' is not a folder. Give"),
        (ROW, {"source": "tables"}, WRONG, "SOURCE is 'tables'. It can be 'csv'"),
        (
            "id,code\na_1.jpg,1 1\nb.jpg,1 1\n",
            CODES,
            WRONG,
            r"1 of 2 have no '_', .*'b.jpg'",
        ),
        (
            "id,code\nb,1\n",
            CODES | {"label_column": []},
            WRONG,
            r"LABEL_COLUMN is \[\].*set it to",
        ),
    ],
)
def test_settings_that_do_not_fit_the_data(tmp_path, text, changes, error, message):
    """Each message says what is wrong, where, and what to set; nothing is written."""
    put_image(tmp_path / "train_images" / "a.jpg")
    if text is not None:
        (tmp_path / "train.csv").write_text(text)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=message):
        read(tmp_path / changes.pop("input", ""), **changes)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"pattern": "*.jpg"}, ValueError, r"PATTERN '\*.jpg' has no class folder"),
        (
            {"pattern": "*/*/*"},
            FileNotFoundError,
            r"no file matches '\*/\*/\*'.* Set PATTERN",
        ),
        (
            {"label_map": {"x": 0}},
            ValueError,
            r"LABEL_MAP .* the first is 'rose'. Add them",
        ),
        (
            {"label_map": {"rose": 0, "x": 0}},
            ValueError,
            r"label 0 to both 'rose' and 'x'",
        ),
        (
            {"label_map": {"0": "rose"}},
            ValueError,
            r"takes {\"class\": label}.* contains {'0': 'rose'}\. Fix",
        ),
        (
            {"label_map": {"classes": ["rose"]}},
            ValueError,
            r"contains {'classes': \['rose'\]}\. Fix",
        ),
    ],
)
def test_class_folders_that_do_not_fit_the_settings(tmp_path, changes, error, message):
    """A label map or a pattern that does not fit stops the run."""
    put_image(tmp_path / "rose" / "1.jpg")
    with pytest.raises(error, match=message):
        read(tmp_path, source="folders", **changes)


def test_sizes_are_as_shown(data_dir):
    """Every EXIF orientation of an image has the same height and width."""
    paths = sorted(str(path) for path in Path(data_dir / "exif").glob("*.jp*g"))

    measured = measure(pd.DataFrame({"image_id": paths, "path": paths, "problem": ""}))
    assert len(measured[["height", "width"]].drop_duplicates()) == 1
    assert sorted(set(measured["orientation"])) == list(range(1, 9))


@given(st.lists(st.one_of(st.integers(0, 10**12).map(str), st.text("ab0", max_size=3))))
def test_labels_are_contiguous_and_sorted(names):
    """Any labels become 0 … n−1 in sorted order, and classes are found by label."""
    label, classes = number_classes(pd.Series(names, dtype=object))

    assert classes == sorted(set(classes))
    assert sorted(set(label.tolist()) - {-1}) == list(range(len(classes)))
    assert [str(classes[k]) if k >= 0 else "" for k in label] == names
