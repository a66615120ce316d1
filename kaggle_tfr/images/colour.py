"""TODO"""

import io
from functools import lru_cache

import cv2
import numpy as np
from PIL import Image, ImageCms


class RefusedImage(ValueError):  # noqa: N818 - it names the picture, the run goes on
    """A picture that cannot become a record; its text is the short reason."""


def reason_of(error, data):
    """The short reason why Pillow could not read `data`: "truncated" or "damaged: …"."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    short_webp = data[:4] == b"RIFF" and len(data) < 8 + int.from_bytes(data[4:8], "little")
    if short_webp or "truncated" in text.lower() or isinstance(error, EOFError):
        return "truncated"
    return f"damaged: {text}"


def _to_rgb(image, profile):
    """The image in Pillow's mode RGB: alpha over white, 16 bits to 8, the profile to sRGB."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "I" and image.format == "PNG":  # what older Pillows call 16-bit grey
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F", "LAB"):
        raise RefusedImage(f"unsupported kind: {image.format} with pixels of mode {image.mode}")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB")
    elif image.mode in ("1", "P", "PA", "YCbCr", "HSV"):
        image = image.convert("RGB")
    # RGB waits for `to_srgb` until it is small; what has a profile of another kind cannot.
    transform = srgb_transform(profile, image.mode) if profile and image.mode != "RGB" else None
    return ImageCms.applyTransform(image, transform) if transform else image.convert("RGB")


def profile_mode(mode):
    """The kind of pixels a colour profile is for, in a picture of a Pillow mode."""
    return mode if mode in ("L", "CMYK") else "RGB"


@lru_cache(maxsize=64)
def srgb_transform(profile, mode):
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
    cube = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(27, 27, 3)
    moved = np.asarray(ImageCms.applyTransform(Image.fromarray(cube), made))
    return made if np.abs(moved.astype(int) - cube).max() > 3 else None


def to_srgb(pixels, profile):
    """The pixels in sRGB, from those of a picture with an embedded RGB profile."""
    transform = srgb_transform(profile, "RGB")
    if not transform:
        return pixels
    image = Image.fromarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
    ImageCms.applyTransform(image, transform, inPlace=True)
    return cv2.cvtColor(np.asarray(image), cv2.COLOR_RGB2BGR)


def read_upright(data: bytes) -> np.ndarray:
    """RGB pixels, uint8 (height, width, 3), full size and upright, of any format Pillow knows."""
    from PIL import ImageOps

    try:
        image = Image.open(io.BytesIO(data))
        image.load()
        upright = ImageOps.exif_transpose(image)
        return np.asarray(_to_rgb(upright, image.info.get("icc_profile", b"")))
    except (RefusedImage, MemoryError):
        raise
    except Exception as error:
        raise RefusedImage(reason_of(error, data)) from error
