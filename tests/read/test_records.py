"""Records by number and by address; batches that devices of JAX share."""

import io
import json
import os
import pickle
import zlib

import numpy as np
import pytest
from PIL import Image
from support.plans import CLASSES, make_images, plan_images, read_plainly
from support.processes import call_python
from support.readers import (
    make_example,
    make_picture,
    make_record,
    write_part,
    write_shard,
)

from kaggle_tfr import read
from kaggle_tfr import records as records_module
from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.schema import Field, RecordSchema
from kaggle_tfr.write.writer import write_parts

# Prints the checksums of grain's next three batches, from a state on.
GRAIN = """
import json, pickle, sys, zlib
import grain
with open(sys.argv[1], "rb") as file:
    source = grain.MapDataset.source(pickle.load(file))
data = source.shuffle(seed=5).repeat().map(lambda example: zlib.crc32(example[0]))
batches = iter(data.to_iter_dataset().batch(3))
batches.set_state(json.loads(sys.argv[2]))
print(json.dumps([next(batches).tolist() for _ in range(3)]))
"""


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """Return a written part of 32 images in six shards."""
    folder = tmp_path_factory.mktemp("records")
    plan_images(make_images(folder / "in", 32), folder)
    write_parts(str(folder))
    return folder / "part-1"


@pytest.fixture(scope="module")
def records(part):
    """Return the undecoded records of all shards."""
    return read.Records(part, decode=False)


def test_every_record_is_that_of_tensorflow(part, records):
    """Byte for byte and in the same order; counted from the end as well."""
    examples = read_plainly(read.find_shards(part)["file"])
    expected = [(example["image"], example["label"]) for example in examples]

    assert list(records) == expected
    assert len(records) == 32
    assert records[np.int64(-1)] == expected[-1]
    assert records[-32] == expected[0]
    for number in (32, -33):
        with pytest.raises(IndexError):
            records[number]


def test_an_image_is_decoded_as_by_pillow(part, records):
    """Red first, of its own size, and writable, which PyTorch needs."""
    decoded = read.Records(part)

    for number in (0, 31):
        image, label = decoded[number]
        data, expected_label = records[number]
        expected = np.asarray(Image.open(io.BytesIO(data)))
        assert np.array_equal(image, expected)
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


def test_split_and_fold_choose_shards_as_choose_fold_does(part):
    """For each fold; fold 0 if none is named."""
    shards = read.find_shards(part)

    for fold in (0, 1, 2):
        chosen = [
            read.Records(part, split=split, fold=fold)
            for split in ("train", "validation")
        ]
        for records, expected in zip(
            chosen, read.choose_fold(shards, fold), strict=True
        ):
            files = [index.file for index in records.indexes]
            assert files == expected["file"].tolist()

    default = read.Records(part, split="validation")
    assert {index.file for index in default.indexes} == {
        *shards["file"][shards["fold"] == 0]
    }


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"split": "val"}, "split is 'val'.*train, validation, test"),
        ({"split": "test"}, r"no shards of the split 'test', only .* \['train'\]"),
        ({"split": "train", "fold": 9}, r"Fold 9 cannot be .* folds \[0, 1, 2\]"),
        ({"fold": 1}, "fold is 1, but there is no split. Set split to 'train'"),
    ],
)
def test_a_split_or_fold_that_is_not_there_is_named(part, choice, message):
    """With those that are there."""
    with pytest.raises(ValueError, match=message):
        read.Records(part, **choice)


def write_records(folder, schema, records):
    """Write a part with one shard of this schema and its index."""
    write_part(folder, {"b.tfrec": (0, records)}, classes=["x", "y"])
    write_index(folder, [len(record) + 16 for record in records])
    (folder / "schema.json").write_text(schema.to_json())
    return folder


IMAGE = Field("picture", "image")
CODES = encode_mask(np.eye(32, 48)), ""
MASKS = np.stack([np.eye(32, 48), np.zeros((32, 48))], -1)


@pytest.mark.parametrize(
    ("schema", "features", "expected", "undecoded"),
    [
        (
            RecordSchema((IMAGE, Field("tags", "labels", "int64", 3)), "multi"),
            {"tags": [1, 0, 1]},
            np.float32([1, 0, 1]),
            np.float32([1, 0, 1]),
        ),
        (
            RecordSchema(
                (Field("x", "X"), IMAGE, Field("y", "Y")), "masks", 2, ("X", "Y")
            ),
            {"x": CODES[0].encode(), "y": b""},
            MASKS.astype(np.uint8),
            (CODES[0].encode(), b""),
        ),
        (
            RecordSchema((Field("name", "image_id"), IMAGE)),
            {"name": "ö.jpg".encode()},
            "ö.jpg",
            "ö.jpg",
        ),
        (RecordSchema((IMAGE,)), {}, -1, -1),
    ],
    ids=["multi", "masks", "test", "image alone"],
)
def test_labels_of_every_kind_are_read(tmp_path, schema, features, expected, undecoded):
    """Several labels, masks of the image's size, and an id where there is no label."""
    data = make_picture(90)
    record = make_example(picture=data, **features)
    part = write_records(tmp_path, schema, [record])

    image, label = read.Records(part)[0]
    file, label_of_file = read.Records(part, decode=False)[0]

    assert (image.shape, file) == ((32, 48, 3), data)
    np.testing.assert_array_equal(label, expected)
    np.testing.assert_array_equal(label_of_file, undecoded)
    assert getattr(label, "dtype", None) == getattr(expected, "dtype", None)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"no example", "the record is not a tf.train.Example"),
        (make_example(image=make_picture(7)), "its feature 'label' has no values"),
        (
            make_example(image=make_picture(7), label=[1, 2]),
            "'label' has 2 values of type int64, the schema wants 1 of type int64",
        ),
        (make_example(image=make_picture(7), label=0.5), "of type float, .* int64"),
        (make_example(image=make_picture(7)[:400], label=1), "decoded: truncated"),
        (make_example(image=b"x", label=1), "cannot be decoded: not an image"),
    ],
    ids=["text", "no label", "two labels", "float", "half an image", "no image"],
)
def test_a_record_of_something_else_is_named(tmp_path, record, message):
    """A ValueError with the shard and the byte, and no wrong data."""
    schema = RecordSchema((Field("image", "image"), Field("label", "label", "int64")))
    first_record = make_record(1)
    records = read.Records(write_records(tmp_path, schema, [first_record, record]))

    position = len(first_record) + 16
    with pytest.raises(ValueError, match=rf"b\.tfrec' at byte {position}: .*{message}"):
        records[1]
    assert records[0][1] == 1


def write_index(folder, lengths):
    """Write the index of b.tfrec with frames of these lengths."""
    lines = []
    start = 0
    for length in lengths:
        lines.append(f"{start} {length}\n")
        start += length
    (folder / "index").mkdir(exist_ok=True)
    (folder / "index" / "b.tfrec.idx").write_text("".join(lines))


def test_a_flipped_byte_is_named(tmp_path):
    """The error has the shard and the byte of its record; all others are read."""
    originals = [make_record(n) for n in range(3)]
    lengths = [len(record) + 16 for record in originals]
    part = write_part(tmp_path, {"b.tfrec": (0, originals)})
    write_index(tmp_path, lengths)
    data = bytearray((tmp_path / "b.tfrec").read_bytes())
    data[lengths[0] + 100] ^= 1
    (tmp_path / "b.tfrec").write_bytes(data)

    records = read.Records(part)

    assert [records[0][1], records[2][1]] == [0, 2]
    message = rf"b\.tfrec' at byte {lengths[0]}: the record is damaged"
    with pytest.raises(ValueError, match=message):
        records[1]


HALF = len(make_record(1)) + 16  # bytes of one of two equal frames


@pytest.mark.parametrize(
    "lengths",
    [
        None,
        [HALF],
        [HALF, 10**30],
        # Together all bytes of the shard, but one frame is longer than the shard.
        [10**30, 2 * HALF - 10**30],
        [2 * HALF + 5, -5],
    ],
)
def test_a_shard_without_its_whole_index_is_named(tmp_path, lengths):
    """Before anything is read; an index that does not fit the shard is none."""
    part = write_part(tmp_path, {"b.tfrec": (0, [make_record(1)] * 2)})
    if lengths:
        write_index(tmp_path, lengths)

    message = r"b\.tfrec' has no index of its 2 records in .*\.idx"
    with pytest.raises(ValueError, match=message):
        read.Records(part)


def test_a_shard_in_gzip_has_no_random_access(tmp_path):
    """The error names it, and what reads it."""
    write_shard(tmp_path / "a-00-2.tfrec", [make_record(1)] * 2, "GZIP")

    with pytest.raises(
        ValueError, match=r"a-00-2\.tfrec' has no index .*read_batches.*GZIP"
    ):
        read.Records(read.find_shards(tmp_path, schema="landmark"))


def test_the_feature_of_the_image_is_kept_for_a_changed_shard(tmp_path, monkeypatch):
    """Another process or machine sees another time, and knows no feature by itself."""
    monkeypatch.setenv(records_module.RECORDS_FOLDER, str(tmp_path / "records"))
    left, right = make_picture(10), make_picture(200)
    shard = write_shard(tmp_path / "a.tfrec", [make_example(left=left, right=right)])
    with pytest.raises(OSError, match="the feature of its image is unknown"):
        records_module.read_image_bytes(f"{shard}#0")

    records_module.index_shard(shard, "right")
    os.utime(shard, ns=(1, 1))
    records_module._indexes.clear()

    assert records_module.read_image_bytes(f"{shard}#0") == right


def checksum(example):
    """Return the CRC-32 of the undecoded image."""
    image, _ = example
    return zlib.crc32(image)


def test_grain_shuffles_all_records_and_resumes(records, tmp_path):
    """No record repeats in an epoch; another process resumes exactly at step 8."""
    grain = pytest.importorskip("grain", reason="the extra 'jax' is not installed")
    data = grain.MapDataset.source(records).shuffle(seed=5).repeat().map(checksum)
    batches = iter(data.to_iter_dataset().batch(3))
    (tmp_path / "records").write_bytes(pickle.dumps(records))

    before = [next(batches) for _ in range(7)]
    state = json.dumps(batches.get_state())
    after = [next(batches).tolist() for _ in range(3)]
    done = call_python("-c", GRAIN, tmp_path / "records", state)

    assert json.loads(done.stdout or "0") == after, done.stderr
    n_different = len({*np.concatenate(before).tolist()})
    assert n_different == 21


# Prints the ids of the records that each of two ranks reads, in two workers each.
TORCH = """
import sys, torch
from kaggle_tfr import read
records = read.Records(sys.argv[1], decode=False)
numbers = {data: number for number, (data, _) in enumerate(records)}
for rank in (0, 1):
    sampler = torch.utils.data.DistributedSampler(records, num_replicas=2, rank=rank)
    options = {"batch_size": 4, "sampler": sampler, "num_workers": 2}
    loader = torch.utils.data.DataLoader(records, **options)
    print(*[numbers[data] for images, _ in loader for data in images])
"""


def test_ranks_and_workers_of_torch_share_all_records(part):
    """Each record is read once; torch's own collation takes them."""
    pytest.importorskip("torch", reason="its usual package brings gigabytes of CUDA")

    done = call_python("-c", TORCH, part)

    ranks = [line.split() for line in done.stdout.splitlines()]
    assert [len(numbers) for numbers in ranks] == [16, 16], done.stderr
    assert sorted(int(number) for numbers in ranks for number in numbers) == [
        *range(32)
    ]


def test_devices_share_each_batch_in_its_order(part, eight_devices):
    """Each device has an eighth of every leaf; nothing is lost at the end."""
    import jax

    shards = read.find_shards(part)
    batches = read.read_batches(shards, image_size=16, batch_size=8, extra=["height"])

    found = list(read.to_devices(batches, eight_devices))

    assert len(found) == 4
    for arrays, expected in zip(found, batches.as_numpy_iterator(), strict=True):
        jax.tree.map(np.testing.assert_array_equal, arrays, expected)
        assert arrays[0].dtype == np.uint8
        for leaf in jax.tree.leaves(arrays):
            pieces = leaf.addressable_shards
            assert [len(piece.data) for piece in pieces] == [1] * 8
            assert {piece.device for piece in pieces} == {*eight_devices}


@pytest.mark.parametrize("ahead", [0, 2, 9])
def test_batches_are_drawn_so_many_ahead(eight_devices, ahead):
    """No more are held than requested, from any iterable of trees."""
    drawn = []

    def draw():
        for number in range(5):
            drawn.append(number)
            yield {"x": np.full((4, 2), number)}

    batches = read.to_devices(draw(), eight_devices[:2], ahead)
    counts = []
    for number, batch in enumerate(batches):
        counts.append(len(drawn) - number - 1)
        assert np.asarray(batch["x"]).tolist() == [[number] * 2] * 4

    assert counts == [min(ahead, 4 - number) for number in range(5)]


def test_a_batch_that_devices_cannot_share_is_an_error(part, eight_devices):
    """The message has its size and the number of devices."""
    batches = read.read_batches(read.find_shards(part), image_size=16, batch_size=12)

    with pytest.raises(ValueError, match="8 devices cannot share a batch of 12"):
        next(read.to_devices(batches, eight_devices))
