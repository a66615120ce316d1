"""Cut 256-bit codes into blocks whose values differ as often as possible."""

import numpy as np

BITS = 256
SLICE = 1 << 15  # codes: a slice of them stays in the processor's cache
SAMPLE = 20_000  # codes whose bits are correlated


def permute_bits(
    codes: np.ndarray,
    group_sizes: tuple[int, ...],
) -> list[np.ndarray]:
    """Return the numbers of the bits in each block, so that each key takes many values.

    Bits of an image hash are correlated: neighbouring pixels are often alike. A key of
    correlated bits has few values, and its buckets are large. So each bit, beginning
    with the most correlated one, goes to the group with which it is correlated least
    and that has room. Each group deals its bits to its blocks like cards.
    """
    group_ends = np.cumsum(group_sizes)
    room = np.diff(group_ends * BITS // group_ends[-1], prepend=0)
    groups = _group_bits(_correlate_bits(codes), room)
    return [
        np.array(bits[start::size], int)
        for bits, size in zip(groups, group_sizes, strict=True)
        for start in range(size)
    ]


def _group_bits(
    correlation: np.ndarray,
    room: np.ndarray,
) -> list[list[int]]:
    """Return the bits of each group; room: number of bits in each group."""
    groups: list[list[int]] = [[] for _ in room]
    cost = np.zeros((len(groups), BITS))
    total = correlation.sum(axis=0)
    most_correlated_first = np.argsort(-total, kind="stable")
    for bit in most_correlated_first:
        number = int(np.argmin(cost[:, bit]))
        groups[number].append(bit)
        cost[number] += correlation[bit]
        if len(groups[number]) == room[number]:
            cost[number] = np.inf
    return groups


def _correlate_bits(codes: np.ndarray) -> np.ndarray:
    """Return the squared correlations of a sample's bits: float64 (256, 256)."""
    step = max(1, len(codes) // SAMPLE)
    bits = np.unpackbits(codes[::step][:SAMPLE], axis=1)
    with np.errstate(all="ignore"):  # bits that never change count as uncorrelated
        correlation = np.corrcoef(bits, rowvar=False)
    return np.nan_to_num(np.asarray(correlation)) ** 2


def weigh_bits(block_bits: list[np.ndarray]) -> np.ndarray:
    """Return what each bit adds to the value of each block: float32 (n_blocks, 256)."""
    weights = np.zeros((len(block_bits), BITS), np.float32)
    for number, bits in enumerate(block_bits):
        weights[number, bits] = 2.0 ** np.arange(len(bits))
    return weights


def list_slices(n_rows: int) -> list[slice]:
    """Return slices of `SLICE` rows that cover all rows."""
    starts = range(0, n_rows, SLICE)
    return [slice(start, start + SLICE) for start in starts]
