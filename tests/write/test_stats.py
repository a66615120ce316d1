"""Channel means and deviations: exact over all pixels, from files and from records."""

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image
from support.plans import make_images, read_plainly, two_parts, verify, write
from support.scenes import opened

from kaggle_tfr.plan.plan import save_plan
from kaggle_tfr.write import stats

SPLITS = ["train", "validation", "test"]
BRIGHTNESS = {"train": 1.0, "validation": 0.5, "test": 0.2}


def check_stats(description, images):
    """Compare mean, population deviation and number of pixels with NumPy's."""
    arrays = [np.asarray(image).reshape(-1, 3) for image in images]
    pixels = np.concatenate(arrays)
    for name in ("mean", "std"):
        values = [description[name][channel] for channel in "RGB"]
        expected = getattr(pixels, name)(axis=0, dtype=np.float64)
        assert np.allclose(values, expected, atol=1e-6, rtol=0)
    assert description["pixels"] == len(pixels)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(table of images, work folder) of three splits with different brightness."""
    folder = tmp_path_factory.mktemp("stats")
    images = make_images(folder / "in", 48)
    images["split"] = np.repeat(SPLITS, [30, 12, 6])
    is_train = images["split"] == "train"
    images["fold"] = images["fold"].where(is_train, -1)
    for row in images.itertuples():
        darken_image(row.path, BRIGHTNESS[row.split])
    images["n_bytes"] = images["path"].map(os.path.getsize)

    plan, table = two_parts(images, folder, n_shards=12)
    plan = replace(plan, shard_limit_bytes=1 << 40)
    save_plan(plan, table, str(folder))
    shards = write(folder)
    assert shards["part"].nunique() == 2
    return images, folder


def darken_image(path, factor):
    """Multiply the pixels of an image file by a factor."""
    image = Image.open(path)
    darkened = image.point(lambda value: value * factor)
    darkened.save(path, quality=95)


def read_images(files):
    """Return the images in shards, by TensorFlow's reader and Pillow."""
    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    records = read_plainly(files, features=features)
    return [opened(record["image"]).convert("RGB") for record in records]


def test_stats_of_files_equal_numpy_s(written):
    """Every pixel of a split's files counts; files that cannot be read are left out."""
    images, work = written
    bad_path = work / "bad.jpg"
    bad_path.write_bytes(b"not an image")
    bad_images = images.iloc[[0, 0]].assign(
        path=str(bad_path),
        problem=["not an image", ""],
    )
    all_images = pd.concat([images, bad_images])

    sums = stats.channel_stats_of_files(all_images)

    for split, rows in images.groupby("split"):
        originals = [Image.open(path).convert("RGB") for path in rows["path"]]
        description = stats.describe_sums(sums[split])
        check_stats(description, originals)
        assert description["images"] == len(rows)


def test_a_part_s_stats_are_those_of_its_train_records(written, tmp_path):
    """stats.json describes train, and in "splits" each split."""
    _, work = written
    part = work / "part-1"
    path = tmp_path / "stats.json"
    verified = verify(part)
    stats.save_stats(verified.stats[str(part)], str(path))

    saved = json.loads(path.read_text())
    splits = saved.pop("splits")
    assert saved == splits["train"]
    assert set(splits) == set(SPLITS)
    shards = pd.read_csv(part / "shards.csv")
    for split, rows in shards.groupby("split"):
        images = read_images(part / file for file in rows["file"])
        description = splits[split]
        check_stats(description, images)
        n_images = rows["count"].sum()
        assert description["images"] == n_images
        assert len(images) == n_images


def test_without_train_the_stats_are_of_all_splits(tmp_path):
    """A part of test images alone has a mean too."""
    dark = np.zeros((1, 1, 3), np.uint8)
    light = np.full((1, 3, 3), 40, np.uint8)
    sums = {"a": stats.sum_channels(dark), "b": stats.sum_channels(light)}
    path = tmp_path / "stats.json"
    stats.save_stats(sums, str(path))

    saved = json.loads(path.read_text())
    assert saved["mean"] == dict.fromkeys("RGB", 30)
    assert saved["splits"]["b"]["mean"] == dict.fromkeys("RGB", 40)


def test_mean_rgb_has_imagenet_s_form(written):
    """mean_rgb/ has {"R", "G", "B"} of files and of records, for each split."""
    images, work = written
    verified = verify(work)
    of_files = stats.channel_stats_of_files(images)
    of_records = stats.combine_stats(verified.stats.values())
    stats.save_mean_rgb(of_files, of_records, str(work))

    for split in SPLITS:
        for origin, sums in (("files", of_files), ("records", of_records)):
            path = work / "mean_rgb" / f"{split}_{origin}.json"
            mean = json.loads(path.read_text())
            assert list(mean) == ["R", "G", "B"]
            assert mean == stats.describe_sums(sums[split])["mean"]
