"""Channel means and deviations: exact over all pixels, by split, from files and from records."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from support.chain import run_chain
from support.plans import make_images, two_parts

from kaggle_tfr.plan.plan import save_plan
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.verify import (
    channel_stats_of_files,
    combine_stats,
    describe_sums,
    save_mean_rgb,
    save_stats,
    sum_channels,
    verify_parts,
)

SPLITS = ["train", "validation", "test"]


def compute_directly(pictures):
    """Mean and population deviation of all pixels at once, as NumPy has them."""
    pixels = np.concatenate([np.asarray(picture).reshape(-1, 3) for picture in pictures])
    return pixels.mean(axis=0, dtype=np.float64), pixels.std(axis=0, dtype=np.float64)


def agree(found, expected):
    mean, std = ([found[kind][name] for name in "RGB"] for kind in ("mean", "std"))
    assert np.allclose(mean, expected[0], atol=1e-6, rtol=0)
    assert np.allclose(std, expected[1], atol=1e-6, rtol=0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(images, work folder): three splits of different brightness in two parts."""
    folder = tmp_path_factory.mktemp("stats")
    images = make_images(folder / "in", 48)
    images["split"] = np.repeat(SPLITS, [30, 12, 6])
    images["fold"] = np.where(images["split"] == "train", images["fold"], -1)
    for path, split in zip(images["path"], images["split"], strict=True):
        grey = {"train": 1.0, "validation": 0.5, "test": 0.2}[split]
        Image.open(path).point(lambda value, grey=grey: value * grey).save(path, quality=95)
    plan, table = two_parts(images, folder, n_shards=10)
    save_plan(replace(plan, shard_limit_bytes=1 << 40), table, str(folder))
    assert len(write_parts(str(folder))["part"].unique()) == 2
    return images, folder


def read_pictures(files):
    """The pictures in records, by TensorFlow's reader and Pillow."""
    feature = {"image": tf.io.FixedLenFeature([], tf.string)}
    data = tf.data.TFRecordDataset(list(map(str, files)))
    data = data.map(lambda record: tf.io.parse_single_example(record, feature)["image"])
    return [Image.open(io.BytesIO(one)).convert("RGB") for one in data.as_numpy_iterator()]


def test_files_as_numpy_has_them_by_split(made):
    """
    Mean and deviation of every pixel of a split's good files; refused and broken ones are left out.
    """
    images, work = made
    (work / "bad.jpg").write_bytes(b"no picture")
    bad = images.iloc[[0, 0]].assign(path=str(work / "bad.jpg"), problem=["not an image", ""])

    found = channel_stats_of_files(pd.concat([images, bad]))

    for split, own in images.groupby("split"):
        good = [Image.open(path).convert("RGB") for path in own["path"]]
        agree(describe_sums(found[split]), compute_directly(good))
        assert found[split]["images"] == len(own)
        assert found[split]["pixels"] == sum(picture.width * picture.height for picture in good)


def test_a_part_s_stats_are_those_of_its_train_records(made, tmp_path):
    """
    stats.json: mean and std of train alone, and each split's own below "splits".
    """
    part = made[1] / "part-1"
    shards = pd.read_csv(part / "shards.csv")

    save_stats(verify_parts(str(part)).stats[str(part)], str(tmp_path / "stats.json"))

    found = json.loads((tmp_path / "stats.json").read_text())
    splits = found.pop("splits")
    assert found == splits["train"]
    assert set(splits) == set(SPLITS)
    for split, own in shards.groupby("split"):
        pictures = read_pictures(part / file for file in own["file"])
        agree(splits[split], compute_directly(pictures))
        assert splits[split]["images"] == len(pictures) == own["count"].sum()


def test_without_train_the_stats_are_of_all_splits(tmp_path):
    """
    A part of test images alone has a mean too; without any pixel there is an error.
    """
    dark, light = np.zeros((1, 1, 3), np.uint8), np.full((1, 3, 3), 40, np.uint8)
    save_stats({"a": sum_channels(dark), "b": sum_channels(light)}, str(tmp_path / "stats.json"))

    found = json.loads((tmp_path / "stats.json").read_text())

    assert found["mean"] == dict.fromkeys("RGB", 30)
    assert found["splits"]["b"]["mean"] == dict.fromkeys("RGB", 40)
    with pytest.raises(ValueError, match="no pixel to average"):
        save_stats({}, str(tmp_path / "stats.json"))


def test_parts_combine_exactly_and_imagenet_s_means_are_files(made):
    """
    mean_rgb/: {"R", "G", "B"} a split, of the files and of both parts' records together.
    """
    images, work = made
    checked = verify_parts([str(work / f"part-{number}") for number in (1, 2)])
    records = combine_stats(checked.stats.values())

    paths = save_mean_rgb(channel_stats_of_files(images), records, str(work))

    names = {f"{split}_{kind}.json" for split in SPLITS for kind in ("files", "records")}
    assert {Path(path).name for path in paths} == names
    assert {path.name for path in (work / "mean_rgb").iterdir()} == names
    for split, own in images.groupby("split"):
        listed = [pd.read_csv(work / f"part-{k}" / "shards.csv").assign(part=k) for k in (1, 2)]
        rows = pd.concat(listed).query("split == @split").itertuples()
        written = read_pictures(work / f"part-{row.part}" / row.file for row in rows)
        originals = [Image.open(path) for path in own["path"]]
        for kind, pictures in (("files", originals), ("records", written)):
            found = json.loads((work / "mean_rgb" / f"{split}_{kind}.json").read_text())
            assert list(found) == ["R", "G", "B"]
            assert np.allclose(list(found.values()), compute_directly(pictures)[0], atol=1e-6)


@pytest.mark.heavy
def test_the_real_flowers_file_by_file_and_record_by_record(data_dir, tmp_path):
    """
    4,317 photographs agree with NumPy to 1e-6; records of original bytes to the last digit.
    """
    flowers = {"INPUT_DIR": str(data_dir / "flowers"), "KEEP": "all", "CONFLICTS": "keep"}
    images, _, _ = run_chain("flowers", str(tmp_path), **flowers)
    counts = np.zeros((3, 256), np.int64)
    for path in images["path"]:
        counts += np.reshape(Image.open(path).convert("RGB").histogram(), (3, 256))
    levels, total = np.arange(256.0), counts.sum(axis=1)
    mean = counts @ levels / total
    std = np.sqrt((counts * (levels[None] - mean[:, None]) ** 2).sum(axis=1) / total)

    files = channel_stats_of_files(images)
    records = verify_parts(str(tmp_path / "part-1")).stats[str(tmp_path / "part-1")]

    agree(describe_sums(files["train"]), (mean, std))
    assert combine_stats([{"all": sums} for sums in records.values()])["all"] == files["train"]
    assert files["train"]["images"] == 4317


@given(
    st.lists(
        arrays.arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 5), st.just(3))),
        min_size=1,
        max_size=5,
    )
)
def test_any_pictures_add_up(pictures):
    """
    Sums of any pictures in any pieces give NumPy's mean and deviation of them all.
    """
    combined = combine_stats([{"": sum_channels(picture)} for picture in pictures])
    agree(describe_sums(combined[""]), compute_directly(pictures))
