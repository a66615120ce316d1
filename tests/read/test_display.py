"""What notebook 05 shows: records beside sources of any format, and masks."""

import io

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
        rotated.save(path, "JPEG", exif=exif, quality=95)
    else:
        image.save(path, format_)
    return str(path)


def save_plan(work, sources):
    """Save a plan with the paths of the source images."""
    table = pd.DataFrame(sources.items(), columns=["image_id", "path"])
    training = table.assign(split="train")
    test = table.assign(split="test", path="another image with the same id")
    pd.concat([training, test]).to_parquet(work / "plan.parquet")


@pytest.mark.parametrize("format_", ["EXIF", "TIFF", "AVIF", "JPEG2000", "JPEG"])
def test_a_source_of_any_format_is_upright_beside_its_record(tmp_path, format_):
    """Also an image rotated by EXIF, or of a format that TensorFlow cannot decode."""
    records = [make_record(7), make_record(8)]
    part = write_part(tmp_path / "part", {"a.tfrec": (0, records)})
    rows = pd.DataFrame(
        {"image_id": ["lost", "kept"], "file": "a.tfrec", "record": [0, 1]}
    )
    rows.to_csv(tmp_path / "part" / "train.csv", index=False)
    sources = {
        "kept": save_source(tmp_path / "source", format_),
        "lost": str(tmp_path / "nowhere"),
    }
    save_plan(tmp_path, sources)

    pairs, titles = read.pair_with_sources(read.find_shards(part), str(tmp_path))

    [(source, image)] = pairs
    assert source.shape == (40, 60, 3)
    assert abs(source[:, :18].mean() - 230) < 6
    assert abs(source[:, 22:].mean() - 20) < 6
    assert abs(image.mean() - 8) <= 1
    assert titles == [("kept\n60 × 40", "record 1\n48 × 32")]


def test_sources_are_found_at_the_end_of_a_large_csv(tmp_path):
    """The rows of a late fold are at the end of the CSV of a large split."""
    part = write_part(tmp_path, {"z.tfrec": (9, [make_record(n) for n in (3, 4)])})
    rows = pd.DataFrame(
        {"image_id": [f"n{i}" for i in range(120_000)], "file": "a.tfrec"}
    )
    rows = rows.assign(record=rows.index)
    rows.loc[rows.index[-2:], ["file", "record"]] = [["z.tfrec", 0], ["z.tfrec", 1]]
    rows.to_csv(tmp_path / "train.csv", index=False)
    source = save_source(tmp_path / "source.png", "PNG")

    save_plan(tmp_path, {"n119998": source, "n119999": source})
    _, titles = read.pair_with_sources(read.find_shards(part), str(tmp_path))

    assert [left.split("\n")[0] for left, _ in titles] == ["n119998", "n119999"]
    without_plan = read.pair_with_sources(read.find_shards(part), f"{tmp_path}/none")
    assert without_plan == ([], [])


def test_test_images_are_shown_only_where_there_are_no_others(tmp_path, capsys):
    """Their records have another schema, which needs a reader of its own."""
    files = {f"{name}.tfrec": (0, [make_record(7)]) for name in "ab"}
    shards = read.find_shards(write_part(tmp_path, files))
    shards = shards.assign(split=["test", "train"])

    training, validation = read.choose_displayed_shards(shards, 0)
    test_only, _ = read.choose_displayed_shards(shards.head(1), 0)

    assert training["split"].tolist() == ["train"]
    assert validation["split"].tolist() == ["train"]
    assert len(test_only) == 1
    assert "Showing all shards" in capsys.readouterr().out


def test_labels_of_all_types_are_named():
    """One class, several classes, and the classes that have a mask."""
    classes = ["x", "y", 7]
    flags = np.array([[1, 0, 1], [0, 0, 0]])
    masks = np.zeros((1, 2, 2, 3), np.uint8)
    masks[0, 1, 0, 2] = 1

    padding_label = 0
    assert read.format_labels(np.array([2, 0, -1]), classes) == ["7", "x", ""]
    assert read.format_labels(np.array([-1, padding_label]), []) == ["", ""]
    assert read.format_labels(flags, classes) == ["x, 7", "none"]
    assert read.format_labels(masks, classes) == ["7"]


MASKS = np.zeros((3, 2, 2, 2), np.uint8)
MASKS[[0, 2], 1, 0, [1, 0]] = 1


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([1, -1, 0]), [0, 1]),
        (np.array([[1, 1], [1, 0], [1, 1]], np.float32), [2, 1]),
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
    text = read.describe_missing_classes([0, 1, 0], [None, "day", "night"])
    assert text.startswith("Warning: no score covers 1 of 2 classes")
    assert text.endswith(": night")


@pytest.mark.parametrize("any_mask", [True, False])
def test_the_first_record_with_a_mask_is_displayed(tmp_path, any_mask):
    """Where all masks are empty, the first record is displayed."""
    left_half = np.repeat([[1, 0]], 32, axis=0).repeat(24, axis=1)
    codes = ["", encode_mask(left_half) if any_mask else "", ""]
    images = [save_noise(number, 48, 32) for number in range(3)]
    records = [
        make_example(image=image, fish=code.encode())
        for image, code in zip(images, codes, strict=True)
    ]
    write_shard(tmp_path / "a.tfrec", records)
    schema = load_schema({"image": "image", "fish": {"from": "Fish", "type": "bytes"}})

    shards = read.find_shards(tmp_path, schema=schema)
    image, masks = read.find_first_masks(shards)

    expected = Image.open(io.BytesIO(images[1 if any_mask else 0]))
    assert np.abs(image.astype(int) - np.asarray(expected)).mean() < 3
    assert masks["fish"].mean() == (0.5 if any_mask else 0)


def test_the_benchmark_leaves_out_files_that_are_not_photographs(tmp_path, capsys):
    """A README is named and skipped, and so are images that are too small."""
    from benchmarks.read import list_photos

    (tmp_path / "README.md").write_text("Photographs by their owners.")
    (tmp_path / "large.jpg").write_bytes(save_noise(1, 90, 60))
    (tmp_path / "small.jpg").write_bytes(save_noise(2, 30, 20))

    photos = list_photos(str(tmp_path), ImageSettings((50, 50)))

    assert [path for path, _ in photos] == [str(tmp_path / "large.jpg")]
    assert Image.open(io.BytesIO(photos[0][1])).size == (75, 50)
    assert "README.md' is left out" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="no photograph of 70 pixels"):
        list_photos(str(tmp_path), ImageSettings((70, 70)))
