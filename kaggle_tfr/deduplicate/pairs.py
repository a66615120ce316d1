"""All pairs of near-duplicates: exact, and far from comparing all pictures with all."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import combinations, pairwise, product
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from kaggle_tfr import parallel
from kaggle_tfr.images.convert import load_pictures
from kaggle_tfr.images.hashing import FLAT, HASHES, TURNED, TURNS
from kaggle_tfr.images.header import turn

MAX_EQUAL = 20  # pictures of one hash that are still paired each with each
SLICE = 1 << 15  # codes: what is compared at once stays in the processor's cache
MAX_PAIRS = 50_000_000
_WAYS = ("mirrored", "turned by 180°", "upside down", "transposed", "turned right", "transversed",
         "turned left")  # fmt: skip
TURNED_AS = {
    number: f", {way}" for number, way in enumerate(_WAYS, 2)
}  # by EXIF's orientation


def find_pairs(
    hashes: pd.DataFrame, max_bits: int, turned_bits: int = -1
) -> pd.DataFrame:
    """One row per pair of pictures within `max_bits` of 256: exact, none is missed.

    hashes: of `load_hashes`, or columns `HASHES` (uint64) and perhaps texture, digest, problem.
    turned_bits: those within so many bits, when one is mirrored or turned, are found too; -1: none.
    Columns: a < b (row numbers of `hashes`), distance and the distance by each hash (bits); with
    `turned_bits` also orientation: EXIF's, by which b is turned as a is.
    Of more than 20 equal hashes each is paired with the first alone, and the first with others:
    the clusters are the same. Pictures of almost no texture pair only with files of equal bytes.
    """
    defaults = {"texture": FLAT, "digest": "", "problem": ""}
    hashes = pd.DataFrame(defaults | dict(hashes.items()), hashes.index)
    good, flat = hashes["problem"] == "", hashes["texture"] < FLAT
    rows, blank = np.flatnonzero(good & ~flat), np.flatnonzero(good & flat)
    words = hashes[[*HASHES, *TURNED][: 10 if turned_bits >= 0 else 4]].to_numpy(
        np.uint64
    )
    each = list(range(words.shape[1]))
    group = pd.DataFrame(words[rows]).groupby(each, sort=False).ngroup().to_numpy()
    once = rows[np.unique(group, return_index=True)[1]]
    codes = words[once].astype(">u8", order="C").view(np.uint8)
    group = np.append(group, pd.factorize(hashes["digest"].iloc[blank])[0] + len(codes))
    near = (
        near_pairs(codes, turned_bits, TURNS)
        if turned_bits >= 0
        else np.empty((3, 0), int)
    )
    if max_bits > turned_bits:
        near = np.concatenate([near, near_pairs(codes, max_bits)], axis=1)
    return measure_pairs(words, *_pair_rows(np.append(rows, blank), group, near))


def measure_pairs(
    words: np.ndarray, turned: np.ndarray, a: np.ndarray, b: np.ndarray
) -> Any:
    """What `find_pairs` tells of rows a of words, uint64 (n, 4 or 10), and b, turned by `TURNS`.

    Of a pair that is given several times the nearest stays.
    """
    codes, bits = (
        words.astype(">u8", order="C").view(np.uint8),
        np.empty((len(a), 4), np.int64),
    )
    for number in np.unique(turned):
        some = np.flatnonzero(turned == number)
        rows, place = np.unique(b[some], return_inverse=True)
        other = pick_bits(codes[rows], TURNS[number]).view(">u8")[place]
        bits[some] = np.bitwise_count(words[a[some], :4] ^ other)
    turned = np.where(a > b, np.array([0, 1, 2, 3, 4, 7, 6, 5])[turned], turned)
    distance, pair = bits.sum(axis=1), np.minimum(a, b) * len(words) + np.maximum(a, b)
    order = np.argsort((pair * 257 + distance) * 8 + turned)
    order = order[np.diff(pair[order], prepend=-1) > 0]
    a, b = np.divmod(pair[order], max(1, len(words)))
    columns = {"a": a, "b": b, "distance": distance[order]}
    columns |= dict(zip(HASHES, bits[order].T, strict=True))
    if words.shape[1] > 4:
        columns["orientation"] = turned[order] + 1
    return pd.DataFrame(columns)


def pick_bits(codes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """uint8 (n, 32): 256 bits of each code, uint8 (n, bytes), in this order."""
    picked = np.empty((len(codes), len(order) // 8), np.uint8)
    for start in range(0, len(codes), SLICE):
        some = np.unpackbits(codes[start : start + SLICE], axis=1)
        picked[start : start + SLICE] = np.packbits(some[:, order], axis=1)
    return picked


def _pair_rows(rows: np.ndarray, group: np.ndarray, near: np.ndarray) -> np.ndarray:
    """int64 (3, m): row of `TURNS`, two rows in one group, or in two groups paired in `near`."""
    members = pd.DataFrame({"group": group, "row": rows})
    each = members.groupby("group")["row"]
    first, many = each.transform("first"), each.transform("size") > MAX_EQUAL
    others = np.flatnonzero(many & (members["row"] != first))
    equal = members["group"][members["group"].duplicated() & ~many].unique()
    groups = np.concatenate([near, [0 * equal, equal, equal]], axis=1)
    table = pd.DataFrame(groups.T, columns=["turned", "left", "right"])
    for group_column, row_column in (("left", "a"), ("right", "b")):
        some = members.drop(others).set_axis([group_column, row_column], axis=1)
        table = table.merge(some, on=group_column)
    table = table[(table["left"] != table["right"]) | (table["a"] < table["b"])]
    star = np.stack([0 * others, first[others], rows[others]])
    return np.append(table[["turned", "a", "b"]].to_numpy().T, star, axis=1)


def near_pairs(
    codes: np.ndarray, radius: int, turns: np.ndarray = TURNS[:1]
) -> np.ndarray:
    """int64 (3, m): row of `turns`, and a < b of all codes with at most `radius` bits between.

    codes: uint8 (n, bytes). turns: int64 (k, 256), the bits of a code that count: of b those in
    each of its rows, of a those in the first.

    Of few enough groups of blocks of bits one has `in_key` blocks that `radius` bits leave equal: a
    pair is equal in a table whose key is some `in_key` blocks. Where none pays, all are compared.
    Raises: ValueError: over 50 million pairs, more than a dataset of pictures should have.
    Source: Norouzi, Punjani, Fleet, "Fast Exact Search in Hamming Space with Multi-Index Hashing".
    """
    pieces = compare_turned(codes, radius, turns)
    if design := choose_design(len(codes), radius, len(turns)):
        tables = [
            table for group in design[0] for table in combinations(group, design[1])
        ]
        search = partial(search_table, *arrange(codes, design[0], turns), radius=radius)
        # Every task reads all codes: too much to send to a cluster.
        pieces = parallel.run(
            search, tables, label="Looking for pairs", local_only=True
        )
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
        raise ValueError(
            f"{reason}. Set MAX_BITS (with SECOND_LOOK also CANDIDATE_BITS) lower."
        )
    return np.stack(np.unravel_index(pairs, (len(turns), *[max(1, len(codes))] * 2)))


def choose_design(
    n: int, radius: int, turns: int = 1
) -> tuple[list[np.ndarray], int] | None:
    """(groups of blocks of bits, blocks in a table's key); None where comparing all is cheaper."""
    # Nanoseconds, as measured, by faiss and by NumPy; only their ratio matters.
    best, least = None, (0.6 if find_spec("faiss") else 8) * turns * n * n
    for in_key, n_blocks in product(range(1, 6), range(16, 97)):
        n_groups = n_blocks if in_key == 1 else (n_blocks - radius - 1) // (in_key - 1)
        bits = 256 // n_blocks * in_key
        if n_blocks < radius + in_key or not 10 <= bits <= 22:
            continue
        groups = np.array_split(np.arange(n_blocks), n_groups)
        tables = sum(comb(len(group), in_key) for group in groups)
        # Real hashes are skewed: a bit of a key halves the bucket by less than two.
        near = n / 2 / 2 ** (0.85 * bits)
        cost = tables * n * (80 + 3 * near + (turns - 1) * (200 + 9 * near))
        if cost < least:
            best, least = (groups, in_key), cost
    return best


def arrange(
    codes: np.ndarray, groups: list[np.ndarray], turns: np.ndarray = TURNS[:1]
) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 (k, 4, n) words, uint16 (k, n_blocks, n) blocks) of the bits in the tables' order."""
    sample = codes[:: max(1, len(codes) // 20_000)][:20_000]
    sample = np.unpackbits(sample, axis=1)[:, turns[0]].T
    with np.errstate(all="ignore"):  # bits that never change count as uncorrelated
        correlation = np.nan_to_num(np.asarray(np.corrcoef(sample))) ** 2
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
    # A group's blocks take its bits in turns: correlated ones in one would fill few keys.
    dealt = (
        bits[k::m]
        for bits, m in zip(chosen, map(len, groups), strict=True)
        for k in range(m)
    )
    order = np.concatenate(list(dealt)).astype(int)
    blocks = np.empty((len(turns), len(edges) - 1, len(codes)), np.uint16)
    words = np.empty((len(turns), 4, len(codes)), np.uint64)
    for start in range(0, len(codes), SLICE):
        rows = slice(start, start + SLICE)
        bits = np.unpackbits(np.ascontiguousarray(codes[rows].T), axis=0)
        for number, turned in enumerate(turns):
            some = bits[turned[order]]
            packed = np.ascontiguousarray(np.packbits(some, axis=0).T)
            words[number, :, rows] = packed.view(np.uint64).T
            for block, (begin, end) in enumerate(pairwise(edges)):
                low, *high = np.packbits(some[begin:end], axis=0, bitorder="little")
                blocks[number, block, rows] = low + np.uint16(256) * sum(
                    high, np.uint16(0)
                )
    return words, blocks


def search_table(
    words: np.ndarray, blocks: np.ndarray, table: tuple, *, radius: int
) -> np.ndarray:
    """int64: (turn · n + a) · n + b for each pair a < b in the radius, equal in these blocks."""
    keys = np.zeros((len(words), words.shape[-1]), np.uint32)
    for block in table:
        keys = keys * np.uint32(int(blocks[:, block].max()) + 1) + blocks[:, block]
    # The two words with least of the key differ most; one word would let most pairs through.
    first = (table[0] * 4 // blocks.shape[1] + 2) % 4
    pairs = [np.empty(0, np.int64), *_search_alike(words[0], keys[0], first, radius)]
    if len(words) > 1:
        pairs += _search_turned(words, keys, first, radius)
    return np.concatenate(pairs)


def _search_alike(
    words: np.ndarray, key: np.ndarray, first: int, radius: int
) -> Iterator[np.ndarray]:
    """Pieces of a · n + b for the pairs of one key."""
    sizes = np.bincount(key)
    rows = np.flatnonzero(sizes[key] > 1)
    # Largest buckets first: the codes that have a partner k places on are then a prefix.
    order = rows[np.argsort(key[rows] - (sizes[key[rows]] << 32))]
    sizes = np.sort(sizes[sizes > 1])[::-1]
    one, two = words[first][order], words[first - 1][order]
    ends = np.cumsum(sizes)
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
            if len(left):
                a, b = np.sort([order[left], order[left + apart]], axis=0)
                yield _keep_near(words, words, a, b, radius)


def _search_turned(
    words: np.ndarray, keys: np.ndarray, first: int, radius: int
) -> Iterator[np.ndarray]:
    """Pieces of (turn · n + a) · n + b for the pairs of one key when b is turned, turn not 0."""
    n, sizes = keys.shape[1], np.bincount(keys[0], minlength=int(keys.max()) + 1)
    # Of each key: where its codes begin in their order, and how many are in it so far.
    bucket = np.stack([np.cumsum(sizes) - sizes, np.zeros_like(sizes)], axis=1).astype(
        np.int32
    )
    order = np.argsort(keys[0], kind="stable")
    one, two = words[0][first][order], words[0][first - 1][order]
    for start, turned in product(range(0, n, SLICE // 2), range(len(words))):
        key = keys[turned, start : start + SLICE // 2]
        if not turned:  # those after b need not be looked at
            here, count = np.unique(key, return_counts=True)
            bucket[here, 1] += count.astype(np.int32)
            continue
        found = bucket[key]
        b = np.flatnonzero(found[:, 1])
        begin, count = found[b].T
        b, ends = b + start, np.cumsum(count, dtype=np.int64)
        cuts = np.searchsorted(
            ends, np.arange(2 * SLICE, ends[-1] if len(b) else 0, 2 * SLICE)
        )
        for low, high in pairwise(np.unique([0, *cuts, len(b)]).tolist()):
            rows, of = b[low:high], count[low:high]
            last = np.cumsum(of, dtype=np.int32)
            a = np.repeat(begin[low:high] - (last - of), of) + np.arange(
                last[-1], dtype=np.int32
            )
            distance = np.bitwise_count(
                np.repeat(words[turned, first][rows], of) ^ one[a]
            )
            distance += np.bitwise_count(
                np.repeat(words[turned, first - 1][rows], of) ^ two[a]
            )
            left = np.flatnonzero(distance <= radius)
            if len(left):
                ends_at = rows[np.searchsorted(last, left, side="right")]
                pairs = _keep_near(
                    words[0], words[turned], order[a[left]], ends_at, radius
                )
                yield turned * n * n + pairs


def _keep_near(
    words: np.ndarray, others: np.ndarray, a: np.ndarray, b: np.ndarray, radius: int
) -> np.ndarray:
    """Number a · n + b of those rows a of words, uint64 (4, n), and b > a of others in reach."""
    distance = np.where(a < b, 0, 257)
    for word, other in zip(words, others, strict=True):
        distance += np.bitwise_count(word[a] ^ other[b])
        near = distance <= radius
        a, b, distance = a[near], b[near], distance[near]
    return a * words.shape[1] + b


def compare_turned(
    codes: np.ndarray, radius: int, turns: np.ndarray
) -> Iterator[np.ndarray]:
    """Pieces of (turn · n + a) · n + b of the pairs a < b in the radius, b turned."""
    n, plain = len(codes), pick_bits(codes, turns[0])
    for number, turned in enumerate(turns):
        for a, b in compare_all(plain, pick_bits(codes, turned), radius):
            yield ((number * n + a) * n + b)[a < b]


def compare_all(
    codes: np.ndarray, others: np.ndarray, radius: int
) -> Iterator[np.ndarray]:
    """Pieces, int64 (2, m), of rows of codes and others in the radius: by faiss or by NumPy."""
    index: Any = None
    if find_spec("faiss"):
        import faiss

        index = faiss.IndexBinaryFlat(256)
        index.add(codes)
    step = 4096 if index else max(1, 4 * SLICE // max(1, len(codes)))
    for start in range(0, len(others), step):
        some = others[start : start + step]
        if index:  # which takes the first distance that is too far
            limits, _, a = index.range_search(some, radius + 1)
            b = np.repeat(np.arange(len(some)), np.diff(limits).astype(int))
        else:
            words = zip(some.view(np.uint64).T, codes.view(np.uint64).T, strict=True)
            bits = (np.bitwise_count(other[:, None] ^ word) for other, word in words)
            b, a = np.argwhere(sum(bits, np.uint16(0)) <= radius).T
        yield np.stack([a, b + start])


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
    first = np.searchsorted(
        radii, pairs["distance"]
    )  # the first radius that takes the pair in
    new = (
        same.groupby(first)
        .agg(["size", "sum", "count"])
        .reindex(range(len(radii)), fill_value=0)
    )
    table = pd.DataFrame({"radius": radii, "pairs": new["size"].cumsum()})
    agree = new["sum"].cumsum() / new["count"].cumsum()
    return table.assign(
        agree=agree, new=new["size"], new_agree=new["sum"] / new["count"]
    )


def examples_around(
    pairs: pd.DataFrame, radius: int, count: int = 6
) -> tuple[pd.DataFrame, ...]:
    """The `count` pairs just within the radius and the `count` just beyond it, nearest it first."""
    ordered = pairs.sort_values("distance", kind="stable")
    within = ordered["distance"] <= radius
    return ordered[within].iloc[::-1].head(count), ordered[~within].head(count)


def load_pairs(
    images: pd.DataFrame,
    pairs: pd.DataFrame,
    most: int = 12,
    side: int = 200,
    outcomes: Sequence[str] = (),
) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[tuple[str, str]]]:
    """(pictures, titles) of the first `most` pairs of `find_pairs` or `verify_geometry`.

    Of a pair with an orientation the second picture is shown turned as the first is.
    outcomes: of the first and the second of each pair, such as "kept" and "dropped": titles hold
        them and the sizes in place of the labels.
    """
    pairs, n = pairs.head(most), min(most, len(pairs))
    rows = images.iloc[np.append(pairs["a"], pairs["b"])]
    split = (" (" + rows["split"] + ")").where(rows["split"] != "train", "")
    label = (name_labels(rows, np.tile(np.arange(n), 2)) + split).str.strip()
    if outcomes:
        size = rows["width"].astype(str) + " × " + rows["height"].astype(str)
        label = (
            pd.Series(np.repeat([f"{outcome} " for outcome in outcomes], n), rows.index)
            + size
        )
    pictures, names = (
        load_pictures(list(rows["path"]), side),
        rows["image_id"].astype(str),
    )
    why: Any = pairs["distance"].astype(str) + np.where(
        pairs["distance"] == 1, " bit", " bits"
    )
    if "inliers" in pairs:
        why += ", " + pairs["inliers"].astype(str) + " matches"
    if "orientation" in pairs:
        why += pairs["orientation"].map(TURNED_AS).fillna("")
        pictures[n:] = map(turn, pictures[n:], pairs["orientation"])
    titles = (names + np.append([""] * n, ": " + why) + "\n" + label).tolist()
    both = list(zip(pictures[:n], pictures[n:], strict=True))
    return both, list(zip(titles[:n], titles[n:], strict=True))


def name_labels(images: pd.DataFrame, group: np.ndarray) -> pd.Series:
    """The label's name of each row, with its source where its group's labels have several."""
    source = images["source"] if "source" in images else pd.Series(0, images.index)
    several = (
        source.where(images["split"] != "test").groupby(group).transform("nunique") > 1
    )
    return images["label_name"] + (" (source " + source.astype(str) + ")").where(
        several, ""
    )
