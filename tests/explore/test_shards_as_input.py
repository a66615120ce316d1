"""Shards as the input: of parts, of TensorFlow Datasets and of others."""

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

IMAGES = [save_noise(seed, 64, 48) for seed in range(40)]
SETTINGS = {"SOURCE": "tfrecords", "IMAGE_SIZE": 48, "N_FOLDS": 2, "N_SHARDS": 4}


@pytest.fixture(autouse=True)
def records(tmp_path, monkeypatch):
    """The folder of indexes, as the first call of a notebook sets it."""
    monkeypatch.setenv(RECORDS_FOLDER, str(tmp_path / "work" / "records"))
    return tmp_path / "work" / "records"


def read(folder, **changes):
    settings = explore.InputSettings(source="tfrecords", **changes)
    return explore.read_table(str(folder), settings)


def run(folder, work, **changes):
    """Run the chain over a folder of shards; return its images and shards."""
    images, _, shards = run_chain(
        "sample", str(work), INPUT_DIR=str(folder), **SETTINGS, **changes
    )
    return images, shards


def make_records(images, n_classes=3):
    """Return a record for each image, with labels 0, 1, 2, 0, …"""
    return [
        make_example(image=data, label=k % n_classes) for k, data in enumerate(images)
    ]


def write_plainly(folder):
    """Write GZIP shards with plain TensorFlow: labels 0 to 2, and tests without any."""
    import tensorflow as tf

    folder.mkdir()
    number = 0
    for name, count in {
        "train-0": 12,
        "train-1": 12,
        "train-2": 10,
        "test-3": 6,
    }.items():
        with tf.io.TFRecordWriter(str(folder / f"{name}.tfrecord"), "GZIP") as writer:
            # The test shard begins at 36, which leaves out 34 and 35.
            number = 36 if name == "test-3" else number
            for k in range(number, number + count):
                values = {"jpeg": IMAGES[k % 40], "name": f"{k}.jpg".encode()}
                if name != "test-3":
                    values["target"] = k % 3
                writer.write(make_example(**values))
            number += count
    return folder


def images_by_id(part):
    """Return {id: (image, label)} of a finished part, read by TensorFlow alone."""
    rows = read_plainly(sorted(Path(part).glob("*.tfrec")))
    return {row["image_id"].decode(): (row["image"], row["label"]) for row in rows}


@pytest.mark.parametrize("cut", [0, 3, 20, 900])
def test_every_member_of_a_gzip_shard_is_read(tmp_path, cut):
    """Files may be concatenated, with and without names, or be blocks of bgzip."""
    import tensorflow as tf

    records = [make_example(image=data, label=0) for data in IMAGES[:9]]
    plain = Path(write_shard(tmp_path / "plain", records)).read_bytes()
    members = []
    for name, content in zip(
        ["", "a.tfrec", ""],
        [plain[:5000], plain[5000:10000], plain[10000:]],
        strict=True,
    ):
        member = io.BytesIO()
        with gzip.GzipFile(name, "wb", fileobj=member) as file:
            file.write(content)
        members.append(member.getvalue())
    first, second, block = members
    # A block of bgzip has a field with its length.
    block = block[:3] + b"\x04" + block[4:10] + b"\x06\0BC\x02\0\xff\xff" + block[10:]
    data = first + second + block
    packed = tmp_path / "in" / "a.tfrec"
    packed.parent.mkdir()
    packed.write_bytes(data[: len(data) - cut])

    images, _ = read(tmp_path / "in")

    if not cut:
        found = list(tf.data.TFRecordDataset(str(packed), "GZIP").as_numpy_iterator())
        assert found == records
    good = images[images["problem"] == ""]
    assert [read_image_bytes(path) for path in good["path"]] == IMAGES[: len(good)]
    assert len(good) == (9 if cut < 8 else 8)
    assert (images["problem"] != "").sum() == (cut > 0)


@pytest.mark.parametrize("tail", [b"", b"\0\0", b"more"], ids=["", "zeros", "more"])
def test_every_header_of_gzip_is_skipped(tmp_path, tail):
    """It has a field, a name, a comment and a checksum; zeros fill a block.

    Other bytes after the last member are damage: the "?" is an invalid record.
    """
    plain = gzip.compress(b"abc", mtime=0)
    magic, rest, body = plain[:3], plain[4:10], plain[10:]
    fields = {4: b"\x03\0xyz", 8: b"name\0", 16: b"comment\0", 2: b"\x12\x34", 0: b""}
    heads = [magic + bytes([flag]) + rest + field for flag, field in fields.items()]
    heads.append(magic + b"\x1e" + rest + b"".join(fields.values()))
    members = [head + body for head in heads]
    (tmp_path / "packed").write_bytes(b"".join(members) + tail)

    plain_path = decompress(str(tmp_path / "packed"), str(tmp_path / "plain"))

    damage = b"?" if tail == b"more" else b""
    assert Path(plain_path).read_bytes() == b"abc" * 6 + damage


def test_copies_that_were_forgotten_are_made_again(tmp_path, monkeypatch):
    """A process may have read a GZIP shard before 01 ran over some of the rows only."""
    monkeypatch.setenv(RECORDS_FOLDER, str(tmp_path / "records"))
    shard = write_shard(tmp_path / "plain", [make_example(image=IMAGES[0], label=0)])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tfrec").write_bytes(gzip.compress(Path(shard).read_bytes()))
    images, _ = read(tmp_path / "in")

    forget_records(str(tmp_path / "records"), set())

    assert not list((tmp_path / "records").glob("*.copy"))
    assert [read_image_bytes(path) for path in images["path"]] == [IMAGES[0]]


def test_our_own_part_goes_through_again(tmp_path):
    """Ids, image bytes, labels and classes are the same, in new folds and shards."""
    plan_images(make_images(tmp_path / "images", 24), tmp_path / "first", size=48)
    write_parts(str(tmp_path / "first"))
    part = tmp_path / "first" / "part-1"

    images, shards = run(part, tmp_path / "work", KEEP="all")

    assert (images["problem"] == "").all()
    assert shards["count"].sum() == 24
    assert images_by_id(tmp_path / "work" / "part-1") == images_by_id(part)
    first, again = (
        json.loads((folder / "labels.json").read_text())["classes"]
        for folder in (part, tmp_path / "work")
    )
    assert again == first


def test_files_named_as_by_tfds_go_through(tmp_path):
    """They are called name-train.tfrecord-00000-of-00002, and have image and label."""
    expected = {}
    for number, start in enumerate([0, 20]):
        name = f"d-train.tfrecord-{number:05d}-of-00002"
        images = IMAGES[start : start + 20]
        write_shard(tmp_path / "in" / name, make_records(images))
        expected |= {f"{name}#{k}": (data, k % 3) for k, data in enumerate(images)}

    run(tmp_path / "in", tmp_path / "work")

    assert images_by_id(tmp_path / "work" / "part-1") == expected


def test_the_inferred_schema_is_printed(tmp_path, capsys):
    """It has image, label and id of each split; tests have no label."""
    images, labels = read(write_plainly(tmp_path / "in"))

    assert labels.classes == (0, 1, 2)
    names = [f"{k}.jpg" for k in [*range(36, 42), *range(34)]]
    assert images["image_id"].tolist() == names
    printed = capsys.readouterr().out
    test_schema = "test: image jpeg, image_id name (by 6 records of test-3"
    train_schema = "train: image jpeg, label target, image_id name (by 12 records of"
    assert test_schema in printed
    assert train_schema in printed
    tests = images[images["split"] == "test"]
    columns = tests[["label", "label_name", "problem"]]
    assert columns.to_numpy().tolist() == [[-1, "", ""]] * 6
    for row in images.itertuples():
        k = int(row.image_id.split(".")[0])
        assert read_image_bytes(row.path) == IMAGES[k % 40]
        assert row.split == "test" or row.label == k % 3


def test_plain_gzip_shards_go_through(tmp_path):
    """The part has the same image bytes, labels and counts."""
    folder = write_plainly(tmp_path / "in")
    (folder / "test-3.tfrecord").unlink()

    run(folder, tmp_path / "work")

    written = images_by_id(tmp_path / "work" / "part-1")
    assert written == {f"{k}.jpg": (IMAGES[k], k % 3) for k in range(34)}


def test_ten_flipped_bytes_are_ten_rejected_rows(tmp_path):
    """They are named by file and byte: of images, of checksums and of lengths."""
    records = [
        make_example(image=data, label=k % 3, id=b"%d" % k)
        for k, data in enumerate(IMAGES)
    ]
    path = Path(write_shard(tmp_path / "in" / "a.tfrec", records))
    data = bytearray(path.read_bytes())
    offsets = np.cumsum([0, *(len(record) + 16 for record in records)])
    damaged = range(0, 40, 4)
    for number, k in enumerate(damaged):
        # In the length, its checksum, the record, and the record's checksum.
        places = [1, 9, 500, len(records[k]) + 13]
        data[offsets[k] + places[number % 4]] ^= 64
    path.write_bytes(data)

    images, shards = run(path.parent, tmp_path / "work")

    rejected = images[images["problem"] != ""]
    assert rejected["path"].tolist() == [f"{path}#{k}" for k in damaged]
    for k, problem in zip(damaged, rejected["problem"], strict=True):
        assert problem == f"'{path}' at byte {offsets[k]:,}: the record is damaged"
    assert shards["count"].sum() == 30
    whole = {str(k): (IMAGES[k], k % 3) for k in range(40) if k % 4}
    assert images_by_id(tmp_path / "work" / "part-1") == whole


def test_a_record_damaged_after_01_is_rejected(tmp_path):
    """The forecast and the writer name it by its shard and byte."""
    records = make_records(IMAGES[:30])
    path = Path(write_shard(tmp_path / "in" / "a.tfrec", records))
    images, labels = read(path.parent)
    table = measure(images, labels).assign(fold=0, split="train")
    plan_images(table, tmp_path / "work", size=48, labels=labels)
    offset = sum(len(record) + 16 for record in records[:9])
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[offset + 99] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    shards = write_parts(str(tmp_path / "work"))

    assert (shards["count"].sum(), shards["refused"].sum()) == (29, 1)
    rejects = pd.read_csv(tmp_path / "work" / "part-1" / "rejects.csv")
    assert rejects["path"].tolist() == [f"{path}#9"]
    assert (
        rejects["problem"][0] == f"'{path}' at byte {offset:,}: the record is damaged"
    )
    plan_images(table, tmp_path / "again", size=48, labels=labels)


def test_one_bad_shard_is_a_row_among_good_ones(tmp_path):
    """It may be another file, empty, missing or truncated: plain and in GZIP."""
    records = [make_example(image=data, label=0) for data in IMAGES[:6]]
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

    is_good = images["problem"] == ""
    shards = images["image_id"].str.split(".").str[0]
    problem_of = dict(zip(shards[~is_good], images["problem"][~is_good], strict=True))
    assert len(problem_of) == (~is_good).sum() == 6
    assert problem_of["gone"] == "missing file"
    assert problem_of["empty"] == f"'{tmp_path}/in/empty.tfrec' contains no record"
    for name in ("plain", "packed", "other", "tiny"):
        assert problem_of[name].startswith(f"'{tmp_path}/in/{name}.tfrec' at byte ")
    good = shards[is_good].value_counts()
    assert good.to_dict() == {"whole": 6, "plain": 4, "packed": good["packed"]}
    assert 3 <= good["packed"] <= 4


def test_files_that_are_no_shards_are_an_error(tmp_path):
    """The error names the folder, and PATTERN as a fix."""
    (tmp_path / "zip").mkdir()
    for number in range(2):
        (tmp_path / "zip" / f"{number}.tfrec").write_bytes(b"PK" * 99)

    no_record = r"none of the 2 shards in .*zip has a whole record.*PATTERN"
    with pytest.raises(ValueError, match=no_record):
        read(tmp_path / "zip")
    with pytest.raises(FileNotFoundError, match=r"'\*\.rec' in .*zip. Set PATTERN"):
        read(tmp_path / "zip", pattern="*.rec")


def test_two_images_in_a_record_need_an_input_schema(tmp_path):
    """The error says so; a wrong INPUT_SCHEMA is another error."""
    left = make_picture(10)
    right = make_picture(200)
    pair = make_example(left=left, right=right, label=1, other=b"x")
    write_shard(tmp_path / "in" / "a.tfrec", [pair])

    both = r"a.tfrec' each of left, right looks like the image.*INPUT_SCHEMA"
    with pytest.raises(ValueError, match=both):
        read(tmp_path / "in")
    with pytest.raises(ValueError, match='INPUT_SCHEMA.*Did you mean "petals"'):
        read(tmp_path / "in", input_schema="petal")
    schema = {"right": "image", "label": "label"}
    images, _ = read(tmp_path / "in", input_schema=schema)
    assert read_image_bytes(images["path"][0]) == right
    assert images["other"].tolist() == ["x"]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"label": 1, "text": b"x"}, "none of label, text looks like the image"),
        (
            {"image": make_picture(10), "label": 1, "target": 2},
            "each of label, target looks like the label.*INPUT_SCHEMA",
        ),
    ],
)
def test_an_unclear_image_or_label_is_an_error(tmp_path, features, message):
    write_shard(tmp_path / "in" / "a.tfrec", [make_example(**features)])
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "in")


@pytest.fixture
def species(tmp_path):
    """A folder with a shard whose records have a text, a number and the same id."""
    values = [(b"rose", 5), (b"daisy", 9), (b"rose", -1)]
    records = [
        make_example(image=IMAGES[k], label=text, species=number, image_id=b"same")
        for k, (text, number) in enumerate(values)
    ]
    write_shard(tmp_path / "in" / "validation" / "a.tfrec", records)
    return tmp_path / "in"


SPECIES = {"image": "image", "species": "label", "image_id": "image_id"}


def test_labels_may_be_texts(species):
    """Numbers are another column then; the id of a repeated id is its address."""
    images, labels = read(species)

    assert labels.classes == ("daisy", "rose")
    assert images["label"].tolist() == [1, 0, 1]
    assert images["species"].tolist() == [5, 9, -1]
    assert set(images["split"]) == {"validation"}
    images, _ = read(species, input_schema=SPECIES)
    assert images["record_label"].tolist() == ["rose", "daisy", "rose"]
    ids = ["same", "validation/a.tfrec#1", "validation/a.tfrec#2"]
    assert images["image_id"].tolist() == ids


def test_labels_may_be_numbers_of_a_label_map(species):
    """A label of -1 is a missing one."""
    label_map = {"9": 0, "5": 1}

    images, labels = read(species, input_schema=SPECIES, label_map=label_map)

    assert labels.classes == (9, 5)
    assert images["label"].tolist() == [1, 0, -1]
    assert images["problem"].tolist() == ["", "", "no label"]


def test_labels_may_be_numbers_of_a_labels_json(species):
    """A number without a class is a problem of its record."""
    classes = '{"classes": [null, "a", "b", "c", "d", "e"]}'
    (species / "labels.json").write_text(classes)

    images, _ = read(species, input_schema=SPECIES)

    assert images["label"].tolist() == [5, -1, -1]
    assert images["label_name"].tolist() == ["e", "", ""]
    unknown = "label 9 is not a class of labels.json"
    assert images["problem"].tolist() == ["", unknown, "no label"]


def test_the_labels_json_of_a_further_input_may_leave_labels_out(tmp_path):
    """A label without a class is not a class that the main input lacks."""
    main = [make_example(image=IMAGES[0], label=b"x")]
    further = [make_example(image=IMAGES[1], label=1)]
    write_shard(tmp_path / "in" / "a.tfrec", main)
    write_shard(tmp_path / "more" / "b.tfrec", further)
    (tmp_path / "more" / "labels.json").write_text('{"classes": [null, "x"]}')
    more_inputs = [{"INPUT_DIR": str(tmp_path / "more")}]

    images, labels = read(tmp_path / "in", **LABELLED, more_inputs=more_inputs)

    assert labels.classes == ("x",)
    assert images["label"].tolist() == [0, 0]
    assert images["source"].tolist() == [0, 1]


def test_lists_of_0_and_1_are_several_labels(tmp_path):
    """Their names are in labels.json; other numbers and lengths reject the record."""
    names = ["cat", "dog"]
    schema = {
        "fields": [
            {"name": "image", "source": "image", "type": "bytes", "size": 0},
            {"name": "tags", "source": "labels", "type": "int64", "size": 2},
        ],
        "kind": "multi",
        "n_classes": 2,
        "label_columns": names,
    }
    labels = {"kind": "multi", "classes": names, "label_columns": names}
    image = make_picture(9)
    lists = [[1, 0], [1, 1], [0], [2, 0]]
    records = [make_example(image=image, tags=tags) for tags in lists]
    write_shard(tmp_path / "in" / "a.tfrec", records)
    (tmp_path / "in" / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "in" / "labels.json").write_text(json.dumps(labels))

    images, labels = read(tmp_path / "in")

    assert labels.kind == "multi"
    assert labels.label_columns == ("cat", "dog")
    assert images[names].to_numpy().tolist() == [[1, 0], [1, 1], [0, 0], [0, 0]]
    assert images["label_name"].tolist() == ["cat", "cat|dog", "", ""]
    missing = "no label in column 'dog'"
    wrong = "label column 'cat' contains '2', not 0 or 1"
    assert images["problem"].tolist() == ["", "", missing, wrong]


def test_run_length_codes_are_masks(tmp_path):
    """The preset clouds has a feature for each label."""
    codes = {"fish": b"1 3", "flower": b"", "gravel": b"", "sugar": b"5 2"}
    size = {"height": 32, "width": 48, "depth": 3}
    record = make_example(image_raw=IMAGES[0], **codes, **size)
    write_shard(tmp_path / "in" / "a.tfrec", [record])

    images, labels = read(tmp_path / "in", input_schema="clouds")

    assert labels.kind == "masks"
    assert images.loc[0, list(labels.label_columns)].tolist() == ["1 3", "", "", "5 2"]


def test_a_changed_shard_is_indexed_again(tmp_path, records):
    """The index is copied with the plan."""
    path = write_shard(tmp_path / "in" / "a.tfrec", [make_example(image=IMAGES[0])])
    assert read_image_bytes(f"{path}#0") == IMAGES[0]
    write_shard(path, [make_example(image=p) for p in IMAGES[1:4]])
    os.utime(path, ns=(1, 1))

    assert read_image_bytes(f"{path}#2") == IMAGES[3]
    frame = len(make_example(image=IMAGES[3])) + 16
    assert size_and_time(f"{path}#2") == (frame, 1)
    missing = "#3' is not there: the shard has 3 records"
    with pytest.raises(FileNotFoundError, match=missing):
        read_image_bytes(f"{path}#3")
    (tmp_path / "work" / "plan.json").write_text("{}")
    copy_plan(str(tmp_path / "work"), str(tmp_path / "copy"))
    kept = [file.name for file in (tmp_path / "copy" / "records").iterdir()]
    assert kept == [file.name for file in records.iterdir()] != []


def test_records_of_shards_that_are_gone_or_changed_are_removed(tmp_path, records):
    """One index and one plain copy of each shard are kept, for its present state."""

    def save(*names):
        for name in names:
            shard = make_records(IMAGES[:6], n_classes=2)
            write_shard(tmp_path / "in" / f"{name}.tfrec", shard, "GZIP")
        images, labels = read(tmp_path / "in")
        explore.save_images(measure(images, labels), labels, str(tmp_path / "work"))
        return sorted(os.listdir(records))

    before = save("a", "b")
    os.utime(tmp_path / "in" / "a.tfrec", ns=(1, 1))
    after = save()
    shards = [name.split("-")[0] for name in after]
    assert shards == ["a.tfrec", "a.tfrec", "b.tfrec", "b.tfrec"]
    of_b = {name for name in before if name.startswith("b")}
    indexes = {name for name in before if name.endswith(".frames")}
    assert set(before) & set(after) == of_b | indexes
    (tmp_path / "in" / "a.tfrec").unlink()
    assert save() == [name for name in after if name[0] == "b"]


def test_a_file_may_be_called_like_an_address(tmp_path):
    """The path "a.jpg#3" is that file if it exists, else a missing one."""
    (tmp_path / "a.jpg#3").write_bytes(b"image")
    assert read_image_bytes(tmp_path / "a.jpg#3") == b"image"
    (tmp_path / "a.jpg").write_bytes(b"another")
    assert read_image_bytes(str(tmp_path / "a.jpg#3")) == b"image"
    for name in ("a.jpg#4", "b.jpg#4", "#4"):
        with pytest.raises(FileNotFoundError):
            read_image_bytes(str(tmp_path / name))


def test_other_processes_read_addresses(tmp_path, monkeypatch):
    """Workers of loky make their own index if none is kept, also of GZIP shards."""
    records = make_records(IMAGES)
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
    assert measured["n_bytes"].tolist() == [len(data) for data in IMAGES]


def test_shards_in_a_bucket_are_those_on_disk(tmp_path):
    """The table and the part of gs:// addresses are those of local paths."""
    records = make_records(IMAGES)
    first = Path(write_shard(tmp_path / "in" / "train" / "a.tfrec", records[:20]))
    write_shard(tmp_path / "in" / "train" / "b.tfrec", records[20:], "GZIP")
    damaged = bytearray(first.read_bytes())
    damaged[500] ^= 1
    first.write_bytes(damaged)
    run(tmp_path / "in", tmp_path / "disk")
    changes = SETTINGS | {"INPUT_DIR": "gs://shards"}
    code = (
        "from support.chain import run_chain\n"
        f"run_chain('sample', {str(tmp_path / 'cloud')!r}, **{changes})\n"
    )
    with serve_bucket(tmp_path) as gcs:
        gcs.seed_objects("shards", tmp_path / "in")
        done = run_code(code, tmp_path, timeout=200, env=gcs.env)

    assert done.code == 0, done.said[-3000:]
    local = images_by_id(tmp_path / "disk" / "part-1")
    assert len(local) == 39
    assert images_by_id(tmp_path / "cloud" / "part-1") == local
    rejects = pd.read_csv(tmp_path / "cloud" / "rejects.csv")
    assert rejects["path"].tolist() == ["gs://shards/train/a.tfrec#0"]
    damage = "'gs://shards/train/a.tfrec' at byte 0: the record is damaged"
    assert rejects["problem"].tolist() == [damage]


LABELLED = {"label_column": "label"}


@pytest.mark.parametrize(
    ("make_label", "last_label"),
    [
        (lambda k: {"target": float(k % 2)}, 1),
        (lambda k: {"labels": [k % 2]}, 1),
        (lambda k: {"label": k % 2} if k < 3 else {}, -1),
    ],
    ids=["a float", "a list of one", "missing in one record"],
)
def test_unusual_labels_are_read(tmp_path, make_label, last_label):
    """Only the record that has no label is rejected."""
    records = [make_example(image=IMAGES[k], **make_label(k)) for k in range(4)]
    write_shard(tmp_path / "in" / "a.tfrec", records)

    images, labels = read(tmp_path / "in", **LABELLED)

    assert labels.classes == (0, 1)
    assert images["label"].tolist() == [0, 1, 0, last_label]
    problem = "no label" if last_label < 0 else ""
    assert images["problem"].tolist() == ["", "", "", problem]


def test_an_empty_label_is_a_missing_one(tmp_path):
    empty = example_class().FromString(make_example(image=IMAGES[3]))
    empty.features.feature["label"].int64_list.SetInParent()
    records = [*make_records(IMAGES[:3], n_classes=2), empty.SerializeToString()]
    write_shard(tmp_path / "in" / "a.tfrec", records)

    images, labels = read(tmp_path / "in", **LABELLED)

    assert labels.classes == (0, 1)
    assert images["label"].tolist() == [0, 1, 0, -1]
    assert images["problem"].tolist() == ["", "", "", "no label"]


@pytest.fixture
def tagged(tmp_path):
    """A folder whose training records have tags and a score; tests have no label."""
    tags = [[1, 0], [0, 1], [1, 1]]
    records = [
        make_example(image=IMAGES[k], tags=tags[k], score=k / 4) for k in range(3)
    ]
    write_shard(tmp_path / "in" / "train.tfrec", records)
    write_shard(tmp_path / "in" / "test.tfrec", [make_example(image=IMAGES[9])])
    return tmp_path / "in"


def test_a_split_without_a_label_is_an_error(tagged):
    """The error lists the other features, also if INPUT_SCHEMA names a wrong one."""
    unlabelled = "none of score, tags looks like the label of the split 'train'"
    with pytest.raises(ValueError, match=unlabelled):
        read(tagged, **LABELLED)
    schema = {"image": "image", "kind": "label"}
    wrong = r"no record of the split 'train' has a label in .*'kind'"
    with pytest.raises(ValueError, match=wrong):
        read(tagged, **LABELLED, input_schema=schema)


def test_each_split_needs_a_label(tagged):
    """The label of another split does not count."""
    (tagged / "train.tfrec").rename(tagged / "valid.tfrec")
    write_shard(tagged / "train.tfrec", [make_example(image=IMAGES[9], label=0)])
    schema = {"image": "image", "label": "label"}
    missing = r"no record of the split 'validation' has a label in"
    with pytest.raises(ValueError, match=missing):
        read(tagged, **LABELLED, input_schema=schema)


def test_test_records_need_labels_if_one_of_them_has_a_label(tmp_path):
    """All records of a split have the same features: labels would be lost."""
    records = make_records(IMAGES[:3])
    write_shard(tmp_path / "in" / "train.tfrec", records)
    write_shard(
        tmp_path / "in" / "test.tfrec", [records[0], make_example(image=IMAGES[9])]
    )

    images, _ = read(tmp_path / "in", **LABELLED)

    tests = images[images["split"] == "test"]
    assert tests["label"].tolist() == [0, -1]
    assert tests["problem"].tolist() == ["", "no label"]


def test_input_schema_chooses_the_label(tagged):
    """It may be a list of 0 and 1; a fraction is a problem of its record."""
    tags = {"image": "image", "tags": "labels"}
    images, labels = read(tagged, **LABELLED, input_schema=tags)
    assert labels.kind == "multi"
    names = ["label_0", "label_1", "label_0|label_1"]
    assert images["label_name"].tolist()[1:] == names

    score = {"image": "image", "score": "label"}
    images, _ = read(tagged, **LABELLED, input_schema=score)
    fractions = [f"label {score} is not a whole number" for score in (0.25, 0.5)]
    assert images["problem"].tolist()[1:] == ["", *fractions]


@pytest.mark.parametrize(
    "settings",
    [{"label_column": []}, {**LABELLED, "input_schema": {"image": "image"}}],
    ids=["LABEL_COLUMN", "INPUT_SCHEMA"],
)
def test_images_can_be_read_without_labels(tagged, settings):
    images, _ = read(tagged, **settings)
    assert images[["label", "problem"]].to_numpy().tolist() == [[-1, ""]] * 4


def test_a_record_has_no_extension_to_be_wrong(tmp_path):
    data = make_picture(9, kind="PNG")
    write_shard(tmp_path / "in" / "a.tfrec", [make_example(image=data, label=0)])
    images = measure(*read(tmp_path / "in", **LABELLED))
    assert images[["format", "note"]].to_numpy().tolist() == [["PNG", ""]]


def test_features_called_like_our_columns_get_a_prefix(tmp_path):
    """The tables of a part have columns `file` and `record`: the place of a record."""
    record = make_example(
        image=IMAGES[0], label=0, file=b"scan.dcm", record=7, site=b"B"
    )
    write_shard(tmp_path / "in" / "a.tfrec", [record])
    images, _ = read(tmp_path / "in", **LABELLED)
    assert not {"file", "record"}.intersection(images)
    assert images[["record_file", "record_record", "site"]].to_numpy().tolist() == [
        ["scan.dcm", 7, "B"]
    ]
