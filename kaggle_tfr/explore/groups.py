"""Groups of images that belong together: by a column, or by their names.

The frames of a recording, the slices of a patient and the versions of a photograph
look alike without being near-duplicates, so a random split has them on both sides.
"""

import os

import pandas as pd

from kaggle_tfr.explore.columns import SITE_NAME, SUBJECT_NAME
from kaggle_tfr.explore.files import SUBJECTS
from kaggle_tfr.explore.labels import MISSING, RESERVED
from kaggle_tfr.explore.rows import FOLDER, read_rule

# What the names of images of one source have in common. The first rule that is
# verified is proposed.
RULES = [
    r"names: ([^/]+)\.rf\.[^/]+$",  # Roboflow's versions of an image
    r"names: ([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})",  # a UUID, copies after it
    r"names: ([^/]+)[ _.-][xX][0-9]+[ _.-]?[yY][0-9]+",  # tiles of an image
    r"names: ([^/]+)[ _.-](?i:left|right)$",  # eyes of a patient
    *(
        rf"names: ([^/]*(?i:(?<![a-z]){word})[ _.-]?[0-9]+)[^0-9]"
        for word in SUBJECTS.split("|")
    ),
]


def add_groups(images: pd.DataFrame, group_column: str) -> pd.DataFrame:
    """Return the images with a column of their groups by GROUP_COLUMN; "" is no group.

    group_column: a column of the images, "folder", or "names: REGEX", which is searched
    in their paths. The column of groups has this text as its name. None is added for ""
    and for columns that the steps add later (`RESERVED`), such as exif_time.
    Raises: ValueError: there is no such column, the rule fits no image, or a CSV has a
    column that is called like one of the steps, which is "csv_" + its name here.
    """
    if not group_column or group_column in RESERVED:
        if f"csv_{group_column}" in images:
            raise ValueError(
                f"GROUP_COLUMN is '{group_column}', a column that kaggle-tfr adds. For "
                f"that of the CSV, set GROUP_COLUMN: csv_{group_column}."
            )
        return images
    paths = images.groupby("input_dir", observed=True)["path"]
    # Paths below the folder of their input, which is `paths.name`, the key of groupby.
    names = paths.transform(lambda paths: paths.str.removeprefix(f"{paths.name}/"))
    # "folder" is the folder of an image, even if a CSV has a column of this name.
    columns = images.drop(columns=FOLDER, errors="ignore")
    groups = read_rule(
        group_column,
        columns,
        names,
        folder_of=os.path.dirname,
        parameter="GROUP_COLUMN",
    )
    groups = groups.fillna("").astype(str)
    groups = groups.mask(groups.isin(MISSING), "")  # of "nan" and the like
    return images.assign(**{group_column: groups})


def find_groups(images: pd.DataFrame) -> str:
    """Propose GROUP_COLUMN: the first column or rule with real groups, "" for none.

    At least 5 % of the images are in groups of two or more, and most classes have three
    such groups or more: groups are not classes. Columns of subjects precede those of
    sites, and fewer groups precede more; `RULES` for paths come last.
    images: of `read_table`.
    """
    # Sorted, so that images with similar paths, as in one group, are in it together.
    images = images.sort_values("path").head(20_000)
    columns = images.nunique().sort_values().index
    rules = [
        *filter(SUBJECT_NAME.fullmatch, columns),
        *filter(SITE_NAME.fullmatch, columns),
        *RULES,
    ]
    for rule in rules:
        try:
            groups = add_groups(images, rule)[rule]
        except ValueError:  # it matches no name
            continue
        # Groups of two or more images.
        shared = groups[(groups != "") & groups.duplicated(keep=False)]
        n_groups = shared.groupby(images["label_name"]).nunique()  # of each class
        if len(shared) >= 0.05 * len(images) and n_groups.median() >= 3:
            return rule
    return ""
