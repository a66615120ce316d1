"""A picture by Pillow alone: 8-bit RGB in sRGB, alpha over white, the right way up."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from PIL import ExifTags, Image, ImageCms

Image.MAX_IMAGE_PIXELS = None  # ours is a setting
NOT_RGB = ("L", "CMYK")  # modes with colour profiles of their own


class RefusedImage(ValueError):  # noqa: N818 - it names the picture, the run goes on
    """A picture that cannot become a record; its text is the short reason, such as "truncated"."""


@contextmanager
def refusing(data: bytes) -> Iterator[None]:
    """A block in which whatever Pillow raises for `data` becomes RefusedImage."""
    try:
        yield
    except (RefusedImage, MemoryError):
        raise
    except Image.UnidentifiedImageError as error:
        heads = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF")
        reason = "truncated" if data.startswith(heads) else "not an image"
        if data[4:8] == b"ftyp":
            reason = f"unsupported kind: {data[8:12].decode('ascii', 'replace')} (HEIF family)"
        raise RefusedImage(reason) from error
    except Exception as error:  # damaged files fail in as many ways as Pillow has plugins
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        cut = data[:4] == b"RIFF" and len(data) < 8 + int.from_bytes(data[4:8], "little")
        cut = cut or "truncated" in text.lower() or isinstance(error, EOFError)
        raise RefusedImage("truncated" if cut else f"damaged: {text}") from error


def read_upright(data: bytes) -> np.ndarray:
    """Full-size RGB pixels, uint8 (height, width, 3), upright, by Pillow. Raises: RefusedImage."""
    with refusing(data):
        image = Image.open(io.BytesIO(data))
        image.load()
        return turn(np.asarray(to_rgb(image, find_profile(image))), find_orientation(image))


def to_rgb(image: Image.Image, profile: bytes = b"") -> Image.Image:
    """A loaded image as 8-bit RGB in sRGB, alpha over white. Raises: RefusedImage."""
    # Mode I is what older Pillows call a 16-bit grey PNG.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    elif image.mode in ("I", "F", "LAB"):
        raise RefusedImage(f"unsupported kind: {image.format} with pixels of mode {image.mode}")
    elif image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    elif image.mode in ("1", "P", "PA", "YCbCr", "HSV"):
        image = image.convert("RGB")
    if profile and (transform := srgb_transform(profile, image.mode)):
        return ImageCms.applyTransform(image, transform) or image
    return image if image.mode == "RGB" else image.convert("RGB")


def find_orientation(image: Image.Image) -> int:
    """EXIF's orientation, 1 (upright) to 8; Pillow turns a TIFF by itself, its `load` leaves 1."""
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    return orientation if orientation in range(1, 9) else 1


def turn(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """A view of the pixels (rows, columns, …), the way up that an EXIF orientation asks for."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    down, right = orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7)
    return pixels[:: -1 if down else 1, :: -1 if right else 1]


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
        made = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None
    if mode != "RGB":
        return made
    steps = np.linspace(0, 255, 9).round().astype(np.uint8)
    cube = Image.fromarray(np.stack(np.meshgrid(steps, steps, steps), -1).reshape(27, 27, 3))
    moved = np.asarray(ImageCms.applyTransform(cube, made)).astype(int)
    return made if np.abs(moved - np.asarray(cube)).max() > 3 else None  # of 255 levels
