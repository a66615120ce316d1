"""The user's decisions of OVERRIDES, as changes to labels and pairs before clusters.

A row of the CSV has an image_id, an action and a value:

    keep, drop        the image, whatever the rules decide; no value
    label             the image has another class: its name
    same, different   add or remove the pair with another image: its image_id
    group             the image shares a fold with all images of this group

A labelled image and a test image may have the same id. Their names are then
"train/1.jpg" and "test/1.jpg".
"""

from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import storage
from kaggle_tfr.deduplicate.pairs import measure_pairs
from kaggle_tfr.earlier import mark_recorded
from kaggle_tfr.explore.csvs import parse_text
from kaggle_tfr.explore.labels import number_names
from kaggle_tfr.explore.table import load_images
from kaggle_tfr.mounts import find_file
from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.schema import Labels

PAIR_ACTIONS = ("same", "different")
ACTIONS = ("keep", "drop", "label", *PAIR_ACTIONS, "group")
COLUMNS = ["image_id", "action", "value"]
FILE = "decisions.parquet"  # in WORK_DIR
# Of the actions on the same images with the same subject, one can be applied.
SUBJECTS = {"keep": "outcome", "drop": "outcome", "same": "pair", "different": "pair"}
MAX_PROBLEMS = 10  # in one error


def read_overrides(file: str, images: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return the decisions of OVERRIDES, checked against the images of 01.

    file: the parameter, "" for none. images, labels: of `explore.load_images`.
    Columns: `COLUMNS`; a <= b, the row numbers of the image and of the other image of a
    pair; file and sha256 of the CSV.
    Raises: OSError: the file cannot be read. ValueError: it lists the wrong rows.
    """
    table = pd.DataFrame(columns=COLUMNS)
    path = file and find_file(file)
    if path:
        table = parse_text(storage.read_bytes(path), skip_blank_lines=False)
    if not set(COLUMNS).issubset(table):
        raise ValueError(
            f"OVERRIDES '{path}' has the columns {', '.join(map(str, table))}. Its "
            f"header must be {','.join(COLUMNS)}."
        )
    rows = table[COLUMNS].fillna("").apply(lambda column: column.str.strip())
    rows = rows[(rows != "").any(axis=1)]
    other = rows["value"].where(rows["action"].isin(PAIR_ACTIONS), rows["image_id"])
    row_of = _find_images(pd.concat([rows["image_id"], other]), images)
    found = [names.map(row_of).fillna(-1) for names in (rows["image_id"], other)]
    rows[["a", "b"]] = np.sort(np.stack(found, axis=1).astype(np.int64), axis=1)
    answers: dict[tuple, str] = {}
    problems = []
    for row in rows.itertuples():
        problem = _find_problem(row, images, labels)
        subject = SUBJECTS.get(row.action, row.action), row.a, row.b
        answer = row.action if row.action in SUBJECTS else row.value
        if not problem and answers.setdefault(subject, answer) != answer:
            problem = "another row contradicts it"
        if problem:
            # Row 1 of the file is the header.
            problems.append(f"  row {row.Index + 2}: {problem}")
    if problems:
        text = "\n".join(problems[:MAX_PROBLEMS])
        raise ValueError(
            f"OVERRIDES '{path}' cannot be applied, {len(problems):,} of its rows are "
            f"wrong:\n{text}"
        )
    return rows.assign(file=path, sha256=storage.sha256_of(path) if path else "")


def _find_images(names: pd.Series, images: pd.DataFrame) -> pd.Series:
    """Return the row of each readable image by its names: split/id, id if unique."""
    good = images[images["problem"] == ""]
    full_names = good["split"] + "/" + good["image_id"]
    keys = pd.concat([full_names, good["image_id"].drop_duplicates(keep=False)])
    keys = keys[keys.isin(names)].drop_duplicates()
    return pd.Series(keys.index, keys)


def _find_problem(row: Any, images: pd.DataFrame, labels: Labels) -> str:
    """Return why a row of the CSV cannot be applied, "" if it can."""
    action = row.action
    if action not in ACTIONS:
        return f"the action '{action}' is not one of {', '.join(ACTIONS)}"
    if row.a < 0:
        return (
            f"no image that can be read, or more than one, is '{row.image_id}' (or "
            f"'{row.value}'). Write train/ID or test/ID if two images have an id"
        )
    if action in PAIR_ACTIONS and row.a == row.b:
        return f"'{row.image_id}' is named twice"
    image = images.loc[row.a]
    if image["split"] == "test" and action in ("drop", "group"):
        return f"'{row.image_id}' is a test image: always kept, and in no fold"
    if action == "label" and (labels.kind != "single" or image["label"] < 0):
        return f"'{row.image_id}' has no class, or may have several"
    if action == "label" and row.value not in labels.classes:
        return f"there is no class '{row.value}' in labels.json"
    if action == "group" and not row.value:
        return "the name of the group is empty"
    return ""


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
    for row in decisions.itertuples():
        if row.action in ("keep", "drop"):
            images.loc[row.a, "decision"] = row.action
        elif row.action == "group":
            images.loc[row.a, OVERRIDE_GROUP] = row.value
        elif row.action == "label" and not is_recorded[row.a]:
            images.loc[row.a, "label_name"] = row.value
            images.loc[row.a, "label"] = label_of[row.value]
    return images


def correct_pairs(
    pairs: pd.DataFrame, decisions: pd.DataFrame, words: np.ndarray
) -> pd.DataFrame:
    """Return the pairs with those that the user adds and cuts: verdict "user".

    pairs: columns a < b, distance, orientation, inliers, verdict, accepted.
    """
    tables = []
    for action in PAIR_ACTIONS:
        ends = decisions.loc[decisions["action"] == action, ["a", "b"]]
        decided = measure_pairs(words, ends.assign(orientation=1))
        is_same = action == "same"
        tables.append(decided.assign(inliers=-1, verdict="user", accepted=is_same))
    pairs = pd.concat([*tables, pairs]).drop_duplicates(["a", "b"])
    return pairs.sort_values(["a", "b"], ignore_index=True)


def list_cut_pairs(
    images: pd.DataFrame, decisions: pd.DataFrame
) -> list[tuple[str, str]]:
    """Return the paths of the pairs that the user calls different."""
    cut = decisions[decisions["action"] == "different"]
    path = images["path"]
    return [*zip(path.loc[cut["a"]], path.loc[cut["b"]], strict=True)]


def load_corrected(work_dir: str) -> tuple[pd.DataFrame, Labels, pd.DataFrame]:
    """Return images and labels of 01 as 02 has corrected them, and the decisions.

    Raises: FileNotFoundError: 01 or 02 has not run. ValueError: the file of OVERRIDES
    has changed since 02.
    """
    images, labels = load_images(work_dir)
    decisions = storage.read_parquet(storage.join(work_dir, FILE))
    for file in decisions["file"].head(1):
        sha256 = decisions["sha256"].iloc[0]
        if storage.exists(file) and storage.sha256_of(file) != sha256:
            raise ValueError(
                f"OVERRIDES '{file}' has changed since 02_deduplicate applied it. Run "
                "02_deduplicate again."
            )
    return correct_images(images, decisions, labels), labels, decisions
