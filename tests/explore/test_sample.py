"""The sample competition contains what its truth.json lists, and no other faults."""

import json
import os
from collections import Counter
from itertools import combinations

import imagehash
import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps, UnidentifiedImageError
from sklearn.neighbors import NearestCentroid
from support.chain import write_small_sample

from kaggle_tfr.explore.sample import write_sample

PAIRS = ("exact_copies", "reencoded_copies", "half_size_copies", "label_conflicts")
HASHES = (
    imagehash.average_hash,
    imagehash.phash,
    imagehash.dhash,
    imagehash.whash,
)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return tmp_path_factory.mktemp("sample")


@pytest.fixture(scope="module")
def truth(sample):
    return write_sample(str(sample))


@pytest.fixture(scope="module")
def labels(sample, truth):
    """The label of each image_id in train.csv."""
    table = pd.read_csv(sample / "train.csv", dtype=str)
    return table.set_index("image_id")["label"].to_dict()


@pytest.fixture(scope="module")
def images(sample, truth):
    """Every readable image, upright, by its name."""
    readable = {}
    for path in sorted((sample / "train_images").iterdir()):
        if path.name not in truth["refused"]:
            image = Image.open(path)
            readable[path.name] = ImageOps.exif_transpose(image)
    return readable


def test_it_has_400_images_of_150_to_1600_pixels(sample, images):
    """All files together are less than 60 MB."""
    sides = []
    for image in images.values():
        sides += image.size
    n_bytes = [path.stat().st_size for path in sample.rglob("*")]

    assert len(images) >= 400
    assert 150 <= min(sides) < 160
    assert 1500 < max(sides) <= 1600
    assert sum(n_bytes) < 60e6


def test_its_counts_add_up(sample, truth, labels):
    """There are five unequal classes, and every input has one outcome."""
    class_counts = Counter(labels.values())
    assert class_counts == truth["classes"]
    sizes = sorted(class_counts.values())
    assert sizes[0] == 3
    assert len(sizes) == 5
    assert len(set(sizes)) == 5

    more_images = os.listdir(sample / "more" / "images")
    n_others = len(truth["test_labels"]) + len(more_images)
    assert n_others == 100
    assert len(truth["leaks"]) == 8
    assert len(truth["across_sources"]) == 5
    counts = dict(truth["counts"])
    n_inputs = counts.pop("inputs")
    outcomes = [
        counts["written"],
        counts["refused"],
        counts["duplicates"],
        counts["conflicts"],
        counts["test"],
        counts["test_refused"],
    ]
    assert len(labels) + 1 + n_others == n_inputs
    assert sum(outcomes) == n_inputs


def test_the_same_bytes_every_time(tmp_path):
    """A second folder gets the same files; one that is complete is left as it is."""
    first = tmp_path / "first"
    second = tmp_path / "second"

    truth = write_small_sample(first)

    assert truth == write_small_sample(second)
    assert truth == json.loads((first / "truth.json").read_text())
    for path in first.rglob("*.*"):
        copy = second / path.relative_to(first)
        assert copy.read_bytes() == path.read_bytes()
    table = first / "train.csv"
    table.write_text("mine")
    write_sample(str(first))
    assert table.read_text() == "mine"


def test_only_planted_images_look_alike(truth, images):
    """Planted copies differ in at most 6 of the 256 bits of imagehash, others in 50."""
    bits = np.array([hash_with_imagehash(image) for image in images.values()])
    is_planted = np.zeros((len(bits), len(bits)), bool)
    names = list(images)
    for first, second in list_planted_pairs(truth):
        i, j = sorted([names.index(first), names.index(second)])
        is_planted[i, j] = True
    is_pair = np.triu(np.ones_like(is_planted), 1)

    distances = (bits[:, None] != bits).sum(axis=2)

    assert distances[is_planted].max() <= 6
    assert distances[is_pair & ~is_planted].min() > 50


def hash_with_imagehash(image):
    """Return the 256 bits of the image's four hashes."""
    small = ImageOps.contain(image.convert("RGB"), (256, 256))
    bits = [make_hash(small).hash.ravel() for make_hash in HASHES]
    return np.concatenate(bits)


def list_planted_pairs(truth):
    """Return the names of the images of each planted pair."""
    pairs = list(combinations(truth["group_of_three"], 2))
    for name in PAIRS:
        pairs += truth[name]
    return pairs


def test_copies_are_what_they_are_called(sample, truth, images, labels):
    """Copies share bytes, the size or half of it; only in conflicts labels differ."""
    folder = sample / "train_images"
    data = {name: (folder / name).read_bytes() for name in images}
    widths = {name: image.width for name, image in images.items()}

    for original, copy in truth["exact_copies"]:
        assert data[original] == data[copy]
        assert labels[original] == labels[copy]
    for original, copy in truth["reencoded_copies"]:
        assert data[original] != data[copy]
        assert widths[original] == widths[copy]
        assert labels[original] == labels[copy]
    for original, copy in truth["half_size_copies"]:
        assert (widths[original] + 1) // 2 == widths[copy]
        assert labels[original] == labels[copy]
    for original, copy in truth["label_conflicts"]:
        assert labels[original] != labels[copy]
    labels_of_group = {labels[name] for name in truth["group_of_three"]}
    assert len(labels_of_group) == 1


def test_faults_are_what_they_are_called(sample, truth, labels):
    """Four files cannot be read, and one has no row."""
    folder = sample / "train_images"
    name_of = {fault: image_id for image_id, fault in truth["refused"].items()}

    with pytest.raises(OSError, match="truncated"):
        Image.open(folder / name_of["truncated"]).load()
    assert (folder / name_of["empty file"]).read_bytes() == b""
    with pytest.raises(UnidentifiedImageError):
        Image.open(folder / name_of["not an image"])
    assert not (folder / name_of["missing file"]).exists()
    assert name_of["missing file"] in labels
    assert (folder / truth["unlisted"]).exists()
    assert truth["unlisted"] not in labels


def test_unusual_formats_are_what_they_are_called(sample, truth):
    """There are five of them, and an image with an EXIF orientation."""
    folder = sample / "train_images"
    found = {}
    for name, description in truth["odd_formats"].items():
        image = Image.open(folder / name)
        found[description] = f"{image.format} {image.mode}"
    assert found == {
        "grey JPEG": "JPEG L",
        "CMYK JPEG": "JPEG CMYK",
        "PNG with alpha": "PNG RGBA",
        "16-bit PNG": "PNG I;16",
        "WebP": "WEBP RGB",
    }

    rotated = truth["orientation_6"]
    image = Image.open(folder / rotated["image_id"])
    assert image.getexif()[0x0112] == 6
    assert image.size == (rotated["height"], rotated["width"])


def test_the_mean_colour_predicts_most_classes(images, labels, truth):
    """So a small network has something to learn."""
    colours = []
    expected = []
    for name, image in images.items():
        if name in labels and name not in truth["odd_formats"]:
            pixel = image.convert("RGB").resize((1, 1))
            colours.append(np.asarray(pixel, float).ravel())
            expected.append(labels[name])

    predictions = NearestCentroid().fit(colours, expected).predict(colours)

    assert np.mean(predictions == np.array(expected)) > 0.6
