"""Records by number and by id; batches that devices of JAX share."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.plans import CLASSES, make_images, plan_images, read_plainly
from support.processes import call_python
from support.readers import make_example, make_picture, make_record, write_part

from kaggle_tfr import read
from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.records import find_frames, format_index, list_frames
from kaggle_tfr.schema import Field, RecordSchema
from kaggle_tfr.write.writer import write_parts


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """Return a written part of 32 images in six shards."""
    folder = tmp_path_factory.mktemp("records")
    plan_images(make_images(folder / "in", 32), folder)
    write_parts(str(folder))
    return folder / "part-1"


@pytest.fixture(scope="module")
def shards(part):
    """Return the table of the part's shards."""
    return read.find_shards(part)


def test_every_record_is_that_of_tensorflow(shards):
    """Byte for byte and in the same order; counted from the end as well."""
    examples = read_plainly(shards["file"])
    expected = [(example["image"], example["label"]) for example in examples]

    records = read.Records(shards, decode=False)

    assert list(records) == expected
    assert len(records) == 32
    assert records[np.int64(-1)] == expected[-1]
    assert records[-32] == expected[0]
    with pytest.raises(IndexError):
        records[32]


def test_an_image_is_decoded_as_by_pillow(part):
    """Red first, of its own size, and writable, which PyTorch needs."""
    decoded = read.Records(part)

    image, label = decoded[31]
    data, expected_label = read.Records(part, decode=False)[31]
    assert np.array_equal(image, np.asarray(Image.open(io.BytesIO(data))))
    assert image.dtype == np.uint8
    assert image.flags.writeable
    assert (label, type(label)) == (expected_label, int)
    assert decoded.classes == tuple(CLASSES)


# Reads where only these libraries, which a PyTorch image has, can be imported.
LIGHT = """
import pickle, sys
from importlib.machinery import ModuleSpec
ALLOWED = {"numpy", "pandas", "PIL", "google", "google_crc32c", "dateutil", "six"}
ALLOWED |= {"kaggle_tfr", "pytz", "tzdata", *sys.stdlib_module_names}
class Refuse:
    def find_spec(self, name, path, target=None):
        is_allowed = name.split(".")[0] in ALLOWED or name.startswith("_")
        return None if is_allowed else ModuleSpec(name, self)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        raise ModuleNotFoundError(f"'{module.__name__}' is refused")
sys.meta_path.insert(0, Refuse())
from kaggle_tfr import read
records = read.Records(sys.argv[1], split="train", fold=1)
again = pickle.loads(pickle.dumps(records))
image, label = again[7]
print(len(again), image.shape, label)
"""


def test_a_machine_with_pytorch_alone_reads(part):
    """Neither TensorFlow nor Keras, OpenCV or PyYAML can be imported there."""
    done = call_python("-c", LIGHT, part)

    records = read.Records(part, split="train", fold=1)
    image, label = records[7]
    assert done.stdout == f"{len(records)} {image.shape} {label}\n", done.stderr


def test_split_and_fold_choose_shards_as_choose_fold_does(shards):
    """For each fold; fold 0 if none is named."""
    for choice in ({"fold": 1}, {}):
        tables = read.choose_fold(shards, **choice)
        for split, expected in zip(("train", "validation"), tables, strict=True):
            indexes = read.Records(shards, split=split, **choice).indexes
            assert [index.file for index in indexes] == expected["file"].tolist()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"split": "test"}, "no shard to read. Check the split"),
        ({"split": "train", "fold": 9}, r"FOLD is 9.*\[0, 1, 2\]"),
        ({"fold": 1}, "fold is 1, but split is None"),
    ],
)
def test_a_split_or_fold_that_is_not_there_is_named(shards, choice, message):
    """A ValueError."""
    with pytest.raises(ValueError, match=message):
        read.Records(shards, **choice)


def write_records(folder, records, schema="landmark", name="b.tfrec"):
    """Write a part with one shard of this schema and its index."""
    write_part(folder, {name: (0, records)}, ["x", "y"], schema)
    index = folder / "index" / f"{name}.idx"
    index.parent.mkdir(parents=True)
    index.write_text(format_index(list_frames(folder / name)))
    return folder


IMAGE = Field("picture", "image")
TAGS = Field("tags", "labels", "int64", 2)
X_AND_Y = (Field("x", "X"), IMAGE, Field("y", "Y"))
CODES = (encode_mask(np.eye(32, 48)).encode(), b"")
MASKS = np.uint8(np.stack([np.eye(32, 48), np.zeros((32, 48))], -1))


@pytest.mark.parametrize(
    ("schema", "features", "expected"),
    [
        (RecordSchema((IMAGE, TAGS), "multi"), {"tags": [1, 0]}, np.float32([1, 0])),
        (
            RecordSchema(X_AND_Y, "masks", 2, ("X", "Y")),
            dict(zip("xy", CODES, strict=True)),
            MASKS,
        ),
        (RecordSchema((Field("n", "image_id"), IMAGE)), {"n": b"a.jpg"}, "a.jpg"),
        (RecordSchema((IMAGE,)), {}, -1),
    ],
)
def test_labels_of_every_kind_are_read(tmp_path, schema, features, expected):
    """Several labels, masks of the image's size, and an id where there is no label.

    Masks are not decoded if the image is not.
    """
    record = make_example(picture=make_picture(90), **features)
    part = write_records(tmp_path, [record], schema)

    _, label = read.Records(part)[0]
    _, undecoded = read.Records(part, decode=False)[0]

    np.testing.assert_array_equal(label, expected)
    assert getattr(label, "dtype", None) == getattr(expected, "dtype", None)
    np.testing.assert_array_equal(
        undecoded, CODES if schema.kind == "masks" else expected
    )


@pytest.mark.parametrize(
    ("record", "damage", "message"),
    [
        (b"no example", 0, "the record is not a tf.train.Example"),
        (
            make_example(image=make_picture(7), label=0.5),
            0,
            "its feature 'label' .*int",
        ),
        (make_example(image=make_picture(7)[:400], label=1), 0, "truncated"),
        (make_record(1), 1, "the record is damaged"),
    ],
)
def test_a_damaged_record_is_named(tmp_path, record, damage, message):
    """A ValueError with the shard and the byte; all others are read."""
    records = [make_record(0), record, make_record(2)]
    position = len(records[0]) + 16
    part = write_records(tmp_path, records)
    flip_bit(part / "b.tfrec", position + 15, damage)

    records = read.Records(part)

    assert [records[0][1], records[2][1]] == [0, 2]
    with pytest.raises(ValueError, match=rf"b\.tfrec' at byte {position}: .*{message}"):
        records[1]


def flip_bit(path, position, mask=1):
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


@pytest.mark.parametrize("lines", ["", "0 99\n"])
def test_a_shard_without_its_whole_index_is_named(tmp_path, lines):
    """Before anything is read."""
    part = write_records(tmp_path, [make_record(1)] * 2)
    (part / "index" / "b.tfrec.idx").write_text(lines)

    message = r"b\.tfrec' has no index of its 2 records in index/"
    with pytest.raises(ValueError, match=message):
        read.Records(part)


@pytest.mark.parametrize("name", ["b.tfrec", "test/b.tfrec"])
def test_the_index_finds_records_after_a_damaged_length(tmp_path, name):
    """Also of a shard in a folder of its part, whose index is in index/ of the part."""
    part = write_records(tmp_path, [make_record(1), make_record(2)], name=name)
    flip_bit(part / name, 0)

    assert len(find_frames(f"{part}/{name}", part / name)) == 3


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_record_without_an_id_has_its_place(tmp_path, compression):
    """Also in GZIP; the place finds the image of the record again."""
    files = {"a.tfrec": (0, [make_record(7), make_record(200)])}
    files["b.tfrec"] = (0, [make_record(30)])
    shards = read.find_shards(write_part(tmp_path, files, compression=compression))

    batches = read.read_batches(shards, image_size=16, batch_size=5, ids=True)

    [(_, labels, _, ids)] = batches.as_numpy_iterator()
    places = ids.astype(str).tolist()
    assert places == ["a.tfrec#0", "a.tfrec#1", "b.tfrec#0", "", ""]
    assert labels.tolist() == [7, 200, 30, 0, 0]
    means = [image.mean() for image in read.find_images(shards, places[:3])]
    assert means == pytest.approx(labels[:3], abs=1)
    repeated = pd.concat([shards, shards.assign(file="part-2/b.tfrec")])
    for table, place in ((shards, "b.tfrec#1"), (repeated, "b.tfrec#0")):
        with pytest.raises(ValueError, match=f"no image '{place}' .* of one record"):
            read.find_images(table, [place])


def test_images_are_found_by_the_ids_of_their_part(shards):
    """In the order of the ids; the pixels are those of `Records`."""
    rows = pd.read_csv(f"{shards['folder'][0]}/train.csv", dtype={"image_id": str})
    chosen = rows.iloc[[20, 3, 11]]

    images = read.find_images(shards, chosen["image_id"])

    for image, row in zip(images, chosen.itertuples(), strict=True):
        of_shard = shards[shards["file"].str.endswith(row.file)]
        assert np.array_equal(image, read.Records(of_shard)[row.record][0])
    with pytest.raises(ValueError, match="no image 'lost' in these shards.*file#"):
        read.find_images(shards, ["lost"])


def test_the_sample_submission_of_a_part_is_text(part, shards):
    """A mark at its start is left out, and NA is a name; without a file it is None."""
    assert read.find_submission(shards) is None
    text = "\ufeffimage_id,label\n0007,NA\n"
    (part / "sample_submission.csv").write_text(text)

    table = read.find_submission(shards)

    assert table.to_dict("records") == [{"image_id": "0007", "label": "NA"}]


def test_devices_share_each_batch_in_its_order(shards, eight_devices):
    """Each device has an eighth of every leaf; nothing is lost at the end."""
    batches = read.read_batches(shards, image_size=16, batch_size=8)

    found = list(read.to_devices(batches, eight_devices))

    assert len(found) == 4
    for arrays, expected in zip(found, batches.as_numpy_iterator(), strict=True):
        for leaf, values in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(leaf, values)
            pieces = leaf.addressable_shards
            assert [piece.device for piece in pieces] == eight_devices
