"""Propose groups of images that belong together: by their names, or by EXIF.

The frames of a recording, the slices of a patient and the patches of a slide look alike
without being near-duplicates, so a random split has them on both sides. Often only the
names reveal them: `patient12_slice04`, `field-a_0123`, `slide7_x512_y0`. A group is
proposed where such a beginning repeats; the user decides.

GROUP_COLUMN is the name of a column, or one of two rules: "from names", the best
proposal, or "names: REGEX", whose first parenthesis is the group. The rule is also the
name of the column that `add_groups` makes.
"""

import os
import re
from dataclasses import dataclass
from functools import cache

import pandas as pd

from kaggle_tfr.figures import count_of
from kaggle_tfr.parameters import DEFAULTS
from kaggle_tfr.storage import IMAGE_NAME

FROM_NAMES = "from names"
NAMES = "names: "
EXIF_COLUMN = "exif_time"  # of images in the same second

SUBJECTS = (
    "patient|subject|person|participant|specimen|animal|donor|case|slide|scene"
    "|sequence|seq|session|series|video|clip|burst|track|recording|rec|run|flight|trip"
)
MEMBERS = "slice|frame|tile|patch|crop|view|page|layer|section|angle|copy|aug"
_SEP = "[ _.-]"  # separates the pieces of a name
# Beginnings that cameras and programs give all files.
_GENERIC = re.compile(
    r"(?i)(img|image|pict?|picture|photo|foto|dsc|dscn|dscf|mvi|pxl|gopr|p|wp|sam|scan"
    r"|file|frame|screenshot|unnamed|download|train|test|val|valid|label)*"
)


@dataclass(frozen=True)
class Pattern:
    """A regular expression of names, whose first parenthesis is the group.

    words: known words, of which those in the names replace "WORDS".
    evidence: what the names must show besides: "" for nothing; "order": the rest of
    the names counts within a group, or the group's name is too long to repeat by
    chance; "restart": files of different groups have the same names.
    """

    regex: str
    words: str = ""
    evidence: str = ""


# The first that fits is proposed: known words first, then the coarser groups.
PATTERNS = (
    Pattern(rf"([^/]*WORDS{_SEP}?[0-9]+)[^/0-9][^/]*$", SUBJECTS),
    Pattern(rf"([^/]*WORDS{_SEP}?[0-9]+)/[^/]+$", SUBJECTS),
    Pattern(rf"([^/]+){_SEP}[xX][0-9]+{_SEP}?[yY][0-9]+"),
    Pattern(rf"([^/]+){_SEP}r(?:ow)?[0-9]+{_SEP}?c(?:ol)?[0-9]+"),
    Pattern(rf"([^/]+?){_SEP}?WORDS{_SEP}?[0-9]+$", MEMBERS),
    Pattern(rf"([^/]+){_SEP}[0-9]+{_SEP}[0-9]+$", evidence="order"),
    Pattern(rf"([^/]+){_SEP}[0-9]+$", evidence="order"),
    Pattern(rf"([^/]+){_SEP}[^/ _.-]+$", evidence="order"),
    Pattern(r"([^/]+)/[^/]+$", evidence="restart"),
    Pattern(r"([^/]+)/[^/]+/[^/]+$", evidence="restart"),
)
SAMPLE = 2_000  # names by which patterns are ruled out
# Patterns are tried on runs of neighbours in the order of the names, which are the
# same groups as those of all names, but for the ends of a run.
N_RUNS = 25
RUN = 2_000  # names
MIN_IMAGES = 10  # in groups of two or more
MIN_SHARE = 0.05  # of all images, in groups of two or more
LONG_NAME = 8  # characters; a random beginning so long does not repeat


def add_groups(images: pd.DataFrame, group_column: str) -> pd.DataFrame:
    """Return the images, with the column of a rule if GROUP_COLUMN is one.

    Printed: how many images it groups. An image that does not match has NA.
    Raises: ValueError: the rule has no parenthesis, fits no image, or nothing repeats.
    """
    if group_column == FROM_NAMES:
        pattern = _find_pattern(images)
        if pattern is None:
            raise ValueError(
                f"GROUP_COLUMN is '{FROM_NAMES}', but no beginning repeats in the "
                f"names of the {len(images):,} images. Set it to a column, to "
                f"'{NAMES}REGEX', or to \"\"."
            )
    elif group_column.startswith(NAMES):
        pattern = group_column.removeprefix(NAMES)
        _check_pattern(pattern)
    else:
        return images
    names = list_names(images)
    groups = _match(names, pattern)
    if groups.isna().all():
        raise ValueError(
            f"GROUP_COLUMN '{group_column}' matches none of the {len(names):,} names; "
            f"the first is '{names.iloc[0]}'. Change the regular expression."
        )
    sizes = groups.value_counts()
    print(
        f"GROUP_COLUMN '{NAMES}{pattern}': {sizes.sum():,} of {len(images):,} images "
        f"in {len(sizes):,} groups, the largest is '{sizes.index[0]}' with "
        f"{sizes.iloc[0]:,}; images that do not match stay single"
    )
    return images.assign(**{group_column: groups})


def _check_pattern(pattern: str) -> None:
    """Raise a ValueError for a pattern that cannot be read or has no parenthesis."""
    try:
        n_groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(
            f"GROUP_COLUMN has the regular expression '{pattern}', which cannot be "
            f"read: {error}. Fix it."
        ) from None
    if not n_groups:
        raise ValueError(
            f"GROUP_COLUMN has the regular expression '{pattern}', which has no "
            f"parenthesis. Put the group in one, as in '{NAMES}([^/]+)_[0-9]+$'."
        )


def list_names(images: pd.DataFrame) -> pd.Series:
    """Return the names that patterns match: paths without their extension.

    They begin below the folder that all images share. A record has its image_id.
    """
    is_record = images["path"].str.contains(r"#[0-9]+$")
    names = images["image_id"].where(is_record, images["path"])
    names = names.str.replace(IMAGE_NAME, "", regex=True)
    first = names.min()
    # Texts, whose last "/" ends the shared folder: `commonpath` would change gs://.
    shared = os.path.commonprefix([first, names.max()])  # noqa: RUF071
    return names.str.slice(shared.rfind("/") + 1)


def _match(names: pd.Series, pattern: str) -> pd.Series:
    """Return the group of each name, None where the pattern does not match.

    A beginning that any file can have, such as "IMG", is not a group.
    """
    compiled = re.compile(pattern)
    groups = []
    is_generic = cache(_is_generic)
    for name in names:
        match = compiled.search(name)
        is_group = match and match[1] and not is_generic(match[1])
        groups.append(match[1] if match and is_group else None)
    return pd.Series(groups, names.index, dtype=object)


def _is_generic(group: str) -> bool:
    """Return whether any file can have this beginning."""
    return _GENERIC.fullmatch(re.sub(r"[\W_]", "", group)) is not None


def propose_groups(images: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each proposal of a GROUP_COLUMN, none if nothing repeats.

    Columns: group_column; groups and images, those of two images or more; example, the
    largest group; shared, the share of validation images whose group is also in train,
    in the given splits or in random folds; given, whether splits are given.
    """
    proposals = []
    pattern = _find_pattern(images)
    if pattern is not None:
        groups = _match(list_names(images), pattern)
        proposals.append(_measure(f"{NAMES}{pattern}", groups, images))
    unknown = pd.Series("", images.index)
    times = images.get(EXIF_COLUMN, unknown)
    times = times.where(times != "")
    # Two cameras have images of the same second by chance, one camera by a burst.
    shots = images.get("exif_camera", unknown) + " " + times
    if _are_groups(shots, images):
        proposals.append(_measure(EXIF_COLUMN, times, images))
    columns = ["group_column", "groups", "images", "example", "shared", "given"]
    return pd.DataFrame(proposals, columns=columns)


def describe_groups(proposals: pd.DataFrame) -> str:
    """Return a sentence for each proposal of `propose_groups`."""
    if proposals.empty:
        return (
            "No groups are proposed: neither names nor EXIF times of the images repeat "
            "as those of recordings do. Groups that only you know can be a column of "
            "your CSV: set GROUP_COLUMN to it."
        )
    sentences = []
    for row in proposals.to_dict("records"):
        where = "In the given splits" if row["given"] else "In random folds"
        shared = "share" if row["given"] else "would share"
        accept = f'GROUP_COLUMN: "{row["group_column"]}"'
        if row["group_column"].startswith(NAMES):
            accept = f'GROUP_COLUMN: "{FROM_NAMES}", or edit {accept}'
        sentences.append(
            f"{row['images']:,} images are in {row['groups']:,} groups of two or more, "
            f"such as '{row['example']}'. {where}, {row['shared']:.0%} of the "
            f"validation images {shared} a group with images to train on. If a group "
            f"is one recording, patient or scene, set {accept}."
        )
    return "\n".join(sentences)


def describe_group_column(images: pd.DataFrame, group_column: str) -> str:
    """Return a sentence about the groups of images in a column that GROUP_COLUMN names.

    Test images are in no group, nor are images with an empty value.

    >>> plants = ["a", "a", "a", "b", "b", "c", "", "", None]
    >>> images = pd.DataFrame({"plant": plants, "split": ["test"] + 8 * ["train"]})
    >>> describe_group_column(images, "plant")
    "GROUP_COLUMN 'plant': 4 of 8 images outside test are in 2 groups of two or more, \
the largest is 'a' with 2. 03 keeps each of them in one fold."
    """
    not_test = images[images["split"] != "test"]
    groups = not_test[group_column]
    counts = groups[groups != ""].value_counts()
    sizes = counts[counts > 1]
    start = f"GROUP_COLUMN '{group_column}'"
    if sizes.empty:
        n_images = count_of(len(not_test), "image")
        return f"{start} has no group of two or more of {n_images} outside test."
    return (
        f"{start}: {sizes.sum():,} of {len(not_test):,} images outside test are in "
        f"{len(sizes):,} groups of two or more, the largest is '{sizes.index[0]}' with "
        f"{sizes.iloc[0]:,}. 03 keeps each of them in one fold."
    )


def _measure(group_column: str, groups: pd.Series, images: pd.DataFrame) -> dict:
    """Return a row of `propose_groups`."""
    sizes = groups.value_counts()
    repeated = sizes[sizes > 1]
    is_given, shared = _measure_shared(groups, images["split"])
    return {
        "group_column": group_column,
        "groups": len(repeated),
        "images": int(repeated.sum()),
        "example": repeated.index[0],
        "shared": shared,
        "given": is_given,
    }


def _measure_shared(groups: pd.Series, split: pd.Series) -> tuple[bool, float]:
    """Return whether validation is given, and its share with a group in train."""
    is_train = split == "train"
    is_validation = ~is_train & (split != "test")
    if is_validation.any():
        trained = set(groups[is_train].dropna())
        return True, groups[is_validation].isin(trained).mean()
    # All others of a group are in the same random fold with this probability.
    others = groups[is_train].map(groups[is_train].value_counts()).fillna(1) - 1
    alone = (1 / DEFAULTS["N_FOLDS"]) ** others.to_numpy(float)
    return False, float(1 - alone.mean())


def _find_pattern(images: pd.DataFrame) -> str | None:
    """Return the first of `PATTERNS` that groups the images, None if none does."""
    names = _sample_runs(list_names(images).sort_values())
    images = images.loc[names.index]
    sample = names.sample(min(len(names), SAMPLE), random_state=0)
    for pattern in PATTERNS:
        regex = _insert_words(pattern, sample)
        if not regex or _match(sample, regex).notna().mean() < MIN_SHARE:
            continue
        groups = _match(names, regex)
        if _are_groups(groups, images) and _has_evidence(names, groups, pattern):
            return regex
    return None


def _sample_runs(names: pd.Series) -> pd.Series:
    """Return all names, or `N_RUNS` runs of neighbours if there are more."""
    if len(names) <= N_RUNS * RUN:
        return names
    starts = [number * (len(names) - RUN) // (N_RUNS - 1) for number in range(N_RUNS)]
    return pd.concat([names.iloc[start : start + RUN] for start in starts])


def _insert_words(pattern: Pattern, names: pd.Series) -> str:
    """Return the regular expression with the words that names have, "" for none."""
    if not pattern.words:
        return pattern.regex
    found = names.str.extract(rf"((?i:{pattern.words})){_SEP}?[0-9]")[0]
    shares = found.value_counts() / len(names)
    words = sorted(shares.index[shares >= MIN_SHARE])
    if not words:
        return ""
    listed = words[0] if len(words) == 1 else f"(?:{'|'.join(words)})"
    return pattern.regex.replace("WORDS", listed)


def _are_groups(groups: pd.Series, images: pd.DataFrame) -> bool:
    """Return whether values repeat as those of groups do, not as classes or splits."""
    sizes = groups.map(groups.value_counts())
    is_joined = sizes > 1
    n_joined = is_joined.sum()
    joined = groups[is_joined]
    return bool(
        n_joined >= max(MIN_IMAGES, MIN_SHARE * len(images))
        and 2 * n_joined >= groups.notna().sum()
        and 2 * sizes.max() <= len(images)
        and joined.nunique() >= DEFAULTS["N_FOLDS"]
        and not _follow(joined, images["label_name"])
        and not _follow(joined, images["split"])
    )


def _follow(groups: pd.Series, classes: pd.Series) -> bool:
    """Return whether each class is one group, but for a tenth of its images."""
    classes = classes[groups.index]
    classes = classes[classes != ""]
    if classes.nunique() < 2:
        return False
    counts = classes.groupby([classes, groups[classes.index]]).size()
    of_class = counts.groupby(level=0)
    is_one_group = of_class.max() >= 0.9 * of_class.sum()
    return bool(is_one_group.mean() >= 0.9)


def _has_evidence(names: pd.Series, groups: pd.Series, pattern: Pattern) -> bool:
    """Return whether the groups are more than names that are alike by chance."""
    if not pattern.evidence:
        return True
    groups = groups.dropna()
    names = names[groups.index]
    if pattern.evidence == "restart":
        files = names.str.rpartition("/")[2]
        n_groups = groups.groupby(files).transform("nunique")
        return bool((n_groups > 1).mean() >= 0.5)
    sizes = groups.map(groups.value_counts())
    is_long = groups.str.len().median() >= LONG_NAME
    if is_long and (sizes >= 5).mean() >= 0.9:
        return True
    return _measure_runs(names, groups) >= 0.5


def _measure_runs(names: pd.Series, groups: pd.Series) -> float:
    """Return the share of neighbours in a group that are neighbours in all names.

    Names are ordered by what follows the group, numbers by their value. Frames and
    slices are counted, so their share is near 1; that of random endings is near 0.
    """
    tails = [
        name.rpartition(group)[2] for name, group in zip(names, groups, strict=True)
    ]
    ordered = sorted(set(tails), key=_natural_key)
    place = pd.Series(tails).map({tail: number for number, tail in enumerate(ordered)})
    table = pd.DataFrame({"group": groups.to_numpy(), "place": place})
    steps = table.sort_values(["group", "place"]).groupby("group")["place"].diff()
    steps = steps.dropna()
    return float((steps == 1).mean()) if len(steps) else 0.0


def _natural_key(text: str) -> list:
    """Return a sort key by which 9 comes before 10."""
    pieces = re.split(r"([0-9]+)", text)
    return [int(piece) if n % 2 else piece for n, piece in enumerate(pieces)]
