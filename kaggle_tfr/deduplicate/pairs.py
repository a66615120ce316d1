"""All pairs of 256-bit codes within a radius: exact, and far from comparing all with all."""

from collections import namedtuple
from functools import partial
from itertools import combinations, pairwise
from math import comb

import numpy as np
import pandas as pd

from kaggle_tfr import parallel
from kaggle_tfr.deduplicate.hashing import FLAT, HASHES
from kaggle_tfr.images.convert import load_pictures


def load_pairs(images: pd.DataFrame, pairs: pd.DataFrame, most: int = 12, side: int = 200):
    """(pictures, titles) of the first `most` pairs, as `plot_pairs` takes them.

    pairs: row numbers a, b of `images`, distance (bits), and inliers where there was a second look.
    """
    shown = pairs.head(most)
    left, right = images.iloc[shown["a"]], images.iloc[shown["b"]]
    pictures = zip(
        load_pictures(left["path"], side), load_pictures(right["path"], side), strict=True
    )
    why = [f"{bits} bits" for bits in shown["distance"]]
    if "inliers" in shown:
        why = [f"{said}, {n} matches" for said, n in zip(why, shown["inliers"], strict=True)]
    titles = [
        (f"{a.image_id}\n{a.label_name}", f"{b.image_id}: {said}\n{b.label_name}")
        for a, b, said in zip(left.itertuples(), right.itertuples(), why, strict=True)
    ]
    return list(pictures), titles


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
        _within_radius(words, order[left], order[right], radius)
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


def _within_radius(words, a, b, radius):
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
    return parallel.run(work, tables, label="Looking for pairs", local_only=True)


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
