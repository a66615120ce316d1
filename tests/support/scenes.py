"""Pictures made up for tests: no two corners, channels or neighbourhoods alike."""

import io
import struct

import numpy as np
from PIL import Image

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
    image.save(stream, kind, **({"quality": 95} if kind == "JPEG" else {}) | options)
    return stream.getvalue()


def save_pixels(pixels, kind="JPEG", **options):
    return saved(Image.fromarray(pixels), kind, **options)


def opened(data):
    return Image.open(io.BytesIO(data))


D50 = (0.9642, 1.0, 0.8249)  # white in CIE XYZ
# Columns: red, green, blue of Display P3 in CIE XYZ under D50; here with gamma 2.2.
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
    """The bytes of a small ICC profile: the primaries of Display P3, gamma 2.2."""
    red, green, blue = P3_TO_XYZ.T
    gamma = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(2.2 * 256)) + b"\0\0"
    tags = {
        b"rXYZ": _encode_xyz(red),
        b"gXYZ": _encode_xyz(green),
        b"bXYZ": _encode_xyz(blue),
        b"wtpt": _encode_xyz(D50),
        b"rTRC": gamma,
        b"gTRC": gamma,
        b"bTRC": gamma,
    }
    return _join_profile(b"RGB ", b"Wide", tags)


def grey_profile(gamma=None):
    """Return a small grey ICC profile, with this gamma or the curve of sRGB."""
    levels = np.linspace(0, 1, 1024)
    srgb = np.where(
        levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4
    )
    values = srgb if gamma is None else levels**gamma
    points = (65535 * values).round().astype(">u2").tobytes()
    curve = b"curv\0\0\0\0" + struct.pack(">I", len(levels)) + points
    return _join_profile(b"GRAY", b"Grey", {b"wtpt": _encode_xyz(D50), b"kTRC": curve})


def _encode_xyz(color):
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(v * 65536) for v in color))


def _join_profile(space, name, tags):
    text = b"desc\0\0\0\0" + struct.pack(">I", 5) + name.ljust(5 + 12 + 67, b"\0")
    tags = {b"desc": text, b"cprt": b"text\0\0\0\0none\0\0\0\0", **tags}
    table = b""
    body = b""
    start = 128 + 4 + 12 * len(tags)
    for tag, data in tags.items():
        table += tag + struct.pack(">II", start + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    size = start + len(body)
    head = struct.pack(">I4sI12s", size, b"none", 0x02100000, b"mntr" + space + b"XYZ ")
    head += bytes(12) + b"acsp" + bytes(28) + _encode_xyz(D50)[8:]
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


def wide_to_srgb(pixels):
    """uint8 pixels of `wide_profile` as uint8 sRGB, by the textbook."""
    light = ((np.asarray(pixels) / 255.0) ** 2.2 @ (XYZ_TO_SRGB @ P3_TO_XYZ).T).clip(
        0, 1
    )
    srgb = np.where(
        light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055
    )
    return (255 * srgb).round().astype(np.uint8)


def record_pixels(data, settings):
    """RGB pixels of the record's image, before JPEG compresses them."""
    header = read_header(data)
    return make_pixels(data, header, settings)[..., ::-1]


def largest_difference(pixels, expected):
    assert np.shape(pixels) == expected.shape
    difference = np.asarray(pixels, float) - expected
    return np.abs(difference).max()


def list_photos(data_dir):
    """Return the bytes of the photos of the test data."""
    files = sorted((data_dir / "photos").iterdir())
    return [file.read_bytes() for file in files]
