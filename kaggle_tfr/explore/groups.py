"""Groups of images that belong together: by a column, or by their names.

The frames of a recording, the slices of a patient and the versions of a photograph
look alike without being near-duplicates, so a random split has them on both sides.
"""

import re

import pandas as pd

from kaggle_tfr.explore.columns import SITE_NAME, SUBJECT_NAME
from kaggle_tfr.explore.csvs import check_column
from kaggle_tfr.explore.files import SUBJECTS
from kaggle_tfr.explore.labels import MISSING, RESERVED
from kaggle_tfr.explore.names import remove_ending
from kaggle_tfr.explore.rows import FOLDER, NAMES, match_names

# What the names of images of one source have in common. The first rule that is
# verified is proposed.
RULES = [
    r"names: ([^/]+)\.rf\.[^/]+$",  # Roboflow's versions of an image
    r"names: ([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})",  # a UUID, copies after it
    r"names: ([^/]+)[ _.-][xX][0-9]+[ _.-]?[yY][0-9]+",  # tiles of an image
    r"names: ([^/]+)[ _.-](?i:left|right)$",  # eyes of a patient
]
RULES += [
    rf"names: ([^/]*(?i:(?<![a-z]){word})[ _.-]?[0-9]+)[^0-9]"
    for word in SUBJECTS.split("|")
]
MIN_GROUPS = 3  # of two or more images, in most classes
MIN_SHARE = 0.05  # of all images, in groups of two or more
MAX_ENDS = 20  # of the names of copies
SAMPLE = 20_000  # names by which a rule is found


def add_groups(images: pd.DataFrame, group_column: str) -> pd.DataFrame:
    """Return the images with the column of GROUP_COLUMN; "" is no group.

    group_column: a column, the rule "folder" or "names: REGEX", whose text is the name
    of the column that is added; "exif_time" and "exif_camera" are known later.
    Raises: ValueError: there is no such column, or the rule fits no image.
    """
    if not group_column or group_column in RESERVED:
        return images
    if group_column in images:
        groups = images[group_column].fillna("").astype(str)
    elif group_column == FOLDER:
        groups = list_names(images).str.rpartition("/")[0]
    elif group_column.startswith(NAMES):
        groups = match_names(list_names(images), group_column, "GROUP_COLUMN")
    else:
        check_column(group_column, images, "GROUP_COLUMN")
    groups = groups.mask(groups.isin(MISSING), "")
    return images.assign(**{group_column: groups})


def list_names(images: pd.DataFrame) -> pd.Series:
    """Return the paths below INPUT_DIR without endings; a record has its image_id."""
    paths = images.groupby("input_dir", observed=True)["path"]
    names = paths.transform(lambda paths: paths.str.removeprefix(f"{paths.name}/"))
    is_record = names.str.contains(r"#[0-9]+$")
    return names.mask(is_record, images["image_id"]).map(remove_ending)


def find_groups(images: pd.DataFrame) -> str:
    """Return the first column or rule of which enough images share groups, "" for none.

    Columns of subjects precede those of sites, and fewer groups precede more. Most
    classes have several groups: groups are not classes.
    """
    images = images.sort_values("path").head(SAMPLE)
    columns = images.nunique().sort_values().index
    subjects = filter(SUBJECT_NAME.fullmatch, columns)
    sites = filter(SITE_NAME.fullmatch, columns)
    rules = [*RULES, *_match_originals(list_names(images))]
    for rule in [*subjects, *sites, *rules]:
        try:
            groups = add_groups(images, rule)[rule]
        except ValueError:  # it matches no name
            continue
        shared = groups[(groups != "") & groups.duplicated(keep=False)]
        n_groups = shared.groupby(images["label_name"]).nunique()
        if len(shared) >= MIN_SHARE * len(images) and n_groups.median() >= MIN_GROUPS:
            return rule
    return ""


def _match_originals(names: pd.Series) -> list[str]:
    """Return the rule that reads the original's name from the names of its copies.

    The name of a copy is that of another image and an end such as "_90deg". There is no
    rule if an image has such an end, but no original.
    """
    ends = set()
    original = "/"
    for name in sorted(names):
        end = name.removeprefix(original)
        if re.match("[ _.(-]", end):
            ends.add(re.sub("[0-9]+", "[0-9]+", re.escape(end)))
        else:
            original = name
    regex = f"(.+?)(?:{'|'.join(sorted(ends))})?$"
    if len(ends) > MAX_ENDS or not names.str.extract(regex)[0].isin(names).all():
        return []
    return [NAMES + regex]
