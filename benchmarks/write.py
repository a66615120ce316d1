"""Images per second from file bytes to record bytes, ours against the usual ways.

python -m benchmarks.write [--data DIR] [--rounds N] [--json]

Three processes take turns, on one core and each in a worker thread: ours, as it ships; the usual
ways as they ship; and the usual ways with ours' quiet allocator. Every figure is a median over the
rounds. PSNR is against Pillow's full decode and Lanczos at each way's own output size.

Large pictures become what the recipe landmark-2021 makes of them, with Huffman tables for each;
small ones what imagenet makes, with the usual tables. "ours_other" is the other way about. libvips,
whose filter is Lanczos's, is compared with "ours_lanczos".
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageOps

from benchmarks import baselines, programs
from benchmarks.baselines import SIDES

# What kaggle_tfr.parallel sets by mallopt; children inherit it this way.
QUIET = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
WAYS = [
    "landmark",
    "opencv_scripts",
    "opencv_area",
    "pillow_draft",
    "pillow_full",
    "vips",
]


@lru_cache
def pictures(kind, folder):
    """Bytes of the pictures of a kind that `make_pictures` put into the folder."""
    return [file.read_bytes() for file in sorted(Path(folder).glob(f"{kind}-*.jpg"))]


def make_pictures(photos, folder):
    """Puts into the folder the photos larger than 256, and mosaics of 2000 × 1500 made of them.

    Photos with a wide-gamut profile stay out: only our way heeds it, at a cost. So does a tile
    that would have to be enlarged, since it has no detail to lose.
    """
    from kaggle_tfr.images.header import read_header

    for number, file in enumerate(list_photos(photos)):
        header = read_header(file.read_bytes())
        if min(header.height, header.width) > SIDES["small"] and not header.profile:
            shutil.copy(file, Path(folder) / f"small-{number:03d}.jpg")
    tiles = make_tiles(photos)
    rng = np.random.default_rng(0)
    for number in range(12 if tiles else 0):
        (Path(folder) / f"large-{number:03d}.jpg").write_bytes(mosaic(tiles, rng))


def list_photos(folder):
    """Sorted paths of the photographs in the folder."""
    return sorted(Path(folder).glob("*.[jJ][pP]*"))


def make_tiles(photos):
    """The photographs of 500 × 375 or more, cut to that size."""
    opened = [Image.open(file) for file in list_photos(photos)]
    large = [image for image in opened if image.height >= 375 and image.width >= 500]
    return [ImageOps.fit(image.convert("RGB"), (500, 375)) for image in large]


def mosaic(tiles, rng):
    """A JPEG of 2000 × 1500 made of 16 of the tiles, as a camera would save it."""
    image = Image.new("RGB", (2000, 1500))
    for place, tile in enumerate(rng.choice(len(tiles), 16, replace=len(tiles) < 16)):
        image.paste(tiles[tile], (place % 4 * 500, place // 4 * 375))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=92)
    return stream.getvalue()


def ours(data, side, resample="area", *, other=False):
    """Our one image path; `other`: with the Huffman tables of the other recipe."""
    from kaggle_tfr.images.convert import convert

    return convert(
        data, _settings(side, resample, baselines.OPTIMIZE[side] != other)
    ).data


@lru_cache  # as the writer, which checks its settings once
def _settings(side, resample, optimize):
    from kaggle_tfr.images.convert import ImageSettings

    return ImageSettings((side, side), quality=70, resample=resample, optimize=optimize)


def decode_alone(data, side):
    """The first half of the codec limit."""
    baselines.decode_scaled(data, side)


@lru_cache
def _small_enough(data, side):
    pixels = cv2.imdecode(np.frombuffer(ours(data, side), np.uint8), cv2.IMREAD_COLOR)
    return np.ascontiguousarray(pixels)


def encode_alone(data, side):
    """The second half of the codec limit; the pixels were made ready in an earlier call."""
    options = baselines.OPTIMISED if baselines.OPTIMIZE[side] else baselines.QUALITY
    cv2.imencode(".jpg", _small_enough(data, side), options)


OURS = {
    "ours": ours,
    "ours_other": partial(ours, other=True),
    "ours_lanczos": partial(ours, resample="lanczos"),
    "decode_alone": decode_alone,
    "encode_alone": encode_alone,
}


def pin():
    """Keeps a process on one core."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "VIPS_CONCURRENCY": "1"}
    cv2.setNumThreads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def start_process(*, quiet, pinned=True):
    """A process that runs what it is given; `quiet` sets glibc's allocator as ours sets it."""
    for name in QUIET:
        os.environ.pop(name, None)
    if quiet:
        os.environ.update(QUIET)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, initializer=pin if pinned else None)
    pool.submit(os.getpid).result()  # starts it, with this environment
    for name in QUIET:
        os.environ.pop(name, None)
    return pool


def seconds_per_image(way, kind, folder):
    """Seconds a picture takes in a worker thread of this process."""
    function = OURS.get(way) or getattr(baselines, way)
    seconds = []
    data = pictures(kind, folder)
    worker = threading.Thread(
        target=_clock, args=(function, data, SIDES[kind], seconds)
    )
    worker.start()
    worker.join()
    return seconds[0] / len(data)


def _clock(function, data, side, seconds):
    start = time.perf_counter()
    for picture in data:
        function(picture, side)
    seconds.append(time.perf_counter() - start)


def quality(way, kind, folder):
    """(mean PSNR in dB, mean bytes) of a way's records."""
    function = OURS.get(way) or getattr(baselines, way)
    ratios, sizes = [], []
    for data in pictures(kind, folder):
        made = function(data, SIDES[kind])
        pixels = np.asarray(Image.open(io.BytesIO(made)).convert("RGB"))
        ratios.append(
            baselines.psnr(pixels, baselines.reference(data, *pixels.shape[:2]))
        )
        sizes.append(len(made))
    return float(np.mean(ratios)), float(np.mean(sizes))


def measure(folder, rounds):
    """A row for every kind, way and state: seconds an image, PSNR, bytes."""
    states = {"ours": OURS, "shipped": WAYS, "quiet": WAYS}
    pools = {state: start_process(quiet=state == "quiet") for state in states}
    turns = [
        (kind, state, way)
        for kind in SIDES
        for state in states
        for way in states[state]
    ]
    seconds = {turn: [] for turn in turns}
    for number in range(rounds + 1):
        for kind, state, way in turns:
            took = pools[state].submit(seconds_per_image, way, kind, folder).result()
            if number:  # the first round warms up
                seconds[kind, state, way].append(took)
    shown = {}
    for kind, state, way in turns:
        if not way.endswith("alone"):
            shown[kind, way] = pools[state].submit(quality, way, kind, folder).result()
    for pool in pools.values():
        pool.shutdown()
    return seconds, shown


def quietly(program, *arguments):
    """What a program returns, its progress lines left out: stdout is for the figures."""
    with contextlib.redirect_stdout(io.StringIO()):
        return program(*arguments)


def measure_programs(folder, rounds):
    """{(kind, state, program, workers): [(images a second, peak MB), …]} of whole programs."""
    states = {"shipped": programs.PROGRAMS, "quiet": programs.PROGRAMS[1:]}
    pools = {
        state: start_process(quiet=state == "quiet", pinned=False) for state in states
    }
    turns = [
        (kind, state, program.__name__, programs.cores())
        for kind in SIDES
        for state in states
        for program in states[state]
    ]
    turns += [(kind, "shipped", "ours", 1) for kind in SIDES]
    found = {turn: [] for turn in turns}
    for _ in range(rounds):
        for kind, state, name, workers in turns:
            run = pools[state].submit(
                quietly, getattr(programs, name), folder, kind, workers
            )
            count, seconds, peak_mb = run.result()
            found[kind, state, name, workers].append((count / seconds, peak_mb))
    # The process that has only ever run ours tells how much memory ours takes.
    alone = start_process(quiet=False, pinned=False)
    peaks = [
        alone.submit(quietly, programs.ours, folder, kind, programs.cores()).result()[2]
        for kind in SIDES
    ]
    for pool in (*pools.values(), alone):
        pool.shutdown()
    return found, max(peaks)


def ratio(seconds, kind, state, way="ours", base="landmark"):
    """How many times the base's images per second, the median over rounds."""
    pairs = zip(seconds[kind, state, base], seconds[kind, "ours", way], strict=True)
    return float(np.median([theirs / mine for theirs, mine in pairs]))


def scaling(found):
    """How many times one core's images per second all cores reach, the smaller of both kinds."""
    many = programs.cores()
    times = [
        np.median(
            [
                b[0] / a[0]
                for a, b in zip(
                    found[k, "shipped", "ours", 1],
                    found[k, "shipped", "ours", many],
                    strict=True,
                )
            ]
        )
        for k in SIDES
    ]
    return float(min(times))


def keys(seconds, shown):
    """The figures of one core, by the names of the benchmark's contract."""
    limit = [
        (decoding + encoding) / whole
        for decoding, encoding, whole in zip(
            *(
                seconds["large", "ours", way]
                for way in ("decode_alone", "encode_alone", "ours")
            ),
            strict=True,
        )
    ]
    gap = shown["large", "pillow_full"][0] - shown["large", "ours_lanczos"][0]
    return {
        "large_ratio": ratio(seconds, "large", "shipped"),
        "large_ratio_quiet": ratio(seconds, "large", "quiet"),
        "large_psnr_gain": shown["large", "ours"][0] - shown["large", "landmark"][0],
        "large_codec_share": float(np.median(limit)),
        "large_lanczos_ratio": ratio(seconds, "large", "shipped", "ours_lanczos"),
        "large_lanczos_gap_db": gap,
        "small_ratio": ratio(seconds, "small", "shipped"),
        "large_vips_ratio": ratio(seconds, "large", "shipped", "ours_lanczos", "vips"),
        "small_vips_ratio": ratio(seconds, "small", "shipped", "ours_lanczos", "vips"),
        "small_psnr_gain": shown["small", "ours"][0] - shown["small", "landmark"][0],
    }


def table(seconds, shown):
    """The README's table, as lines of Markdown."""
    yield "| pictures | way | allocator | img/s | × vips | PSNR dB | kB |"
    yield "|---|---|---|---|---|---|---|"
    for (kind, state, way), took in seconds.items():
        psnr, size = shown.get((kind, way), (float("nan"), float("nan")))
        vips = np.median(np.divide(seconds[kind, "shipped", "vips"], took))
        speeds = f"{1 / np.median(took):,.0f} | {vips:.2f}"
        yield f"| {kind} | {way} | {state} | {speeds} | {psnr:.2f} | {size / 1000:.1f} |"


def main():
    """Prints the table and the keys, or with --json the keys alone."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--data", default="../shared/data", help="folder with photos/ in it"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(options.data) / "photos"
    folder = folder if folder.is_dir() else Path(options.data)
    with tempfile.TemporaryDirectory() as made:
        make_pictures(folder, made)
        if not (pictures("small", made) and pictures("large", made)):
            raise SystemExit(f"No photos of 500 × 375 or more in {folder}. Set --data.")
        seconds, shown = measure(made, options.rounds)
        found, peak_mb = measure_programs(made, max(1, options.rounds - 2))
    figures = keys(seconds, shown) | {
        "two_core_scaling": scaling(found),
        "peak_mb": peak_mb,
    }
    if options.json:
        print(json.dumps(figures))
        return
    print("\n".join(table(seconds, shown)), "\n")
    print(
        "| pictures | whole program | allocator | workers | img/s |\n|---|---|---|---|---|"
    )
    for (kind, state, name, workers), runs in found.items():
        speed = np.median([run[0] for run in runs])
        print(f"| {kind} | {name} | {state} | {workers} | {speed:,.0f} |")
    print()
    for name, figure in figures.items():
        print(f"{name:24}{figure:8.2f}")


if __name__ == "__main__":
    main()
