"""Verify finds whatever is wrong with a part, and names the place."""

import os
import random
import shutil
from bisect import bisect
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support.plans import make_images, plan_images, two_parts, verify, write
from support.readers import write_shard
from support.scenes import saved, scene

from kaggle_tfr import schema
from kaggle_tfr.images.convert import ImageSettings, convert
from kaggle_tfr.schema import Labels
from kaggle_tfr.write import writer
from kaggle_tfr.write.step import verify_written
from kaggle_tfr.write.verify import compare_with_source

FRAME = 16  # bytes of a frame around the record


def write_part(folder, table, **settings):
    """Write a part in three shards; some features are texts of the table as numbers.

    Others are measured columns, one of them a float32.
    """
    table = table.assign(age="7.0", share=" 0.1", note="", sharpness=np.float32(0.1))
    schema = {name: {} for name in ("image", "label", "note", "format", "sharpness")}
    schema |= {"age": {"type": "int64"}, "share": {"type": "float"}}
    plan_images(table, folder, schema=schema, n_shards=3, **settings)
    write(folder)
    return folder / "part-1"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("verify") / "images", 36)


@pytest.fixture(scope="module")
def work(table, tmp_path_factory):
    """A work folder with one part, in three shards of 12 records."""
    folder = tmp_path_factory.mktemp("work")
    write_part(folder, table)
    return folder


@pytest.fixture
def part(work, tmp_path):
    """A copy of the part, which a test may damage."""
    return shutil.copytree(work / "part-1", tmp_path / "part-1")


def find_faults(part):
    return verify(part).faults


def find_records(data):
    """Return the first byte of each record of a shard, by the frames alone."""
    places = []
    end = 0
    while end < len(data):
        places.append(end)
        end += int.from_bytes(data[end : end + 8], "little") + FRAME
    return places


def flip_bit(path, offset, bit):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize(
    "places",
    [12, pytest.param(100, marks=pytest.mark.heavy)],
)
def test_a_flipped_bit_is_found_in_its_record(part, places):
    """Anywhere in the file, that record is named and no other."""
    rng = random.Random(places)
    shards = sorted(part.glob("*.tfrec"))
    for _ in range(places):
        shard = rng.choice(shards)
        data = shard.read_bytes()
        offset = rng.randrange(len(data))
        record = bisect(find_records(data), offset) - 1
        flip_bit(shard, offset, rng.randrange(8))

        verified = verify(part)

        faults = verified.faults[["file", "record"]].to_numpy().tolist()
        assert faults == [[shard.name, -1], [shard.name, record]]
        assert verified.stats["images"].tolist() == [35]
        shard.write_bytes(data)


def test_a_fault_stops_04(part):
    """Its error shows the table of faults."""
    shard = min(part.glob("*.tfrec"))
    flip_bit(shard, 20, 4)

    message = rf"not as planned\.\n.*\n.*{shard.name}"
    with pytest.raises(RuntimeError, match=message):
        verify_written([str(part)], "")


def test_a_flipped_bit_in_a_gzip_shard_is_found(table, tmp_path):
    """The file is always named; also the record, where the file cannot be unpacked.

    Without a fault it is as TensorFlow writes it.
    """
    part = write_part(tmp_path, table, size=64, compression="GZIP")
    shard = min(part.glob("*.tfrec"))
    data = shard.read_bytes()
    records = tf.data.TFRecordDataset(str(shard), "GZIP").as_numpy_iterator()
    copy = write_shard(tmp_path / "copy", records, "GZIP")
    assert Path(copy).read_bytes() == data
    rng = random.Random(3)
    inside = [rng.randrange(30, len(data) - 8) for _ in range(6)]
    for offset in [0, 4, len(data) - 1, *inside]:
        flip_bit(shard, offset, rng.randrange(8))

        faults = find_faults(part)

        assert set(faults["file"]) == {shard.name}
        if offset in inside:
            assert faults["record"].max() >= 0
        shard.write_bytes(data)


@pytest.mark.parametrize("share", [0.5, 0.999])
def test_several_damaged_records_and_the_end_of_a_cut_file_are_named(part, share):
    """Records after a damaged one are read, up to the one in which the file ends."""
    shard = min(part.glob("*.tfrec"))
    data = shard.read_bytes()
    places = find_records(data)
    size = int(len(data) * share)
    damaged = [0, 1, 4, bisect(places, size) - 1]
    shard.write_bytes(data[:size])
    for number in damaged[:3]:
        flip_bit(shard, places[number] + 40, 0)

    faults = find_faults(part)

    assert faults["record"][faults["record"] >= 0].tolist() == damaged
    is_short = faults["problem"].str.contains("records, but 12 in shards.csv")
    assert is_short.any() == (share == 0.5)


def put(name, kind, value):
    """Return a function that replaces the first value of a feature."""

    def change(features):
        getattr(features[name], kind).value[0] = value

    return change


def redraw(move):
    """Return a function that moves the pixels of the image, or their channels."""

    def change(features):
        image = features["image"].bytes_list
        pixels = tf.io.decode_jpeg(image.value[0]).numpy()
        image.value[0] = tf.io.encode_jpeg(move(pixels), quality=95).numpy()

    return change


def reverse(features):
    """Return a record with the features in another order."""
    records = []
    for name in sorted(features, reverse=True):
        example = tf.train.Example()
        example.features.feature[name].CopyFrom(features[name])
        records.append(example.features.SerializeToString())
    data = b"".join(records)
    length = len(data) % 128 | 128, len(data) // 128
    return b"\n" + bytes(length) + data


OTHER = "its features, or their order, are not those of its row"
CHANGES = [
    (put("label", "int64_list", 7), OTHER),
    (put("image", "bytes_list", b"\xff\xd8\xff"), "truncated"),
    (lambda features: features["new"].int64_list.value.append(1), OTHER),
    (reverse, OTHER),
    (redraw(lambda pixels: pixels[..., ::-1]), "red and blue are swapped"),
    (redraw(lambda pixels: pixels[::-1, ::-1]), "rotated 180"),
]


@pytest.mark.parametrize(("change", "problem"), CHANGES)
def test_a_record_that_differs_from_its_row_or_its_source_is_named(
    work, tmp_path, monkeypatch, change, problem
):
    """Where files and checksums are right."""

    def encode_changed(row, *arguments):
        record = schema.encode(row, *arguments)
        if row["image_id"] != "0004":
            return record
        example = tf.train.Example.FromString(record)
        changed = change(example.features.feature)
        return changed or example.SerializeToString(deterministic=True)

    monkeypatch.setattr(writer, "encode", encode_changed)
    write(work, tmp_path)
    part = tmp_path / "part-1"

    (fault,) = verify(part, work).faults.itertuples()

    records = pd.read_csv(part / "train.csv", index_col="image_id")
    place = records.loc[4, ["file", "record"]]
    assert [fault.file, fault.record] == place.tolist()
    assert problem in fault.problem


def test_missing_unknown_and_renamed_files_are_named(part):
    """Files are compared with the plan and the tables, and so are their counts."""
    first, second, third = sorted(part.glob("*.tfrec"))
    first.unlink()
    shutil.copy(second, part / "trees-f9-009-12.tfrec")
    table = pd.read_csv(part / "shards.csv")
    table.loc[table["file"] == third.name, "count"] = 11
    table.to_csv(part / "shards.csv", index=False)

    faults = find_faults(part).groupby("file")["problem"].agg(" | ".join)

    assert "it has 0 records" in faults[first.name]
    unknown = ["trees-f9-009-12.tfrec", third.name]
    assert faults[unknown].str.contains("not in shards.csv, or not as in").all()
    assert set(faults.index) == {first.name, *unknown, "shards.csv"}


@pytest.mark.timeout(60)
def test_a_pipe_in_the_place_of_a_file_is_named(part):
    """Reading a pipe would never end."""
    shard = min(part.glob("*.tfrec"))
    shard.unlink()
    os.mkfifo(shard)

    assert set(find_faults(part)["file"]) == {shard.name}


def test_a_folder_of_parts_is_verified_part_by_part(table, tmp_path):
    """WORK_DIR: a part that has no plan.json, or is unfinished, belongs to it, too.

    The masks of the images were resized with them.
    """
    labels = Labels("masks", ("disc",), ("disc",))
    two_parts(table[:18].assign(disc="5 900"), tmp_path, labels=labels)
    write(tmp_path)
    part_dirs = [f"{tmp_path}/part-1", f"{tmp_path}/part-2"]

    verified = verify(tmp_path, tmp_path)

    assert verified.faults.empty
    assert list(verified.stats.index) == [(part, "train") for part in part_dirs]
    (tmp_path / "part-1" / "plan.json").unlink()
    (tmp_path / "part-2" / "shards.csv").unlink()
    faults = find_faults(tmp_path)[["part", "file"]].to_numpy().tolist()
    assert faults == [[part_dirs[0], "plan.json"], [part_dirs[1], "shards.csv"]]


@pytest.mark.parametrize("name", ["shards.csv", "train.csv"])
@pytest.mark.parametrize("text", ["", "file,split\na,b\n"])
def test_a_broken_table_is_named(part, name, text):
    """It is the only fault, and no crash."""
    (part / name).write_text(text)

    assert find_faults(part)["file"].tolist() == [name]


def test_a_good_part_has_no_fault_and_fits_its_sources(work):
    """PSNR is high, and far lower with red and blue swapped."""
    part = str(work / "part-1")
    verified = verify(part, work)

    assert verified.faults.empty
    assert len(verified.sources) == 36  # of larger parts, about 20
    psnr = verified.sources["psnr"]
    assert psnr.min() > 25
    assert (psnr > verified.sources["psnr_swapped"] + 5).all()


@pytest.mark.parametrize("resize", ["center_crop", "fill", "stretch"])
@pytest.mark.parametrize("size", [(40, 32), (40, 40)])
def test_the_comparison_knows_every_way_to_resize(resize, size):
    """The source is cropped and scaled as the record was, so a right record fits."""
    source = saved(scene(90, 140, 1), "PNG")
    settings = ImageSettings(size, resize, quality=95)
    record = convert(source, settings)
    pixels = tf.io.decode_jpeg(record.data).numpy()

    found = compare_with_source(source, pixels, settings)
    assert found["psnr"] > 25
    assert not found["problem"]
    if size == (40, 40):
        found = compare_with_source(source, np.rot90(pixels), settings)
        assert found["problem"] == "rotated 90° counterclockwise"
