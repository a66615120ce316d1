"""02 in one call: find the near-duplicates, and decide which images to keep."""

import pandas as pd

from kaggle_tfr import explore, notebook, storage
from kaggle_tfr.deduplicate.clusters import find_clusters, find_leaks
from kaggle_tfr.deduplicate.compare import find_overlap, read_datasets
from kaggle_tfr.deduplicate.findings import Found, note_findings
from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.outcomes import (
    DuplicateSettings,
    count_outcomes,
    match_clusters,
    save_clusters,
)
from kaggle_tfr.deduplicate.overrides import (
    FILE,
    correct_images,
    correct_pairs,
    read_overrides,
)
from kaggle_tfr.deduplicate.pairs import find_candidates, read_codes
from kaggle_tfr.find import KAGGLE_TEMP, find_beside
from kaggle_tfr.parameters import Values, make_settings

FACTS = ["image_id", "label_name", "split", "path"]  # of both images of a pair


def run(values: Values) -> Found:
    """Find near-duplicates, decide which images to keep, and save the files for 03.

    These are decisions.parquet, leaks.csv, duplicates.json and duplicates.parquet.
    Return the tables of what was found, for the notebook.
    values: the parameters of 02 by name, for example a notebook's `globals()`.
    Raises: FileNotFoundError: 01_explore has not run; ValueError: OVERRIDES or
    COMPARE_WITH cannot be applied.
    """
    work = notebook.begin("02_deduplicate", values)
    settings = make_settings(DuplicateSettings, values)
    images, labels = explore.load_images(work)
    # Where files are looked for; the last two have those of the bundled sample, such as
    # sample/overrides.csv.
    folders = ("", work, KAGGLE_TEMP)
    file = find_beside(values["OVERRIDES"], *folders)
    decisions = read_overrides(file, images, labels)
    parts = [find_beside(part, *folders) for part in values["COMPARE_WITH"]]
    others = read_datasets(parts)
    hashes = explore.load_hashes(images, work)
    # With all 80 columns, distances are those of the nearest orientation.
    codes = read_codes(hashes)[:, : 80 if settings.mirrored else 32]

    # The settings then have what SECOND_LOOK did.
    pairs, settings = find_candidates(hashes, settings)
    pairs = verify_geometry(images, pairs, settings, work)
    pairs = correct_pairs(pairs, decisions, codes)
    overlap = find_overlap(hashes, others, settings)
    images = correct_images(images, decisions, labels)
    images["is_elsewhere"] = images.index.isin(overlap["row"])
    clusters = find_clusters(images, pairs[pairs["accepted"]], codes, settings)
    leaks = find_leaks(clusters, codes)
    # FACTS: image_id, label_name, split and path; with cluster, keep and reason.
    overlap = overlap.join(match_clusters(images[FACTS], clusters), on="row")

    storage.write_parquet(decisions, f"{work}/{FILE}")
    save_clusters(clusters, pd.concat([leaks, overlap]), settings, work)
    found = Found(
        images,
        _describe_pairs(pairs, images),
        clusters,
        leaks,
        overlap,
        decisions,
        count_outcomes(images, clusters),
    )
    note_findings(found, others)
    return found


def _describe_pairs(pairs: pd.DataFrame, images: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs as in `Found.pairs`: nearest first, with facts of both images.

    Columns distance and inliers become bits and matches; `FACTS` (image_id, label_name,
    split, path) are added with the endings _a and _b. a, b: row numbers of `images`.
    """
    pairs = pairs.sort_values("distance", kind="stable", ignore_index=True)
    pairs = pairs.rename(columns={"distance": "bits", "inliers": "matches"})
    for end in ("a", "b"):
        pairs = pairs.join(images[FACTS].add_suffix(f"_{end}"), on=end)
    return pairs
