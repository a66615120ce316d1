"""Shards as the input: of parts, of TensorFlow Datasets and of others."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.inputs import put, read
from support.plans import plan_images
from support.readers import make_example, make_picture, save_noise, write_shard

from kaggle_tfr.explore.table import measure
from kaggle_tfr.records import DamagedRecord, read_image_bytes
from kaggle_tfr.write.writer import write_parts

IMAGES = [save_noise(seed, 64, 48) for seed in range(40)]


def make_records(images, n_classes=3):
    """Return a record for each image, with labels 0, 1, 2, 0, …"""
    numbered = enumerate(images)
    return [make_example(image=data, label=k % n_classes) for k, data in numbered]


def write_input(records, name="a.tfrec", compression=""):
    """Write a shard of the input folder; return its path."""
    return Path(write_shard(f"in/{name}", records, compression)).absolute()


def read_all(images):
    """Return the bytes of the images of a table."""
    return [read_image_bytes(path) for path in images["path"]]


@pytest.mark.parametrize("cut", [0, 900])
def test_every_member_of_a_gzip_shard_is_read(cut):
    """Files may be concatenated, and zeros fill a block.

    The whole records of a truncated file are read.
    """
    shard = write_input(make_records(IMAGES[:9]))
    data = shard.read_bytes()
    packed = gzip.compress(data[:5000]) + bytes(2) + gzip.compress(data[5000:])
    shard.write_bytes(packed[: len(packed) - cut])

    images, _ = read("in")

    is_good = images["problem"] == ""
    assert read_all(images[is_good]) == IMAGES[: 8 if cut else 9]
    assert (~is_good).sum() == bool(cut)


def test_a_record_damaged_after_01_is_rejected():
    """The forecast and the writer name it by its shard and byte."""
    records = make_records(IMAGES[:30])
    path = write_input(records)
    images, labels = read(path.parent)
    table = measure(images, labels).assign(fold=0, split="train")
    plan_images(table, "work", size=48, labels=labels)
    offset = sum(len(record) + 16 for record in records[:9])
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[offset + 99] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    shards = write_parts("work")

    assert (shards["count"].sum(), shards["refused"].sum()) == (29, 1)
    rejects = pd.read_csv("work/part-1/rejects.csv")
    damaged = f"'{path}' at byte {offset:,}: the record is damaged"
    assert rejects[["path", "problem"]].to_numpy().tolist() == [[f"{path}#9", damaged]]


def test_one_bad_shard_is_a_row_among_good_ones():
    """It may be another file, empty, missing or truncated."""
    records = make_records(IMAGES[:6])
    plain = write_input(records, "plain.tfrec")
    os.truncate(plain, plain.stat().st_size * 3 // 4)
    write_input(records, "whole.tfrec")
    listed = "file,split\ngone.tfrec,train\nwhole.tfrec,train\n"
    other = "PK\x03\x04 is a zip" * 99
    put("in", [], {"empty.tfrec": "", "shards.csv": listed, "other.tfrec": other})

    images, _ = read("in")

    shards = images["image_id"].str.partition(".")[0]
    is_good = images["problem"] == ""
    problems = dict(zip(shards[~is_good], images["problem"][~is_good], strict=True))
    assert problems.pop("gone") == "missing file"
    assert problems.pop("empty").endswith("/in/empty.tfrec' contains no record")
    for name in ("plain", "other"):
        assert f"/in/{name}.tfrec' at byte " in problems.pop(name)
    assert not problems
    assert shards[is_good].value_counts().to_dict() == {"whole": 6, "plain": 4}


TWO_IMAGES = {"left": make_picture(10), "right": IMAGES[0], "label": 1, "other": b"x"}


def test_labels_may_be_texts():
    """Other features are columns; the id of a repeated id is its address."""
    features = {"image": IMAGES[0], "image_id": b"same"}
    rose = make_example(**features, label=b"rose", species=5)
    daisy = make_example(**features, label=b"daisy", species=9)
    write_input([rose, daisy], "validation/a.tfrec")
    names = ("image", "label", "image_id", "species")
    schema = {name: name for name in names}
    images, labels = read("in", input_schema=schema)

    assert labels.classes == ("daisy", "rose")
    found = images[["image_id", "split", "label", "species"]].to_numpy().tolist()
    expected = [["same", 1, 5], ["validation/a.tfrec#1", 0, 9]]
    assert found == [[name, "validation", *values] for name, *values in expected]


def test_lists_of_0_and_1_are_several_labels():
    """Their names are in labels.json; other numbers and lengths reject the record."""
    names = ["cat", "dog"]
    labels = {"kind": "multi", "classes": names, "label_columns": names}
    put("in", [], {"labels.json": json.dumps(labels)})
    rows = [[1, 0], [1, 1], [0], [2, 0], *[[0, 1]] * 40]
    write_input([make_example(image=IMAGES[0], tags=row) for row in rows])

    images, _ = read("in", input_schema={"image": "image", "tags": "labels"})

    assert images["label_name"].tolist()[:2] == ["cat", "cat|dog"]
    assert np.flatnonzero(images["problem"]).tolist() == [2, 3]


def test_an_address_names_the_feature_of_its_image_if_several_are_like_one():
    """So does the id of a record without one; a record may lack the feature."""
    write_input([make_example(**TWO_IMAGES), make_example(left=IMAGES[0], label=0)])

    images, _ = read("in", input_schema={"right": "image", "label": "label"})

    assert images["image_id"].tolist() == ["a.tfrec#right=0", "a.tfrec#1"]
    assert images["problem"].tolist() == ["", "no image in the feature 'right'"]
    assert read_all(images[:1]) == [IMAGES[0]]
    with pytest.raises(DamagedRecord, match=r"a\.tfrec' at byte 0"):
        read_image_bytes(images["path"][0].replace("right=", ""))


@pytest.mark.parametrize("features", [["target", "image_name"], ["class", "id"]])
def test_features_of_known_datasets_are_recognised(features):
    """Only the record that has no label is rejected; a whole float is a class."""
    label, name = features
    records = []
    for number, value in enumerate((0.0, 1.0, 0.0)):
        ids = {label: value, name: b"id-%d" % number}
        records.append(make_example(image=IMAGES[0], **ids))
    write_input([*records, make_example(image=IMAGES[0], **{name: b"last"})])

    images, labels = read("in")

    assert labels.classes == (0, 1)
    assert images["image_id"].tolist() == ["id-0", "id-1", "id-2", "last"]
    assert images["label"].tolist() == [0, 1, 0, -1]
    assert images["problem"].tolist() == ["", "", "", "no label"]
