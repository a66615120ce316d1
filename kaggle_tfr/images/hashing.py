"""Four perceptual hashes of an image, 64 bits each, used to find near-duplicates."""

import imagehash
import numpy as np
from PIL import Image
from scipy.fftpack import dct

from kaggle_tfr.images.orientation import ORIENTATIONS, apply_orientation

HASHES = ("average", "perceptual", "difference", "wavelet")
# More bits, which the hashes of the mirrored or rotated image need: the perceptual hash
# of the image mirrored along x, along y and along both; and whether the image darkens
# to the right, brightens downwards and darkens downwards.
ROTATION_BITS = (
    "perceptual_x",
    "perceptual_y",
    "perceptual_xy",
    "darker",
    "brighter_down",
    "darker_down",
)
FLAT = 4.0  # grey levels of 255; empty skies and blank pages have less texture

# The signs of 8 × 8 cosines in the image and its mirror images along x, y and both:
# odd frequencies change theirs.
_SIGNS_X = np.tile([1.0, -1.0], 4)
_SIGNS_Y = _SIGNS_X[:, None]
MIRROR_SIGNS = np.stack(
    np.broadcast_arrays(1.0, _SIGNS_X, _SIGNS_Y, _SIGNS_X * _SIGNS_Y)
)


def hash_image(luma: Image.Image) -> tuple[np.ndarray, float, np.ndarray]:
    """Return the `HASHES`, uint8 (32,); the texture; the `ROTATION_BITS`, uint8 (48,).

    luma: of `check_image`, reduced. The hashes of the whole image would differ from
    these in less than one bit of 256 on average.
    Source: imagehash, `average_hash`, `phash`, `dhash`, `whash`.
    """
    perceptual, *mirrored = _hash_cosines(luma)
    brighter, *other_differences = _hash_differences(luma)
    bits = [
        imagehash.average_hash(luma).hash,
        perceptual,
        brighter,
        _hash_wavelets(luma),
        *mirrored,
        *other_differences,
    ]
    packed = np.packbits(bits)
    texture = _measure_texture(luma)
    return packed[:32], texture, packed[32:]


def _shrink(luma: Image.Image, width: int, height: int) -> np.ndarray:
    small = luma.resize((width, height), Image.Resampling.LANCZOS)
    return np.asarray(small)


def _hash_cosines(luma: Image.Image) -> np.ndarray:
    """Return `imagehash.phash` of the image and its three mirror images, (4, 8, 8)."""
    small = _shrink(luma, 32, 32)
    by_column = dct(small, axis=0)
    cosines = dct(by_column, axis=1)
    mirrored = cosines[:8, :8] * MIRROR_SIGNS
    medians = np.median(mirrored, axis=(1, 2), keepdims=True)
    return mirrored > medians


def _hash_differences(luma: Image.Image) -> list[np.ndarray]:
    """Return `imagehash.dhash` and the three last `ROTATION_BITS`, bool (8, 8) each."""
    across = _shrink(luma, 9, 8).astype(int)
    down = _shrink(luma, 8, 9).astype(int)
    to_right = np.diff(across, axis=1)
    downwards = np.diff(down, axis=0)
    return [to_right > 0, to_right < 0, downwards > 0, downwards < 0]


def _hash_wavelets(luma: Image.Image) -> np.ndarray:
    """Return `imagehash.whash`, bool (8, 8).

    Only the band of wavelets that decides is computed. imagehash removes the mean of
    all pixels first, which leaves the same places above the median.
    """
    short_side = min(luma.size)
    exponent = short_side.bit_length() - 1
    side = max(8, 1 << exponent)
    band = _shrink(luma, side, side) / 255
    while len(band) > 8:
        band = _low_band(band)
    return band > np.median(band)


def _low_band(band: np.ndarray) -> np.ndarray:
    """Return Haar's low band, rows first as in pywt, so that it is rounded alike."""
    weight = np.sqrt(0.5)
    even_rows = weight * band[::2]
    rows = even_rows + weight * band[1::2]
    even_columns = weight * rows[:, ::2]
    return even_columns + weight * rows[:, 1::2]


def _measure_texture(luma: Image.Image) -> float:
    """Return the standard deviation of a thumbnail from the best plane, in grey levels.

    The hashes of images with hardly any texture are noise.
    """
    thumbnail = luma.resize((32, 32), Image.Resampling.BOX)
    pixels = np.asarray(thumbnail, np.float64)
    ramp = np.linspace(-1, 1, 32)
    ramp /= ramp.std()
    slope_x = (pixels * ramp).mean()
    slope_y = (pixels * ramp[:, None]).mean()
    # The ramps and the mean are orthogonal, of unit power: their variances add up.
    variance = pixels.var() - slope_x**2 - slope_y**2
    return float(np.sqrt(max(0.0, variance)))


def _find_bits(orientation: int) -> np.ndarray:
    """Return which 256 of the 640 bits are the hashes in an orientation."""
    change = ORIENTATIONS[orientation]
    positions = np.arange(640).reshape(10, 8, 8)
    cosines = positions[[1, 4, 5, 6]]  # plain, mirrored along x, y, both
    # Brighter and darker to the right, brighter and darker downwards.
    differences = positions[[2, 7, 8, 9]]
    if change.transposes:
        cosines = cosines[[0, 2, 1, 3]].swapaxes(1, 2)
        differences = differences[2:]

    mirror = change.reverses_columns + 2 * change.reverses_rows
    difference = differences[int(change.reverses_columns)]
    bits = [
        apply_orientation(positions[0], orientation),  # average
        cosines[mirror],
        apply_orientation(difference, orientation),
        apply_orientation(positions[3], orientation),  # wavelet
    ]
    return np.reshape(bits, 256)


# (8, 256): for each orientation, the positions of its hashes among the 640 bits of
# `HASHES` and `ROTATION_BITS`.
BITS_BY_ORIENTATION = np.stack([_find_bits(number) for number in ORIENTATIONS])
