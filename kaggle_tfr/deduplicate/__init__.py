"""02: hashes, pairs of near-duplicates, geometric verification, clusters, leaks."""

from kaggle_tfr.deduplicate.candidates import accept_pairs, find_candidates
from kaggle_tfr.deduplicate.clusters import find_clusters
from kaggle_tfr.deduplicate.display import (
    count_by_radius,
    examples_around,
    load_pairs,
    pairs_added,
    pairs_of_clusters,
)
from kaggle_tfr.deduplicate.geometry import verify_geometry
from kaggle_tfr.deduplicate.leaks import find_leaks
from kaggle_tfr.deduplicate.outcomes import (
    DuplicateSettings,
    choose_rows,
    count_outcomes,
    load_clusters,
    save_clusters,
)
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.deduplicate.proposals import propose_copies
