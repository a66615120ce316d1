"""The usual ways from a picture's bytes to a record's image, rewritten from their description.

Every function takes the bytes of a JPEG and the short side in pixels, and returns JPEG bytes at
quality 70, or None where only the decoding counts.
"""

import io
from functools import lru_cache

import cv2
import numpy as np
from PIL import Image

SIDES = {"large": 384, "small": 256}
OPTIMIZE = {384: True, 256: False}  # as the recipes landmark-2021 and imagenet have it
QUALITY = [cv2.IMWRITE_JPEG_QUALITY, 70]
OPTIMISED = [*QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1]


def landmark(data, side):
    """The landmark notebook: imageio, INTER_LANCZOS4, TensorFlow's encoder."""
    import tensorflow as tf

    pixels = _imread(data)
    height, width = pixels.shape[:2]
    if (ratio := side / min(height, width)) < 1:
        size = (int(width * ratio), int(height * ratio))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_LANCZOS4)
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
    return tf.io.encode_jpeg(pixels, quality=70, optimize_size=True).numpy()


def _imread(data):
    """imageio's reading, or where it is not installed Pillow's, which imageio calls."""  # noqa: D403
    try:
        from imageio.v2 import imread
    except ImportError:
        return np.asarray(Image.open(io.BytesIO(data)))
    return np.asarray(imread(data))


def opencv_scripts(data, side):
    """Full decode, OpenCV's default bilinear step, plain encoding (cassava, ImageNet script)."""
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    height, width = pixels.shape[:2]
    if (ratio := side / min(height, width)) < 1:
        pixels = cv2.resize(pixels, (round(width * ratio), round(height * ratio)))
    return cv2.imencode(".jpg", pixels, QUALITY)[1].tobytes()


def opencv_area(data, side):
    """Scaled decode and OpenCV's own area step over fractions."""
    pixels = decode_scaled(data, side)
    height, width = pixels.shape[:2]
    if (ratio := side / min(height, width)) < 1:
        size = (round(width * ratio), round(height * ratio))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return cv2.imencode(".jpg", pixels, OPTIMISED)[1].tobytes()


def pillow_draft(data, side):
    """Pillow's scaled decode, antialiased Lanczos and encoder."""
    return _pillow(data, side, draft=True)


def pillow_full(data, side):
    """Pillow's full decode, antialiased Lanczos and encoder."""
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
    """libvips: scaled decode, Lanczos3, sampling 4:2:0, no cache; VIPS_CONCURRENCY is its cores."""
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
    """Pixels of the smallest decode by 1/2, 1/4 or 1/8 that is no smaller than the target."""
    short = min(Image.open(io.BytesIO(data)).size)
    flag = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4}
    scale = next((k for k in (4, 2) if short >= k * side), 0)
    return cv2.imdecode(
        np.frombuffer(data, np.uint8), flag.get(scale, cv2.IMREAD_COLOR)
    )


def reference(data, height, width):
    """Pixels of a full decode and Pillow's Lanczos: what PSNR is measured against."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))


def psnr(a, b):
    """Peak signal-to-noise ratio in dB of two pictures; not ours, so as to judge ours."""
    return cv2.PSNR(a, b)
