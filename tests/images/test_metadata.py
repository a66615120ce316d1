"""Metadata: broken parts reject no image; quality, camera and time of a JPEG."""

import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo
from PIL.TiffImagePlugin import ImageFileDirectory_v2
from support.scenes import (
    UNCHANGED,
    largest_difference,
    opened,
    saved,
    scene,
    wide_profile,
)

from kaggle_tfr.images.convert import check_image, convert, read_pixels
from kaggle_tfr.images.facts import NO_FACTS, read_facts
from kaggle_tfr.images.header import read_header, read_upright

PHOTO = scene(60, 80)
NO_EXIF = b"Exif\0\0junkjunk"
# Pillow stops at 1 MB.
TEXT = (b"zTXt", b"a\0\0" + zlib.compress(bytes(2_000_000)))
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
    "PNG: long text": png(*TEXT),
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
    "WEBP: EXIF": saved(PHOTO, "WEBP", exif=NO_EXIF),
    "TIFF: profile is a number": tiff(34675, 3, 7),
    "TIFF: XMP is a number": tiff(700, 3, 7),
    "TIFF: EXIF is elsewhere": tiff(34665, 4, 9_000_000),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_metadata_changes_no_pixel(name):
    """All readers show it as it is stored, and Pillow can read its record."""
    data = BROKEN[name]
    kind, _, _ = name.partition(":")
    whole = saved(PHOTO, kind)
    expected = read_upright(whole)

    assert np.array_equal(read_upright(data), expected)
    assert largest_difference(read_pixels(data), expected) <= 2
    header, luma = check_image(data)
    assert header.orientation == 1
    assert largest_difference(luma, check_image(whole)[1]) <= 2
    record = ImageOps.exif_transpose(opened(convert(data, UNCHANGED).data))
    assert record.size == PHOTO.size


def test_a_broken_part_leaves_the_others():
    """Orientation, profile and camera are read beside it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "Canon"
    profile = wide_profile()

    rotated = [png(*TEXT, exif=exif), jpeg((0xE2, b"ICC_PROFILE\0"), exif=exif)]
    colored = [
        png(*TEXT, icc_profile=profile),
        jpeg((0xE1, NO_EXIF), icc_profile=profile, dpi=(72, 72)),
    ]

    for data in rotated:
        assert read_header(data).orientation == 6
        assert read_upright(data).shape == read_pixels(data).shape == (80, 60, 3)
    assert read_facts(rotated[1])["exif_camera"] == "Canon"
    for data in colored:
        assert read_header(data).profile == profile


@pytest.mark.parametrize("quality", [1, 30, 90, 100])
def test_the_quality_is_that_of_the_encoder(quality):
    """Of Pillow and of OpenCV, sequential or progressive."""
    pixels = np.asarray(PHOTO)
    _, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    files = [
        saved(PHOTO, quality=quality),
        saved(PHOTO, quality=quality, progressive=True),
        encoded.tobytes(),
    ]
    assert [read_facts(file)["jpeg_quality"] for file in files] == [quality] * 3


def test_camera_and_time_are_those_of_exif():
    """Make and model are one text; the padding of old cameras is not part of it."""
    exif = Image.Exif()
    exif[0x010F] = "Canon\0"
    exif[0x0110] = "EOS  5D"
    exif.get_ifd(0x8769)[0x9003] = "2026:05:01 10:22:33"

    facts = read_facts(saved(PHOTO, quality=80, exif=exif))

    values = [80, "Canon EOS 5D", "2026-05-01 10:22:33"]
    assert facts == dict(zip(NO_FACTS, values, strict=True))


def test_other_and_damaged_files_have_no_facts():
    """Facts never reject an image."""
    exif = Image.Exif()
    exif[0x010F] = "Canon"
    whole = saved(PHOTO, quality=80, exif=exif)
    damaged = whole.replace(b"II*\0", b"IIII").replace(b"MM\0*", b"MMMM")
    assert damaged != whole
    assert read_facts(damaged) == NO_FACTS | {"jpeg_quality": 80}
    short_table = b"\xff\xd8\xff\xdb\0\x67\x10" + bytes(120)
    for data in (saved(PHOTO, "PNG"), b"", b"\xff\xd8\xff", short_table):
        assert read_facts(data) == NO_FACTS
