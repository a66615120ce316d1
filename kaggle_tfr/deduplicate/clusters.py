"""Join near-duplicates to clusters, and decide which images of a cluster are kept.

Images that are connected by pairs form one cluster. Example: image a is 4 bits from b,
and b is 3 bits from c. All three are one cluster, although a and c may be far apart.
The best image, by KEEP, is kept, and its copies are dropped: all images within twice
MAX_BITS of it, and those that geometry or the user confirms as its copies. If others
remain, as in a slow fade, the best of these is kept, too, and so on.

Test images are always kept, and do not influence which labelled images are kept, unless
leaks are dropped. An image that the user drops has no vote on the label of its cluster.
Images with a record in an earlier part are always kept.

A cluster with images of two splits, such as test and train, is a leak.
"""

import numpy as np
import pandas as pd
from scipy.sparse import coo_matrix, csgraph

from kaggle_tfr.deduplicate.outcomes import DuplicateSettings
from kaggle_tfr.deduplicate.pairs import count_bits
from kaggle_tfr.earlier import mark_recorded

COLUMNS = [
    "image_id",
    "cluster",
    "distance",
    "keep",
    "reason",
    "path",
    "label_name",
    "split",
    "conflict",
]
RANKS = {"test": 0, "train": 2}  # of the splits of a leak; a validation set is 1
LOWEST_FIRST = ("is_test", "source", "image_id")  # of the columns to rank by
BEST = "kept: best of its copies"


def find_clusters(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    codes: np.ndarray,
    settings: DuplicateSettings,
) -> pd.DataFrame:
    """Return one row per image in a cluster of two or more: kept or dropped, and why.

    images: columns image_id, path, label, label_name, split, source, height, width,
        n_bytes, decision ("keep" or "drop" of OVERRIDES), is_elsewhere
        (whether another dataset contains the image) and, if the dataset grows, part.
    pairs: accepted pairs: a, b (row numbers of `images`), distance (bits).
    codes: of `read_codes`, the hashes, a row per image.
    settings: keep: the "largest" (pixels, then bytes, then name) or "first" image of
        the lowest source of each cluster, or "all". conflicts, if labels differ: "drop"
        the cluster, keep an image of the "majority", or "keep" an image of any label.
        leaks, the labelled images in a cluster with a test image, or with an image that
        another dataset contains: "report" (and keep) or "drop" them.
    An image that the user drops, or that is dropped because another dataset contains
    it, is a cluster of one if it has no near-duplicate.

    Index: row numbers of `images`. Columns: image_id, cluster, distance, keep, reason,
    path, label_name, split, conflict. cluster counts from 0 in the order of the table.
    distance: bits to the image of which it is a copy. conflict: the cluster has several
    labels; never true for a test image.
    """
    members = _list_members(images, pairs, settings)
    members = _compare_labels(members, settings)
    members = _rank(members, settings)  # sorted, the best image first
    members = _choose_kept(members, pairs, codes, settings)
    # In the order of the table again.
    return _decide(members.sort_index(), settings)[COLUMNS]


def _list_members(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    settings: DuplicateSettings,
) -> pd.DataFrame:
    """Return the images in clusters; new columns: cluster, and those named is_….

    Members are all images of `pairs`, and those that LEAKS or the user drops: these may
    be a cluster of one. cluster counts from 0 in the order of the table.
    is_test: the split is test.
    is_fixed: kept in any case, because it has a record in an earlier part, or is a test
    image. is_always_kept: labelled, and kept in any case, because it has a record, or
    because the user keeps it. is_leak: it makes its cluster a leak, of which LEAKS
    drops the labelled images.
    """
    is_test = images["split"] == "test"
    is_recorded = mark_recorded(images)
    is_fixed = is_test | is_recorded
    is_always_kept = ~is_test & (is_recorded | (images["decision"] == "keep"))
    is_leak = (settings.leaks == "drop") & (is_test | images["is_elsewhere"])
    is_dropped = is_leak | (images["decision"] == "drop")

    ends = pairs[["a", "b"]].to_numpy(np.int64).T
    is_paired = images.index.isin(ends.ravel())
    is_member = is_paired | (is_dropped & ~is_fixed)
    component = _find_components(ends, len(images))
    members = images.assign(
        is_test=is_test,
        is_fixed=is_fixed,
        is_always_kept=is_always_kept,
        is_leak=is_leak,
    )[is_member]
    # Components, which have all images, are numbered again for the members.
    members["cluster"], _ = pd.factorize(component[is_member])
    return members


def _find_components(ends: np.ndarray, n_images: int) -> np.ndarray:
    """Return the number of each image's component, connected by pairs: int (n_images,).

    ends: the row numbers of both images of each pair, int64 (2, n).
    """
    is_edge = np.ones(ends.shape[1], bool)
    graph = coo_matrix((is_edge, tuple(ends)), shape=(n_images, n_images))
    _, component = csgraph.connected_components(graph, directed=False)
    return component


def _compare_labels(members: pd.DataFrame, settings: DuplicateSettings) -> pd.DataFrame:
    """Add conflict, and may_stay: whether CONFLICTS and the user allow that it is kept.

    conflict: the image's cluster has two labels; False for test images. Labels of test
    images and of images that the user drops do not count; an image without a label
    agrees with every other one.
    may_stay, in a conflict: of no image if CONFLICTS is "drop", of those with the most
    frequent label by "majority" (of none if two labels are as frequent), of all by
    "keep". That of test images is not used: they are always kept.
    """
    cluster = members["cluster"]
    is_dropped = members["decision"] == "drop"
    has_vote = (members["label"] >= 0) & ~members["is_test"] & ~is_dropped
    label = members["label"].where(has_vote)
    conflict = label.groupby(cluster).transform("nunique") > 1
    may_stay = ~conflict | (settings.conflicts == "keep")
    if settings.conflicts == "majority":
        votes = label.groupby([cluster, label]).transform("size")
        is_winner = votes == votes.groupby(cluster).transform("max")
        # The sum counts the images of all winning labels. It equals the votes for one
        # label if no other label wins: of two with as many votes neither does.
        may_stay |= is_winner.groupby(cluster).transform("sum") == votes
    return members.assign(
        conflict=conflict & ~members["is_test"],
        may_stay=may_stay & ~is_dropped,
    )


def _rank(members: pd.DataFrame, settings: DuplicateSettings) -> pd.DataFrame:
    """Return the members in the order in which they are preferred, the best first.

    Labelled images precede test images, so that these do not decide which labelled
    images are kept.
    Of each, first come images with a record, then those that CONFLICTS and the user
    allow to be kept (may_stay), then those of the lowest source (0: the main input); by
    KEEP "largest" and "all", those of most pixels, of most bytes and the first name; by
    "first", those that come first in the table.
    """
    members = members.assign(n_pixels=members["height"] * members["width"])
    order = ["is_test", "is_fixed", "may_stay", "source"]
    if settings.keep != "first":
        order += ["n_pixels", "n_bytes", "image_id"]
    # LOWEST_FIRST: is_test, source and image_id; of others, the highest value is first.
    is_ascending = [name in LOWEST_FIRST for name in order]
    return members.sort_values(order, ascending=is_ascending)


def _choose_kept(
    ranked: pd.DataFrame,
    pairs: pd.DataFrame,
    codes: np.ndarray,
    settings: DuplicateSettings,
) -> pd.DataFrame:
    """Add original, the row of the image that each one is a copy of, and distance.

    distance: bits between the two. ranked: of `_rank`, the best first; the order stays.
    The best image of a cluster is an original; so is the best of those that are not its
    copies, and so on. A copy is within twice MAX_BITS of the original, or geometry or
    the user has confirmed a pair of it with the original, or with an image that has a
    record or that the user keeps (is_always_kept).
    """
    always_kept = ranked.index[ranked["is_always_kept"]]
    exact = pairs.query("distance == 0")
    ranked = ranked.assign(original=-1, distance=0)
    # Images without an original so far, in the order of `ranked`. In each round every
    # cluster gets one original, which is a copy of itself.
    row = ranked.index.to_series()
    while len(row):
        original = row.groupby(ranked["cluster"]).transform("first")
        distance = count_bits(codes, original, row)
        # Of images with equal hashes, only the first in the table has other pairs. So
        # the partners of all that equal the original count, and what equals these.
        equal = row.index[distance == 0]
        confirmed = _list_partners(pairs, equal.union(always_kept))
        confirmed = np.append(confirmed, _list_partners(exact, confirmed))
        is_copy = (distance <= 2 * settings.max_bits) | row.isin(confirmed)
        copies = pd.DataFrame({"original": original, "distance": distance})[is_copy]
        ranked.loc[copies.index, [*copies]] = copies
        row = row[~is_copy]
    return ranked


def _list_partners(pairs: pd.DataFrame, rows: pd.Index | np.ndarray) -> np.ndarray:
    """Return the rows that are paired with one of these: int64 (n,), may repeat.

    pairs: row numbers a < b.
    """
    later = pairs["b"][pairs["a"].isin(rows)]
    earlier = pairs["a"][pairs["b"].isin(rows)]
    return np.append(later, earlier)


def _decide(members: pd.DataFrame, settings: DuplicateSettings) -> pd.DataFrame:
    """Add keep (bool) and reason (text); of the reasons that fit, the first counts.

    members: of `_choose_kept`, with is_leak for images that make a cluster a leak.
    """
    cluster = members["cluster"]
    user_keeps = members["decision"] == "keep"
    is_leak = members["is_leak"].groupby(cluster).transform("any")
    is_original = members["original"] == members.index
    may_stay = members["may_stay"] & ~is_leak
    is_chosen = may_stay & (is_original | (settings.keep == "all"))
    # If none fits, the image is an original: BEST, "kept: best of its copies".
    reasons = {
        "test image: always kept": members["is_test"],
        "earlier": members["is_fixed"],
        "override: dropped": members["decision"] == "drop",
        "override: kept": user_keeps,
        "leak": is_leak,
        "conflict": ~members["may_stay"],
        "duplicate": ~is_chosen,
        "kept: KEEP is all": ~is_original,
    }
    return members.assign(
        keep=is_chosen | user_keeps | members["is_fixed"],
        reason=np.select([*reasons.values()], list(reasons), BEST),
    )


def find_leaks(clusters: pd.DataFrame, codes: np.ndarray) -> pd.DataFrame:
    """Return the leaks: pairs of images of two splits in one cluster.

    Each image is paired with one image of each other split in its cluster: the first
    that is kept, or the first if none is.
    clusters: of `find_clusters`. codes: of `read_codes`.
    Columns: distance (bits), dataset ("", this one), and those of both images, of the
    test image (or the validation image of a pair with train) with the ending _a. Sorted
    by row_a, distance and row, the row numbers.
    """
    members = clusters.reset_index(names="row")
    # A pair is of two ranks, the lower one first: test 0, validation 1, train 2.
    members["rank"] = members["split"].map(RANKS).fillna(1)
    # Kept images first, then the first of each rank in each cluster.
    firsts = members.sort_values("keep", ascending=False, kind="stable")
    firsts = firsts.drop_duplicates(["cluster", "rank"])
    # Each member with the first of each rank in its cluster, at either end of the pair.
    pairs = [
        first.merge(second, on="cluster", suffixes=("_a", ""))
        for first, second in ((members, firsts), (firsts, members))
    ]
    leaks = pd.concat(pairs).drop_duplicates(["row_a", "row"])
    leaks = leaks[leaks["rank_a"] < leaks["rank"]]
    distance = count_bits(codes, leaks["row_a"], leaks["row"])
    leaks = leaks.assign(distance=distance, dataset="")
    return leaks.sort_values(["row_a", "distance", "row"], ignore_index=True)
