"""The pixels of images and records against Pillow, TensorFlow and the textbook."""

from dataclasses import replace
from functools import partial

import cv2
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps, JpegImagePlugin
from support.scenes import (
    SRGB,
    UNCHANGED,
    grey_profile,
    largest_difference,
    opened,
    record_pixels,
    save_pixels,
    saved,
    scene,
    wide_profile,
    wide_to_srgb,
)

from kaggle_tfr.images.convert import (
    ImageSettings,
    check_image,
    convert,
    output_size,
    read_pixels,
)
from kaggle_tfr.images.header import (
    RejectedImage,
    count_channels,
    read_header,
    read_upright,
)
from kaggle_tfr.images.masks import decode_mask, encode_mask
from kaggle_tfr.parameters import PARAMETERS, make_settings
from kaggle_tfr.plan.plan import PlanSettings
from kaggle_tfr.records import parse_record
from kaggle_tfr.schema import Field, RecordSchema, encode

SIDE = st.integers(1, 90)
SIZES = st.tuples(SIDE, SIDE)
KINDS = ["JPEG", "PNG", "WEBP", "TIFF"]
SMALL = scene(40, 60)
FRAMES = {"save_all": True, "append_images": [SMALL.rotate(180)]}
RESIZES = PARAMETERS["RESIZE"].choices
RESAMPLES = PARAMETERS["RESAMPLE"].choices


def square(side, **options):
    """Return the settings for images of this side."""
    return ImageSettings((side, side), **options)


def show(data):
    """Return the upright RGB pixels of a file without transparency and profile."""
    upright = ImageOps.exif_transpose(opened(data))
    return np.asarray(upright.convert("RGB"))


def read_luma(data):
    """Return the grey levels that the hashes are made from."""
    _, luma = check_image(data)
    return luma


def to_grey(pixels):
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.convert("L"))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", KINDS)
def test_every_orientation_comes_out_upright(orientation, kind):
    """Pixels and luma equal those of Pillow's exif_transpose, except for rounding."""
    data = saved(scene(90, 130), kind, orientation)
    expected = show(data)

    header = read_header(data)
    pixels = read_pixels(data)

    assert pixels.shape == (header.height, header.width, 3)
    assert largest_difference(pixels, expected) <= 2
    assert largest_difference(read_upright(data), expected) == 0
    assert cv2.PSNR(read_luma(data), to_grey(expected)) > 45


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("resize", ["short_side", "stretch", "fill", "center_crop"])
def test_a_scaled_and_cropped_image_is_still_upright(orientation, resize):
    """Rotating after decoding, resizing and cropping gives the same as before."""
    width = 96 if resize == "short_side" else 128
    chosen = ImageSettings((96, width), resize=resize)
    data = saved(scene(400, 600), orientation=orientation)
    rotated_before = convert(save_pixels(show(data)), chosen)
    expected = show(rotated_before.data)

    record = convert(data, chosen)

    assert (record.height, record.width) == expected.shape[:2]
    assert cv2.PSNR(show(record.data), expected) > 32


FILES = {
    "PNG 1": saved(SMALL.convert("1"), "PNG"),
    "PNG L": saved(SMALL.convert("L"), "PNG"),
    "PNG P": saved(SMALL.convert("P"), "PNG"),
    "PNG RGB": saved(SMALL, "PNG"),
    "BMP": saved(SMALL, "BMP"),
    "TIFF CMYK": saved(SMALL.convert("CMYK"), "TIFF"),
    "PPM": saved(SMALL, "PPM"),
    "JP2": saved(SMALL, "JPEG2000"),
    "AVIF": saved(SMALL, "AVIF"),
    "PNG of two": saved(SMALL, "PNG", **FRAMES),
    "WEBP of two": saved(SMALL, "WEBP", **FRAMES),
    "GIF of two": saved(SMALL, "GIF", **FRAMES),
    "TIFF of two": saved(SMALL, "TIFF", **FRAMES),
    "JPEG L": saved(SMALL.convert("L")),
    "JPEG CMYK": saved(SMALL.convert("CMYK")),
    "JPEG progressive": saved(SMALL, progressive=True),
    "JPEG in RGB": saved(SMALL, keep_rgb=True),
    "JPEG of two": saved(SMALL, "MPO", **FRAMES),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_read_as_by_pillow(name):
    """JPEG decoders may round by 2 levels; other formats are equal.

    Of several frames it is the first. Hashes are made of the same image as the record.
    """
    data = FILES[name]
    expected = show(data)
    is_jpeg = "JPEG" in name
    assert largest_difference(read_pixels(data), expected) <= 2 * is_jpeg
    assert largest_difference(read_upright(data), expected) == 0
    if not is_jpeg:
        assert np.array_equal(record_pixels(data, UNCHANGED), expected)
        assert largest_difference(read_luma(data), to_grey(expected)) <= 1
    if is_jpeg or "PNG" in name:
        assert count_channels(data) == tf.io.decode_image(data).shape[-1]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_over_white(mode):
    """The result is that of the arithmetic, within one level, for all readers."""
    if mode == "P":
        data = saved(SMALL.quantize(16), "PNG", transparency=3)
    else:
        image = SMALL.convert(mode)
        levels = np.arange(0, 240, 4, dtype=np.uint8)
        image.putalpha(Image.fromarray(np.tile(levels, (40, 1))))
        data = saved(image, "PNG")
    rgba = np.asarray(opened(data).convert("RGBA"), float)
    alpha = rgba[..., 3:] / 255
    over_white = 255 + (rgba[..., :3] - 255) * alpha

    record = record_pixels(data, UNCHANGED)

    assert largest_difference(record, over_white) <= 1
    assert largest_difference(read_upright(data), over_white) <= 1
    assert largest_difference(read_luma(data), to_grey(record)) <= 1
    assert convert(data, UNCHANGED).data != data


CLEAR = Image.new("RGBA", SMALL.size)
_, CLEAR_16_BITS = cv2.imencode(".png", np.zeros((40, 60, 4), np.uint16))


@pytest.mark.parametrize(
    "data",
    [
        saved(CLEAR, "WEBP"),
        saved(CLEAR, "GIF"),
        CLEAR_16_BITS.tobytes(),
        save_pixels(np.uint8([[[255] * 4, [0] * 4]]), "PNG"),
    ],
)
def test_an_image_that_transparency_hides_is_rejected(data):
    """Over white nothing of it would be left."""
    for read in (partial(check_image, bit_depth="scale"), read_pixels, read_upright):
        with pytest.raises(RejectedImage, match="only white or transparent"):
            read(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_gamut_profile_is_converted_to_srgb(kind):
    """The colours are those of the textbook's matrices, within 2 levels."""
    data = saved(SMALL, kind, icc_profile=wide_profile())
    stored_colours = opened(data).convert("RGB")

    expected = wide_to_srgb(stored_colours)
    assert largest_difference(read_pixels(data), expected) <= 2
    assert largest_difference(read_upright(data), expected) <= 2


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize(("resample", "limit"), [("area", 25), ("lanczos", 3)])
def test_fine_stripes_become_grey_below_half_size(kind, resample, limit):
    """Lanczos leaves 0 of 127 levels, area steps 24, and OpenCV's default over 70."""
    stripes = np.zeros((1024, 1024, 3), np.uint8)
    stripes[:, ::2] = 255
    data = save_pixels(stripes, kind)
    for side in (64, 200, 300, 400, 500, 512):
        pixels = record_pixels(data, square(side, resample=resample))
        assert pixels[8:-8, 8:-8].std() < limit, side


@settings(max_examples=50)
@given(SIZES, SIZES, st.sampled_from(RESIZES), st.sampled_from(RESAMPLES))
def test_the_record_has_the_announced_size(shape, size, resize, resample):
    """`output_size`, the record and its pixels agree, for any image and settings.

    "short_side" enlarges nothing; its long side is exact within half a pixel.
    """
    if resize == "short_side":
        size = (size[0], size[0])
    chosen = ImageSettings(
        None if resize == "none" else size, resize=resize, resample=resample
    )

    record = convert(saved(scene(*shape)), chosen)

    width, height = opened(record.data).size
    assert output_size(*shape, chosen) == (height, width)
    assert (record.height, record.width) == (height, width)
    if resize == "short_side":
        short, long = sorted((height, width))
        assert short == min(size[0], *shape)
        assert long == pytest.approx(max(shape) / min(shape) * short, abs=0.5)
    else:
        assert (height, width) == (shape if resize == "none" else size)


@pytest.mark.parametrize("resize", RESIZES)
def test_a_mask_follows_its_image(resize):
    """The code in a record marks the pixels of the image that shows the mask."""
    y, x = np.mgrid[:300, :400]
    mask = np.hypot(y - 170, x - 130) < 90
    sizes = {"none": None, "short_side": (96, 96)}
    chosen = ImageSettings(sizes.get(resize, (96, 112)), resize=resize)
    image = convert(save_pixels(mask, "PNG"), chosen)
    schema = RecordSchema((Field("code", "disc"),), "masks", 1, ("disc",))
    row = {"disc": encode_mask(mask), "height": 300, "width": 400}

    features = parse_record(encode(row, image, schema, chosen))

    (code,) = features["code"].bytes_list.value
    resized = decode_mask(code.decode(), image.height, image.width)
    is_bright = show(image.data)[..., 0] > 126
    assert np.mean(resized == is_bright) > 0.99


SHORT_SIDE = square(128)
STRETCHED = ImageSettings((100, 150), "stretch")
PHOTO = scene(100, 150)
GREY = PHOTO.convert("L")
LARGE_PHOTO = scene()


@pytest.mark.parametrize(
    ("data", "chosen"),
    [
        (saved(LARGE_PHOTO), UNCHANGED),
        (saved(GREY, "PNG"), UNCHANGED),
        (saved(PHOTO, icc_profile=SRGB), SHORT_SIDE),
        (saved(PHOTO, icc_profile=b"no profile at all"), SHORT_SIDE),
        (saved(GREY, icc_profile=grey_profile()), SHORT_SIDE),
    ],
)
def test_an_image_that_needs_no_change_keeps_its_bytes(data, chosen):
    """These are small JPEG, and with "none" every plain JPEG and PNG.

    The profile may be that of sRGB, a grey one with its curve, or broken.
    """
    assert convert(data, chosen).data == data
    assert largest_difference(read_pixels(data), show(data)) <= 2


@pytest.mark.parametrize(
    ("data", "chosen"),
    [
        (saved(scene(129, 150)), SHORT_SIDE),
        (saved(PHOTO, orientation=3), UNCHANGED),
        (saved(PHOTO.convert("CMYK")), SHORT_SIDE),
        (saved(PHOTO, icc_profile=wide_profile()), SHORT_SIDE),
        (saved(GREY, icc_profile=grey_profile(gamma=1.8)), SHORT_SIDE),
        (saved(PHOTO, "PNG"), SHORT_SIDE),
        (saved(PHOTO, "BMP"), UNCHANGED),
        (FILES["PNG of two"], UNCHANGED),
        (saved(PHOTO), replace(SHORT_SIDE, pass_through=False)),
        (saved(PHOTO), STRETCHED),
    ],
)
def test_any_other_image_becomes_a_new_jpeg(data, chosen):
    """Its size, orientation, colours or format differ, or the settings demand it."""
    record = convert(data, chosen)
    assert record.data != data
    assert record.format == opened(record.data).format == "JPEG"


@pytest.mark.parametrize(
    ("quality", "subsampling", "number"), [(30, "4:2:0", 2), (95, "4:4:4", 0)]
)
def test_the_encoder_follows_the_settings(quality, subsampling, number):
    """Quantisation tables are libjpeg's; chroma is as set; the file is sequential.

    The defaults are those of the parameters.
    """
    assert make_settings(PlanSettings, {}).image == square(256)
    photo = saved(LARGE_PHOTO)
    chosen = square(128, quality=quality, subsampling=subsampling)
    data = convert(photo, chosen).data
    image = opened(data)
    by_pillow = opened(saved(LARGE_PHOTO, quality=quality))
    assert image.quantization == by_pillow.quantization
    assert JpegImagePlugin.get_sampling(image) == number
    assert "progressive" not in image.info
    assert len(data) < len(convert(photo, replace(chosen, optimize=False)).data)
