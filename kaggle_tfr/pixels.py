"""From the bytes of a picture to pixels, and from pixels to a record's bytes.

Between these functions pixels are uint8 arrays (height, width, 3) in OpenCV's order: blue, green,
red. OpenCV reads what it reads fastest, plain JPEG; Pillow reads everything else and is the judge.
"""

import ctypes
import io
from functools import lru_cache
from math import ceil

import cv2
import numpy as np
from PIL import Image, ImageCms

LARGEST_KEPT_BYTES = 32 << 20  # 32 MiB, the most that glibc takes as M_MMAP_THRESHOLD
KEPT_BYTES = 64 << 20  # 64 MiB a thread at most; nothing is kept that was not in use at once


def keep_buffers():
    """Whether the C library now keeps freed picture buffers for the next picture.

    glibc hands a large buffer back to the kernel when a picture is done, and the next picture
    waits for fresh, zeroed pages: a fifth of its time. Elsewhere than on glibc nothing happens.

    Source: mallopt(3).
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl and macOS; Windows
        return False
    kept = mallopt(mmap_threshold, LARGEST_KEPT_BYTES)
    return bool(mallopt(trim_threshold, KEPT_BYTES) and kept)


keep_buffers()
# Pictures are what runs in parallel here; OpenCV's own threads would only fight over the cores.
cv2.setNumThreads(1)
# Pillow's limit for "decompression bombs" makes way for ours, which is a setting.
Image.MAX_IMAGE_PIXELS = None

# Measured on photographs, PSNR against Pillow's Lanczos; tests/test_images.py draws these borders.
CUBIC_LIMIT = 1.3  # up to here one cubic step is nearer to Lanczos than an area step
LINEAR_LIMIT = 1.5  # up to here one bilinear step is within half a dB at quality 70, and fastest
WHOLE_LIMIT = 2.5  # up to here a mean over whole blocks is nearer than one over fractions
SUBSAMPLING = {
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
}


class RefusedImage(ValueError):  # noqa: N818 - it names the picture, the run goes on
    """A picture that cannot become a record; its text is the short reason."""


def decode_plain_jpeg(data, scale, *, colour=True):
    """Pixels of a JPEG at 1/scale of its size (scale 1, 2, 4 or 8) as stored, by OpenCV, or None.

    The scaling happens inside the decoder's cosine transform: nearly lossless, and faster.
    """
    kind = "COLOR" if colour else "GRAYSCALE"
    flag = getattr(cv2, f"IMREAD_{kind}" if scale == 1 else f"IMREAD_REDUCED_{kind}_{scale}")
    try:
        # OpenCV versions disagree about which files they turn, so we do the turning.
        return cv2.imdecode(np.frombuffer(data, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None


def decode_any(data, at_least, profile=b""):
    """(pixels, extent) of the first frame as stored, by Pillow; a JPEG may be scaled down.

    at_least: (height, width) in pixels to scale down to at most, or None for full size.
    extent: (rows, columns), maybe with a fraction, that the picture fills of the pixels.

    Raises:
        RefusedImage: "truncated", "damaged: …" or "unsupported kind: …".
    """
    try:
        image = Image.open(io.BytesIO(data))
        drafted = image.draft(None, at_least[::-1]) if at_least else None
        image.load()
        pixels = cv2.cvtColor(np.asarray(_to_rgb(image, profile)), cv2.COLOR_RGB2BGR)
        return pixels, drafted[1][:1:-1] if drafted else pixels.shape[:2]
    except (RefusedImage, MemoryError):
        raise
    except Exception as error:  # damaged files fail in as many ways as Pillow has plugins
        raise RefusedImage(reason_of(error, data)) from error


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


def turn(pixels, orientation):
    """The pixels the way up that an EXIF orientation (1–8) asks for."""
    if orientation >= 5:
        pixels = cv2.transpose(pixels)
    # cv2.flip: 1 swaps left and right, 0 top and bottom, -1 both.
    flip = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}.get(orientation)
    return pixels if flip is None else cv2.flip(pixels, flip)


def resize(pixels, height, width, resample="area", extent=None):
    """The pixels at (height, width), antialiased.

    resample: "lanczos" is Pillow's; "area" is the fastest that does not alias. It goes from a
        remaining ratio of 1 to 1.3 in one cubic step, to 1.5 in one bilinear step, to 2.5 through
        a cubic step *up* to the next whole multiple of the target and a mean over whole blocks
        (thrice as fast as OpenCV's area step over fractions, and up to 3 dB nearer to Lanczos).
    extent: (rows, columns) that the picture fills, where a scaled decode has rounded them up.
    """
    rows, columns = extent or pixels.shape[:2]
    if (rows, columns) == (height, width):
        return pixels
    if resample == "lanczos":
        image, box = Image.fromarray(pixels), (0, 0, columns, rows)
        return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS, box))
    ratio = max(rows / height, columns / width)
    if ratio <= LINEAR_LIMIT:
        step = cv2.INTER_CUBIC if ratio <= CUBIC_LIMIT else cv2.INTER_LINEAR
        return _step(pixels, (height / rows, width / columns), step)[:height, :width]
    if ratio <= WHOLE_LIMIT:
        multiple = ceil(rows / height) * height, ceil(columns / width) * width
        pixels = _step(pixels, (multiple[0] / rows, multiple[1] / columns), cv2.INTER_CUBIC)
        pixels = pixels[: multiple[0], : multiple[1]]
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def _step(pixels, factors, step):
    """The pixels scaled by exactly these factors, whatever whole size comes of it."""
    return cv2.resize(pixels, None, fx=factors[1], fy=factors[0], interpolation=step)


def encode(pixels, kind="JPEG", quality=90, subsampling="4:2:0", optimize=True):
    """The bytes of a baseline JPEG, its Huffman tables made for it or the usual ones; or a PNG."""
    if kind == "PNG":
        return cv2.imencode(".png", pixels)[1].tobytes()
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_OPTIMIZE, int(optimize)]
    options += [cv2.IMWRITE_JPEG_PROGRESSIVE, 0]
    options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SUBSAMPLING[subsampling]]
    return cv2.imencode(".jpg", pixels, options)[1].tobytes()


def psnr(a, b):
    """Peak signal-to-noise ratio in dB of two uint8 arrays of one shape; inf when equal."""
    error = np.mean((np.asarray(a, np.float32) - np.asarray(b, np.float32)) ** 2, dtype=np.float64)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))
