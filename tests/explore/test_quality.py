"""The images that 01 shows are chosen by a rule."""

import io
import struct

import cv2
import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageCms
from support.cells import run_cells
from support.scenes import saved, scene

from kaggle_tfr.explore import choose_examples, load_damaged, measure

PHOTO = scene(200, 240)


def write_images(folder, images, labels):
    """Write the images as PNG; return their rows, measured."""
    rows = []
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / f"{number}.png"
        image.save(path)
        rows.append((path.name, str(path), label, "train", ""))
    columns = ["image_id", "path", "label_name", "split", "problem"]
    return measure(pd.DataFrame(rows, columns=columns), work_dir=str(folder))


@pytest.fixture
def images(tmp_path):
    """A photograph, then a grey, a dark, a blurred and an empty one, of two classes."""
    blurred = cv2.GaussianBlur(np.asarray(PHOTO), None, 8)
    pictures = [
        PHOTO.convert("L"),
        PHOTO.point(lambda level: level // 12),
        Image.fromarray(blurred),
        Image.new("RGB", PHOTO.size, (120, 130, 140)),
        PHOTO,
    ]
    return write_images(tmp_path, pictures, ["b", "a", "a", "a", "a"])


def rate(images, folder):
    """Return the names after the cells of 01 about quality."""
    return run_cells("01-22", "01-22-b", images=images, work=str(folder))


def test_each_fault_is_found_in_its_image(images, tmp_path, capsys):
    """The worst image of each row is the one with that fault; a note counts it."""
    names = rate(images, tmp_path)

    brightness, sharpness, texture, compression = names["lowest"]
    assert brightness["image_id"].iloc[0] == "1.png"
    assert texture["image_id"].iloc[0] == compression["image_id"].iloc[0] == "3.png"
    assert "2.png" in set(sharpness["image_id"].head(2))
    printed = capsys.readouterr().out
    assert printed.startswith("! 1 of 5 images is dark (brightness below 25).\n")
    level = np.asarray(PHOTO.convert("L")).mean() / 12
    assert brightness["brightness"].iloc[0] == pytest.approx(level, abs=1)


def test_a_near_duplicate_has_no_tile_beside_its_copy(tmp_path):
    """A darker copy is as extreme as its original, but shows nothing else."""
    pictures = [scene(seed=seed) for seed in range(3)]
    dark = [picture.point(lambda level: level // 3) for picture in pictures[:2]]
    darker = dark[1].point(lambda level: level * 9 // 10)
    images = write_images(tmp_path, [*pictures, *dark, darker], ["a"] * 6)

    darkest, *_ = rate(images, tmp_path)["lowest"]

    assert darkest["image_id"].head(2).tolist() == ["5.png", "3.png"]


def test_a_colourful_sharp_image_is_chosen_then_one_of_another_class(images):
    """The grey image of the other class comes before the blurred one of the first."""
    assert choose_examples(images, 2)["image_id"].tolist() == ["4.png", "0.png"]


def test_a_class_with_few_images_leaves_places_empty(images, tmp_path):
    """The rows are the classes, the largest first, of as many places of one shape."""
    work = str(tmp_path)
    names = run_cells("01-18", labelled=images[:4], classes="2 classes", work=work)

    assert list(names["largest"]) == ["a", "b"]
    assert [[tile is None for tile in row] for row in names["rows"]] == [
        [False, False, False, True],
        [False, True, True, True],
    ]
    tiles = [tile for row in names["rows"] for tile in row if tile is not None]
    assert {tile.shape[0] / tile.shape[1] for tile in tiles} == {1}


def test_damaged_files_are_shown_as_far_as_they_go(tmp_path):
    """A truncated JPEG has its upper rows; an empty file and a PNG are left out."""
    data = saved(PHOTO)
    files = {
        "a.jpg": data[: len(data) // 2],
        "b.jpg": b"",
        "c.png": saved(PHOTO, "PNG")[:-99],
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    rejected = pd.DataFrame(
        {
            "image_id": list(files),
            "path": [str(tmp_path / name) for name in files],
            "problem": ["truncated", "empty file", "truncated"],
        }
    )

    tiles, captions = load_damaged(rejected, most=5)

    assert captions == ["a.jpg\ntruncated"]
    assert np.abs(tiles[0][:50] - np.asarray(PHOTO, float)[:50]).mean() < 5
    assert (tiles[0][-20:] == 128).all()


def test_the_profile_is_display_p3():
    """Red of sRGB is (234, 51, 35) in Display P3. Source: CSS Color 4, examples."""
    red = Image.new("RGB", (1, 1), "red")

    names = run_cells("01-10-c", photo=red, ImageCms=ImageCms, io=io, struct=struct)

    np.testing.assert_allclose(
        names["of_phone"].getpixel((0, 0)), (234, 51, 35), atol=1
    )
