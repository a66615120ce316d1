"""From the bytes of a picture to pixels, and from pixels to a record's bytes.

Between these functions pixels are uint8 arrays (height, width, 3) in OpenCV's order: blue, green,
red. OpenCV reads what it reads fastest, plain JPEG; Pillow reads everything else and is the judge.
"""

import ctypes
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import cv2
import numpy as np
from PIL import Image

from kaggle_tfr.images.colour import RefusedImage, _to_rgb, reason_of, to_srgb
from kaggle_tfr.images.header import MAX_PIXELS, Header, read_header, scan_is_orderly
from kaggle_tfr.storage import read_bytes

LARGEST_KEPT_BYTES = 32 << 20  # 32 MiB, the most that glibc takes as M_MMAP_THRESHOLD


KEPT_BYTES = 64 << 20  # 64 MiB a thread at most; nothing is kept that was not in use at once


def keep_buffers():
    """Whether the C library now keeps freed picture buffers for the next picture.

    glibc hands a large buffer back to the kernel when a picture is done, and the next picture
    waits for fresh, zeroed pages: a fifth of its time. Elsewhere than on glibc nothing happens.

    Source: mallopt(3).
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl and macOS; Windows
        return False
    kept = mallopt(mmap_threshold, LARGEST_KEPT_BYTES)
    return bool(mallopt(trim_threshold, KEPT_BYTES) and kept)


keep_buffers()


# Pictures are what runs in parallel here; OpenCV's own threads would only fight over the cores.
cv2.setNumThreads(1)


# Pillow's limit for "decompression bombs" makes way for ours, which is a setting.
Image.MAX_IMAGE_PIXELS = None


# Measured on photographs, PSNR against Pillow's Lanczos; tests/images draws these borders.
CUBIC_LIMIT = 1.3  # up to here one cubic step is nearer to Lanczos than an area step


LINEAR_LIMIT = 1.5  # up to here one bilinear step is within half a dB at quality 70, and fastest


WHOLE_LIMIT = 2.5  # up to here a mean over whole blocks is nearer than one over fractions


SUBSAMPLING = {
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
}


def decode_plain_jpeg(data, scale, *, colour=True):
    """Pixels of a JPEG at 1/scale of its size (scale 1, 2, 4 or 8) as stored, by OpenCV, or None.

    The scaling happens inside the decoder's cosine transform: nearly lossless, and faster.
    """
    kind = "COLOR" if colour else "GRAYSCALE"
    flag = getattr(cv2, f"IMREAD_{kind}" if scale == 1 else f"IMREAD_REDUCED_{kind}_{scale}")
    try:
        # OpenCV versions disagree about which files they turn, so we do the turning.
        return cv2.imdecode(np.frombuffer(data, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None


def decode_any(data, at_least, profile=b""):
    """(pixels, extent) of the first frame as stored, by Pillow; a JPEG may be scaled down.

    at_least: (height, width) in pixels to scale down to at most, or None for full size.
    extent: (rows, columns), maybe with a fraction, that the picture fills of the pixels.

    Raises:
        RefusedImage: "truncated", "damaged: …" or "unsupported kind: …".
    """
    try:
        image = Image.open(io.BytesIO(data))
        drafted = image.draft(None, at_least[::-1]) if at_least else None
        image.load()
        pixels = cv2.cvtColor(np.asarray(_to_rgb(image, profile)), cv2.COLOR_RGB2BGR)
        return pixels, drafted[1][:1:-1] if drafted else pixels.shape[:2]
    except (RefusedImage, MemoryError):
        raise
    except Exception as error:  # damaged files fail in as many ways as Pillow has plugins
        raise RefusedImage(reason_of(error, data)) from error


def turn(pixels, orientation):
    """The pixels the way up that an EXIF orientation (1–8) asks for."""
    if orientation >= 5:
        pixels = cv2.transpose(pixels)
    # cv2.flip: 1 swaps left and right, 0 top and bottom, -1 both.
    flip = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}.get(orientation)
    return pixels if flip is None else cv2.flip(pixels, flip)


def resize(pixels, height, width, resample="area", extent=None):
    """The pixels at (height, width), antialiased.

    resample: "lanczos" is Pillow's; "area" is the fastest that does not alias. It goes from a
        remaining ratio of 1 to 1.3 in one cubic step, to 1.5 in one bilinear step, to 2.5 through
        a cubic step *up* to the next whole multiple of the target and a mean over whole blocks
        (thrice as fast as OpenCV's area step over fractions, and up to 3 dB nearer to Lanczos).
    extent: (rows, columns) that the picture fills, where a scaled decode has rounded them up.
    """
    rows, columns = extent or pixels.shape[:2]
    if (rows, columns) == (height, width):
        return pixels
    if resample == "lanczos":
        image, box = Image.fromarray(pixels), (0, 0, columns, rows)
        return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS, box))
    ratio = max(rows / height, columns / width)
    if ratio <= LINEAR_LIMIT:
        step = cv2.INTER_CUBIC if ratio <= CUBIC_LIMIT else cv2.INTER_LINEAR
        return _step(pixels, (height / rows, width / columns), step)[:height, :width]
    if ratio <= WHOLE_LIMIT:
        multiple = ceil(rows / height) * height, ceil(columns / width) * width
        pixels = _step(pixels, (multiple[0] / rows, multiple[1] / columns), cv2.INTER_CUBIC)
        pixels = pixels[: multiple[0], : multiple[1]]
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def _step(pixels, factors, step):
    """The pixels scaled by exactly these factors, whatever whole size comes of it."""
    return cv2.resize(pixels, None, fx=factors[1], fy=factors[0], interpolation=step)


def encode(pixels, kind="JPEG", quality=90, subsampling="4:2:0", optimize=True):
    """The bytes of a baseline JPEG, its Huffman tables made for it or the usual ones; or a PNG."""
    if kind == "PNG":
        return cv2.imencode(".png", pixels)[1].tobytes()
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_OPTIMIZE, int(optimize)]
    options += [cv2.IMWRITE_JPEG_PROGRESSIVE, 0]
    options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SUBSAMPLING[subsampling]]
    return cv2.imencode(".jpg", pixels, options)[1].tobytes()


def psnr(a, b):
    """Peak signal-to-noise ratio in dB of two uint8 arrays of one shape; inf when equal."""
    error = np.mean((np.asarray(a, np.float32) - np.asarray(b, np.float32)) ** 2, dtype=np.float64)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


__all__ = [
    "Converted",
    "Header",
    "ImageSettings",
    "RefusedImage",
    "check_image",
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


def check_image(data, max_pixels=MAX_PIXELS, *, name=""):
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


MISSING = np.full((64, 64, 3), 230, np.uint8)  # a light square in place of what cannot be read


def load_pictures(paths: Sequence[str], side: int = 256) -> list[np.ndarray]:
    """uint8 (h, w, 3) arrays, decoded as small as `side` pixels allows; grey where unreadable."""
    return [_load_picture(path, side) for path in paths]


def _load_picture(path: str, side: int) -> np.ndarray:
    try:
        return read_pixels(read_bytes(path), at_least=(side, side))
    except (OSError, RefusedImage):
        return MISSING
