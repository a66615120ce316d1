"""Shards as the input: of parts, of TensorFlow Datasets and of others."""

import gzip
import json
import os
from pathlib import Path

import pandas as pd
import pytest
from support.inputs import put, read, rows_of
from support.plans import plan_images
from support.readers import make_example, make_picture, save_noise, write_shard

from kaggle_tfr.explore.table import measure
from kaggle_tfr.records import DamagedRecord, read_image_bytes
from kaggle_tfr.write.writer import write_parts

IMAGES = [save_noise(seed, 64, 48) for seed in range(9)]
RECORDS = [make_example(image=data, label=n % 3) for n, data in enumerate(IMAGES)]


def write_input(records, name="a.tfrec"):
    """Write a shard of the input folder; return its path."""
    return Path(write_shard(f"in/{name}", records)).absolute()


@pytest.mark.parametrize(("cut", "n_whole"), [(0, 9), (900, 8)])
def test_every_member_of_a_gzip_shard_is_read(cut, n_whole):
    """Files may be concatenated, and zeros fill a block.

    The whole records of a truncated file are read.
    """
    shard = write_input(RECORDS)
    data = shard.read_bytes()
    packed = gzip.compress(data[:5000]) + bytes(2) + gzip.compress(data[5000:])
    shard.write_bytes(packed[: len(packed) - cut])

    images, _ = read("in")

    good = images[images["problem"] == ""]
    assert list(map(read_image_bytes, good["path"])) == IMAGES[:n_whole]
    assert len(images) == 9


def test_a_record_damaged_after_01_is_rejected():
    """The forecast and the writer name it by its shard and byte."""
    path = write_input(RECORDS)
    images, labels = read("in")
    table = measure(images, labels).assign(fold=0, split="train")
    plan_images(table, "work", size=48, labels=labels)
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-99] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    shards = write_parts("work")

    assert (shards["count"].sum(), shards["refused"].sum()) == (8, 1)
    rejects = pd.read_csv("work/part-1/rejects.csv")
    offset = len(data) - len(RECORDS[8]) - 16
    damaged = f"'{path}' at byte {offset:,}: the record is damaged"
    assert rejects[["path", "problem"]].to_numpy().tolist() == [[f"{path}#8", damaged]]


def test_one_bad_shard_is_a_row_among_good_ones():
    """It may be another file, empty, missing or truncated."""
    cut = write_input(RECORDS[:6], "cut.tfrec")
    os.truncate(cut, cut.stat().st_size * 3 // 4)
    write_input(RECORDS[:6], "whole.tfrec")
    listed = "file,split\ngone.tfrec,train\nwhole.tfrec,train\n"
    other = "PK\x03\x04 is a zip" * 99
    put("in", [], {"empty.tfrec": "", "shards.csv": listed, "other.tfrec": other})

    images, _ = read("in")

    problem_of = rows_of(images, "problem")
    good = [name[:-2] for name, problem in problem_of.items() if not problem]
    assert good == ["cut.tfrec"] * 4 + ["whole.tfrec"] * 6
    assert len(images) == 14
    assert problem_of["gone.tfrec#0"] == "missing file"
    assert problem_of["empty.tfrec#0"].endswith("empty.tfrec' contains no record")
    for name in ("cut.tfrec#4", "other.tfrec#0"):
        assert f"/in/{name[:-2]}' at byte " in problem_of[name]


def test_labels_may_be_texts():
    """Other features become text; the id of a missing or repeated id is its address."""
    features = {"image": IMAGES[0], "image_id": 7}
    rose = make_example(**features, label=b"rose", species=5)
    daisy = make_example(**features, label=b"daisy", species=9)
    other = make_example(image=IMAGES[0], label=b"rose")
    write_input([rose, daisy, other], "validation/a.tfrec")
    schema = {name: name for name in ("image", "label", "image_id", "species")}

    images, labels = read("in", input_schema=schema, group_column="species")

    assert labels.classes == ("daisy", "rose")
    assert rows_of(images, "split", "label", "species") == {
        "7": ["validation", 1, "5"],
        "validation/a.tfrec#1": ["validation", 0, "9"],
        "validation/a.tfrec#2": ["validation", 1, ""],
    }


def test_lists_of_0_and_1_are_several_labels():
    """Their names are in labels.json; other numbers and lengths reject the record."""
    names = ["cat", "dog"]
    labels = {"kind": "multi", "classes": names, "label_columns": names}
    put("in", [], {"labels.json": json.dumps(labels)})
    rows = [[1, 0], [1, 1], [0], [2, 0], [0, 1]]
    write_input([make_example(image=IMAGES[0], tags=row) for row in rows])

    images, _ = read("in", input_schema={"image": "image", "tags": "labels"})

    assert images["label_name"].tolist() == ["cat", "cat|dog", "", "", "dog"]
    assert images["problem"].astype(bool).tolist() == [False, False, True, True, False]


def test_an_address_names_the_feature_of_its_image_if_several_are_like_one():
    """So does the id of a record without one; a record may lack the feature."""
    features = {"left": make_picture(10), "right": IMAGES[0], "other": b"x"}
    write_input([make_example(**features), make_example(left=IMAGES[0])])

    images, _ = read("in", input_schema={"right": "image"})

    assert rows_of(images, "problem") == {
        "a.tfrec#right=0": "",
        "a.tfrec#1": "no image in the feature 'right'",
    }
    assert read_image_bytes(images["path"][0]) == IMAGES[0]
    with pytest.raises(DamagedRecord, match=r"a\.tfrec' at byte 0"):
        read_image_bytes(images["path"][0].replace("right=", ""))


def test_features_of_known_datasets_are_recognised():
    """Only the record that has no label is rejected; a whole float is a class.

    With LABEL_KIND: number, it is a quantity.
    """
    labels = [{"target": 0.0}, {"target": 1.0}, {"target": 0.0}, {}]
    records = []
    for number, label in enumerate(labels):
        features = label | {"image_name": b"id-%d" % number}
        records.append(make_example(image=IMAGES[0], **features))
    write_input(records)

    images, labels = read("in")

    assert labels.classes == (0, 1)
    assert rows_of(images, "label", "problem") == {
        "id-0": [0, ""],
        "id-1": [1, ""],
        "id-2": [0, ""],
        "id-3": [-1, "no label"],
    }
    images, _ = read("in", label_kind="number")
    assert images["target"].tolist()[:3] == [0, 1, 0]


def test_masks_of_several_classes_are_read_back():
    """A record has a code for each class; an empty one is no mask.

    LABEL_MAP may set the order of the classes. RLE_ORDER is not that of records.
    """
    codes = {"a.png": ["1 2", ""], "b.png": ["5 3", "9 1"], "c.png": ["", ""]}
    rows = [
        f"{name}_{label},{code}\n"
        for name, pair in codes.items()
        for label, code in zip(["ant", "bee"], pair, strict=True)
    ]
    put("in", [*codes], {"train.csv": "id,code\n" + "".join(rows)})
    order = {"bee": 0, "ant": 1}
    images, labels = read(
        "in", label_kind="masks", label_column="code", label_map=order
    )
    table = measure(images, labels).assign(fold=0, split="train")
    plan_images(table, "work", size=0, labels=labels)
    write_parts("work")

    again, labels_again = read("work/part-1")
    again = measure(again, labels_again, rle_order="rows")

    assert labels_again.label_columns == labels.label_columns == ("bee", "ant")
    assert rows_of(again, "ant", "bee") == codes == rows_of(images, "ant", "bee")
