"""One read of a picture's header decides how it is decoded, turned, and whether it may pass."""

import io
import os
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from kaggle_tfr.images.colour import RefusedImage, profile_mode, reason_of, srgb_transform

MAX_PIXELS = 178_956_970  # where Pillow, too, speaks of a decompression bomb: 0.5 GB of RGB


ORIENTATION = 0x0112  # the EXIF tag


TIFF_SIZE = (0x0100, 0x0101)  # the tags of width and height


END_OF_IMAGE = b"\xff\xd9"  # the JPEG marker


HARMLESS = {0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)}  # tables, restarts, comment, APPn


KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "MPO", "JPEG2000", "AVIF")


@dataclass(frozen=True)
class Header:
    """What the first bytes of a picture say.

    height, width: in pixels as shown, the orientation applied.
    orientation: EXIF's, 1 (upright) to 8.
    mode: Pillow's name for the kind of pixels.
    note: what was odd yet no reason to refuse, "" mostly.
    plain: shown right by every reader: 8-bit grey or RGB, upright, no profile, no alpha, one frame.
    scan: where the only scan of a sequential grey or RGB JPEG begins; 0 for all else.
    profile: the embedded colour profile where it is not sRGB.
    """

    format: str
    height: int
    width: int
    orientation: int
    mode: str
    note: str = ""
    plain: bool = False
    scan: int = 0
    profile: bytes = b""


def read_header(data, max_pixels=MAX_PIXELS, *, name=""):
    """The Header of a picture, from its bytes; `name` serves to notice a wrong extension.

    Raises:
        RefusedImage: "empty file", "not an image", "truncated", "damaged: …",
            "unsupported kind: …" or "over MAX_PIXELS: …".
    """
    if not data:
        raise RefusedImage("empty file")
    frame = _walk_jpeg(data)
    if frame and not frame.extras:
        note = _note("JPEG", animated=False, name=name)
        mode = "RGB" if frame.bands == 3 else "L"
        header = Header(
            "JPEG", frame.height, frame.width, 1, mode, note, plain=True, scan=frame.scan
        )
    else:
        header = _read_by_pillow(data, frame.scan if frame else 0, name)
    if header.width * header.height > max_pixels:
        size = f"{header.width} × {header.height}"
        raise RefusedImage(f"over MAX_PIXELS: {size} pixels, at most {max_pixels}")
    return header


class _Frame(NamedTuple):
    """A JPEG's frame. bands: 1 or 3; scan: where its data begin; extras: EXIF, a profile, …."""

    height: int
    width: int
    bands: int
    scan: int
    extras: bool


def _walk_jpeg(data):
    """The _Frame of a sequential JPEG with one scan that an end marker follows, or None.

    A decoder stops at any marker, so with one ahead it can never run out of data. Costs a tenth
    of Pillow's reading, which is felt with small pictures.
    """
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    at, size, extras = 2, None, False
    while at + 20 < len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        segment = data[at + 4 : at + 10]
        if marker in (0xC0, 0xC1) and segment[0] == 8:  # sequential, 8 bits, Huffman
            size = int.from_bytes(segment[1:3]), int.from_bytes(segment[3:5]), segment[5]
        elif marker == 0xDA:
            whole = size and size[0] * size[1] and size[2] in (1, 3) and segment[0] == size[2]
            if not whole or data.rfind(END_OF_IMAGE, at + 2 + length) < 0:
                return None
            return _Frame(*size, at + 2 + length, extras)
        elif marker in (0xE1, 0xE2):  # EXIF and XMP; colour profiles and further pictures
            extras = True
        elif marker not in HARMLESS:
            return None
        at += 2 + length
    return None


def scan_is_orderly(data, scan):
    """Whether the first marker in a JPEG's scan data is the one that ends the image.

    Any other was made by damage, and Pillow may refuse what comes of it.
    """
    scan_data = np.frombuffer(data, np.uint8)[scan:]
    after = scan_data[np.flatnonzero(scan_data[:-1] == 0xFF) + 1]
    # 00 is an escaped 255, FF padding, D0 to D7 restart the decoder in mid-scan.
    markers = after[(after != 0) & (after != 0xFF) & ((after < 0xD0) | (after > 0xD7))]
    return markers.size > 0 and markers[0] == END_OF_IMAGE[1]


def _read_by_pillow(data, scan, name):
    """The Header of any picture that Pillow knows."""
    try:
        image = Image.open(io.BytesIO(data))
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
    kind = "JPEG" if image.format == "MPO" else image.format
    orientation = orientation if orientation in range(1, 9) else 1
    # A TIFF's size comes turned or not, as the version has it; its tags say how it is stored.
    size = image.size if kind != "TIFF" else tuple(image.tag_v2[tag] for tag in TIFF_SIZE)
    width, height = size if orientation < 5 else size[::-1]
    if kind == "TIFF":  # which Pillow turns by itself
        orientation = 1
    profile = image.info.get("icc_profile") or b""
    if profile and not srgb_transform(profile, profile_mode(image.mode)):
        profile = b""
    deep = kind == "PNG" and data[24:25] == b"\x10"  # IHDR's bit depth
    simple = image.mode in ("L", "RGB") or (kind == "PNG" and image.mode in ("1", "P"))
    plain = simple and not (animated or profile or deep or image.has_transparency_data)
    return Header(
        format=kind,
        height=height,
        width=width,
        orientation=orientation,
        mode=image.mode,
        note=_note(kind, animated=animated, name=name),
        plain=plain and orientation == 1,
        scan=scan,
        profile=profile,
    )


def _unidentified(data):
    """Why Pillow does not know what these bytes are."""
    if data[4:8] == b"ftyp":
        return f"unsupported kind: {data[8:12].decode('ascii', 'replace')} (HEIF family)"
    heads = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF")
    return "truncated" if data.startswith(heads) else "not an image"


def _note(kind, *, animated, name):
    """What was odd yet no reason to refuse."""
    notes = ["several frames: the first is used"] if animated else []
    extension = os.path.splitext(name)[1].lower()
    expected = Image.registered_extensions().get(extension, "JPEG") if extension else kind
    if expected != kind:
        notes.append(f"wrong extension: {extension} holds {kind}")
    return "; ".join(notes)
