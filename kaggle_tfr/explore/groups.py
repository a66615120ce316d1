"""Groups of images that belong together: by a column, or by their names.

The frames of a recording, the slices of a patient and the versions of a photograph
look alike without being near-duplicates, so a random split has them on both sides.
"""

import pandas as pd

from kaggle_tfr.explore.csvs import check_column
from kaggle_tfr.explore.labels import MISSING, RESERVED
from kaggle_tfr.explore.names import remove_ending
from kaggle_tfr.explore.rows import FOLDER, NAMES, match_names
from kaggle_tfr.parameters import DEFAULTS

SUBJECTS = (
    "patient|subject|person|participant|specimen|animal|donor|case|slide|scene|lesion"
    "|sequence|seq|session|series|study|video|clip|burst|track|recording|rec|run|flight"
)
# What the names of images of one source have in common. The first rule that is
# verified is proposed.
RULES = [
    r"([^/]+)\.rf\.[0-9a-f]{8,}$",  # Roboflow's versions of an image
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})",  # a UUID, copies after it
    r"(.*?[^/ _-])(?:[ _-]+(?i:flip|rot|aug|copy|mirror|noise|bright|crop)[^/]*)?$",
    r"([^/]+)[ _.-][xX][0-9]+[ _.-]?[yY][0-9]+",  # tiles of an image
]
RULES += [f"([^/]*(?i:{word})[ _.-]?[0-9]+)[^0-9]" for word in SUBJECTS.split("|")]
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
    sizes = groups[groups != ""].value_counts()
    print(
        f"GROUP_COLUMN '{group_column}': {sizes.sum():,} of {len(images):,} images are "
        f"in {len(sizes):,} groups of up to {sizes.max() if len(sizes) else 0:,}; "
        f"{len(images) - sizes.sum():,} have none and stay single."
    )
    if group_column in RESERVED:  # numbers stay numbers
        return images
    return images.assign(**{group_column: groups})


def list_names(images: pd.DataFrame) -> pd.Series:
    """Return the paths below INPUT_DIR without endings; a record has its image_id."""
    tops = images["input_dir"].astype(str) + "/"
    pairs = zip(images["path"], tops, strict=True)
    names = pd.Series([path.removeprefix(top) for path, top in pairs], images.index)
    is_record = names.str.contains(r"#[0-9]+$")
    return names.mask(is_record, images["image_id"]).map(remove_ending)


def find_rule(names: pd.Series, classes: pd.Series) -> str:
    """Return the first rule whose groups are verified, "" for none.

    names: paths without endings. classes: of each, "" for an unknown one.
    """
    names = names.sort_values().head(SAMPLE)
    for regex in RULES:
        groups = names.str.extract(regex)[0].dropna()
        joined = groups[groups.duplicated(keep=False)]
        is_frequent = len(joined) >= max(MIN_IMAGES, MIN_SHARE * len(names))
        is_spread = joined.nunique() >= DEFAULTS["N_FOLDS"]
        if is_frequent and is_spread and not follow_classes(joined, classes):
            return NAMES + regex
    return ""


def follow_classes(groups: pd.Series, classes: pd.Series) -> bool:
    """Return whether nearly each class is one group, so that the groups are classes."""
    pairs = pd.DataFrame({"class": classes[groups.index], "group": groups})
    pairs = pairs[pairs["class"] != ""]
    of_class = pairs.value_counts().groupby("class")
    is_one_group = of_class.max() >= 0.9 * of_class.sum()
    return len(is_one_group) > 1 and is_one_group.mean() >= 0.9


def describe_groups(images: pd.DataFrame, group_column: str) -> str:
    """Return a sentence about the groups of GROUP_COLUMN, or about proposed ones."""
    rule = group_column or find_rule(list_names(images), images["label_name"])
    if not rule:
        return (
            "No groups are proposed: the names of the images do not repeat as those of "
            "recordings do. If images belong together, set GROUP_COLUMN to a column of "
            "the CSV, to folder, or to 'names: REGEX'."
        )
    if not group_column:
        images = add_groups(images, rule)
    groups = images[rule].mask(images[rule] == "")
    is_train = images["split"] == "train"
    validation = groups[~is_train & (images["split"] != "test")]
    where = "in the given splits"
    shared = validation.isin(groups[is_train].dropna()).mean()
    if validation.empty:
        where = "in random folds"
        n_others = groups[is_train].map(groups[is_train].value_counts()).fillna(1) - 1
        shared = 1 - ((1 / DEFAULTS["N_FOLDS"]) ** n_others).mean()
    advice = "03 keeps each group in one fold."
    if not group_column:
        advice = f'If a group is one recording or patient, set GROUP_COLUMN: "{rule}".'
    return (
        f"{shared:.0%} of the validation images {where} have a sibling of their group "
        f"in train. {advice}"
    )
