"""Records by number and by address; batches that devices of JAX share."""

import io
import itertools

import numpy as np
import pytest
from PIL import Image
from support.plans import CLASSES, make_images, plan_images, read_plainly
from support.processes import call_python
from support.readers import make_example, make_picture, make_record, write_part

from kaggle_tfr import read
from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.records import find_frames
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
    with pytest.raises(IndexError):
        records[32]


def test_an_image_is_decoded_as_by_pillow(part, records):
    """Red first, of its own size, and writable, which PyTorch needs."""
    decoded = read.Records(part)

    image, label = decoded[31]
    data, expected_label = records[31]
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


def test_split_and_fold_choose_shards_as_choose_fold_does(part):
    """For each fold; fold 0 if none is named."""
    shards = read.find_shards(part)

    for choice in ({"fold": 1}, {}):
        expected, _ = read.choose_fold(shards, **choice)
        indexes = read.Records(part, split="train", **choice).indexes
        assert [index.file for index in indexes] == expected["file"].tolist()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"split": "test"}, "no shard to read. Check the split"),
        ({"split": "train", "fold": 9}, r"FOLD is 9.*\[0, 1, 2\]"),
        ({"fold": 1}, "fold is 1, but split is None"),
    ],
)
def test_a_split_or_fold_that_is_not_there_is_named(part, choice, message):
    """A ValueError."""
    with pytest.raises(ValueError, match=message):
        read.Records(part, **choice)


def write_records(folder, schema, records):
    """Write a part with one shard of this schema and its index."""
    write_part(folder, {"b.tfrec": (0, records)}, ["x", "y"], schema)
    ends = [0, *itertools.accumulate(len(record) + 16 for record in records)]
    lines = [f"{start} {end - start}\n" for start, end in itertools.pairwise(ends)]
    (folder / "index").mkdir()
    (folder / "index" / "b.tfrec.idx").write_text("".join(lines))
    return folder


IMAGE = Field("picture", "image")
CODES = (encode_mask(np.eye(32, 48)).encode(), b"")
MASKS = np.uint8(np.stack([np.eye(32, 48), np.zeros((32, 48))], -1))
X_AND_Y = (Field("x", "X"), IMAGE, Field("y", "Y"))


@pytest.mark.parametrize(
    ("schema", "features", "expected", "undecoded"),
    [
        (
            RecordSchema((IMAGE, Field("tags", "labels", "int64", 2)), "multi"),
            {"tags": [1, 0]},
            np.float32([1, 0]),
            np.float32([1, 0]),
        ),
        (
            RecordSchema(X_AND_Y, "masks", 2, ("X", "Y")),
            dict(zip("xy", CODES, strict=True)),
            MASKS,
            CODES,
        ),
        (
            RecordSchema((Field("n", "image_id"), IMAGE)),
            {"n": b"a.jpg"},
            *["a.jpg"] * 2,
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

    for is_decoded, value in ((True, expected), (False, undecoded)):
        _, label = read.Records(part, decode=is_decoded)[0]
        np.testing.assert_array_equal(label, value)
        assert getattr(label, "dtype", None) == getattr(value, "dtype", None)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"no example", "the record is not a tf.train.Example"),
        (
            make_example(image=make_picture(7), label=0.5),
            "its feature 'label' .* int64",
        ),
        (make_example(image=make_picture(7)[:400], label=1), "truncated"),
    ],
    ids=["text", "float", "half an image"],
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


def test_a_flipped_byte_is_named(tmp_path):
    """The error has the shard and the byte of its record; all others are read."""
    originals = [make_record(n) for n in range(3)]
    length = len(originals[0]) + 16
    part = write_records(tmp_path, "landmark", originals)
    data = bytearray((tmp_path / "b.tfrec").read_bytes())
    data[length + 100] ^= 1
    (tmp_path / "b.tfrec").write_bytes(data)

    records = read.Records(part)

    assert [records[0][1], records[2][1]] == [0, 2]
    message = rf"b\.tfrec' at byte {length}: the record is damaged"
    with pytest.raises(ValueError, match=message):
        records[1]


@pytest.mark.parametrize("lines", [0, 1])
def test_a_shard_without_its_whole_index_is_named(tmp_path, lines):
    """Before anything is read."""
    part = write_records(tmp_path, "landmark", [make_record(1)] * 2)
    index = part / "index" / "b.tfrec.idx"
    index.write_text("\n".join([*index.read_text().splitlines()[:lines], ""]))

    message = r"b\.tfrec' has no index of its 2 records in index/"
    with pytest.raises(ValueError, match=message):
        read.Records(part)


@pytest.mark.parametrize("name", ["b.tfrec", "test/b.tfrec"])
def test_the_index_finds_records_after_a_damaged_length(tmp_path, name):
    """Also of a shard in a folder of its part, whose index is in index/ of the part."""
    part = write_records(tmp_path, "landmark", [make_record(1), make_record(2)])
    places = [(part / name, part / "b.tfrec")]
    places.append((part / "index" / f"{name}.idx", part / "index" / "b.tfrec.idx"))
    for target, source in places:
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
    data = bytearray((part / name).read_bytes())
    data[0] ^= 1
    (part / name).write_bytes(data)

    assert len(find_frames(f"{part}/{name}", part / name)) == 3


def test_devices_share_each_batch_in_its_order(part, eight_devices):
    """Each device has an eighth of every leaf; nothing is lost at the end."""
    import jax

    shards = read.find_shards(part)
    batches = read.read_batches(shards, image_size=16, batch_size=8)

    found = list(read.to_devices(batches, eight_devices))

    assert len(found) == 4
    for arrays, expected in zip(found, batches.as_numpy_iterator(), strict=True):
        jax.tree.map(np.testing.assert_array_equal, arrays, expected)
        for leaf in jax.tree.leaves(arrays):
            assert {piece.device for piece in leaf.addressable_shards} == {
                *eight_devices
            }
