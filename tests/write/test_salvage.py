"""Whatever can still be read of a damaged part comes out of it, and the rest is listed."""

import random
import shutil

import pandas as pd
import pytest
from support.plans import digests, make_images, plan_images, read_plainly

from kaggle_tfr.__main__ import main
from kaggle_tfr.read import find_shards, read_batches
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.salvage import salvage_part
from kaggle_tfr.write.verify import verify_parts

MANY = pytest.param(100, marks=pytest.mark.heavy)


def make_part(folder, n_shards, **changes):
    """A part with six records a shard, and the ids in each of its shards."""
    plan_images(
        make_images(folder / "in", 6 * n_shards), folder, n_shards=n_shards, **changes
    )
    write_parts(str(folder))
    part = folder / "part-1"
    packed = changes.get("compression", "")
    records = {
        path.name: read_plainly([path], packed) for path in sorted(part.glob("*.tfrec"))
    }
    return part, {
        name: [r["image_id"].decode() for r in own] for name, own in records.items()
    }


@pytest.fixture(scope="module", params=[6, MANY])
def made(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("salvage")
    return make_part(folder, request.param, max_part_files=200)


def list_offsets(shard):
    """Where each frame begins, by the lengths before the records."""
    data, offsets = shard.read_bytes(), [0]
    while offsets[-1] < len(data):
        offsets.append(
            offsets[-1] + 16 + int.from_bytes(data[offsets[-1] :][:8], "little")
        )
    return offsets


def read_ids(out):
    """The ids of the new shards, by file, as TensorFlow reads them."""
    shards = find_shards(str(out))
    assert [len(read_plainly([f])) for f in shards["file"]] == shards["count"].tolist()
    names = [file.rpartition("/")[2] for file in shards["file"]]
    ids = [
        [r["image_id"].decode() for r in read_plainly([file])]
        for file in shards["file"]
    ]
    return dict(zip(names, ids, strict=True))


@pytest.mark.parametrize("indexed", [True, False])
def test_all_but_the_damaged_record_of_each_shard_comes_back(made, tmp_path, indexed):
    """A byte of each shard changed, anywhere: one record lost, none where the length was hit."""
    part, rng, wanted, gone = tmp_path / "part", random.Random(indexed), {}, []
    shutil.copytree(made[0], part)
    if not indexed:
        shutil.rmtree(part / "index")
    for name, ids in made[1].items():
        offsets = list_offsets(part / name)
        number, data = rng.randrange(len(ids)), bytearray((part / name).read_bytes())
        at = rng.randrange(offsets[number], offsets[number + 1])
        data[at] ^= rng.randrange(1, 256)
        (part / name).write_bytes(data)
        lost = at >= offsets[number] + 12
        gone += [[name, number, offsets[number]]] * lost
        kept = ids[:number] + ids[number + 1 :] if lost else ids
        wanted[name.replace(f"-{len(ids)}.tfrec", f"-{len(kept)}.tfrec")] = kept
    before = digests(part)
    assert main(["salvage", str(part), "--out", str(tmp_path / "out")]) == 0

    assert digests(part) == before
    assert read_ids(tmp_path / "out") == wanted
    lost = pd.read_csv(tmp_path / "out" / "lost.csv")
    assert lost[["file", "record", "offset"]].to_numpy().tolist() == gone
    assert verify_parts(str(tmp_path / "out")).faults.empty
    batch = next(
        iter(
            read_batches(
                find_shards(str(tmp_path / "out")), image_size=32, batch_size=4
            )
        )
    )
    assert batch[0].shape == (4, 32, 32, 3)
    with pytest.raises(FileExistsError, match="new or empty folder"):
        salvage_part(str(part), str(tmp_path / "out"))


def test_what_is_gone_for_good_is_counted(tmp_path):
    """A file lost, one cut off and in part zeros: with an index each lost record has its number.

    Without it, and without the list of shards, the count in the file's name tells how many.
    """
    part, ids = make_part(tmp_path, 3)
    first, second, third = sorted(part.glob("*.tfrec"))
    first.unlink()
    offsets, data = list_offsets(second), bytearray(second.read_bytes())
    data[offsets[1] : offsets[3]] = bytes(offsets[3] - offsets[1])
    second.write_bytes(data[: offsets[5] + 20])
    salvage_part(str(part), str(tmp_path / "with"))
    lost = pd.read_csv(tmp_path / "with" / "lost.csv")
    assert lost[["file", "record"]].to_numpy().tolist() == [
        [first.name, -1],
        *([second.name, number] for number in (1, 2, 5)),
    ]
    assert lost["offset"].tolist()[1:] == [offsets[n] for n in (1, 2, 5)]
    for name in ("shards.csv", "plan.json", "SHA256SUMS"):
        (part / name).unlink()
    shutil.rmtree(part / "index")
    salvage_part(str(part), str(tmp_path / "without"))
    lost = pd.read_csv(tmp_path / "without" / "lost.csv")
    assert lost["record"].tolist() == [1, 4, -1]  # of the frames found
    assert lost["problem"].iloc[-1].startswith("1 more records")
    for out in ("with", "without"):
        kept = [ids[second.name][n] for n in (0, 3, 4)]
        name = second.name.replace("-6.", "-3.")
        assert read_ids(tmp_path / out) == {name: kept, third.name: ids[third.name]}


def test_a_packed_shard_comes_back_as_far_as_it_can_be_unpacked(tmp_path):
    """GZIP: the records before the damage, in shards that are packed again; the others whole."""
    part, ids = make_part(tmp_path, 3, compression="GZIP")
    shard = min(part.glob("*.tfrec"))
    data = bytearray(shard.read_bytes())
    data[len(data) * 2 // 3 :] = b"?" * 9
    shard.write_bytes(data)
    shards, lost = salvage_part(str(part), str(tmp_path / "out"))
    found = find_shards(str(tmp_path / "out"))
    assert found["compression"].tolist() == ["GZIP"] * 3
    records = [read_plainly([file], "GZIP") for file in found["file"]]
    first, *others = [[r["image_id"].decode() for r in own] for own in records]
    assert [first, *others] == [ids[shard.name][: len(first)], *[*ids.values()][1:]]
    assert 3 <= len(first) < 6
    assert shards["count"].tolist() == [len(first), 6, 6]
    assert lost["record"].tolist() == [len(first)] + [-1] * (len(first) < 5)
