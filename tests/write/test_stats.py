"""Channel means and deviations: exact over all pixels, from files and from records."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image
from support.plans import make_images, two_parts

from kaggle_tfr.plan.plan import save_plan
from kaggle_tfr.write import stats
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.verify import verify_parts

SPLITS = ["train", "validation", "test"]
BRIGHTNESS = {"train": 1.0, "validation": 0.5, "test": 0.2}


def join_pixels(images):
    """Return the pixels of all images in one array (n, 3)."""
    return np.concatenate([np.asarray(image).reshape(-1, 3) for image in images])


def check_mean(mean, images):
    """Compare a mean by channel name with NumPy's."""
    expected = join_pixels(images).mean(axis=0, dtype=np.float64)
    assert np.allclose([mean[name] for name in "RGB"], expected, atol=1e-6, rtol=0)


def check_stats(description, images):
    """Compare mean, population deviation and number of pixels with NumPy's."""
    pixels = join_pixels(images)
    std = [description["std"][name] for name in "RGB"]
    expected = pixels.std(axis=0, dtype=np.float64)
    check_mean(description["mean"], images)
    assert np.allclose(std, expected, atol=1e-6, rtol=0)
    assert description["pixels"] == len(pixels)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(table of images, work folder) of three splits with different brightness."""
    folder = tmp_path_factory.mktemp("stats")
    images = make_images(folder / "in", 48)
    images["split"] = np.repeat(SPLITS, [30, 12, 6])
    images["fold"] = np.where(images["split"] == "train", images["fold"], -1)
    for path, split in zip(images["path"], images["split"], strict=True):
        factor = BRIGHTNESS[split]
        image = Image.open(path).point(lambda value, factor=factor: value * factor)
        image.save(path, quality=95)
    images["n_bytes"] = [Path(path).stat().st_size for path in images["path"]]
    plan, table = two_parts(images, folder, n_shards=12)
    save_plan(replace(plan, shard_limit_bytes=1 << 40), table, str(folder))
    assert len(write_parts(str(folder))["part"].unique()) == 2
    return images, folder


def read_images(files):
    """Return the images in shards, by TensorFlow's reader and Pillow."""
    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    images = []
    for record in tf.data.TFRecordDataset(list(map(str, files))):
        data = tf.io.parse_single_example(record, features)["image"].numpy()
        images.append(Image.open(io.BytesIO(data)).convert("RGB"))
    return images


def test_stats_of_files_equal_numpy_s(written):
    """Every pixel of a split's files counts; files that cannot be read are left out."""
    images, work = written
    (work / "bad.jpg").write_bytes(b"no picture")
    bad_images = images.iloc[[0, 0]].assign(
        path=str(work / "bad.jpg"), problem=["not an image", ""]
    )

    sums = stats.channel_stats_of_files(pd.concat([images, bad_images]))

    for split, rows in images.groupby("split"):
        originals = [Image.open(path).convert("RGB") for path in rows["path"]]
        check_stats(stats.describe_sums(sums[split]), originals)
        assert sums[split]["images"] == len(rows)


def test_a_part_s_stats_are_those_of_its_train_records(written, tmp_path):
    """stats.json describes train, and in "splits" each split."""
    part = written[1] / "part-1"
    verified = verify_parts(str(part))
    stats.save_stats(verified.stats[str(part)], str(tmp_path / "stats.json"))

    saved = json.loads((tmp_path / "stats.json").read_text())
    splits = saved.pop("splits")
    assert saved == splits["train"]
    assert set(splits) == set(SPLITS)
    for split, rows in pd.read_csv(part / "shards.csv").groupby("split"):
        images = read_images(part / file for file in rows["file"])
        check_stats(splits[split], images)
        assert splits[split]["images"] == len(images) == rows["count"].sum()


def test_without_train_the_stats_are_of_all_splits(tmp_path):
    """A part of test images alone has a mean too."""
    dark = stats.sum_channels(np.zeros((1, 1, 3), np.uint8))
    light = stats.sum_channels(np.full((1, 3, 3), 40, np.uint8))
    stats.save_stats({"a": dark, "b": light}, str(tmp_path / "stats.json"))

    saved = json.loads((tmp_path / "stats.json").read_text())
    assert saved["mean"] == dict.fromkeys("RGB", 30)
    assert saved["splits"]["b"]["mean"] == dict.fromkeys("RGB", 40)


def test_stats_of_no_pixel_are_an_error(tmp_path):
    """There is no mean to save."""
    with pytest.raises(ValueError, match="no pixel to average"):
        stats.save_stats({}, str(tmp_path / "stats.json"))


def test_mean_rgb_has_imagenet_s_form(written):
    """mean_rgb/ has {"R", "G", "B"} of each split, of files and of all parts' records."""
    images, work = written
    parts = [work / f"part-{number}" for number in (1, 2)]
    verified = verify_parts([str(part) for part in parts])

    of_files = stats.channel_stats_of_files(images)
    of_records = stats.combine_stats(verified.stats.values())
    paths = stats.save_mean_rgb(of_files, of_records, str(work))

    tables = [pd.read_csv(part / "shards.csv").assign(folder=part) for part in parts]
    shards = pd.concat(tables)
    expected_paths = set()
    for split in SPLITS:
        rows = shards[shards["split"] == split]
        records = read_images(
            folder / file
            for folder, file in zip(rows["folder"], rows["file"], strict=True)
        )
        files = images.loc[images["split"] == split, "path"]
        originals = [Image.open(path) for path in files]
        for origin, pictures in (("files", originals), ("records", records)):
            path = work / "mean_rgb" / f"{split}_{origin}.json"
            mean = json.loads(path.read_text())
            assert list(mean) == ["R", "G", "B"]
            check_mean(mean, pictures)
            expected_paths.add(path)
    assert set(map(Path, paths)) == expected_paths
