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

For few codes or a large radius there is one table with an empty key: all codes share
its only bucket.

Source: Norouzi, Punjani, Fleet, "Fast Exact Search in Hamming Space with Multi-Index
Hashing".
"""

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from math import comb

import numpy as np

from kaggle_tfr import parallel

BITS = 256
MAX_PAIRS = 10_000_000  # of different hashes; more fill the memory


class TooManyPairs(ValueError):  # noqa: N818 - the caller may do without them
    """There are more pairs within the radius than the caller can use."""


def near_pairs(codes: np.ndarray, radius: int) -> np.ndarray:
    """Find all pairs of codes within `radius` bits: int64 (2, m), rows a < b, sorted.

    Only codes that agree in a key, some of their 256 bits, are compared. `choose_keys`
    chooses keys so that each pair within the radius agrees in one of them at least.
    codes: uint8 (n, 32).
    Raises: TooManyPairs: more than `MAX_PAIRS`, 10 million.
    """
    n_codes = max(1, len(codes))
    # A task searches with one key.
    tables = parallel.run(
        partial(search_table, codes, radius=radius),
        choose_keys(n_codes, radius),
        label="Looking for pairs",
        local_only=True,  # every task reads all codes, too much for a cluster
    )
    found = np.empty(0, np.int64)
    for a, b in tables:  # a pair of rows as one number; a pair may be in several tables
        found = np.union1d(found, a * n_codes + b)
        if len(found) > MAX_PAIRS:
            raise TooManyPairs(
                f"There are over {MAX_PAIRS:,} pairs of images within {radius} bits. "
                'Set MAX_BITS lower, and SECOND_LOOK to "auto".'
            )
    return np.stack(np.divmod(found, n_codes))


def choose_keys(n_codes: int, radius: int) -> list[list[int]]:
    """Return the numbers of the bits (0 to 255) that are the key of each table.

    In a table, codes with the same bits of its key share a bucket, and only these are
    compared. Codes within `radius` bits have the same key in one table at least.
    Method: the 256 bits are cut into blocks, and the blocks are put into groups; each
    `key_size` (two to five) blocks of a group are a key. The design with the fewest
    tables is chosen; one has a single table with an empty key, so that all codes are
    compared with all.
    """
    # A bucket would have four to eight codes if all keys were equally frequent.
    key_bits = (n_codes // 8 + 1).bit_length()
    # To sort a table takes as long as to compare each code with about 100 others. The
    # table with an empty key compares it with all, so it costs as much as n / 100.
    designs = [(n_codes // 100, 0, 1, [range(1)])]
    for key_size in range(2, 6):
        n_blocks = BITS * key_size // key_bits
        # At most `radius` blocks differ. n_blocks - radius > n_groups * (key_size - 1):
        # more blocks agree than all groups can hold with less than `key_size` in each,
        # so in one group at least a whole key agrees.
        n_groups = (n_blocks - radius - 1) // (key_size - 1)
        groups = [range(first, n_blocks, n_groups) for first in range(n_groups)]
        n_tables = sum(comb(len(group), key_size) for group in groups)
        if groups:  # none if the radius is too large for this key size
            designs.append((n_tables, key_size, n_blocks, groups))

    _, key_size, n_blocks, groups = min(designs)  # by the number of tables
    keys = [key for group in groups for key in combinations(group, key_size)]
    return [_list_bits(key, n_blocks) for key in keys]


def _list_bits(blocks: Sequence[int], n_blocks: int) -> list[int]:
    """Return the numbers of the bits (0 to 255) in these of `n_blocks` blocks.

    Block i has each `n_blocks`-th bit from i on.
    """
    return [bit for block in blocks for bit in range(block, BITS, n_blocks)]


def search_table(codes: np.ndarray, key_bits: list[int], *, radius: int) -> np.ndarray:
    """Find pairs in the radius with equal bits of the key: int64 (2, m), rows a < b.

    If there are more pairs than `MAX_PAIRS`, some of them are missing, but more than
    `MAX_PAIRS` are found. codes: uint8 (n, 32). key_bits: numbers of bits, 0 to 255.
    """
    key = np.zeros(len(codes), np.uint32)
    for bit in key_bits:
        byte = codes[:, bit // 8]
        key = 2 * key + (byte >> (7 - bit % 8) & 1)

    # Keys are below 2**32, so the size decides first: the largest bucket comes first.
    size = np.bincount(key)[key]
    bucket = key - (size << 32)
    order = np.argsort(bucket)
    words = codes.view(np.uint64)[order].T.copy()  # (4, n), ordered by buckets
    # Pairs of places in `order` become pairs of rows.
    pairs = order[_compare_neighbours(words, bucket[order], radius)]
    return np.sort(pairs, axis=0)


def _compare_neighbours(
    words: np.ndarray,
    bucket: np.ndarray,
    radius: int,
) -> np.ndarray:
    """Find pairs in the radius that share a bucket: int64 (2, m), columns of `words`.

    Each code is compared with the next one, then with the one after that, and so on, as
    far as the largest bucket reaches. If more than `MAX_PAIRS` are found, it stops.
    words: the codes, uint64 (4, n), ordered by `bucket`.
    bucket: of each code, the bucket's number minus 2**32 times the number of codes in
    it, ascending: large buckets come first.
    """
    found = [np.empty((2, 0), np.int64)]
    n_found = 0
    offset = 1
    while n_found <= MAX_PAIRS:
        # The codes in buckets that are larger than the offset come first.
        stop = np.searchsorted(bucket, -offset << 32)
        if stop == 0:
            break
        near = _compare_at_offset(words[:, :stop], bucket, offset, radius)
        found.append(np.stack([near, near + offset]))
        n_found += len(near)
        offset += 1
    return np.hstack(found)


def _compare_at_offset(
    words: np.ndarray,
    bucket: np.ndarray,
    offset: int,
    radius: int,
) -> np.ndarray:
    """Return which codes are near the code `offset` places later in the same bucket.

    They are columns of `words`, int64 (m,).
    words: uint64 (4, n), the four words of each code, sorted by bucket. bucket: equal
    for codes of one bucket; of all codes, also those after `words`. radius: in bits.
    """
    # The first words rule out most pairs, in less time than all four: one word of 64
    # bits for a radius up to 23, two up to 47, three up to 71.
    first_words = words[: 1 + radius // 24]
    # 256 overflows to 0 in uint8; the last line rejects such a pair.
    distance = sum(
        np.bitwise_count(word[:-offset] ^ word[offset:]) for word in first_words
    )
    near = np.flatnonzero(distance <= radius)
    near = near[bucket[near] == bucket[near + offset]]
    differing = np.bitwise_count(words[:, near] ^ words[:, near + offset])
    return near[differing.sum(axis=0) <= radius]
