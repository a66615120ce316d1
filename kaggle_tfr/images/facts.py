"""Read what a JPEG's header reveals about its origin: quality, camera, time."""

import re
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from PIL import ExifTags, Image

from kaggle_tfr.images.header import list_segments

EXIF = b"Exif\0\0"
_TIME = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d:\d\d:\d\d)")
# The luma table of quality 50. Source: ITU-T T.81, table K.1.
_LUMA_TABLE = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)


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
    start = 2
    for marker, _, end in list_segments(data):
        if marker == 0xDA:  # the scan
            break
        content = data[start + 4 : end]
        start = end
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
    # The first quality, in descending order, whose table has at least this sum.
    place = bisect_left(_SUMS, total)
    neighbors = [n for n in (place - 1, place) if 0 <= n < len(_SUMS)]
    return 100 - min(neighbors, key=lambda n: abs(_SUMS[n] - total))


def _sum_luma_table(quality: int) -> int:
    """Return the sum of libjpeg's luma table. Source: libjpeg, jpeg_quality_scaling."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return int(((_LUMA_TABLE * scale + 50) // 100).clip(1, 255).sum())


_SUMS = [_sum_luma_table(quality) for quality in range(100, 0, -1)]


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
