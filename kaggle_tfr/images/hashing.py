"""Four perceptual hashes of a picture, 64 bits each, by which near-duplicates are recognised."""

from functools import partial

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
    # Without its mean the picture has other wavelets, but the same ones above their median.
    wavelet = partial(imagehash.whash, remove_max_haar_ll=exact)
    functions = imagehash.average_hash, imagehash.phash, imagehash.dhash, wavelet
    bits = np.concatenate([function(picture).hash.ravel() for function in functions])
    thumbnail = picture.convert("L").resize((32, 32), Image.Resampling.BOX)
    pixels, along = np.asarray(thumbnail, np.float64), np.linspace(-1, 1, 32)
    along /= np.sqrt((along**2).mean())
    # The three are orthogonal and of unit power, so what the best plane explains comes off.
    across, down = (pixels * along).mean(), (pixels * along[:, None]).mean()
    return np.packbits(bits), float(np.sqrt(max(0.0, pixels.var() - across**2 - down**2)))
