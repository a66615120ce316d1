"""Files that cannot become records are rejected with a reason, and nothing else is."""

import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from functools import partial
from unittest import mock

import cv2
import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from support.fuzzing import load, verdict
from support.scenes import UNCHANGED, opened, saved, scene

from kaggle_tfr.images import header
from kaggle_tfr.images.convert import ImageSettings, check_image, convert, read_pixels
from kaggle_tfr.images.header import RejectedImage, read_header, read_upright

RECODED = replace(UNCHANGED, pass_through=False)
READERS = [
    check_image,
    read_pixels,
    partial(convert, settings=UNCHANGED),
    partial(convert, settings=RECODED),
]


def run_python(root, *arguments):
    command = [sys.executable, *arguments]
    environment = {"PYTHONPATH": str(root)}
    return subprocess.check_output(
        command, cwd=root / "tests", env=environment, text=True
    )


def list_bad_files():
    """Return pairs: the bytes of a file, and why it is rejected."""
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    mode = "unsupported format: TIFF with pixels of mode"
    files = [
        (b"", "empty file"),
        (b"<!DOCTYPE html><title>404</title>", "not an image"),
        (b"\xff\xd8\xff", "truncated, or of an unsupported type"),
        (heic, "unsupported format: HEIF, or a video"),
        (saved(scene(16, 16), "ICO"), "unsupported format: ICO"),
        (saved(Image.new("F", (9, 9), 0.5), "TIFF"), f"{mode} F"),
        (saved(Image.new("I", (9, 9), -1), "TIFF"), f"{mode} I"),
    ]
    whole = [saved(scene(), kind) for kind in ("JPEG", "PNG")]
    whole.append(saved(scene(), progressive=True))
    for data in whole:
        files += [(data[:200], "truncated"), (data[:-300], "truncated")]
    return files


@pytest.mark.parametrize(("data", "reason"), list_bad_files())
def test_bad_files_are_rejected_with_a_short_reason(data, reason):
    """All readers give the same reason, and nothing bad passes through."""
    readers = [*READERS, read_upright] if data else READERS
    for read in readers:
        with pytest.raises(RejectedImage) as error:
            read(data)
        assert str(error.value) == reason


def test_too_many_pixels_are_rejected_by_the_header(monkeypatch):
    """The limit is ours, also where Pillow's is switched off for the whole process."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    reason = "over MAX_PIXELS: 100 × 100 pixels, at most 9999"
    monkeypatch.setattr(header, "MAX_PIXELS", 9_999)
    for kind in ("JPEG", "PNG"):
        data = saved(scene(100, 100), kind)
        for read in (*READERS, read_header):
            with pytest.raises(RejectedImage, match=reason):
                read(data)


def test_a_bomb_is_rejected_before_it_is_decompressed():
    """The size of a PNG is read without its pixels, here 200 MB."""
    bomb = saved(Image.new("1", (20_000, 10_000)), "PNG")
    png_class = PngImagePlugin.PngImageFile
    tracemalloc.start()
    with mock.patch.object(png_class, "load", side_effect=AssertionError):
        with pytest.raises(RejectedImage, match="over MAX_PIXELS: "):
            read_header(bomb)
        assert read_header(saved(scene(64, 64), "PNG")).plain
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("size", "settings", "reason"),
    [
        (
            (60_000, 1),
            ImageSettings((512, 512), "center_crop"),
            "over MAX_PIXELS: 30720000 × 512 pixels",
        ),
        (
            (66_000, 2),
            ImageSettings((2, 2), "short_side"),
            "JPEG holds no image of 66000 × 2 pixels",
        ),
    ],
)
def test_a_narrow_image_that_would_grow_too_large_is_rejected(size, settings, reason):
    """Enlarging its short side makes its long side, and its area, far too large."""
    narrow = saved(Image.new("RGB", size, "teal"), "PNG")
    with pytest.raises(RejectedImage, match=reason):
        convert(narrow, settings)


all_modes = pytest.mark.parametrize("mode", ["RGB", "L"])
all_options = pytest.mark.parametrize(
    "options", [{}, {"optimize": True}, {"restart_marker_rows": 1}]
)


@all_modes
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 2}]
)
def test_every_cut_is_noticed_when_pillow_notices_it(mode, options):
    """A JPEG cut anywhere is rejected if, and only if, Pillow rejects it."""
    data = saved(scene(24, 40).convert(mode), **options)
    for end in range(2, len(data)):
        cut = data[:end]
        is_rejected = bool(verdict(load, cut))
        assert bool(verdict(check_image, cut)) == is_rejected, end
        assert bool(verdict(read_pixels, cut)) == is_rejected, end


@all_modes
@all_options
def test_half_a_jpeg_with_an_end_marker_is_rejected(mode, options):
    """Pillow shows its missing half in grey, without an error."""
    data = saved(scene().convert(mode), **options)
    half = data[: len(data) // 2] + b"\xff\xd9"
    assert verdict(load, half) == ""
    for read in READERS:
        with pytest.raises(RejectedImage, match="truncated: grey to its end"):
            read(half)


def overwrite_middle(data):
    middle = len(data) // 2
    return data[:middle] + bytes(64) + data[middle + 64 :]


@all_modes
@all_options
def test_zeros_in_the_scan_of_a_jpeg_are_damage(mode, options):
    """The reason names them."""
    data = saved(scene().convert(mode), **options)
    with pytest.raises(RejectedImage, match="damaged: zeros in its scan"):
        check_image(overwrite_middle(data))


@all_modes
@all_options
def test_bytes_after_the_end_of_a_jpeg_are_ignored(mode, options):
    """Zeros, another image and a damaged copy change no pixel."""
    data = saved(scene().convert(mode), **options)
    pixels = read_pixels(data)
    other_image = saved(Image.new("RGB", (90, 90)), "BMP")
    for rest in (bytes(100), other_image, overwrite_middle(data)):
        assert np.array_equal(read_pixels(data + rest), pixels)


@all_modes
@all_options
def test_an_image_that_really_ends_in_grey_is_read(mode, options):
    """One shade to the end is not mistaken for missing data, at any quality."""
    pixels = np.asarray(scene().convert(mode))
    for top, shade in ((0, 128), (150, 128), (150, 127), (150, 0), (290, 128)):
        partly_grey = pixels.copy()
        partly_grey[top:] = shade
        image = Image.fromarray(partly_grey)
        for quality in (20, 75, 100):
            data = saved(image, quality=quality, **options)
            expected = np.asarray(opened(data).convert("RGB"))
            assert cv2.PSNR(read_pixels(data), expected) > 40


@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=pytest.mark.heavy)])
def test_mutated_images_are_survived(root, count):
    """Each becomes a readable record or is rejected, in seconds.

    A file that is truncated to Pillow never becomes a record.
    """
    counts = json.loads(run_python(root, "-m", "support.fuzzing", str(count), "1"))
    assert counts.pop("truncated to Pillow") > count / 20
    assert counts.pop("rejected by Pillow") > 10
    assert not any(counts.values()), counts
