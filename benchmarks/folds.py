"""Measure how fast, and how evenly, clusters of landmark's size are assigned to folds.

python -m benchmarks.folds [--n N] [--rounds N] [--json] [--tail]

Classes follow Zipf's law; one image in five is in a cluster of two to six images of one
class. --tail: print requested and actual shares by size of class, where three quarters
of 200,000 images are in small classes.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import time

import numpy as np
import pandas as pd

from kaggle_tfr.plan.folded import check_leakage
from kaggle_tfr.plan.folds import assign_folds

LANDMARK = 1_580_470
CLASSES = 81_313
FOLDS = 5
CLUSTERED = 0.2


def draw_table(n, n_classes, seed=0):
    """Return a random table of n rows with label, label_name, split and cluster."""
    rng = np.random.default_rng(seed)
    weight = 1 / np.arange(1, n_classes + 1)
    label = np.concatenate(
        [
            np.arange(n_classes),
            rng.choice(n_classes, n - n_classes, p=weight / weight.sum()),
        ]
    )
    label = np.sort(label)
    sizes = rng.integers(2, 7, n)
    ends = np.cumsum(sizes)
    cluster = np.searchsorted(ends, np.arange(n), side="right")
    # Rows are sorted by class: a cluster that spans two classes is cut at the border.
    cluster = pd.factorize(cluster * np.int64(n_classes) + label)[0]
    alone = rng.random(cluster.max() + 1)[cluster] >= CLUSTERED
    table = pd.DataFrame({"label": label, "cluster": np.where(alone, -1, cluster)})
    table["label_name"] = table["label"].astype(str)
    table["split"] = "train"
    return table.iloc[rng.permutation(n)].reset_index(drop=True)


def measure(n, n_classes):
    """Return the figures of a run; in a separate process, whose memory it measures."""
    table = draw_table(n, n_classes)
    start = time.perf_counter()
    table = assign_folds(table, n_folds=FOLDS, seed=0)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    leakage = check_leakage(table)
    shares = pd.crosstab(table["fold"], table["label"], normalize="index")
    return {
        "seconds": seconds,
        "peak_mb": round(peak),
        "clusters_across_folds": leakage["clusters_across_folds"],
        "max_share_deviation": (shares - shares.mean()).abs().max(axis=None),
    }


def draw_tail(n=200_000, n_classes=20_000):
    """Return a table of n rows, three quarters of them in classes of 2 to 25 images."""
    weight = np.arange(1, n_classes + 1) ** -0.55
    sizes = np.rint(n * weight / weight.sum()).astype(int)
    sizes[-n_classes // 20 :] = 1
    sizes[0] += n - sizes.sum()
    label = np.repeat(np.arange(n_classes), sizes)
    return pd.DataFrame({"label": label, "split": "train"})


def print_tail():
    """Print the images of a long tail by class size: 2 % held out, then five folds."""
    table = draw_tail()
    for rules in ({"validation_size": 0.02}, {}):
        folded = assign_folds(table, n_folds=1 if rules else FOLDS, seed=0, **rules)
        sizes = folded.groupby("label")["label"].transform("size")
        band = pd.cut(sizes, [0, 1, 5, 25, 100, np.inf])
        print(pd.crosstab(band, [folded["split"], folded["fold"]]), end="\n\n")


def main():
    """Measure what the arguments request, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="not used: the table is random")
    parser.add_argument("--n", type=int, default=LANDMARK, help="rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--tail", action="store_true", help="print shares, measure no time"
    )
    options = parser.parse_args()
    if options.tail:
        print_tail()
        return
    n_classes = min(CLASSES, max(1, options.n * CLASSES // LANDMARK))
    rows = []
    for _ in range(options.rounds):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(measure, (options.n, n_classes)))
    figures = rows[0] | {
        "seconds": round(statistics.median(row["seconds"] for row in rows), 2)
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print(f"{options.n:,} rows, {n_classes:,} classes, {FOLDS} folds")
        print(pd.Series(figures, dtype=object).to_string())


if __name__ == "__main__":
    main()
