"""02 in one call: find the near-duplicates, and decide which images to keep."""

from dataclasses import replace

import numpy as np
import pandas as pd

from kaggle_tfr import explore, notebook, storage
from kaggle_tfr.deduplicate.candidates import find_candidates, verify_candidates
from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.compare import find_overlap, read_datasets
from kaggle_tfr.deduplicate.findings import Found, note_findings
from kaggle_tfr.deduplicate.leaks import find_leaks
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
from kaggle_tfr.deduplicate.pairs import read_codes
from kaggle_tfr.mounts import find_beside
from kaggle_tfr.parameters import Values, make_settings

# Columns of `Found.images`, and those of both images in `Found.pairs`.
FACTS = {"image_id": "id", "label_name": "label", "split": "split", "path": "path"}


def run(values: Values) -> Found:
    """Find near-duplicates, decide which images to keep, and save the files for 03.

    values: the parameters of 02 by name, for example a notebook's `globals()`.
    Raises: FileNotFoundError: 01_explore has not run; ValueError: OVERRIDES or
    COMPARE_WITH cannot be applied.
    """
    work = notebook.begin("02_deduplicate", values)
    images, labels = explore.load_images(work)
    file = values["OVERRIDES"] and find_beside(values["OVERRIDES"], work)
    decisions = read_overrides(file, images, labels)
    others = read_datasets([find_beside(part, work) for part in values["COMPARE_WITH"]])
    hashes = explore.load_hashes(images, work)
    settings = make_settings(DuplicateSettings, values)
    codes = read_codes(hashes)[:, : 80 if settings.mirrored else 32]

    candidates = find_candidates(hashes, settings)
    print(candidates.explanation)
    pairs = verify_candidates(images, candidates, settings, work)
    confirmed = np.where(pairs["accepted"], "geometry", "rejected")
    pairs["verdict"] = np.where(pairs.pop("is_near"), "hash", confirmed)
    pairs = correct_pairs(pairs, decisions, codes)
    overlap = find_overlap(hashes, others, settings)
    images = correct_images(images, decisions, labels)
    images["is_elsewhere"] = images.index.isin(overlap["row"])

    rules = {name: values[name.upper()] for name in ("keep", "conflicts", "leaks")}
    accepted = pairs[pairs["accepted"]]
    clusters = find_clusters(
        images, accepted, codes, max_bits=settings.max_bits, **rules
    )
    leaks = find_leaks(clusters, codes)
    facts = match_clusters(images, clusters)[
        ["image_id", "label_name", "split", "keep"]
    ]
    overlap = overlap.join(facts.add_suffix("_b"), on="row")

    storage.write_parquet(decisions, storage.join(work, FILE))
    settings = replace(settings, second_look=candidates.second_look)
    save_clusters(clusters, pd.concat([leaks, overlap]), settings, work)
    found = Found(
        images=images,
        pairs=_describe_pairs(pairs, images),
        clusters=clusters,
        leaks=leaks,
        overlap=overlap,
        decisions=decisions,
        counts=count_outcomes(images, clusters),
    )
    note_findings(found, others)
    return found


def _describe_pairs(pairs: pd.DataFrame, images: pd.DataFrame) -> pd.DataFrame:
    """Return `Found.pairs`."""
    pairs = pairs.sort_values("distance", kind="stable", ignore_index=True)
    pairs = pairs.rename(columns={"distance": "bits", "inliers": "matches"})
    facts = images[[*FACTS]].rename(columns=FACTS)
    for end in ("a", "b"):
        facts_of_end = facts.loc[pairs[end]].reset_index(drop=True)
        pairs = pairs.join(facts_of_end.add_suffix(f"_{end}"))
    has_labels = (pairs["label_a"] != "") & (pairs["label_b"] != "")
    is_same = pairs["label_a"] == pairs["label_b"]
    return pairs.assign(same_label=is_same.astype(float).where(has_labels))
