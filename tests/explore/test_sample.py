"""The bundled competition: what is planted is there, and nothing else is."""

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


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return tmp_path_factory.mktemp("sample")


@pytest.fixture(scope="module")
def truth(sample):
    return write_sample(str(sample))


@pytest.fixture(scope="module")
def labels(sample, truth):
    return (
        pd.read_csv(sample / "train.csv", dtype=str)
        .set_index("image_id")["label"]
        .to_dict()
    )


@pytest.fixture(scope="module")
def pictures(sample, truth):
    """Every readable picture, upright, by name."""
    files = sorted((sample / "train_images").iterdir())
    files = [path for path in files if path.name not in truth["refused"]]
    return {path.name: ImageOps.exif_transpose(Image.open(path)) for path in files}


def test_it_is_kaggles_layout_at_the_size_promised(sample, truth, labels, pictures):
    """400 or more pictures of 150 to 1,600 pixels, 5 unequal classes, counts that add up."""
    sides = [side for picture in pictures.values() for side in picture.size]
    counts, inputs = Counter(labels.values()), truth["counts"]

    assert len(pictures) >= 400
    assert 150 <= min(sides) < 160
    assert 1500 < max(sides) <= 1600
    assert min(counts.values()) == 3
    assert len(set(counts.values())) == len(counts) == 5
    assert counts == truth["classes"]
    assert sum(path.stat().st_size for path in sample.rglob("*")) < 60e6
    kinds = ("written", "refused", "duplicates", "conflicts", "test", "test_refused")
    others = len(truth["test_labels"]) + len(
        list((sample / "more" / "images").iterdir())
    )
    assert (
        len(labels) + 1 + others
        == inputs["inputs"]
        == sum(inputs[name] for name in kinds)
    )
    assert (others, len(truth["leaks"]), len(truth["across_sources"])) == (100, 8, 5)


def test_the_same_bytes_every_time(tmp_path):
    """A second folder gets the same files; one that is complete is left as it is."""
    first, second = (write_small_sample(tmp_path / name) for name in "ab")
    assert first == second == json.loads((tmp_path / "a" / "truth.json").read_text())
    for path in (tmp_path / "a").rglob("*.*"):
        assert (
            tmp_path / "b" / path.relative_to(tmp_path / "a")
        ).read_bytes() == path.read_bytes()
    (tmp_path / "a" / "train.csv").write_text("mine")
    write_sample(str(tmp_path / "a"))
    assert (tmp_path / "a" / "train.csv").read_text() == "mine"


def test_only_planted_pictures_look_alike(truth, pictures):
    """By imagehash's four hashes planted copies are within 6 of 256 bits, all others beyond 50."""
    hashes = (imagehash.average_hash, imagehash.phash, imagehash.dhash, imagehash.whash)
    small = [
        ImageOps.contain(one.convert("RGB"), (256, 256)) for one in pictures.values()
    ]
    bits = np.array(
        [np.concatenate([h(one).hash.ravel() for h in hashes]) for one in small]
    )
    position = {name: k for k, name in enumerate(pictures)}
    planted = [pair for kind in PAIRS for pair in truth[kind]]
    planted += combinations(truth["group_of_three"], 2)
    planted = {tuple(sorted(position[name] for name in pair)) for pair in planted}
    distance = (bits[:, None] != bits[None]).sum(axis=2)

    assert max(distance[pair] for pair in planted) <= 6
    others = [
        distance[pair]
        for pair in combinations(range(len(bits)), 2)
        if pair not in planted
    ]
    assert min(others) > 50


def test_copies_are_what_they_are_called(sample, truth, pictures, labels):
    """Copies share bytes, the size or half of it; labels differ in conflicts only."""
    read = {name: (sample / "train_images" / name).read_bytes() for name in pictures}
    width = {name: picture.width for name, picture in pictures.items()}
    assert all(read[a] == read[b] for a, b in truth["exact_copies"])
    assert all(read[a] != read[b] for a, b in truth["reencoded_copies"])
    assert all(width[a] == width[b] for a, b in truth["reencoded_copies"])
    assert all((width[a] + 1) // 2 == width[b] for a, b in truth["half_size_copies"])
    assert all(labels[a] == labels[b] for kind in PAIRS[:3] for a, b in truth[kind])
    assert all(labels[a] != labels[b] for a, b in truth["label_conflicts"])
    assert len({labels[name] for name in truth["group_of_three"]}) == 1


def test_faults_and_unusual_formats_are_what_they_are_called(sample, truth, labels):
    """Five faults, a file without a row among them; five formats, and a picture on its side."""
    folder = sample / "train_images"
    name = {kind: image_id for image_id, kind in truth["refused"].items()}

    with pytest.raises(OSError, match="truncated"):
        Image.open(folder / name["truncated"]).load()
    assert (folder / name["empty file"]).read_bytes() == b""
    with pytest.raises(UnidentifiedImageError):
        Image.open(folder / name["not an image"])
    assert not (folder / name["missing file"]).exists()
    assert name["missing file"] in labels
    assert (folder / truth["unlisted"]).exists()
    assert truth["unlisted"] not in labels
    opened = {
        kind: Image.open(folder / name) for name, kind in truth["odd_formats"].items()
    }
    kinds = {
        "grey JPEG": "JPEG L",
        "CMYK JPEG": "JPEG CMYK",
        "PNG with alpha": "PNG RGBA",
    }
    kinds |= {"16-bit PNG": "PNG I;16", "WebP": "WEBP RGB"}
    assert {kind: f"{one.format} {one.mode}" for kind, one in opened.items()} == kinds
    turned = truth["orientation_6"]
    picture = Image.open(folder / turned["image_id"])
    assert (picture.getexif()[0x0112], *picture.size) == (
        6,
        turned["height"],
        turned["width"],
    )


def test_colour_alone_tells_most_classes_apart(pictures, labels, truth):
    """Nearest mean colour guesses most labels, so that a small network has something to learn."""
    names = [
        name for name in pictures if name in labels and name not in truth["odd_formats"]
    ]
    pixels = [pictures[name].convert("RGB").resize((1, 1)) for name in names]
    colours = np.array([np.asarray(pixel, float).ravel() for pixel in pixels])
    classes, truths = np.unique([labels[name] for name in names], return_inverse=True)
    means = np.array(
        [colours[truths == label].mean(axis=0) for label in range(len(classes))]
    )
    guess = np.argmin(((colours[:, None] - means[None]) ** 2).sum(axis=2), axis=1)

    assert (guess == truths).mean() > 0.6
