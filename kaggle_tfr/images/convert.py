"""From a picture's bytes to a record's. Inside, pixels are (height, width, 3), blue first."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil

import cv2
import numpy as np
from PIL import Image

from kaggle_tfr.images.header import (
    MAX_PIXELS,
    NOT_RGB,
    Header,
    RejectedImage,
    check_size,
    find_orientation,
    find_profile,
    open_image,
    read_header,
    rejecting,
    to_rgb,
    to_srgb,
)
from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation
from kaggle_tfr.parameters import check_parameters
from kaggle_tfr.records import read_image_bytes

# Largest ratios of sides, by PSNR against Lanczos, for one cubic step; for one bilinear step, which
# is fastest; for a cubic step *up* to the next whole multiple of the target, then a mean over whole
# blocks: thrice as fast as an area step over fractions, and up to 3 dB nearer to Lanczos.
CUBIC_LIMIT, LINEAR_LIMIT, WHOLE_LIMIT = 1.3, 1.5, 2.5

WORK_SIDE = (
    256  # pixels: below it the wavelet hash moves away from that of the whole picture
)
# The formats of originals that a record may hold, for each `resize`; others are encoded as JPEG.
PASSED_FORMATS = {"none": ("JPEG", "PNG"), "short_side": ("JPEG",)}
JPEG_LIMIT = 65_500  # pixels a side, of libjpeg
PLAIN = re.compile(
    rb"(?s)\xff\xc4.{2,420}\x10.{16}\0"
)  # luma's table has plain blocks as zeros

Decoded = tuple[
    np.ndarray, tuple[float, float]
]  # pixels, and the (rows, columns) that they fill


@dataclass(frozen=True)
class ImageSettings:
    """How a picture becomes a record's image.

    size: (height, width) in pixels; (s, s) for short_side; None for resize "none".
    resize: "short_side" shrinks to a short side of s, never enlarges; "stretch" ignores the shape;
    "fill" scales until `size` is just covered, "center_crop" until the short side is the longer
    side of `size`, both then crop the middle; "none" keeps every pixel.
    optimize: Huffman tables of its own: 3 % smaller, a seventh slower for small pictures.
    pass_through: a picture that needs nothing done keeps its own bytes. bit_depth: of `to_rgb`.
    """

    size: tuple[int, int] | None
    resize: str = "short_side"
    quality: int = 90
    resample: str = "area"
    subsampling: str = "4:2:0"
    optimize: bool = True
    pass_through: bool = True
    max_pixels: int = MAX_PIXELS
    bit_depth: str = "scale"

    def __post_init__(self) -> None:
        values = {
            n.upper(): vars(self)[n]
            for n in ("bit_depth", "quality", "resample", "resize")
        }
        check_parameters(
            values | {"CHROMA": self.subsampling, "OPTIMIZE": self.optimize}
        )
        if (self.size is None) != (self.resize == "none") or min(self.size or [1]) < 1:
            wrong = f"size is {self.size} with resize {self.resize!r}; give (height, width) in"
            raise ValueError(f'{wrong} pixels, 1 or more, or None with resize "none".')


@dataclass(frozen=True)
class EncodedImage:
    """A record's image: its bytes, size in pixels, format, and whether the pixels were touched."""

    data: bytes
    height: int
    width: int
    format: str
    touched: bool


def convert(data: bytes, settings: ImageSettings) -> EncodedImage:
    """The record's image of a picture's bytes: upright sRGB. Raises: RejectedImage."""
    header = read_header(data, settings.max_pixels)
    height, width = header.height, header.width
    same_size = output_size(height, width, settings) == (height, width)
    may_pass = settings.pass_through and header.plain and same_size
    if may_pass and header.format in PASSED_FORMATS.get(settings.resize, ()):
        _decode(
            data, _trust_scan(data, header), (1, 1), ""
        )  # refuses whatever Pillow refuses
        return EncodedImage(data, height, width, header.format, touched=False)
    pixels = make_pixels(data, header, settings)
    height, width = pixels.shape[:2]
    if max(height, width) > JPEG_LIMIT:
        raise RejectedImage(f"JPEG holds no picture of {width} × {height} pixels")
    sampling = f"IMWRITE_JPEG_SAMPLING_FACTOR_{settings.subsampling.replace(':', '')}"
    options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, getattr(cv2, sampling)]
    options += [cv2.IMWRITE_JPEG_OPTIMIZE, int(settings.optimize)]
    options += [cv2.IMWRITE_JPEG_QUALITY, settings.quality]
    data = cv2.imencode(".jpg", pixels, options)[1].tobytes()
    return EncodedImage(data, height, width, "JPEG", touched=True)


def make_pixels(data: bytes, header: Header, settings: ImageSettings) -> np.ndarray:
    """uint8 pixels of the record's image, upright sRGB, blue first. Raises: RejectedImage."""
    height, width = header.height, header.width
    scaled = _scaled_size(height, width, settings)
    check_size(
        scaled[1], scaled[0], settings.max_pixels
    )  # a thread of pixels may grow to a hall
    stored = _as_stored(scaled, header)
    pixels = _resize(
        *_decode(data, header, stored, settings.bit_depth), stored, settings.resample
    )
    pixels = _to_upright_srgb(pixels, header)
    return _crop_middle(pixels, *output_size(height, width, settings))


def check_image(
    data: bytes, max_pixels: int = MAX_PIXELS, *, name: str = "", bit_depth: str = ""
) -> tuple[Header, Image.Image]:
    """(its Header, its luma, mode "L") of a picture that was read to its end. Raises: RejectedImage.

    The luma is upright, and reduced by a whole number to no less than `WORK_SIDE` pixels a side.
    name: shows a wrong extension; bit_depth: as of `to_rgb`.
    """
    header, size = read_header(data, max_pixels, name=name), (WORK_SIDE, WORK_SIDE)
    # Without a profile of RGB, which moves luma by 2 of 255, JPEG's decoder gives it at once.
    if decoded := _decode_scan(data, _trust_scan(data, header), size, "GRAYSCALE"):
        grey = Image.fromarray(_turn(decoded[0], header))
    else:
        with rejecting(data):
            image = open_image(data)
            image.draft("L", size)
            image.load()
            profile = find_profile(image) if image.mode in NOT_RGB else b""
            ready = image.mode == "L" and not (profile or image.has_transparency_data)
            luma = (
                image if ready else to_rgb(image, profile, data, bit_depth).convert("L")
            )
            grey = Image.fromarray(
                apply_orientation(np.asarray(luma), find_orientation(image))
            )
    return header, grey.reduce(max(1, min(grey.size) // WORK_SIDE))


def read_pixels(data: bytes, at_least: tuple[int, int] | None = None) -> np.ndarray:
    """Upright RGB pixels (height, width, 3), as of `read_upright`; a JPEG's maybe at `at_least`."""
    header = read_header(data)
    header = header if at_least else _trust_scan(data, header)
    pixels, _ = _decode(data, header, at_least and _as_stored(at_least, header), "")
    colours = cv2.COLOR_GRAY2RGB if pixels.ndim == 2 else cv2.COLOR_BGR2RGB
    return cv2.cvtColor(_to_upright_srgb(pixels, header), colours)


def load_pixels(paths: Sequence[str], side: int = 256) -> list[np.ndarray]:
    """uint8 (h, w, 3) arrays, as small as `side` pixels allows; light grey where unreadable."""
    pictures = []
    for path in paths:
        try:
            pictures.append(read_pixels(read_image_bytes(path), at_least=(side, side)))
        except (OSError, RejectedImage):
            pictures.append(np.full((64, 64, 3), 230, np.uint8))
    return pictures


def _trust_scan(data: bytes, header: Header) -> Header:
    """The Header, without its scan where that looks damaged: whether it is, Pillow decides."""
    scan = np.frombuffer(data, np.uint8)[header.scan or len(data) :]
    after = scan[np.flatnonzero(scan[:-1] == 0xFF) + 1]
    # 00 is an escaped 255, FF padding, D0 to D7 restart the decoder in mid-scan.
    markers = after[(after != 0) & (after != 0xFF) & ((after < 0xD0) | (after > 0xD7))]
    # Any marker but the image's end is of damage.
    return header if markers[:1].tolist() == [0xD9] else replace(header, scan=0)


def _as_stored(size: tuple[int, int], header: Header) -> tuple[int, int]:
    """The (rows, columns) in the file of a (height, width) as shown."""
    return size[::-1] if ORIENTATIONS[header.orientation].transposes else size


def _decode(
    data: bytes, header: Header, at_least: tuple[int, int] | None, depth: str
) -> Decoded:
    """(pixels, the extent that they fill) of the first frame as stored; a JPEG perhaps at 1/k.

    depth: `to_rgb`'s bit_depth.
    """
    if decoded := _decode_scan(data, header, at_least, "COLOR"):
        return decoded
    with rejecting(data):
        image = open_image(data)
        drafted = image.draft(None, at_least[::-1]) if at_least else None
        image.load()
        # A profile of RGB waits until the picture is small; one of another kind cannot.
        profile = header.profile if header.mode in NOT_RGB else b""
        shown = np.asarray(to_rgb(image, profile, data, depth))
        pixels = cv2.cvtColor(shown, cv2.COLOR_RGB2BGR)
    return pixels, drafted[1][:1:-1] if drafted else pixels.shape[:2]


def _decode_scan(
    data: bytes, header: Header, at_least: tuple[int, int] | None, flag: str
) -> Decoded | None:
    """What `_decode` gives, of a JPEG of one scan, "COLOR" or "GRAYSCALE"; None for another."""
    if not header.scan or (header.profile and header.mode in NOT_RGB):
        return None
    end = data.find(b"\xff\xd9", header.scan)  # behind it may lie another picture
    if data.find(bytes(32), header.scan, end) >= 0 and not PLAIN.search(
        data, 0, header.scan
    ):
        raise RejectedImage("damaged: zeros in its scan")
    rows, columns = _as_stored((header.height, header.width), header)
    least = at_least or (rows, columns)
    scale = next(
        (k for k in (8, 4, 2) if rows >= k * least[0] and columns >= k * least[1]), 1
    )
    # Scaled inside the decoder's cosine transform; turned by us, since OpenCV versions differ.
    name = f"IMREAD_{flag}" if scale == 1 else f"IMREAD_REDUCED_{flag}_{scale}"
    with suppress(cv2.error):
        flags = getattr(cv2, name) | cv2.IMREAD_IGNORE_ORIENTATION
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        if pixels is not None and pixels.shape[:2] == (
            -(-rows // scale),
            -(-columns // scale),
        ):
            if (pixels[-1, -1] == 128).all() and _ran_out(
                data[header.scan : end], pixels, scale
            ):
                raise RejectedImage("truncated: grey to its end")
            return pixels, (rows / scale, columns / scale)
    return None


def _ran_out(scan: bytes, pixels: np.ndarray, scale: int) -> bool:
    """Whether the pixels' last rows are grey since the decoder, at 1 / scale, had no data left."""
    rows = int((pixels[::-1] != 128).reshape(len(pixels), -1).any(axis=1).argmax())
    # Grey that is coded takes two bits or more for 64 pixels, ever the same: 18 bytes of 32 differ.
    count = min(32, rows * pixels.shape[1] * scale**2 // 256)
    end = scan.replace(b"\xff\0", b"\xff")[-count - 1 : -1]
    return count >= 24 and len(set(end)) > 0.8 * count


def _resize(
    pixels: np.ndarray,
    extent: tuple[float, float],
    size: tuple[int, int],
    resample: str,
) -> np.ndarray:
    """The pixels at `size`, antialiased."""
    (rows, columns), (height, width) = extent, size
    if extent == size:
        return pixels
    if resample == "lanczos":
        filled = (0, 0, columns, rows)
        image = Image.fromarray(pixels)
        image = image.resize((width, height), Image.Resampling.LANCZOS, filled)
        return np.asarray(image)
    ratio, target = max(rows / height, columns / width), size
    if ratio <= WHOLE_LIMIT:
        if ratio > LINEAR_LIMIT:
            target = ceil(rows / height) * height, ceil(columns / width) * width
        step = (
            cv2.INTER_LINEAR if CUBIC_LIMIT < ratio <= LINEAR_LIMIT else cv2.INTER_CUBIC
        )
        # By exact factors, since the picture may fill its last row and column in part.
        fy, fx = target[0] / rows, target[1] / columns
        pixels = cv2.resize(pixels, None, fx=fx, fy=fy, interpolation=step)
        pixels = pixels[: target[0], : target[1]]
        if target == size:
            return pixels
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def _to_upright_srgb(pixels: np.ndarray, header: Header) -> np.ndarray:
    if header.profile:
        image = Image.fromarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
        pixels = cv2.cvtColor(
            np.asarray(to_srgb(image, header.profile)), cv2.COLOR_RGB2BGR
        )
    return _turn(pixels, header)


def _turn(pixels: np.ndarray, header: Header) -> np.ndarray:
    # OpenCV copies pixels in another order ten times as fast as NumPy.
    change = ORIENTATIONS[header.orientation]
    if change.transposes:
        pixels = cv2.transpose(pixels)
    if change.reverses_rows and change.reverses_columns:
        return cv2.flip(pixels, -1)
    if change.reverses_rows:
        return cv2.flip(pixels, 0)
    return cv2.flip(pixels, 1) if change.reverses_columns else pixels


def _crop_middle(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def output_size(height: int, width: int, settings: ImageSettings) -> tuple[int, int]:
    """The (height, width) in pixels of the record's image for a picture of that size as shown."""
    given = None if settings.resize == "short_side" else settings.size
    return given or _scaled_size(height, width, settings)


def _scaled_size(height: int, width: int, settings: ImageSettings) -> tuple[int, int]:
    """The (height, width) to resize to, before "fill" and "center_crop" crop."""
    if settings.size is None or settings.resize == "stretch":
        return settings.size or (height, width)
    rows, columns = settings.size
    if settings.resize == "short_side":
        rows = columns = min(rows, height, width)
    elif settings.resize == "center_crop":
        rows = columns = max(rows, columns)
    if height * columns <= width * rows:
        return rows, max(columns, (width * rows + height // 2) // height)
    return max(rows, (height * columns + width // 2) // width), columns


def resize_mask(mask: np.ndarray, settings: ImageSettings) -> np.ndarray:
    """A mask, uint8 (height, width) as shown, with `convert`'s geometry and no new values."""
    height, width = mask.shape
    scaled = _scaled_size(height, width, settings)
    mask = cv2.resize(mask, scaled[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
    return _crop_middle(mask, *output_size(height, width, settings))


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB of two uint8 arrays of one shape; inf when equal."""
    value = cv2.PSNR(a, b)
    return (
        value if value < 300 else float("inf")
    )  # 361 when equal, under 150 for one level off
