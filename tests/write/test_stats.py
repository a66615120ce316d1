"""Channel means and deviations: exact over all pixels, from files and from records."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from support.chain import draw_pictures, run_chain, save_picture

from kaggle_tfr.explore.rows import read_table
from kaggle_tfr.explore.table import measure
from kaggle_tfr.write.verify import (
    _combine,
    _sums_of,
    channel_stats_of_files,
    channel_stats_of_records,
    save_stats,
)


def compute_directly(pictures):
    """Mean and population deviation of all pixels at once, as NumPy has them."""
    pixels = np.concatenate([np.asarray(picture).reshape(-1, 3) for picture in pictures])
    return pixels.mean(axis=0, dtype=np.float64), pixels.std(axis=0, dtype=np.float64)


def agree(found, expected):
    mean, std = ([found[kind][name] for name in "RGB"] for kind in ("mean", "std"))
    assert np.allclose(mean, expected[0], atol=1e-6, rtol=0)
    assert np.allclose(std, expected[1], atol=1e-6, rtol=0)


@pytest.fixture
def folder(tmp_path):
    """Pictures of different sizes, so that a mean of means would be wrong; one of them broken."""
    for k, side in enumerate((40, 160, 90, 300)):
        picture = draw_pictures(k + 1, side, side + 20)[k]
        kind = "png" if k == 1 else "jpg"
        save_picture(picture, tmp_path / "in" / ["a", "b"][k % 2] / f"{k}.{kind}")
    (tmp_path / "in" / "b" / "bad.jpg").write_bytes(b"no picture")
    return tmp_path / "in"


def test_files_as_numpy_has_them(folder):
    """
    Mean and deviation of every pixel of every good file; refused ones are left out.
    """
    images = measure(read_table("folders", str(folder)))
    good = [Image.open(path).convert("RGB") for path in images["path"][images["problem"] == ""]]

    found = channel_stats_of_files(images)

    agree(found, compute_directly(good))
    assert found["images"] == 4
    assert found["pixels"] == sum(picture.width * picture.height for picture in good)


def test_records_as_numpy_has_them(folder, tmp_path):
    """
    The same of the pictures in the records, decoded by Pillow here.
    """
    work = str(tmp_path / "work")
    run_chain(
        "flowers", work, INPUT_DIR=str(folder), RESIZE="short_side", IMAGE_SIZE=32, N_SHARDS=2
    )
    files = [str(path) for path in Path(work, "part-1").glob("*.tfrecord")]
    features = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
    data = tf.data.TFRecordDataset(files).map(lambda r: tf.io.parse_single_example(r, features))
    stored = [record["image/encoded"] for record in data.as_numpy_iterator()]

    found = channel_stats_of_records(str(Path(work, "part-1")))

    agree(found, compute_directly([Image.open(io.BytesIO(one)).convert("RGB") for one in stored]))
    assert found["images"] == len(stored) == 4


def test_the_real_flowers_file_by_file(data_dir):
    """
    4,317 photographs agree with NumPy to 1e-6.
    """
    table = read_table("folders", str(data_dir / "flowers"))
    counts = np.zeros((3, 256), np.int64)
    for path in table["path"]:
        histogram = Image.open(path).convert("RGB").histogram()
        counts += np.reshape(histogram, (3, 256))
    levels, total = np.arange(256.0), counts.sum(axis=1)
    mean = counts @ levels / total
    std = np.sqrt((counts * (levels[None] - mean[:, None]) ** 2).sum(axis=1) / total)

    agree(channel_stats_of_files(table), (mean, std))


@pytest.mark.heavy
def test_the_real_flowers_record_by_record(data_dir, tmp_path):
    """
    With original bytes in the records both ways agree to the last digit.
    """
    images, _, _ = run_chain(
        "flowers", str(tmp_path), INPUT_DIR=str(data_dir / "flowers"), KEEP="all", CONFLICTS="keep"
    )

    of_records = channel_stats_of_records(str(tmp_path / "part-1"))

    assert of_records == channel_stats_of_files(images)
    assert of_records["images"] == 4317


def test_json_keeps_the_numbers(tmp_path):
    """
    The mean alone is the flat {"R", "G", "B"} that ImageNet scripts read.
    """
    stats = {"mean": {"R": 1.5, "G": 2.0, "B": 0.1}, "std": {"R": 1, "G": 1, "B": 1}}
    save_stats(stats["mean"], str(tmp_path / "mean.json"))

    assert json.loads((tmp_path / "mean.json").read_text()) == stats["mean"]


def test_nothing_to_average_is_an_error():
    """
    No good image, no mean.
    """
    empty = pd.DataFrame({"path": ["x"], "problem": ["missing file"]})

    with pytest.raises(ValueError, match="no pixel to average"):
        channel_stats_of_files(empty)


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
    agree(_combine([_sums_of(picture) for picture in pictures]), compute_directly(pictures))
