"""Groups of images that belong together: by a column, or by their names.

The frames of a recording, the slices of a patient and the versions of a photograph
look alike without being near-duplicates, so a random split has them on both sides.
"""

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
    r"([^/]+)\.rf\.[0-9a-f]{8,}$",  # Roboflow's versions of an image
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})",  # a UUID, copies after it
    r"(.*?[^/ _-])(?:[ _-]+(?i:flip|rot|aug|copy|mirror|noise|bright|crop)[^/]*)?$",
    r"([^/]+)[ _.-][xX][0-9]+[ _.-]?[yY][0-9]+",  # tiles of an image
]
RULES += [f"([^/]*(?i:{word})[ _.-]?[0-9]+)[^0-9]" for word in SUBJECTS.split("|")]
MIN_GROUPS = 3  # of two or more images
MIN_IMAGES = 10  # in groups of two or more
MIN_SHARE = 0.05  # of all images, in groups of two or more
SAMPLE = 20_000  # names by which a rule is found


def add_groups(images: pd.DataFrame, group_column: str) -> pd.DataFrame:
    """Return the images with the column of GROUP_COLUMN; "" is no group.

    group_column: a column, the rule "folder" or "names: REGEX", whose text is the name
    of the column that is added; "exif_time" and "exif_camera" are known later.
    Raises: ValueError: there is no such column, or the rule fits no image.
    """
    if not group_column or group_column.startswith("exif_"):
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
    if group_column in RESERVED:  # numbers stay numbers
        return images
    return images.assign(**{group_column: groups})


def list_names(images: pd.DataFrame) -> pd.Series:
    """Return the paths below INPUT_DIR without endings; a record has its image_id."""
    paths = images.groupby("input_dir", observed=True)["path"]
    names = paths.transform(lambda paths: paths.str.removeprefix(f"{paths.name}/"))
    is_record = names.str.contains(r"#[0-9]+$")
    return names.mask(is_record, images["image_id"]).map(remove_ending)


def find_groups(images: pd.DataFrame) -> str:
    """Return the column or the rule whose groups are verified, "" for none.

    Of several columns it is that of the fewest subjects, else of the fewest sites.
    """
    classes = images["label_name"]
    for name_of in (SUBJECT_NAME, SITE_NAME):
        columns = filter(name_of.fullmatch, map(str, images))
        verified = [name for name in columns if _are_groups(images[name], classes)]
        if verified:
            return str(images[verified].nunique().idxmin())
    sample = images.loc[images["path"].sort_values().index[:SAMPLE]]
    return find_rule(list_names(sample), sample["label_name"])


def find_rule(names: pd.Series, classes: pd.Series) -> str:
    """Return the first rule whose groups are verified, "" for none.

    names: paths without endings. classes: of each, "" for an unknown one.
    """
    for regex in RULES:
        if _are_groups(names.str.extract(regex)[0], classes):
            return NAMES + regex
    return ""


def _are_groups(groups: pd.Series, classes: pd.Series) -> bool:
    """Return whether enough images share their groups, and the groups are not classes.

    groups: of each image, "" or NaN for none.
    """
    sizes = groups[~groups.isin(MISSING)].value_counts()
    shared = sizes[sizes > 1]
    n_groups = groups[groups.isin(shared.index)].groupby(classes).nunique()
    return (
        len(shared) >= MIN_GROUPS
        and shared.sum() >= max(MIN_IMAGES, MIN_SHARE * len(groups))
        and shared.max() <= len(groups) / 2
        and n_groups.median() > 1
    )
