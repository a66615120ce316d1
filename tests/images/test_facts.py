"""The header of a JPEG states its quality, camera and time."""

import cv2
import numpy as np
import pytest
from PIL import Image
from support.scenes import saved, scene

from kaggle_tfr.images.facts import NO_FACTS, read_facts

PHOTO = scene(48, 64)


@pytest.mark.parametrize("quality", [1, 30, 70, 90, 95, 100])
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
