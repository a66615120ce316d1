"""Stop at tables of images that cannot be right, and note what is doubtful."""

from collections.abc import Sequence

import pandas as pd

from kaggle_tfr.explore.files import is_generic
from kaggle_tfr.explore.labels import LEFT_OUT, NO_LABEL, number_names
from kaggle_tfr.explore.masks import note_combs
from kaggle_tfr.explore.rows import LINK_PROBLEM, MISSING_FILE, NO_ROW
from kaggle_tfr.notebook import note
from kaggle_tfr.schema import Labels

STOP = 0.5  # of the images, unusable for one reason
FEW_REJECTS = 0.05  # of the images
FEW = 20  # images, which may be of as many classes
OTHER_LABELS = (
    "Set LABELS_CSV to a CSV with the columns image_id,label, or LABEL_COLUMN to a "
    "column, to 'folder' or to 'names: REGEX'; [] reads images without labels."
)
# What to do about the most frequent problem.
ADVICE = {
    NO_LABEL: OTHER_LABELS,
    "listed with different labels": "If an image can have several labels, set "
    "LABEL_KIND: multi.",
    LINK_PROBLEM: "Set INPUT_DIR to the folder that the links lead to, or copy it.",
    MISSING_FILE: "No file has this name, with any ending and case. Set ID_COLUMN to "
    "the column of names, or INPUT_DIR to the folder of the images.",
}


def check_table(images: pd.DataFrame) -> None:
    """Raise a ValueError if most images are unusable for one reason, or none is left.

    Test images, files that no CSV lists and what LABEL_MAP leaves out do not count.
    """
    is_train = images["split"] != "test"
    is_left_out = images["problem"].str.startswith((NO_ROW, LEFT_OUT))
    counted = images[is_train & ~is_left_out]
    reasons = name_reasons(counted["problem"])
    for reason, count in reasons.value_counts().items():
        if reason and count > STOP * len(counted):
            example = counted[reasons == reason].iloc[0]
            raise ValueError(
                f"{count:,} of the images, {count / len(counted):.0%}, cannot be used, "
                f"such as '{example['image_id']}': {example['problem']}. "
                f"{ADVICE.get(str(reason), '')}".strip()
            )
    if not (is_train & (images["problem"] == "")).any():
        raise ValueError(
            f"none of the {len(images):,} images is left to train on: all are in test "
            "folders, or have no row in a CSV. Set SPLIT_COLUMN: none to train on the "
            'images of all folders, or LABELS_CSV: "" to leave the CSV out.'
        )


def name_reasons(problem: pd.Series) -> pd.Series:
    """Return what precedes the colon in each problem."""
    return problem.str.split(":").str[0]


def note_rejects(images: pd.DataFrame) -> None:
    """Note how many images are rejected, and why."""
    counts = name_reasons(images["problem"][images["problem"] != ""]).value_counts()
    if counts.empty:
        note("✓", f"All {len(images):,} images can be used.", "input")
        return
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
    note(
        "!" if counts.sum() > FEW_REJECTS * len(images) else "·",
        f"{counts.sum():,} of {len(images):,} images are rejected: {reasons}.",
        "input",
        "rejects.csv lists them.",
    )


def note_doubts(
    images: pd.DataFrame, labels: Labels, label_column: str | Sequence[str]
) -> None:
    """Note why the labels are probably wrong.

    label_column: LABEL_COLUMN; names of classes that it chooses are not doubted.
    """
    if labels.kind == "masks":
        note_combs(images, labels)
    names = list(number_names(labels.classes))
    generic = list(filter(is_generic, names)) if label_column == "" else []
    n_good = ((images["problem"] == "") & (images["label"] >= 0)).sum()
    doubt = ""
    if labels.kind == "single" and len(names) == 1:
        doubt = f"All images are of one class, {names[0]!r}."
    elif n_good > FEW and len(names) > n_good / 2:
        doubt = f"{n_good:,} images are of {len(names):,} classes: most have few."
    elif generic:
        doubt = f"A class is called {generic[0]!r}, like a split or a folder of images."
    if doubt:
        note("✗", doubt, "labels: classes", OTHER_LABELS)
