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
    """Return the user's decisions in the CSV OVERRIDES, checked against the images.

    file: the parameter, "" for none. images, labels: of `explore.load_images`.
    Columns: image_id, action, value (text); a <= b, row numbers of `images`: those of
    both images for the actions "same" and "different", whose value is the other
    image_id; for other actions, both are that of the image.
    Raises: OSError: the file cannot be read. ValueError: some rows cannot be applied;
    the error lists them.
    """
    rows = _read_rows(file) if file else pd.DataFrame(columns=COLUMNS, dtype=str)
    other = rows["value"].where(rows["action"].isin(PAIR_ACTIONS), rows["image_id"])
    ends = [
        _find_rows(rows["image_id"], images),
        _find_rows(other, images),
    ]
    rows["a"], rows["b"] = np.sort(ends, axis=0)

    _check_rows(rows, labels, file)
    return rows


def _check_rows(rows: pd.DataFrame, labels: Labels, file: str) -> None:
    """Raise a ValueError that lists the rows that cannot be applied.

    rows: with a and b; a, the smaller one, is -1 if an image is not found. file: for
    the error. Only a dataset with one class per image takes the action label.
    """
    classes = number_names(labels.classes) if labels.kind == "single" else ()
    is_class = rows["value"].isin(classes) | (rows["action"] != "label")
    is_right = is_class & rows["action"].isin(ACTIONS) & (rows["a"] >= 0)
    wrong = rows[COLUMNS][~is_right]
    if len(wrong):
        raise ValueError(
            f"OVERRIDES '{file}' cannot be applied, {len(wrong):,} of its rows are "
            f"wrong. An action is one of {', '.join(ACTIONS)}; an image_id that of one "
            "image that can be read (train/ID or test/ID if two have it); a label one "
            f"of the classes.\n{wrong.to_csv(index=False)}"
        )


def _find_rows(ids: pd.Series, images: pd.DataFrame) -> pd.Series:
    """Return the row of each id; -1 if no image that can be read has it, or two.

    ids: an image_id, or split/image_id, such as "train/1.jpg". The index has the ids.
    """
    good = images.query("problem == ''")
    full_names = good["split"] + "/" + good["image_id"]
    # Without all names that two images have.
    names = pd.concat([full_names, good["image_id"]]).drop_duplicates(keep=False)
    return pd.Series(names.index, names).reindex(ids, fill_value=-1)


def _read_rows(file: str) -> pd.DataFrame:
    """Return the rows of the CSV of OVERRIDES: image_id, action and value, all text.

    Other columns and blank rows are left out. file: a path, also in a Kaggle input.
    Raises: OSError: the file cannot be read. ValueError: a column is missing.
    """
    table = parse_text(storage.read_bytes(find_file(file)))
    if not set(COLUMNS).issubset(table):
        raise ValueError(
            f"The header of OVERRIDES '{file}' must be image_id,action,value."
        )
    rows = table[COLUMNS]
    return rows[(rows != "").any(axis=1)].reset_index(drop=True)


def correct_images(
    images: pd.DataFrame,
    decisions: pd.DataFrame,
    labels: Labels,
) -> pd.DataFrame:
    """Return the images with the labels, decisions and groups that OVERRIDES gives.

    An image with a record in an earlier part keeps its label.
    New columns: decision ("keep", "drop" or ""); if there are groups, override_group
    has them, NA for other images. Of decisions that contradict each other, the last one
    counts. decisions: of `read_overrides`; column a has the row number of the image.
    """
    images = images.assign(decision="")
    is_recorded = mark_recorded(images)
    label_of = number_names(labels.classes)
    actions = decisions[["a", "action", "value"]]
    for row, action, value in actions.itertuples(index=False):
        if action in ("keep", "drop"):
            images.loc[row, "decision"] = action
        elif action == "group":  # the column is added by the first one
            images.loc[row, OVERRIDE_GROUP] = value
        elif action == "label" and not is_recorded[row]:
            images.loc[row, "label_name"] = value
            images.loc[row, "label"] = label_of[value]
    return images


def correct_pairs(
    pairs: pd.DataFrame,
    decisions: pd.DataFrame,
    codes: np.ndarray,
) -> pd.DataFrame:
    """Return the pairs, with the decisions of the user: rows of the verdict "user".

    Such a row replaces the pair of the same images, or is a new one. It is accepted for
    the action "same", and not for "different". Sorted by a and b.
    pairs: columns a < b, distance, orientation, inliers, verdict, accepted. decisions:
    of `read_overrides`. codes: of `read_codes`.
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
    pairs = pd.concat([table, pairs])
    pairs = pairs.drop_duplicates(["a", "b"])  # the user's rows are first
    return pairs.sort_values(["a", "b"], ignore_index=True)


def load_corrected(work_dir: str) -> tuple[pd.DataFrame, Labels, np.ndarray]:
    """Return the images of 01 as OVERRIDES corrects them, their labels, and cut rows.

    The images have the classes that OVERRIDES gives them; `Labels` stay as they are.
    The cut rows, int64 (n,), are those of images that the user calls different from
    another one; they may repeat.
    Raises: FileNotFoundError: 01 or 02 has not run.
    """
    images, labels = load_images(work_dir)
    decisions = storage.read_parquet(f"{work_dir}/{FILE}")
    cut_rows = np.ravel(decisions.query("action == 'different'")[["a", "b"]])
    return correct_images(images, decisions, labels), labels, cut_rows
