"""Cells of 01 read files correctly, and show classes, faults and damaged files."""

import io

import cv2
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps
from support.cells import run_cells
from support.inputs import read
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


@pytest.fixture
def images():
    """A grey photograph, a dark, a blurred and an empty one, and one in colour."""
    pictures = [
        PHOTO.convert("L"),
        PHOTO.point(lambda level: level // 12),
        Image.fromarray(cv2.GaussianBlur(np.asarray(PHOTO), None, 8)),
        Image.new("RGB", PHOTO.size, (120, 130, 140)),
        PHOTO,
    ]
    for number, picture in enumerate(pictures):
        picture.save(f"{number}.png")
    return measure(*read(label_column=[]), work_dir=".")


def test_a_dozen_lines_read_files_as_the_package_does(images, capsys):
    """The rotation, the profile, 16 bits and the transparency are right."""
    names = run_cells("01-06", "01-07", "01-09", good=images, **LIBRARIES)

    equal = "equal to the package's reader: True"
    assert capsys.readouterr().out.count(equal) == 4
    for data, intended in zip(names["files"].values(), names["intended"], strict=True):
        pixels = names["read_upright_srgb"](data)
        assert np.abs(pixels - np.asarray(intended, float)).mean() < 2


def test_each_fault_is_found_in_its_image(images, capsys):
    """A note counts the images with each fault; the figure starts with the worst."""
    run_cells("01-27", images=images, work=".", **LIBRARIES)

    note = "! 1 of 5 images: dark (brightness below 25).\n"
    assert capsys.readouterr().out.startswith(note)
    texts = [axis.get_xlabel() for axis in plt.gcf().axes]
    worst = dict(zip(texts[::3], texts[1::3], strict=True))
    assert worst["brightness"].startswith("1.png: ")
    assert worst["sharpness"] == worst["texture"] == "3.png: 0.00"
    assert worst["bytes per pixel"].startswith("3.png: ")
