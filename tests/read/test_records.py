"""Records by number and by address; batches that devices of JAX share."""

import json
import os
import pickle
import subprocess
import sys
import zlib

import numpy as np
import pytest
import tensorflow as tf
from support.plans import make_images, plan_images
from support.readers import (
    make_example,
    make_picture,
    make_record,
    write_part,
    write_shard,
)

from kaggle_tfr import read
from kaggle_tfr import records as records_module
from kaggle_tfr.write.parts import write_parts

# Prints the checksums of grain's next three batches, from a state on.
GRAIN = """
import json, pickle, sys, zlib
import grain
with open(sys.argv[1], "rb") as file:
    source = grain.MapDataset.source(pickle.load(file))
data = source.shuffle(seed=5).repeat().map(zlib.crc32)
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
    return read.Records(read.find_shards(part))


def test_every_record_is_that_of_tensorflow(part, records):
    """Byte for byte and in the same order; counted from the end as well."""
    shards = read.find_shards(part)
    expected = list(tf.data.TFRecordDataset(list(shards["file"])).as_numpy_iterator())

    assert [records[number] for number in range(len(records))] == expected
    assert records[np.int64(-1)] == expected[-1]
    with pytest.raises(IndexError):
        records[len(records)]


def test_a_worker_reads_without_tensorflow(root, records, tmp_path):
    """A pickled source is read in a process that cannot import TensorFlow."""
    path = tmp_path / "records.pickle"
    path.write_bytes(pickle.dumps(records))
    script = "import pickle, sys; sys.modules['tensorflow'] = None\n"
    script += "print(len(pickle.load(open(sys.argv[1], 'rb'))[7]))"

    call = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(call, cwd=root, capture_output=True, text=True, check=False)

    assert done.stdout.strip() == str(len(records[7])), done.stderr


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

    records = read.Records(read.find_shards(part))

    assert [records[0], records[2]] == [originals[0], originals[2]]
    message = rf"b\.tfrec' at byte {lengths[0]}: the record is damaged"
    with pytest.raises(ValueError, match=message):
        records[1]


HALF = len(make_record(1)) + 16  # bytes of one of two equal frames


@pytest.mark.parametrize(
    "lengths",
    [
        None,
        [HALF],
        [HALF, 0],
        [HALF, -5],
        [HALF, 10**12],
        [HALF, 10**30],
        # Together all bytes of the shard, but one frame is longer than the shard.
        [10**12, 2 * HALF - 10**12],
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
        read.Records(read.find_shards(part))


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


def test_grain_shuffles_all_records_and_resumes(records, tmp_path):
    """No record repeats in an epoch; another process resumes exactly at step 8."""
    grain = pytest.importorskip("grain", reason="the extra 'jax' is not installed")
    data = grain.MapDataset.source(records).shuffle(seed=5).repeat().map(zlib.crc32)
    batches = iter(data.to_iter_dataset().batch(3))
    (tmp_path / "records").write_bytes(pickle.dumps(records))

    before = [next(batches) for _ in range(7)]
    state = json.dumps(batches.get_state())
    after = [next(batches).tolist() for _ in range(3)]
    call = [sys.executable, "-c", GRAIN, str(tmp_path / "records"), state]
    done = subprocess.run(call, capture_output=True, text=True, check=False)

    assert json.loads(done.stdout or "0") == after, done.stderr
    n_different = len({*np.concatenate(before).tolist()})
    assert n_different == 21


def test_grain_gives_each_epoch_its_permutation(records):
    """Two epochs have the same records, in different orders."""
    grain = pytest.importorskip("grain", reason="the extra 'jax' is not installed")
    data = grain.MapDataset.source(records).shuffle(seed=5).repeat().map(zlib.crc32)

    first_epoch = [data[number] for number in range(32)]
    second_epoch = [data[number] for number in range(32, 64)]

    expected = sorted(zlib.crc32(record) for record in records)
    assert sorted(first_epoch) == expected
    assert sorted(second_epoch) == expected
    assert first_epoch != second_epoch


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
