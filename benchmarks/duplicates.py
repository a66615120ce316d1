"""Measure how fast images are hashed, and near pairs found among millions of hashes.

python -m benchmarks.duplicates [--data DIR] [--n N] [--rounds N] [--mirrored] [--json]

Hashing: photographs of 2000 × 1500 and of 500 × 375 on one core, alternating with four
imagehash calls on the opened file; the small ones also without decoding.
Pairs: random hashes in which each bit is 1 as often as in the photographs of DIR, and
any two bits are equal as often; one in 33 is a copy of another with 0 to 32 bits
changed. Recall is against brute force. --mirrored adds the pairs in the eight
orientations.
"""

import argparse
import io
import json
import multiprocessing
import os
import resource
import statistics
import time
from functools import partial
from pathlib import Path

import imagehash
import numpy as np
import pandas as pd
from PIL import Image, ImageOps
from scipy.stats import norm

from benchmarks.write import mosaic
from kaggle_tfr.deduplicate.pairs import find_first, find_pairs
from kaggle_tfr.images.convert import check_image
from kaggle_tfr.images.hashing import (
    BITS_BY_ORIENTATION,
    FLAT,
    HASHES,
    ROTATION_BITS,
    hash_images,
)
from kaggle_tfr.parallel import prepare_worker

LANDMARK = 1_580_470
SIZES = 10_000, 100_000, 1_000_000, LANDMARK
MAX_BITS = 25
ROTATED_BITS = 20  # the limit of 02 with MIRRORED
MOST_CHANGED = 32
SAMPLE = 1000
MOSAICS = 6


def list_photos(data):
    """Return the sorted paths of all JPEGs below the folder."""
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
    """Return the bits of the cassava notebook: four hashes of the opened file."""
    return four_hashes(Image.open(io.BytesIO(data)))


def four_hashes(image):
    """Return the bits of four imagehash calls: uint8 (32,)."""
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
    """Return our bits, from the decode that also shows whether the image is damaged."""
    _, luma = check_image(data)
    [bits], _ = hash_images(luma[None])
    return bits


def ours_in_orientations(data):
    """Return uint8 (80,): our bits, then those for the hashes of rotated copies."""
    return ours(data)[:80]


def measure_hashing(photos, rounds):
    """Return the ratios of speeds and the mean number of bits that differ.

    hash_ratio: of 2000 × 1500, from the bytes of a file. hash_small_file_ratio: the
    same of 500 × 375. hash_small_ratio: of the decoded image of 500 × 375.
    Call it in a separate process: it pins the process to one core.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    prepare_worker()
    opened = (Image.open(file) for file in photos)
    photos = [image for image in opened if image.width >= 500 and image.height >= 375]
    tiles = [ImageOps.fit(image.convert("RGB"), (500, 375)) for image in photos]
    rng = np.random.default_rng(0)
    large = [mosaic(tiles, rng) for _ in range(MOSAICS)]
    small = [_save(tile) for tile in tiles]
    decoded = [Image.open(io.BytesIO(data)) for data in small]
    for image in decoded:
        image.load()
    lumas = [check_image(data)[1][None] for data in small]

    compared = [*large, *[_enlarge(image) for image in photos[: 4 * MOSAICS]]]
    n_bits = [np.bitwise_count(ours(data)[:32] ^ cassava(data)) for data in compared]
    compare = partial(_compare, rounds=rounds)
    return {
        "hash_ratio": compare(cassava, large, ours, large),
        "hash_small_file_ratio": compare(cassava, small, ours, small),
        "hash_small_ratio": compare(four_hashes, decoded, hash_images, lumas),
        "hash_bits_off": float(np.sum(n_bits)) / len(compared),
    }


def _enlarge(image):
    return _save(image.convert("RGB").resize((2000, 1500), Image.Resampling.LANCZOS))


def _save(image):
    stream = io.BytesIO()
    image.save(stream, "JPEG")
    return stream.getvalue()


def _compare(way, images, our_way, our_images, rounds):
    """Return the median ratio of the seconds of two ways, which alternate."""
    ratios = []
    for _ in range(rounds):
        seconds = _clock(way, images)
        our_seconds = _clock(our_way, our_images)
        ratios.append(seconds / our_seconds)
    return statistics.median(ratios)


def _clock(way, images):
    start = time.perf_counter()
    for image in images:
        way(image)
    return time.perf_counter() - start


def draw_codes(real, n, rng):
    """Return codes, the rows of copies and of their originals, and the bits changed.

    real: uint8 (m, bytes), the codes to imitate. Codes: uint8 (n, bytes). Copies differ
    in some of the first 256 bits. Method: a Gaussian copula, which is normal variables
    with the correlations of the bits, cut where a bit is 1 as often as in `real`.
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
    """Return the figures for n codes; call it in a separate process."""
    rng = np.random.default_rng(n)
    codes, copies, originals, changed = draw_codes(real, n, rng)
    table = _make_table(codes, HASHES)
    table[[*ROTATION_BITS]] = np.uint64(0)
    before = _peak_mb()
    start = time.perf_counter()
    start_cpu = time.process_time()
    pairs = find_pairs(table, MAX_BITS)
    seconds = time.perf_counter() - start
    cpu_seconds = time.process_time() - start_cpu
    peak = _peak_mb()
    near = changed <= MAX_BITS
    sought = set(zip(copies[near], originals[near], strict=True))
    sample = np.concatenate([copies[: SAMPLE // 2], rng.permutation(n)[: SAMPLE // 2]])
    for row in sample:
        others = np.flatnonzero(
            np.bitwise_count(codes ^ codes[row]).sum(axis=1) <= MAX_BITS
        )
        sought |= {(row, other) for other in others if other != row}
    return {
        "n": n,
        "pairs": len(pairs),
        "pairs_seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "pairs_peak_mb": round(peak),
        "peak_before_mb": round(before),
        "pairs_recall": _count_recall(pairs, sought, table),
    }


def _count_recall(pairs, sought, table):
    """Return the share of the pairs sought that are found.

    Images with equal hashes are found by the first of them.
    """
    first = find_first(table)
    found = set(zip(pairs["a"], pairs["b"], strict=True))
    sought = {tuple(sorted(first[[a, b]])) for a, b in sought if first[a] != first[b]}
    return len(sought & found) / len(sought)


def _make_table(codes, columns):
    words = codes.view(">u8").astype(np.uint64)
    table = pd.DataFrame(dict(zip(columns, words.T, strict=True)))
    return table.assign(texture=FLAT, digest="", problem="")


def measure_orientations(real, n):
    """Return the figures of eight orientations; real: uint8 (m, 80)."""
    rng = np.random.default_rng(n)
    codes, copies = draw_codes(real, n, rng)[:2]
    bits = np.unpackbits(codes[copies], axis=1)
    for orientation in range(8):
        rows = np.flatnonzero(np.arange(len(copies)) % 8 == orientation)
        bits[rows[:, None], BITS_BY_ORIENTATION[orientation]] = bits[rows, :256]
    codes[copies] = np.packbits(bits, axis=1)
    table = _make_table(codes, (*HASHES, *ROTATION_BITS))
    start = time.perf_counter()
    start_cpu = time.process_time()
    pairs = find_pairs(table, MAX_BITS, ROTATED_BITS)
    seconds = time.perf_counter() - start
    cpu_seconds = time.process_time() - start_cpu
    peak = _peak_mb()
    sought = set()
    for row in np.append(copies[: SAMPLE // 8], rng.permutation(n)[: SAMPLE // 8]):
        for chosen_bits in BITS_BY_ORIENTATION:
            rotated = np.packbits(np.unpackbits(codes[row])[chosen_bits])
            distances = np.bitwise_count(codes[:row, :32] ^ rotated).sum(axis=1)
            sought |= {(a, row) for a in np.flatnonzero(distances <= ROTATED_BITS)}
    return {
        "turned_pairs": len(pairs),
        "turned_seconds": round(seconds, 1),
        "turned_cpu_seconds": round(cpu_seconds, 1),
        "turned_peak_mb": round(peak),
        "turned_recall": _count_recall(pairs, sought, table),
    }


def _peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(function, *arguments):
    """Return function(*arguments), called in a new process with its own memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def status_mb(name, process="self"):
    """Return a figure of a process in MB, such as "VmHWM", its peak.

    Unlike ru_maxrss it does not include the process from which this one was forked.
    """
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


def main():
    """Measure what the arguments request, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument(
        "--n", type=int, default=0, help="hashes; 0: as many as landmark has"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--mirrored", action="store_true", help="the eight orientations too"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    photos = list_photos(options.data)
    hashing = apart(measure_hashing, photos, options.rounds)
    in_orientations = np.stack(
        [ours_in_orientations(file.read_bytes()) for file in photos]
    )
    real = in_orientations[:, :32]
    sizes = [options.n or LANDMARK] if options.json or options.n else SIZES
    rows = [apart(measure_pairs, real, n) for n in sizes]
    if options.mirrored:
        rows = [
            row | apart(measure_orientations, in_orientations, row["n"]) for row in rows
        ]
    if options.json:
        figures = {name: round(figure, 3) for name, figure in hashing.items()}
        figures |= {name: rows[-1][name] for name in rows[-1] if "_" in name}
        print(json.dumps(figures))
        return
    for name, figure in hashing.items():
        print(f"{name:24}{figure:8.2f}")
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
