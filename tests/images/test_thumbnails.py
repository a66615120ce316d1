"""The thumbnails that are hashed, against Pillow and against integer arithmetic."""

import numpy as np
import pytest
from PIL import Image
from support.scenes import scene

from kaggle_tfr.images.thumbnails import make_thumbnails

LANCZOS = Image.Resampling.LANCZOS


@pytest.mark.parametrize(
    ("width", "height"),
    [(500, 375), (375, 500), (256, 256), (3000, 31), (40, 30), (9, 8), (3, 1)],
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
