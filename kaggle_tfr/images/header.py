"""Read the header of an image file, and decode image files with Pillow.

The header decides how an image is decoded and rotated, and whether its bytes may be
copied into a record unchanged.
"""

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageChops, ImageCms

from kaggle_tfr.images.orientation import (
    ORIENTATIONS,
    Size,
    apply_orientation,
    transpose_size,
)

MAX_PIXELS = 178_956_970  # 0.5 GB of RGB; Pillow's own limit, unless it is changed
DARK_LIMIT = 16_384  # of 65,535; below it two of the 8 bits would always be 0
FORMATS = (
    "JPEG",
    "PNG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
    "PPM",
    "MPO",
    "JPEG2000",
    "AVIF",
)
PNG = b"\x89PNG"
SIGNATURES = (b"\xff\xd8\xff", PNG, b"GIF8", b"RIFF", b"II*\0", b"MM\0*")
SIMPLE_MODES = ("1", "L", "P", "RGB")
OWN_PROFILE_MODES = ("L", "CMYK")  # a colour profile of RGB does not fit their pixels
MAX_PARTS = 99  # of metadata that are tried one by one; a file may have millions

# Chunks of a PNG that are optional by their names, but change its pixels or frames.
PIXEL_CHUNKS = (b"tRNS", b"acTL", b"fcTL", b"fdAT")
# Segments of a JPEG: its comment and APPn. Those of JFIF and Adobe decide how colours
# are decoded, unless they are too short.
METADATA_SEGMENTS = {0xFE, *range(0xE0, 0xF0)}
COLOR_SEGMENTS = (0xE0, 0xEE)
HARMLESS_SEGMENTS = (0xC4, 0xDB, 0xDD)  # tables and restarts do not change it either

Extent = tuple[float, float]  # rows and columns that an image fills, maybe in part


class RejectedImage(ValueError):  # noqa: N818 - the run continues without it
    """An image that cannot become a record. Its text is a short reason."""


@dataclass(frozen=True)
class Header:
    """The properties of an image file.

    height, width: in pixels, of the upright image.
    orientation: of EXIF, 1 (upright) to 8.
    mode: Pillow's name of the kind of pixels, such as "RGB".
    plain: whether every reader shows a JPEG or PNG correctly: grey or RGB of 8 bits or
        fewer, upright, one frame, without profile and transparency.
    scan: the position of the only scan of a sequential grey or RGB JPEG; else 0.
    profile: the embedded colour profile, unless it is that of sRGB.
    """

    format: str
    height: int
    width: int
    orientation: int
    mode: str
    plain: bool = False
    scan: int = 0
    profile: bytes = b""

    @property
    def own_profile(self) -> bytes:
        """The profile if it is one of grey or CMYK, else b"".

        It is applied before all else, because it does not fit RGB.
        """
        return self.profile if self.mode in OWN_PROFILE_MODES else b""


@contextmanager
def rejecting(data: bytes) -> Iterator[None]:
    """Raise RejectedImage for every error while Pillow reads `data` in this block.

    Only a MemoryError stays as it is: the file may be good.
    """
    try:
        yield
    except (RejectedImage, MemoryError):
        raise
    except Exception as error:  # Pillow raises almost any type for damaged files
        raise RejectedImage(_explain(data, error)) from error


def _explain(data: bytes, error: Exception) -> str:
    """Return why Pillow cannot read `data`, as a short text for rejects.csv."""
    text = str(error) or type(error).__name__
    text = text.splitlines()[0]
    if isinstance(error, Image.DecompressionBombError):
        return f"over MAX_PIXELS: {text}"
    if isinstance(error, EOFError) or "truncated" in text.lower():
        return "truncated"
    if not isinstance(error, Image.UnidentifiedImageError):
        return f"damaged: {text}"
    if data[4:8] == b"ftyp":
        return "unsupported format: HEIF, or a video"
    if data.startswith(SIGNATURES):  # of JPEG, PNG, GIF, WebP, TIFF
        return "truncated, or of an unsupported type"
    return "not an image"


def read_header(data: bytes) -> Header:
    """Return the header of an image file of any format. Raises: RejectedImage."""
    if not data:
        raise RejectedImage("empty file")
    header = _walk_jpeg(data)
    # `_walk_jpeg` is fast, and returns None for most formats. Not plain: there is
    # metadata, which only Pillow reads. Pillow does not find the scan, so its position
    # is kept.
    if header is None or not header.plain:
        header = _read_by_pillow(data, header.scan if header else 0)
    check_size(header.width, header.height)
    return header


def check_size(width: int, height: int) -> None:
    """Raise RejectedImage if an image has too many pixels."""
    if width * height > MAX_PIXELS:
        raise RejectedImage(
            f"over MAX_PIXELS: {width} × {height} pixels, at most {MAX_PIXELS}"
        )


def _walk_jpeg(data: bytes) -> Header | None:
    """Return the header of a sequential JPEG of one scan and an end marker, else None.

    It has 8 bits, and is grey or RGB. This takes a tenth of Pillow's time.
    A file without an end marker may be truncated, so Pillow must read it. The header
    is not plain where the file contains metadata, such as EXIF or a profile: its
    orientation is then unknown, and only its scan is of use.
    """
    frame = bytes(6)  # bits, height, width and channels; 0 until they are found
    plain = True
    for marker, start, end in list_segments(data):
        if marker in (0xC0, 0xC1):  # sequential, Huffman
            frame = data[start + 4 : start + 10]
        elif marker == 0xDA:  # start of the scan
            bits, height, width, channels = struct.unpack(">BHHB", frame)
            mode = {1: "L", 3: "RGB"}.get(channels)
            is_only_scan = data[start + 4] == channels  # it contains all of them
            has_end = data.rfind(b"\xff\xd9", end) >= 0
            if bits == 8 and mode and height * width and is_only_scan and has_end:
                return Header("JPEG", height, width, 1, mode, plain=plain, scan=end)
        elif marker in METADATA_SEGMENTS:
            # JFIF's own segment of 18 bytes does not change the image.
            plain = plain and (marker, end - start) == (0xE0, 18)
        elif marker not in HARMLESS_SEGMENTS:  # such as of a progressive JPEG
            return None
    return None


def list_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the marker, start and end of each segment of a JPEG up to its scan.

    The marker is its second byte, such as 0xDA of the scan, whose segment is the last.
    Other files have none; at damage the list ends.
    """
    start = 2 if data.startswith(b"\xff\xd8\xff") else len(data)
    marker = 0
    # With 20 bytes left, callers can read the first values of the segment.
    while marker != 0xDA and start + 20 < len(data) and data[start] == 0xFF:
        marker = data[start + 1]
        length = int.from_bytes(data[start + 2 : start + 4])
        end = start + 2 + length
        yield marker, start, end
        start = end


def _read_by_pillow(data: bytes, scan: int) -> Header:
    """Return the header of a file of any format that Pillow reads.

    scan: the position of the only scan of a JPEG, or 0, for the `Header`.
    Raises: RejectedImage: also for other formats.
    """
    with rejecting(data):
        image, is_readable = open_image(data)
    if image.format not in FORMATS:
        raise RejectedImage(f"unsupported format: {image.format}")

    profile = _find_profile(image)
    orientation = _find_orientation(image)
    # The size as stored; 256 and 257 are the width and height of a TIFF. Versions of
    # Pillow differ in whether they rotate that of a TIFF.
    tags = getattr(image, "tag_v2", {})
    stored_width = tags.get(256, image.width)
    stored_height = tags.get(257, image.height)
    size = (stored_width, stored_height)
    width, height = transpose_size(size, orientation)
    if image.format == "TIFF":  # Pillow rotates TIFFs itself
        orientation = 1
    is_changed = profile or orientation != 1 or getattr(image, "is_animated", False)
    return Header(
        format=image.format.replace("MPO", "JPEG"),
        height=height,
        width=width,
        orientation=orientation,
        mode=image.mode,
        plain=is_readable and _is_simple(image, data) and not is_changed,
        scan=scan,
        profile=profile,
    )


def _is_simple(image: Image.Image, data: bytes) -> bool:
    """Return whether an image is opaque, and grey or RGB of 8 bits or fewer.

    data: its file.
    """
    is_deep = image.format == "PNG" and data[24] > 8  # bits a channel
    is_known = image.mode in SIMPLE_MODES and not image.has_transparency_data
    return is_known and not is_deep


def open_image(data: bytes) -> tuple[Image.Image, bool]:
    """Return an image that is not loaded, and whether all its metadata is readable.

    Unreadable metadata is left out. Raises almost any exception for other damage.
    """
    start, pixels, *metadata = _split_metadata(data)
    try:
        image = _open_parts(start, *metadata, pixels)
        _find_orientation(image)  # Pillow reads EXIF only now: it may be broken
    except Exception:  # noqa: BLE001 - Pillow raises almost any type
        image = _open_parts(start, pixels)
    else:
        return image, True
    # Without metadata the image can be read. Add the parts that do not break it; a file
    # may have millions, so only the first ones.
    for part in metadata[:MAX_PARTS]:
        with suppress(Exception):
            image.info |= _open_parts(start, part, pixels).info
    # Broken EXIF raises an error only once: callers will not meet it.
    with suppress(Exception):
        _find_orientation(image)
    return image, False


def _open_parts(*parts: bytes) -> Image.Image:
    """Return the image, not loaded, of the file that these parts are in a row.

    Raises almost any exception for damage.
    """
    # `join` does not copy a single part, so empty ones are left out.
    data = b"".join(filter(None, parts))
    return Image.open(io.BytesIO(data))


def _split_metadata(data: bytes) -> list[bytes]:
    """Return a file as [its start, all else that its pixels need, parts of metadata…].

    Only PNG and JPEG have such parts; another file is [data, b""]. The caller may put
    some of the metadata back between the first two: Pillow reads it before the pixels.
    """
    # The signature, and in a PNG its first chunk, which must stay the first.
    position = start_of_parts = 33 if data.startswith(PNG) else 2
    pixels = []
    metadata = []
    for start, end in _list_metadata(data):
        pixels.append(data[position:start])
        metadata.append(data[start:end])
        position = end
    if not metadata:
        return [data, b""]
    pixels.append(data[position:])
    return [data[:start_of_parts], b"".join(pixels), *metadata]


def _list_metadata(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each part of a PNG or JPEG that no pixel needs.

    There are none in other files.
    """
    for marker, start, end in list_segments(data):  # none if it is not a JPEG
        # JFIF's or Adobe's, unless too short: it decides how colours are decoded.
        is_color = marker in COLOR_SEGMENTS and end - start >= 16
        if marker in METADATA_SEGMENTS and not is_color:
            yield start, end
    # Chunks of a PNG. Optional ones have names that begin with a small letter; the name
    # is b"" at the end of a truncated file.
    start = 33 if data.startswith(PNG) else len(data)
    while (name := data[start + 4 : start + 8]) not in (b"", b"IEND"):
        length = int.from_bytes(data[start : start + 4])
        end = start + 12 + length
        # `PIXEL_CHUNKS` are optional by name only, such as that of transparency.
        if name[:1].islower() and name not in PIXEL_CHUNKS:
            yield start, end
        start = end


def _find_orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8, of an image of `open_image`; 1 without one.

    Raises almost any exception for broken EXIF, but only once for an image.
    """
    exif = Image.Image.getexif(image)  # the method of a PNG would decode its pixels
    orientation = exif.get(0x0112)
    return int(orientation) if orientation in ORIENTATIONS else 1


def _find_profile(image: Image.Image) -> bytes:
    """Return the embedded colour profile if it changes the colours, else b""."""
    profile = image.info.get("icc_profile") or b""
    # Grey and CMYK have profiles of their own; all other pixels become RGB.
    mode = image.mode if image.mode in OWN_PROFILE_MODES else "RGB"
    return profile if profile and _srgb_transform(profile, mode) else b""


@lru_cache(maxsize=64)
def _srgb_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform of pixels to sRGB; None if it changes hardly anything.

    mode: of the pixels: "L", "CMYK" or "RGB". None also if the profile is damaged, or
    one of another mode.
    """
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        srgb = ImageCms.createProfile("sRGB")
        transform = ImageCms.buildTransform(source, srgb, mode, "RGB")
    except (ImageCms.PyCMSError, OSError, TypeError):
        return None
    # A transform that changes no colour by more than 3 of 255 levels is left out.
    # Tried: 18 levels of each channel, from 0 to 255, in all combinations.
    grid = np.indices((18, 18, 18), np.uint8).T
    colors = 15 * grid.reshape(18, -1, 3)
    samples = Image.fromarray(colors).convert(mode)
    converted = transform.apply(samples)
    unchanged = samples.convert("RGB")
    differences = ImageChops.difference(converted, unchanged)
    return transform if np.asarray(differences).max() > 3 else None


def count_channels(data: bytes) -> int:
    """Return the channels to which TensorFlow decodes a JPEG or PNG: 1, 2, 3 or 4."""
    image = _open_parts(data)
    return 3 if image.mode in ("P", "CMYK") else len(image.getbands())


def read_upright(
    data: bytes, at_least: int = MAX_PIXELS, bit_depth: str = ""
) -> np.ndarray:
    """Return the upright image as Pillow alone decodes it, uint8 RGB (h, w, 3).

    Readers on machines without OpenCV need it, and checks of what OpenCV has made.
    at_least: pixels a side to which a JPEG may be reduced; by default it is not.
    bit_depth: see `read_rgb`.
    Raises: RejectedImage.
    """
    header = read_header(data)
    # The second value is the exact size of a reduced JPEG, maybe a fraction: that
    # its last row is filled in part hardly matters here.
    rgb, _ = read_rgb(data, header.profile, bit_depth, (at_least, at_least))
    return apply_orientation(np.asarray(rgb), header.orientation)


def read_rgb(
    data: bytes,
    profile: bytes,
    bit_depth: str,
    size: Size | None = None,
    mode: str | None = None,
) -> tuple[Image.Image, Extent]:
    """Return an image by Pillow, as 8-bit sRGB, and the (rows, columns) that it fills.

    It is as stored, except that TIFFs are upright, and transparency is over white.
    profile: is applied; b"" for none.
    bit_depth: how 16 bits become 8. "scale" drops the low byte, and rejects images in
        the darkest quarter of the range; "stretch" maps the darkest to brightest value
        to 0 to 255; "" stretches only the images that "scale" rejects.
    size, mode: a JPEG may be reduced to no less than this (width, height), and to grey
        if the mode is "L"; None for neither.
    Raises: RejectedImage.
    """
    with rejecting(data):
        image, _ = open_image(data)  # whose metadata may be damaged
        # For a JPEG: its new mode and (0, 0, columns, rows). These are fractions where
        # the last row and column are filled in part.
        drafted = image.draft(mode, size)
        image.load()
        columns, rows = drafted[1][2:] if drafted else image.size
        rgb = _over_white(image)
        # None for 8 bits. Pillow's own way from 16 to 8 bits differs by the mode.
        rgb = _convert_16_bits(image, data, bit_depth) or rgb
        return to_srgb(rgb, profile), (rows, columns)


def _over_white(image: Image.Image) -> Image.Image:
    """Return a loaded image as RGB, grey or CMYK, with transparency over white.

    Raises: RejectedImage: nothing would be visible, or the mode is unsupported.
    """
    if image.mode == "LAB":  # Pillow takes its numbers for red, green and blue
        raise _unsupported_mode(image)
    if not image.has_transparency_data:
        is_known = image.mode in ("RGB", *OWN_PROFILE_MODES)
        return image if is_known else image.convert("RGB")
    rgba = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    rgb = Image.alpha_composite(white, rgba).convert("RGB")
    # The lowest and the highest alpha. 0: a pixel is fully transparent.
    lowest, _ = rgba.getchannel("A").getextrema()
    if not lowest and rgb.getextrema() == ((255, 255),) * 3:
        raise RejectedImage("only white or transparent")
    return rgb


def to_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """Return an 8-bit grey, CMYK or RGB image without transparency as sRGB.

    profile: is applied, unless it is b"", does not fit the mode, or changes nothing.
    """
    if profile and (transform := _srgb_transform(profile, image.mode)):
        return transform.apply(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _convert_16_bits(
    image: Image.Image, data: bytes, bit_depth: str
) -> Image.Image | None:
    """Return an image of 16 bits as 8-bit RGB with transparency over white.

    None: the image has 8 bits. data: its file. bit_depth: "scale", "stretch" or "", see
    `read_rgb`. Raises: RejectedImage.
    """
    values = _read_16_bits(image, data)  # blue first, maybe with alpha
    if values is None:
        return None
    is_grey = values.ndim == 2
    colors = values if is_grey else values[..., 2::-1]  # red first, without alpha
    levels = _reduce_to_8_bits(colors, bit_depth)
    transparency: np.ndarray | int = 0  # from 0, opaque, to 1
    if is_grey:
        # A grey PNG may name one value that is transparent.
        transparency = values == image.info.get("transparency", -1)
    elif values.shape[2] == 4 and image.has_transparency_data:
        transparency = 1 - values[..., 3:] / np.float32(65535)

    over_white = levels + (255 - levels) * transparency
    pixels = over_white.round().astype(np.uint8)
    return Image.fromarray(pixels).convert("RGB")


def _read_16_bits(image: Image.Image, data: bytes) -> np.ndarray | None:
    """Return uint16 (h, w), or (h, w, 3 or 4) with blue first; None for 8 bits.

    image: loaded. data: its file.
    Raises: RejectedImage: values or a layout that cannot be read.
    """
    # Of a TIFF: 262 is 0 if white is zero, 258 the bits of each channel, 284 is 2 for
    # channels in planes, 338 contains 1 for premultiplied alpha.
    tags = getattr(image, "tag_v2", {262: 1})
    if image.mode[0] in "IF":  # Pillow's modes of grey with more than 8 bits
        grey = _read_16_bit_grey(image)
        return grey if tags.get(262) else 65535 - grey  # white is zero
    bits = (data[24],) if image.format == "PNG" else tags.get(258, ())
    if 16 not in bits[:1] or image.mode == "CMYK":
        return None
    has_planes = tags.get(284) == 2
    if has_planes or 1 in tags.get(338, ()):
        raise RejectedImage(
            "unsupported format: 16 bits in planes, or with premultiplied alpha"
        )
    import cv2  # Pillow keeps only 8 bits of colours

    buffer = np.frombuffer(data, np.uint8)
    values = cv2.imdecode(buffer, cv2.IMREAD_UNCHANGED)
    # None: the 8 bits of Pillow are used.
    return None if values is None or values.dtype != np.uint16 else values


def _read_16_bit_grey(image: Image.Image) -> np.ndarray:
    """Return the values of a grey image of integers or floats, uint16 (h, w).

    Raises: RejectedImage: one is not a whole number from 0 to 65,535.
    """
    pixels = np.asarray(image)
    clipped = np.nan_to_num(pixels).clip(0, 65535)
    values = clipped.astype(np.uint16)
    if (values != pixels).any():
        raise _unsupported_mode(image)
    return values


def _reduce_to_8_bits(values: np.ndarray, bit_depth: str) -> np.ndarray:
    """Return the uint8 levels of uint16 values of any shape.

    bit_depth: "scale" drops the low byte, "stretch" maps the lowest to highest value to
    0 to 255, and "" stretches dark images only.
    Raises: RejectedImage: "scale" would make the image dark.
    """
    low = int(values.min())
    high = int(values.max())
    is_dark = high < DARK_LIMIT  # a quarter of the range
    if is_dark and bit_depth == "scale":
        raise RejectedImage(
            f"dark: values {low} to {high} of 65535; set BIT_DEPTH = 'stretch'"
        )
    if not is_dark and bit_depth != "stretch":
        return (values >> 8).astype(np.uint8)
    high = max(high, low + 1)  # `interp` needs two points, also for a single value
    # A level for each possible value, looked up below.
    all_values = np.arange(65536)
    levels = np.interp(all_values, [low, high], [0, 255])
    return levels.round().astype(np.uint8)[values]


def _unsupported_mode(image: Image.Image) -> RejectedImage:
    """Return the error for a mode of Pillow whose pixels cannot be converted."""
    return RejectedImage(
        f"unsupported format: {image.format} with pixels of mode {image.mode}"
    )
