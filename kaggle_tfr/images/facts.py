"""Measure an image, and read its origin from its header: quality, camera, time."""

import io
import itertools
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import cv2
import numpy as np
from PIL import ExifTags, Image
from PIL.JpegImagePlugin import JpegImageFile

from kaggle_tfr.images.header import list_segments, open_image

SIDE = 64  # pixels of a tile, at most
_TIME = re.compile(r"(\d{4}):(\d\d):(\d\d \d\d:\d\d:\d\d)")


# The origin of an image file, as its header states it:
NO_FACTS: dict[str, int | str] = {
    "jpeg_quality": 0,  # 1 to 100, estimated; 0 for other formats
    "exif_camera": "",  # make and model
    "exif_time": "",  # when the photograph was taken, "2026-05-01 10:22:33"
}


def read_facts(data: bytes) -> dict[str, int | str]:
    """Return jpeg_quality, exif_camera and exif_time of an image file.

    What is unknown is as in `NO_FACTS`, 0 or "": all for other formats than JPEG, and
    camera and time without EXIF or with damaged EXIF.
    """
    facts = dict(NO_FACTS)
    # A JPEG without EXIF does not need Pillow, which is slower.
    if luma_table := _find_luma_table(data):
        return facts | {"jpeg_quality": _estimate_quality(luma_table)}
    # Pillow raises almost any type for damaged files.
    with suppress(Exception):
        image, _ = open_image(data)  # whose metadata may be damaged
        if isinstance(image, JpegImageFile):
            facts["jpeg_quality"] = _estimate_quality(image.quantization[0])
            exif = image.getexif()
            make = exif.get(ExifTags.Base.Make, "")
            model = exif.get(ExifTags.Base.Model, "")
            # Some cameras fill their names up with zeros.
            camera = f"{make} {model}".replace("\0", " ")
            facts["exif_camera"] = " ".join(camera.split())
            taken = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
            if match := _TIME.match(str(taken)):  # year, month, and day with time
                facts["exif_time"] = "-".join(match.groups())
    return facts


def _find_luma_table(data: bytes) -> bytes:
    """Return the luma table of a JPEG without EXIF, else b"".

    The table has the 64 divisors of the coefficients of luma, a byte each. To walk the
    segments of the file takes a tenth of Pillow's time.
    """
    table = b""
    for marker, start, _ in list_segments(data):
        if marker == 0xE1:  # APP1, which contains EXIF
            return b""
        if marker == 0xDB and data[start + 4] == 0:  # of 8 bits, and the first table
            table = data[start + 5 : start + 69]
    return table


def _estimate_quality(luma_table: Sequence[int]) -> int:
    """Return the quality of libjpeg, 1 to 100, whose luma table has the closest sum."""
    differences = _sum_luma_tables() - sum(luma_table)
    return 1 + int(np.abs(differences).argmin())


@cache
def _sum_luma_tables() -> np.ndarray:
    """Return the sum of libjpeg's luma table for each quality, 1 to 100: int (100,)."""
    sums = []
    for quality in range(1, 101):
        file = io.BytesIO()
        Image.new("L", (8, 8)).save(file, "JPEG", quality=quality)
        file.seek(0)
        sums.append(sum(JpegImageFile(file).quantization[0]))
    return np.array(sums)


def measure_quality(luma: np.ndarray) -> tuple[float, float]:
    """Return the brightness and the sharpness, both in grey levels of 255.

    luma: of `check_image`, uint8 (height, width).
    brightness: the mean. sharpness: the root mean square of the Laplacian in the
    sharpest of nine tiles, of up to 64 × 64 pixels, so that a sharp flower on a blurred
    ground is sharp.
    """
    height, width = luma.shape
    bottom = max(0, height - SIDE)
    right = max(0, width - SIDE)
    # Tiles are at both edges and between; all pixels would take longer than the hashes.
    # A side below `SIDE` is one tile, measured three times.
    tops = (0, bottom // 2, bottom)
    lefts = (0, right // 2, right)
    highest = 0.0
    for top, left in itertools.product(tops, lefts):
        tile = luma[top : top + SIDE, left : left + SIDE]
        laplacian = cv2.Laplacian(tile, cv2.CV_16S)
        power = cv2.norm(laplacian, cv2.NORM_L2SQR) / laplacian.size
        highest = max(highest, power)
    brightness, *_ = cv2.mean(luma)  # of four channels, whose others are empty
    # Rounded, because processors add in different orders.
    return round(brightness, 2), round(highest**0.5, 2)
