"""Shards as the input: ours, TensorFlow Datasets' and anyone's, on a disk and in a bucket."""

import gzip
import io
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.chain import run_chain
from support.forks import run_code
from support.gcs import serve_bucket
from support.plans import make_images, plan_images, read_plainly
from support.readers import make_example, make_picture, save_noise, write_shard

from kaggle_tfr import explore, parallel
from kaggle_tfr.explore.table import measure
from kaggle_tfr.kaggle.session import copy_plan
from kaggle_tfr.records import (
    RECORDS_FOLDER,
    decompress,
    example_class,
    forget_records,
    read_image_bytes,
    size_and_time,
)
from kaggle_tfr.write.parts import write_parts

PICTURES = [save_noise(seed, 64, 48) for seed in range(40)]
SETTINGS = {"SOURCE": "tfrecords", "IMAGE_SIZE": 48, "N_FOLDS": 2, "N_SHARDS": 4}


@pytest.fixture(autouse=True)
def records(tmp_path, monkeypatch):
    """The folder of indices, as a notebook's first call sets it."""
    monkeypatch.setenv(RECORDS_FOLDER, str(tmp_path / "work" / "records"))
    return tmp_path / "work" / "records"


def read(folder, **changes):
    return explore.read_table(
        str(folder), explore.InputSettings(source="tfrecords", **changes)
    )


def write_plainly(folder):
    """What twenty lines of plain TensorFlow write: GZIP, labels 0 to 2, and tests without any."""
    import tensorflow as tf

    folder.mkdir()
    for number, count in enumerate([12, 12, 10, 6]):
        name = f"{'test' if number == 3 else 'train'}-{number}.tfrecord"
        with tf.io.TFRecordWriter(str(folder / name), "GZIP") as writer:
            for k in range(12 * number, 12 * number + count):
                feature = {"jpeg": PICTURES[k % 40], "name": f"{k}.jpg".encode()}
                values = {
                    key: tf.train.BytesList(value=[v]) for key, v in feature.items()
                }
                features = {
                    k: tf.train.Feature(bytes_list=v) for k, v in values.items()
                }
                if number < 3:
                    value = tf.train.Int64List(value=[k % 3])
                    features["target"] = tf.train.Feature(int64_list=value)
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    return folder


def pictures_by_id(part):
    """{id: (picture, label)} of a finished part, read by TensorFlow alone."""
    rows = read_plainly(sorted(Path(part).glob("*.tfrec")))
    return {row["image_id"].decode(): (row["image"], row["label"]) for row in rows}


@pytest.mark.parametrize("cut", [0, 3, 20, 900])
def test_every_member_of_a_gzip_shard_is_read(tmp_path, cut):
    """As TensorFlow reads it: concatenated files, with and without a name, and bgzip's blocks."""
    import tensorflow as tf

    records = [make_example(image=data, label=0) for data in PICTURES[:9]]
    plain = Path(write_shard(tmp_path / "plain", records)).read_bytes()
    members = [io.BytesIO() for _ in range(3)]
    for number, member in enumerate(members):
        with gzip.GzipFile(["", "a.tfrec", ""][number], "wb", fileobj=member) as file:
            file.write(
                plain[number * 5000 : (number + 1) * 5000 if number < 2 else None]
            )
    block = members[2].getvalue()  # bgzip's has a field with its length
    block = block[:3] + b"\x04" + block[4:10] + b"\x06\0BC\x02\0\xff\xff" + block[10:]
    data = members[0].getvalue() + members[1].getvalue() + block
    packed = tmp_path / "in" / "a.tfrec"
    packed.parent.mkdir()
    packed.write_bytes(data[: len(data) - cut])

    images, _ = read(tmp_path / "in")

    if not cut:
        found = list(tf.data.TFRecordDataset(str(packed), "GZIP").as_numpy_iterator())
        assert found == records
    good = images[images["problem"] == ""]
    assert [read_image_bytes(path) for path in good["path"]] == PICTURES[: len(good)]
    assert len(good) == (9 if cut < 8 else 8)
    assert (images["problem"] != "").sum() == (cut > 0)


@pytest.mark.parametrize("behind", [b"", b"\0\0", b"more"], ids=["", "zeros", "more"])
def test_every_header_of_gzip_is_read_past(tmp_path, behind):
    """A field, a name, a comment and a checksum, in one member or another; zeros fill a block.

    Bytes that are no member are damage: the "?" makes the last record one that is rejected.
    """
    plain = gzip.compress(b"abc", mtime=0)
    fields = {4: b"\x03\0xyz", 8: b"name\0", 16: b"comment\0", 2: b"\x12\x34", 0: b""}
    members = [
        plain[:3] + bytes([flag]) + plain[4:10] + own for flag, own in fields.items()
    ]
    every = plain[:3] + b"\x1e" + plain[4:10] + b"".join(fields.values())
    data = b"".join(head + plain[10:] for head in [*members, every]) + behind
    (tmp_path / "packed").write_bytes(data)
    unpacked = decompress(str(tmp_path / "packed"), str(tmp_path / "plain"))
    assert Path(unpacked).read_bytes() == b"abc" * 6 + b"?" * (behind == b"more")


def test_copies_that_were_forgotten_are_made_again(tmp_path, monkeypatch):
    """A process may have read a packed shard before 01 ran over some of the rows only."""
    monkeypatch.setenv(RECORDS_FOLDER, str(tmp_path / "records"))
    shard = write_shard(tmp_path / "plain", [make_example(image=PICTURES[0], label=0)])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tfrec").write_bytes(gzip.compress(Path(shard).read_bytes()))
    images, _ = read(tmp_path / "in")

    forget_records(str(tmp_path / "records"), set())

    assert not list((tmp_path / "records").glob("*.copy"))
    assert [read_image_bytes(path) for path in images["path"]] == [PICTURES[0]]


def test_our_own_part_goes_through_again(tmp_path):
    """The same ids, pictures byte for byte, labels and classes, in new folds and new shards."""
    plan_images(make_images(tmp_path / "images", 24), tmp_path / "first", size=48)
    write_parts(str(tmp_path / "first"))
    part = tmp_path / "first" / "part-1"

    images, _, shards = run_chain(
        "sample", str(tmp_path / "work"), INPUT_DIR=str(part), KEEP="all", **SETTINGS
    )

    assert (images["problem"] == "").all()
    assert shards["count"].sum() == 24
    assert pictures_by_id(tmp_path / "work" / "part-1") == pictures_by_id(part)
    classes = [
        json.loads(Path(f, "labels.json").read_text())["classes"]
        for f in (part, "work")[:1]
    ]
    assert (
        json.loads((tmp_path / "work" / "labels.json").read_text())["classes"]
        == classes[0]
    )


def test_a_tfds_dataset_goes_through(tmp_path):
    """Features called image and label, in files such as name-train.tfrecord-00000-of-00002."""
    tfds = pytest.importorskip(
        "tensorflow_datasets", reason="the extra bench is not installed"
    )
    image = tfds.features.Image(encoding_format="jpeg")
    label = tfds.features.ClassLabel(num_classes=3)
    features = tfds.features.FeaturesDict({"image": image, "label": label})
    for number, k in enumerate(range(0, 40, 20)):
        held = [
            {"image": Path(tmp_path, f"{i}.jpg"), "label": i % 3}
            for i in range(k, k + 20)
        ]
        for one, data in zip(held, PICTURES[k : k + 20], strict=True):
            one["image"].write_bytes(data)
        examples = [
            features.serialize_example({**one, "image": str(one["image"])})
            for one in held
        ]
        write_shard(
            tmp_path / "in" / f"d-train.tfrecord-{number:05d}-of-00002", examples
        )

    run_chain(
        "sample", str(tmp_path / "work"), INPUT_DIR=str(tmp_path / "in"), **SETTINGS
    )

    written = pictures_by_id(tmp_path / "work" / "part-1")
    expected = {}
    for k in range(40):
        expected[f"d-train.tfrecord-{k // 20:05d}-of-00002#{k % 20}"] = (
            PICTURES[k],
            k % 3,
        )
    assert written == expected


def test_plain_gzip_shards_say_what_they_hold(tmp_path, capsys):
    """Auto names image, label and id of each split; tests have no label and are not refused."""
    images, labels = read(write_plainly(tmp_path / "in"))

    assert labels.classes == (0, 1, 2)
    assert images["image_id"].tolist() == [
        f"{k}.jpg" for k in [*range(36, 42), *range(34)]
    ]
    said = capsys.readouterr().out
    assert (
        "test: image jpeg, label –, image_id name (by 6 records of test-3.tfrecord)"
        in said
    )
    assert (
        "train: image jpeg, label target, image_id name (by 12 records of train-0"
        in said
    )
    tests = images[images["split"] == "test"]
    assert (
        tests[["label", "label_name", "problem"]].to_numpy().tolist()
        == [[-1, "", ""]] * 6
    )
    for row in images.itertuples():
        k = int(row.image_id.split(".")[0])
        assert read_image_bytes(row.path) == PICTURES[k % 40]
        assert row.split == "test" or row.label == k % 3


def test_plain_gzip_shards_go_through(tmp_path):
    """From 01 to 04: pictures byte for byte, labels, counts."""
    folder = write_plainly(tmp_path / "in")
    (folder / "test-3.tfrecord").unlink()

    run_chain("sample", str(tmp_path / "work"), INPUT_DIR=str(folder), **SETTINGS)

    written = pictures_by_id(tmp_path / "work" / "part-1")
    assert written == {f"{k}.jpg": (PICTURES[k], k % 3) for k in range(34)}


def test_ten_flipped_bytes_are_ten_rejected_rows(tmp_path):
    """Named by file and byte, whether a picture, a checksum or a length is hit; 30 go through."""
    records = [
        make_example(image=data, label=k % 3, id=b"%d" % k)
        for k, data in enumerate(PICTURES)
    ]
    path = Path(write_shard(tmp_path / "in" / "a.tfrec", records))
    data, offsets = (
        bytearray(path.read_bytes()),
        np.cumsum([0, *(len(r) + 16 for r in records)]),
    )
    hit = range(0, 40, 4)
    for number, k in enumerate(hit):
        # In the length, its checksum, the record, and the record's checksum, in turn.
        data[offsets[k] + [1, 9, 500, len(records[k]) + 13][number % 4]] ^= 64
    path.write_bytes(data)

    images, _, shards = run_chain(
        "sample", str(tmp_path / "work"), INPUT_DIR=str(path.parent), **SETTINGS
    )

    refused = images[images["problem"] != ""]
    assert refused["path"].tolist() == [f"{path}#{k}" for k in hit]
    for k, problem in zip(hit, refused["problem"], strict=True):
        assert problem == f"'{path}' at byte {offsets[k]:,}: the record is damaged"
    assert shards["count"].sum() == 30
    whole = {str(k): (PICTURES[k], k % 3) for k in range(40) if k % 4}
    assert pictures_by_id(tmp_path / "work" / "part-1") == whole


def test_a_record_that_goes_bad_after_exploring_is_refused(tmp_path):
    """By the forecast and by the writer, as a damaged file is: by its shard and byte."""
    records = [
        make_example(image=data, label=k % 3) for k, data in enumerate(PICTURES[:30])
    ]
    path = Path(write_shard(tmp_path / "in" / "a.tfrec", records))
    images, labels = read(path.parent)
    table = measure(images, labels).assign(fold=0, split="train")
    plan_images(table, tmp_path / "work", size=48, labels=labels)
    offset, changed = sum(len(record) + 16 for record in records[:9]), path.stat()
    data = bytearray(path.read_bytes())
    data[offset + 99] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(changed.st_atime_ns, changed.st_mtime_ns))

    shards = write_parts(str(tmp_path / "work"))

    assert (shards["count"].sum(), shards["refused"].sum()) == (29, 1)
    (refused,) = pd.read_csv(tmp_path / "work" / "part-1" / "rejects.csv").itertuples()
    assert refused.path == f"{path}#9"
    assert refused.problem == f"'{path}' at byte {offset:,}: the record is damaged"
    plan_images(table, tmp_path / "again", size=48, labels=labels)


def test_one_bad_shard_is_a_row_among_good_ones(tmp_path):
    """No TFRecord, an empty one, a missing one, one cut in the middle: plain and packed."""
    records = [make_example(image=data, label=0) for data in PICTURES[:6]]
    for name, compression in (("plain", ""), ("packed", "GZIP")):
        path = Path(
            write_shard(tmp_path / "in" / f"{name}.tfrec", records, compression)
        )
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    write_shard(tmp_path / "in" / "whole.tfrec", records)
    (tmp_path / "in" / "empty.tfrec").touch()
    (tmp_path / "in" / "other.tfrec").write_bytes(b"PK\x03\x04 is a zip" * 99)
    (tmp_path / "in" / "tiny.tfrec").write_bytes(b"\0")
    (tmp_path / "in" / "shards.csv").write_text(
        "file,split\ngone.tfrec,train\nwhole.tfrec,train\n"
    )

    images, _ = read(tmp_path / "in")

    problems = {row.image_id: row.problem for row in images.itertuples() if row.problem}
    named = {key.split(".")[0]: text for key, text in problems.items()}
    assert len(problems) == len(named) == 6
    assert named["gone"] == "missing file"
    assert named["empty"] == f"'{tmp_path}/in/empty.tfrec' holds no record"
    for name in ("plain", "packed", "other", "tiny"):
        assert named[name].startswith(f"'{tmp_path}/in/{name}.tfrec' at byte ")
    good = (
        images[images["problem"] == ""]["image_id"].str.split(".").str[0].value_counts()
    )
    assert good.to_dict() == {"whole": 6, "plain": 4, "packed": good["packed"]}
    assert 3 <= good["packed"] <= 4


def test_bad_input_is_named_with_its_mend(tmp_path):
    """No TFRecord at all; two pictures, which INPUT_SCHEMA tells apart; none; no file."""
    for number in range(2):
        (tmp_path / "zip").mkdir(exist_ok=True)
        (tmp_path / "zip" / f"{number}.tfrec").write_bytes(b"PK" * 99)
    with pytest.raises(
        ValueError, match=r"none of the 2 shards in .*zip has a whole record.*PATTERN"
    ):
        read(tmp_path / "zip")
    with pytest.raises(FileNotFoundError, match=r"'\*\.rec' in .*zip. Set PATTERN"):
        read(tmp_path / "zip", pattern="*.rec")
    left, right = make_picture(10), make_picture(200)
    pair = make_example(left=left, right=right, label=1, other=b"x")
    write_shard(tmp_path / "two" / "a.tfrec", [pair])
    both = r"a.tfrec' each of left, right looks like the image.*INPUT_SCHEMA: \{left: image, …\}"
    with pytest.raises(ValueError, match=both):
        read(tmp_path / "two")
    images, _ = read(
        tmp_path / "two", input_schema={"right": "image", "label": "label"}
    )
    assert read_image_bytes(images["path"][0]) == right
    assert images["other"].tolist() == ["x"]
    write_shard(tmp_path / "none" / "a.tfrec", [make_example(label=1, text=b"x")])
    with pytest.raises(ValueError, match="none of label, text looks like the image"):
        read(tmp_path / "none")
    write_shard(
        tmp_path / "2" / "a.tfrec", [make_example(image=left, label=1, target=2)]
    )
    with pytest.raises(
        ValueError, match=r"each of label, target looks like the label.*INPUT_SCH"
    ):
        read(tmp_path / "2")
    with pytest.raises(ValueError, match='INPUT_SCHEMA.*Did you mean "petals"'):
        read(tmp_path / "two", input_schema="petal")


def test_labels_are_texts_or_numbers_and_may_be_mapped(tmp_path):
    """Text as it is; −1 is none; LABEL_MAP numbers them; repeated ids give way to addresses."""
    made = [("rose", 5), ("daisy", 9), ("rose", -1)]
    records = [
        make_example(image=data, label=text.encode(), species=number, image_id=b"same")
        for data, (text, number) in zip(PICTURES, made, strict=False)
    ]
    write_shard(tmp_path / "in" / "validation" / "a.tfrec", records)

    images, labels = read(tmp_path / "in")
    assert (labels.classes, images["label"].tolist()) == (("daisy", "rose"), [1, 0, 1])
    assert images["species"].tolist() == [5, 9, -1]
    assert set(images["split"]) == {"validation"}
    schema = {"image": "image", "species": "label", "image_id": "image_id"}
    images, labels = read(
        tmp_path / "in", input_schema=schema, label_map={"9": 0, "5": 1}
    )
    assert (labels.classes, images["label"].tolist()) == ((9, 5), [1, 0, -1])
    assert images["problem"].tolist() == ["", "", "no label"]
    (tmp_path / "in" / "labels.json").write_text(
        '{"classes": [null, "a", "b", "c", "d", "e"]}'
    )
    images, labels = read(tmp_path / "in", input_schema=schema)
    assert images["label"].tolist() == [5, -1, -1]
    assert images["label_name"].tolist() == ["e", "", ""]
    assert images["problem"].tolist() == [
        "",
        "label 9 is no class of labels.json",
        "no label",
    ]
    assert images["record_label"].tolist() == ["rose", "daisy", "rose"]
    ids = ["same", "validation/a.tfrec#1", "validation/a.tfrec#2"]
    assert images["image_id"].tolist() == ids


def test_several_labels_come_as_they_were_written(tmp_path):
    """Lists of 0 and 1 of our own schema, and run-length codes of the preset clouds."""
    fields = [{"name": "image", "source": "image", "type": "bytes", "size": 0}]
    fields += [{"name": "tags", "source": "labels", "type": "int64", "size": 2}]
    schema = {
        "fields": fields,
        "kind": "multi",
        "n_classes": 2,
        "label_columns": ["cat", "dog"],
    }
    labels = {
        "kind": "multi",
        "classes": ["cat", "dog"],
        "label_columns": ["cat", "dog"],
    }
    records = [
        make_example(image=make_picture(9), tags=tags) for tags in ([1, 0], [1, 1], [0])
    ]
    write_shard(tmp_path / "multi" / "a.tfrec", records)
    (tmp_path / "multi" / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "multi" / "labels.json").write_text(json.dumps(labels))
    codes = {"fish": b"1 3", "flower": b"", "gravel": b"", "sugar": b"5 2"}
    size = {"height": 32, "width": 48, "depth": 3}
    write_shard(
        tmp_path / "masks" / "a.tfrec",
        [make_example(image_raw=PICTURES[0], **codes, **size)],
    )

    images, labels = read(tmp_path / "multi")
    assert (labels.kind, labels.label_columns) == ("multi", ("cat", "dog"))
    assert images[["cat", "dog"]].to_numpy().tolist() == [[1, 0], [1, 1], [0, 0]]
    assert images["label_name"].tolist() == ["cat", "cat|dog", ""]
    assert images["problem"].tolist() == ["", "", "no label"]
    images, labels = read(tmp_path / "masks", input_schema="clouds")
    assert labels.kind == "masks"
    assert images.loc[0, list(labels.label_columns)].tolist() == ["1 3", "", "", "5 2"]


def test_a_changed_shard_is_indexed_anew(tmp_path, records):
    """By another process and by this one; and a plan's copy brings the index along."""
    path = write_shard(tmp_path / "in" / "a.tfrec", [make_example(image=PICTURES[0])])
    assert read_image_bytes(f"{path}#0") == PICTURES[0]
    write_shard(path, [make_example(image=p) for p in PICTURES[1:4]])
    os.utime(path, ns=(1, 1))

    assert read_image_bytes(f"{path}#2") == PICTURES[3]
    frame = len(make_example(image=PICTURES[3])) + 16
    assert size_and_time(f"{path}#2") == (frame, 1)
    with pytest.raises(
        FileNotFoundError, match="#3' is not there: the shard has 3 records"
    ):
        read_image_bytes(f"{path}#3")
    (tmp_path / "work" / "plan.json").write_text("{}")
    copy_plan(str(tmp_path / "work"), str(tmp_path / "copy"))
    kept = [file.name for file in (tmp_path / "copy" / "records").iterdir()]
    assert kept == [file.name for file in records.iterdir()] != []


def test_records_of_shards_that_are_gone_or_changed_are_removed(tmp_path, records):
    """One index and one unpacked copy a shard of the input, in its present state, are kept."""

    def save(*names):
        for name in names:
            shard = [
                make_example(image=data, label=k % 2)
                for k, data in enumerate(PICTURES[:6])
            ]
            write_shard(tmp_path / "in" / f"{name}.tfrec", shard, "GZIP")
        images, labels = read(tmp_path / "in")
        explore.save_images(measure(images, labels), labels, str(tmp_path / "work"))
        return sorted(os.listdir(records))

    before = save("a", "b")
    os.utime(tmp_path / "in" / "a.tfrec", ns=(1, 1))
    after = save()
    assert [name.split("-")[0] for name in after] == [
        "a.tfrec",
        "a.tfrec",
        "b.tfrec",
        "b.tfrec",
    ]
    assert set(before) & set(after) == {name for name in before if name[0] == "b"} | {
        name for name in before if name.endswith(".frames")
    }
    (tmp_path / "in" / "a.tfrec").unlink()
    assert save() == [name for name in after if name[0] == "b"]


def test_a_file_may_be_called_like_an_address(tmp_path):
    """So "a.jpg#3" is a file where it is there, and missing where it is not."""
    (tmp_path / "a.jpg#3").write_bytes(b"picture")
    assert read_image_bytes(tmp_path / "a.jpg#3") == b"picture"
    (tmp_path / "a.jpg").write_bytes(b"another")
    assert read_image_bytes(str(tmp_path / "a.jpg#3")) == b"picture"
    for name in ("a.jpg#4", "b.jpg#4", "#4"):
        with pytest.raises(FileNotFoundError):
            read_image_bytes(str(tmp_path / name))


def test_other_processes_read_addresses(tmp_path, monkeypatch):
    """Those of loky, which make an index of their own where none is kept, packed or not."""
    records = [make_example(image=data, label=k % 3) for k, data in enumerate(PICTURES)]
    write_shard(tmp_path / "in" / "a.tfrec", records[:20])
    write_shard(tmp_path / "in" / "b.tfrec", records[20:], "GZIP")
    images, labels = read(tmp_path / "in")
    monkeypatch.setenv(RECORDS_FOLDER, "")
    parallel.use_backend(2, "loky")
    try:
        measured = measure(images, labels)
    finally:
        parallel.use_backend()
    assert (measured["problem"] == "").all()
    assert measured["n_bytes"].tolist() == [len(data) for data in PICTURES]


def test_shards_in_a_bucket_are_those_on_disk(tmp_path):
    """gs:// addresses through TensorFlow's own client: the same table and the same part."""
    records = [make_example(image=data, label=k % 3) for k, data in enumerate(PICTURES)]
    write_shard(tmp_path / "in" / "train" / "a.tfrec", records[:20])
    write_shard(tmp_path / "in" / "train" / "b.tfrec", records[20:], "GZIP")
    damaged = bytearray((tmp_path / "in" / "train" / "a.tfrec").read_bytes())
    damaged[500] ^= 1
    (tmp_path / "in" / "train" / "a.tfrec").write_bytes(damaged)
    run_chain(
        "sample", str(tmp_path / "disk"), INPUT_DIR=str(tmp_path / "in"), **SETTINGS
    )
    code = (
        "from support.chain import run_chain\n"
        f"run_chain('sample', {str(tmp_path / 'cloud')!r}, INPUT_DIR='gs://shards', **{SETTINGS})\n"
    )
    with serve_bucket(tmp_path) as gcs:
        gcs.seed_objects("shards", tmp_path / "in")
        done = run_code(code, tmp_path, timeout=200, env=gcs.env)

    assert done.code == 0, done.said[-3000:]
    disk, bucket = (
        pictures_by_id(tmp_path / kind / "part-1") for kind in ("disk", "cloud")
    )
    assert len(disk) == 39
    assert bucket == disk
    rejects = pd.read_csv(tmp_path / "cloud" / "rejects.csv")
    assert rejects["path"].tolist() == ["gs://shards/train/a.tfrec#0"]
    assert (
        rejects["problem"][0]
        == "'gs://shards/train/a.tfrec' at byte 0: the record is damaged"
    )


LABELLED = {"label_column": "label"}


def test_a_float_or_a_list_of_one_is_a_label(tmp_path):
    """So is one that some of the first records lack: these alone are rejected."""
    records = [make_example(image=PICTURES[k], target=float(k % 2)) for k in range(4)]
    write_shard(tmp_path / "float" / "a.tfrec", records)
    records = [make_example(image=PICTURES[k], labels=[k % 2]) for k in range(4)]
    write_shard(tmp_path / "list" / "a.tfrec", records)
    records = [make_example(image=PICTURES[k], label=k % 2) for k in range(3)]
    write_shard(
        tmp_path / "lacks" / "a.tfrec", [*records, make_example(image=PICTURES[3])]
    )

    empty = example_class().FromString(make_example(image=PICTURES[3]))
    empty.features.feature["label"].int64_list.SetInParent()
    write_shard(tmp_path / "empty" / "a.tfrec", [*records, empty.SerializeToString()])

    for kind, last in {"float": 1, "list": 1, "lacks": -1, "empty": -1}.items():
        images, labels = read(tmp_path / kind, **LABELLED)
        assert (labels.classes, images["label"].tolist()) == ((0, 1), [0, 1, 0, last])
        assert images["problem"].tolist() == [
            "",
            "",
            "",
            "no label" if last < 0 else "",
        ]


def test_a_split_without_a_label_is_an_error_unless_asked_for(tmp_path):
    """It names the features; a list of 0 and 1 can then be chosen; tests need no label."""
    tags = [[1, 0], [0, 1], [1, 1]]
    records = [
        make_example(image=PICTURES[k], tags=tags[k], score=k / 4) for k in range(3)
    ]
    write_shard(tmp_path / "in" / "train.tfrec", records)
    write_shard(tmp_path / "in" / "test.tfrec", [make_example(image=PICTURES[9])])

    there = r"label of the split 'train'.*score \(float\), tags \(list of int\).*INPUT_SCHEMA"
    with pytest.raises(ValueError, match=there):
        read(tmp_path / "in", **LABELLED)
    with pytest.raises(
        ValueError, match=r"no record of the split 'train' has a label in .*'kind'"
    ):
        read(
            tmp_path / "in",
            **LABELLED,
            input_schema={"image": "image", "kind": "label"},
        )
    images, _ = read(
        tmp_path / "in", **LABELLED, input_schema={"image": "image", "score": "label"}
    )
    broken = [f"label {score} is not a whole number" for score in (0.25, 0.5)]
    assert images["problem"].tolist()[1:] == ["", *broken]
    write_shard(tmp_path / "two" / "valid.tfrec", records)
    write_shard(
        tmp_path / "two" / "train.tfrec", [make_example(image=PICTURES[9], label=0)]
    )
    with pytest.raises(
        ValueError, match=r"no record of the split 'validation' has a label in"
    ):
        read(
            tmp_path / "two",
            **LABELLED,
            input_schema={"image": "image", "label": "label"},
        )
    for asked in (
        {"label_column": []},
        {**LABELLED, "input_schema": {"image": "image"}},
    ):
        images, _ = read(tmp_path / "in", **asked)
        assert images[["label", "problem"]].to_numpy().tolist() == [[-1, ""]] * 4
    images, labels = read(
        tmp_path / "in", **LABELLED, input_schema={"image": "image", "tags": "labels"}
    )
    assert (labels.kind, images["label_name"].tolist()[1:]) == (
        "multi",
        ["label_0", "label_1", "label_0|label_1"],
    )


def test_a_record_has_no_extension_to_be_wrong(tmp_path):
    data = make_picture(9, kind="PNG")
    write_shard(tmp_path / "in" / "a.tfrec", [make_example(image=data, label=0)])
    images = measure(*read(tmp_path / "in", **LABELLED))
    assert images[["format", "note"]].to_numpy().tolist() == [["PNG", ""]]


def test_features_called_like_our_columns_get_a_prefix(tmp_path):
    """A part's own tables have columns `file` and `record`, which tell where a record is."""
    record = make_example(
        image=PICTURES[0], label=0, file=b"scan.dcm", record=7, site=b"B"
    )
    write_shard(tmp_path / "in" / "a.tfrec", [record])
    images, _ = read(tmp_path / "in", **LABELLED)
    assert not {"file", "record"}.intersection(images)
    assert images[["record_file", "record_record", "site"]].to_numpy().tolist() == [
        ["scan.dcm", 7, "B"]
    ]
