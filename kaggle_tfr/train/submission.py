"""Fill in a submission in the form of the competition's sample_submission.csv."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr.naming import SUBMISSION


def fill_submission(
    ids: Sequence[str],
    scores: np.ndarray,
    classes: Sequence[Any],
    template: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return the template's rows in its order, with predictions in its columns.

    scores: float (n, classes) from 0 to 1, one row per id; without classes a quantity
    (n, 1). If the template has one column beside the ids, it gets the name of the class
    with the highest score, or the quantity; if it has several, each gets the scores of
    the class that it is named after. An image without prediction gets the mean of all
    predictions, and its id is printed.
    classes: of the columns of `scores`; empty for a quantity.
    template: the competition's sample_submission.csv as text; None for columns image_id
    and label, in the order of the ids.
    Raises: ValueError: a column is not a class, or no predicted id is in the template.
    """
    if template is None:
        template = pd.DataFrame({"image_id": ids, "label": ""})
    id_column, rows = _match_ids(template, ids)
    _print_missing(template[id_column][rows < 0])
    # A row per row of the template. -1, for no prediction, takes the last row of
    # `scores`, which the mean replaces.
    filled = scores[rows]
    filled[rows < 0] = scores.mean(axis=0)

    submission = template.copy()
    columns = template.columns.drop(id_column)
    names = list(map(str, classes))
    if len(columns) != 1:
        submission[columns] = filled[:, _find_positions(columns, names)]
    elif names:
        submission[columns[0]] = np.take(names, filled.argmax(axis=1))
    else:
        submission[columns[0]] = filled.ravel()
    return submission


def _find_positions(columns: pd.Index, classes: list[str]) -> np.ndarray:
    """Return the number of the class that each column is named after, int (n,).

    Raises: ValueError: a column is not a class.
    """
    positions = pd.Index(classes).get_indexer(columns)
    if (positions < 0).any():
        raise ValueError(
            f"{SUBMISSION} has the columns {', '.join(columns)}, but the classes are "
            f"{', '.join(classes)}."
        )
    return positions


def _match_ids(template: pd.DataFrame, ids: Sequence[str]) -> tuple[str, np.ndarray]:
    """Return the template's column of ids, and for each row the position of its id.

    The column is the first that has one of the ids or more. The positions are int (n,),
    -1 for an id that was not predicted.
    template: all cells are text. ids: predicted. Those of class folders are paths; the
    template may leave out the folder, and the extension.
    Raises: ValueError: no id is in any column.
    """
    # What the template may leave out: nothing, folders, folders and the extension.
    for ignored in (r"^$", r".*/", r".*/|\.\w+$"):
        known = pd.Index(pd.Series(ids).str.replace(ignored, "", regex=True))
        # Shortened ids of which two are equal would give a wrong match.
        for column in template if known.is_unique else ():
            rows = known.get_indexer(pd.Index(template[column]))
            if (rows >= 0).any():
                return str(column), rows
    raise ValueError(
        f"none of {len(ids):,} predicted images is in {SUBMISSION}: '{ids[0]}' and "
        f"'{template.iloc[0, 0]!s}' are the first. Is it the one of this competition?"
    )


def _print_missing(ids: pd.Series) -> None:
    """Print how many test images have no prediction, and the ids of ten at most."""
    if len(ids):
        print(
            f"Test images that could not be read: {ids.nunique():,}, such as "
            f"{', '.join(ids.unique()[:10])}. Each gets the mean of all predictions."
        )
