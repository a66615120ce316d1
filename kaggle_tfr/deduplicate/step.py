"""02 in one call: find the near-duplicates, and decide which images to keep."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from kaggle_tfr import explore, notebook
from kaggle_tfr.deduplicate.candidates import find_candidates, verify_candidates
from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.compare import (
    compare_datasets,
    list_overlap,
    name_copies,
    read_datasets,
)
from kaggle_tfr.deduplicate.corrections import apply_overrides
from kaggle_tfr.deduplicate.findings import note_findings
from kaggle_tfr.deduplicate.geometry import MIN_INLIERS, load_transforms
from kaggle_tfr.deduplicate.leaks import RANKS, find_leaks
from kaggle_tfr.deduplicate.outcomes import (
    DuplicateSettings,
    count_outcomes,
    save_clusters,
)
from kaggle_tfr.deduplicate.overrides import read_overrides, save_overrides
from kaggle_tfr.images.orientation import INVERSE
from kaggle_tfr.mounts import find_beside
from kaggle_tfr.naming import SPLIT_NAMES
from kaggle_tfr.parameters import Values, make_settings

VERDICTS = ["hash", "geometry", "rejected", "user"]
# Columns of `Found.pairs`, once for each image, and those of `Found.images`.
FACTS = {"id": "image_id", "label": "label_name", "split": "split", "path": "path"}
# The pairs that were decided most narrowly: role, verdict, column, and whether its
# lowest value is the narrowest.
BORDER = (
    ("farthest within MAX_BITS", "hash", "bits", False),
    ("farthest confirmed", "geometry", "bits", False),
    ("fewest matches confirmed", "geometry", "matches", True),
    ("nearest rejected", "rejected", "bits", True),
    ("most matches rejected", "rejected", "matches", False),
)


@dataclass(frozen=True)
class Found:
    """What 02 found.

    images: all images of 01, with the labels of OVERRIDES.
    pairs: one row per pair within MAX_BITS or compared by its geometry, the nearest
        first. Columns: id, label, split and path of both images (id_a, id_b, …); bits;
        matches (-1: not compared); orientation (EXIF), which rotates b as a is;
        verdict: what decided ("hash", "geometry", "rejected" by geometry, "user");
        accepted: whether the pair counts; same_label (1 or 0, NaN without two labels);
        a, b: row numbers of `images`; transform: of `load_transforms`, None without 12
        matches. a is the test image, or the validation image of a pair with train.
    border: of `pairs`, at most five that were decided most narrowly, and their role.
    clusters: as in duplicates.parquet.
    conflicts: of `pairs`, one for each cluster with contradictory labels.
    leaks: of `pairs`, the accepted ones in two splits.
    overlap: the images that COMPARE_WITH contains, too, one row per pair.
    decisions: of OVERRIDES, with their effects.
    counts: number of images by outcome; their sum is len(images).
    """

    images: pd.DataFrame
    pairs: pd.DataFrame
    border: pd.DataFrame
    clusters: pd.DataFrame
    conflicts: pd.DataFrame
    leaks: pd.DataFrame
    overlap: pd.DataFrame
    decisions: pd.DataFrame
    counts: dict[str, int]


def run(values: Values) -> Found:
    """Find near-duplicates, decide which images to keep, and save the files for 03.

    values: the parameters of 02 by name, for example a notebook's `globals()`.
    Raises: FileNotFoundError: 01_explore has not run; ValueError: OVERRIDES or
    COMPARE_WITH cannot be applied.
    """
    work = notebook.begin("02_deduplicate", values)
    print(explore.use_earlier(values["FOLDS_FROM"], work))
    images, labels = explore.load_images(work)
    file = values["OVERRIDES"] and find_beside(values["OVERRIDES"], work)
    overrides = read_overrides(file, images, labels)
    others = read_datasets([find_beside(part, work) for part in values["COMPARE_WITH"]])
    hashes = explore.load_hashes(images, work)

    settings = make_settings(DuplicateSettings, values)
    candidates = find_candidates(hashes, settings)
    print(candidates.explanation)
    verified = verify_candidates(images, candidates, settings, work)
    accepted = verified[verified["accepted"]]

    copies = compare_datasets(hashes, others, settings)
    rules = {name: values[name.upper()] for name in ("keep", "conflicts", "leaks")}
    rules["copies"] = name_copies(copies)
    clusters = find_clusters(images, accepted, **rules)
    corrected = apply_overrides(
        overrides, images, labels, accepted, clusters, hashes=hashes, **rules
    )
    leaks = find_leaks(corrected.images, corrected.pairs, corrected.clusters)
    overlap = list_overlap(corrected.images, copies, corrected.clusters)

    save_overrides(overrides, corrected.effects, work)
    settings = replace(settings, second_look=candidates.second_look)
    save_clusters(corrected.clusters, leaks, settings, work, overlap)
    note_findings(corrected, leaks, others, overlap)
    pairs = _describe_pairs(corrected.images, _list_pairs(verified, corrected.pairs))
    transforms = load_transforms(work)
    paths = zip(pairs["path_a"], pairs["path_b"], strict=True)
    matrices = pd.Series([transforms.get(ends) for ends in paths], dtype=object)
    pairs = pairs.assign(transform=matrices)
    accepted = pairs[pairs["accepted"]]
    use_a = accepted["split_a"].map(SPLIT_NAMES)
    use_b = accepted["split_b"].map(SPLIT_NAMES)
    counts = count_outcomes(corrected.images, corrected.clusters)
    return Found(
        images=corrected.images,
        pairs=pairs,
        border=_choose_border(pairs),
        clusters=corrected.clusters,
        conflicts=_choose_conflicts(accepted, corrected.clusters),
        leaks=accepted[use_a != use_b],
        overlap=overlap,
        decisions=corrected.effects,
        counts={
            name.replace("records", "images kept"): count
            for name, count in counts.items()
        },
    )


def _list_pairs(verified: pd.DataFrame, final: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs with their verdict, and whether they are accepted.

    final: the accepted pairs, of which the user may have added or removed some.
    """
    pairs = pd.concat([verified, final]).drop_duplicates(["a", "b"])
    key = pd.MultiIndex.from_frame(pairs[["a", "b"]])
    is_accepted = key.isin(pd.MultiIndex.from_frame(final[["a", "b"]]))
    is_removed = pairs["accepted"] & ~is_accepted
    is_confirmed = pairs["inliers"] >= MIN_INLIERS
    verdict = np.select(
        [is_removed, pairs["is_near"], is_confirmed, is_accepted],
        ["user", "hash", "geometry", "user"],
        "rejected",
    )
    pairs = pairs.assign(
        verdict=pd.Categorical(verdict, VERDICTS),
        accepted=is_accepted,
    )
    return pairs.sort_values("distance", kind="stable", ignore_index=True)


def _describe_pairs(images: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of `Found.pairs` but the transform."""
    rank = images["split"].map(SPLIT_NAMES).map(RANKS).to_numpy()
    is_swapped = rank[pairs["a"]] > rank[pairs["b"]]
    ends = {
        "a": pairs["a"].mask(is_swapped, pairs["b"]),
        "b": pairs["b"].mask(is_swapped, pairs["a"]),
    }
    facts = {
        f"{name}_{side}": images[column].to_numpy()[rows]
        for name, column in FACTS.items()
        for side, rows in ends.items()
    }
    described = pd.DataFrame(facts)
    inverse = pairs["orientation"].map(INVERSE)
    has_labels = (described["label_a"] != "") & (described["label_b"] != "")
    is_same = described["label_a"] == described["label_b"]
    return described.assign(
        bits=pairs["distance"],
        matches=pairs["inliers"],
        orientation=pairs["orientation"].mask(is_swapped, inverse),
        verdict=pairs["verdict"],
        accepted=pairs["accepted"],
        same_label=is_same.astype(float).where(has_labels),
        **ends,
    )


def _choose_border(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return a pair for each row of `BORDER` that has one; no pair is there twice."""
    chosen = []
    for role, verdict, column, is_lowest in BORDER:
        of_verdict = pairs[pairs["verdict"] == verdict]
        narrowest = of_verdict.sort_values(column, ascending=is_lowest, kind="stable")
        pair = narrowest.head(1)
        pairs = pairs.drop(pair.index)
        chosen.append(pair.assign(role=role))
    return pd.concat(chosen)


def _choose_conflicts(accepted: pd.DataFrame, clusters: pd.DataFrame) -> pd.DataFrame:
    """Return the nearest pair with two labels of each cluster with a conflict."""
    members = clusters[clusters["conflict"]]
    cluster_of = dict(zip(members["path"], members["cluster"], strict=True))
    differing = accepted[accepted["same_label"] == 0]
    cluster = differing["path_a"].map(cluster_of)  # a test image has no conflict
    return differing[cluster.notna() & ~cluster.duplicated()]
