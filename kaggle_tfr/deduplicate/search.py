"""Find all pairs of 256-bit codes that differ in few bits, without comparing all pairs.

The search uses the pigeonhole principle. Example: cut codes into four blocks. Two codes
that differ in at most three bits differ in at most three of the blocks, so they agree
in a fourth. Build four tables, one for each block, in which codes with the same value
of that block share a bucket. Each pair within three bits then shares a bucket
somewhere, and only codes in the same bucket need to be compared.

One block is too short a key for 25 bits of 256: buckets would be large. So blocks are
put into groups, and a key is several blocks of one group. With 44 blocks in 9 groups of
4 or 5, two codes that agree in at most two blocks of every group differ in at least
44 - 9 × 2 = 26 blocks, so in 26 bits. Codes within 25 bits therefore agree in three
blocks of some group, and one table for every three blocks of a group finds them all.

If few codes are new, and only pairs with a new code are wanted, `lookup` is faster.

Source: Norouzi, Punjani, Fleet, "Fast Exact Search in Hamming Space with Multi-Index
Hashing".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import combinations, product
from math import comb

import numpy as np

from kaggle_tfr import parallel
from kaggle_tfr.deduplicate.blocks import (
    BITS,
    SLICE,
    list_slices,
    permute_bits,
    weigh_bits,
)
from kaggle_tfr.deduplicate.lookup import choose_lookup, find_matches

MAX_PAIRS = 50_000_000
MAX_NEW_SHARE = 0.3  # of the codes; if more are new, the search of all is faster


class TooManyPairs(ValueError):  # noqa: N818 - the caller may do without them
    """There are more pairs within the radius than the caller can use."""


@dataclass(frozen=True)
class Design:
    """How codes are cut into blocks, and which blocks make the key of a table.

    group_sizes: number of blocks in each group.
    key_size: number of blocks in a key, all of one group.
    """

    group_sizes: tuple[int, ...]
    key_size: int

    def list_keys(self) -> list[tuple[int, ...]]:
        """Return the block numbers of each table's key."""
        keys: list[tuple[int, ...]] = []
        first_block = 0
        for size in self.group_sizes:
            group = range(first_block, first_block + size)
            keys += combinations(group, self.key_size)
            first_block += size
        return keys

    def count_keys(self) -> int:
        """Return the number of tables."""
        return sum(comb(size, self.key_size) for size in self.group_sizes)


def near_pairs(
    codes: np.ndarray,
    radius: int,
    limit: int = MAX_PAIRS,
    is_new: np.ndarray | None = None,
) -> np.ndarray:
    """Find all pairs of codes within `radius` bits: int64 (2, m), rows a < b, sorted.

    codes: uint8 (n, 32).
    is_new: bool (n,); with it, only pairs of which a or b is new are found.
    Raises: TooManyPairs: more than `limit`. 50 million are too many for any images.
    """
    n_codes = max(1, len(codes))
    if is_new is None:
        results = _search(codes, radius)
    else:
        results = _search_new(codes, is_new, radius)
    numbers = _collect(_keep_ascending(results), n_codes, radius, limit)
    return np.stack(np.divmod(numbers, n_codes))


def _search(
    codes: np.ndarray,
    radius: int,
) -> Iterable[np.ndarray]:
    """Return arrays of near rows, int64 (2, m); pairs may be repeated or swapped."""
    design = choose_tables(len(codes), radius)
    if design is None:
        return compare_all(codes, codes, radius)
    return _search_tables(codes, radius, design)


def _search_new(
    codes: np.ndarray,
    is_new: np.ndarray,
    radius: int,
) -> Iterator[np.ndarray]:
    """Yield arrays of near rows with a new one, int64 (2, m), maybe swapped."""
    if _are_many(is_new):
        for a, b in _search(codes, radius):
            has_new = is_new[a] | is_new[b]
            yield np.stack([a[has_new], b[has_new]])
    else:
        new_rows = np.flatnonzero(is_new)
        for new, b in _match(codes[new_rows], codes, radius):
            yield np.sort([new_rows[new], b], axis=0)


def _are_many(is_new: np.ndarray) -> bool:
    """Return whether the search of all codes is faster than that of the new ones."""
    return bool(is_new.sum() > MAX_NEW_SHARE * len(is_new))


def _match_new(
    codes: np.ndarray,
    others: np.ndarray,
    is_new: np.ndarray,
    radius: int,
) -> Iterator[np.ndarray]:
    """Yield arrays of near rows of two lists, int64 (2, m), of which one is new."""
    new_rows = np.flatnonzero(is_new)
    for new, b in _match(codes[new_rows], others, radius):
        yield np.stack([new_rows[new], b])
    for a, new in _match(codes, others[new_rows], radius):
        yield np.stack([a, new_rows[new]])


def _match(
    codes: np.ndarray,
    others: np.ndarray,
    radius: int,
) -> Iterable[np.ndarray]:
    """Return arrays of near rows of codes and of others; pairs may be repeated."""
    if len(codes) > len(others):
        return (pairs[::-1] for pairs in _match(others, codes, radius))
    lookup = choose_lookup(len(codes), len(others), radius)
    if lookup is None:
        return compare_all(codes, others, radius)
    return find_matches(codes, others, radius, lookup)


def _keep_ascending(results: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the pairs a < b of each array."""
    for a, b in results:
        is_ascending = a < b
        yield np.stack([a[is_ascending], b[is_ascending]])


def _collect(
    results: Iterable[np.ndarray],
    n_others: int,
    radius: int,
    limit: int,
) -> np.ndarray:
    """Return the distinct pairs as sorted numbers, a * n_others + b."""
    found = [np.empty(0, np.int64)]
    n_new = 0
    for a, b in results:
        found.append(a * n_others + b)
        n_new += len(found[-1])
        # Several tables find the same pair: drop repetitions before they fill memory.
        if n_new > limit // 4:
            found = [_unite(found, radius, limit)]
            n_new = 0
    return _unite(found, radius, limit)


def near_pairs_between(
    codes: np.ndarray,
    others: np.ndarray,
    radius: int,
    is_new: np.ndarray | None = None,
) -> np.ndarray:
    """Find pairs of `codes[a]` and `others[b]` within `radius` bits, a < b: (2, m).

    codes, others: uint8 (n, 32), such as the codes of images and of their mirror
        images.
    is_new: as in `near_pairs`; a row is new in both lists.
    """
    if is_new is not None and not _are_many(is_new):
        n_codes = max(1, len(codes))
        results = _keep_ascending(_match_new(codes, others, is_new, radius))
        numbers = _collect(results, n_codes, radius, MAX_PAIRS)
        return np.stack(np.divmod(numbers, n_codes))

    a, b = near_pairs(np.concatenate([codes, others]), radius)
    b -= len(codes)
    # Pairs of two codes or of two others do not remain: both lists have n rows.
    is_pair = a < b
    if is_new is not None:
        is_pair[is_pair] = is_new[a[is_pair]] | is_new[b[is_pair]]
    return np.stack([a[is_pair], b[is_pair]])


def match_codes(
    codes: np.ndarray,
    others: np.ndarray,
    radius: int,
    limit: int = MAX_PAIRS,
) -> np.ndarray:
    """Find all pairs of `codes[a]` and `others[b]` within `radius` bits: int64 (2, m).

    codes, others: uint8 (n, 32), of any two lengths. The pairs are sorted.
    Raises: TooManyPairs: more than `limit`.
    """
    n_others = max(1, len(others))
    numbers = _collect(_match(codes, others, radius), n_others, radius, limit)
    return np.stack(np.divmod(numbers, n_others))


def _unite(found: list[np.ndarray], radius: int, limit: int) -> np.ndarray:
    """Return the distinct numbers of the arrays, sorted."""
    united = np.unique(np.concatenate(found))
    if len(united) > limit:
        raise TooManyPairs(
            f"There are more than {limit:,} pairs of images within {radius} bits. "
            "Set MAX_BITS (with SECOND_LOOK also CANDIDATE_BITS) lower."
        )
    return united


def choose_tables(
    n_codes: int,
    radius: int,
) -> Design | None:
    """Return the cheapest design of tables, or None if comparing all is cheaper."""
    best = None
    # Costs are nanoseconds, as measured; only their ratios matter.
    comparison_cost = 0.6 if find_spec("faiss") else 8
    lowest_cost = comparison_cost * n_codes**2
    for key_size, n_blocks in product(range(1, 6), range(16, 97)):
        key_bits = BITS // n_blocks * key_size
        if n_blocks < radius + key_size or not 10 <= key_bits <= 22:
            continue
        design = _group_blocks(n_blocks, key_size, radius)
        # Real hashes are skewed: one more bit of a key does not quite halve a bucket.
        n_compared = n_codes / 2 / 2 ** (0.85 * key_bits)
        cost_of_table = n_codes * (80 + 3 * n_compared)
        cost = design.count_keys() * cost_of_table
        if cost < lowest_cost:
            best = design
            lowest_cost = cost
    return best


def _group_blocks(
    n_blocks: int,
    key_size: int,
    radius: int,
) -> Design:
    """Return the design with the most groups, which has the fewest tables.

    Codes that agree in fewer than key_size blocks of every group must differ in more
    than `radius` blocks: n_blocks - n_groups * (key_size - 1) > radius.
    """
    n_groups = n_blocks
    if key_size > 1:
        n_groups = (n_blocks - radius - 1) // (key_size - 1)
    groups = np.array_split(range(n_blocks), n_groups)
    return Design(tuple(map(len, groups)), key_size)


def _search_tables(
    codes: np.ndarray,
    radius: int,
    design: Design,
) -> Iterator[np.ndarray]:
    """Yield int64 (2, m) of rows for each table; several tables may find a pair."""
    block_bits = permute_bits(codes, design.group_sizes)
    words, blocks = _cut_blocks(codes, block_bits)
    return parallel.run(
        partial(search_table, words, blocks, radius=radius),
        design.list_keys(),
        label="Looking for pairs",
        local_only=True,  # every task reads all codes, too much for a cluster
    )


def _cut_blocks(
    codes: np.ndarray,
    block_bits: list[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes in this order of bits, uint64 (4, n), and values of blocks.

    Values of blocks: uint16 (n_blocks, n).
    """
    order = np.concatenate(block_bits)
    weights = weigh_bits(block_bits)
    words = np.empty((4, len(codes)), np.uint64)
    blocks = np.empty((len(block_bits), len(codes)), np.uint16)
    for rows in list_slices(len(codes)):
        bits = np.unpackbits(codes[rows], axis=1)
        bits_in_order = np.take(bits, order, axis=1)
        words[:, rows] = np.packbits(bits_in_order, axis=1).view(np.uint64).T
        blocks[:, rows] = (bits.astype(np.float32) @ weights.T).T
    return words, blocks


def search_table(
    words: np.ndarray,
    blocks: np.ndarray,
    key_blocks: tuple[int, ...],
    *,
    radius: int,
) -> np.ndarray:
    """Find pairs in the radius that agree in the key's blocks: int64 (2, m) of rows."""
    # Start with the two words that contain least of the key, because they differ most.
    # The key may run on into the next word. Negative numbers count from the last word.
    # A single word would let most pairs pass.
    word_of_key = key_blocks[0] * len(words) // len(blocks)
    first_words = (word_of_key - 1, word_of_key - 2)
    no_pairs = np.empty((2, 0), np.int64)
    key = _join_blocks(blocks[[*key_blocks]])
    found = _search_buckets(words, key, first_words, radius)
    return np.hstack([no_pairs, *found])


def _join_blocks(blocks: np.ndarray) -> np.ndarray:
    """Return a different number for each combination of values: uint32 (n,).

    blocks: uint16 (key_size, n).
    """
    key = np.zeros(blocks.shape[1], np.uint32)
    for values in blocks:
        n_values = int(values.max()) + 1
        key = key * np.uint32(n_values) + values
    return key


def _search_buckets(
    words: np.ndarray,
    key: np.ndarray,
    first_words: tuple[int, int],
    radius: int,
) -> Iterator[np.ndarray]:
    """Yield int64 (2, m) of rows with equal keys whose words are within the radius.

    first_words: numbers of the two words that are compared first.
    Codes are sorted by bucket, and each is compared with the next one, then with the
    one after that, and so on, as far as the largest bucket reaches.
    """
    order, sizes = _sort_by_bucket(key)
    bucket_end = np.repeat(np.cumsum(sizes), sizes)
    word, other_word = (words[number][order] for number in first_words)
    for left, offset in _list_comparisons(sizes):
        right = slice(left.start + offset, left.stop + offset)
        distance = _compare_slices(word, left, right)
        distance += _compare_slices(other_word, left, right)
        near = np.flatnonzero(distance <= radius) + left.start
        near = near[bucket_end[near] > near + offset]
        if len(near):
            yield _keep_near(words, order[near], order[near + offset], radius)


def _list_comparisons(sizes: np.ndarray) -> Iterator[tuple[slice, int]]:
    """Yield slices of codes, and how many places on the codes to compare are.

    sizes: of the buckets, the largest first.
    """
    ends = np.cumsum(sizes)
    for offset in range(1, sizes.max(initial=0)):
        n_larger = np.searchsorted(-sizes, -offset)
        stop = ends[n_larger - 1] - offset
        for start in range(0, stop, SLICE):
            yield slice(start, min(start + SLICE, stop)), offset


def _compare_slices(
    word: np.ndarray,
    left: slice,
    right: slice,
) -> np.ndarray:
    """Return the number of different bits of each left word and its right word."""
    return np.bitwise_count(word[left] ^ word[right])


def _sort_by_bucket(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that share a key, sorted by key, and the sizes of the buckets.

    Largest buckets come first, so that the rows with a partner k places on are a
    prefix.
    """
    bucket_sizes = np.bincount(key)
    size = bucket_sizes[key]
    rows = np.flatnonzero(size > 1)
    # Keys are below 2**32, so the size decides first.
    order = np.argsort(key[rows] - (size[rows] << 32))
    shared_sizes = bucket_sizes[bucket_sizes > 1]
    return rows[order], np.sort(shared_sizes)[::-1]


def _keep_near(
    words: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    radius: int,
) -> np.ndarray:
    """Return the pairs that are within the radius, smaller row first: int64 (2, m)."""
    differing = np.bitwise_count(words[:, a] ^ words[:, b])
    is_near = differing.sum(axis=0) <= radius
    pairs = np.stack([a[is_near], b[is_near]])
    return np.sort(pairs, axis=0)


def compare_all(
    codes: np.ndarray,
    others: np.ndarray,
    radius: int,
) -> Iterator[np.ndarray]:
    """Yield int64 (2, m) of rows of codes and of others within the radius.

    Everything is compared with everything, by faiss if it is installed, else by NumPy.
    """
    compare = _compare_by_faiss if find_spec("faiss") else _compare_by_numpy
    return compare(codes, others, radius)


def _compare_by_faiss(
    codes: np.ndarray,
    others: np.ndarray,
    radius: int,
) -> Iterator[np.ndarray]:
    """Yield the same as `compare_all`."""
    import faiss

    index = faiss.IndexBinaryFlat(BITS)
    index.add(codes)
    step = 4096
    for start in range(0, len(others), step):
        block = others[start : start + step]
        # faiss takes the first distance that is too large.
        limits, _, a = index.range_search(block, radius + 1)
        n_found = np.diff(limits).astype(int)
        b = np.repeat(np.arange(len(block)), n_found)
        yield np.stack([a, b + start])


def _compare_by_numpy(
    codes: np.ndarray,
    others: np.ndarray,
    radius: int,
) -> Iterator[np.ndarray]:
    """Yield the same as `compare_all`."""
    step = 4 * SLICE // max(1, len(codes)) + 1
    for start in range(0, len(others), step):
        block = others[start : start + step]
        b, a = np.nonzero(_count_differing(block, codes) <= radius)
        yield np.stack([a, b + start])


def _count_differing(
    codes: np.ndarray,
    others: np.ndarray,
) -> np.ndarray:
    """Return the distances of all codes from all others, in bits: uint16 (n, m)."""
    distance = np.zeros((len(codes), len(others)), np.uint16)
    words = codes.view(np.uint64)
    other_words = others.view(np.uint64)
    for number in range(words.shape[1]):
        word = words[:, number, None]
        distance += np.bitwise_count(word ^ other_words[:, number])
    return distance
