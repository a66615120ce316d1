"""Pictures made up for tests: no two corners, channels or neighbourhoods alike."""

import io
import struct

import numpy as np
from PIL import Image, ImageCms

from kaggle_tfr.images.convert import ImageSettings, make_pixels
from kaggle_tfr.images.header import read_header

UNCHANGED = ImageSettings(None, resize="none")


def scene(height=300, width=400, seed=0):
    """Return an RGB image with a photograph's spectrum and a colour in each corner."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    pixels = np.stack([255 * x, 255 * y, 255 * (1 - x) * (1 - y)], -1)
    frequency = (
        np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)) + 0.5 / width
    )
    for strength, channels in ((40, [0, 1, 2]), (12, [0]), (12, [2])):
        spectrum = np.fft.rfft2(rng.normal(size=(height, width))) / frequency**1.2
        noise = np.fft.irfft2(spectrum, (height, width))[..., None]
        pixels[..., channels] += strength * (noise / (noise.std() + 1e-9))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def saved(image, kind="JPEG", orientation=0, **options):
    """The bytes of an image file, by Pillow; JPEG at quality 95 by default."""
    stream = io.BytesIO()
    if orientation:
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = orientation
    if kind == "JPEG":
        options.setdefault("quality", 95)
    image.save(stream, kind, **options)
    return stream.getvalue()


def save_pixels(pixels, kind="JPEG", **options):
    return saved(Image.fromarray(pixels), kind, **options)


def opened(data):
    return Image.open(io.BytesIO(data))


def largest_difference(pixels, expected):
    assert np.shape(pixels) == expected.shape
    difference = np.asarray(pixels, float) - expected
    return np.abs(difference).max()


def list_photos(data_dir):
    """Return the bytes of the photos of the test data."""
    return [file.read_bytes() for file in sorted((data_dir / "photos").iterdir())]


SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
# Columns: red, green, blue of Display P3 in CIE XYZ under D50, white of profiles.
P3_TO_XYZ = np.array(
    [
        [0.51512, 0.29198, 0.15710],
        [0.24120, 0.69225, 0.06657],
        [-0.00105, 0.04189, 0.78407],
    ]
)
XYZ_TO_SRGB = np.array(
    [
        [3.13386, -1.61687, -0.49062],
        [-0.97877, 1.91614, 0.03345],
        [0.07194, -0.22899, 1.40524],
    ]
)


def wide_profile():
    """Return the ICC profile of Display P3: that of sRGB with other primaries."""
    profile = bytearray(SRGB)
    for tag, color in zip((b"rXYZ", b"gXYZ", b"bXYZ"), P3_TO_XYZ.T, strict=True):
        _write_fixed(profile, tag, 8, color)
    return bytes(profile)


def grey_profile(gamma=2.4):
    """Return a grey ICC profile: the curve of sRGB, or one with this exponent."""
    profile = bytearray(SRGB)
    _write_fixed(profile, b"rTRC", 12, [gamma])
    profile[16:20] = b"GRAY"
    return bytes(profile.replace(b"rTRC", b"kTRC"))


def _write_fixed(profile, tag, offset, numbers):
    """Write numbers at an offset of a tag's data, with 16 bits after the point."""
    entry = profile.index(tag)
    (start,) = struct.unpack_from(">I", profile, entry + 4)
    fixed = [round(number * 65536) for number in numbers]
    struct.pack_into(f">{len(fixed)}i", profile, start + offset, *fixed)


def wide_to_srgb(pixels):
    """uint8 pixels of `wide_profile` as uint8 sRGB, by the textbook."""
    levels = np.asarray(pixels) / 255
    light = np.where(
        levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4
    )
    light = (light @ (XYZ_TO_SRGB @ P3_TO_XYZ).T).clip(0, 1)
    srgb = np.where(
        light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055
    )
    return (255 * srgb).round().astype(np.uint8)


def record_pixels(data, settings):
    """RGB pixels of the record's image, before JPEG compresses them."""
    header = read_header(data)
    return make_pixels(data, header, settings)[..., ::-1]
