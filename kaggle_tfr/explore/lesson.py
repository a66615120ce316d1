"""Make the colour profile of a phone, for a lesson in 01."""

import io
import struct

from PIL import ImageCms

# The red, green and blue of Apple's Display P3, as X, Y and Z under the light D50.
DISPLAY_P3 = {
    b"rXYZ": (0.51512, 0.24120, -0.00105),
    b"gXYZ": (0.29198, 0.69225, 0.04189),
    b"bXYZ": (0.15710, 0.06657, 0.78407),
}


def make_display_p3() -> ImageCms.ImageCmsProfile:
    """Return the ICC profile of Display P3: that of sRGB with other primaries."""
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    profile = bytearray(srgb.tobytes())
    for name, values in DISPLAY_P3.items():
        entry = profile.index(name, 128)  # after the header: name, offset, size
        (offset,) = struct.unpack_from(">I", profile, entry + 4)
        fixed = [round(value * 65536) for value in values]
        struct.pack_into(">3i", profile, offset + 8, *fixed)
    return ImageCms.ImageCmsProfile(io.BytesIO(profile))
