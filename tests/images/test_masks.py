"""Run-length codes: to masks and back, and what is wrong with a broken one."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kaggle_tfr.images.masks import (
    decode_mask,
    encode_mask,
    find_code_problem,
    sample_mask,
    transpose_code,
)

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=9)
MASKS = arrays(np.uint8, SHAPES, elements=st.integers(0, 1))


def decode_slowly(code, height, width):
    """The rule of Kaggle's evaluation pages, one pixel at a time."""
    mask = np.zeros((height, width), np.uint8)
    numbers = [int(number) for number in code.split()]
    for start, length in zip(numbers[::2], numbers[1::2], strict=True):
        for pixel in range(start - 1, start - 1 + length):
            mask[pixel % height, pixel // height] = 1
    return mask


@given(MASKS)
def test_a_mask_survives_its_code(mask):
    """Encoded and decoded, by us or one pixel at a time, a mask is what it was."""
    code = encode_mask(mask)
    assert find_code_problem(code, *mask.shape) == ""
    assert np.array_equal(decode_mask(code, *mask.shape), mask)
    assert np.array_equal(decode_slowly(code, *mask.shape), mask)


@given(MASKS)
def test_codes_by_rows_become_codes_by_columns(mask):
    """A code by rows has the runs of the pixels in the order of NumPy's ravel."""
    border = np.flatnonzero(np.diff(mask.ravel(), prepend=0, append=0))
    runs = zip(border[::2] + 1, border[1::2] - border[::2], strict=True)
    by_rows = " ".join(f"{start} {length}" for start, length in runs)

    assert transpose_code(by_rows, *mask.shape) == encode_mask(mask)


@given(MASKS, st.tuples(st.integers(1, 20), st.integers(1, 20)))
def test_a_mask_is_sampled_at_the_centres_of_its_pixels(mask, size):
    """Those of a window. The size may be tensors, as that of a decoded image."""
    top = len(mask) // 3
    left = mask.shape[1] // 2
    height, width = mask[top:, left:].shape
    # In whole numbers, because a centre may be exactly between two pixels.
    rows = top + (2 * np.arange(size[0]) + 1) * height // (2 * size[0])
    columns = left + (2 * np.arange(size[1]) + 1) * width // (2 * size[1])

    code = encode_mask(mask)
    window = [top, left, height, width]
    sampled = sample_mask(code, len(mask), window, tf.unstack(tf.constant(size)))

    assert np.array_equal(sampled, mask[rows][:, columns])


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("", ""),
        ("1 4", ""),
        ("1 2 3 2", ""),  # runs may meet: some tools write long runs in pieces
        ("1 2 3", "run-length code is odd in length: 3 numbers"),
        ("4 2", "run-length code leaves the image: pixel 5 of 4"),
        # The end of this run is beyond 64 bits with a sign.
        (f"{2**63 - 1} 2", f"run-length code leaves the image: pixel {2**63} of 4"),
        ("0 2", "run-length code counts from 1, but contains 0"),
        ("3 1 1 1", "run-length code has runs that overlap or go back"),
        ("1 x", "run-length code contains something else than whole numbers"),
        (
            "1 99999999999999999999",
            "run-length code contains something else than whole numbers",
        ),
    ],
)
def test_each_fault_of_a_code_has_its_words(code, problem):
    """Decoding such a code raises an error with code, size and the likely cause."""
    assert find_code_problem(code, 2, 2) == problem
    if problem:
        with pytest.raises(
            ValueError, match=f"'{code}' does not fit 2 × 2 pixels: .* height and"
        ):
            decode_mask(code, 2, 2)
    else:
        assert np.array_equal(decode_mask(code, 2, 2), decode_slowly(code, 2, 2))
