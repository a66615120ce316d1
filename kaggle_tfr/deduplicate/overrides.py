"""The user's decisions of OVERRIDES, as changes to labels and pairs before clusters.

A row of the CSV has an image_id, an action and a value:

    keep, drop        the image, whatever the rules decide; no value
    label             the image has another class: its name
    same, different   add or remove the pair with another image: its image_id
    group             the image shares a fold with all images of this group

Of rows that contradict each other, the last one counts. A labelled image and a test
image may have the same id. Their names are then "train/1.jpg" and "test/1.jpg".
"""

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.pairs import count_bits
from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.explore.rows import parse_text
from kaggle_tfr.explore.table import load_images
from kaggle_tfr.find import find_file
from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.schema import Labels

PAIR_ACTIONS = ("same", "different")
ACTIONS = ("keep", "drop", "label", *PAIR_ACTIONS, "group")
COLUMNS = ["image_id", "action", "value"]
FILE = "decisions.parquet"  # in WORK_DIR


def read_overrides(file: str, images: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return the decisions of OVERRIDES, checked against the images of 01.

    file: the parameter, "" for none. images, labels: of `explore.load_images`.
    Columns: `COLUMNS`; a <= b, the row numbers of the image and of the other image of a
    pair.
    Raises: OSError: the file cannot be read. ValueError: it lists the wrong rows.
    """
    rows = _read_rows(file) if file else pd.DataFrame(columns=COLUMNS, dtype=str)
    other = rows["value"].where(rows["action"].isin(PAIR_ACTIONS), rows["image_id"])
    good = images[images["problem"] == ""]
    ids = good["image_id"]
    names = pd.concat([good["split"] + "/" + ids, ids.drop_duplicates(keep=False)])
    row_of = pd.Series(names.index, names)
    row_of = row_of[~row_of.index.duplicated()]
    found = [
        row_of.reindex(texts, fill_value=-1) for texts in (rows["image_id"], other)
    ]
    rows["a"], rows["b"] = np.sort(found, axis=0)
    problem = _find_problems(rows, labels)
    lines = [
        "\n  " + ",".join(row[COLUMNS]) + f": {problem[number]}"
        for number, row in rows[problem != ""].iterrows()
    ]
    if lines:
        raise ValueError(
            f"OVERRIDES '{file}' cannot be applied, {len(lines):,} of its rows are "
            f"wrong:{''.join(lines)}"
        )
    return rows


def _read_rows(file: str) -> pd.DataFrame:
    """Return the columns of a CSV as text."""
    table = parse_text(storage.read_bytes(find_file(file)))
    if not set(COLUMNS).issubset(table):
        raise ValueError(
            f"The header of OVERRIDES '{file}' must be image_id,action,value."
        )
    rows = table[COLUMNS]
    rows = rows[(rows != "").any(axis=1)].reset_index(drop=True)
    return rows.assign(action=rows["action"].str.strip())


def _find_problems(rows: pd.DataFrame, labels: Labels) -> np.ndarray:
    """Return why each row cannot be applied, "" if it can."""
    action = rows["action"]
    value = rows["value"]
    classes = labels.classes if labels.kind == "single" else ()
    problems = {
        f"the action is not one of {', '.join(ACTIONS)}": ~action.isin(ACTIONS),
        "no image that can be read has this id, or two (write train/ID, test/ID)": (
            rows["a"] < 0
        ),
        "no image can have this class": (action == "label") & ~value.isin(classes),
    }
    return np.select([*problems.values()], [*problems], "")


def correct_images(
    images: pd.DataFrame, decisions: pd.DataFrame, labels: Labels
) -> pd.DataFrame:
    """Return the images with the labels of the user; records keep theirs.

    New columns: decision ("keep", "drop" or ""); if there are groups, override_group
    has them, NA for other images.
    """
    images = images.assign(decision="")
    is_recorded = mark_recorded(images)
    label_of = number_names(labels.classes)
    for row, action, value in decisions[["a", "action", "value"]].to_numpy().tolist():
        if action in ("keep", "drop"):
            images.loc[row, "decision"] = action
        elif action == "group":
            images.loc[row, OVERRIDE_GROUP] = value
        elif action == "label" and not is_recorded[row]:
            images.loc[row, "label_name"] = value
            images.loc[row, "label"] = label_of[value]
    return images


def correct_pairs(
    pairs: pd.DataFrame, decisions: pd.DataFrame, codes: np.ndarray
) -> pd.DataFrame:
    """Return the pairs with those that the user adds and cuts: verdict "user".

    pairs: columns a < b, distance, orientation, inliers, verdict, accepted.
    """
    is_pair = decisions["action"].isin(PAIR_ACTIONS)
    decided = decisions[is_pair].drop_duplicates(["a", "b"], keep="last")
    table = decided[["a", "b"]].assign(
        distance=count_bits(codes, decided["a"], decided["b"]),
        orientation=1,
        inliers=-1,
        verdict="user",
        accepted=decided["action"] == "same",
    )
    pairs = pd.concat([table, pairs]).drop_duplicates(["a", "b"])
    return pairs.sort_values(["a", "b"], ignore_index=True)


def load_corrected(
    work_dir: str,
) -> tuple[pd.DataFrame, Labels, list[tuple[str, str]]]:
    """Return images and labels of 01 as 02 has corrected them.

    Also the paths of the pairs that the user calls different.
    Raises: FileNotFoundError: 01 or 02 has not run.
    """
    images, labels = load_images(work_dir)
    decisions = storage.read_parquet(storage.join(work_dir, FILE))
    cut = decisions[decisions["action"] == "different"]
    cut_pairs = images["path"].to_numpy()[cut[["a", "b"]]].tolist()
    return correct_images(images, decisions, labels), labels, cut_pairs
