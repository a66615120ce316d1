"""One read of a picture's header decides how it is decoded, turned, and whether it may pass."""

import io
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from PIL import ExifTags, Image, ImageCms, TiffImagePlugin

from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation

NOT_RGB = ("L", "CMYK")  # modes with colour profiles of their own
RECORD = re.compile(r"#\d+$")  # ends the address of a record
DIM = 16_384  # of 65,535: with all values below it, two of the 8 bits would say nothing


class RejectedImage(ValueError):  # noqa: N818 - it names the picture, the run goes on
    """A picture that cannot become a record; its text is the short reason, such as "truncated"."""


@contextmanager
def rejecting(data: bytes) -> Iterator[None]:
    """A block in which whatever Pillow raises for `data` becomes RejectedImage."""
    try:
        yield
    except (RejectedImage, MemoryError):
        raise
    except (
        Image.DecompressionBombError
    ) as error:  # of WebP's reader, at the same limit as ours
        raise RejectedImage(f"over MAX_PIXELS: {error}") from error
    except Image.UnidentifiedImageError as error:
        heads = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF")
        reason = "truncated" if data.startswith(heads) else "not an image"
        if data[4:8] == b"ftyp":
            reason = f"unsupported kind: {data[8:12].decode('ascii', 'replace')} (HEIF family)"
        raise RejectedImage(reason) from error
    except (
        Exception
    ) as error:  # damaged files fail in as many ways as Pillow has plugins
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        cut = data[:4] == b"RIFF" and len(data) < 8 + int.from_bytes(
            data[4:8], "little"
        )
        cut = cut or "truncated" in text.lower() or isinstance(error, EOFError)
        raise RejectedImage("truncated" if cut else f"damaged: {text}") from error


def open_image(data: bytes) -> Image.Image:
    """The picture, not yet decoded: `Image.open` without Pillow's own limit of pixels.

    Ours is a setting, and other threads may rely on Pillow's, which is one for the whole process.
    Raises: Image.UnidentifiedImageError, and what Pillow raises for damaged files.
    """
    for load_plugins in (Image.preinit, Image.init):  # the usual formats, then all
        load_plugins()
        for name in list(Image.ID):
            factory, accepts = Image.OPEN[name]
            with suppress(
                SyntaxError, IndexError, TypeError, struct.error
            ):  # it is another format
                answer = accepts(data[:16]) if accepts else True
                if answer and not isinstance(
                    answer, str
                ):  # a text: support was not compiled in
                    return factory(io.BytesIO(data), "")
    raise Image.UnidentifiedImageError("cannot identify the image")


def read_upright(data: bytes, at_least: int = 0, bit_depth: str = "") -> np.ndarray:
    """RGB pixels, uint8 (height, width, 3), upright, by Pillow. Raises: RejectedImage.

    at_least: pixels a side to which a JPEG may be scaled down, or 0; bit_depth: as of `to_rgb`.
    """
    with rejecting(data):
        image = open_image(data)
        if at_least:
            image.draft(None, (at_least, at_least))
        image.load()
        pixels = np.asarray(to_rgb(image, find_profile(image), data, bit_depth))
        return apply_orientation(pixels, find_orientation(image))


def read_deep(image: Image.Image, data: bytes, bit_depth: str) -> np.ndarray | None:
    """8-bit pixels (h, w), or (h, w, 3) with blue first, of a loaded 16-bit image; else None.

    Alpha is over white; see `to_rgb` for bit_depth. Raises: RejectedImage.
    """
    tags = getattr(image, "tag_v2", {})
    bits = data[24] if image.format == "PNG" else tags.get(258, (8,))[0]
    if image.mode.startswith(("I", "F")):  # I;16, I;16B, I and F, all grey
        values = np.nan_to_num(np.asarray(image)).clip(0, 65535).astype(np.uint16)
        if (values != np.asarray(image)).any():
            raise RejectedImage(
                f"unsupported kind: {image.format} with pixels of mode {image.mode}"
            )
    elif bits != 16 or image.mode == "CMYK":
        return None
    else:
        import cv2  # since Pillow keeps 8 bits of a colour

        values = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        if tags.get(284) == 2 or 1 in tags.get(338, ()):
            raise RejectedImage(
                "unsupported kind: 16 bits in planes, or with premultiplied alpha"
            )
        if values is None or values.dtype != np.uint16:
            return None
    clear = values == image.info.get("transparency", -1) if values.ndim == 2 else None
    if values.ndim == 3 and values.shape[2] == 4:
        values, clear = values[..., :3], 1 - values[..., 3:] / np.float32(65535)
    values = to_eight_bits(values, bit_depth)
    if clear is None or not clear.any():
        return values
    return (values + (255 - values) * clear).round().astype(np.uint8)


def to_eight_bits(values: np.ndarray, bit_depth: str) -> np.ndarray:
    """uint8 levels of uint16 pixels without alpha, by `to_rgb`'s rule."""
    levels, low, high = np.arange(65536.0) // 256, int(values.min()), int(values.max())
    if high < DIM and bit_depth == "scale":
        raise RejectedImage(
            f"dark: values {low} to {high} of 65535; set BIT_DEPTH = 'stretch'"
        )
    if high < DIM or bit_depth == "stretch":
        levels = np.interp(
            np.arange(65536), [low, max(high, low + 1)], [0, 255]
        ).round()
    return levels.astype(np.uint8)[values]


def to_rgb(
    image: Image.Image, profile: bytes, data: bytes, bit_depth: str
) -> Image.Image:
    """A loaded image of `data` as 8-bit RGB in sRGB, alpha over white. Raises: RejectedImage.

    bit_depth: of 16 bits "scale" drops the low byte, and refuses a picture in the darkest quarter;
    "stretch" makes its darkest to brightest 0 to 255; "" does so to what "scale" refuses.
    """
    if (deep := read_deep(image, data, bit_depth)) is not None:
        image = Image.fromarray(deep if deep.ndim == 2 else deep[..., ::-1]).convert(
            "RGB"
        )
    if image.mode == "LAB":
        raise RejectedImage(
            f"unsupported kind: {image.format} with pixels of mode {image.mode}"
        )
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    elif image.mode in ("1", "P", "PA", "YCbCr", "HSV"):
        image = image.convert("RGB")
    return to_srgb(image, profile)


def to_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """An 8-bit grey, CMYK or RGB image without alpha as RGB in sRGB."""
    if profile and (transform := srgb_transform(profile, image.mode)):
        return ImageCms.applyTransform(image, transform) or image
    return image if image.mode == "RGB" else image.convert("RGB")


def find_orientation(image: Image.Image) -> int:
    """EXIF's orientation, 1 (upright) to 8; Pillow turns a TIFF by itself, its `load` leaves 1."""
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    return orientation if orientation in ORIENTATIONS else 1


def find_profile(image: Image.Image) -> bytes:
    """The embedded colour profile of an opened image where it changes its colours, else b""."""
    profile = image.info.get("icc_profile") or b""
    mode = image.mode if image.mode in NOT_RGB else "RGB"
    return profile if profile and srgb_transform(profile, mode) else b""


@lru_cache(maxsize=64)
def srgb_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """The transform from a profile of such pixels to sRGB; None for (nearly) sRGB or none."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        made = ImageCms.buildTransform(
            source, ImageCms.createProfile("sRGB"), mode, "RGB"
        )
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None
    if mode == "CMYK":
        return made
    if mode == "L":
        shown = Image.linear_gradient("L")  # every level
    else:
        steps = np.linspace(0, 255, 9).round().astype(np.uint8)
        cube = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(27, 27, 3)
        shown = Image.fromarray(cube)
    moved = np.asarray(ImageCms.applyTransform(shown, made)).astype(int)
    difference = np.abs(moved - np.asarray(shown.convert("RGB"))).max()
    return made if difference > 3 else None  # of 255 levels


MAX_PIXELS = (
    178_956_970  # where Pillow, too, warns of a decompression bomb: 0.5 GB of RGB
)
HARMLESS = {
    0xC4,
    0xDB,
    0xDD,
    0xFE,
    *range(0xE0, 0xF0),
}  # tables, restarts, comment, APPn
PNG_TEXTS = {b"eXIf", b"iTXt", b"tEXt", b"zTXt"}  # chunks that may hold an orientation
KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "MPO", "JPEG2000", "AVIF")


@dataclass(frozen=True)
class Header:
    """What the first bytes of a picture say.

    height, width: in pixels as shown. orientation: EXIF's, 1 (upright) to 8. mode: Pillow's.
    note: what is unusual yet no reason to refuse. profile: the embedded one where it is not sRGB.
    plain: shown right by every reader: 8-bit grey or RGB, upright, no profile, no alpha, one frame.
    scan: where the only scan of a sequential grey or RGB JPEG begins; 0 for all else.
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


def read_header(data: bytes, max_pixels: int = MAX_PIXELS, *, name: str = "") -> Header:
    """The Header of a picture; `name` shows a wrong extension. Raises: RejectedImage."""
    if not data:
        raise RejectedImage("empty file")
    header = _walk_jpeg(data)
    if header is None or not header.plain:
        header = _read_by_pillow(data, header.scan if header else 0, max_pixels)
    check_size(header.width, header.height, max_pixels)
    # A record has no extension of its own: its address is that of its shard ("x.tfrec#17").
    extension = "" if RECORD.search(name) else os.path.splitext(name)[1].lower()
    if (
        extension
        and Image.registered_extensions().get(extension, "JPEG") != header.format
    ):
        note = f"wrong extension: {extension} holds {header.format}"
        header = replace(header, note=f"{header.note}; {note}" if header.note else note)
    return header


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raises RejectedImage for a picture of too many pixels."""
    if width * height > max_pixels:
        raise RejectedImage(
            f"over MAX_PIXELS: {width} × {height} pixels, at most {max_pixels}"
        )


def _walk_jpeg(data: bytes) -> Header | None:
    """The Header of a sequential JPEG with one scan that an end marker follows, or None.

    A decoder stops at any marker, so with one ahead it never runs out of data. A tenth of Pillow's
    time. Not plain where EXIF or a profile may be: Pillow then reads it again.
    """
    at = 2 if data.startswith(b"\xff\xd8\xff") else len(data)
    height, width, channels, plain = 0, 0, 0, True
    while at + 20 < len(data) and data[at] == 0xFF:
        marker, segment = data[at + 1], data[at + 4 : at + 10]
        at += 2 + (data[at + 2] << 8 | data[at + 3])
        if marker in (0xC0, 0xC1) and segment[0] == 8:  # sequential, 8 bits, Huffman
            height, width = int.from_bytes(segment[1:3]), int.from_bytes(segment[3:5])
            channels = segment[5]
        elif marker == 0xDA:
            whole = height * width and channels in (1, 3) and segment[0] == channels
            whole = whole and data.rfind(b"\xff\xd9", at) >= 0  # the end of the image
            mode = "RGB" if channels == 3 else "L"
            return (
                Header("JPEG", height, width, 1, mode, "", plain, at) if whole else None
            )
        elif marker in (
            0xE1,
            0xE2,
        ):  # EXIF and XMP; colour profiles and further pictures
            plain = False
        elif marker not in HARMLESS:
            return None
    return None


def _png_chunks(data: bytes) -> Iterator[bytes]:
    """The names of a PNG's chunks."""
    at = 8
    while at + 8 <= len(data):
        yield data[at + 4 : at + 8]
        at += 12 + int.from_bytes(data[at : at + 4])


def count_channels(data: bytes) -> int:
    """Channels that TensorFlow decodes a JPEG or PNG to when left alone: 1, 2, 3 or 4."""
    image = open_image(data)
    if image.format not in ("JPEG", "PNG"):
        raise ValueError("the picture is neither JPEG nor PNG")
    return {"1": 1, "L": 1, "I": 1, "I;16": 1, "LA": 2, "RGBA": 4}.get(image.mode, 3)


def _read_by_pillow(data: bytes, scan: int, max_pixels: int) -> Header:
    """The Header of any picture that Pillow knows."""
    with rejecting(data):
        image = open_image(data)
        check_size(*image.size, max_pixels)
        # Pillow decodes a whole PNG to find EXIF or a text behind its pixels.
        bare = image.format == "PNG" and PNG_TEXTS.isdisjoint(_png_chunks(data))
        orientation = 1 if bare else find_orientation(image)
        animated = getattr(image, "is_animated", False)
    if image.format not in KINDS:
        raise RejectedImage(f"unsupported kind: {image.format}")
    kind, mode, (width, height) = (
        image.format.replace("MPO", "JPEG"),
        image.mode,
        image.size,
    )
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        # Pillow turns it by itself; its size comes turned or not, as the version has it.
        width, height = image.tag_v2[0x0100], image.tag_v2[0x0101]  # as stored
    if ORIENTATIONS[orientation].transposes:
        width, height = height, width
    orientation, profile = 1 if kind == "TIFF" else orientation, find_profile(image)
    plain = mode in ("L", "RGB") or (kind == "PNG" and mode in ("1", "P"))
    deep = kind == "PNG" and data[24:25] == b"\x10"  # IHDR's bit depth
    odd = animated or profile or deep or image.has_transparency_data or orientation != 1
    note = "several frames: the first is used" if animated else ""
    return Header(
        kind, height, width, orientation, mode, note, plain and not odd, scan, profile
    )
