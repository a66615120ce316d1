"""02: hashes, pairs of near-duplicates, geometric verification, clusters, leaks,
copies in other datasets.
"""

from kaggle_tfr.deduplicate.clusters import count_leaks, find_clusters
from kaggle_tfr.deduplicate.compare import read_datasets
from kaggle_tfr.deduplicate.findings import Found
from kaggle_tfr.deduplicate.geometry import find_transform
from kaggle_tfr.deduplicate.outcomes import (
    DuplicateSettings,
    choose_rows,
    count_outcomes,
    load_clusters,
)
from kaggle_tfr.deduplicate.overrides import load_corrected
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.deduplicate.step import run
