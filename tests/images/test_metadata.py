"""Broken EXIF, profiles and texts reject no image: pixels are read without them."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo
from PIL.TiffImagePlugin import ImageFileDirectory_v2
from support.scenes import UNCHANGED, opened, saved, scene, wide_profile

from kaggle_tfr.images.convert import check_image, convert, read_pixels
from kaggle_tfr.images.facts import read_facts
from kaggle_tfr.images.header import read_header, read_upright

PHOTO = scene(60, 80)
NO_EXIF = b"Exif\0\0junkjunk"
LONG_TEXT = zlib.compress(bytes(2_000_000))  # Pillow stops at 1 MB
NOISE = np.random.default_rng(0).bytes(2_000_000)


def png(name, body, **options):
    """Return a PNG with this chunk before IDAT."""
    chunks = PngInfo()
    chunks.add(name, body)
    return saved(PHOTO, "PNG", pnginfo=chunks, **options)


def jpeg(*segments, **options):
    """Return a JPEG with these segments, pairs of marker and body, after JFIF."""
    added = b""
    for marker, body in segments:
        added += struct.pack(">BBH", 0xFF, marker, 2 + len(body)) + body
    return saved(PHOTO, extra=added, **options)


def tiff(tag, kind, value):
    """Return a TIFF with one more tag, which is a single value."""
    tags = ImageFileDirectory_v2()
    tags[tag] = value
    tags.tagtype[tag] = kind
    return saved(PHOTO, "TIFF", tiffinfo=tags)


BROKEN = {
    "PNG: EXIF": saved(PHOTO, "PNG", exif=NO_EXIF),
    "PNG: EXIF as text": png(b"tEXt", b"Raw profile type exif\0\n\n\nno hex"),
    "PNG: long text": png(b"zTXt", b"a\0\0" + LONG_TEXT),
    "PNG: long XMP": png(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + LONG_TEXT),
    "PNG: long profile": saved(PHOTO, "PNG", icc_profile=NOISE),
    "PNG: checksum of profile": saved(PHOTO, "PNG", icc_profile=NOISE[:99]).replace(
        b"iCCPICC", b"iCCPIcc"
    ),
    "JPEG: EXIF": jpeg((0xE1, NO_EXIF), dpi=(72, 72)),
    "JPEG: EXIF is cut": jpeg((0xE1, b"Exif\0\0II*\0\x08\0\0\0\x09\0"), dpi=(72, 72)),
    "JPEG: profile, progressive": jpeg((0xE2, b"ICC_PROFILE\0"), progressive=True),
    "JPEG: frames": jpeg((0xE2, b"MPF\0junkjunk")),
    "JPEG: Photoshop": jpeg((0xE1, NO_EXIF), (0xED, b"Photoshop 3.0\0008BIM\3\xed")),
    "JPEG: Adobe": jpeg((0xEE, b"Adobe"), progressive=True),
    "JPEG: comments of 1 MB": jpeg(*[(0xFE, bytes(65_000))] * 16),
    "JPEG: XMP of 1 MB": jpeg(*[(0xE1, b"http://ns.adobe" + bytes(65_000))] * 16),
    "WebP: EXIF": saved(PHOTO, "WEBP", lossless=True, exif=NO_EXIF),
    "TIFF: profile is a number": tiff(34675, 3, 7),
    "TIFF: XMP is a number": tiff(700, 3, 7),
    "TIFF: EXIF is elsewhere": tiff(34665, 4, 9_000_000),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_metadata_changes_no_pixel(name):
    """All readers show it as it is stored, and Pillow can read its record."""
    data = BROKEN[name]
    kind, _, _ = name.partition(":")
    options = {"lossless": True} if kind == "WebP" else {}
    if "progressive" in name or "Adobe" in name:
        options["progressive"] = True
    whole = saved(PHOTO, kind.upper(), **options)

    assert np.array_equal(read_pixels(data), read_pixels(whole))
    assert np.array_equal(read_upright(data), read_upright(whole))
    header, luma = check_image(data)
    assert header.orientation == 1
    assert np.array_equal(luma, check_image(whole)[1])
    record = ImageOps.exif_transpose(opened(convert(data, UNCHANGED).data))
    assert record.size == PHOTO.size


def test_a_broken_part_leaves_the_others():
    """Orientation, profile and camera are read beside it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "Canon"
    profile = wide_profile()
    text = b"zTXt", b"a\0\0" + LONG_TEXT
    short_profile = (0xE2, b"ICC_PROFILE\0")

    rotated = [png(*text, exif=exif), jpeg(short_profile, exif=exif)]
    colored = [
        png(*text, icc_profile=profile),
        saved(PHOTO, "PNG", exif=NO_EXIF, icc_profile=profile),
        jpeg((0xE1, NO_EXIF), icc_profile=profile, dpi=(72, 72)),
    ]

    for data in rotated:
        assert read_header(data).orientation == 6
        assert read_upright(data).shape == read_pixels(data).shape == (80, 60, 3)
    assert read_facts(rotated[1])["exif_camera"] == "Canon"
    for data in colored:
        assert read_header(data).profile == profile
