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
from kaggle_tfr.parameters import PARAMETERS
from kaggle_tfr.schema import Field, RecordSchema, encode

SIDE = st.integers(1, 90)
SIZES = st.tuples(SIDE, SIDE)
KINDS = ["JPEG", "PNG", "WEBP", "TIFF"]
# What keeps the colours of each pixel.
LOSSLESS = {
    "JPEG": {"subsampling": 0},
    "WEBP": {"lossless": True},
}
SMALL = scene(40, 60)
RESIZES = PARAMETERS["RESIZE"].choices
RESAMPLES = PARAMETERS["RESAMPLE"].choices


def square(side, **options):
    """Return the settings for images of this side."""
    return ImageSettings((side, side), **options)


def save_exactly(image, kind, orientation=0, **options):
    """Return an image file of the format that keeps the colours of each pixel."""
    options |= LOSSLESS.get(kind, {})
    return saved(image, kind, orientation, **options)


def show(data):
    """Return the upright RGB pixels of a file without transparency and profile."""
    upright = ImageOps.exif_transpose(opened(data))
    return np.asarray(upright.convert("RGB"))


def to_grey(pixels):
    image = Image.fromarray(pixels)
    return np.asarray(image.convert("L"))


def read_luma(data):
    """Return the grey levels that the hashes are made from."""
    _, luma = check_image(data)
    return luma


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", KINDS)
def test_every_orientation_comes_out_upright(orientation, kind):
    """Pixels and luma equal those of Pillow's exif_transpose, except for rounding."""
    data = save_exactly(scene(90, 130), kind, orientation)
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


LOSSLESS_FILES = {
    "PNG 1": saved(SMALL.convert("1"), "PNG"),
    "PNG L": saved(SMALL.convert("L"), "PNG"),
    "PNG P": saved(SMALL.convert("P"), "PNG"),
    "PNG RGB": saved(SMALL, "PNG"),
    "WEBP": saved(SMALL, "WEBP"),
    "GIF": saved(SMALL.convert("P"), "GIF"),
    "BMP": saved(SMALL, "BMP"),
    "TIFF RGB": saved(SMALL, "TIFF"),
    "TIFF CMYK": saved(SMALL.convert("CMYK"), "TIFF"),
    "PPM": saved(SMALL, "PPM"),
}
JPEG_FILES = {
    "JPEG L": saved(SMALL.convert("L")),
    "JPEG CMYK": saved(SMALL.convert("CMYK")),
    "progressive": saved(SMALL, progressive=True),
    "JPEG in RGB": saved(SMALL, keep_rgb=True),
}
FILES = LOSSLESS_FILES | JPEG_FILES


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_read_as_by_pillow(name):
    """JPEG decoders may round by 2 levels; other formats are equal.

    Hashes are made of the same image as the record.
    """
    data = FILES[name]
    expected = show(data)
    limit = 2 if name in JPEG_FILES else 0
    assert largest_difference(read_pixels(data), expected) <= limit
    assert largest_difference(read_upright(data), expected) == 0
    if name in LOSSLESS_FILES:
        assert np.array_equal(record_pixels(data, UNCHANGED), expected)
        assert largest_difference(read_luma(data), to_grey(expected)) <= 1
    if name in JPEG_FILES or "PNG" in name:
        check_channels(data)


def check_channels(data):
    pixels = tf.io.decode_image(data)
    assert count_channels(data) == pixels.shape[2]


def check_special_png(data, expected, limit):
    """Check that records, hashes and verify's reference see the expected pixels."""
    record = record_pixels(data, UNCHANGED)
    grey = to_grey(np.ascontiguousarray(record))
    assert largest_difference(record, expected) <= limit
    assert largest_difference(read_upright(data), expected) <= limit
    assert largest_difference(read_luma(data), grey) <= 1
    assert convert(data, UNCHANGED).data != data


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_over_white(mode):
    """The result is that of the arithmetic, within one level."""
    if mode == "P":
        indexed = SMALL.quantize(16)
        data = saved(indexed, "PNG", transparency=3)
    else:
        image = SMALL.convert(mode)
        levels = np.arange(0, 240, 4, dtype=np.uint8)
        ramp = np.tile(levels, (40, 1))
        image.putalpha(Image.fromarray(ramp))
        data = saved(image, "PNG")
    rgba = np.asarray(opened(data).convert("RGBA"), float)
    colours = rgba[..., :3]
    alpha = rgba[..., 3:] / 255
    over_white = 255 + (colours - 255) * alpha

    check_special_png(data, over_white, limit=1)


def hide(image, top):
    """Return the image in RGBA, transparent from row `top` on."""
    rgba = np.array(image.convert("RGBA"))
    rgba[top:, :, 3] = 0
    return Image.fromarray(rgba)


WHITE = Image.new("RGB", (60, 40), "white")
_, CLEAR_16_BITS = cv2.imencode(".png", np.zeros((40, 60, 4), np.uint16))


@pytest.mark.parametrize(
    "data",
    [
        saved(hide(SMALL, 0), "WEBP"),
        saved(hide(SMALL, 0), "GIF"),
        CLEAR_16_BITS.tobytes(),
        saved(hide(WHITE, 20), "PNG"),
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
    data = save_exactly(SMALL, kind, icc_profile=wide_profile())
    stored_colours = opened(data).convert("RGB")

    expected = wide_to_srgb(stored_colours)
    assert largest_difference(read_pixels(data), expected) <= 2
    assert largest_difference(read_upright(data), expected) <= 2


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize(
    ("resample", "limit"),
    [
        ("area", 25),
        ("lanczos", 3),
    ],
)
def test_fine_stripes_become_grey_below_half_size(kind, resample, limit):
    """Lanczos leaves 0 of 127 levels, area steps 24, and OpenCV's default over 70."""
    stripes = np.zeros((1024, 1024, 3), np.uint8)
    stripes[:, ::2] = 255
    data = save_pixels(stripes, kind)
    for side in (64, 100, 200, 255, 256, 300, 341, 400, 500, 512):
        pixels = record_pixels(data, square(side, resample=resample))
        inner_pixels = pixels[8:-8, 8:-8]
        assert inner_pixels.std() < limit, side


LONG_SIDE = st.integers(1, 5000)


@given(LONG_SIDE, LONG_SIDE, st.integers(1, 600))
def test_short_side_shrinks_to_the_side_and_keeps_the_shape(height, width, side):
    """The short side is exact, the long one within half a pixel; none is enlarged."""
    size = output_size(height, width, square(side))
    short, long = sorted(size)
    assert short == min(side, height, width)
    shape = max(height, width) / min(height, width)
    assert long == pytest.approx(shape * short, abs=0.5)


@settings(max_examples=40)
@given(SIZES, SIZES, st.sampled_from(RESIZES), st.sampled_from(RESAMPLES))
def test_the_record_has_the_announced_size(shape, size, resize, resample):
    """`output_size`, the record and its pixels agree, for any image and settings."""
    if resize == "none":
        size = None
    elif resize == "short_side":
        size = (size[0], size[0])
    chosen = ImageSettings(size, resize=resize, resample=resample)
    record = convert(saved(scene(*shape)), chosen)
    width, height = opened(record.data).size

    assert output_size(*shape, chosen) == (height, width)
    assert (record.height, record.width) == (height, width)
    if resize in ("stretch", "fill", "center_crop"):
        assert (height, width) == size


@pytest.mark.parametrize("resize", RESIZES)
def test_a_mask_follows_its_image(resize):
    """The code in a record marks the pixels of the image that shows the mask."""
    y, x = np.mgrid[:300, :400]
    mask = np.hypot(y - 170, x - 130) < 90
    sizes = {"none": None, "short_side": (96, 96)}
    chosen = ImageSettings(sizes.get(resize, (96, 112)), resize=resize)
    image = convert(saved(Image.fromarray(mask).convert("RGB"), "PNG"), chosen)
    schema = RecordSchema((Field("code", "disc"),), "masks", 1, ("disc",))
    row = {"disc": encode_mask(mask), "height": 300, "width": 400}

    example = tf.train.Example.FromString(encode(row, image, schema, chosen))

    (code,) = example.features.feature["code"].bytes_list.value
    resized = decode_mask(code.decode(), image.height, image.width)
    is_bright = show(image.data)[..., 0] > 126
    assert np.mean(resized == is_bright) > 0.99


def test_a_grey_profile_with_the_curve_of_srgb_changes_nothing():
    """A grey JPEG with it keeps its bytes; another curve is applied."""
    grey = scene(100, 150).convert("L")
    chosen = square(128)
    with_srgb = saved(grey, icc_profile=grey_profile())
    with_gamma = saved(grey, icc_profile=grey_profile(1.8))
    assert convert(with_srgb, chosen).data == with_srgb
    assert convert(with_gamma, chosen).data != with_gamma


SHORT_SIDE = square(128)
STRETCHED = ImageSettings((100, 150), "stretch")
PHOTO = scene(100, 150)
LARGE_PHOTO = scene()
GREY = LARGE_PHOTO.convert("L")


@pytest.mark.parametrize(
    ("data", "chosen"),
    [
        (saved(LARGE_PHOTO), UNCHANGED),
        (saved(GREY, "PNG"), UNCHANGED),
        (saved(PHOTO, icc_profile=SRGB), SHORT_SIDE),
        (saved(PHOTO, icc_profile=b"no profile at all"), SHORT_SIDE),
    ],
)
def test_an_image_that_needs_no_change_keeps_its_bytes(data, chosen):
    """These are small JPEG, and with "none" every plain JPEG and PNG."""
    assert convert(data, chosen).data == data
    assert largest_difference(read_pixels(data), show(data)) <= 2


@pytest.mark.parametrize(
    ("data", "chosen"),
    [
        (saved(scene(129, 150)), SHORT_SIDE),
        (saved(PHOTO, orientation=3), UNCHANGED),
        (saved(PHOTO.convert("CMYK")), SHORT_SIDE),
        (saved(PHOTO, icc_profile=wide_profile()), SHORT_SIDE),
        (saved(PHOTO, "PNG"), SHORT_SIDE),
        (saved(PHOTO, "BMP"), UNCHANGED),
        (saved(PHOTO), replace(SHORT_SIDE, pass_through=False)),
        (saved(PHOTO), STRETCHED),
    ],
)
def test_any_other_image_becomes_a_new_jpeg(data, chosen):
    """Its size, orientation, colours or format differ, or the settings demand it."""
    record = convert(data, chosen)
    assert record.data != data
    assert record.format == "JPEG"
    assert opened(record.data).format == "JPEG"


@pytest.mark.parametrize(
    ("subsampling", "number"),
    [
        ("4:2:0", 2),
        ("4:4:4", 0),
    ],
)
@pytest.mark.parametrize("quality", [30, 70, 95, 100])
def test_the_encoder_follows_the_settings(subsampling, number, quality):
    """Quantisation tables are libjpeg's; chroma is as set; the file is sequential."""
    photo = scene()
    chosen = square(128, quality=quality, subsampling=subsampling)
    record = convert(saved(photo), chosen)
    image = opened(record.data)
    by_pillow = opened(saved(photo, quality=quality, subsampling=number))
    assert image.quantization == by_pillow.quantization
    assert JpegImagePlugin.get_sampling(image) == number
    assert JpegImagePlugin.get_sampling(by_pillow) == number
    assert "progressive" not in image.info


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_an_animation_is_used(kind):
    """The file does not pass through."""
    frames = [scene(40, 60, seed) for seed in range(3)]
    first, *others = [frame.quantize(64) for frame in frames]
    data = save_exactly(first, kind, save_all=True, append_images=others)
    expected = np.asarray(first.convert("RGB"))

    assert convert(data, UNCHANGED).data != data
    assert cv2.PSNR(read_pixels(data), expected) > 40
