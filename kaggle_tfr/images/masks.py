"""Kaggle's run-length codes of masks: "start length …", from 1, down each column, ascending."""

import numpy as np

NO_MASK = ("", "nan", "NaN", "<NA>", "-1")


def decode_mask(code: str, height: int, width: int) -> np.ndarray:
    """uint8 mask (height, width) of 0 and 1. Raises: ValueError, the code does not fit the size.

    >>> decode_mask("2 3", 3, 2)
    array([[0, 1],
           [1, 0],
           [1, 0]], dtype=uint8)
    """
    if problem := find_code_problem(code, height, width):
        what = f"the run-length code '{code[:40]}' does not fit {height} × {width} pixels"
        mend = "Is it of another picture, or are height and width swapped?"
        raise ValueError(f"{what}: {problem}. {mend}")
    starts, lengths = np.array(code.split(), np.int64).reshape(-1, 2).T
    borders = np.stack([starts - 1, starts - 1 + lengths], axis=1).ravel()
    counts = np.diff(borders, prepend=0, append=height * width)  # outside, inside, outside, …
    pixels = np.repeat(np.resize(np.array([0, 1], np.uint8), len(counts)), counts)
    return np.ascontiguousarray(pixels.reshape(width, height).T)


def encode_mask(mask: np.ndarray) -> str:
    """The code of a mask (height, width); every pixel but 0 belongs to it.

    >>> encode_mask(np.array([[0, 1], [1, 0], [1, 0]]))
    '2 3'
    """
    borders = np.flatnonzero(np.diff(mask.T.ravel() != 0, prepend=False, append=False))
    starts, ends = borders.reshape(-1, 2).T
    return " ".join(map(str, np.stack([starts + 1, ends - starts], axis=1).ravel().tolist()))


def find_code_problem(code: str, height: int, width: int) -> str:
    """What is wrong with a code for an image of that size, "" when nothing is.

    >>> find_code_problem("5 3", 3, 2)
    'run-length code leaves the image: pixel 7 of 6'
    """
    try:
        numbers = np.array(code.split(), np.int64)
    except (ValueError, OverflowError):
        return "run-length code holds something else than whole numbers"
    if len(numbers) % 2:
        return f"run-length code is odd in length: {len(numbers)} numbers"
    if (numbers < 1).any():
        return f"run-length code counts from 1, but holds {numbers.min()}"
    # Unsigned, since the sum of two numbers below 2**63 may need one bit more.
    starts, lengths = numbers.astype(np.uint64).reshape(-1, 2).T
    ends = starts + lengths - 1
    if len(ends) and ends.max() > height * width:
        return f"run-length code leaves the image: pixel {ends.max()} of {height * width}"
    if (starts[1:] <= ends[:-1]).any():
        return "run-length code has runs that overlap or go back"
    return ""
