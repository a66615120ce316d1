"""The result of `assign_folds`: check it, note it, and list it in folds.csv.

folds.csv is for all frameworks: it contains what became of every input image.
"""

import numpy as np
import pandas as pd

from kaggle_tfr.deduplicate.outcomes import match_clusters
from kaggle_tfr.earlier import GONE, mark_recorded
from kaggle_tfr.images.hashing import FLAT, HASHES
from kaggle_tfr.naming import OVERRIDE_GROUP
from kaggle_tfr.notebook import note
from kaggle_tfr.plan.folds import list_marks
from kaggle_tfr.schema import Labels

NO_LABEL = "(no label)"
NEVER_VALIDATES = "train only"
N_SAMPLED = 300
COLUMNS = [  # of folds.csv, besides those of several labels
    "image_id",
    "source",
    "path",
    "label",
    "label_name",
    "split",
    "fold",
    "cluster",
    "keep",
    "reason",
]
Numbers = dict[str, float]


def count_by_fold(folded: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Count the images of each class (rows) in each fold and split (columns).

    The columns are the names of `name_places`, such as "fold 2" and "test". The class
    with most images is first; a class without images has zeros. Test images without a
    label are left out; others are the row "(no label)" if each image has one class.
    folded: the result of `assign_folds`.
    """
    is_labelled = folded["label_name"] != ""
    folded = folded[is_labelled | (folded["split"] != "test")]
    place = name_places(folded)
    if labels.class_columns:  # several labels or masks: a column for each class
        counts = list_marks(folded, labels.class_columns).groupby(place).sum().T
    else:
        counts = pd.crosstab(folded["label_name"].replace("", NO_LABEL), place)
        # Classes that are in `labels`, but have no image, too.
        names = counts.index.union([*map(str, labels.classes)])
        counts = counts.reindex(names, fill_value=0)
    return counts.iloc[np.argsort(-counts.sum(axis=1), kind="stable")]


def name_places(folded: pd.DataFrame) -> pd.Series:
    """Return the name of each image's fold, or of its split where it has no fold.

    Such as "fold 2", "test", and "train only" for train images outside the folds.
    Without folds, when all train images are in fold 0, it is always the split.
    """
    if folded["fold"].max() < 1:
        return folded["split"]
    split = folded["split"].replace("train", NEVER_VALIDATES)
    return split.mask(folded["fold"] >= 0, "fold " + folded["fold"].astype(str))


def check_leakage(folded: pd.DataFrame, group_column: str = "") -> Numbers:
    """Count what crosses the folds of a finished table.

    Keys of the result:
    clusters_across_folds: clusters and groups with rows in two folds; must be 0. The
        split validation counts as a fold, test does not. Clusters of earlier images
        only, which have a record in a finished part, do not count.
    clusters_across_test: clusters with test rows and other rows.
    folded: of `assign_folds`. group_column: "" for none.
    Raises: ValueError: a number that must be 0 is not.
    """
    is_test = folded["split"] == "test"
    rows = folded.assign(
        place=name_places(folded),
        is_new=~mark_recorded(folded),
    )
    rows = rows[~is_test]
    n_crossing = 0
    # OVERRIDE_GROUP: the column of the groups that the user sets by hand.
    for column in rows.columns.intersection(["cluster", OVERRIDE_GROUP, group_column]):
        no_value = -1 if column == "cluster" else ""
        groups = rows[rows[column] != no_value].groupby(column)
        # Earlier images stay where they were, so they alone are not a fault.
        n_crossing += (groups["is_new"].any() & groups["place"].nunique().gt(1)).sum()
    if n_crossing:
        raise ValueError(
            f"The folds leak into one another: {n_crossing} clusters or groups are in "
            "two of them. Run 02_deduplicate and 03_plan again."
        )

    cluster = folded["cluster"]
    # The number of different values of `is_test`: 2 for test rows and others.
    n_sides = is_test[cluster >= 0].groupby(cluster).nunique()
    n_across = n_sides.gt(1).sum()
    return {"clusters_across_folds": 0, "clusters_across_test": int(n_across)}


def compare_sample(
    folded: pd.DataFrame,
    hashes: pd.DataFrame,
    max_bits: int,
    different_rows: np.ndarray,
) -> Numbers:
    """Compare 300 new images with all others by hashes, to check the folds again.

    The clusters of 02 are not used, so the check also finds pairs that 02 has missed.
    Return sampled_images (300, or fewer if there are fewer) and
    sampled_pairs_across_folds, 0. Left out: test images, images of almost no texture
    (their hashes are random), and images that the user calls different from a near one.
    hashes: of `load_hashes`; `folded` has their index. different_rows: the index of the
    images that the user calls different, of `load_corrected`.
    Raises: ValueError: a pair within `max_bits` bits is in two folds or splits.
    """
    rows = folded.join(hashes[[*HASHES, "texture"]])
    rows = rows.drop(different_rows, errors="ignore")
    rows = rows[(rows["texture"] >= FLAT) & (rows["split"] != "test")]
    place, _ = pd.factorize(name_places(rows))  # a number for each name
    words = rows[[*HASHES]].to_numpy().T  # uint64 (4, rows): 256 bits an image
    new = np.flatnonzero(~mark_recorded(rows))
    sampled = np.random.default_rng(0).permutation(new)[:N_SAMPLED]
    n_pairs = 0
    for number in sampled:
        n_bits = np.bitwise_count(words ^ words[:, [number]]).sum(axis=0)
        is_leak = (n_bits <= max_bits) & (place != place[number])
        n_pairs += is_leak.sum()
    if n_pairs:
        raise ValueError(
            f"The folds leak into one another: {n_pairs} pairs of near-duplicates are "
            "in two of them. Run 02_deduplicate and 03_plan again."
        )
    return {"sampled_images": len(sampled), "sampled_pairs_across_folds": 0}


def note_folds(folded: pd.DataFrame, labels: Labels, checks: dict) -> None:
    """Note the size of each fold and split, the checks, and classes that lack a fold.

    folded: of `assign_folds`, checked. checks: of `check_leakage` and `compare_sample`,
    and max_bits, the radius of near-duplicates.
    """
    sizes = name_places(folded).value_counts().sort_index()
    listed = [f"{n:,} in {place}" for place, n in sizes.items()]
    note(
        "✓",
        f"Images: {', '.join(listed)}. Test and earlier images aside, no cluster of "
        "near-duplicates, no group of GROUP_COLUMN and no pair within "
        f"{checks['max_bits']} bits is in two folds or splits; for the pairs, "
        f"{checks['sampled_images']:,} images were compared with all others. Clusters "
        f"that contain test images and others: {checks['clusters_across_test']:,}.",
        "folds",
    )
    # Test images and those that never validate need not have every class.
    counts = count_by_fold(folded, labels).drop(
        index=NO_LABEL, columns=["test", NEVER_VALIDATES], errors="ignore"
    )
    missing = counts[(counts == 0).any(axis=1)]
    if not missing.empty:
        note(
            "!",
            f"{len(missing):,} of {len(counts):,} classes are not in every fold and "
            f"split, such as {missing.index[0]}.",
            "folds: classes",
            "Scores there do not cover them. Add images, or use fewer folds.",
        )


def list_folds(
    images: pd.DataFrame,
    clusters: pd.DataFrame,
    folded: pd.DataFrame,
    label_columns: tuple[str, ...],
) -> pd.DataFrame:
    """Return the table of folds.csv: a row per input image, in the order of `images`.

    With FOLDS_FROM, also one per image of an earlier part whose file is gone.

    images, clusters: of 01 and 02. folded: of `assign_folds`, from the rows that
    `choose_rows` returns for them. label_columns: those of `images`, see `Labels`.

    Columns: `COLUMNS` and `label_columns`. path: below the INPUT_DIR of its source (0:
    the main input, else the number in MORE_INPUTS). fold: -1 outside the folds. A copy
    that is dropped has the split and the fold of its cluster. cluster: -1 for none.
    keep: whether the image is written, or an earlier part has it and its file is here.
    reason: why, or why not.
    """
    table = match_clusters(images, clusters)
    is_good = images["problem"] == ""
    reason = table["reason"].fillna("kept: no copy found")
    reason = reason.mask(~is_good, "rejected: " + images["problem"])
    if "part" in images:
        reason = reason.mask(
            mark_recorded(images), "earlier: part " + images["part"].astype(str)
        )

    # Such a path is that of a record in a part whose image has no file.
    is_gone = images["path"].str.startswith(GONE)
    paths = images.groupby("input_dir", observed=True)["path"]
    # `name` is that of the group: its folder.
    path = paths.transform(lambda paths: paths.str.removeprefix(f"{paths.name}/"))
    table = _place_copies(table, folded).assign(
        path=path.mask(is_gone, ""),
        keep=table["keep"] & is_good & ~is_gone,
        reason=reason,
    )
    return table[[*COLUMNS, *label_columns]]


def _place_copies(table: pd.DataFrame, folded: pd.DataFrame) -> pd.DataFrame:
    """Return `table` with the split, fold and cluster of each image, for folds.csv.

    A dropped copy has the split and fold of the kept image of its cluster, so that no
    copy is in another fold. If earlier parts have a cluster in two folds or splits, its
    rows have no cluster (-1), and its dropped copies no fold (-1).
    table: of `match_clusters`, all images. folded: of `assign_folds`, the kept images.
    """
    cluster = table["cluster"]
    # A row that is alone has a negative number, which no other row has.
    is_alone = (cluster < 0) | (table["split"] == "test")
    group = cluster.mask(is_alone, -1 - table.index.to_numpy())
    place = folded[["split", "fold"]].reindex(table.index)  # NA: the row is dropped
    groups = place.groupby(group)
    is_torn = (groups.transform("nunique") > 1).any(axis=1)  # in two folds or splits
    place = place.fillna(groups.transform("first").mask(is_torn))
    # Torn, or no row of the group is kept: the split of 01, and no fold.
    place = place.fillna(table[["split"]]).fillna(-1)
    place = place.astype({"fold": "int64"})
    is_torn = is_torn.groupby(cluster).transform("any")
    return table.assign(cluster=cluster.mask(is_torn, -1), **place)
