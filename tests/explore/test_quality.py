"""Cells of 01 read files correctly, and show classes, faults and damaged files."""

import io

import cv2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageCms, ImageOps
from support.cells import run_cells
from support.scenes import scene

from kaggle_tfr.explore import measure
from kaggle_tfr.images.convert import read_pixels

PHOTO = scene(200, 240)
LIBRARIES = {
    "Image": Image,
    "ImageCms": ImageCms,
    "ImageOps": ImageOps,
    "cv2": cv2,
    "io": io,
    "plt": plt,
    "read_pixels": read_pixels,
}


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


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


def test_a_dozen_lines_read_files_as_the_package_does(images, capsys):
    """The rotation, the profile, 16 bits and the transparency are right."""
    names = run_cells("01-06", "01-07", "01-09", good=images, **LIBRARIES)

    printed = capsys.readouterr().out
    assert printed.count("equal to the package's reader: True") == 4
    for data, intended in zip(names["files"].values(), names["intended"], strict=True):
        pixels = names["read_upright_srgb"](data)
        assert np.abs(pixels - np.asarray(intended, float)).mean() < 2


def test_each_fault_is_found_in_its_image(images, tmp_path, capsys):
    """A note counts the images with each fault; the figure starts with the worst."""
    run_cells("01-27", images=images, work=str(tmp_path), **LIBRARIES)

    printed = capsys.readouterr().out
    assert printed.startswith("! 1 of 5 images: dark (brightness below 25).\n")
    texts = [axis.get_xlabel() for axis in plt.gcf().axes]
    worst = dict(zip(texts[::3], texts[1::3], strict=True))
    assert worst["brightness"].startswith("1.png: ")
    assert worst["sharpness"] == worst["texture"] == "3.png: 0.00"
    assert worst["bytes per pixel"].startswith("3.png: ")
