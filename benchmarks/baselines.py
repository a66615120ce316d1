"""The usual ways to convert the bytes of an image, rewritten from their description.

Each function takes the bytes of a JPEG and the short side in pixels, and returns JPEG
bytes at quality 70, or None where only the decoding is measured.
"""

import io
from functools import lru_cache

import cv2
import numpy as np

# As the usual notebooks do, before TensorFlow. Without it glibc allocates memory more
# slowly, and `landmark` takes 50 ms for an image instead of 40.
import pandas as pd  # noqa: F401
from PIL import Image

SIDES = {"large": 384, "small": 256}
OPTIMIZE = {384: True, 256: False}  # as in the recipes landmark-2021 and imagenet
QUALITY = [cv2.IMWRITE_JPEG_QUALITY, 70]
OPTIMISED = [*QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1]


def landmark(data, side):
    """Convert as the landmark notebook: imageio, Lanczos4, TensorFlow's encoder."""
    import tensorflow as tf

    pixels = _imread(data)
    height, width = pixels.shape[:2]
    if (ratio := side / min(height, width)) < 1:
        size = (int(width * ratio), int(height * ratio))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_LANCZOS4)
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
    return tf.io.encode_jpeg(pixels, quality=70, optimize_size=True).numpy()


def _imread(data):
    """Return the pixels by imageio, or without it by Pillow, which imageio calls."""
    try:
        from imageio.v2 import imread
    except ImportError:
        return np.asarray(Image.open(io.BytesIO(data)))
    return np.asarray(imread(data))


def opencv_scripts(data, side):
    """Convert as cassava and the ImageNet script: full decode, bilinear."""
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    height, width = pixels.shape[:2]
    if (ratio := side / min(height, width)) < 1:
        pixels = cv2.resize(pixels, (round(width * ratio), round(height * ratio)))
    return cv2.imencode(".jpg", pixels, QUALITY)[1].tobytes()


def opencv_area(data, side):
    """Convert by a scaled decode and OpenCV's INTER_AREA."""
    pixels = decode_scaled(data, side)
    height, width = pixels.shape[:2]
    if (ratio := side / min(height, width)) < 1:
        size = (round(width * ratio), round(height * ratio))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return cv2.imencode(".jpg", pixels, OPTIMISED)[1].tobytes()


def pillow_draft(data, side):
    """Convert by Pillow: scaled decode, antialiased Lanczos, encoder."""
    return _pillow(data, side, draft=True)


def pillow_full(data, side):
    """Convert by Pillow: full decode, antialiased Lanczos, encoder."""
    return _pillow(data, side, draft=False)


def _pillow(data, side, *, draft):
    image = Image.open(io.BytesIO(data))
    size = _size(image, side)
    if draft:
        image.draft("RGB", size)
    image = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=70, optimize=True)
    return stream.getvalue()


def vips(data, side):
    """Convert by libvips: scaled decode, Lanczos3, sampling 4:2:0, no cache.

    VIPS_CONCURRENCY is its number of cores.
    """
    pyvips = _load_vips()
    width, height = _size(Image.open(io.BytesIO(data)), side)
    image = pyvips.Image.thumbnail_buffer(data, width, height=height, size="force")
    options = {
        "optimize_coding": OPTIMIZE[side],
        "subsample_mode": "on",
        "keep": "none",
    }
    return image.jpegsave_buffer(Q=70, **options)


@lru_cache
def _load_vips():
    import pyvips

    pyvips.cache_set_max(0)
    return pyvips


def _size(image, side):
    ratio = min(1, side / min(image.size))
    return round(image.width * ratio), round(image.height * ratio)


def decode_scaled(data, side):
    """Return the pixels of the smallest scaled decode that is at least the target."""
    short = min(Image.open(io.BytesIO(data)).size)
    flag = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4}
    scale = next((k for k in (4, 2) if short >= k * side), 0)
    return cv2.imdecode(
        np.frombuffer(data, np.uint8), flag.get(scale, cv2.IMREAD_COLOR)
    )


def reference(data, height, width):
    """Return the pixels of a full decode and Pillow's Lanczos, PSNR's reference."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))


def psnr(a, b):
    """Return the peak signal-to-noise ratio of two images in dB, computed by OpenCV."""
    return cv2.PSNR(a, b)
