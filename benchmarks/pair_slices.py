"""The search for near pairs as a cluster would share it: cut into slices by a hash of the key.

Each task takes the rows of one table whose key falls into its slice, and finds their pairs alone.
Measured on a few slices, each in its own process; `check_slices` holds them to the whole search.
"""

import os
import statistics
import tempfile
import time

import numpy as np

from benchmarks.duplicates import apart, draw_codes, list_photos, status_mb
from kaggle_tfr.deduplicate import pairs

RADIUS = 25


def slice_rows(codes, layout, table, number, of):
    """Rows whose key in a table falls into one of `of` slices; reads the codes piece by piece."""
    order, edges = layout
    chosen = np.concatenate([order[edges[block] : edges[block + 1]] for block in table])
    weights = np.uint64(1) << np.arange(len(chosen), dtype=np.uint64)
    rows = []
    for start in range(0, len(codes), pairs.SLICE):
        some = codes[start : start + pairs.SLICE]
        bits = (some[:, chosen // 8] >> (7 - chosen % 8).astype(np.uint8)) & 1
        # Real keys are skewed: a hash of them deals them out evenly.
        place = (bits @ weights * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
        rows.append(start + np.flatnonzero(place % np.uint64(of) == number))
    return np.concatenate(rows)


def search_slice(codes, layout, table, number, of):
    """int64: a · n + b of a table's pairs in one slice: what one task on a cluster would do."""
    order, edges = layout
    rows = slice_rows(codes, layout, table, number, of)
    words = np.empty((4, len(rows)), np.uint64)
    blocks = np.zeros((len(edges) - 1, len(rows)), np.uint16)
    for start in range(0, len(rows), pairs.SLICE):
        at = slice(start, start + pairs.SLICE)
        bits = np.unpackbits(codes[rows[at]], axis=1)[:, order]
        words[:, at] = np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64).T
        for block in table:
            begin, end = edges[block], edges[block + 1]
            blocks[block, at] = bits[:, begin:end] @ (1 << np.arange(end - begin))
    found = pairs.search_table(words, blocks, table, radius=RADIUS)
    a, b = np.divmod(found, max(1, len(rows)))
    return rows[a] * len(codes) + rows[b]


def make_codes(photos, n, path):
    """Saves n codes, as like real ones as in benchmarks.duplicates, and what was copied."""
    from kaggle_tfr.deduplicate.hashing import hash_bits

    real = np.stack([hash_bits(file.read_bytes()) for file in list_photos(photos)[:500]])
    codes, copies, originals, changed = draw_codes(real, n, np.random.default_rng(n))
    np.save(path, codes)
    near = changed <= RADIUS
    return np.minimum(copies, originals)[near] * n + np.maximum(copies, originals)[near]


def measure_slice(path, design, number, of):
    """(rows, pairs, seconds, MB beyond the codes) of one slice of one table, in its own process."""
    codes = np.load(path, mmap_mode="r")
    sizes = [len(group) for group in np.array_split(np.arange(design[0]), design[1])]
    layout = pairs._order_bits(codes, sizes)  # noqa: SLF001
    tables = pairs.list_tables(pairs.Design(*design))
    table, before = tables[number % len(tables)], status_mb("RssAnon")
    start = time.perf_counter()
    found = search_slice(codes, layout, table, number % of, of)
    seconds = time.perf_counter() - start
    rows = len(slice_rows(codes, layout, table, number % of, of))
    return rows, len(found), seconds, status_mb("RssAnon") - before


def check_slices(path):
    """Whether the slices of all tables find what the search in one piece does."""
    codes = np.load(path)
    n = len(codes)
    design = pairs.Design(30, 2, 2)
    sizes = [len(group) for group in np.array_split(np.arange(30), 2)]
    layout = pairs._order_bits(codes, sizes)  # noqa: SLF001
    found = [
        search_slice(codes, layout, table, number, 3)
        for table in pairs.list_tables(design)
        for number in range(3)
    ]
    a, b, _ = pairs.near_pairs(codes, RADIUS)
    return bool(np.array_equal(np.unique(np.concatenate(found)), a * n + b))


def measure_pairs(photos, n, slices=16, sample=4):
    """Figures of the search in slices."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "codes.npy")
        apart(make_codes, photos, 20_000, path)
        equal = apart(check_slices, path)
        apart(make_codes, photos, n, path)
        design = pairs.choose_design(n, RADIUS)
        tables = len(pairs.list_tables(design))
        # Of different tables and slices.
        numbers = [round(k * tables * slices / sample) + k for k in range(sample)]
        found = [apart(measure_slice, path, tuple(design), k, slices) for k in numbers]
    rows, _, seconds, megabytes = (statistics.mean(column) for column in zip(*found, strict=True))
    return {
        "pairs_n": n,
        "pairs_slices_equal": equal,
        "pairs_tables": tables,
        "pairs_slices": slices,
        "slice_rows": round(rows),
        "slice_seconds": round(seconds, 2),
        "slice_mb": round(megabytes),
        "pairs_core_hours": round(seconds * slices * tables / 3600, 2),
    }
