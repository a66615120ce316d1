"""The images that 01 shows are chosen by a rule."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageFilter
from support.chain import save_picture
from support.inputs import read
from support.scenes import saved, scene

from kaggle_tfr.explore import (
    choose_examples,
    describe_quality,
    list_extremes,
    load_damaged,
    load_hashes,
    load_per_class,
    make_display_p3,
    measure,
    rate_images,
)

PHOTO = scene(200, 240)


def write_images(images):
    """Write images by their paths; return their rows, measured."""
    for name, image in images.items():
        save_picture(image, Path(name))
    return measure(*read(), ".")


@pytest.fixture
def images():
    """A photograph, then a dark, a blurred, an empty and a grey one, of two classes."""
    pictures = {
        "a/photo.png": PHOTO,
        "a/dark.png": PHOTO.point(lambda level: level // 12),
        "a/blurred.png": PHOTO.filter(ImageFilter.GaussianBlur(8)),
        "a/empty.png": Image.new("RGB", PHOTO.size, (120, 130, 140)),
        "b/grey.png": PHOTO.convert("L"),
    }
    return write_images(pictures)


def test_each_fault_is_found_in_its_image(images):
    """The worst image of each row is the one with that fault; a warning counts it."""
    rated = rate_images(images, load_hashes(images, "."))

    worst, captions, names = list_extremes(rated, count=2)
    lines = describe_quality(rated).splitlines()

    assert len(worst) == len(captions) == 2 * len(names)
    first_of_row = dict(zip(names, worst["image_id"][::2], strict=True))
    assert first_of_row["brightness"] == "a/dark.png"
    assert first_of_row["texture"] == "a/empty.png"
    assert first_of_row["bytes per pixel"] == "a/empty.png"
    assert "a/blurred.png" in set(worst["image_id"][2:4])
    assert lines[0] == ("Warning: 1 of 5 images is dark (mean level below 25 of 255).")
    level = np.asarray(PHOTO.convert("L")).mean() / 12
    assert float(captions[0].removesuffix(", limit 25")) == pytest.approx(level, abs=1)


def test_a_near_duplicate_has_no_tile_beside_its_copy():
    """A darker copy is as extreme as its original, but shows nothing else."""
    pictures = {f"a/{number}.png": scene(seed=number) for number in range(3)}
    for number in (0, 1):
        dark = pictures[f"a/{number}.png"].point(lambda level: level // 3)
        pictures[f"a/{number}-dark.png"] = dark
    pictures["a/darkest.png"] = dark.point(lambda level: level * 9 // 10)
    images = write_images(pictures)
    rated = rate_images(images, load_hashes(images, "."))

    worst, _, _ = list_extremes(rated, count=2)

    assert worst["image_id"][:2].tolist() == ["a/darkest.png", "a/0-dark.png"]


def test_a_colourful_sharp_image_is_chosen_then_one_of_another_class(images):
    """The grey image of the other class comes before the blurred one of the first."""
    chosen = choose_examples(images, 2)["image_id"].tolist()
    assert chosen == ["a/photo.png", "b/grey.png"]


def test_a_class_with_few_images_leaves_places_empty(images):
    """The rows are the classes, the largest first, of as many places of one shape."""
    tiles, names = load_per_class(images, count=3)

    assert names == ["a", "b"]
    assert {tile.shape[0] / tile.shape[1] for tile in tiles if tile is not None} == {1}
    assert [tile is None for tile in tiles] == [False] * 4 + [True] * 2


def test_damaged_files_are_shown_as_far_as_they_go():
    """A truncated JPEG has its upper rows; an empty file and a PNG are left out."""
    data = saved(PHOTO)
    Path("a.jpg").write_bytes(data[: len(data) // 2])
    Path("b.jpg").write_bytes(b"")
    Path("c.png").write_bytes(saved(PHOTO, "PNG")[:-99])
    Path("whole.jpg").write_bytes(data)
    images = measure(*read(label_column=[]))

    tiles, captions = load_damaged(images, most=5)

    assert captions == ["a.jpg\ntruncated"]
    assert np.abs(tiles[0][:50] - np.asarray(PHOTO, float)[:50]).mean() < 5
    assert (tiles[0][-20:] == 128).all()


def test_the_profile_is_display_p3():
    """Red of sRGB is (234, 51, 35) in Display P3. Source: CSS Color 4, examples."""
    srgb = ImageCms.createProfile("sRGB")
    red = Image.new("RGB", (1, 1), "red")

    red = ImageCms.profileToProfile(red, srgb, make_display_p3())

    np.testing.assert_allclose(red.getpixel((0, 0)), (234, 51, 35), atol=1)
