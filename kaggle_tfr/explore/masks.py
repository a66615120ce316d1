"""Check run-length codes: whether they fit their images, and count by columns."""

import pandas as pd

from kaggle_tfr.images.masks import find_code_problem, transpose_code
from kaggle_tfr.notebook import note
from kaggle_tfr.records import ADDRESS
from kaggle_tfr.schema import Labels


def note_combs(images: pd.DataFrame, labels: Labels) -> None:
    """Note that codes may count by rows, if most masks look like combs.

    The run-length codes count pixels by columns. A mask whose code counts by rows is
    torn into thin teeth. At most 50 good images are measured, which are spread over
    all, each by its longest code. Square images are left out: there, the mask by rows
    is the transposed mask by columns, and looks no different.
    """
    masked = images.query("problem == '' and label_name != '' and height != width")
    sample = masked.iloc[:: 1 + len(masked) // 50]
    n_combs = 0
    for row in sample.to_dict("records"):
        code = max((row[name] for name in labels.label_columns), key=len)
        # The mask of the code, read by columns and read by rows, each encoded in the
        # other direction.
        by_columns = transpose_code(code, row["width"], row["height"])
        by_rows = transpose_code(code, row["height"], row["width"])
        # Read in the wrong order, a mask has more runs in the other direction.
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
    """Make the run-length codes of images count by columns, and report bad ones.

    images: changed in place: the columns of codes, labels.label_columns, and problem,
    which names the column if a code does not fit its image; bad codes stay.
    rle_order: how the codes count now, by "columns" or by "rows"; those in records of
    parts always count by columns.
    """
    # ADDRESS matches the paths of images in records, such as "x.tfrec#17".
    is_file = ~images["path"].str.match(ADDRESS)
    for name in labels.label_columns:
        codes = images[[name, "height", "width"]].to_numpy()
        found = pd.Series([find_code_problem(*row) for row in codes], images.index)
        is_new = (images["problem"] == "") & (found != "")
        images.loc[is_new, "problem"] = f"{name}: " + found
        is_good = is_file & (images["problem"] == "")
        if rle_order == "rows":
            images.loc[is_good, name] = [transpose_code(*row) for row in codes[is_good]]
