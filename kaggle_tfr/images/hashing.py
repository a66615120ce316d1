"""Four perceptual hashes of a picture, 64 bits each, by which near-duplicates are recognised."""

import imagehash
import numpy as np
from PIL import Image

HASHES = ("average", "perceptual", "difference", "wavelet")
FLAT = 4.0  # grey levels of 255: empty skies and blank pages, whose bits are noise, have less


def hash_picture(picture: Image.Image, *, exact: bool = False) -> tuple[np.ndarray, float]:
    """(uint8 (32,) average, perceptual, difference and wavelet hash of 64 bits each, texture).

    picture: of `check_image`, which moves a fraction of one bit of 256 against the whole picture;
    `exact`: as Pillow opens it, for imagehash's own bits, at a tenth of the speed.
    texture: grey levels of 255 by which a 32-pixel thumbnail departs from an even shade or ramp.
    Source: imagehash, `average_hash`, `phash`, `dhash`, `whash`.
    """
    average, perceptual = imagehash.average_hash(picture).hash, imagehash.phash(picture).hash
    wavelet = imagehash.whash(picture).hash if exact else _wavelet_hash(picture)
    difference = imagehash.dhash(picture).hash
    bits = np.concatenate([average, perceptual, difference, wavelet], axis=None)
    thumbnail = picture.convert("L").resize((32, 32), Image.Resampling.BOX)
    pixels, along = np.asarray(thumbnail, np.float64), np.linspace(-1, 1, 32)
    along /= np.sqrt((along**2).mean())
    # The three are orthogonal and of unit power, so what the best plane explains comes off.
    across, down = (pixels * along).mean(), (pixels * along[:, None]).mean()
    return np.packbits(bits), float(np.sqrt(max(0.0, pixels.var() - across**2 - down**2)))


def _wavelet_hash(picture: Image.Image) -> np.ndarray:
    """The bits, bool (8, 8), of `imagehash.whash`: with the one band of wavelets that it looks at.

    It takes the mean off all pixels before, which leaves the same bands above their median.
    """
    side = max(8, 1 << (min(picture.size).bit_length() - 1))
    band = np.asarray(picture.resize((side, side), Image.Resampling.LANCZOS)) / 255
    while len(band) > 8:  # Haar's low band, rows first as pywt does, so that it rounds alike
        band = np.sqrt(0.5) * band[::2] + np.sqrt(0.5) * band[1::2]
        band = np.sqrt(0.5) * band[:, ::2] + np.sqrt(0.5) * band[:, 1::2]
    return band > np.median(band)
