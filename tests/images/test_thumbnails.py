"""The thumbnails that are hashed, against Pillow and against integer arithmetic."""

import numpy as np
import pytest
from PIL import Image
from support.scenes import scene
from threadpoolctl import threadpool_limits

from kaggle_tfr.images.hashing import hash_image
from kaggle_tfr.images.thumbnails import (
    BANDS,
    LARGE,
    MIDDLE,
    ONE,
    make_thumbnails,
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
    """The largest sum is below 2**24, and weights outside a band are zero."""
    weights = weigh_pixels(length, wavelet_side=256)

    whole = weights.matrix.astype(np.int64)
    assert (whole == weights.matrix).all()
    assert (whole.sum(axis=1) == ONE).all()
    assert MIDDLE * np.abs(whole).sum(axis=1).max() < 1 << 24
    rows_of_bands = np.concatenate([np.arange(band.start, band.stop) for band in BANDS])
    assert rows_of_bands.tolist() == list(range(LARGE.stop))
    for band, (reach, weights_of_band) in zip(BANDS, weights.bands, strict=True):
        outside = np.delete(whole[band], np.arange(length)[reach], axis=1)
        assert not outside.any()
        assert (whole[band, reach] == weights_of_band.T).all()


def test_hashes_do_not_depend_on_the_number_of_threads():
    """NumPy's library of matrices adds in another order with two threads."""
    lumas = [np.asarray(scene(700, 900, seed=seed).convert("L")) for seed in range(3)]

    results = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            results.append([hash_image(luma) for luma in lumas])

    for (bits, texture), (other_bits, other_texture) in zip(*results, strict=True):
        assert (bits == other_bits).all()
        assert texture == other_texture


def test_weights_of_many_sizes_do_not_fill_the_memory():
    """The weights of the last 128 lengths are kept, 0.7 kB a pixel."""
    for length in range(300, 600):
        weigh_pixels(length, wavelet_side=256)

    assert weigh_pixels.cache_info().currsize <= 128
