"""Find all near pairs between few codes and many, such as the new images and all.

`search` sorts all codes by about a hundred keys: too much work if few are new. A
table here has one block of bits as its key, and contains the few codes: each under its
own key and under the keys that differ in one bit. The many codes are looked up in it.

Example: 25 different bits cannot be two in each of 13 blocks. So two codes within 25
bits differ in at most one bit of some block, and 13 tables find all pairs.

Source: Norouzi, Punjani, Fleet, "Fast Exact Search in Hamming Space with Multi-Index
Hashing".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import combinations, product
from math import ceil, comb

import numpy as np

from kaggle_tfr import parallel
from kaggle_tfr.deduplicate.blocks import BITS, list_slices, permute_bits

MAX_ENTRIES = 1 << 21  # keys in a table at a time
MAX_COMPARED = 1 << 18  # pairs at a time


@dataclass(frozen=True)
class Lookup:
    """Which keys are compared, and how far they may differ.

    n_tables: number of blocks into which the codes are cut.
    key_bits: number of bits of a block that are its key; a block may have one less.
    n_flips: number of bits in which the keys of a near pair differ in some table.
    """

    n_tables: int
    key_bits: int
    n_flips: int

    def count_keys(self) -> int:
        """Return the number of keys under which a code is entered in a table."""
        return sum(comb(self.key_bits, flips) for flips in range(self.n_flips + 1))


def choose_lookup(n_few: int, n_many: int, radius: int) -> Lookup | None:
    """Return the cheapest tables, or None if comparing all codes is cheaper."""
    best = None
    # Costs are nanoseconds, as measured; only their ratios matter.
    lowest_cost = (0.6 if find_spec("faiss") else 8) * n_few * n_many
    for n_flips, key_bits in product(range(3), range(8, 23)):
        # n_tables * (n_flips + 1) > radius: not all blocks differ in more bits.
        n_tables = radius // (n_flips + 1) + 1
        # Some blocks are one bit longer than others.
        if n_tables * (key_bits - 1) >= BITS:
            continue
        lookup = Lookup(n_tables, key_bits, n_flips)
        cost = n_tables * _estimate_cost(lookup, n_few, n_many)
        if cost < lowest_cost:
            best = lookup
            lowest_cost = cost
    return best


def _estimate_cost(lookup: Lookup, n_few: int, n_many: int) -> float:
    """Return how many nanoseconds a table takes."""
    n_entries = n_few * lookup.count_keys()
    n_passes = ceil(n_entries / MAX_ENTRIES)
    # Real hashes are skewed: one more bit of a key does not quite halve a bucket.
    key_bits = min(lookup.key_bits, BITS / lookup.n_tables)
    n_compared = n_entries * n_many / 2 ** (0.85 * key_bits)
    cost_of_passes = n_passes * (10 * n_many + 3 * 2**lookup.key_bits)
    cost_of_keys = 3 * lookup.key_bits * (n_few + n_many)
    return cost_of_keys + cost_of_passes + 60 * n_entries + 12 * n_compared


def find_matches(
    few: np.ndarray,
    many: np.ndarray,
    radius: int,
    lookup: Lookup,
) -> Iterator[np.ndarray]:
    """Yield int64 (2, m) of rows of few and of many; several tables may find a pair.

    few, many: uint8 (n, 32).
    """
    search = partial(
        _search_table,
        few,
        many,
        lookup=lookup,
        radius=radius,
    )
    return parallel.run(
        search,
        _choose_bits(many, lookup),
        label="Looking for pairs",
        local_only=True,  # every task reads all codes, too much for a cluster
    )


def _choose_bits(codes: np.ndarray, lookup: Lookup) -> list[np.ndarray]:
    """Return the numbers of the bits that make the key of each table."""
    blocks = permute_bits(codes, (1,) * lookup.n_tables)
    step = max(1, BITS // (lookup.n_tables * lookup.key_bits))
    return [bits[::step][: lookup.key_bits] for bits in blocks]


def _cut_key(codes: np.ndarray, key_bits: np.ndarray) -> np.ndarray:
    """Return the number that these bits of each code make: uint32 (n,)."""
    key = np.zeros(len(codes), np.uint32)
    for rows in list_slices(len(codes)):
        code_bytes = np.ascontiguousarray(codes[rows].T)
        for place, bit in enumerate(key_bits.tolist()):
            values = code_bytes[bit // 8] >> (7 - bit % 8) & 1
            key[rows] |= values.astype(np.uint32) << np.uint32(place)
    return key


def _list_flips(lookup: Lookup) -> np.ndarray:
    """Return the differences of two keys that are compared: uint32 (count_keys,)."""
    flips = [
        sum(1 << bit for bit in bits)
        for n_bits in range(lookup.n_flips + 1)
        for bits in combinations(range(lookup.key_bits), n_bits)
    ]
    return np.array(flips, np.uint32)


def _search_table(
    few: np.ndarray,
    many: np.ndarray,
    key_bits: np.ndarray,
    *,
    lookup: Lookup,
    radius: int,
) -> np.ndarray:
    """Return the near rows whose keys differ in few bits: int64 (2, m)."""
    flips = _list_flips(lookup)
    few_keys = _cut_key(few, key_bits)
    many_keys = _cut_key(many, key_bits)
    found = [np.empty((2, 0), np.int64)]
    n_entered = MAX_ENTRIES // len(flips)
    for start in range(0, len(few), n_entered):
        entered = few_keys[start : start + n_entered]
        keys = (entered ^ flips[:, None]).ravel()
        for places, b in _look_up(keys, many_keys):
            a = places % len(entered) + start
            found.append(_keep_near(few, many, a, b, radius))
    return np.hstack(found)


def _look_up(
    keys: np.ndarray,
    looked_up: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield arrays of all a and b for which `keys[a]` is `looked_up[b]`."""
    order = np.argsort(keys, kind="stable")
    n_keys = 1 + max(keys.max(initial=0), looked_up.max(initial=0))
    bucket_sizes = np.bincount(keys, minlength=n_keys)
    bucket_ends = np.cumsum(bucket_sizes)

    sizes = bucket_sizes[looked_up]
    rows = np.flatnonzero(sizes)
    sizes = sizes[rows]
    for part in _cut_by_size(sizes):
        b = np.repeat(rows[part], sizes[part])
        ends = bucket_ends[looked_up[rows[part]]]
        yield order[_list_places(ends, sizes[part])], b


def _cut_by_size(sizes: np.ndarray) -> Iterator[slice]:
    """Yield slices of about `MAX_COMPARED` in total, or of a single larger size."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        done = ends[start] - sizes[start]
        stop = int(np.searchsorted(ends, done + MAX_COMPARED, side="right"))
        stop = max(stop, start + 1)
        yield slice(start, stop)
        start = stop


def _list_places(ends: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the places of all entries of buckets, by their ends and sizes."""
    # The position in the result, moved to where each bucket is.
    shift = ends - np.cumsum(sizes)
    return np.arange(sizes.sum()) + np.repeat(shift, sizes)


def _keep_near(
    few: np.ndarray,
    many: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    radius: int,
) -> np.ndarray:
    """Return the pairs of rows `few[a]` and `many[b]` within the radius: (2, m)."""
    words = few.view(np.uint64).T
    other_words = many.view(np.uint64).T
    distance = np.zeros(len(a), np.uint16)
    for word, other_word in zip(words, other_words, strict=True):
        # Most pairs are beyond the radius after two words.
        distance += np.bitwise_count(word[a] ^ other_word[b])
        is_near = distance <= radius
        a = a[is_near]
        b = b[is_near]
        distance = distance[is_near]
    return np.stack([a, b])
