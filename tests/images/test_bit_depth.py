"""16-bit images: stretched, or rejected for their range, by 01 as for the records."""

from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest
from PIL import Image, TiffImagePlugin
from support.chain import run_values, save_picture
from support.fuzzing import verdict
from support.plans import verify
from support.scenes import (
    UNCHANGED,
    largest_difference,
    record_pixels,
    save_pixels,
    scene,
)

from kaggle_tfr.images.convert import check_image, convert, read_pixels
from kaggle_tfr.images.header import RejectedImage, read_upright

SCALE = partial(convert, settings=UNCHANGED)
STRETCH = replace(UNCHANGED, bit_depth="stretch")

GREY = np.asarray(scene().convert("L"), np.uint16)
LOW_BITS = np.arange(400, dtype=np.uint16) % 16
RADIOGRAPH = (GREY << 4) + LOW_BITS  # all of 12 bits
DARKEST = int(RADIOGRAPH.min())
BRIGHTEST = int(RADIOGRAPH.max())
COLORS = np.dstack([RADIOGRAPH, RADIOGRAPH, RADIOGRAPH[::-1]])


def encode(pixels, extension=".png"):
    """Return an image file by OpenCV."""
    _, buffer = cv2.imencode(extension, pixels)
    return buffer.tobytes()


def make_tiff(pixels, tags=(), *, in_planes=False):
    """Return a TIFF of pixels (h, w, bands), uint8 or uint16, or a strip per band.

    tags: their values by number: 262 what the colours are, by default RGB; 274
    orientation; 338 what the bands after the colours are.
    """
    height, width, n_bands = pixels.shape
    strips = np.moveaxis(pixels, 2, 0) if in_planes else pixels[None]
    n_bytes = strips[0].nbytes
    known = {
        256: width,
        257: height,
        258: [8 * pixels.itemsize] * n_bands,
        259: 1,  # not compressed
        262: 2,
        273: [n_bytes * number for number in range(len(strips))],
        277: n_bands,
        278: height,
        279: [n_bytes] * len(strips),
        284: 2 if in_planes else 1,
    }
    directory = TiffImagePlugin.ImageFileDirectory_v2()
    directory.update(known | dict(tags))
    return b"II*\0\x08\0\0\0" + directory.tobytes(8) + strips.tobytes()


# The same 12-bit image in files of all formats, grey or in colours.
RADIOGRAPHS = {
    "PNG": save_pixels(RADIOGRAPH, "PNG"),
    "TIFF": save_pixels(RADIOGRAPH, "TIFF"),
    "PGM": save_pixels(RADIOGRAPH, "PPM"),
    "I": save_pixels(RADIOGRAPH.astype(np.int32), "TIFF"),
    "F": save_pixels(RADIOGRAPH.astype(np.float32), "TIFF"),
    "RGB": encode(COLORS),
    "RGB TIFF": encode(COLORS, ".tiff"),
}


@pytest.mark.parametrize("data", RADIOGRAPHS.values(), ids=RADIOGRAPHS)
def test_a_12_bit_image_is_stretched_to_all_levels_or_rejected(data):
    """All readers show the darkest to the brightest value as 0 to 255.

    With "scale" it would be black, so the reason names its values and the fix.
    """
    pixels = record_pixels(data, STRETCH)

    expected = np.interp(RADIOGRAPH, [DARKEST, BRIGHTEST], [0, 255])
    green = pixels[..., 1]
    assert largest_difference(green, expected) <= 0.51
    assert np.array_equal(read_pixels(data), pixels)
    assert np.array_equal(read_upright(data, bit_depth="stretch"), pixels)
    _, luma = check_image(data, bit_depth="stretch")
    grey = Image.fromarray(pixels).convert("L")
    assert largest_difference(luma, np.asarray(grey)) <= 1
    reason = f"dark: values {DARKEST} to {BRIGHTEST} of 65535; set BIT"
    for read in (SCALE, partial(check_image, bit_depth="scale")):
        with pytest.raises(RejectedImage, match=reason):
            read(data)


@pytest.mark.parametrize(("top", "is_dark"), [(16_383, True), (16_384, False)])
def test_an_image_is_dark_below_a_quarter_of_the_range(top, is_dark):
    """Two of its 8 bits would always be 0."""
    ramp = np.linspace(0, top, 256).astype(np.uint16).reshape(16, 16)
    assert bool(verdict(SCALE, save_pixels(ramp, "PNG"))) == is_dark


GREY_BAND = np.asarray(scene().convert("L"))[..., None]
BANDS = np.dstack([np.asarray(scene()), GREY_BAND[::-1]])
DEEP_BANDS = BANDS * np.uint16(257)


@pytest.mark.parametrize(
    ("bands", "tags"),
    [
        (GREY_BAND, {262: 0}),  # white is zero
        (BANDS, {}),
        (BANDS, {274: 6}),  # rotated, which OpenCV and Pillow may do themselves
        (BANDS, {338: 0}),  # such as near infrared
        (BANDS, {338: 2}),  # transparency
        (BANDS, {262: 5}),  # CMYK
    ],
)
def test_a_16_bit_tiff_is_the_image_of_its_8_bit_version(bands, tags):
    """What the bands are is decided in the same way, by all readers."""
    version = make_tiff(bands, tags)
    data = make_tiff(bands * np.uint16(257), tags)

    expected = read_upright(version)
    record = record_pixels(data, UNCHANGED)
    for pixels in (read_upright(data), read_pixels(data), record):
        assert largest_difference(pixels, expected) <= 1
    _, luma = check_image(data)
    assert largest_difference(luma, check_image(version)[1]) <= 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (make_tiff(DEEP_BANDS, {338: 1}), "16 bits in planes, or with premultiplied"),
        (make_tiff(DEEP_BANDS, {262: 1, 338: (0, 0, 0)}), "of an unsupported type"),
        (make_tiff(COLORS, in_planes=True), "16 bits in planes"),
    ],
)
def test_other_16_bit_tiffs_are_rejected(data, reason):
    """OpenCV and Pillow mix up their colours. All readers give the same reason."""
    for read in (check_image, read_pixels, read_upright, SCALE):
        with pytest.raises(RejectedImage, match=reason):
            read(data)


def test_an_image_of_one_shade_is_stretched_to_black():
    """Its darkest value is its brightest, and 0 stays the darkest level."""
    one_shade = np.full((9, 9), 700, np.uint16)
    assert not record_pixels(save_pixels(one_shade, "PNG"), STRETCH).any()


def test_transparency_of_a_stretched_image_is_over_white():
    """A grey PNG may have a transparent value."""
    opaque = record_pixels(RADIOGRAPHS["PNG"], STRETCH)
    data = save_pixels(RADIOGRAPH, "PNG", transparency=1000)

    pixels = record_pixels(data, STRETCH)

    over_white = np.where(RADIOGRAPH[..., None] == 1000, 255, opaque)
    assert largest_difference(pixels, over_white) == 0


def test_the_choice_of_01_reaches_the_records(tmp_path):
    """Every 12-bit image is written, and its record equals its source."""
    for seed in range(12):
        grey = scene(80, 100, seed).convert("L")
        values = np.asarray(grey, np.uint16) << 4
        path = tmp_path / "in" / "ab"[seed % 2] / f"{seed}.png"
        save_picture(Image.fromarray(values), path)
    values = {"INPUT_DIR": str(tmp_path / "in"), "BIT_DEPTH": "stretch", "N_FOLDS": 2}
    work_dir = str(tmp_path / "work")

    *_, shards = run_values(values | {"IMAGE_SIZE": 64}, work_dir)

    assert shards["count"].sum() == 12
    verification = verify(f"{work_dir}/part-1", work_dir)
    assert verification.faults.empty
    assert verification.sources["psnr"].min() > 30
