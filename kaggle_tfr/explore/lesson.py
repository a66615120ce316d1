"""Save a photograph as files that many programs misread."""

import io
import struct

import cv2
import numpy as np
from PIL import Image, ImageCms

MAX_ERROR = 2  # grey levels on average; a JPEG of quality 98 loses about one
ROTATE = 0x0112  # the EXIF tag of the orientation
# The red, green and blue of Apple's Display P3, as X, Y and Z under the light D50.
DISPLAY_P3 = {
    b"rXYZ": (0.51512, 0.24120, -0.00105),
    b"gXYZ": (0.29198, 0.69225, 0.04189),
    b"bXYZ": (0.15710, 0.06657, 0.78407),
}


def save_variants(photo: Image.Image) -> dict[str, bytes]:
    """Save one photograph, RGB, as four files of which each needs a conversion.

    EXIF: the pixels are stored on their side. Display P3: colours of a phone.
    CMYK: colours of a printer. 16 bits: grey levels from 0 to 65,535.
    """
    exif = Image.Exif()
    exif[ROTATE] = 6  # rotate by 90° clockwise to display
    on_its_side = photo.rotate(90, expand=True)

    srgb = ImageCms.createProfile("sRGB")
    display_p3 = ImageCms.ImageCmsProfile(io.BytesIO(make_display_p3()))
    of_phone = ImageCms.profileToProfile(photo, srgb, display_p3) or photo

    levels = np.asarray(photo.convert("L")).astype(np.uint16) * 257
    _, deep = cv2.imencode(".png", levels)
    return {
        "EXIF rotation": _encode(on_its_side, exif=exif),
        "Display P3": _encode(of_phone, icc_profile=display_p3.tobytes()),
        "CMYK": _encode(photo.convert("CMYK")),
        "16-bit grey": deep.tobytes(),
    }


def describe_error(pixels: np.ndarray, photo: Image.Image) -> str:
    """Return by how many levels pixels differ from the photograph, after "✓" or "✗".

    pixels: uint8 RGB (height, width, 3), of a file that may be lossy.

    >>> photo = Image.new("RGB", (3, 2), (10, 10, 10))
    >>> describe_error(np.full((2, 3, 3), 11, np.uint8), photo)
    '✓ 1.0 levels'
    """
    if pixels.shape[:2] != (photo.height, photo.width):
        return "✗ on its side"
    expected = np.asarray(photo.convert("RGB"))
    levels = cv2.absdiff(np.ascontiguousarray(pixels), expected).mean()
    mark = "✗" if levels > MAX_ERROR else "✓"
    return f"{mark} {levels:.1f} levels"


def _encode(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=98, subsampling=0, **options)
    return file.getvalue()


def make_display_p3() -> bytes:
    """Return the ICC profile of Display P3: that of sRGB with other primaries."""
    profile = bytearray(
        ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    )
    for name, values in DISPLAY_P3.items():
        entry = profile.index(name, 128)  # after the header: name, offset, size
        (offset,) = struct.unpack_from(">I", profile, entry + 4)
        fixed = [round(value * 65536) for value in values]
        struct.pack_into(">3i", profile, offset + 8, *fixed)
    return bytes(profile)
