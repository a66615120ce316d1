"""What notebook 05 shows: records beside sources of any format, and masks."""

import io
import time

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from PIL import Image
from support.readers import (
    make_example,
    make_record,
    save_noise,
    write_part,
    write_shard,
)

from kaggle_tfr import read
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.images.masks import encode_mask
from kaggle_tfr.schema import load_schema


def save_source(path, format_):
    """Save an image of 60 × 40, dark except for its bright left third."""
    pixels = np.full((40, 60, 3), 20, np.uint8)
    pixels[:, :20] = 230
    image = Image.fromarray(pixels)
    if format_ == "EXIF":
        exif = Image.Exif()
        exif[0x0112] = 6  # stored rotated; a viewer rotates it by 90° clockwise
        rotated = image.transpose(Image.Transpose.ROTATE_90)
        rotated.save(
            path,
            "JPEG",
            exif=exif,
            quality=95,
        )
    else:
        image.save(path, format_)
    return str(path)


def save_plan(work, sources):
    """Save a plan with the paths of the source images."""
    training = pd.DataFrame(sources.items(), columns=["image_id", "path"])
    training["split"] = "train"
    training["height"] = 40
    training["width"] = 60
    test = training.assign(split="test", path="another image with the same id")
    plan = pd.concat([training, test])
    plan.to_parquet(work / "plan.parquet")


def pair_with_sources(part, work):
    shards = read.find_shards(part)
    return read.pair_with_sources(shards, str(work))


@pytest.mark.parametrize("format_", ["EXIF", "TIFF", "AVIF", "JPEG2000", "JPEG"])
def test_a_source_of_any_format_is_upright_beside_its_record(tmp_path, format_):
    """Also an image rotated by EXIF, or of a format that TensorFlow cannot decode."""
    records = [make_record(7), make_record(8)]
    part = write_part(tmp_path / "part", {"a.tfrec": (0, records)})
    columns = {
        "image_id": ["lost", "kept"],
        "file": "a.tfrec",
        "record": [0, 1],
    }
    rows = pd.DataFrame(columns)
    rows.to_csv(tmp_path / "part" / "train.csv", index=False)
    sources = {
        "kept": save_source(tmp_path / "source", format_),
        "lost": str(tmp_path / "nowhere"),
    }
    save_plan(tmp_path, sources)

    pairs, titles = pair_with_sources(part, tmp_path)

    [(source, image)] = pairs
    bright_third = source[:, :18]
    dark_rest = source[:, 22:]
    assert source.shape == (40, 60, 3)
    assert 224 < bright_third.mean() < 236
    assert 14 < dark_rest.mean() < 26
    assert 7 <= image.mean() <= 9
    assert titles == [("kept\n60 × 40", "record 1\n48 × 32")]


def test_sources_are_found_at_the_end_of_a_large_csv(tmp_path):
    """The rows of a late fold are at the end of the CSV of a large split."""
    records = [make_record(3), make_record(4)]
    part = write_part(tmp_path, {"z.tfrec": (9, records)})
    n_early = 119_998
    early_rows = {
        "image_id": [f"n{number}" for number in range(n_early)],
        "file": "a.tfrec",
        "record": range(n_early),
    }
    late_rows = {
        "image_id": ["n119998", "n119999"],
        "file": "z.tfrec",
        "record": [0, 1],
    }
    rows = pd.concat([pd.DataFrame(early_rows), pd.DataFrame(late_rows)])
    rows.to_csv(tmp_path / "train.csv", index=False)
    source = save_source(tmp_path / "source.png", "PNG")
    save_plan(tmp_path, {"n119998": source, "n119999": source})

    _, titles = pair_with_sources(part, tmp_path)

    first, second = [title for title, _ in titles]
    assert first.startswith("n119998\n")
    assert second.startswith("n119999\n")
    without_plan = pair_with_sources(part, tmp_path / "none")
    assert without_plan == ([], [])


def test_test_images_are_shown_only_where_there_are_no_others(tmp_path, capsys):
    """Their records have another schema, which needs a reader of its own."""
    records = [make_record(7)]
    files = {
        "a.tfrec": (0, records),
        "b.tfrec": (0, records),
    }
    shards = read.find_shards(write_part(tmp_path, files))
    shards["split"] = ["test", "train"]

    training, validation = read.choose_displayed_shards(shards, 0)
    test_only, _ = read.choose_displayed_shards(shards.head(1), 0)

    assert training["split"].tolist() == ["train"]
    assert validation["split"].tolist() == ["train"]
    assert len(test_only) == 1
    assert "Showing all shards" in capsys.readouterr().out


def test_labels_of_all_types_are_named():
    """One class, several classes, the classes that have a mask, and a quantity.

    Without classes, also the label 0 of padding has no name.
    """
    classes = ["x", "y", 7]
    numbers = np.array([2, 0, -1])
    flags = np.array(
        [
            [1, 0, 1],
            [0, 0, 0],
        ]
    )
    masks = np.zeros((1, 2, 2, 3), np.uint8)
    masks[0, 1, 0, 2] = 1

    assert read.format_labels(numbers, classes) == ["7", "x", ""]
    assert read.format_labels(flags, classes) == ["x, 7", "none"]
    assert read.format_labels(masks, classes) == ["7"]
    assert read.format_labels(np.float32([12.5, 120]), ()) == ["12.5", "120"]
    assert read.format_labels(numbers, []) == ["", "", ""]


NUMBERS = np.array([1, -1, 0])
FLAGS = np.array(
    [
        [1, 1],
        [1, 0],
        [1, 1],
    ],
    np.float32,
)
MASKS = np.zeros((3, 2, 2, 2), np.uint8)
MASKS[0, 1, 0, 1] = 1
MASKS[2, 1, 0, 0] = 1


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (NUMBERS, [0, 1]),
        (FLAGS, [2, 1]),
        (MASKS, [0, 1]),
    ],
    ids=["single", "multi", "masks"],
)
def test_images_are_counted_by_label_without_padding(labels, expected):
    """The third image is padding."""
    mask = np.array([1.0, 1.0, 0.0], np.float32)
    batches = tf.data.Dataset.from_tensors((mask, labels, mask))

    n_images, per_class = read.count_images(batches, 2)

    assert n_images == 2
    assert per_class.tolist() == expected


def test_a_gap_in_the_classes_is_not_a_missing_class():
    """LABEL_MAP may leave a number without a class."""
    classes = [None, "day", "night"]
    text = read.describe_missing_classes([0, 1, 0], classes, "fold 0")
    assert text.startswith("Warning: no score covers 1 of 2 classes")
    assert text.endswith(": night")


LEFT_HALF = np.zeros((32, 48), np.uint8)
LEFT_HALF[:, :24] = 1


@pytest.mark.parametrize(
    ("second_code", "expected_index", "expected_mean"),
    [
        (encode_mask(LEFT_HALF), 1, 0.5),
        ("", 0, 0),
    ],
    ids=["a mask", "no mask"],
)
def test_the_first_record_with_a_mask_is_displayed(
    tmp_path, second_code, expected_index, expected_mean
):
    """Where all masks are empty, the first record is displayed."""
    codes = ["", second_code, ""]
    images = []
    records = []
    for number, code in enumerate(codes):
        image = save_noise(number, 48, 32)
        images.append(image)
        records.append(make_example(image=image, fish=code.encode()))
    write_shard(tmp_path / "a.tfrec", records)
    fields = {
        "image": "image",
        "fish": {"from": "Fish", "type": "bytes"},
    }

    shards = read.find_shards(tmp_path, schema=load_schema(fields))
    pixels, masks = read.find_first_masks(shards)

    expected = Image.open(io.BytesIO(images[expected_index]))
    difference = pixels.astype(int) - np.asarray(expected)
    assert np.abs(difference).mean() < 3
    assert masks["fish"].mean() == expected_mean


def test_windows_are_cut_where_they_are_drawn(tmp_path):
    """Wide images have four windows, the last in the centre; a square has none."""
    records = [
        make_example(image=save_noise(1, 48, 32), label=1, height=32, width=48),
        make_example(image=save_noise(2, 32, 32), label=0, height=32, width=32),
        make_example(image=save_noise(3, 96, 32), label=0, height=32, width=96),
    ]
    shards = read.find_shards(write_part(tmp_path, {"a.tfrec": (0, records)}))

    examples = read.cut_windows(shards, 32)

    assert [example.label for example in examples] == ["a", "b"]  # the widest first
    assert [example.image.shape for example in examples] == [(32, 96, 3), (32, 48, 3)]
    for example in examples:
        assert example.windows.shape == (4, 4)
        width = example.image.shape[1]
        assert example.windows[3].tolist() == [0, (width - 32) // 2, 32, 32]
        for (top, left, _, _), crop in zip(example.windows, example.crops, strict=True):
            expected = example.image[top : top + 32, left : left + 32]
            assert np.array_equal(crop, expected)


def test_a_device_limits_the_speed():
    """It takes as long as the first pipeline, which waits unless it has a prefetch.

    A batch of 8 takes 20 ms: 400 images a second alone, 200 with the device.
    """

    def wait(batch):
        time.sleep(0.02)
        return batch

    batches = tf.data.Dataset.from_tensors((np.zeros((8, 4)),)).repeat()
    slow = batches.map(lambda batch: (tf.numpy_function(wait, [batch], tf.float64),))
    slow = slow.map(lambda batch: (tf.ensure_shape(batch, (8, 4)),))
    pipelines = {"slow": lambda _: slow, "+ prefetch": lambda _: slow.prefetch(2)}

    speeds = read.compare_speeds(pipelines, None, batch_size=8, rounds=1)

    alone, beside = speeds.loc["slow"]
    assert alone <= 400
    assert beside <= 0.6 * alone
    assert speeds.loc["+ prefetch", "with a device"] > 1.2 * beside


def test_the_benchmark_leaves_out_files_that_are_not_photographs(tmp_path, capsys):
    """A README is named and skipped, and so are images that are too small."""
    from benchmarks.read import list_photos

    (tmp_path / "README.md").write_text("Photographs by their owners.")
    large = tmp_path / "large.jpg"
    small = tmp_path / "small.jpg"
    large.write_bytes(save_noise(1, 90, 60))
    small.write_bytes(save_noise(2, 30, 20))

    photos = list_photos(str(tmp_path), ImageSettings((50, 50)))

    [(path, data)] = photos
    assert path == str(large)
    assert Image.open(io.BytesIO(data)).size == (75, 50)
    assert "README.md' is left out" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="no photograph of 70 pixels"):
        list_photos(str(tmp_path), ImageSettings((70, 70)))
