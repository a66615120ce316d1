"""Four perceptual hashes of a picture, 64 bits each, by which near-duplicates are recognised."""

import imagehash
import numpy as np
from PIL import Image
from scipy.fftpack import dct

from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation

HASHES = ("average", "perceptual", "difference", "wavelet")
# What the hashes of a mirrored or turned picture need besides: the perceptual one's bits of the
# picture mirrored along x, y and both, and whether it darkens to the right, or brightens and
# darkens downwards.
ROTATION_BITS = (
    "perceptual_x",
    "perceptual_y",
    "perceptual_xy",
    "darker",
    "brighter_down",
    "darker_down",
)
_ODD = np.tile([1.0, -1.0], (8, 4))
SIGNS = np.stack(
    [_ODD**2, _ODD, _ODD.T, _ODD * _ODD.T]
)  # of cosines: plain, along x, y, both
FLAT = 4.0  # grey levels of 255: empty skies and blank pages, whose bits are noise, have less


def hash_image(picture: Image.Image) -> tuple[np.ndarray, float, np.ndarray]:
    """(uint8 (32,) hashes of 64 bits each as in `HASHES`, texture, uint8 (48,) as in `ROTATION_BITS`).

    picture: of `check_image`, which moves a fraction of one bit of 256 against the whole picture.
    texture: grey levels of 255 by which a 32-pixel thumbnail departs from an even shade or ramp.
    Source: imagehash, `average_hash`, `phash`, `dhash`, `whash`.
    """
    average = imagehash.average_hash(picture).hash
    wavelet = _wavelet_hash(picture)
    grey, lanczos = picture.convert("L"), Image.Resampling.LANCZOS
    cosines = dct(dct(np.asarray(grey.resize((32, 32), lanczos)), axis=0), axis=1)[
        :8, :8
    ]
    # A mirror image changes the sign of odd frequencies, and so the median too.
    cosines = cosines * SIGNS
    middle = np.sort(cosines.reshape(4, 64))[:, 31:33].mean(axis=1)
    perceptual, *mirrored = cosines > middle[:, None, None]
    across, down = (np.asarray(grey.resize(size, lanczos)) for size in ((9, 8), (8, 9)))
    mirrored += [
        across[:, 1:] < across[:, :-1],
        down[1:] > down[:-1],
        down[1:] < down[:-1],
    ]
    bits = average, perceptual, across[:, 1:] > across[:, :-1], wavelet
    pixels = np.asarray(grey.resize((32, 32), Image.Resampling.BOX), np.float64)
    along = np.linspace(-1, 1, 32)
    along /= np.sqrt((along**2).mean())
    # The three are orthogonal and of unit power, so what the best plane explains comes off.
    x, y = (pixels * along).mean(), (pixels * along[:, None]).mean()
    texture = float(np.sqrt(max(0.0, pixels.var() - x**2 - y**2)))
    return np.packbits(bits), texture, np.packbits(mirrored)


def _list_turns() -> np.ndarray:
    words, turns = np.arange(640).reshape(10, 8, 8), []
    for orientation, change in ORIENTATIONS.items():
        turned, x, y = (
            change.transposes,
            change.reverses_columns,
            change.reverses_rows,
        )
        cosines = words[(1, 4, 5, 6)[(y + 2 * x) if turned else (x + 2 * y)]]
        steps = words[(2, 7, 8, 9)[2 * turned + x]]
        average, steps, wavelet = (
            apply_orientation(one, orientation) for one in (words[0], steps, words[3])
        )
        turns.append([average, cosines.T if turned else cosines, steps, wavelet])
    return np.reshape(turns, (8, 256))


# (8, 256): where, among the 640 bits of `HASHES` and `ROTATION_BITS`, stand those of the hashes of the
# picture turned by each of EXIF's orientations, from 1.
BITS_BY_ORIENTATION = _list_turns()


def _wavelet_hash(picture: Image.Image) -> np.ndarray:
    """The bits, bool (8, 8), of `imagehash.whash`: with the one band of wavelets that it looks at.

    It takes the mean off all pixels before, which leaves the same bands above their median.
    """
    side = max(8, 1 << (min(picture.size).bit_length() - 1))
    band = np.asarray(picture.resize((side, side), Image.Resampling.LANCZOS)) / 255
    while (
        len(band) > 8
    ):  # Haar's low band, rows first as pywt does, so that it rounds alike
        band = np.sqrt(0.5) * band[::2] + np.sqrt(0.5) * band[1::2]
        band = np.sqrt(0.5) * band[:, ::2] + np.sqrt(0.5) * band[:, 1::2]
    return band > np.median(band)
