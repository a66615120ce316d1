"""What notebook 05 shows: records beside sources of any kind, and masks."""

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


def save_source(path, kind, **options):
    """A picture of 60 × 40, dark but for its bright left third."""
    pixels = np.full((40, 60, 3), 20, np.uint8)
    pixels[:, :20] = 230
    picture = Image.fromarray(pixels)
    if kind == "EXIF":
        exif = Image.Exif()
        exif[0x0112] = 6  # stored turned; a viewer turns it by 90° clockwise
        picture, kind = picture.transpose(Image.Transpose.ROTATE_90), "JPEG"
        options = {"exif": exif, "quality": 95}
    picture.save(path, kind, **options)
    return str(path)


def save_paths(work, sources):
    """The columns of a plan that tell where the pictures lie."""
    table = pd.DataFrame(sources.items(), columns=["image_id", "path"])
    others = table.assign(split="test", path="another image with the same id")
    table = pd.concat([table.assign(split="train"), others])
    table.to_parquet(work / "plan.parquet")


@pytest.mark.parametrize("kind", ["EXIF", "TIFF", "AVIF", "JPEG2000", "JPEG"])
def test_a_source_of_any_kind_is_shown_upright_beside_its_record(tmp_path, kind):
    """Turned by EXIF, or of a kind that TensorFlow cannot decode: it is shown as it is seen."""
    part = write_part(
        tmp_path / "part", {"a.tfrec": (0, [make_record(7), make_record(8)])}
    )
    rows = pd.DataFrame(
        {"image_id": ["lost", "kept"], "file": "a.tfrec", "record": [0, 1]}
    )
    rows.to_csv(tmp_path / "part" / "train.csv", index=False)
    sources = {
        "kept": save_source(tmp_path / "source", kind),
        "lost": str(tmp_path / "nowhere"),
    }
    save_paths(tmp_path, sources)

    (pair,), (title,) = read.pair_with_sources(read.find_shards(part), str(tmp_path))

    assert pair[0].shape == (40, 60, 3)
    assert abs(pair[0][:, :18].mean() - 230) < 6
    assert abs(pair[0][:, 22:].mean() - 20) < 6
    assert abs(pair[1].mean() - 8) <= 1
    assert title == ("kept\n60 × 40", "record 1\n48 × 32")


def test_sources_are_found_however_late_their_shard_is_listed(tmp_path):
    """The rows of a late fold stand far down in the CSV of a large split."""
    part = write_part(tmp_path, {"z.tfrec": (9, [make_record(n) for n in (3, 4)])})
    rows = pd.DataFrame(
        {"image_id": [f"n{i}" for i in range(120_000)], "file": "a.tfrec"}
    )
    rows = rows.assign(record=rows.index)
    rows.loc[rows.index[-2:], ["file", "record"]] = [["z.tfrec", 0], ["z.tfrec", 1]]
    rows.to_csv(tmp_path / "train.csv", index=False)
    source = save_source(tmp_path / "source.png", "PNG")

    save_paths(tmp_path, {"n119998": source, "n119999": source})
    _, titles = read.pair_with_sources(read.find_shards(part), str(tmp_path))

    assert [left.split("\n")[0] for left, _ in titles] == ["n119998", "n119999"]
    assert read.pair_with_sources(read.find_shards(part), f"{tmp_path}/none") == (
        [],
        [],
    )


def test_test_images_are_shown_only_where_there_are_no_others(tmp_path, capsys):
    """Their records have another schema, which one reader cannot take beside the rest's."""
    files = {f"{name}.tfrec": (0, [make_record(7)]) for name in "ab"}
    shards = read.find_shards(write_part(tmp_path, files)).assign(
        split=["test", "train"]
    )

    assert [len(chosen) for chosen in read.choose_displayed_shards(shards, 0)] == [1, 1]
    assert read.choose_displayed_shards(shards, 0)[0]["split"].tolist() == ["train"]
    assert len(read.choose_displayed_shards(shards.head(1), 0)[0]) == 1
    assert "Showing all shards" in capsys.readouterr().out


def test_labels_of_all_kinds_are_named():
    """A class, several classes, and the classes that a mask is there for."""
    masks = np.zeros((1, 2, 2, 3), np.uint8)
    masks[0, 1, 0, 2] = 1

    assert read.format_labels(np.array([2, 0, -1]), ["x", "y", 7]) == ["7", "x", ""]
    assert read.format_labels(np.array([-1, 0]), []) == [
        "",
        "",
    ]  # 0 is the label of padding
    assert read.format_labels(np.array([[1, 0, 1], [0, 0, 0]]), ["x", "y", 7]) == [
        "x, 7",
        "none",
    ]
    assert read.format_labels(masks, ["x", "y", 7]) == ["7"]


def test_images_are_counted_with_their_labels_and_without_padding():
    """A class, several classes or masks: what no validation image has is counted 0."""
    mask = np.array([1.0, 1.0, 0.0], np.float32)
    masks = np.zeros((3, 2, 2, 2), np.uint8)
    masks[[0, 2], 1, 0, [1, 0]] = 1
    expected = {"single": [0, 1], "multi": [2, 1], "masks": [0, 1]}
    labels = {"single": np.array([1, -1, 0]), "masks": masks}
    labels["multi"] = np.array([[1, 1], [1, 0], [1, 1]], np.float32)
    for kind, given in labels.items():
        batches = tf.data.Dataset.from_tensors((mask, given, mask))
        images, per_class = read.count_images(batches, 2)
        assert (images, per_class.tolist()) == (2, expected[kind])
    said = read.describe_missing_classes(
        [0, 1, 0], [None, "day", "night"]
    )  # a gap in LABEL_MAP
    assert said.startswith("Warning: 1 of 2 classes has no validation image")
    assert said.endswith(": night")


@pytest.mark.parametrize("any_mask", [True, False])
def test_the_first_record_with_a_mask_is_shown(tmp_path, any_mask):
    """Empty masks show nothing; where all are empty, the first record is shown all the same."""
    half = encode_mask(np.repeat([[1, 0]], 32, axis=0).repeat(24, axis=1))
    pictures = [save_noise(n, 48, 32) for n in range(3)]
    codes = ["", half if any_mask else "", ""]
    pairs = zip(pictures, map(str.encode, codes), strict=True)
    write_shard(
        tmp_path / "a.tfrec",
        [make_example(image=data, fish=code) for data, code in pairs],
    )
    schema = load_schema({"image": "image", "fish": {"from": "Fish", "type": "bytes"}})

    picture, masks = read.find_first_masks(read.find_shards(tmp_path, schema=schema))

    expected = Image.open(io.BytesIO(pictures[any_mask]))
    assert np.abs(picture.astype(int) - np.asarray(expected)).mean() < 3
    assert masks["fish"].mean() == (0.5 if any_mask else 0)


def test_the_benchmark_leaves_out_what_is_no_photograph(tmp_path, capsys):
    """A README beside the photographs is named and skipped; so are pictures that are too small."""
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
