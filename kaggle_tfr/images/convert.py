"""Convert the bytes of an image file to the image of a record.

Inside this module pixels are (height, width, 3) with blue first, as in OpenCV.
"""

import re
from dataclasses import dataclass
from math import ceil

import cv2
import numpy as np
from PIL import Image

from kaggle_tfr.images.header import (
    Extent,
    Header,
    RejectedImage,
    check_size,
    read_header,
    read_rgb,
    to_srgb,
)
from kaggle_tfr.images.masks import EMPTY_CODES, decode_mask, encode_mask
from kaggle_tfr.images.orientation import Size, apply_orientation, transpose_size
from kaggle_tfr.records import read_image_bytes

# The largest ratios of sides, by PSNR against Lanczos, for one cubic step; for one
# bilinear step, which is fastest; and for a cubic step up to the next whole multiple of
# the target, then a mean over whole blocks. The last is three times as fast as an area
# step over fractions of pixels, and up to 3 dB nearer to Lanczos.
CUBIC_LIMIT = 1.3
LINEAR_LIMIT = 1.5
WHOLE_LIMIT = 2.5

HASH_SIDE = 256  # pixels; below it the wavelet hash differs from the whole image's
# The formats of originals that a record may contain, for each `resize`.
PASSED_FORMATS = {"none": ("JPEG", "PNG"), "short_side": ("JPEG",)}
# A Huffman table of luma whose shortest code, of zeros only, is "end of block". Blocks
# of one shade are then zeros, so a run of zeros in the scan is not damage.
ZEROS_END_BLOCKS = re.compile(rb"(?s)\xff\xc4.{2,420}\x10.{16}\0")
# In a scan 255 is escaped by 00 or padded by FF, and D0 to D7 restart the decoder.
JPEG_MARKER = re.compile(rb"\xff[^\0\xff\xd0-\xd7]")

Pixels = np.ndarray


@dataclass(frozen=True)
class ImageSettings:
    """How an image file becomes the image of a record.

    size: (height, width) in pixels; (s, s) for short_side; None for resize "none".
    resize: "short_side" shrinks to a short side of s and never enlarges; "stretch"
        ignores the shape; "fill" scales until `size` is just covered, "center_crop"
        until the short side is the longer side of `size`, and both then crop the
        middle; "none" keeps every pixel.
    quality: of JPEG, 1 to 100. resample: "area", or "lanczos", which is slower.
    subsampling: of the chroma of JPEG, "4:2:0" or "4:4:4".
    optimize: optimised Huffman tables: 3 % smaller, a seventh slower for small images.
    pass_through: an image that needs no change keeps its bytes.
    bit_depth: how 16 bits become 8, see `read_rgb`.
    """

    size: Size | None
    resize: str = "short_side"
    quality: int = 90
    resample: str = "area"
    subsampling: str = "4:2:0"
    optimize: bool = True
    pass_through: bool = True
    bit_depth: str = "scale"


@dataclass(frozen=True)
class EncodedImage:
    """The image of a record: its bytes, size in pixels, and "JPEG" or "PNG"."""

    data: bytes
    height: int
    width: int
    format: str


def convert(data: bytes, settings: ImageSettings) -> EncodedImage:
    """Return the image of a record: the file itself if nothing changes, else a JPEG.

    Raises: RejectedImage.
    """
    header = read_header(data)
    size = (header.height, header.width)
    # `plain`: every reader shows the file correctly. `PASSED_FORMATS`: JPEG and PNG for
    # resize "none", JPEG for "short_side", none for the others.
    is_right = (
        header.plain
        and header.format in PASSED_FORMATS.get(settings.resize, ())
        and output_size(*size, settings) == size
    )
    if is_right and settings.pass_through:
        # Decoding only finds damage, which is raised. (1, 1) is the least size: a JPEG
        # is decoded at an eighth of its size, which is fastest. `bit_depth` is left
        # out, because a plain image has 8 bits or fewer.
        _decode(data, header, (1, 1))
        return EncodedImage(data, *size, header.format)

    pixels = make_pixels(data, header, settings)
    height, width = pixels.shape[:2]
    if max(height, width) > 65_500:  # the limit of libjpeg
        raise RejectedImage(f"JPEG holds no image of {width} × {height} pixels")
    return EncodedImage(_encode(pixels, settings), height, width, "JPEG")


def _encode(pixels: Pixels, settings: ImageSettings) -> bytes:
    """Return pixels, blue first, as the bytes of a JPEG file."""
    subsampling = settings.subsampling.replace(":", "")  # "420", as OpenCV names it
    options = [
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
        getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{subsampling}"),
        cv2.IMWRITE_JPEG_OPTIMIZE,
        int(settings.optimize),
        cv2.IMWRITE_JPEG_QUALITY,
        settings.quality,
    ]
    # The first value is whether it succeeded; it does at any size that JPEG can have.
    _, encoded = cv2.imencode(".jpg", pixels, options)
    return encoded.tobytes()


def make_pixels(data: bytes, header: Header, settings: ImageSettings) -> Pixels:
    """Return the pixels of the record's image, uint8 (height, width, 3), blue first.

    Raises: RejectedImage.
    """
    # The size before "fill" and "center_crop" crop. It is checked, because an image of
    # one column can be scaled up to billions of pixels.
    height, width = _scaled_size(header.height, header.width, settings)
    check_size(width, height)
    # Pixels are resized as they are stored: to rotate the small image takes less time.
    stored_size = transpose_size((height, width), header.orientation)
    # The image fills `extent` rows and columns, fractions if a JPEG is reduced.
    pixels, extent = _decode(data, header, stored_size, settings.bit_depth)
    pixels = _resize(pixels, extent, stored_size, settings.resample)
    pixels = _to_upright_srgb(pixels, header)
    return _crop_middle(pixels, output_size(header.height, header.width, settings))


def check_image(data: bytes, *, bit_depth: str = "") -> tuple[Header, np.ndarray]:
    """Decode an image to its end, which finds damage; return its header and luma.

    Hashes are made from the luma: uint8 (height, width), upright, reduced by a whole
    number to no less than `HASH_SIDE` pixels, 256, a side; smaller images stay as they
    are.
    bit_depth: see `read_rgb`.
    Raises: RejectedImage.
    """
    header = read_header(data)
    # The decoder of JPEG returns luma at once. Profiles of RGB change it by 2 of 255
    # levels, so they are ignored; and so is the exact size of a reduced JPEG (extent),
    # which is a part of a pixel smaller.
    luma, _ = _decode(data, header, (HASH_SIDE, HASH_SIDE), bit_depth, "GRAYSCALE")
    luma = _rotate(luma, header)
    factor = min(luma.shape) // HASH_SIDE
    if factor > 1:
        luma = np.asarray(Image.fromarray(luma).reduce(factor))
    return header, luma


def read_pixels(data: bytes, at_least: Size | None = None) -> Pixels:
    """Return the upright image, uint8 RGB (height, width, 3).

    at_least: the (height, width) to which a JPEG may be reduced by a whole number, or
        None for the full size.
    Raises: RejectedImage.
    """
    header = read_header(data)
    size = at_least or (header.height, header.width)
    # The second value is the exact size of a reduced JPEG, maybe a fraction: that its
    # last row is filled in part hardly matters here.
    pixels, _ = _decode(data, header, transpose_size(size, header.orientation))
    return cv2.cvtColor(_to_upright_srgb(pixels, header), cv2.COLOR_BGR2RGB)


def load_pixels(path: str, side: int) -> Pixels:
    """Return an image for display, uint8 RGB (height, width, 3), upright.

    A file that cannot be read gives 64 × 64 pixels of light grey.
    side: in pixels. JPEGs are reduced to no less than this a side; other formats keep
    their size.
    """
    try:
        return read_pixels(read_image_bytes(path), at_least=(side, side))
    except (OSError, RejectedImage):
        return np.full((64, 64, 3), 230, np.uint8)


def _decode(
    data: bytes,
    header: Header,
    at_least: Size,
    bit_depth: str = "",
    color: str = "COLOR",
) -> tuple[Pixels, Extent]:
    """Return the first frame as it is stored, and the (rows, columns) that it fills.

    The pixels are uint8: (rows, columns, 3) with blue first for the color "COLOR",
    (rows, columns) for "GRAYSCALE".
    at_least: the (rows, columns) to which a JPEG may be reduced by a whole number. Its
    last row and column are then filled in part, and the extent is a fraction: 25 rows
    at an eighth fill 3.125 of 4 rows.
    bit_depth: see `read_rgb`. Raises: RejectedImage.
    """
    decoded = _decode_scan(data, header, at_least, color)
    if decoded:
        return decoded
    # Pillow decodes all files but JPEGs of one scan. Its mode "L" is grey.
    mode = "L" if color == "GRAYSCALE" else None
    # `own_profile` is b"" for profiles of RGB, which are applied later, when the image
    # is small.
    width_first = at_least[::-1]
    rgb, extent = read_rgb(data, header.own_profile, bit_depth, width_first, mode)
    if mode:
        return np.asarray(rgb.convert(mode)), extent
    return cv2.cvtColor(np.asarray(rgb), cv2.COLOR_RGB2BGR), extent


def _decode_scan(
    data: bytes, header: Header, at_least: Size, color: str
) -> tuple[Pixels, Extent] | None:
    """Return what `_decode` returns for a JPEG of one scan, by OpenCV; else None.

    None: Pillow must decode the file. Raises: RejectedImage: the scan is damaged.
    """
    end = _find_scan_end(data, header)
    if end is None:
        return None
    # The header has the size of the upright image; pixels are decoded as stored.
    rows, columns = transpose_size((header.height, header.width), header.orientation)
    least_rows, least_columns = at_least
    # OpenCV can divide the sides by 8, 4 or 2 while it decodes.
    ratio = min(rows // least_rows, columns // least_columns)
    scale = next((scale for scale in (8, 4, 2) if ratio >= scale), 1)
    extent = (rows / scale, columns / scale)
    pixels = _decode_reduced(data, color, scale)
    # OpenCV failed, or decoded something else than the image of the header.
    if pixels is None or pixels.shape[:2] != tuple(map(ceil, extent)):
        return None
    # Whether the decoder filled the last rows with grey, because data was missing.
    if _ran_out(data[header.scan : end], pixels, scale):
        raise RejectedImage("truncated: grey to its end")
    return pixels, extent


def _decode_reduced(data: bytes, color: str, scale: int) -> Pixels | None:
    """Return the pixels of a JPEG, its sides divided by `scale`, as it is stored.

    color: "COLOR" (blue first) or "GRAYSCALE". scale: 1, 2, 4 or 8.
    None: OpenCV cannot decode the file.
    """
    size = f"REDUCED_{color}_{scale}" if scale > 1 else color
    # OpenCV versions differ in what they rotate, so we rotate.
    flags = getattr(cv2, f"IMREAD_{size}") | cv2.IMREAD_IGNORE_ORIENTATION
    buffer = np.frombuffer(data, np.uint8)
    try:
        return cv2.imdecode(buffer, flags)
    except cv2.error:
        return None


def _find_scan_end(data: bytes, header: Header) -> int | None:
    """Return where the only scan of a JPEG ends; None if Pillow must decode the file.

    The scan is the compressed pixels. The caller decodes the file with OpenCV, and
    checks by the last bytes of the scan whether data is missing.
    Raises: RejectedImage: the scan is damaged.
    """
    # `scan` is 0 unless a JPEG has a single one. A profile of grey or CMYK fits the
    # values in the file: Pillow applies it to them (`read_rgb`); OpenCV ignores it.
    if not header.scan or header.own_profile:
        return None
    # The first marker that is not a part of the scan. FF D9 is the end of the image;
    # another image may follow.
    marker = JPEG_MARKER.search(data, header.scan)
    if marker is None or marker[0] != b"\xff\xd9":
        return None  # not the end of the image: Pillow decides
    end = marker.start()
    # Lost pieces of a file are often zeros. A good scan has 32 bytes of them only if an
    # area of one shade is written as zeros. Few encoders do so: in their Huffman table,
    # before the scan, the shortest code means "end of block" (`ZEROS_END_BLOCKS`).
    has_zeros = data.find(bytes(32), header.scan, end) >= 0
    may_have_zeros = ZEROS_END_BLOCKS.search(data, 0, header.scan)
    if has_zeros and not may_have_zeros:
        raise RejectedImage("damaged: zeros in its scan")
    return end


def _ran_out(scan: bytes, pixels: Pixels, scale: int) -> bool:
    """Return whether the last rows are grey because the decoder had no data left.

    A decoder fills what is missing with the level 128.
    scan: its bytes. pixels: decoded from it, each side divided by `scale`.
    """
    if (pixels[-1, -1] != 128).any():
        return False
    # Or is the grey in the data? It takes two bits or more for a block of 64 pixels,
    # and repeats: the last 32 bytes of such a scan have at most 18 values. Those of a
    # truncated scan encode something else, and have about 30.
    height, width = pixels.shape[:2]
    is_colored = (pixels != 128).reshape(height, -1).any(axis=1)
    n_grey_rows = int(is_colored[::-1].argmax())  # 0 also if all rows are grey
    # What these rows take at least in the data: a byte for 4 blocks, of 256 pixels.
    grey_bytes = n_grey_rows * width * scale**2 // 256
    n_checked = min(32, grey_bytes)
    scan = scan.replace(b"\xff\0", b"\xff")  # without the escapes of 255
    last_bytes = scan[-n_checked - 1 : -1]  # the very last one has bits of padding
    # Of fewer than 24 bytes it cannot be decided.
    return n_checked >= 24 and len(set(last_bytes)) > 0.8 * n_checked


def _resize(pixels: Pixels, extent: Extent, size: Size, resample: str) -> Pixels:
    """Return the image resized to `size`, antialiased.

    extent: the rows and columns of `pixels` that the image fills, maybe fractions, as
    `_decode` returns them. size: (rows, columns). resample: "area" or "lanczos".
    """
    if extent == size:
        return pixels
    rows, columns = extent
    height, width = size
    if resample == "area":
        return _resize_by_area(pixels, extent, size)
    image = Image.fromarray(pixels)
    box = (0, 0, columns, rows)
    resized = image.resize((width, height), Image.Resampling.LANCZOS, box)
    return np.asarray(resized)


def _resize_by_area(pixels: Pixels, extent: Extent, size: Size) -> Pixels:
    """Return the image resized to `size`, antialiased, by OpenCV's fast filters.

    extent: the rows and columns of `pixels` that the image fills, maybe fractions.
    A cubic or bilinear step reads few pixels, so it suits small ratios of sides only:
    the limits are 1.3 for one cubic step, 1.5 for a bilinear one, which is faster, and
    2.5 for a cubic step before a mean of blocks.
    """
    rows, columns = extent
    height, width = size
    ratio = max(rows / height, columns / width)  # below 1 if the image is enlarged
    if ratio <= CUBIC_LIMIT:
        return _resize_to(pixels, extent, size, cv2.INTER_CUBIC)
    if ratio <= LINEAR_LIMIT:
        return _resize_to(pixels, extent, size, cv2.INTER_LINEAR)
    if ratio <= WHOLE_LIMIT:
        # First to whole multiples of the size: the last step is then a mean of blocks.
        whole_rows = ceil(rows / height) * height
        whole_columns = ceil(columns / width) * width
        whole = (whole_rows, whole_columns)
        pixels = _resize_to(pixels, extent, whole, cv2.INTER_CUBIC)
    # The extent is not needed: it is whole after the cubic step, and above the limit a
    # last row that is filled in part hardly matters.
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def _resize_to(pixels: Pixels, extent: Extent, size: Size, method: int) -> Pixels:
    """Return the image resized to `size` by a method of OpenCV, cv2.INTER_….

    extent: the rows and columns of `pixels` that the image fills, maybe fractions.
    """
    # By exact factors, because the last row and column may be filled in part. OpenCV
    # may then return a pixel too many, which is cut off.
    height, width = size
    rows, columns = extent
    resized = cv2.resize(
        pixels,
        None,
        fx=width / columns,
        fy=height / rows,
        interpolation=method,
    )
    return resized[:height, :width]


def _to_upright_srgb(pixels: Pixels, header: Header) -> Pixels:
    """Return the pixels of `_decode` upright, with the header's profile applied."""
    # A profile of grey or CMYK was applied by `_decode`: these pixels are RGB, for
    # which `to_srgb` ignores it.
    if header.profile:
        image = Image.fromarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
        rgb = np.asarray(to_srgb(image, header.profile))
        pixels = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    return _rotate(pixels, header)


def _rotate(pixels: Pixels, header: Header) -> Pixels:
    """Return the pixels upright, as a contiguous array (height, width, …)."""
    return np.ascontiguousarray(apply_orientation(pixels, header.orientation))


def output_size(height: int, width: int, settings: ImageSettings) -> Size:
    """Return (height, width) of a record's image, for an upright image of this size."""
    if settings.size and settings.resize != "short_side":
        return settings.size
    return _scaled_size(height, width, settings)


def _scaled_size(height: int, width: int, settings: ImageSettings) -> Size:
    """Return (height, width) to resize to, before "fill" and "center_crop" crop.

    height, width: of the upright image.
    """
    if settings.size is None:  # resize "none"
        return height, width
    if settings.resize == "stretch":
        return settings.size
    rows, columns = settings.size
    if settings.resize == "short_side":
        rows = columns = min(rows, height, width)  # never larger than the image
    elif settings.resize == "center_crop":
        rows = columns = max(rows, columns)  # as for a square of the longer side
    # Cover rows × columns in the image's shape: one side fits, the other is rounded.
    if height * columns <= width * rows:
        columns = (width * rows + height // 2) // height
    else:
        rows = (height * columns + width // 2) // width
    return rows, columns


def _crop_middle(pixels: Pixels, size: Size) -> Pixels:
    """Return the middle of pixels as `size`, (height, width), which is not larger."""
    height, width = size
    rows, columns = pixels.shape[:2]
    top = (rows - height) // 2
    left = (columns - width) // 2
    return pixels[top : top + height, left : left + width]


def resize_code(code: str, height: int, width: int, settings: ImageSettings) -> str:
    """Return the run-length code of a mask, resized and cropped as its image is.

    height, width: of the upright image before. Raises: ValueError: the code does not
    fit them.
    """
    if code in EMPTY_CODES:  # such as "" and "-1": there is no mask
        return code
    mask = decode_mask(code, height, width)
    rows, columns = _scaled_size(height, width, settings)
    mask = cv2.resize(mask, (columns, rows), interpolation=cv2.INTER_NEAREST_EXACT)
    return encode_mask(_crop_middle(mask, output_size(height, width, settings)))
