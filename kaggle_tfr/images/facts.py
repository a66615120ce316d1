"""Read what a JPEG's header reveals about its origin: quality, camera, time."""

import io
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import ExifTags, Image, JpegImagePlugin

from kaggle_tfr.images.header import list_segments

EXIF = b"Exif\0\0"
_TIME = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class FileFacts:
    """The origin of an image file, as its header states it.

    jpeg_quality: 1 to 100, estimated; 0 for other formats.
    exif_camera: make and model, "" for none.
    exif_time: when the photograph was taken, "2026-05-01 10:22:33"; "" for none.
    """

    jpeg_quality: int = 0
    exif_camera: str = ""
    exif_time: str = ""


def read_facts(data: bytes) -> FileFacts:
    """Return the facts of an image file. Only JPEGs have any; damaged EXIF has none."""
    quality = 0
    camera = time = ""
    for marker, start, end in list_segments(data):
        content = data[start + 4 : end]
        if marker == 0xDB and not quality:
            quality = estimate_quality(content)
        elif marker == 0xE1 and content.startswith(EXIF) and not camera + time:
            camera, time = _read_exif(content)
    return FileFacts(quality, camera, time)


def estimate_quality(tables: bytes) -> int:
    """Return the libjpeg quality with the closest luma table, 1 to 100; 0 without one.

    tables: the content of a JPEG's segment of quantization tables, the luma's first.
    """
    has_two_bytes = bool(tables[:1] and tables[0] >> 4)
    dtype = np.dtype(">u2" if has_two_bytes else np.uint8)
    luma = tables[1 : 1 + 64 * dtype.itemsize]
    if len(luma) < 64 * dtype.itemsize:
        return 0
    total = int(np.frombuffer(luma, dtype).sum())
    sums = _sum_luma_tables()
    return min(sums, key=lambda quality: abs(sums[quality] - total))


@cache
def _sum_luma_tables() -> dict[int, int]:
    """Return the sum of libjpeg's luma table for each quality from 100 to 1."""
    sums = {}
    for quality in range(100, 0, -1):
        file = io.BytesIO()
        Image.new("L", (8, 8)).save(file, "JPEG", quality=quality)
        file.seek(0)
        tables = JpegImagePlugin.JpegImageFile(file).quantization
        sums[quality] = sum(tables[0])
    return sums


def _read_exif(content: bytes) -> tuple[str, str]:
    """Return the camera and the time of an EXIF segment, "" for what it lacks."""
    camera = time = ""
    # Pillow raises almost any type for damaged files.
    with suppress(Exception):
        exif = Image.Exif()
        exif.load(content)
        names = [exif.get(ExifTags.Base.Make), exif.get(ExifTags.Base.Model)]
        camera = " ".join(_clean(name) for name in names if name).strip()
        taken = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
        if match := _TIME.match(str(taken)):
            year, month, day, clock = match.groups()
            time = f"{year}-{month}-{day} {clock}"
    return camera, time


def _clean(name: object) -> str:
    """Return a name of EXIF as one line of text."""
    return " ".join(str(name).replace("\0", " ").split())
