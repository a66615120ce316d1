"""Channel means and deviations: exact over all pixels, by split, from files and from records."""

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


def agree(found, pictures):
    """Mean and population deviation are NumPy's of all pixels at once."""
    pixels = np.concatenate(
        [np.asarray(picture).reshape(-1, 3) for picture in pictures]
    )
    for kind in found.keys() & {"mean", "std"}:
        expected = getattr(pixels, kind)(axis=0, dtype=np.float64)
        assert np.allclose(
            [found[kind][name] for name in "RGB"], expected, atol=1e-6, rtol=0
        )
    assert found.get("pixels", len(pixels)) == len(pixels)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(images, work folder): three splits of different brightness in two parts."""
    folder = tmp_path_factory.mktemp("stats")
    images = make_images(folder / "in", 48)
    images["split"] = np.repeat(SPLITS, [30, 12, 6])
    images["fold"] = np.where(images["split"] == "train", images["fold"], -1)
    for path, split in zip(images["path"], images["split"], strict=True):
        grey = {"train": 1.0, "validation": 0.5, "test": 0.2}[split]
        Image.open(path).point(lambda value, grey=grey: value * grey).save(
            path, quality=95
        )
    images["n_bytes"] = [Path(path).stat().st_size for path in images["path"]]
    plan, table = two_parts(images, folder, n_shards=12)
    save_plan(replace(plan, shard_limit_bytes=1 << 40), table, str(folder))
    assert len(write_parts(str(folder))["part"].unique()) == 2
    return images, folder


def read_pictures(files):
    """The pictures in records, by TensorFlow's reader and Pillow."""
    feature = {"image": tf.io.FixedLenFeature([], tf.string)}
    data = tf.data.TFRecordDataset(list(map(str, files)))
    data = data.map(lambda record: tf.io.parse_single_example(record, feature)["image"])
    return [
        Image.open(io.BytesIO(one)).convert("RGB") for one in data.as_numpy_iterator()
    ]


def test_files_as_numpy_has_them_by_split(made):
    """Mean and deviation of every pixel of a split's good files; bad ones are left out."""
    images, work = made
    (work / "bad.jpg").write_bytes(b"no picture")
    bad = images.iloc[[0, 0]].assign(
        path=str(work / "bad.jpg"), problem=["not an image", ""]
    )
    found = stats.channel_stats_of_files(pd.concat([images, bad]))

    for split, own in images.groupby("split"):
        good = [Image.open(path).convert("RGB") for path in own["path"]]
        agree(stats.describe_sums(found[split]), good)
        assert found[split]["images"] == len(own)


def test_a_part_s_stats_are_those_of_its_train_records(made, tmp_path):
    """stats.json: mean and std of train alone, and each split's own below "splits"."""
    part = made[1] / "part-1"
    stats.save_stats(
        verify_parts(str(part)).stats[str(part)], str(tmp_path / "stats.json")
    )
    found = json.loads((tmp_path / "stats.json").read_text())
    splits = found.pop("splits")
    assert found == splits["train"]
    assert set(splits) == set(SPLITS)
    for split, own in pd.read_csv(part / "shards.csv").groupby("split"):
        pictures = read_pictures(part / file for file in own["file"])
        agree(splits[split], pictures)
        assert splits[split]["images"] == len(pictures) == own["count"].sum()


def test_without_train_the_stats_are_of_all_splits(tmp_path):
    """A part of test images alone has a mean too; without any pixel there is an error."""
    dark, light = np.zeros((1, 1, 3), np.uint8), np.full((1, 3, 3), 40, np.uint8)
    sums = {"a": stats.sum_channels(dark), "b": stats.sum_channels(light)}
    stats.save_stats(sums, str(tmp_path / "stats.json"))
    found = json.loads((tmp_path / "stats.json").read_text())
    assert found["mean"] == dict.fromkeys("RGB", 30)
    assert found["splits"]["b"]["mean"] == dict.fromkeys("RGB", 40)
    with pytest.raises(ValueError, match="no pixel to average"):
        stats.save_stats({}, str(tmp_path / "stats.json"))


def test_parts_combine_exactly_and_imagenet_s_means_are_files(made):
    """mean_rgb/: {"R", "G", "B"} a split, of the files and of both parts' records together."""
    images, work = made
    parts = [work / f"part-{number}" for number in (1, 2)]
    verified = verify_parts([str(part) for part in parts])
    records = stats.combine_stats(verified.stats.values())
    paths = stats.save_mean_rgb(
        stats.channel_stats_of_files(images), records, str(work)
    )

    names = {
        f"{split}_{kind}.json" for split in SPLITS for kind in ("files", "records")
    }
    assert set(map(Path, paths)) == {work / "mean_rgb" / name for name in names}
    listed = pd.concat(
        pd.read_csv(part / "shards.csv").assign(at=str(part)) for part in parts
    )
    for split, rows in listed.groupby("split"):
        originals = [
            Image.open(path) for path in images.loc[images["split"] == split, "path"]
        ]
        written = read_pictures(rows["at"] + "/" + rows["file"])
        for kind, pictures in (("files", originals), ("records", written)):
            found = json.loads((work / f"mean_rgb/{split}_{kind}.json").read_text())
            assert list(found) == ["R", "G", "B"]
            agree({"mean": found}, pictures)
