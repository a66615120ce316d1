"""Four perceptual hashes of one picture, 64 bits each: what near-duplicates are recognised by."""

import io
from functools import partial

import imagehash
import numpy as np
from PIL import Image, ImageOps

HASHES = ("average", "perceptual", "difference", "wavelet")
WORK_SIDE = 256  # pixels: below it the wavelet hash moves away from that of the whole picture
THUMBNAIL_SIDE = 32  # pixels: what the perceptual hash looks at
FLAT = 4.0  # grey levels of 255: see `texture`


def hash_bits(data, exact=False):
    """uint8 (32,): average, perceptual, difference and wavelet hash, 64 bits each.

    Bits run row by row, the most significant first, as imagehash prints them. The picture is
    decoded once: grey, upright, and scaled down to no less than 256 pixels a side, which moves a
    fraction of one bit of 256. `exact` takes the file as it is stored, whole and not turned, and
    gives imagehash's own bits, at a tenth of the speed.

    Raises: OSError for data that is no whole image, as Pillow says it.
    Source: imagehash, `average_hash`, `phash`, `dhash`, `whash`.
    """
    return hash_and_texture(data, exact)[0]


def hash_and_texture(data, exact=False):
    """(`hash_bits`, `texture`) of one decode."""
    with Image.open(io.BytesIO(data)) as image:
        if not exact:
            image.draft("L", (WORK_SIDE, WORK_SIDE))  # JPEG only: scaled inside the decoder
        image.load()
        grey = image if exact else _small_and_grey(image)
    # Without its mean the picture has other wavelets, but the same ones above their median.
    wavelet = partial(imagehash.whash, remove_max_haar_ll=exact)
    functions = imagehash.average_hash, imagehash.phash, imagehash.dhash, wavelet
    bits = np.concatenate([function(grey).hash.ravel() for function in functions])
    return np.packbits(bits), texture(grey)


def hex_string(bits):
    """64 digits for 32 bytes: 16 for each hash, in the order of `HASHES`.

    >>> hex_string(np.arange(32, dtype=np.uint8))[:20]
    '0x000102030405060708'
    """
    return "0x" + np.asarray(bits, np.uint8).tobytes().hex()


def texture(grey):
    """Grey levels (of 255) by which a 32-pixel thumbnail departs from an even shade or ramp.

    Below `FLAT` the bits of a hash are noise: an empty sky or a blank page would be a twin of every
    other one.
    """
    small = grey.convert("L").resize((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BOX)
    pixels = np.asarray(small, np.float64)
    along = np.linspace(-1, 1, THUMBNAIL_SIDE)
    along /= np.sqrt((along**2).mean())
    # The three are orthogonal and of unit power, so what the best plane explains comes off.
    across, down = (pixels * along).mean(), (pixels * along[:, None]).mean()
    return float(np.sqrt(max(0.0, pixels.var() - across**2 - down**2)))


def _small_and_grey(image):
    shown = ImageOps.exif_transpose(image)
    factor = min(shown.size) // WORK_SIDE
    # In grey, so that a picture with a palette is not reduced by its index numbers.
    grey = _eight_bits(shown).convert("L")
    return grey.reduce(factor) if factor > 1 else grey


def _eight_bits(image):
    """The image with 0–255 a channel; Pillow would clip 16-bit greys to white."""
    if not image.mode.startswith(("I", "F")):
        return image
    pixels = np.asarray(image, np.float64)
    return Image.fromarray((pixels / (256 if pixels.max() > 255 else 1)).clip(0, 255).astype("u1"))
