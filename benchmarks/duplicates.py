"""How fast pictures are hashed, and near pairs found among millions of hashes.

python -m benchmarks.duplicates [--data DIR] [--n N] [--rounds N] [--turned] [--json]

Hashing: photographs of 2000 × 1500 on one core, in turns with four imagehash calls on the opened
file. Pairs: hashes drawn so that every bit is one as often as in DIR, and any two bits as often
alike; one in 33 is a copy of another with 0 to 32 bits changed. Recall is against brute force.
With --turned the pairs under the eight symmetries too, and what they cost against the plain ones.
"""

import argparse
import io
import json
import multiprocessing
import os
import resource
import statistics
import time
from pathlib import Path

import imagehash
import numpy as np
import pandas as pd
from PIL import Image, ImageOps
from scipy.stats import norm

from benchmarks.write import mosaic
from kaggle_tfr.deduplicate.pairs import find_pairs
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import (
    BITS_BY_ORIENTATION,
    FLAT,
    HASHES,
    ROTATION_BITS,
    hash_image,
)

LANDMARK = 1_580_470
SIZES = 10_000, 100_000, 1_000_000, LANDMARK
MAX_BITS = 25
ROTATED_BITS = 20  # as 02 asks with MIRRORED
MOST_CHANGED = 32
SAMPLE = 1000
PICTURES = 6


def list_photos(data):
    """Sorted paths of all JPEGs below the folder."""
    files = sorted(
        file
        for file in Path(data).rglob("*")
        if file.suffix.lower() in (".jpg", ".jpeg")
    )
    if not files:
        raise FileNotFoundError(
            f"No JPEG below '{data}'. Give --data a folder of photographs."
        )
    return files


def cassava(data):
    """The cassava notebook's bits: four hashes of the opened file, one after the other."""
    image = Image.open(io.BytesIO(data))
    functions = (
        imagehash.average_hash,
        imagehash.phash,
        imagehash.dhash,
        imagehash.whash,
    )
    return np.packbits(
        np.concatenate([function(image).hash.ravel() for function in functions])
    )


def ours(data):
    """Our bits: of the one decode by which 01 also sees that the picture is whole."""
    return ours_turned(data)[:32]


def ours_turned(data):
    """Our bits, and after them those that the hashes of the turned picture need: uint8 (80,)."""
    bits, _, turned = hash_image(check_image(data)[1])
    return np.append(bits, turned)


def measure_hashing(photos, rounds):
    """(ratio of speeds, mean bits off); to be run in a process of its own, which it ties down."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    opened = (Image.open(file) for file in photos)
    large = [image for image in opened if image.width >= 500 and image.height >= 375]
    tiles = [ImageOps.fit(image.convert("RGB"), (500, 375)) for image in large]
    rng = np.random.default_rng(0)
    pictures = [mosaic(tiles, rng) for _ in range(PICTURES)]
    pictures += [_enlarge(image) for image in large[: 4 * PICTURES]]
    off = [int(np.bitwise_count(ours(data) ^ cassava(data)).sum()) for data in pictures]
    ratios = []
    for _ in range(rounds):
        seconds = [_clock(way, pictures[:PICTURES]) for way in (cassava, ours)]
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios), float(np.mean(off))


def _enlarge(image):
    stream = io.BytesIO()
    image.convert("RGB").resize((2000, 1500), Image.Resampling.LANCZOS).save(
        stream, "JPEG"
    )
    return stream.getvalue()


def _clock(way, pictures):
    start = time.perf_counter()
    for data in pictures:
        way(data)
    return time.perf_counter() - start


def draw_codes(real, n, rng):
    """(uint8 (n, bytes) codes, rows of copies, rows of their originals, bits changed in each).

    real: uint8 (m, bytes); of the first 256 bits copies differ, the others they have from the
    original. A Gaussian copula: normal variables as correlated as the bits are, each
    cut off where its bit is one as often as in `real`.
    """
    bits = np.unpackbits(real, axis=1).astype(np.float64)
    share = bits.mean(axis=0).clip(0.002, 0.998)
    bits -= bits.mean(axis=0)
    scale = np.sqrt((bits**2).mean(axis=0)).clip(1e-9)
    alike = np.sin(np.pi / 2 * (bits.T @ bits) / len(bits) / np.outer(scale, scale))
    np.fill_diagonal(alike, 1)
    values, vectors = np.linalg.eigh(alike)
    mix = vectors * np.sqrt(values.clip(1e-3))
    mix = (mix / np.linalg.norm(mix, axis=1, keepdims=True)).T.astype(np.float32)
    cut = norm.ppf(share).astype(np.float32)
    codes = np.empty((n, real.shape[1]), np.uint8)
    for start in range(0, n, 50_000):
        rows = slice(start, start + 50_000)
        drawn = (
            rng.standard_normal((len(codes[rows]), 8 * real.shape[1]), np.float32) @ mix
        )
        codes[rows] = np.packbits(drawn < cut, axis=1)
    order = rng.permutation(n)
    n_copies = n // (MOST_CHANGED + 1)
    copies, originals = order[:n_copies], order[n_copies : 2 * n_copies]
    changed = rng.integers(0, MOST_CHANGED + 1, n_copies)
    ranks = np.argsort(rng.random((n_copies, 256)), axis=1)
    codes[copies] = codes[originals]
    codes[copies, :32] ^= np.packbits(ranks < changed[:, None], axis=1)
    return codes, copies, originals, changed


def measure_pairs(real, n):
    """The figures for n codes; to be run in a process of its own, whose memory it counts."""
    rng = np.random.default_rng(n)
    codes, copies, originals, changed = draw_codes(real, n, rng)
    words = codes.view(">u8").astype(np.uint64)
    table = pd.DataFrame(dict(zip(HASHES, words.T, strict=True)))
    table = table.assign(texture=FLAT, digest="", problem="")
    before = _peak_mb()
    start, start_cpu = time.perf_counter(), time.process_time()
    pairs = find_pairs(table, MAX_BITS)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    peak = _peak_mb()
    found = set(zip(pairs["a"], pairs["b"], strict=True))
    near = changed <= MAX_BITS
    sought = {(min(p), max(p)) for p in zip(copies[near], originals[near], strict=True)}
    sample = np.concatenate([copies[: SAMPLE // 2], rng.permutation(n)[: SAMPLE // 2]])
    for row in sample:
        others = np.flatnonzero(
            np.bitwise_count(codes ^ codes[row]).sum(axis=1) <= MAX_BITS
        )
        sought |= {
            (min(row, other), max(row, other)) for other in others if other != row
        }
    return {
        "n": n,
        "pairs": len(pairs),
        "pairs_seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "pairs_peak_mb": round(peak),
        "peak_before_mb": round(before),
        "pairs_recall": len(sought & found) / len(sought),
    }


def measure_turned(real, n):
    """Seconds, peak and recall of the pairs under the eight symmetries; real: uint8 (m, 80)."""
    rng = np.random.default_rng(n)
    codes, copies = draw_codes(real, n, rng)[:2]
    bits, sought = np.unpackbits(codes[copies], axis=1), set()
    for turn in range(8):
        some = np.flatnonzero(np.arange(len(copies)) % 8 == turn)
        bits[some[:, None], BITS_BY_ORIENTATION[turn]] = bits[some, :256]
    codes[copies] = np.packbits(bits, axis=1)
    words = codes.view(">u8").astype(np.uint64)
    table = pd.DataFrame(dict(zip((*HASHES, *ROTATION_BITS), words.T, strict=True)))
    table = table.assign(texture=FLAT, digest="", problem="")
    start, start_cpu = time.perf_counter(), time.process_time()
    pairs = find_pairs(table, MAX_BITS, ROTATED_BITS)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    peak, found = _peak_mb(), set(zip(pairs["a"], pairs["b"], strict=True))
    for row in np.append(copies[: SAMPLE // 8], rng.permutation(n)[: SAMPLE // 8]):
        for turn in BITS_BY_ORIENTATION:
            other = np.packbits(np.unpackbits(codes[row])[turn])
            apart = np.bitwise_count(codes[:row, :32] ^ other).sum(axis=1)
            sought |= {(a, row) for a in np.flatnonzero(apart <= ROTATED_BITS)}
    return {
        "turned_pairs": len(pairs),
        "turned_seconds": round(seconds, 1),
        "turned_cpu_seconds": round(cpu_seconds, 1),
        "turned_peak_mb": round(peak),
        "turned_recall": len(sought & found) / len(sought),
    }


def _peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_faiss(real, n):
    """Seconds of faiss's own exact index for such codes, 13 tables of 19 bits, one bit flipped."""
    import faiss

    codes = draw_codes(real, n, np.random.default_rng(n))[0]
    start = time.perf_counter()
    index = faiss.IndexBinaryMultiHash(256, 13, 19)
    index.nflip = 1
    index.add(codes)
    index.range_search(codes, MAX_BITS + 1)
    return time.perf_counter() - start


def apart(function, *arguments):
    """function(*arguments) in a fresh process, so that neither cores nor memory are shared."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def status_mb(name, process="self"):
    """A figure of this process, or of one by its id, in MB, such as "VmHWM", its peak.

    Unlike ru_maxrss it knows nothing of the process that this one was forked from.
    """
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


def main():
    """Measures what the arguments ask for and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument(
        "--n", type=int, default=0, help="hashes; 0 is landmark's number"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--turned", action="store_true", help="the eight symmetries too"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    photos = list_photos(options.data)
    ratio, off = apart(measure_hashing, photos, options.rounds)
    real = np.stack([ours_turned(file.read_bytes()) for file in photos])
    turned, real = real, real[:, :32]
    sizes = [options.n or LANDMARK] if options.json or options.n else SIZES
    rows = [apart(measure_pairs, real, n) for n in sizes]
    if options.turned:
        rows = [row | apart(measure_turned, turned, row["n"]) for row in rows]
    if options.json:
        figures = {"hash_ratio": round(ratio, 2), "hash_bits_off": round(off, 3)}
        print(
            json.dumps(
                figures | {name: rows[-1][name] for name in rows[-1] if "_" in name}
            )
        )
        return
    print(
        f"hashing: {ratio:.1f} times the cassava way, {off:.2f} of 256 bits off on average"
    )
    table = pd.DataFrame(rows)
    faiss = [apart(measure_faiss, real, n) if n <= SIZES[1] else np.nan for n in sizes]
    print(table.assign(faiss_seconds=np.round(faiss, 1)).to_string(index=False))


if __name__ == "__main__":
    main()
