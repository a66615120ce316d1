"""Whatever is wrong with a part, verify finds it and says where."""

import hashlib
import json
import os
import random
import shutil

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from support.chain import draw_pictures, run_chain, save_picture
from support.plans import (
    digests,
    draw_picture,
    make_images,
    plan_images,
    read_plainly,
    two_parts,
)

from kaggle_tfr.images.convert import ImageSettings, convert
from kaggle_tfr.plan.plan import read_plan
from kaggle_tfr.schema import Labels
from kaggle_tfr.write.metadata import describe_dataset
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.verify import compare_with_source, verify_parts

HEAD, FRAME = 12, 16  # bytes before a record's data, and in all around it


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A work folder with a whole part."""
    folder = tmp_path_factory.mktemp("verify")
    plan_images(make_images(folder / "images", 36), folder, n_shards=3)
    write_parts(str(folder))
    return folder


@pytest.fixture
def part(made, tmp_path):
    """A copy of the part, to be damaged."""
    return shutil.copytree(made / "part-1", tmp_path / "part-1")


def record_at(shard, offset):
    """The record that a byte of a shard belongs to, by its frames alone."""
    data, end, number = shard.read_bytes(), 0, -1
    while end <= offset:
        end, number = (
            end + int.from_bytes(data[end : end + 8], "little") + FRAME,
            number + 1,
        )
    return number


def flip(path, offset, bit):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("places", [12, pytest.param(100, marks=pytest.mark.heavy)])
def test_a_flipped_bit_is_found_in_its_record(part, places):
    """Anywhere in the file, length and checksums included: that record is named, and no other."""
    rng, shards = random.Random(places), sorted(part.glob("*.tfrec"))
    for _ in range(places):
        shard = rng.choice(shards)
        whole, offset = shard.read_bytes(), rng.randrange(shard.stat().st_size)
        expected = [shard.name, record_at(shard, offset)]
        flip(shard, offset, rng.randrange(8))
        named = verify_parts(str(part)).faults.query("record >= 0")
        assert named[["file", "record"]].to_numpy().tolist() == [expected]
        assert named["offset"].iloc[0] <= offset
        shard.write_bytes(whole)


@pytest.mark.parametrize("at", [0, 8, HEAD + 3, -1])
def test_each_region_of_a_frame_is_covered_without_the_index_too(part, at):
    """Length, its checksum, data and the data's checksum of the first record."""
    shutil.rmtree(part / "index")
    shard = min(part.glob("*.tfrec"))
    flip(shard, at % (int.from_bytes(shard.read_bytes()[:8], "little") + FRAME), 4)
    assert verify_parts(str(part)).faults.query("record >= 0")["record"].iloc[0] == 0


def test_a_flip_in_a_packed_shard_is_found(made, tmp_path):
    """GZIP: wherever the flip lies, the file is named, and the record where unpacking fails.

    Two runs agree; a packed file has no offsets to list.
    """
    table = pd.read_parquet(made / "plan.parquet").drop(
        columns=["shard", "part", "position"]
    )
    plan_images(table, tmp_path, compression="GZIP", n_shards=3)
    write_parts(str(tmp_path))
    part, rng = tmp_path / "part-1", random.Random(3)
    write_parts(str(tmp_path), str(tmp_path / "again"))
    assert digests(tmp_path / "again" / "part-1") == digests(part)
    assert len(read_plainly(part.glob("*.tfrec"), "GZIP")) == len(table)
    assert not (part / "index").exists()
    assert verify_parts(str(part)).faults.empty
    shard = min(part.glob("*.tfrec"))
    whole = shard.read_bytes()
    inside = [rng.randrange(30, len(whole) - 8) for _ in range(6)]
    for offset in [0, 4, len(whole) - 1, *inside]:
        flip(shard, offset, rng.randrange(8))
        faults = verify_parts(str(part)).faults
        assert set(faults["file"]) == {shard.name}
        assert offset not in inside or faults["record"].max() >= 0
        shard.write_bytes(whole)


@pytest.mark.parametrize("cut", [0.5, 0.999])
def test_several_damaged_records_and_the_end_of_a_cut_file_are_named(part, cut):
    """Verifying goes on behind a damaged record, up to the one that the file ends in."""
    shard = min(part.glob("*.tfrec"))
    lines = (part / "index" / f"{shard.name}.idx").read_text().splitlines()
    offsets = [int(line.split()[0]) for line in lines]
    for number in (0, 1, 4):
        flip(shard, offsets[number] + 40, 0)
    size = int(shard.stat().st_size * cut)
    last = record_at(shard, size)
    shard.write_bytes(shard.read_bytes()[:size])
    faults = verify_parts(str(part)).faults
    named = faults[faults["record"] >= 0]
    assert named["record"].tolist() == [0, 1, 4, last]
    assert named["offset"].tolist() == [offsets[number] for number in (0, 1, 4, last)]
    assert "the file ends in the middle of it" in named["problem"].iloc[-1]
    assert any(faults["problem"].str.contains("bytes, shards.csv has"))


def rewrite(part, change):
    """Rewrites the first shard with `change(number, example)` applied, and what tells of it."""
    shard = min(part.glob("*.tfrec"))
    records = list(tf.data.TFRecordDataset(str(shard)).as_numpy_iterator())
    lines, end = [], 0
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for number, record in enumerate(records):
            example = tf.train.Example.FromString(record)
            change(number, example.features.feature)
            writer.write(changed := example.SerializeToString(deterministic=True))
            lines.append(f"{end} {len(changed) + FRAME}\n")
            end += len(changed) + FRAME
    table = pd.read_csv(part / "shards.csv")
    own, data = table["file"] == shard.name, shard.read_bytes()
    table.loc[own, ["sha256", "bytes"]] = hashlib.sha256(data).hexdigest(), len(data)
    table.to_csv(part / "shards.csv", index=False)
    (part / "index" / f"{shard.name}.idx").write_text("".join(lines))
    described = json.dumps(describe_dataset(read_plan(str(part)), 1, table))
    (part / "dataset-metadata.json").write_text(described)
    names = [
        line.split("  ")[1] for line in (part / "SHA256SUMS").read_text().splitlines()
    ]
    sums = {
        name: hashlib.sha256((part / name).read_bytes()).hexdigest() for name in names
    }
    (part / "SHA256SUMS").write_text(
        "".join(f"{own}  {name}\n" for name, own in sums.items())
    )


CHANGES = {
    "'label' is 7, the plan says": lambda f: f["label"].int64_list.value.__setitem__(
        0, 7
    ),
    "'image_id' is b'x'": lambda f: f["image_id"].bytes_list.value.__setitem__(0, b"x"),
    "'height' is 9, the plan says": lambda f: f["height"].int64_list.value.__setitem__(
        0, 9
    ),
    "its image is rejected": lambda f: f["image"].bytes_list.value.__setitem__(
        0, b"\xff\xd8\xff"
    ),
    "it lacks the feature 'width'": lambda f: f.pop("width"),
    "it has the feature 'new'": lambda f: f["new"].int64_list.value.append(1),
}


@pytest.mark.parametrize(("message", "change"), CHANGES.items())
def test_a_record_that_is_not_the_plan_s_is_named(part, message, change):
    """Whole files with right checksums, but a wrong value in one record: feature and values."""
    rewrite(part, lambda number, feature: change(feature) if number == 4 else None)

    (fault,) = verify_parts(str(part)).faults.itertuples()
    assert fault.record == 4
    assert message in fault.problem


def by_file(part):
    return verify_parts(str(part)).faults.groupby("file")["problem"].agg(" | ".join)


def test_missing_unknown_and_renamed_files_are_named(part):
    """Files against plan and tables: gone, extra, another name, another count, a row too few."""
    first, second, third = sorted(part.glob("*.tfrec"))
    first.unlink()
    shutil.copy(second, part / "trees-f9-009-12.tfrec")
    table = pd.read_csv(part / "shards.csv")
    table.loc[table["file"] == third.name, "count"] = 11
    table.to_csv(part / "shards.csv", index=False)
    lines = (part / "train.csv").read_text().splitlines(keepends=True)
    (part / "train.csv").write_text("".join(lines[:-2]))
    faults = by_file(part)
    assert "the file is missing" in faults[first.name]
    assert faults["trees-f9-009-12.tfrec"] == "not in shards.csv"
    assert "12 records were found, shards.csv has 11" in faults[third.name]
    assert "the plan has 12 images" in faults[third.name]
    assert "train.csv has 10 rows of this file" in faults[third.name]


def test_damaged_sidecars_are_named(part):
    """Schema, labels, the split's table, the index and an unfinished state are looked at too."""
    (part / "labels.json").write_text(json.dumps({"classes": ["other"]}))
    (part / "schema.json").write_text("{")
    (part / "train.csv").unlink()
    index = min((part / "index").iterdir())
    index.write_text(index.read_text().replace("0 ", "1 ", 1))
    row = json.loads(pd.read_csv(part / "shards.csv").to_json(orient="records"))[0]
    (part / "journal").mkdir()
    (part / "journal" / "000000.json").write_text(
        json.dumps(row | {"rejects": [], "number": 0})
    )
    faults = by_file(part)
    assert "changed" in faults["labels.json"]
    assert "changed" in faults["schema.json"]
    assert "missing" in faults["train.csv"]
    assert "the index has another offset" in faults[index.name[: -len(".idx")]]
    assert "unfinished" in faults["shards.csv"]


def test_a_part_of_another_plan_than_the_one_beside_it_is_named(part):
    """Readers take the parts of a folder for one dataset; those of two folders are two datasets."""
    other, elsewhere = part.parent / "part-2", part.parent / "elsewhere" / "part-3"
    for folder in (other, elsewhere):
        folder.mkdir(parents=True)
        for name in ("shards.csv", "plan.json"):
            text = (
                (part / name)
                .read_text()
                .replace(read_plan(str(part)).fingerprint, "0" * 64)
            )
            (folder / name).write_text(text)
    faults = verify_parts([str(part), str(other), str(elsewhere)]).faults
    faults = faults[faults["problem"].str.contains("different plans")]
    assert faults["part"].tolist() == [str(other)]
    assert f"'{part}' and '{other}' are of different" in faults["problem"].iloc[0]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", ["shard", "shards.csv", "train.csv", "labels.json", "plan.json", "index"]
)
def test_a_pipe_in_the_place_of_a_file_is_named(part, name):
    """It would wait for a writer for ever."""
    shard = min(part.glob("*.tfrec")).name
    name = {"shard": shard, "index": f"index/{shard}.idx"}.get(name, name)
    (part / name).unlink()
    os.mkfifo(part / name)

    assert name in set(verify_parts(str(part)).faults["file"])


def test_a_folder_of_parts_is_verified_part_by_part(tmp_path):
    """WORK_DIR, with a finished part and one that a run has only begun to write."""
    two_parts(make_images(tmp_path / "images", 18), tmp_path, n_shards=6)
    write_parts(str(tmp_path))
    found = verify_parts(str(tmp_path), str(tmp_path))
    parts = [f"{tmp_path}/part-{number}" for number in (1, 2)]
    assert found.faults.empty
    assert list(found.stats) == parts
    (tmp_path / "part-2" / "shards.csv").unlink()
    assert set(verify_parts(str(tmp_path)).faults["part"]) == set(parts[1:])


@pytest.mark.parametrize("text", ["", "file,split\na,b\n", "\x00\x01"])
def test_a_broken_list_of_shards_is_named(part, text):
    """An unreadable shards.csv is a fault of its own, not a crash; the same for a split's table."""
    kept = (part / "shards.csv").read_text()
    (part / "shards.csv").write_text(text)
    assert verify_parts(str(part)).faults["file"].tolist() == ["shards.csv"]
    (part / "shards.csv").write_text(kept)
    (part / "train.csv").write_text(text)
    assert verify_parts(str(part)).faults["file"].tolist() == ["train.csv"]


def test_masks_and_lists_are_held_against_the_plan_too(tmp_path):
    """Run-length codes that follow the picture's new size, and several labels, verify clean."""
    table = make_images(tmp_path / "images", 12, sizes=(60, 90))
    table = table.assign(Fish="1 7 100 20", Gravel="")
    masks = Labels("masks", ("Fish", "Gravel"), ("Fish", "Gravel"))
    plan_images(table, tmp_path, n_shards=3, size=30, labels=masks)
    write_parts(str(tmp_path))
    assert verify_parts(str(tmp_path / "part-1")).faults.empty
    codes = pd.read_csv(tmp_path / "part-1" / "train.csv")
    assert {"Fish", "Gravel", "source_height"} <= set(codes)


def test_a_good_part_has_no_fault_and_shows_its_sources(made):
    """No fault is an empty table; a few have a high PSNR, far less with red and blue swapped."""
    found = verify_parts([str(made / "part-1")], str(made), sample=12)
    assert found.faults.empty
    assert list(found.faults.columns) == ["part", "file", "record", "offset", "problem"]
    assert len(found.sources) == 6  # one in a hundred, or so many
    assert found.sources["psnr"].min() > 25
    assert (found.sources["psnr"] > found.sources["psnr_swapped"] + 5).all()
    with pytest.raises(
        FileNotFoundError, match=r"is not a part that 04_write wrote: .*shards\.csv"
    ):
        verify_parts(str(made / "images"))


TURNS = {
    "red and blue are swapped": lambda p: p[..., ::-1],
    "rotated 180": lambda p: p[::-1, ::-1],
    "mirrored": lambda p: p[:, ::-1],
}


@pytest.mark.parametrize(("message", "wrong"), TURNS.items())
def test_swapped_and_turned_pictures_are_named(made, part, message, wrong):
    """Pictures in BGR, or that lie the wrong way, are faults of their records."""

    def change(_, feature):
        image = feature["image"].bytes_list
        pixels = wrong(tf.io.decode_jpeg(image.value[0]).numpy())
        image.value[0] = tf.io.encode_jpeg(pixels, quality=95).numpy()

    rewrite(part, change)
    found = verify_parts([str(part)], str(made), seed=1)
    wrong = found.faults["problem"].str.contains(
        f"does not show its source as it is.*{message}"
    )
    assert wrong.all()
    assert found.faults["file"].unique().tolist() == [min(part.glob("*.tfrec")).name]
    assert found.sources["problem"].str.contains(message).sum() == len(found.faults) > 0


@pytest.mark.parametrize("resize", ["center_crop", "fill", "stretch"])
def test_the_comparison_knows_every_way_to_resize(resize):
    """The reference is cut and scaled as the record was, so a right one fits, a turned one not."""
    source = tf.io.encode_png(draw_picture(90, 140, 1)).numpy()
    for size in ((40, 32), (40, 40)):
        settings = ImageSettings(size, resize, quality=95)
        pixels = tf.io.decode_jpeg(convert(source, settings).data).numpy()
        psnr, _, problem = compare_with_source(source, pixels, settings)
        assert psnr > 25
        assert not problem
    turned = compare_with_source(source, np.rot90(pixels), settings)[2]
    assert turned == "the image is rotated 90° counterclockwise"


def test_a_grey_picture_may_look_the_same_swapped():
    """Where red equals blue, and in symmetric pictures, nothing is claimed."""
    flat = np.full((40, 40, 3), 120, np.uint8)
    assert not compare_with_source(
        tf.io.encode_png(flat).numpy(), flat, ImageSettings((40, 40))
    )[2]


def test_columns_called_like_ours_survive_writing(tmp_path):
    """A CSV's own `file` and `record` get a prefix: the part's tables hold others."""
    rows = [f"{k}.jpg,{'xy'[k % 2]},scan-{k}.dcm,{k}" for k in range(6)]
    (tmp_path / "in").mkdir()
    text = "\n".join(["image_id,label,file,record", *rows, ""])
    (tmp_path / "in" / "train.csv").write_text(text)
    for k, picture in enumerate(draw_pictures(6, 40, 50)):
        save_picture(picture, tmp_path / "in" / "train_images" / f"{k}.jpg")
    schema = {"image": "image", "label": "label", "f": "csv_file", "r": "csv_record"}
    given = {
        "INPUT_DIR": str(tmp_path / "in"),
        "SCHEMA": schema,
        "N_FOLDS": 2,
        "N_SHARDS": 2,
    }

    run_chain(
        "sample", str(tmp_path / "work"), **given, TEST_PATH_TEMPLATE="", KEEP="all"
    )

    part = str(tmp_path / "work" / "part-1")
    assert verify_parts(part).faults.empty
    kinds = {
        "f": tf.io.FixedLenFeature([], tf.string),
        "r": tf.io.FixedLenFeature([], tf.int64),
    }
    records = read_plainly(
        sorted((tmp_path / "work" / "part-1").glob("*.tfrec")), features=kinds
    )
    held = {record["r"]: record["f"] for record in records}
    assert held == {k: f"scan-{k}.dcm".encode() for k in range(6)}
