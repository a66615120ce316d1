"""All pairs of near-duplicates: exact, and far from comparing all pictures with all."""

from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import combinations, pairwise, product
from math import comb

import numpy as np
import pandas as pd

from kaggle_tfr import parallel
from kaggle_tfr.images.convert import load_pictures
from kaggle_tfr.images.hashing import FLAT, HASHES

MAX_EQUAL = 20  # pictures of one hash that are still paired each with each
SLICE = 1 << 15  # codes: what is compared at once stays in the processor's cache
MAX_PAIRS = 50_000_000


def find_pairs(hashes: pd.DataFrame, max_bits: int) -> pd.DataFrame:
    """One row per pair of pictures within `max_bits` of 256: exact, none is missed.

    hashes: of `load_hashes`, or columns `HASHES` (uint64) and perhaps texture, digest, problem.
    Columns: a < b (row numbers of `hashes`), distance and the distance by each hash (bits).
    Of more than 20 equal hashes each is paired with the first alone, and the first with others:
    the clusters are the same. Pictures of almost no texture pair only with files of equal bytes.
    """
    defaults = {"texture": FLAT, "digest": "", "problem": ""}
    hashes = pd.DataFrame(defaults | dict(hashes.items()), hashes.index)
    good, flat = hashes["problem"] == "", hashes["texture"] < FLAT
    rows, blank = np.flatnonzero(good & ~flat), np.flatnonzero(good & flat)
    words = hashes[list(HASHES)].to_numpy(np.uint64)
    group = pd.DataFrame(words[rows]).groupby([0, 1, 2, 3], sort=False).ngroup().to_numpy()
    codes = words[rows[np.unique(group, return_index=True)[1]]].astype(">u8").view(np.uint8)
    group = np.append(group, pd.factorize(hashes["digest"].iloc[blank])[0] + len(codes))
    a, b = np.sort(_pair_rows(np.append(rows, blank), group, near_pairs(codes, max_bits)), axis=0)
    a, b = np.divmod(np.sort(a * len(words) + b), max(1, len(words)))
    bits = np.bitwise_count(words[a] ^ words[b]).astype(np.int64)
    columns = {"a": a, "b": b, "distance": bits.sum(axis=1)}
    return pd.DataFrame(columns | dict(zip(HASHES, bits.T, strict=True)))


def _pair_rows(rows: np.ndarray, group: np.ndarray, near: np.ndarray) -> np.ndarray:
    """int64 (2, m): the pairs of rows that are in one group, or in two groups paired in `near`."""
    rows, group = rows[np.argsort(group, kind="stable")], np.sort(group)
    sizes = np.bincount(group)
    starts = np.cumsum(sizes) - sizes
    small = np.flatnonzero((sizes > 1) & (sizes <= MAX_EQUAL))
    left, right = np.concatenate([near, [small, small]], axis=1)
    n_left, n_right = np.where(sizes > MAX_EQUAL, 1, sizes)[[left, right]]
    each = n_left * n_right
    pair = np.repeat(np.arange(len(left)), each)
    within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    a = starts[left[pair]] + within // n_right[pair]
    b = starts[right[pair]] + within % n_right[pair]
    once = (left[pair] != right[pair]) | (a < b)
    others = np.flatnonzero((sizes[group] > MAX_EQUAL) & (starts[group] != np.arange(len(rows))))
    return rows[[np.append(a[once], starts[group[others]]), np.append(b[once], others)]]


def near_pairs(codes: np.ndarray, radius: int) -> np.ndarray:
    """int64 (2, m): every pair a < b of codes, uint8 (n, 32), with at most `radius` bits between.

    Of few enough groups of blocks of bits one has `in_key` blocks that `radius` bits leave equal: a
    pair is equal in a table whose key is some `in_key` blocks. Where none pays, all are compared.
    Raises: ValueError: over 50 million pairs, more than a dataset of pictures should have.
    Source: Norouzi, Punjani, Fleet, "Fast Exact Search in Hamming Space with Multi-Index Hashing".
    """
    pieces, design = compare_all(codes, radius), choose_design(len(codes), radius)
    if design:
        tables = [table for group in design[0] for table in combinations(group, design[1])]
        search = partial(search_table, *arrange(codes, design[0]), radius=radius)
        # Every task reads all codes: too much to send to a cluster.
        pieces = parallel.run(search, tables, label="Looking for pairs", local_only=True)
    waiting = [np.empty(0, np.int64)]
    for piece in pieces:
        waiting.append(piece)
        # Tables find the same pairs again: they are not kept until the end.
        if sum(map(len, waiting[1:])) > MAX_PAIRS // 4:
            waiting = [np.unique(np.concatenate(waiting))]
        if len(waiting[0]) > MAX_PAIRS:
            break
    pairs = np.unique(np.concatenate(waiting))
    if len(pairs) > MAX_PAIRS:
        reason = f"{len(codes):,} pictures have over {MAX_PAIRS:,} pairs within {radius} bits"
        raise ValueError(f"{reason}. Set MAX_BITS (with SECOND_LOOK also CANDIDATE_BITS) lower.")
    return np.stack(np.divmod(pairs, max(1, len(codes))))


def choose_design(n: int, radius: int) -> tuple[list[np.ndarray], int] | None:
    """(groups of blocks of bits, blocks in a table's key); None where comparing all is cheaper."""
    # Nanoseconds, as measured, by faiss and by NumPy; only their ratio matters.
    best, least = None, (0.6 if find_spec("faiss") else 8) * n * n
    for in_key, n_blocks in product(range(1, 6), range(16, 97)):
        n_groups = n_blocks if in_key == 1 else (n_blocks - radius - 1) // (in_key - 1)
        bits = 256 // n_blocks * in_key
        if n_blocks < radius + in_key or not 10 <= bits <= 22:
            continue
        groups = np.array_split(np.arange(n_blocks), n_groups)
        tables = sum(comb(len(group), in_key) for group in groups)
        # Real hashes are skewed: a bit of a key halves the bucket by less than two.
        cost = tables * (80 * n + 3 * n * n / 2 / 2 ** (0.85 * bits))
        if cost < least:
            best, least = (groups, in_key), cost
    return best


def arrange(codes: np.ndarray, groups: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 (4, n) words, uint16 (n_blocks, n) blocks) of the bits in an order of their own."""
    sample = codes[:: max(1, len(codes) // 20_000)][:20_000]
    with np.errstate(all="ignore"):  # bits that never change count as uncorrelated
        correlation = np.nan_to_num(np.asarray(np.corrcoef(np.unpackbits(sample, axis=1).T))) ** 2
    ends = np.cumsum([len(group) for group in groups])
    edges = np.linspace(0, 256, ends[-1] + 1).astype(int)
    room = np.diff(edges[ends], prepend=0)
    chosen: list[list[int]] = [[] for _ in groups]
    cost = np.zeros((len(groups), 256))
    # Each bit goes to the group with which it is least correlated, and that has room.
    for bit in np.argsort(-correlation.sum(axis=0), kind="stable"):
        group = int(np.argmin(cost[:, bit]))
        chosen[group].append(bit)
        cost[group] += correlation[bit] if len(chosen[group]) < room[group] else np.inf
    order = np.concatenate(chosen).astype(int)
    blocks = np.empty((len(edges) - 1, len(codes)), np.uint16)
    words = np.empty((4, len(codes)), np.uint64)
    for start in range(0, len(codes), SLICE):
        rows = slice(start, start + SLICE)
        some = np.unpackbits(codes[rows], axis=1)[:, order]
        words[:, rows] = np.ascontiguousarray(np.packbits(some, axis=1)).view(np.uint64).T
        for block, (begin, end) in enumerate(pairwise(edges)):
            blocks[block, rows] = some[:, begin:end] @ (1 << np.arange(end - begin))
    return words, blocks


def search_table(words: np.ndarray, blocks: np.ndarray, table: tuple, *, radius: int) -> np.ndarray:
    """int64: a · n + b for each pair a < b within the radius that is equal in these blocks."""
    n = words.shape[1]
    key = np.zeros(n, np.uint32)
    for block in table:
        key = key * np.uint32(int(blocks[block].max()) + 1) + blocks[block]
    sizes = np.bincount(key)
    rows = np.flatnonzero(sizes[key] > 1)
    # Largest buckets first: the codes that have a partner k places on are then a prefix.
    order = rows[np.argsort(key[rows] - (sizes[key[rows]] << 32))]
    sizes = np.sort(sizes[sizes > 1])[::-1]
    # The two words with least of the key differ most; one word would let most pairs through.
    first = (table[0] * 4 // len(blocks) + 2) % 4
    one, two = words[first][order], words[first - 1][order]
    pairs, ends = [np.empty(0, np.int64)], np.cumsum(sizes)
    end = np.repeat(ends, sizes)
    for apart in range(1, int(sizes[0]) if len(sizes) else 0):
        stop = int(ends[np.searchsorted(-sizes, -apart) - 1]) - apart
        for start in range(0, stop, SLICE):
            some = slice(start, min(start + SLICE, stop))
            others = slice(some.start + apart, some.stop + apart)
            distance = np.bitwise_count(one[some] ^ one[others])
            distance += np.bitwise_count(two[some] ^ two[others])
            left = np.flatnonzero(distance <= radius) + start
            left = left[end[left] > left + apart]
            if not len(left):
                continue
            a, b, distance = order[left], order[left + apart], np.zeros(len(left), np.int64)
            for word in words:
                distance += np.bitwise_count(word[a] ^ word[b])
                near = distance <= radius
                a, b, distance = a[near], b[near], distance[near]
            pairs.append(np.minimum(a, b) * n + np.maximum(a, b))
    return np.concatenate(pairs)


def compare_all(codes: np.ndarray, radius: int) -> Iterator[np.ndarray]:
    """Pieces of a · n + b of the pairs within the radius: by faiss, or without it by NumPy."""
    n, words = len(codes), np.ascontiguousarray(codes).view(np.uint64).T
    index = None
    if find_spec("faiss"):
        import faiss

        index = faiss.IndexBinaryFlat(256)
        index.add(codes)
    step = 4096 if index else max(1, 4 * SLICE // max(1, n))
    for start in range(0, n, step):
        if index:  # which takes the first distance that is too far
            limits, _, b = index.range_search(codes[start : start + step], radius + 1)
            a = np.repeat(np.arange(start, start + len(limits) - 1), np.diff(limits).astype(int))
        else:
            some = slice(start, start + step)
            bits = (np.bitwise_count(word[some, None] ^ word[start:]) for word in words)
            a, b = np.argwhere(sum(bits, np.uint16(0)) <= radius).T + start
        yield (a * n + b)[a < b]


def count_by_radius(
    images: pd.DataFrame, pairs: pd.DataFrame, radii: Iterable[int] = range(0, 41, 5)
) -> pd.DataFrame:
    """One row per radius: how many pairs it takes in, and how many of two labels agree.

    images: its rows are what the pairs number; column label. radii: ascending. Columns: radius
    (bits), pairs, agree (share), new (beyond the radius before), new_agree; a share of none is NaN.
    """
    label, radii = images["label"].to_numpy(), list(radii)
    one, other = (label[pairs[end].to_numpy()] for end in "ab")
    same = pd.Series(np.where((one < 0) | (other < 0), np.nan, one == other))
    first = np.searchsorted(radii, pairs["distance"])  # the first radius that takes the pair in
    new = same.groupby(first).agg(["size", "sum", "count"]).reindex(range(len(radii)), fill_value=0)
    table = pd.DataFrame({"radius": radii, "pairs": new["size"].cumsum()})
    agree = new["sum"].cumsum() / new["count"].cumsum()
    return table.assign(agree=agree, new=new["size"], new_agree=new["sum"] / new["count"])


def examples_around(pairs: pd.DataFrame, radius: int, count: int = 6) -> tuple[pd.DataFrame, ...]:
    """The `count` pairs just within the radius and the `count` just beyond it, nearest it first."""
    ordered = pairs.sort_values("distance", kind="stable")
    within = ordered["distance"] <= radius
    return ordered[within].iloc[::-1].head(count), ordered[~within].head(count)


def load_pairs(
    images: pd.DataFrame, pairs: pd.DataFrame, most: int = 12, side: int = 200
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[str, str]]]:
    """(pictures, titles) of the first `most` pairs of `find_pairs` or `verify_geometry`."""
    rows = images.iloc[np.concatenate([pairs[end].head(most) for end in "ab"])]
    split = (" (" + rows["split"] + ")").where(rows["split"] != "train", "")
    pair = np.arange(len(rows)) % max(1, len(rows) // 2)
    rows = rows.assign(label_name=(name_labels(rows, pair) + split).str.strip())
    left, right = rows.head(len(rows) // 2), rows.tail(len(rows) // 2)
    pictures = (load_pictures(list(half["path"]), side) for half in (left, right))
    why = pairs["distance"].head(most).astype(str) + " bits"
    if "inliers" in pairs:
        why += ", " + pairs["inliers"].head(most).astype(str) + " matches"
    titles = [
        (f"{a.image_id}\n{a.label_name}", f"{b.image_id}: {text}\n{b.label_name}")
        for a, b, text in zip(left.itertuples(), right.itertuples(), why, strict=True)
    ]
    return list(zip(*pictures, strict=True)), titles


def name_labels(images: pd.DataFrame, group: np.ndarray) -> pd.Series:
    """The label's name of each row, with its source where its group's labels have several."""
    source = images["source"] if "source" in images else pd.Series(0, images.index)
    several = source.where(images["split"] != "test").groupby(group).transform("nunique") > 1
    return images["label_name"] + (" (source " + source.astype(str) + ")").where(several, "")
