"""Hashes → pairs of near-duplicates, and the tables by which a radius is chosen."""

import numpy as np
import pandas as pd

from kaggle_tfr import progress
from kaggle_tfr.hashes import FLAT, HASHES
from kaggle_tfr.neighbours import near_pairs

MAX_TWINS = 20  # pictures of one hash that are still paired each with each


def find_pairs(hashes, max_bits):
    """One row per pair of pictures within `max_bits` of 256: exact, none is missed.

    hashes: a table of `hash_images`, or any with the columns of `HASHES` (uint64) and, if there
    are such, texture, digest and problem.
    Columns: a < b (row numbers of `hashes`), distance and the distance by each hash (bits).

    Of more than 20 pictures with equal hashes each is paired with the first alone, and the first
    with other pictures: the clusters are the same, and a blank page a million times over does not
    fill the memory. Pictures with almost no texture pair only with files equal byte for byte.
    """
    hashes = hashes.reset_index(drop=True)
    good = (
        (hashes["problem"] == "").to_numpy() if "problem" in hashes else np.ones(len(hashes), bool)
    )
    flat = (hashes["texture"] < FLAT).to_numpy() & good if "texture" in hashes else ~good & good
    rows, blank = np.flatnonzero(good & ~flat), np.flatnonzero(flat)
    words = hashes[list(HASHES)].to_numpy(np.uint64)
    twins = pd.DataFrame(words[rows]).groupby([0, 1, 2, 3], sort=False).ngroup().to_numpy()
    found = [_pairs_between(rows, twins, words, max_bits), _pairs_within(rows, twins)]
    if len(blank):
        found.append(_pairs_within(blank, pd.factorize(hashes["digest"].to_numpy()[blank])[0]))
    a, b = np.concatenate(found, axis=1)
    order = np.lexsort((np.maximum(a, b), np.minimum(a, b)))
    a, b = np.minimum(a, b)[order], np.maximum(a, b)[order]
    bits = np.bitwise_count(words[a] ^ words[b]).astype(np.int64)
    pairs = pd.DataFrame({"a": a, "b": b, "distance": bits.sum(axis=1)})
    pairs[list(HASHES)] = bits
    pairs.attrs["max_bits"] = int(max_bits)
    return pairs


def _pairs_between(rows, twins, words, max_bits):
    """int64 (2, m): row numbers of the pairs whose hashes differ."""
    if not len(rows):
        return np.empty((2, 0), np.int64)
    order = np.argsort(twins, kind="stable")
    sizes = np.bincount(twins)
    starts = np.cumsum(sizes) - sizes
    codes = words[rows[order[starts]]].astype(">u8").view(np.uint8)
    left, right, _ = near_pairs(codes, max_bits, _search)
    speakers = np.where(sizes > MAX_TWINS, 1, sizes)
    n_left, n_right = speakers[left], speakers[right]
    each = n_left * n_right
    pair = np.repeat(np.arange(len(left)), each)
    within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    a = starts[left[pair]] + within // n_right[pair]
    b = starts[right[pair]] + within % n_right[pair]
    return np.stack([rows[order[a]], rows[order[b]]])


def _pairs_within(rows, twins):
    """int64 (2, m): row numbers of the pairs of one group; with its first alone in a large one."""
    order = np.argsort(twins, kind="stable")
    twins, rows = twins[order], rows[order]
    sizes = np.bincount(twins) if len(twins) else np.zeros(0, np.int64)
    starts = np.cumsum(sizes) - sizes
    many = sizes[twins] > MAX_TWINS
    others = np.flatnonzero(many & (starts[twins] != np.arange(len(rows))))
    pairs = [np.stack([rows[starts[twins[others]]], rows[others]])]
    for apart in range(1, MAX_TWINS):
        left = np.flatnonzero((twins[apart:] == twins[:-apart]) & ~many[apart:])
        pairs.append(np.stack([rows[left], rows[left + apart]]))
    return np.concatenate(pairs, axis=1)


def _search(work, tables):
    # All codes go with every table, so no cluster is asked.
    return progress.run(work, tables, label="Looking for pairs", here=True)


def count_by_radius(images, pairs, radii=range(0, 41, 5)):
    """One row per radius: how many pairs it takes in, and how many of their labels agree.

    images: the table whose rows the pairs number, with a column label. pairs: of `find_pairs`.
    Columns: radius (bits), pairs, agree (share of all within), new (pairs beyond the radius
    before), new_agree (share of the new). A share of no pairs is NaN.
    """
    label = images["label"].to_numpy()
    same = label[pairs["a"].to_numpy()] == label[pairs["b"].to_numpy()]
    distance = pairs["distance"].to_numpy()
    radii = [radius for radius in radii if radius <= pairs.attrs.get("max_bits", 256)]
    count = np.array([(distance <= radius).sum() for radius in radii], np.int64)
    agree = np.array([same[distance <= radius].sum() for radius in radii], np.int64)
    new, new_agree = np.diff(count, prepend=0), np.diff(agree, prepend=0)
    return pd.DataFrame(
        {
            "radius": radii,
            "pairs": count,
            "agree": agree / np.where(count, count, np.nan),
            "new": new,
            "new_agree": new_agree / np.where(new, new, np.nan),
        }
    )


def examples_around(pairs, radius, count=6):
    """The `count` pairs just within the radius and the `count` just beyond it, nearest it first."""
    within = pairs[pairs["distance"] <= radius].sort_values("distance", kind="stable")
    beyond = pairs[pairs["distance"] > radius].sort_values("distance", kind="stable")
    return within.iloc[::-1].head(count), beyond.head(count)
