"""Channel means and deviations: exact over all pixels, from files and from records."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image
from support.plans import (
    make_images,
    plan_images,
    read_plainly,
    two_parts,
    verify,
    write,
)
from support.scenes import opened

from kaggle_tfr.write import stats

SPLITS = ["train", "validation", "test"]


def check_stats(description, images):
    """Compare mean, population deviation and number of pixels with NumPy's."""
    arrays = [np.asarray(image).reshape(-1, 3) for image in images]
    pixels = np.concatenate(arrays)
    assert description["pixels"] == len(pixels)
    assert description["images"] == len(arrays)
    for name in ("mean", "std"):
        values = [description[name][channel] for channel in "RGB"]
        expected = getattr(pixels, name)(axis=0, dtype=float)
        assert np.allclose(values, expected, atol=1e-6, rtol=0)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(table of images, work folder) of two parts of three splits."""
    folder = tmp_path_factory.mktemp("stats")
    images = make_images(folder / "in", 48)
    images["split"] = np.repeat(SPLITS, [30, 12, 6])
    images["fold"] = images["fold"].where(images["split"] == "train", -1)
    two_parts(images, folder, n_shards=12)
    assert write(folder)["part"].nunique() == 2
    return images, folder


def test_stats_of_files_equal_numpy_s(written):
    """Every pixel of a split's files counts; a split of bad files is left out."""
    images, work = written
    bad_path = work / "bad.jpg"
    bad_path.write_bytes(b"not an image")
    bad_image = images.iloc[[0]].assign(path=str(bad_path), split="bad")

    sums = stats.channel_stats_of_files(pd.concat([images, bad_image]))

    assert set(sums.index) == set(SPLITS)
    for split, rows in images.groupby("split"):
        check_stats(stats.describe_sums(sums.loc[split]), map(Image.open, rows["path"]))


def test_a_part_without_a_readable_image_has_no_stats(tmp_path):
    """04 reports the rejects, and ends well."""
    images = make_images(tmp_path / "in", 3)
    plan_images(images, tmp_path, n_shards=3)
    for path in images["path"]:
        Path(path).write_bytes(b"not an image")
    write(tmp_path)
    assert verify(tmp_path).stats.groupby("split").sum().empty


def test_a_part_s_stats_are_those_of_its_train_records(written):
    """stats.json describes train, and in "splits" each split."""
    _, work = written
    part = work / "part-1"
    verified = verify(part)
    stats.save_stats(verified.stats.loc[str(part)], str(part))

    saved = json.loads((part / "stats.json").read_text())
    splits = saved.pop("splits")
    assert saved == splits["train"]
    assert set(splits) == set(SPLITS)
    features = {"image": tf.io.FixedLenFeature([], tf.string)}
    for split, rows in pd.read_csv(part / "shards.csv").groupby("split"):
        records = read_plainly(f"{part}/" + rows["file"], features=features)
        check_stats(splits[split], [opened(record["image"]) for record in records])
        assert splits[split]["images"] == rows["count"].sum()
