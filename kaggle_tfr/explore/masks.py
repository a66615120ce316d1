"""Check run-length codes: whether they fit their images, and count by columns."""

import pandas as pd

from kaggle_tfr.images.masks import find_code_problem, transpose_code
from kaggle_tfr.notebook import note
from kaggle_tfr.schema import Labels


def note_combs(images: pd.DataFrame, labels: Labels) -> None:
    """Note that codes may count by rows, if most masks look like combs.

    At most 50 good images are measured, which are spread over all, each by its longest
    code. Square images do not count: a mask fits them in both orders.
    """
    masked = images.query("problem == '' and label_name != '' and height != width")
    sample = masked.iloc[:: 1 + len(masked) // 50]
    n_combs = 0
    for row in sample.to_dict("records"):
        code = max((row[name] for name in labels.label_columns), key=len)
        by_columns = transpose_code(code, row["width"], row["height"])
        by_rows = transpose_code(code, row["height"], row["width"])
        # In the wrong order, a mask is torn into more runs in the other direction.
        n_combs += len(by_columns) > len(by_rows)
    # Thin lines and noise look like combs in either order.
    if n_combs > 0.75 * len(sample):
        note(
            "!",
            f"{n_combs} of {len(sample)} masks look like combs: their codes may count "
            "by rows.",
            "input: masks",
            "If so, set RLE_ORDER: rows.",
        )


def check_codes(
    images: pd.DataFrame,
    labels: Labels,
    rle_order: str,
) -> None:
    """Make the codes of images count by columns; one that does not fit is a problem.

    images: changed in place; with a column of codes for each of labels.label_columns.
    rle_order: how the codes count now, by "columns" or by "rows".
    """
    for name in labels.label_columns:
        codes = images[[name, "height", "width"]].to_numpy()
        found = pd.Series([find_code_problem(*row) for row in codes], images.index)
        is_new = (images["problem"] == "") & (found != "")
        images.loc[is_new, "problem"] = f"{name}: " + found
        is_good = images["problem"] == ""
        if rle_order == "rows":
            by_columns = [transpose_code(*row) for row in codes[is_good]]
            images.loc[is_good, name] = by_columns
