import numpy as np
import pytest
from PIL import Image, ImageOps

from kaggle_tfr.images.orientation import (
    CLOCKWISE_TURNS,
    INVERSE,
    ORIENTATIONS,
    apply_orientation,
    compose,
)

PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3)
PAIRS = [(first, second) for first in ORIENTATIONS for second in ORIENTATIONS]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_applying_an_orientation_does_what_pillow_does(orientation):
    """Pillow's exif_transpose changes such an image in the same way."""
    image = Image.fromarray(PIXELS)
    image.getexif()[0x0112] = orientation

    upright = apply_orientation(PIXELS, orientation)

    assert np.array_equal(upright, np.asarray(ImageOps.exif_transpose(image)))
    assert np.array_equal(apply_orientation(upright, INVERSE[orientation]), PIXELS)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_product_does_the_same_as_its_factors(first, second):
    """Applying two orientations one after the other equals applying their product."""
    in_two_steps = apply_orientation(apply_orientation(PIXELS, first), second)

    assert np.array_equal(
        apply_orientation(PIXELS, compose(first, second)), in_two_steps
    )


def test_clockwise_turns_are_quarter_turns():
    """The k-th of them is k quarter turns to the right."""
    for quarters, orientation in enumerate(CLOCKWISE_TURNS):
        expected = np.rot90(PIXELS, -quarters)
        assert np.array_equal(apply_orientation(PIXELS, orientation), expected)
        name = ORIENTATIONS[orientation].name
        assert ("clockwise" in name) == (quarters % 2 == 1)
