"""Read what a JPEG's header reveals about its origin: quality, camera, time."""

import io
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import ExifTags, Image
from PIL.JpegImagePlugin import JpegImageFile

from kaggle_tfr.images.header import open_image

_TIME = re.compile(r"(\d{4}):(\d\d):(\d\d \d\d:\d\d:\d\d)")


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
    # Pillow raises almost any type for damaged files.
    with suppress(Exception):
        image, _ = open_image(data)
        if not isinstance(image, JpegImageFile):
            return FileFacts()
        quality = _estimate_quality(image)
        exif = image.getexif()
        make = exif.get(ExifTags.Base.Make, "")
        model = exif.get(ExifTags.Base.Model, "")
        # Some cameras fill their names up with zeros.
        camera = " ".join(f"{make} {model}".replace("\0", " ").split())
        taken = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
        if match := _TIME.match(str(taken)):
            time = "-".join(match.groups())
    return FileFacts(quality, camera, time)


def _estimate_quality(image: JpegImageFile) -> int:
    """Return the libjpeg quality with the closest luma table, 1 to 100."""
    differences = np.abs(_sum_luma_tables() - sum(image.quantization[0]))
    return 1 + int(differences.argmin())


@cache
def _sum_luma_tables() -> np.ndarray:
    """Return the sums of the luma tables by which libjpeg saves quality 1 to 100."""
    sums = []
    for quality in range(1, 101):
        file = io.BytesIO()
        Image.new("L", (8, 8)).save(file, "JPEG", quality=quality)
        file.seek(0)
        sums.append(sum(JpegImageFile(file).quantization[0]))
    return np.array(sums)
