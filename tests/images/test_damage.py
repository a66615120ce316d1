"""Files that cannot become records are rejected with a reason, and nothing else is."""

import json
import struct
from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest
from PIL import Image, ImageFile
from support.fuzzing import load, verdict
from support.processes import call_python
from support.scenes import UNCHANGED, opened, save_pixels, saved, scene

from kaggle_tfr.images.convert import ImageSettings, check_image, convert, read_pixels
from kaggle_tfr.images.header import RejectedImage, read_header, read_upright

RECODED = replace(UNCHANGED, pass_through=False)
READERS = [
    check_image,
    read_pixels,
    partial(convert, settings=UNCHANGED),
    partial(convert, settings=RECODED),
]


TIFF_MODE = "unsupported format: TIFF with pixels of mode"
WHOLE_FILES = [
    saved(scene()),
    saved(scene(), progressive=True),
    saved(scene(), "PNG"),
]
BAD_FILES = [
    (b"", "empty file"),
    (b"<!DOCTYPE html><title>404</title>", "not an image"),
    (b"\xff\xd8\xff", "truncated, or of an unsupported type"),
    (b"\0\0\0\x18ftypheic\0\0\0\0mif1", "unsupported format: HEIF, or a video"),
    (saved(scene(16, 16), "ICO"), "unsupported format: ICO"),
    (saved(Image.new("F", (9, 9), 0.5), "TIFF"), f"{TIFF_MODE} F"),
    (saved(Image.new("I", (9, 9), -1), "TIFF"), f"{TIFF_MODE} I"),
    *[(data[:200], "truncated") for data in WHOLE_FILES],
    *[(data[:-300], "truncated") for data in WHOLE_FILES],
]


@pytest.mark.parametrize(("data", "reason"), BAD_FILES)
def test_bad_files_are_rejected_with_a_short_reason(data, reason):
    """All readers give the same reason, and nothing bad passes through."""
    for read in (*READERS, read_upright):
        with pytest.raises(RejectedImage) as error:
            read(data)
        assert str(error.value) == reason


def test_a_bomb_is_rejected_by_its_header(monkeypatch):
    """No pixel of its 200 million is decompressed, also where Pillow has no limit.

    A plain JPEG is never decoded by Pillow, which is slower than OpenCV.
    """
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    monkeypatch.setattr(ImageFile.ImageFile, "load", None)
    pack = struct.Struct(">HH").pack
    small = saved(scene(90, 100))
    bombs = [
        saved(Image.new("1", (15_000, 13_500)), "PNG"),
        small.replace(pack(90, 100), pack(13_500, 15_000)),
    ]
    for data in bombs:
        for read in (*READERS, read_header):
            with pytest.raises(RejectedImage, match="over MAX_PIXELS: 15000 × 13500"):
                read(data)
    assert read_pixels(small).any()


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
        for read in (check_image, read_pixels):
            assert bool(verdict(read, cut)) == is_rejected, end


def overwrite_middle(data):
    middle = len(data) // 2
    return data[:middle] + bytes(64) + data[middle + 64 :]


@all_modes
@all_options
def test_nine_tenths_of_a_jpeg_and_zeros_in_its_scan_are_damage(mode, options):
    """Pillow shows both without an error, the missing tenth in grey."""
    data = saved(scene().convert(mode), **options)
    damages = {
        "truncated: grey to its end": data[: len(data) * 9 // 10] + b"\xff\xd9",
        "damaged: zeros in its scan": overwrite_middle(data),
    }
    for reason, damaged in damages.items():
        assert verdict(load, damaged) == ""
        for read in READERS:
            with pytest.raises(RejectedImage, match=reason):
                read(damaged)


@all_modes
@all_options
def test_bytes_after_the_end_of_a_jpeg_are_ignored(mode, options):
    """Zeros and a damaged copy change no pixel."""
    data = saved(scene().convert(mode), **options)
    pixels = read_pixels(data)
    for rest in (bytes(100), overwrite_middle(data)):
        assert np.array_equal(read_pixels(data + rest), pixels)


@all_modes
@all_options
def test_an_image_that_really_ends_in_grey_is_read(mode, options):
    """One shade to the end is not mistaken for missing data, at any quality."""
    for top, shade in ((0, 128), (150, 128), (150, 127), (290, 128)):
        pixels = np.array(scene().convert(mode))
        pixels[top:] = shade
        for quality in (20, 75, 100):
            data = save_pixels(pixels, quality=quality, **options)
            expected = np.asarray(opened(data).convert("RGB"))
            assert cv2.PSNR(read_pixels(data), expected) > 40


@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=pytest.mark.heavy)])
def test_mutated_images_are_survived(root, count):
    """Each becomes a readable record or is rejected, in seconds.

    A file that is truncated to Pillow never becomes a record.
    """
    done = call_python("-m", "support.fuzzing", count, 1, cwd=root / "tests")
    counts = json.loads(done.stdout)
    assert counts.pop("truncated to Pillow") > count / 20
    assert counts.pop("rejected by Pillow") > 10
    assert not counts
