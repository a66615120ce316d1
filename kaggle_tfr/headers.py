"""One read of a picture's header decides how it is decoded, turned, and whether it may pass."""

import io
import os
from dataclasses import dataclass

import numpy as np
from PIL import Image

from kaggle_tfr.pixels import RefusedImage, reason_of, srgb_transform

MAX_PIXELS = 178_956_970  # where Pillow, too, speaks of a decompression bomb: 0.5 GB of RGB
ORIENTATION = 0x0112  # the EXIF tag
END_OF_IMAGE = 0xD9  # the JPEG marker
KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "MPO", "JPEG2000", "AVIF")


@dataclass(frozen=True)
class Header:
    """What the first bytes of a picture say.

    height, width: in pixels as shown, the orientation applied.
    orientation: EXIF's, 1 (upright) to 8.
    mode: Pillow's name for the kind of pixels.
    note: what was odd yet no reason to refuse, "" mostly.
    plain: shown right by every reader: 8-bit grey or RGB, upright, no profile, no alpha, one frame.
    single_scan: a JPEG whose only scan ends in its end marker, so that no decoder can run dry.
    profile: the embedded colour profile where it is not sRGB.
    """

    format: str
    height: int
    width: int
    orientation: int
    mode: str
    note: str = ""
    plain: bool = False
    single_scan: bool = False
    profile: bytes = b""


def read_header(data, max_pixels=MAX_PIXELS, *, name=""):
    """The Header of a picture, from its bytes; `name` serves to notice a wrong extension.

    Raises:
        RefusedImage: "empty file", "not an image", "truncated", "damaged: …",
            "unsupported kind: …" or "over MAX_PIXELS: …".
    """
    if not data:
        raise RefusedImage("empty file")
    stream = io.BytesIO(data)
    try:
        image = Image.open(stream)
        orientation = image.getexif().get(ORIENTATION, 1)
        animated = getattr(image, "is_animated", False)
    except MemoryError:
        raise
    except Image.UnidentifiedImageError as error:
        raise RefusedImage(_unidentified(data)) from error
    except Exception as error:  # damaged files fail in as many ways as Pillow has plugins
        raise RefusedImage(reason_of(error, data)) from error
    if image.format not in KINDS:
        raise RefusedImage(f"unsupported kind: {image.format}")
    width, height = image.size
    if width * height > max_pixels:
        raise RefusedImage(f"over MAX_PIXELS: {width} × {height} pixels, at most {max_pixels}")
    return _judge(
        image, data, scan=stream.tell(), orientation=orientation, animated=animated, name=name
    )


def _unidentified(data):
    """Why Pillow does not know what these bytes are."""
    if data[4:8] == b"ftyp":
        return f"unsupported kind: {data[8:12].decode('ascii', 'replace')} (HEIF family)"
    heads = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF")
    return "truncated" if data.startswith(heads) else "not an image"


def _judge(image, data, *, scan, orientation, animated, name):
    """The Header of an image Pillow has opened; `scan` is where it stopped reading."""
    kind = "JPEG" if image.format == "MPO" else image.format
    if kind == "TIFF" or orientation not in range(1, 9):  # Pillow turns a TIFF by itself
        orientation = 1
    width, height = image.size if orientation < 5 else image.size[::-1]
    profile = image.info.get("icc_profile") or b""
    if profile and not srgb_transform(profile, image.mode):
        profile = b""
    deep = kind == "PNG" and data[24:25] == b"\x10"  # IHDR's bit depth
    simple = image.mode in ("L", "RGB") or (kind == "PNG" and image.mode in ("1", "P"))
    odd = animated or profile or deep or image.has_transparency_data
    return Header(
        format=kind,
        height=height,
        width=width,
        orientation=orientation,
        mode=image.mode,
        note=_note(kind, animated, name),
        plain=simple and orientation == 1 and not odd,
        single_scan=kind == "JPEG" and _has_single_scan(image, data, scan),
        profile=profile,
    )


def _note(kind, animated, name):
    """What was odd yet no reason to refuse."""
    notes = ["several frames: the first is used"] if animated else []
    extension = os.path.splitext(name)[1].lower()
    expected = Image.registered_extensions().get(extension, "JPEG")
    if extension and expected != kind:
        notes.append(f"wrong extension: {extension} holds {kind}")
    return "; ".join(notes)


def _has_single_scan(image, data, scan):
    """Whether a sequential JPEG's scan data, from `scan` on, hold all colours and end in order.

    A decoder stops at any marker, so with one ahead it cannot run out of data; and where the
    first is the end marker, none was made by damage.
    """
    bands = len(image.getbands())
    start = bytes([0xFF, 0xDA, 0, 6 + 2 * bands, bands])
    if (
        image.mode not in ("L", "RGB")
        or "progressive" in image.info
        or not data.startswith(start, scan - 8 - 2 * bands)
    ):
        return False
    scan_data = np.frombuffer(data, np.uint8)[scan:]
    after = scan_data[np.flatnonzero(scan_data[:-1] == 0xFF) + 1]
    # 00 is an escaped 255, FF padding, D0 to D7 restart the decoder in mid-scan.
    markers = after[(after != 0) & (after != 0xFF) & ((after < 0xD0) | (after > 0xD7))]
    return markers.size > 0 and markers[0] == END_OF_IMAGE
