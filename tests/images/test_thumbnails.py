"""The thumbnails that are hashed, against Pillow and against integer arithmetic."""

import numpy as np
import pytest
from PIL import Image
from support.scenes import scene

from kaggle_tfr.images.thumbnails import (
    LARGE,
    MEDIUM,
    MIDDLE,
    ONE,
    PIXELS_OF_EIGHTH,
    make_thumbnails,
    weigh_by_lanczos,
    weigh_pixels,
)

LANCZOS = Image.Resampling.LANCZOS
LENGTHS = [1, 2, 3, 4, 5, 8, 9, 31, 64, 100, 255, 256, 257, 500, 511, 3000]


@pytest.mark.parametrize(
    ("width", "height"),
    [(500, 375), (375, 500), (256, 256), (1200, 300), (40, 30), (9, 8), (3, 1)],
)
def test_thumbnails_are_those_of_pillow(width, height):
    """Hardly a pixel differs, by one level, whichever side Pillow shrinks first."""
    image = scene(500, 500, seed=4).convert("L").resize((width, height))

    thumbnails = make_thumbnails(np.asarray(image))

    for thumbnail in (
        thumbnails.small,
        thumbnails.wide,
        thumbnails.high,
        thumbnails.medium,
        thumbnails.large,
    ):
        rows, columns = thumbnail.shape
        expected = np.asarray(image.resize((columns, rows), LANCZOS))
        difference = np.abs(thumbnail - expected.astype(int))
        assert difference.max() <= 1
        assert (difference > 0).mean() <= 0.02


@pytest.mark.parametrize("length", LENGTHS)
def test_sums_of_pixels_are_exact_in_float32(length):
    """Weights are whole numbers, and the largest sum is below 2**24."""
    weights = weigh_pixels(length, wavelet_side=256)

    eighths = [weights_of_eighth for _, weights_of_eighth in weights.eighths]
    for matrix in (weights.coarse, weights.means, *eighths):
        whole = matrix.astype(np.int64)
        assert (whole == matrix).all()
        assert (whole.sum(axis=0) == ONE).all()
        assert MIDDLE * np.abs(whole).sum(axis=0).max() < 1 << 24


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("length", LENGTHS)
def test_eighths_leave_out_only_pixels_without_weight(length, size):
    """Each pixel of a thumbnail has all its weights, and they are those of Lanczos."""
    weights = weigh_pixels(length, wavelet_side=256)

    columns = LARGE if size == 64 else MEDIUM
    rows = []
    for reach, weights_of_eighth in weights.eighths:
        whole = np.zeros((length, PIXELS_OF_EIGHTH))
        whole[reach] = weights_of_eighth
        rows += list(whole[:, columns].T)
    expected = weigh_by_lanczos(length, size)
    np.testing.assert_allclose(np.array(rows) / ONE, expected, atol=1.01 / ONE)


def test_weights_of_many_sizes_do_not_fill_the_memory():
    """The weights of the last 128 lengths are kept, 0.25 kB a pixel."""
    for length in range(300, 600):
        weigh_pixels(length, wavelet_side=256)

    assert weigh_pixels.cache_info().currsize <= 128
