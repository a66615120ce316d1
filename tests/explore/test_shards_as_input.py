"""Shards as the input: of parts, of TensorFlow Datasets and of others."""

import gzip
import io
import json
import os
from pathlib import Path

import pandas as pd
import pytest
from support.chain import run_chain
from support.faults import FULL, Disk
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
SETTINGS = {
    "SOURCE": "tfrecords",
    "IMAGE_SIZE": 48,
    "N_FOLDS": 2,
    "N_SHARDS": 4,
}


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
        "sample",
        str(work),
        INPUT_DIR=str(folder),
        **SETTINGS,
        **changes,
    )
    return images, shards


def make_records(images, n_classes=3):
    """Return a record for each image, with labels 0, 1, 2, 0, …"""
    records = []
    for k, data in enumerate(images):
        records.append(make_example(image=data, label=k % n_classes))
    return records


def write_input(tmp_path, records, name="a.tfrec", compression=""):
    """Write a shard of the input folder; return its path."""
    path = tmp_path / "in" / name
    write_shard(path, records, compression)
    return path


def write_input_file(tmp_path, name, content):
    """Write another file of the input folder."""
    path = tmp_path / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def read_all(images):
    """Return the bytes of the images of a table."""
    return [read_image_bytes(path) for path in images["path"]]


def write_plainly(folder):
    """Write GZIP shards with plain TensorFlow: labels 0 to 2, and tests without any."""
    import tensorflow as tf

    folder.mkdir()
    numbers_of_shard = {
        "train-0": range(12),
        "train-1": range(12, 24),
        "train-2": range(24, 34),
        "test-3": range(36, 42),
    }
    for name, numbers in numbers_of_shard.items():
        path = folder / f"{name}.tfrecord"
        with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
            for k in numbers:
                label = {} if name == "test-3" else {"target": k % 3}
                record = make_example(
                    jpeg=IMAGES[k % 40],
                    name=f"{k}.jpg".encode(),
                    **label,
                )
                writer.write(record)
    return folder


def images_by_id(part):
    """Return {id: (image, label)} of a finished part, read by TensorFlow alone."""
    images = {}
    for row in read_plainly(sorted(Path(part).glob("*.tfrec"))):
        image_id = row["image_id"].decode()
        images[image_id] = (row["image"], row["label"])
    return images


@pytest.mark.parametrize("cut", [0, 3, 20, 900])
def test_every_member_of_a_gzip_shard_is_read(tmp_path, cut):
    """Files may be concatenated, with and without names, or be blocks of bgzip."""
    import tensorflow as tf

    records = make_records(IMAGES[:9])
    plain = Path(write_shard(tmp_path / "plain", records)).read_bytes()
    packed = tmp_path / "in" / "a.tfrec"
    packed.parent.mkdir()
    data = compress_in_members(plain)
    packed.write_bytes(data[: len(data) - cut])

    images, _ = read(tmp_path / "in")

    if cut == 0:
        by_tensorflow = tf.data.TFRecordDataset(str(packed), "GZIP")
        assert list(by_tensorflow.as_numpy_iterator()) == records
    is_good = images["problem"] == ""
    n_good = 9 if cut < 8 else 8
    n_bad = 1 if cut else 0
    assert read_all(images[is_good]) == IMAGES[:n_good]
    assert len(images) == n_good + n_bad


def compress_in_members(plain):
    """Return three members of GZIP: without a name, with a name, and of bgzip."""
    first = pack(plain[:5000])
    second = pack(plain[5000:10000], "a.tfrec")
    third = pack(plain[10000:])
    # A block of bgzip has a field with its length.
    flags = b"\x04" + third[4:10]
    block = third[:3] + flags + b"\x06\0BC\x02\0\xff\xff" + third[10:]
    return first + second + block


def pack(content, name=""):
    member = io.BytesIO()
    with gzip.GzipFile(name, "wb", fileobj=member) as file:
        file.write(content)
    return member.getvalue()


@pytest.mark.parametrize(
    "tail",
    [b"", b"\0\0", b"more"],
    ids=["", "zeros", "more"],
)
def test_every_header_of_gzip_is_skipped(tmp_path, tail):
    """It has a field, a name, a comment and a checksum; zeros fill a block.

    Other bytes after the last member are damage: the "?" is an invalid record.
    """
    plain = gzip.compress(b"abc", mtime=0)
    magic = plain[:3]
    time_and_system = plain[4:10]
    body = plain[10:]
    fields = {
        4: b"\x03\0xyz",
        8: b"name\0",
        16: b"comment\0",
        2: b"\x12\x34",
        0: b"",
    }
    fields[4 + 8 + 16 + 2] = b"".join(fields.values())
    packed = b""
    for flags, field in fields.items():
        packed += magic + bytes([flags]) + time_and_system + field + body
    path = tmp_path / "packed"
    path.write_bytes(packed + tail)

    plain_path = decompress(str(path), str(tmp_path / "plain"))

    damage = b"?" if tail == b"more" else b""
    assert Path(plain_path).read_bytes() == b"abc" * 6 + damage


def test_copies_that_were_forgotten_are_made_again(tmp_path, monkeypatch):
    """A process may have read a GZIP shard before 01 ran over some of the rows only."""
    monkeypatch.setenv(RECORDS_FOLDER, str(tmp_path / "records"))
    write_input(tmp_path, make_records(IMAGES[:1]), compression="GZIP")
    images, _ = read(tmp_path / "in")

    forget_records(str(tmp_path / "records"), set())

    assert not list((tmp_path / "records").glob("*.copy"))
    assert read_all(images) == IMAGES[:1]


def test_our_own_part_goes_through_again(tmp_path):
    """Ids, image bytes, labels and classes are the same, in new folds and shards."""
    first_work = tmp_path / "first"
    plan_images(make_images(tmp_path / "images", 24), first_work, size=48)
    write_parts(str(first_work))
    part = first_work / "part-1"

    images, shards = run(part, tmp_path / "work", KEEP="all")

    assert (images["problem"] == "").all()
    assert shards["count"].sum() == 24
    assert images_by_id(tmp_path / "work" / "part-1") == images_by_id(part)
    first_labels = json.loads((part / "labels.json").read_text())
    labels = json.loads((tmp_path / "work" / "labels.json").read_text())
    assert labels["classes"] == first_labels["classes"]


def test_files_named_as_by_tfds_go_through(tmp_path):
    """They are called name-train.tfrecord-00000-of-00002, and have image and label."""
    expected = {}
    for number, start in enumerate([0, 20]):
        name = f"d-train.tfrecord-{number:05d}-of-00002"
        images = IMAGES[start : start + 20]
        write_input(tmp_path, make_records(images), name)
        for k, data in enumerate(images):
            expected[f"{name}#{k}"] = (data, k % 3)

    run(tmp_path / "in", tmp_path / "work")

    assert images_by_id(tmp_path / "work" / "part-1") == expected


def test_the_inferred_schema_is_printed(tmp_path, capsys):
    """It has image, label and id of each split; tests have no label."""
    images, labels = read(write_plainly(tmp_path / "in"))

    assert labels.classes == (0, 1, 2)
    numbers = [*range(36, 42), *range(34)]
    names = [f"{k}.jpg" for k in numbers]
    assert list(images["image_id"]) == names
    printed = capsys.readouterr().out
    test_schema = "test: image jpeg, image_id name (by 6 records of test-3"
    train_schema = "train: image jpeg, label target, image_id name (by 12 records of"
    assert test_schema in printed
    assert train_schema in printed
    assert read_all(images) == [IMAGES[k % 40] for k in numbers]
    tests = images.head(6)
    training = images.tail(34)
    assert set(tests["split"]) == {"test"}
    assert set(tests["label"]) == {-1}
    assert set(tests["label_name"]) == {""}
    assert set(tests["problem"]) == {""}
    assert set(training["split"]) == {"train"}
    assert list(training["label"]) == [k % 3 for k in range(34)]


def test_plain_gzip_shards_go_through(tmp_path):
    """The part has the same image bytes, labels and counts."""
    folder = write_plainly(tmp_path / "in")
    (folder / "test-3.tfrecord").unlink()

    run(folder, tmp_path / "work")

    written = images_by_id(tmp_path / "work" / "part-1")
    assert written == {f"{k}.jpg": (IMAGES[k], k % 3) for k in range(34)}


def test_ten_flipped_bytes_are_ten_rejected_rows(tmp_path):
    """They are named by file and byte: of images, of checksums and of lengths."""
    records = []
    offsets = [0]
    for k, data in enumerate(IMAGES):
        record = make_example(image=data, label=k % 3, id=b"%d" % k)
        records.append(record)
        offsets.append(offsets[-1] + len(record) + 16)
    path = write_input(tmp_path, records)
    shard = bytearray(path.read_bytes())
    damaged = range(0, 40, 4)
    for number, k in enumerate(damaged):
        # In the length, its checksum, the record, and the record's checksum.
        places = [1, 9, 500, len(records[k]) + 13]
        shard[offsets[k] + places[number % 4]] ^= 64
    path.write_bytes(shard)

    images, shards = run(path.parent, tmp_path / "work")

    rejected = images[images["problem"] != ""]
    problems = dict(zip(rejected["path"], rejected["problem"], strict=True))
    assert list(problems) == [f"{path}#{k}" for k in damaged]
    for k in damaged:
        message = f"'{path}' at byte {offsets[k]:,}: the record is damaged"
        assert problems[f"{path}#{k}"] == message
    assert shards["count"].sum() == 30
    written = images_by_id(tmp_path / "work" / "part-1")
    assert len(written) == 30
    for k in set(range(40)) - set(damaged):
        assert written[str(k)] == (IMAGES[k], k % 3)


def test_a_record_damaged_after_01_is_rejected(tmp_path):
    """The forecast and the writer name it by its shard and byte."""
    records = make_records(IMAGES[:30])
    path = write_input(tmp_path, records)
    images, labels = read(path.parent)
    table = measure(images, labels)
    table["fold"] = 0
    table["split"] = "train"
    plan_images(table, tmp_path / "work", size=48, labels=labels)
    offset = sum(len(record) + 16 for record in records[:9])
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[offset + 99] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    shards = write_parts(str(tmp_path / "work"))

    assert shards["count"].sum() == 29
    assert shards["refused"].sum() == 1
    rejects = pd.read_csv(tmp_path / "work" / "part-1" / "rejects.csv")
    assert list(rejects["path"]) == [f"{path}#9"]
    assert (
        rejects["problem"][0] == f"'{path}' at byte {offset:,}: the record is damaged"
    )
    plan_images(table, tmp_path / "again", size=48, labels=labels)


def test_one_bad_shard_is_a_row_among_good_ones(tmp_path):
    """It may be another file, empty, missing or truncated: plain and in GZIP."""
    records = make_records(IMAGES[:6])
    folder = tmp_path / "in"
    plain = write_input(tmp_path, records, "plain.tfrec")
    packed = write_input(tmp_path, records, "packed.tfrec", "GZIP")
    for path in (plain, packed):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) * 3 // 4])
    write_input(tmp_path, records, "whole.tfrec")
    (folder / "empty.tfrec").touch()
    (folder / "other.tfrec").write_bytes(b"PK\x03\x04 is a zip" * 99)
    (folder / "tiny.tfrec").write_bytes(b"\0")
    (folder / "shards.csv").write_text(
        "file,split\ngone.tfrec,train\nwhole.tfrec,train\n"
    )

    images, _ = read(folder)

    images["shard"] = images["image_id"].str.replace(r"\..*", "", regex=True)
    is_good = images["problem"] == ""
    problems = images[~is_good].set_index("shard")["problem"]
    assert len(problems) == 6
    assert problems["gone"] == "missing file"
    assert problems["empty"] == f"'{folder}/empty.tfrec' contains no record"
    for name in ("plain", "packed", "other", "tiny"):
        assert problems[name].startswith(f"'{folder}/{name}.tfrec' at byte ")
    counts = images["shard"][is_good].value_counts().to_dict()
    assert 3 <= counts.pop("packed") <= 4
    assert counts == {"whole": 6, "plain": 4}


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
    write_input(tmp_path, [pair])

    both = r"a.tfrec' each of left, right looks like the image.*INPUT_SCHEMA"
    with pytest.raises(ValueError, match=both):
        read(tmp_path / "in")
    with pytest.raises(ValueError, match="INPUT_SCHEMA.*There are .*petals"):
        read(tmp_path / "in", input_schema="petal")
    schema = {"right": "image", "label": "label"}
    images, _ = read(tmp_path / "in", input_schema=schema)
    assert read_all(images) == [right]
    assert list(images["other"]) == ["x"]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"label": 1, "text": b"x"}, "none of label, text looks like the image"),
        (
            {"image": IMAGES[0], "label": 1, "target": 2},
            "each of label, target looks like the label.*INPUT_SCHEMA",
        ),
    ],
)
def test_an_unclear_image_or_label_is_an_error(tmp_path, features, message):
    write_input(tmp_path, [make_example(**features)])
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "in", label_column="label")


def test_two_labels_are_none_if_none_is_requested(tmp_path):
    """As the error says: LABEL_COLUMN: [] reads the images without labels."""
    for split in ("train", "test"):
        record = make_example(image=IMAGES[0], label=1, target=2)
        write_shard(tmp_path / f"in/{split}.tfrec", [record])
    images, _ = read(tmp_path / "in", label_column=[])
    assert images["label"].tolist() == [-1, -1]


@pytest.fixture
def species(tmp_path):
    """A folder with a shard whose records have a text, a number and the same id."""
    records = []
    for text, number in ((b"rose", 5), (b"daisy", 9), (b"rose", -1)):
        record = make_example(
            image=IMAGES[0],
            label=text,
            species=number,
            image_id=b"same",
        )
        records.append(record)
    write_input(tmp_path, records, "validation/a.tfrec")
    return tmp_path / "in"


SPECIES = {"image": "image", "species": "label", "image_id": "image_id"}


def test_labels_may_be_texts(species):
    """Numbers are another column then; the id of a repeated id is its address."""
    images, labels = read(species)

    assert labels.classes == ("daisy", "rose")
    assert list(images["label"]) == [1, 0, 1]
    assert list(images["species"]) == [5, 9, -1]
    assert set(images["split"]) == {"validation"}
    images, _ = read(species, input_schema=SPECIES)
    assert list(images["record_label"]) == ["rose", "daisy", "rose"]
    ids = ["same", "validation/a.tfrec#1", "validation/a.tfrec#2"]
    assert list(images["image_id"]) == ids


def test_labels_may_be_numbers_of_a_label_map(species):
    """A label of -1 is a missing one."""
    label_map = {"9": 0, "5": 1}

    images, labels = read(species, input_schema=SPECIES, label_map=label_map)

    assert labels.classes == (9, 5)
    assert list(images["label"]) == [1, 0, -1]
    assert list(images["problem"]) == ["", "", "no label"]


def test_labels_may_be_numbers_of_a_labels_json(species):
    """A number without a class is a problem of its record."""
    classes = '{"classes": [null, "a", "b", "c", "d", "e"]}'
    (species / "labels.json").write_text(classes)

    images, _ = read(species, input_schema=SPECIES)

    assert list(images["label"]) == [5, -1, -1]
    assert list(images["label_name"]) == ["e", "", ""]
    unknown = "label 9 is not a class of labels.json"
    assert list(images["problem"]) == ["", unknown, "no label"]


def test_the_labels_json_of_a_further_input_may_leave_labels_out(tmp_path):
    """A label without a class is not a class that the main input lacks."""
    more = tmp_path / "more"
    main_record = make_example(image=IMAGES[0], label=b"x")
    further_record = make_example(image=IMAGES[1], label=1)
    write_input(tmp_path, [main_record])
    write_shard(more / "b.tfrec", [further_record])
    (more / "labels.json").write_text('{"classes": [null, "x"]}')
    more_inputs = [{"INPUT_DIR": str(more)}]

    images, labels = read(tmp_path / "in", **LABELLED, more_inputs=more_inputs)

    assert labels.classes == ("x",)
    assert list(images["label"]) == [0, 0]
    assert list(images["source"]) == [0, 1]


def test_lists_of_0_and_1_are_several_labels(tmp_path):
    """Their names are in labels.json; other numbers and lengths reject the record."""
    names = ["cat", "dog"]
    image_field = {
        "name": "image",
        "source": "image",
        "type": "bytes",
        "size": 0,
    }
    tags_field = {
        "name": "tags",
        "source": "labels",
        "type": "int64",
        "size": 2,
    }
    schema = {
        "fields": [image_field, tags_field],
        "kind": "multi",
        "n_classes": 2,
        "label_columns": names,
    }
    labels = {
        "kind": "multi",
        "classes": names,
        "label_columns": names,
    }
    write_input_file(tmp_path, "schema.json", schema)
    write_input_file(tmp_path, "labels.json", labels)
    records = []
    for tags in ([1, 0], [1, 1], [0], [2, 0]):
        records.append(make_example(image=IMAGES[0], tags=tags))
    write_input(tmp_path, records)

    images, labels = read(tmp_path / "in")

    assert labels.kind == "multi"
    assert labels.label_columns == ("cat", "dog")
    assert list(images["cat"]) == [1, 1, 0, 0]
    assert list(images["dog"]) == [0, 1, 0, 0]
    assert list(images["label_name"]) == ["cat", "cat|dog", "", ""]
    missing = "no label in column 'dog'"
    wrong = "label column 'cat' contains '2', not 0 or 1"
    assert list(images["problem"]) == ["", "", missing, wrong]


def test_run_length_codes_are_masks(tmp_path):
    """The preset clouds has a feature for each label."""
    record = make_example(
        image_raw=IMAGES[0],
        height=32,
        width=48,
        depth=3,
        fish=b"1 3",
        flower=b"",
        gravel=b"",
        sugar=b"5 2",
    )
    write_input(tmp_path, [record])

    images, labels = read(tmp_path / "in", input_schema="clouds")

    assert labels.kind == "masks"
    codes = images[list(labels.label_columns)]
    assert list(codes.loc[0]) == ["1 3", "", "", "5 2"]


def test_a_changed_shard_is_indexed_again(tmp_path, records):
    """The index is copied with the plan."""
    path = write_input(tmp_path, make_records(IMAGES[:1]))
    assert read_image_bytes(f"{path}#0") == IMAGES[0]
    new_records = make_records(IMAGES[1:4])
    write_input(tmp_path, new_records)
    os.utime(path, ns=(1, 1))

    assert read_image_bytes(f"{path}#2") == IMAGES[3]
    n_bytes = len(new_records[2]) + 16
    assert size_and_time(f"{path}#2") == (n_bytes, 1)
    missing = "#3' is not there: the shard has 3 records"
    with pytest.raises(FileNotFoundError, match=missing):
        read_image_bytes(f"{path}#3")
    (tmp_path / "work" / "plan.json").write_text("{}")
    copy_plan(str(tmp_path / "work"), str(tmp_path / "copy"))
    copied = os.listdir(tmp_path / "copy" / "records")
    assert copied
    assert sorted(copied) == sorted(os.listdir(records))


def test_records_of_shards_that_are_gone_or_changed_are_removed(tmp_path, records):
    """One index and one plain copy of each shard are kept, for its present state."""
    write_packed_input(tmp_path, "a.tfrec")
    write_packed_input(tmp_path, "b.tfrec")
    before = save_images(tmp_path)
    os.utime(tmp_path / "in" / "a.tfrec", ns=(1, 1))

    after = save_images(tmp_path)

    shards = sorted(name.partition("-")[0] for name in after)
    assert shards == ["a.tfrec", "a.tfrec", "b.tfrec", "b.tfrec"]
    of_b = {name for name in before if name.startswith("b.tfrec-")}
    indexes = {name for name in before if name.endswith(".frames")}
    assert before & after == of_b | indexes
    (tmp_path / "in" / "a.tfrec").unlink()
    assert save_images(tmp_path) == of_b
    assert set(os.listdir(records)) == of_b


def write_packed_input(tmp_path, name):
    shard = make_records(IMAGES[:6], n_classes=2)
    write_input(tmp_path, shard, name, "GZIP")


def save_images(tmp_path):
    """Save the table of the input; return the names of its indexes and copies."""
    work = tmp_path / "work"
    images, labels = read(tmp_path / "in")
    table = measure(images, labels)
    explore.save_images(table, labels, str(work))
    return set(os.listdir(work / "records"))


def test_a_full_work_folder_is_not_a_problem_of_a_shard(tmp_path, records):
    """Its index cannot be written: 01 stops, and rejects nothing."""
    write_input(tmp_path, make_records(IMAGES[:3]))
    records.mkdir(parents=True)
    with Disk(records, at=1, fault=FULL), pytest.raises(OSError, match="No space left"):
        read(tmp_path / "in")


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
    write_input(tmp_path, records[:20])
    write_input(tmp_path, records[20:], "b.tfrec", "GZIP")
    images, labels = read(tmp_path / "in")
    monkeypatch.setenv(RECORDS_FOLDER, "")
    parallel.use_backend(2, "loky")
    try:
        measured = measure(images, labels)
    finally:
        parallel.use_backend()
    assert (measured["problem"] == "").all()
    assert list(measured["n_bytes"]) == [len(data) for data in IMAGES]


def test_shards_in_a_bucket_are_those_on_disk(tmp_path):
    """The table and the part of gs:// addresses are those of local paths."""
    records = make_records(IMAGES)
    first = write_input(tmp_path, records[:20], "train/a.tfrec")
    write_input(tmp_path, records[20:], "train/b.tfrec", "GZIP")
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

    assert done.code == 0, done.output[-3000:]
    local = images_by_id(tmp_path / "disk" / "part-1")
    assert len(local) == 39
    assert images_by_id(tmp_path / "cloud" / "part-1") == local
    rejects = pd.read_csv(tmp_path / "cloud" / "rejects.csv")
    assert list(rejects["path"]) == ["gs://shards/train/a.tfrec#0"]
    damage = "'gs://shards/train/a.tfrec' at byte 0: the record is damaged"
    assert list(rejects["problem"]) == [damage]


LABELLED = {"label_column": "label"}
UNLABELLED = make_example(image=IMAGES[9])


@pytest.mark.parametrize(
    ("zero", "one", "last", "last_label"),
    [
        ({"target": 0.0}, {"target": 1.0}, {"target": 1.0}, 1),
        ({"labels": [0]}, {"labels": [1]}, {"labels": [1]}, 1),
        ({"label": 0}, {"label": 1}, {}, -1),
    ],
    ids=["a float", "a list of one", "missing in one record"],
)
def test_unusual_labels_are_read(tmp_path, zero, one, last, last_label):
    """Only the record that has no label is rejected."""
    records = []
    for label in (zero, one, zero, last):
        records.append(make_example(image=IMAGES[0], **label))
    write_input(tmp_path, records)

    images, labels = read(tmp_path / "in", **LABELLED)

    assert labels.classes == (0, 1)
    assert list(images["label"]) == [0, 1, 0, last_label]
    problem = "no label" if last_label < 0 else ""
    assert list(images["problem"]) == ["", "", "", problem]


def test_an_empty_label_is_a_missing_one(tmp_path):
    empty = example_class().FromString(UNLABELLED)
    empty.features.feature["label"].int64_list.SetInParent()
    records = make_records(IMAGES[:3], n_classes=2)
    records.append(empty.SerializeToString())
    write_input(tmp_path, records)

    images, labels = read(tmp_path / "in", **LABELLED)

    assert labels.classes == (0, 1)
    assert list(images["label"]) == [0, 1, 0, -1]
    assert list(images["problem"]) == ["", "", "", "no label"]


@pytest.fixture
def tagged(tmp_path):
    """A folder whose training records have tags and a score; tests have no label."""
    records = []
    for tags, score in (([1, 0], 0.0), ([0, 1], 0.25), ([1, 1], 0.5)):
        record = make_example(
            image=IMAGES[0],
            tags=tags,
            score=score,
        )
        records.append(record)
    write_input(tmp_path, records, "train.tfrec")
    write_input(tmp_path, [UNLABELLED], "test.tfrec")
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
    write_shard(tagged / "train.tfrec", make_records(IMAGES[:1]))
    schema = {"image": "image", "label": "label"}
    missing = r"no record of the split 'validation' has a label in"
    with pytest.raises(ValueError, match=missing):
        read(tagged, **LABELLED, input_schema=schema)


def test_test_records_need_labels_if_one_of_them_has_a_label(tmp_path):
    """All records of a split have the same features: labels would be lost."""
    records = make_records(IMAGES[:3])
    write_input(tmp_path, records, "train.tfrec")
    write_input(tmp_path, [records[0], UNLABELLED], "test.tfrec")

    images, _ = read(tmp_path / "in", **LABELLED)

    tests = images[images["split"] == "test"]
    assert list(tests["label"]) == [0, -1]
    assert list(tests["problem"]) == ["", "no label"]


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
    assert len(images) == 4
    assert set(images["label"]) == {-1}
    assert set(images["problem"]) == {""}


def test_a_record_has_no_extension_to_be_wrong(tmp_path):
    data = make_picture(9, kind="PNG")
    write_input(tmp_path, make_records([data]))
    images, labels = read(tmp_path / "in", **LABELLED)
    table = measure(images, labels)
    assert list(table["format"]) == ["PNG"]
    assert list(table["note"]) == [""]


def test_features_called_like_our_columns_get_a_prefix(tmp_path):
    """The tables of a part have columns `file` and `record`: the place of a record."""
    record = make_example(
        image=IMAGES[0],
        label=0,
        file=b"scan.dcm",
        record=7,
        site=b"B",
    )
    write_input(tmp_path, [record])

    images, _ = read(tmp_path / "in", **LABELLED)

    assert not {"file", "record"}.intersection(images)
    row = images.loc[0]
    assert row["record_file"] == "scan.dcm"
    assert row["record_record"] == 7
    assert row["site"] == "B"
