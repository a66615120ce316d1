"""The one image path: judge a picture by its header, then scale, turn, resize and encode it."""

from dataclasses import dataclass, replace

import cv2

from kaggle_tfr.headers import MAX_PIXELS, Header, read_header, scan_is_orderly
from kaggle_tfr.pixels import (
    RefusedImage,
    decode_any,
    decode_plain_jpeg,
    encode,
    psnr,
    resize,
    to_srgb,
    turn,
)

__all__ = [
    "Converted",
    "Header",
    "ImageSettings",
    "RefusedImage",
    "check",
    "convert",
    "output_size",
    "passes_through",
    "psnr",
    "read_header",
    "read_pixels",
    "resize_mask",
]

RESIZES = ("short_side", "stretch", "center_crop", "fill", "none")


@dataclass(frozen=True)
class ImageSettings:
    """How a picture becomes a record's image.

    size: (height, width) in pixels; (s, s) for short_side; None for resize "none".
    resize: "short_side" shrinks to a short side of s and never enlarges; "stretch" ignores the
        shape; "fill" scales until `size` is just covered, "center_crop" until the short side is
        the longer side of `size`, both then crop the middle; "none" keeps every pixel.
    resample: "area" (fast) or "lanczos" (Pillow's).
    optimize: make Huffman tables for each picture: 3 % smaller, a seventh slower for small ones.
    format: "JPEG" (quality 1–100, subsampling "4:2:0" or "4:4:4") or "PNG".
    pass_through: a picture that needs nothing done keeps its own bytes.
    """

    size: tuple[int, int] | None
    resize: str = "short_side"
    quality: int = 90
    resample: str = "area"
    subsampling: str = "4:2:0"
    optimize: bool = True
    format: str = "JPEG"
    pass_through: bool = True
    max_pixels: int = MAX_PIXELS

    def __post_init__(self):
        choices = {
            "resize": RESIZES,
            "resample": ("area", "lanczos"),
            "subsampling": ("4:2:0", "4:4:4"),
            "format": ("JPEG", "PNG"),
        }
        for field, known in choices.items():
            if getattr(self, field) not in known:
                raise ValueError(
                    f"{field} is {getattr(self, field)!r}; expected one of {', '.join(known)}."
                )
        if (self.size is None) != (self.resize == "none"):
            raise ValueError(
                f"size is {self.size} with resize {self.resize!r}; give (height, width) in pixels, "
                'or None with resize "none".'
            )
        if self.size is not None and min(self.size) < 1:
            raise ValueError(f"size is {self.size}; expected at least 1 pixel each way.")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality is {self.quality}; expected 1 to 100.")


@dataclass(frozen=True)
class Converted:
    """A record's image: its bytes, size in pixels, format, and whether the pixels were touched."""

    data: bytes
    height: int
    width: int
    format: str
    touched: bool


def check(data, max_pixels=MAX_PIXELS, *, name=""):
    """The Header of a picture that was read to its end, as small and so as fast as its kind allows.

    Raises:
        RefusedImage: as `read_header`.
    """
    header = read_header(data, max_pixels, name=name)
    _read_to_the_end(data, header)
    return header


def _read_to_the_end(data, header):
    """Refuses whatever Pillow refuses, at the smallest scale."""
    if header.scan and not scan_is_orderly(data, header.scan):
        header = replace(header, scan=0)  # leaves the verdict to Pillow
    _decode(data, header, (1, 1), colour=False)


def read_pixels(data, at_least=None):
    """RGB pixels, uint8 (height, width, 3), upright.

    at_least: (height, width) as shown; a JPEG may then come at 1/2, 1/4 or 1/8 of its size, but
        never smaller than that. None for full size.

    Raises:
        RefusedImage: as `read_header`.
    """
    header = read_header(data)
    stored = at_least if header.orientation < 5 or at_least is None else at_least[::-1]
    pixels = _finish(_decode(data, header, stored)[0], header)
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _decode(data, header, at_least, *, colour=True):
    """(pixels, extent) as stored, not yet turned, no smaller than `at_least`.

    extent: (rows, columns) that the picture fills; a scaled decode rounds them up.
    """
    rows, columns = header.height, header.width
    if header.orientation >= 5:
        rows, columns = columns, rows
    if header.scan and not (header.profile and header.mode != "RGB"):
        least = at_least or (rows, columns)
        fits = [k for k in (8, 4, 2) if rows >= k * least[0] and columns >= k * least[1]]
        scale = fits[0] if fits else 1
        pixels = decode_plain_jpeg(data, scale, colour=colour)
        if pixels is not None and pixels.shape[:2] == (-(-rows // scale), -(-columns // scale)):
            return pixels, (rows / scale, columns / scale)
    return decode_any(data, at_least, header.profile)


def _finish(pixels, header):
    """The pixels as they are to be seen: in sRGB and upright."""
    if header.profile:
        pixels = to_srgb(pixels, header.profile)
    return turn(pixels, header.orientation)


def output_size(height, width, settings):
    """The (height, width) in pixels of the record's image for a picture of that size as shown."""
    if settings.resize in ("stretch", "center_crop", "fill"):
        return settings.size
    return _scaled_size(height, width, settings)


def _scaled_size(height, width, settings):
    """The (height, width) to resize to, before the crop that "fill" and "center_crop" end with."""
    if settings.resize == "none":
        return height, width
    if settings.resize == "stretch":
        return settings.size
    rows, columns = settings.size
    if settings.resize == "short_side":
        if min(height, width) <= rows:
            return height, width
    elif settings.resize == "center_crop":
        rows = columns = max(settings.size)
    if height * columns <= width * rows:
        return rows, max(columns, (width * rows + height // 2) // height)
    return max(rows, (height * columns + width // 2) // width), columns


def passes_through(header, settings):
    """Whether the picture's own bytes may be the record's image."""
    if not (settings.pass_through and header.plain):
        return False
    if settings.resize == "none":
        return header.format in ("JPEG", "PNG")
    small = settings.resize == "short_side" and min(header.height, header.width) <= settings.size[0]
    return small and header.format == "JPEG" == settings.format


def convert(data, settings):
    """The record's image of a picture given as bytes: upright, sRGB, 8 bits, resized, encoded.

    Raises:
        RefusedImage: as `read_header`.
    """
    header = read_header(data, settings.max_pixels)
    if passes_through(header, settings):
        _read_to_the_end(data, header)
        return Converted(data, header.height, header.width, header.format, touched=False)
    scaled = _scaled_size(header.height, header.width, settings)
    stored = scaled if header.orientation < 5 else scaled[::-1]
    pixels, extent = _decode(data, header, stored)
    pixels = resize(pixels, *stored, settings.resample, extent)
    pixels = _crop(_finish(pixels, header), header, settings)
    encoded = encode(
        pixels, settings.format, settings.quality, settings.subsampling, settings.optimize
    )
    return Converted(encoded, *pixels.shape[:2], settings.format, touched=True)


def _crop(pixels, header, settings):
    """The middle of the pixels, where they are larger than the output size."""
    height, width = output_size(header.height, header.width, settings)
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def resize_mask(mask, settings):
    """The mask, uint8 (height, width) as the picture is shown, with `convert`'s geometry.

    Nearest neighbour, so no value appears that was not there.
    """
    height, width = mask.shape
    rows, columns = _scaled_size(height, width, settings)
    mask = cv2.resize(mask, (columns, rows), interpolation=cv2.INTER_NEAREST_EXACT)
    top_left = output_size(height, width, settings)
    top, left = (rows - top_left[0]) // 2, (columns - top_left[1]) // 2
    return mask[top : top + top_left[0], left : left + top_left[1]]
