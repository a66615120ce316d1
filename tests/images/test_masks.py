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
    join_codes,
    sample_mask,
    transpose_code,
)

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=9)
MASKS = arrays(np.uint8, SHAPES, elements=st.integers(0, 1))


def list_pixels(code):
    """Return the pixels of a code by the rule of Kaggle's evaluation pages."""
    numbers = [int(number) for number in code.split()]
    runs = zip(numbers[::2], numbers[1::2], strict=True)
    return [pixel for start, length in runs for pixel in range(start, start + length)]


@given(MASKS)
def test_a_mask_survives_its_code(mask):
    """Its pixels are counted from 1, down each column."""
    code = encode_mask(mask)
    assert list_pixels(code) == [*np.flatnonzero(mask.ravel(order="F")) + 1]
    assert np.array_equal(decode_mask(code, *mask.shape), mask)


@given(MASKS)
def test_codes_by_rows_become_codes_by_columns(mask):
    """A code by rows is that of the transposed mask by columns."""
    by_rows = encode_mask(mask.T)
    assert transpose_code(by_rows, *mask.shape) == encode_mask(mask)


def test_runs_may_meet():
    """Some tools write long runs in pieces. The code of several masks joins them."""
    assert decode_mask("1 2 3 2", 2, 2).all()
    assert join_codes(["3 2", "1 2"]) == "1 4"


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
        ("1 2 3", "is odd in length: 3 numbers"),
        ("4 2", "leaves the image: pixel 5 of 4"),
        # The end of this run is beyond 64 bits with a sign.
        (f"{2**63 - 1} 2", f"leaves the image: pixel {2**63} of 4"),
        ("0 2", "counts from 1, but contains 0"),
        ("3 1 1 1", "has runs that overlap or go back"),
        ("1 2 2 1", "has runs that overlap or go back"),
        ("1 x", "contains something else than whole numbers"),
        ("1 99999999999999999999", "contains something else than whole numbers"),
    ],
)
def test_each_fault_of_a_code_has_its_words(code, problem):
    """Decoding such a code raises an error with code, size and the likely cause."""
    problem = f"run-length code {problem}"
    assert find_code_problem(code, 2, 2) == problem
    with pytest.raises(ValueError, match=f"'{code}' .* 2 × 2 pixels: {problem}"):
        decode_mask(code, 2, 2)
