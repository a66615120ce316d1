"""Kaggle's run-length codes of masks: "start length start length …".

Pixels are counted from 1 down each column, and runs are in ascending order.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf
else:
    from kaggle_tfr.session import tf

EMPTY_CODES = ("", "nan", "NaN", "<NA>", "-1")  # how CSVs write that there is no mask


def decode_mask(code: str, height: int, width: int) -> np.ndarray:
    """Return the mask of Kaggle's run-length code, uint8 (height, width) of 0 and 1.

    code: "start length start length …", from 1, down each column.
    Raises: ValueError: the code does not fit this size.

    >>> decode_mask("2 3", 3, 2)
    array([[0, 1],
           [1, 0],
           [1, 0]], dtype=uint8)
    """
    if problem := find_code_problem(code, height, width):
        raise ValueError(
            f"the run-length code '{code[:40]}' does not fit {height} × {width} "
            f"pixels: {problem}. Are height and width swapped?"
        )
    borders = _split_code(code).ravel()  # start, end, start, end, …
    # Lengths of the stretches outside, inside, outside, … the mask.
    lengths = np.diff(borders, prepend=0, append=height * width)
    is_inside = np.arange(len(lengths), dtype=np.uint8) % 2
    # Codes count pixels down each column: in memory a column is a row here.
    pixels = np.repeat(is_inside, lengths).reshape(width, height)
    return pixels.T.copy()


def encode_mask(mask: np.ndarray) -> str:
    """Return Kaggle's run-length code of a mask (height, width).

    Every pixel but 0 belongs to the mask. An empty mask is "".

    >>> encode_mask(np.array([[0, 1], [1, 0], [1, 0]]))
    '2 3'
    """
    is_inside = mask.T.ravel() != 0  # down each column
    # `diff` of booleans marks each change: starts and ends of runs in turn.
    is_border = np.diff(is_inside, prepend=False, append=False)
    return _format_code(np.flatnonzero(is_border).reshape(-1, 2))


def transpose_code(code: str, height: int, width: int) -> str:
    """Return Kaggle's code, down the columns, of a mask whose code is along the rows.

    height, width: of the mask. Raises: ValueError: the code does not fit this size.

    >>> transpose_code("2 3", 3, 2)
    '2 1 4 2'
    """
    # By rows, a mask has the code that its transpose has by columns.
    return encode_mask(decode_mask(code, width, height).T)


def join_codes(codes: Sequence[str]) -> str:
    """Return one code for all the masks, or the first broken code as it is.

    codes: at least one, of masks of the same image, which may overlap. `check_codes`
    finds the problem of a broken code later, when the size of the image is known.
    """
    for code in codes:
        # A single code is returned unchecked. For several, the size of the image is not
        # known here, so a huge one is assumed.
        if len(codes) == 1 or find_code_problem(code, 1 << 31, 1 << 31):
            return code
    runs = _split_code(" ".join(codes))
    # Starts and ends are sorted separately. Where a start is behind the end before it,
    # as many runs have ended as have started: between them is a gap in all masks.
    starts, ends = np.sort(runs, axis=0).T
    is_gap = starts[1:] > ends[:-1]
    first_starts = starts[np.append(True, is_gap)]
    last_ends = ends[np.append(is_gap, True)]
    return _format_code(np.column_stack([first_starts, last_ends]))


def find_code_problem(code: str, height: int, width: int) -> str:
    """Return what is wrong with a code for an image of this size, or "".

    >>> find_code_problem("5 3", 3, 2)
    'run-length code leaves the image: pixel 7 of 6'
    """
    try:
        numbers = np.array(code.split(), np.int64)
    except (ValueError, OverflowError):
        return "run-length code contains something else than whole numbers"
    if len(numbers) % 2:
        return f"run-length code is odd in length: {len(numbers)} numbers"
    if (numbers < 1).any():
        return f"run-length code counts from 1, but contains {numbers.min()}"
    # Unsigned, because the sum of two numbers below 2**63 may need one bit more.
    runs = numbers.astype(np.uint64).reshape(-1, 2)
    starts, lengths = runs.T
    last = starts + lengths - 1
    n_pixels = height * width
    if last.max(initial=0) > n_pixels:
        return f"run-length code leaves the image: pixel {last.max()} of {n_pixels}"
    if (starts[1:] <= last[:-1]).any():
        return "run-length code has runs that overlap or go back"
    return ""


def _split_code(code: str) -> np.ndarray:
    """Return the first pixel of each run, from 0, and the pixel after its last.

    Int64 (runs, 2). code: valid, see `find_code_problem`.
    """
    numbers = np.array(code.split(), np.int64)
    runs = numbers.reshape(-1, 2)  # start from 1, length
    return runs.cumsum(axis=1) - 1


def _format_code(borders: np.ndarray) -> str:
    """Return the code of runs: the inverse of `_split_code`.

    borders: int (runs, 2), the first pixel of each run, from 0, and the pixel after
    its last.
    """
    # (start, end) to (start + 1, end - start): codes count from 1, and have lengths.
    runs = np.diff(borders, axis=1, prepend=-1)
    numbers = runs.ravel().tolist()
    return " ".join(map(str, numbers))


def sample_mask(
    code: "tf.Tensor",
    height: "tf.Tensor",
    window: "tf.Tensor",
    size: "Sequence[int | tf.Tensor]",
) -> "tf.Tensor":
    """Return a window of a mask resized to `size`, uint8 of 0 and 1, by TensorFlow.

    The mask as a whole is never made: the pixels of the result are looked up in the
    runs. Nearest pixel, centres aligned.
    code: string; "" for no mask. height: of the whole mask. window: int (4,), its top,
    left, height and width. size: height and width of the result.
    """
    window = tf.cast(window, tf.int64)
    top, left, window_height, window_width = tf.unstack(window)
    rows = _find_sources(top, window_height, size[0])
    columns = _find_sources(left, window_width, size[1])
    height = tf.cast(height, tf.int64)
    # The position of each pixel of the result, (height, width), down the columns.
    pixels = columns * height + rows[:, None]
    # Inside of a run, one more run has started than ended: the number is odd.
    n_borders = tf.searchsorted(
        _find_borders(code),
        tf.reshape(pixels, [-1]),
        side="right",
    )
    is_inside = tf.cast(n_borders % 2, tf.uint8)
    return tf.reshape(is_inside, size)


def _find_borders(code: "tf.Tensor") -> "tf.Tensor":
    """Return the start and the end of each run in turn, int64 (2 * runs,).

    An end is the pixel after the last. Pixels count from 0, in a code from 1.
    """
    words = tf.strings.split(code)
    numbers = tf.strings.to_number(words, tf.int64)
    runs = tf.reshape(numbers, [-1, 2])  # start, length
    borders = tf.cumsum(runs, axis=1) - 1  # start, start + length, from 0
    return tf.reshape(borders, [-1])


def _find_sources(
    start: "tf.Tensor", length: "tf.Tensor", count: "int | tf.Tensor"
) -> "tf.Tensor":
    """Return the pixel under the centre of each of `count` equal steps, int64 (count,).

    The steps divide the pixels from `start` to `start + length`.
    """
    n_halves = 2 * tf.cast(count, tf.int64)
    centres = tf.range(1, n_halves, 2)  # in halves of a step
    return start + centres * length // n_halves
