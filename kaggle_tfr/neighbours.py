"""All pairs of 256-bit codes within a radius: exact, and far from comparing all with all."""

from collections import namedtuple
from functools import partial
from itertools import combinations, pairwise
from math import comb

import numpy as np

BITS = 256
SAMPLE = 20_000  # codes that show which bits go together
SLICE = 1 << 15  # codes: what is compared at once stays in the cache
MAX_PAIRS = 50_000_000
Design = namedtuple("Design", "n_blocks n_groups in_key")  # noqa: PYI024


def count_differing(codes, others):
    """int64 (n,): how many bits differ between uint8 (n, bytes) codes, row by row."""
    return np.bitwise_count(np.bitwise_xor(codes, others)).sum(axis=-1, dtype=np.int64)


def near_pairs(codes, radius, run=map):
    """int64 arrays a < b and distance: every pair of codes with at most `radius` bits between.

    codes: uint8 (n, 32). run: like `map`, and may work in parallel.

    Of the blocks the bits are cut into, `radius` errors leave some untouched; dealt out to few
    enough groups, one group holds `in_key` untouched blocks. So each pair is equal in one of the
    tables whose keys are all choices of `in_key` blocks of a group. Bits that say the same go to
    different groups: real hashes are skewed, and a key of like bits would make huge buckets (as
    faiss's own such index has). Where tables do not pay, faiss compares all with all.

    Raises: ValueError when there are more pairs than any dataset of pictures should have.
    Source: Norouzi, Punjani, Fleet, "Fast Exact Search in Hamming Space with Multi-Index Hashing".
    """
    codes = np.ascontiguousarray(codes, np.uint8)
    design = choose_design(len(codes), radius)
    if design is None:
        pieces = _compare_all(codes, radius)
    else:
        words, blocks = arrange(codes, design)
        search = partial(search_table, words, blocks, radius=radius)
        pieces = run(search, list_tables(design))
    return _gather(pieces, codes, radius)


def choose_design(n, radius):
    """The cheapest `Design` for n codes, or None when comparing all with all is cheaper."""
    best, least = None, 0.6 * n * n  # nanoseconds, as measured; only their ratio matters
    for in_key in range(1, 6):
        for n_blocks in range(max(radius + in_key, 16), 97):
            design = Design(n_blocks, (n_blocks - radius - 1) // max(1, in_key - 1), in_key)
            bits = BITS // n_blocks * in_key
            if not 10 <= bits <= 22 or design.n_groups < 1:
                continue
            if in_key == 1:
                design = design._replace(n_groups=n_blocks)
            tables = sum(comb(len(group), in_key) for group in _groups(design))
            # Real hashes are skewed: a bit of a key halves the bucket by less than two.
            cost = tables * (80 * n + 3 * n * n / 2 / 2 ** (0.85 * bits))
            if cost < least:
                best, least = design, cost
    return best


def list_tables(design):
    """Every choice of `in_key` blocks within a group."""
    return [table for group in _groups(design) for table in combinations(group, design.in_key)]


def arrange(codes, design):
    """(uint64 (4, n) words, uint16 (n_blocks, n) blocks) of the bits in their new order."""
    groups = _groups(design)
    order, edges = _order_bits(codes, [len(group) for group in groups])
    blocks = np.empty((design.n_blocks, len(codes)), np.uint16)
    words = np.empty((4, len(codes)), np.uint64)
    for start in range(0, len(codes), SLICE):
        rows = slice(start, start + SLICE)
        bits = np.unpackbits(codes[rows], axis=1)[:, order]
        words[:, rows] = np.ascontiguousarray(np.packbits(bits, axis=1)).view(np.uint64).T
        for block, (begin, end) in enumerate(pairwise(edges)):
            blocks[block, rows] = bits[:, begin:end] @ (1 << np.arange(end - begin))
    return words, blocks


def _groups(design):
    return [list(part) for part in np.array_split(np.arange(design.n_blocks), design.n_groups)]


def _order_bits(codes, sizes):
    """(int (256,) order of bits, edges of blocks): each group's bits say different things."""
    step = max(1, len(codes) // SAMPLE)
    bits = np.unpackbits(codes[::step][:SAMPLE], axis=1).astype(np.float32)
    bits -= bits.mean(axis=0)
    scale = np.sqrt((bits**2).mean(axis=0))
    alike = (bits.T @ bits / len(bits) / np.maximum(np.outer(scale, scale), 1e-6)) ** 2
    edges = np.linspace(0, BITS, sum(sizes) + 1).astype(int)
    ends = np.cumsum(sizes)
    room = edges[ends] - edges[ends - sizes]
    groups, cost = [[] for _ in sizes], np.zeros((len(sizes), BITS))
    for bit in np.argsort(-alike.sum(axis=0), kind="stable"):
        full = [len(group) >= space for group, space in zip(groups, room, strict=True)]
        chosen = int(np.argmin(np.where(full, np.inf, cost[:, bit])))
        groups[chosen].append(bit)
        cost[chosen] += alike[bit]
    return np.concatenate(groups).astype(int), edges


def search_table(words, blocks, table, *, radius):
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
    # The two words that hold least of the key tell most; one word would let most pairs through.
    first = (table[0] * 4 // len(blocks) + 2) % 4
    telling = words[first][order], words[first - 1][order]
    pairs = [
        _check(words, order[left], order[right], radius)
        for left, right in _alike(telling, sizes, radius)
    ]
    a, b = np.sort(np.concatenate([np.empty((2, 0), np.int64), *pairs], axis=1), axis=0)
    return a * n + b


def _alike(telling, sizes, radius):
    """(left, right) places in the same bucket whose two words are within the radius."""
    word, other = telling
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


def _check(words, a, b, radius):
    """int64 (2, m): the pairs of rows that are within the radius on all words."""
    distance = np.zeros(len(a), np.int64)
    for word in words:
        distance += np.bitwise_count(word[a] ^ word[b])
        near = distance <= radius
        a, b, distance = a[near], b[near], distance[near]
    return np.stack([a, b])


def _compare_all(codes, radius):
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


def _gather(pieces, codes, radius):
    """The pieces as sorted a, b and distance, each pair once."""
    found, waiting, n_waiting = np.empty(0, np.int64), [], 0
    for piece in pieces:
        waiting.append(piece)
        n_waiting += len(piece)
        # Tables find the same pairs again: what waits must not pile up.
        if n_waiting > MAX_PAIRS // 4:
            found, waiting, n_waiting = np.unique(np.concatenate([found, *waiting])), [], 0
            _refuse_flood(len(found), len(codes), radius)
    found = np.unique(np.concatenate([found, *waiting]))
    _refuse_flood(len(found), len(codes), radius)
    a, b = np.divmod(found, max(1, len(codes)))
    cuts = range(SLICE, len(a), SLICE)
    halves = zip(np.split(a, cuts), np.split(b, cuts), strict=True)
    return a, b, np.concatenate([count_differing(codes[x], codes[y]) for x, y in halves])


def _refuse_flood(n_pairs, n_codes, radius):
    if n_pairs > MAX_PAIRS:
        raise ValueError(
            f"{n_codes:,} pictures have over {MAX_PAIRS:,} pairs within {radius} bits: too wide a "
            "radius, or all one scene. Set MAX_BITS (for the second look CANDIDATE_BITS) lower."
        )
