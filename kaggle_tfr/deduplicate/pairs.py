"""All pairs of near-duplicates: exact, and far from comparing all pictures with all."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import combinations, pairwise
from math import comb
from typing import NamedTuple

import numpy as np
import pandas as pd

from kaggle_tfr import parallel
from kaggle_tfr.deduplicate.hashing import FLAT, HASHES
from kaggle_tfr.images.convert import load_pictures

MAX_EQUAL = 20  # pictures of one hash that are still paired each with each
BITS = 256
SAMPLE = 20_000  # codes by which the correlation of bits is estimated
SLICE = 1 << 15  # codes: what is compared at once stays in the processor's cache
MAX_PAIRS = 50_000_000


def find_pairs(hashes: pd.DataFrame, max_bits: int) -> pd.DataFrame:
    """One row per pair of pictures within `max_bits` of 256: exact, none is missed.

    hashes: a table of `hash_images`, or any with the columns of `HASHES` (uint64) and, if there
    are such, texture, digest and problem.
    Columns: a < b (row numbers of `hashes`), distance and the distance by each hash (bits).

    Of more than 20 pictures with equal hashes each is paired with the first alone, and the first
    with other pictures: the clusters are the same, and a blank page a million times over does not
    fill the memory. Pictures with almost no texture pair only with files equal byte for byte.
    """
    every = np.ones(len(hashes), bool)
    good = (hashes["problem"] == "").to_numpy() if "problem" in hashes else every
    flat = (hashes["texture"] < FLAT).to_numpy() if "texture" in hashes else ~every
    rows, blank = np.flatnonzero(good & ~flat), np.flatnonzero(good & flat)
    words = hashes[list(HASHES)].to_numpy(np.uint64)
    group = pd.DataFrame(words[rows]).groupby([0, 1, 2, 3], sort=False).ngroup().to_numpy()
    codes = words[rows[np.unique(group, return_index=True)[1]]].astype(">u8").view(np.uint8)
    left, right, _ = near_pairs(codes, max_bits)
    if len(blank):
        rows = np.append(rows, blank)
        digest = pd.factorize(hashes["digest"].to_numpy()[blank])[0]
        group = np.append(group, digest + len(codes))
    a, b = np.sort(_pair_rows(rows, group, left, right), axis=0)
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    bits = np.bitwise_count(words[a] ^ words[b]).astype(np.int64)
    table = pd.DataFrame({"a": a, "b": b, "distance": bits.sum(axis=1)})
    table[list(HASHES)] = bits
    return table


def _pair_rows(
    rows: np.ndarray, group: np.ndarray, left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """int64 (2, m): the pairs of rows that are in one group, or in the groups left and right."""
    rows, group = rows[np.argsort(group, kind="stable")], np.sort(group)
    sizes = np.bincount(group)
    starts = np.cumsum(sizes) - sizes
    small = np.flatnonzero((sizes > 1) & (sizes <= MAX_EQUAL))
    left, right = np.concatenate([left, small]), np.concatenate([right, small])
    representatives = np.where(sizes > MAX_EQUAL, 1, sizes)
    n_right = representatives[right]
    each = representatives[left] * n_right
    pair = np.repeat(np.arange(len(left)), each)
    within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    a = starts[left[pair]] + within // n_right[pair]
    b = starts[right[pair]] + within % n_right[pair]
    once = (left[pair] != right[pair]) | (a < b)
    first = starts[group]
    others = np.flatnonzero((sizes[group] > MAX_EQUAL) & (first != np.arange(len(rows))))
    return rows[[np.append(a[once], first[others]), np.append(b[once], others)]]


class Design(NamedTuple):
    """How codes are cut: blocks of bits, groups of blocks, and blocks in the key of a table."""

    n_blocks: int
    n_groups: int
    in_key: int

    @property
    def groups(self) -> list[np.ndarray]:
        """The numbers of the blocks of each group."""
        return np.array_split(np.arange(self.n_blocks), self.n_groups)

    @property
    def tables(self) -> list[tuple[int, ...]]:
        """Every choice of `in_key` blocks within a group."""
        return [table for group in self.groups for table in combinations(group, self.in_key)]


def count_differing(codes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """int64 (n,): how many bits differ between uint8 (n, bytes) codes, row by row."""
    return np.bitwise_count(np.bitwise_xor(codes, others)).sum(axis=-1, dtype=np.int64)


def near_pairs(codes: np.ndarray, radius: int) -> tuple[np.ndarray, ...]:
    """int64 arrays a < b and distance: every pair of codes with at most `radius` bits between.

    codes: uint8 (n, 32).

    Of the blocks the bits are cut into, `radius` differing bits leave some equal; if the groups are
    few enough, one of them has `in_key` equal blocks. So each pair is equal in one of the tables
    whose keys are all choices of `in_key` blocks of a group. Correlated bits go to different
    groups: real hashes are skewed, and a key of correlated bits would make huge buckets (as
    faiss's own such index has). Where tables do not pay, faiss compares all with all.

    Raises: ValueError when there are more pairs than any dataset of pictures should have.
    Source: Norouzi, Punjani, Fleet, "Fast Exact Search in Hamming Space with Multi-Index Hashing".
    """
    codes = np.ascontiguousarray(codes, np.uint8)
    design = choose_design(len(codes), radius)
    if design is None:
        return gather(compare_all(codes, radius), codes, radius)
    search = partial(search_table, *arrange(codes, design), radius=radius)
    # Every task reads all codes: too much to send to a cluster.
    pieces = parallel.run(
        search,
        design.tables,
        label="Looking for pairs",
        local_only=True,
    )
    return gather(pieces, codes, radius)


def choose_design(n: int, radius: int) -> Design | None:
    """The cheapest `Design` for n codes, or None when comparing all with all is cheaper."""
    best, least = None, 0.6 * n * n  # nanoseconds, as measured; only their ratio matters
    for in_key in range(1, 6):
        for n_blocks in range(max(radius + in_key, 16), 97):
            n_groups = n_blocks if in_key == 1 else (n_blocks - radius - 1) // (in_key - 1)
            bits = BITS // n_blocks * in_key
            if not 10 <= bits <= 22 or n_groups < 1:
                continue
            design = Design(n_blocks, n_groups, in_key)
            tables = sum(comb(len(group), in_key) for group in design.groups)
            # Real hashes are skewed: a bit of a key halves the bucket by less than two.
            cost = tables * (80 * n + 3 * n * n / 2 / 2 ** (0.85 * bits))
            if cost < least:
                best, least = design, cost
    return best


def arrange(codes: np.ndarray, design: Design) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 (4, n) words, uint16 (n_blocks, n) blocks) of the bits in their new order."""
    order, edges = _order_bits(codes, [len(group) for group in design.groups])
    blocks = np.empty((design.n_blocks, len(codes)), np.uint16)
    words = np.empty((4, len(codes)), np.uint64)
    for start in range(0, len(codes), SLICE):
        rows = slice(start, start + SLICE)
        bits = np.unpackbits(codes[rows], axis=1)[:, order]
        words[:, rows] = np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64).T
        for block, (begin, end) in enumerate(pairwise(edges)):
            blocks[block, rows] = bits[:, begin:end] @ (1 << np.arange(end - begin))
    return words, blocks


def _order_bits(codes: np.ndarray, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(int (256,) order of bits, edges of blocks): bits of one group are hardly correlated."""
    step = max(1, len(codes) // SAMPLE)
    bits = np.unpackbits(codes[::step][:SAMPLE], axis=1).astype(np.float32)
    bits -= bits.mean(axis=0)
    scale = np.sqrt((bits**2).mean(axis=0))
    correlation = (bits.T @ bits / len(bits) / np.maximum(np.outer(scale, scale), 1e-6)) ** 2
    edges = np.linspace(0, BITS, sum(sizes) + 1).astype(int)
    ends = np.cumsum(sizes)
    room = edges[ends] - edges[ends - sizes]
    groups: list[list[int]] = [[] for _ in sizes]
    cost = np.zeros((len(sizes), BITS))
    for bit in np.argsort(-correlation.sum(axis=0), kind="stable"):
        full = [len(group) >= space for group, space in zip(groups, room, strict=True)]
        chosen = int(np.argmin(np.where(full, np.inf, cost[:, bit])))
        groups[chosen].append(bit)
        cost[chosen] += correlation[bit]
    return np.concatenate(groups).astype(int), edges


def search_table(
    words: np.ndarray, blocks: np.ndarray, table: tuple[int, ...], *, radius: int
) -> np.ndarray:
    """int64: a · n + b for each pair a < b within the radius that is equal in these blocks."""
    n = words.shape[1]
    key = np.zeros(n, np.uint32)
    for block in table:
        key = key * np.uint32(int(blocks[block].max()) + 1) + blocks[block]
    sizes = np.bincount(key)
    # Largest buckets first: the codes that have a partner k places on are then a prefix.
    rank = np.empty(len(sizes), np.uint32)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes), dtype=np.uint32)
    rows = np.flatnonzero(sizes[key] > 1)
    order = rows[np.argsort(rank[key[rows]], kind="stable")]
    sizes = -np.sort(-sizes[sizes > 1])
    # The two words with least of the key differ most; one word would let most pairs through.
    first = (table[0] * 4 // len(blocks) + 2) % 4
    prefilter = words[first][order], words[first - 1][order]
    pairs = [
        _within_radius(words, order[left], order[right], radius)
        for left, right in _bucket_candidates(*prefilter, sizes, radius)
    ]
    a, b = np.sort(np.concatenate([np.empty((2, 0), np.int64), *pairs], axis=1), axis=0)
    return a * n + b


def _bucket_candidates(
    word: np.ndarray, other: np.ndarray, sizes: np.ndarray, radius: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(left, right) positions in the same bucket whose two words are within the radius."""
    ends = np.cumsum(sizes)
    end = np.repeat(ends, sizes)
    for apart in range(1, int(sizes[0]) if len(sizes) else 0):
        stop = int(ends[np.searchsorted(-sizes, -apart) - 1]) - apart
        for start in range(0, stop, SLICE):
            some = slice(start, min(start + SLICE, stop))
            others = slice(some.start + apart, some.stop + apart)
            distance = np.bitwise_count(word[some] ^ word[others])
            distance += np.bitwise_count(other[some] ^ other[others])
            left = np.flatnonzero(distance <= radius) + start
            left = left[end[left] > left + apart]
            if len(left):
                yield left, left + apart


def _within_radius(words: np.ndarray, a: np.ndarray, b: np.ndarray, radius: int) -> np.ndarray:
    """int64 (2, m): the pairs of rows that are within the radius on all words."""
    distance = np.zeros(len(a), np.int64)
    for word in words:
        distance += np.bitwise_count(word[a] ^ word[b])
        near = distance <= radius
        a, b, distance = a[near], b[near], distance[near]
    return np.stack([a, b])


def compare_all(codes: np.ndarray, radius: int) -> Iterator[np.ndarray]:
    """Pieces of a · n + b of the pairs within the radius, by faiss."""
    import faiss

    index = faiss.IndexBinaryFlat(BITS)
    index.add(codes)
    for start in range(0, len(codes), SLICE // 8):
        some = codes[start : start + SLICE // 8]
        # faiss takes the radius as the first distance that is too far.
        limits, _, b = index.range_search(some, radius + 1)
        a = np.repeat(np.arange(start, start + len(some)), np.diff(limits.astype(np.int64)))
        yield (a * len(codes) + b)[a < b]


def gather(pieces: Iterable[np.ndarray], codes: np.ndarray, radius: int) -> tuple[np.ndarray, ...]:
    """The pieces as sorted a, b and distance, each pair once."""
    pairs = np.empty(0, np.int64)
    waiting: list[np.ndarray] = []
    for piece in pieces:
        waiting.append(piece)
        # Tables find the same pairs again: they are not kept until the end.
        if sum(map(len, waiting)) > MAX_PAIRS // 4:
            pairs, waiting = _merge(pairs, waiting, len(codes), radius), []
    pairs = _merge(pairs, waiting, len(codes), radius)
    a, b = np.divmod(pairs, max(1, len(codes)))
    cuts = range(SLICE, len(a), SLICE)
    slices = zip(np.split(a, cuts), np.split(b, cuts), strict=True)
    return a, b, np.concatenate([count_differing(codes[x], codes[y]) for x, y in slices])


def _merge(pairs: np.ndarray, more: list[np.ndarray], n_codes: int, radius: int) -> np.ndarray:
    pairs = np.unique(np.concatenate([pairs, *more]))
    if len(pairs) > MAX_PAIRS:
        raise ValueError(
            f"{n_codes:,} pictures have over {MAX_PAIRS:,} pairs within {radius} bits: too wide a "
            "radius, or all one scene. Set MAX_BITS (with SECOND_LOOK also CANDIDATE_BITS) lower."
        )
    return pairs


def count_by_radius(
    images: pd.DataFrame, pairs: pd.DataFrame, radii: Iterable[int] = range(0, 41, 5)
) -> pd.DataFrame:
    """One row per radius: how many pairs it takes in, and how many of their labels agree.

    images: the table whose rows the pairs number, with a column label. pairs: of `find_pairs`.
    radii: ascending.
    Columns: radius (bits), pairs, agree (share of all within), new (pairs beyond the radius
    before), new_agree (share of the new). A share of no pairs is NaN.
    """
    label, radii = images["label"].to_numpy(), list(radii)
    same = label[pairs["a"].to_numpy()] == label[pairs["b"].to_numpy()]
    nearest = np.searchsorted(radii, pairs["distance"])  # the first radius that takes the pair in
    counts = [np.bincount(rows, minlength=len(radii) + 1) for rows in (nearest, nearest[same])]
    new, new_same = (pd.Series(count[: len(radii)]) for count in counts)
    table = pd.DataFrame({"radius": radii, "pairs": new.cumsum()})
    agree = new_same.cumsum() / table["pairs"]
    return table.assign(agree=agree, new=new, new_agree=new_same / new)


def examples_around(
    pairs: pd.DataFrame, radius: int, count: int = 6
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The `count` pairs just within the radius and the `count` just beyond it, nearest it first."""
    ordered = pairs.sort_values("distance", kind="stable")
    within = ordered["distance"] <= radius
    return ordered[within].iloc[::-1].head(count), ordered[~within].head(count)


def load_pairs(
    images: pd.DataFrame, pairs: pd.DataFrame, most: int = 12, side: int = 200
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[str, str]]]:
    """(pictures, titles) of the first `most` pairs, as `plot_pairs` takes them.

    pairs: row numbers a, b of `images`, distance (bits), and inliers where geometry was verified.
    """
    displayed = pairs.head(most)
    left, right = images.iloc[displayed["a"]], images.iloc[displayed["b"]]
    pictures, others = (load_pictures(list(half["path"]), side) for half in (left, right))
    why = [f"{bits} bits" for bits in displayed["distance"]]
    if "inliers" in displayed:
        why = [f"{text}, {n} matches" for text, n in zip(why, displayed["inliers"], strict=True)]
    titles = [
        (f"{a.image_id}\n{a.label_name}", f"{b.image_id}: {text}\n{b.label_name}")
        for a, b, text in zip(left.itertuples(), right.itertuples(), why, strict=True)
    ]
    return list(zip(pictures, others, strict=True)), titles
