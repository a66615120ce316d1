"""02: hashes, pairs of near-duplicates, geometric verification, clusters, leaks,
copies in other datasets.
"""

from kaggle_tfr.deduplicate.findings import Found
from kaggle_tfr.deduplicate.geometry import find_transform
from kaggle_tfr.deduplicate.outcomes import choose_rows, count_outcomes, load_clusters
from kaggle_tfr.deduplicate.overrides import load_corrected
from kaggle_tfr.deduplicate.step import run
