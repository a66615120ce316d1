"""A picture by Pillow alone: 8-bit RGB in sRGB, alpha over white, the right way up."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from PIL import ExifTags, Image, ImageCms

# Pillow's limit for "decompression bombs" makes way for ours, which is a setting.
Image.MAX_IMAGE_PIXELS = None


class RefusedImage(ValueError):  # noqa: N818 - it names the picture, the run goes on
    """A picture that cannot become a record; its text is the short reason."""


@contextmanager
def refusing(data: bytes) -> Iterator[None]:
    """A block in which whatever Pillow raises for `data` becomes RefusedImage."""
    try:
        yield
    except (RefusedImage, MemoryError):
        raise
    except Exception as error:  # damaged files fail in as many ways as Pillow has plugins
        raise RefusedImage(reason_of(error, data)) from error


def reason_of(error: Exception, data: bytes) -> str:
    """The short reason why Pillow could not read `data`: "truncated", "damaged: …" and others."""
    if isinstance(error, Image.UnidentifiedImageError):
        if data[4:8] == b"ftyp":
            return f"unsupported kind: {data[8:12].decode('ascii', 'replace')} (HEIF family)"
        heads = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF")
        return "truncated" if data.startswith(heads) else "not an image"
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    short_webp = data[:4] == b"RIFF" and len(data) < 8 + int.from_bytes(data[4:8], "little")
    if short_webp or "truncated" in text.lower() or isinstance(error, EOFError):
        return "truncated"
    return f"damaged: {text}"


def read_upright(data: bytes) -> np.ndarray:
    """RGB pixels, uint8 (height, width, 3), full size and upright, of any format Pillow knows.

    Raises: RefusedImage, as `header.read_header` but for the limit of pixels.
    """
    with refusing(data):
        image = Image.open(io.BytesIO(data))
        image.load()
        pixels = np.asarray(to_rgb(image, find_profile(image)))
        return turn(pixels, find_orientation(image))


def to_rgb(image: Image.Image, profile: bytes = b"") -> Image.Image:
    """A loaded image as 8-bit RGB: alpha over white, 16 bits to 8, from the profile to sRGB.

    Raises: RefusedImage, "unsupported kind: …".
    """
    # Mode I is what older Pillows call a 16-bit grey PNG.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    elif image.mode in ("I", "F", "LAB"):
        raise RefusedImage(f"unsupported kind: {image.format} with pixels of mode {image.mode}")
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB")
    elif image.mode in ("1", "P", "PA", "YCbCr", "HSV"):
        image = image.convert("RGB")
    transform = srgb_transform(profile, image.mode) if profile else None
    if transform:
        return ImageCms.applyTransform(image, transform) or image
    return image if image.mode == "RGB" else image.convert("RGB")


def to_srgb(pixels: np.ndarray, profile: bytes) -> np.ndarray:
    """RGB pixels, uint8 (height, width, 3), in sRGB, from those of a picture with that profile."""
    return np.asarray(to_rgb(Image.fromarray(pixels), profile))


def find_orientation(image: Image.Image) -> int:
    """EXIF's orientation, 1 (upright) to 8; Pillow turns a TIFF by itself, its `load` leaves 1."""
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    return orientation if orientation in range(1, 9) else 1


def turn(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """A view of the pixels (rows, columns, …), the way up that an EXIF orientation asks for."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    down = -1 if orientation in (3, 4, 7, 8) else 1
    right = -1 if orientation in (2, 3, 6, 7) else 1
    return pixels[::down, ::right]


def find_profile(image: Image.Image) -> bytes:
    """The embedded colour profile of an opened image where it changes its colours, else b""."""
    profile = image.info.get("icc_profile") or b""
    return profile if profile and srgb_transform(profile, profile_mode(image.mode)) else b""


def profile_mode(mode: str) -> str:
    """The kind of pixels a colour profile is for, in a picture of a Pillow mode."""
    return mode if mode in ("L", "CMYK") else "RGB"


@lru_cache(maxsize=64)
def srgb_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """The transform from an embedded colour profile to sRGB, or None where none is needed.

    None for a profile that moves no colour by more than 3 of 255 levels (sRGB in one of its many
    copies), for one made for another kind of pixels, and for one that cannot be read.
    """
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        made = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None
    if mode != "RGB":
        return made
    steps = np.linspace(0, 255, 9).round().astype(np.uint8)
    cube = Image.fromarray(np.stack(np.meshgrid(steps, steps, steps), -1).reshape(27, 27, 3))
    moved = np.asarray(ImageCms.applyTransform(cube, made))
    return made if np.abs(moved.astype(int) - np.asarray(cube)).max() > 3 else None
