"""The sample competition contains what its truth.json lists, and no other faults."""

import json
from collections import Counter
from itertools import combinations

import imagehash
import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageOps, UnidentifiedImageError
from support.chain import write_small_sample

from kaggle_tfr.explore.sample import write_sample

PAIRS = ("exact_copies", "reencoded_copies", "half_size_copies", "label_conflicts")
HASHES = (imagehash.average_hash, imagehash.phash, imagehash.dhash, imagehash.whash)


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
    files = sorted((sample / "train_images").iterdir())
    readable = [path for path in files if path.name not in truth["refused"]]
    return {path.name: ImageOps.exif_transpose(Image.open(path)) for path in readable}


def test_it_has_400_images_of_150_to_1600_pixels(sample, images):
    """All files together are less than 60 MB."""
    sides = [side for image in images.values() for side in image.size]

    assert len(images) >= 400
    assert 150 <= min(sides) < 160
    assert 1500 < max(sides) <= 1600
    assert sum(path.stat().st_size for path in sample.rglob("*")) < 60e6


def test_its_counts_add_up(sample, truth, labels):
    """There are five unequal classes, and every input has one outcome."""
    class_counts = Counter(labels.values())
    assert class_counts == truth["classes"]
    assert min(class_counts.values()) == 3
    assert len(set(class_counts.values())) == len(class_counts) == 5

    more_images = list((sample / "more" / "images").iterdir())
    n_others = len(truth["test_labels"]) + len(more_images)
    assert n_others == 100
    assert len(truth["leaks"]) == 8
    assert len(truth["across_sources"]) == 5
    counts = truth["counts"]
    outcomes = (
        "written",
        "refused",
        "duplicates",
        "conflicts",
        "test",
        "test_refused",
    )
    assert len(labels) + 1 + n_others == counts["inputs"]
    assert sum(counts[name] for name in outcomes) == counts["inputs"]


def test_the_same_bytes_every_time(tmp_path):
    """A second folder gets the same files; one that is complete is left as it is."""
    first = write_small_sample(tmp_path / "a")
    second = write_small_sample(tmp_path / "b")

    assert first == second == json.loads((tmp_path / "a" / "truth.json").read_text())
    for path in (tmp_path / "a").rglob("*.*"):
        copy = tmp_path / "b" / path.relative_to(tmp_path / "a")
        assert copy.read_bytes() == path.read_bytes()
    (tmp_path / "a" / "train.csv").write_text("mine")
    write_sample(str(tmp_path / "a"))
    assert (tmp_path / "a" / "train.csv").read_text() == "mine"


def test_only_planted_images_look_alike(truth, images):
    """Planted copies differ in at most 6 of the 256 bits of imagehash, others in 50."""
    bits = []
    for image in images.values():
        small = ImageOps.contain(image.convert("RGB"), (256, 256))
        bits.append(np.concatenate([make(small).hash.ravel() for make in HASHES]))
    bits = np.array(bits)
    distances = (bits[:, None] != bits[None]).sum(axis=2)
    pairs = [pair for kind in PAIRS for pair in truth[kind]]
    pairs += combinations(truth["group_of_three"], 2)
    names = list(images)
    planted = {tuple(sorted(map(names.index, pair))) for pair in pairs}
    others = set(combinations(range(len(names)), 2)) - planted

    assert max(distances[pair] for pair in planted) <= 6
    assert min(distances[pair] for pair in others) > 50


def test_copies_are_what_they_are_called(sample, truth, images, labels):
    """Copies share bytes, the size or half of it; only in conflicts labels differ."""
    data = {name: (sample / "train_images" / name).read_bytes() for name in images}
    width = {name: image.width for name, image in images.items()}

    assert all(data[a] == data[b] for a, b in truth["exact_copies"])
    assert all(data[a] != data[b] for a, b in truth["reencoded_copies"])
    assert all(width[a] == width[b] for a, b in truth["reencoded_copies"])
    assert all((width[a] + 1) // 2 == width[b] for a, b in truth["half_size_copies"])
    for kind in PAIRS[:3]:
        assert all(labels[a] == labels[b] for a, b in truth[kind])
    assert all(labels[a] != labels[b] for a, b in truth["label_conflicts"])
    assert len({labels[name] for name in truth["group_of_three"]}) == 1


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
    names = [name for name in images if name in labels]
    names = [name for name in names if name not in truth["odd_formats"]]
    pixels = [images[name].convert("RGB").resize((1, 1)) for name in names]
    colours = np.array([np.asarray(pixel, float).ravel() for pixel in pixels])
    classes, truths = np.unique([labels[name] for name in names], return_inverse=True)
    numbers = range(len(classes))
    means = np.array([colours[truths == number].mean(axis=0) for number in numbers])

    distances = ((colours[:, None] - means[None]) ** 2).sum(axis=2)

    assert (distances.argmin(axis=1) == truths).mean() > 0.6
