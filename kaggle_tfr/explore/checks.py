"""Stop at tables of images that cannot be right, and note what is doubtful."""

import difflib
import os
from collections.abc import Sequence

import pandas as pd

from kaggle_tfr.explore.files import is_generic
from kaggle_tfr.explore.labels import LEFT_OUT, NO_LABEL, number_names
from kaggle_tfr.explore.masks import note_combs
from kaggle_tfr.explore.names import loosen
from kaggle_tfr.explore.rows import LINK_PROBLEM, MISSING_FILE, NO_ROW
from kaggle_tfr.notebook import note
from kaggle_tfr.schema import Labels

STOP = 0.5  # of the images, unusable for one reason
DOUBT = 1 / 3
FEW_REJECTS = 0.05  # of the images
FEW = 20  # images, which may be of as many classes
NEAREST = 20_000  # files, among whose names the nearest is looked for
LISTED = "rejects.csv lists them."
# What to do about the most frequent problem.
ADVICE = {
    NO_LABEL: "Set LABELS_CSV to a CSV with the columns image_id,label, or "
    "LABEL_COLUMN to 'folder' or 'names: REGEX'; [] reads images without labels.",
    "listed with different labels": "If an image can have several labels, set "
    "LABEL_KIND: multi.",
    LINK_PROBLEM: "Set INPUT_DIR to the folder that the links lead to, or copy it.",
    "listed twice": "Set ID_COLUMN to the column of the images' names.",
}


def check_table(images: pd.DataFrame) -> None:
    """Raise a ValueError if most images are unusable for one reason, or no image is
    left to train on.
    """
    unusable, share = _find_main_problem(images)
    is_train = (images["split"] != "test") & (images["problem"] == "")
    if share <= STOP and is_train.any():
        return
    if unusable.empty:
        raise ValueError(
            f"none of the {len(images):,} images is left to train on: all are in test "
            "folders, or have no row in a CSV. Set SPLIT_COLUMN: none to train on the "
            'images of all folders, or LABELS_CSV: "" to leave the CSV out.'
        )
    image_id, problem = unusable[["image_id", "problem"]].iloc[0]
    advice = ADVICE.get(problem.partition(":")[0], "")
    if problem == MISSING_FILE:
        advice = _describe_nearest(image_id, images["path"])
    raise ValueError(
        f"{len(unusable):,} of the images, {share:.0%}, cannot be used, such as "
        f"'{image_id}': {problem}. {advice}".strip()
    )


def name_reasons(problem: pd.Series) -> pd.Series:
    """Return what precedes the colon in each problem."""
    return problem.map({text: text.partition(":")[0] for text in problem.unique()})


def _find_main_problem(images: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Return the images that are unusable for the most frequent reason, their share.

    Test images, files that no CSV lists and what LABEL_MAP leaves out do not count.
    """
    is_left_out = images["problem"].str.startswith((NO_ROW, LEFT_OUT))
    counted = images[(images["split"] != "test") & ~is_left_out]
    reasons = name_reasons(counted["problem"])
    main = reasons[reasons != ""].mode().head(1)
    unusable = counted[reasons.isin(main)]
    return unusable, len(unusable) / max(1, len(counted))


def _describe_nearest(image_id: str, paths: pd.Series) -> str:
    """Return what was looked for, and the file whose name is nearest to an id."""
    files = paths[paths != ""].head(NEAREST)
    path_of = {loosen(os.path.basename(path)): path for path in files}
    name = loosen(os.path.basename(image_id))
    near = difflib.get_close_matches(name, path_of, 1, 0)
    nearest = f" The nearest name is '{path_of[near[0]]}'." if near else ""
    return (
        f"No file is called '{image_id}', with any ending, case and zeros, in any "
        f"folder.{nearest}"
    )


def note_rejects(images: pd.DataFrame) -> None:
    """Note how many images are rejected, and why."""
    counts = name_reasons(images["problem"][images["problem"] != ""]).value_counts()
    if counts.empty:
        note("✓", f"All {len(images):,} images can be used.", "input")
        return
    n_rejected = counts.sum()
    verb = "is" if n_rejected == 1 else "are"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
    note(
        "!" if n_rejected > FEW_REJECTS * len(images) else "·",
        f"{n_rejected:,} of {len(images):,} images {verb} rejected: {reasons}.",
        "input",
        LISTED,
    )


def note_doubts(
    images: pd.DataFrame, labels: Labels, label_column: str | Sequence[str]
) -> None:
    """Note each reason why the table is probably wrong.

    label_column: LABEL_COLUMN; classes that the user has set are not doubted.
    """
    unusable, share = _find_main_problem(images)
    if share > DOUBT:
        reason, _, _ = unusable["problem"].iloc[0].partition(":")
        text = f"{share:.0%} of the images cannot be used for one reason: {reason}."
        note("✗", text, "input: unusable", ADVICE.get(reason, LISTED))
    if labels.kind == "masks":
        note_combs(images, labels)
    names = list(number_names(labels.classes))
    n_classes = len(names)
    if not names and labels.kind == "single":
        advice = "Set LABEL_COLUMN if they have classes."
        note("·", "The images have no labels.", "labels", advice)
    n_good = ((images["problem"] == "") & (images["label"] >= 0)).sum()
    if n_classes == 1 and labels.kind == "single":
        note(
            "✗",
            f"All images are of one class, {names[0]!r}.",
            "labels: one class",
            "Set LABEL_COLUMN to a column, to 'folder' or to 'names: REGEX'; [] reads "
            "images without labels.",
        )
    elif n_good > FEW and n_classes > n_good / 2:
        note(
            "✗",
            f"{n_good:,} images are of {n_classes:,} classes, so most classes have few "
            "images.",
            "labels: many classes",
            "Set LABEL_COLUMN to another column or rule, or LABEL_KIND: number for a "
            "quantity.",
        )
    generic = list(filter(is_generic, names))
    if generic and label_column == "":
        note(
            "✗",
            f"A class is called {generic[0]!r}, like a split or a folder of all "
            "images.",
            "labels: generic class",
            "Set LABEL_COLUMN: folder if it is a class, else to a column or to 'names: "
            "REGEX'.",
        )
