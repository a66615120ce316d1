"""Records by number, for grain and torch; batches that JAX's devices share."""

import json
import pickle
import subprocess
import sys
import zlib

import numpy as np
import pytest
import tensorflow as tf
from support.plans import make_images, plan_images
from support.readers import make_record, write_part, write_shard

from kaggle_tfr import read
from kaggle_tfr.write.parts import write_parts

# Prints the checksums of grain's next three batches, from a state on.
GRAIN = """
import json, pickle, sys, zlib
import grain
with open(sys.argv[1], "rb") as file:
    data = grain.MapDataset.source(pickle.load(file)).shuffle(seed=5).repeat().map(zlib.crc32)
batches = iter(data.to_iter_dataset().batch(3))
batches.set_state(json.loads(sys.argv[2]))
print(json.dumps([next(batches).tolist() for _ in range(3)]))
"""


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """A written part of 32 pictures in six shards."""
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
    """A pickled source gives its bytes in a process where TensorFlow cannot be imported."""
    path = tmp_path / "records.pickle"
    path.write_bytes(pickle.dumps(records))
    script = "import pickle, sys; sys.modules['tensorflow'] = None\n"
    script += "print(len(pickle.load(open(sys.argv[1], 'rb'))[7]))"

    call = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(call, cwd=root, capture_output=True, text=True, check=False)

    assert done.stdout.strip() == str(len(records[7])), done.stderr


def test_a_flipped_byte_is_named(part, tmp_path):
    """The shard and the byte where its record begins; all others are read."""
    copy = write_part(tmp_path, {"a.tfrec": (0, [make_record(n) for n in range(3)])})
    sizes = [len(make_record(n)) + 16 for n in range(3)]
    starts = np.cumsum([0, *sizes]).tolist()
    index = "".join(
        f"{start} {size}\n" for start, size in zip(starts, sizes, strict=False)
    )
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "a.tfrec.idx").write_text(index)
    data = bytearray((tmp_path / "a.tfrec").read_bytes())
    data[starts[1] + 100] ^= 1
    (tmp_path / "a.tfrec").write_bytes(data)

    records = read.Records(read.find_shards(copy))

    assert [records[0], records[2]] == [make_record(0), make_record(2)]
    with pytest.raises(
        ValueError, match=rf"a\.tfrec' at byte {starts[1]}: the record is damaged"
    ):
        records[1]


def test_a_shard_without_index_or_in_gzip_is_named(tmp_path):
    """Both before anything is read; an index that misses records is none."""
    folder = write_part(tmp_path / "a", {"b.tfrec": (0, [make_record(1)] * 2)})
    with pytest.raises(
        ValueError, match=r"b\.tfrec' has no index of its 2 records in .*\.idx"
    ):
        read.Records(read.find_shards(folder))
    (tmp_path / "a" / "index").mkdir()
    (tmp_path / "a" / "index" / "b.tfrec.idx").write_text("0 100\n")
    with pytest.raises(ValueError, match="no index of its 2 records"):
        read.Records(read.find_shards(folder))
    length = (tmp_path / "a" / "b.tfrec").stat().st_size // 2
    frames = [(length, second) for second in (10**12, 10**30, -5, 0)]
    # All bytes of the shard together, but a frame that is longer than it.
    frames += [
        (first, 2 * length - first) for first in (10**12, 10**30, 2 * length + 5)
    ]
    for first, second in frames:
        lines = f"0 {first}\n{first} {second}\n"
        (tmp_path / "a" / "index" / "b.tfrec.idx").write_text(lines)
        with pytest.raises(ValueError, match="no index of its 2 records"):
            read.Records(read.find_shards(folder))

    write_shard(tmp_path / "c" / "a-00-2.tfrec", [make_record(1)] * 2, "GZIP")
    with pytest.raises(ValueError, match=r"a-00-2\.tfrec' is in GZIP"):
        read.Records(read.find_shards(tmp_path / "c", schema="landmark"))


def test_grain_shuffles_all_records_and_goes_on_where_it_stopped(records, tmp_path):
    """An epoch is a permutation, the next another; another process goes on exactly at step 8."""
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
    assert len({*np.concatenate(before).tolist()}) == 21
    epochs = [[data[n] for n in range(first, first + 32)] for first in (0, 32)]
    expected = sorted(zlib.crc32(record) for record in records)
    assert [sorted(epoch) for epoch in epochs] == [expected] * 2
    assert epochs[0] != epochs[1]


def test_devices_share_each_batch_in_its_order(part, eight_devices):
    """All leaves of every batch, each device an eighth of them; nothing is lost at the end."""
    import jax

    shards, choices = read.find_shards(part), {"image_size": 16, "batch_size": 8}
    batches = read.read_batches(shards, extra=["height"], **choices)

    found = list(read.to_devices(batches, eight_devices))

    assert len(found) == 4
    for arrays, expected in zip(found, batches.as_numpy_iterator(), strict=True):
        jax.tree.map(np.testing.assert_array_equal, arrays, expected)
        assert arrays[0].dtype == np.uint8
        for leaf in jax.tree.leaves(arrays):
            assert [len(one.data) for one in leaf.addressable_shards] == [1] * 8
            assert {one.device for one in leaf.addressable_shards} == {*eight_devices}


@pytest.mark.parametrize("ahead", [0, 2, 9])
def test_batches_are_drawn_so_many_ahead(eight_devices, ahead):
    """No more are held than asked for, from any iterable of trees."""
    drawn = []

    def draw():
        for number in range(5):
            drawn.append(number)
            yield {"x": np.full((4, 2), number)}

    batches, counts = read.to_devices(draw(), eight_devices[:2], ahead), []
    for number, batch in enumerate(batches):
        counts.append(len(drawn) - number - 1)
        assert np.asarray(batch["x"]).tolist() == [[number] * 2] * 4

    assert counts == [min(ahead, 4 - number) for number in range(5)]


def test_a_batch_that_devices_cannot_share_is_refused(part, eight_devices):
    """Its size is named, and so is the number of devices."""
    batches = read.read_batches(read.find_shards(part), image_size=16, batch_size=12)

    with pytest.raises(ValueError, match="8 devices cannot share a batch of 12"):
        next(read.to_devices(batches, eight_devices))
