"""Run-length codes of masks as Kaggle writes them: "start length start length …".

Pixels count from 1, down the first column, then down the next; runs ascend and do not touch
pixels twice. An empty code is an empty mask.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

NO_MASK = ("", "nan", "NaN", "<NA>", "-1")


def decode_mask(code: str, height: int, width: int) -> np.ndarray:
    """uint8 mask (height, width) of 0 and 1.

    >>> decode_mask("2 3", 3, 2)
    array([[0, 1],
           [1, 0],
           [1, 0]], dtype=uint8)

    Raises:
        ValueError: the code is broken or does not fit the size.
    """
    problem = find_code_problem(code, height, width)
    if problem:
        raise ValueError(
            f"the run-length code '{code[:40]}' does not fit {height} × {width} pixels: {problem}. "
            "Is it of another picture, or are height and width swapped?"
        )
    numbers = np.array(code.split(), np.int64)
    edges = np.zeros(height * width + 1, np.int8)
    starts, lengths = numbers[::2] - 1, numbers[1::2]
    # Two runs may meet: one ends (-1) where the next begins (+1).
    np.add.at(edges, starts, 1)
    np.add.at(edges, starts + lengths, -1)
    pixels = np.cumsum(edges[:-1], dtype=np.int8).astype(np.uint8)
    return np.ascontiguousarray(pixels.reshape(width, height).T)


def encode_mask(mask: np.ndarray) -> str:
    """The code of a mask (height, width); every pixel but 0 belongs to it.

    >>> encode_mask(np.array([[0, 1], [1, 0], [1, 0]]))
    '2 3'
    """
    pixels = np.concatenate([[False], mask.T.ravel() != 0, [False]])
    edges = np.flatnonzero(pixels[1:] != pixels[:-1])
    starts, ends = edges[::2], edges[1::2]
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
    starts, lengths = numbers[::2], numbers[1::2]
    if (numbers < 1).any():
        return f"run-length code counts from 1, but holds {numbers.min()}"
    ends = starts + lengths - 1
    if len(ends) and ends.max() > height * width:
        return f"run-length code leaves the image: pixel {ends.max()} of {height * width}"
    if (starts[1:] <= ends[:-1]).any():
        return "run-length code has runs that overlap or go back"
    return ""


def spread_codes(
    rows: pd.DataFrame, id_column: str, label_columns: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(one row per image, a column of codes per label): from one row per image and label.

    label_columns: the column of codes, where ids look like "0011165.jpg_Fish"; else two, label and
    code. Labels are sorted; "" is no mask. The rows get a column `problem`.
    """
    if len(label_columns) == 2:
        images, names = rows[id_column], rows[label_columns[0]]
    else:
        images, names = _split_ids(rows[id_column])
    image, ids = pd.factorize(images)
    label, classes = pd.factorize(names, sort=True)
    given = rows[label_columns[-1]].str.strip()
    codes = np.full((len(ids), len(classes)), "", object)
    codes[image, label] = given.where(~given.isin(NO_MASK), "").to_numpy(object)
    problem = np.full(len(ids), "", object)
    again = pd.DataFrame({"image": image, "label": label}).duplicated().to_numpy()
    for row, column in zip(image[again], label[again], strict=True):
        problem[row] = f"label '{classes[column]}' listed twice"
    others = rows.drop(columns=[id_column, *label_columns])[~pd.Series(image).duplicated()]
    one = pd.concat([pd.Series(ids, name=id_column), others.reset_index(drop=True)], axis=1)
    return one.assign(problem=problem), pd.DataFrame(codes, columns=list(classes))


def _split_ids(ids):
    """(image, label) of ids such as "0011165.jpg_Fish"."""
    halves = ids.str.rsplit("_", n=1)
    bad = ids[halves.str.len() < 2]
    if len(bad):
        raise ValueError(
            f"SOURCE='rle_csv' takes ids such as '0011165.jpg_Fish', but {len(bad)} of {len(ids)} "
            f"have no '_', the first is '{bad.iloc[0]}'. Set LABEL_COLUMN to [label, code] when "
            "the label has a column of its own."
        )
    return halves.str[0], halves.str[1]


def find_problems(images: pd.DataFrame, label_columns: Sequence[str]) -> np.ndarray:
    """The column `problem` with the broken codes of good rows named; needs height and width."""
    problems = images["problem"].to_numpy(object).copy()
    good = np.flatnonzero(problems == "")
    for name in label_columns:
        columns = (images[key].to_numpy()[good] for key in (name, "height", "width"))
        for row, code, height, width in zip(good, *columns, strict=True):
            problem = find_code_problem(code, height, width) if code else ""
            if problem and not problems[row]:
                problems[row] = f"{name}: {problem}"
    return problems
