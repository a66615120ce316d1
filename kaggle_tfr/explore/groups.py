"""Groups of images that belong together: by a column, or by their names.

The frames of a recording, the slices of a patient and the versions of a photograph
look alike without being near-duplicates, so a random split has them on both sides.
"""

import re

import pandas as pd

from kaggle_tfr.explore.csvs import check_column
from kaggle_tfr.explore.labels import MISSING
from kaggle_tfr.explore.names import remove_ending
from kaggle_tfr.explore.rows import FOLDER, NAMES, match_names
from kaggle_tfr.figures import count_of
from kaggle_tfr.parameters import DEFAULTS

SUBJECTS = (
    "patient|subject|person|participant|specimen|animal|donor|case|slide|scene|lesion"
    "|sequence|seq|session|series|study|video|clip|burst|track|recording|rec|run|flight"
)
_NUMBER = "[ _.-]?[0-9]+"
# What the names of images of one source have in common. The first rule that is
# verified is proposed.
RULES = (
    r"([^/]+)\.rf\.[0-9a-f]{8,}$",  # Roboflow's versions of an image
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})",  # a UUID, copies after it
    r"(.*?[^/ _-])(?:[ _-]+(?i:flip|rot|aug|copy|mirror|noise|bright|crop|zoom)[^/]*)?$",
    rf"([^/]*(?i:{SUBJECTS}){_NUMBER})(?:[^/0-9][^/]*)?/[^/]+$",
    rf"((?:^|.*/)[^/]*(?i:{SUBJECTS}){_NUMBER})[^/0-9][^/]*$",
    r"([^/]+)[ _.-][xX][0-9]+[ _.-]?[yY][0-9]+",  # tiles of an image
)
MIN_IMAGES = 10  # in groups of two or more
MIN_SHARE = 0.05  # of all images, in groups of two or more


def add_groups(images: pd.DataFrame, group_column: str) -> pd.DataFrame:
    """Return the images with the column of GROUP_COLUMN; "" is no group.

    group_column: a column, the rule "folder" or "names: REGEX", whose text is the name
    of the column that is added, or the time of EXIF, which is known later.
    Raises: ValueError: there is no such column, or the rule fits no image.
    """
    if not group_column or group_column == "exif_time":
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
    is_record = images["path"].str.contains(r"#[0-9]+$") | (images["path"] == "")
    names = images["image_id"].where(is_record, images["path"])
    tops = images["input_dir"].astype(str) + "/"
    return pd.Series(
        [
            remove_ending(name.removeprefix(top))
            for name, top in zip(names, tops, strict=True)
        ],
        images.index,
    )


def propose_groups(images: pd.DataFrame) -> pd.DataFrame:
    """Return a row for a GROUP_COLUMN that fits the names, none if nothing repeats.

    Columns: group_column; groups and images, those of two images or more; example, the
    largest group; shared, the share of validation images whose group is also in train,
    in the given splits or in random folds; given, whether splits are given.
    """
    proposals = []
    rule = find_rule(list_names(images), images["label_name"])
    if rule:
        groups = match_names(list_names(images), rule, "GROUP_COLUMN")
        sizes = groups[groups != ""].value_counts()
        repeated = sizes[sizes > 1]
        is_given, shared = _measure_shared(groups, images["split"])
        proposals.append(
            {
                "group_column": rule,
                "groups": len(repeated),
                "images": int(repeated.sum()),
                "example": repeated.index[0],
                "shared": shared,
                "given": is_given,
            }
        )
    columns = ["group_column", "groups", "images", "example", "shared", "given"]
    return pd.DataFrame(proposals, columns=columns)


def find_rule(names: pd.Series, classes: pd.Series) -> str:
    """Return the first rule whose groups are verified, "" for none.

    names: paths without endings. classes: of each, "" for an unknown one.
    """
    for regex in RULES:
        groups = names.str.extract(regex)[0].dropna()
        sizes = groups.map(groups.value_counts())
        joined = groups[sizes > 1]
        is_frequent = len(joined) >= max(MIN_IMAGES, MIN_SHARE * len(names))
        is_spread = joined.nunique() >= DEFAULTS["N_FOLDS"]
        if is_frequent and is_spread and not follow_classes(joined, classes):
            return NAMES + _shorten(regex, joined)
    return ""


def _shorten(regex: str, groups: pd.Series) -> str:
    """Return the expression with only those words that the groups contain."""
    found = groups.str.extract(f"((?i:{SUBJECTS})){_NUMBER}")[0].dropna().unique()
    words = "|".join(sorted(found))
    return regex.replace(f"(?i:{SUBJECTS})", f"(?:{words})" if words else "")


def follow_classes(groups: pd.Series, classes: pd.Series) -> bool:
    """Return whether nearly each class is one group, so that the groups are classes."""
    classes = classes[groups.index]
    classes = classes[classes != ""]
    if classes.nunique() < 2:
        return False
    pairs = pd.DataFrame({"class": classes, "group": groups})
    of_class = pairs.value_counts().groupby("class")
    is_one_group = of_class.max() >= 0.9 * of_class.sum()
    return bool(is_one_group.mean() >= 0.9)


def _measure_shared(groups: pd.Series, split: pd.Series) -> tuple[bool, float]:
    """Return whether validation is given, and its share with a group in train."""
    is_train = split == "train"
    is_validation = ~is_train & (split != "test")
    groups = groups.mask(groups == "")
    if is_validation.any():
        trained = set(groups[is_train].dropna())
        return True, groups[is_validation].isin(trained).mean()
    # All others of a group are in the same random fold with this probability.
    others = groups[is_train].map(groups[is_train].value_counts()).fillna(1) - 1
    alone = (1 / DEFAULTS["N_FOLDS"]) ** others.to_numpy(float)
    return False, float(1 - alone.mean())


def describe_groups(images: pd.DataFrame, group_column: str) -> str:
    """Return a sentence about the groups of GROUP_COLUMN, or about those proposed.

    Test images are in no group, nor are images with an empty value.
    """
    if group_column:
        return _describe_column(images, group_column)
    proposals = propose_groups(images)
    if proposals.empty:
        return (
            "No groups are proposed: the names of the images do not repeat as those of "
            "recordings do. If images belong together, set GROUP_COLUMN to a column of "
            "the CSV, to folder, or to 'names: REGEX'."
        )
    row = proposals.iloc[0]
    where = "In the given splits" if row["given"] else "In random folds"
    return (
        f"{row['images']:,} images are in {row['groups']:,} groups of two or more by "
        f"their names, such as '{row['example']}'. {where}, {row['shared']:.0%} of the "
        "validation images share a group with images to train on. If a group is one "
        f'recording, patient or photograph, set GROUP_COLUMN: "{row["group_column"]}".'
    )


def _describe_column(images: pd.DataFrame, group_column: str) -> str:
    """Return a sentence about the groups in a column, and about images without one."""
    not_test = images[images["split"] != "test"]
    groups = not_test[group_column]
    groups = groups[groups != ""]
    sizes = groups.value_counts()
    start = f"GROUP_COLUMN '{group_column}'"
    if not (sizes > 1).any():
        n_images = count_of(len(not_test), "image")
        return f"{start} has no group of two or more of {n_images} outside test."
    _, shared = _measure_shared(not_test[group_column], not_test["split"])
    n_single = len(not_test) - len(groups)
    has_validation = (not_test["split"] != "train").any()
    given = f" {shared:.0%} of the validation images share one with train."
    return (
        f"{start}: {len(groups):,} of {len(not_test):,} images outside test are in "
        f"{len(sizes):,} groups, the largest is '{sizes.index[0]}' with "
        f"{sizes.iloc[0]:,}; {n_single:,} have no group and stay single. 03 keeps each "
        f"group in one fold.{given if has_validation else ''}"
    )
