"""Measure images per second from file bytes to record bytes, against the usual ways.

python -m benchmarks.write [--data DIR] [--rounds N] [--json]

Three processes alternate on one core, each in a worker thread: ours as shipped, the
usual ways as shipped, and the usual ways with our settings of the allocator ("quiet").
Each figure is a median over the rounds. PSNR is against Pillow's full decode and
Lanczos at the output size of each way.

Large images are converted as by the recipe landmark-2021, with optimised Huffman
tables; small images as by the recipe imagenet, with standard tables. "ours_other" swaps
the tables. libvips, which resizes by Lanczos, is compared with "ours_lanczos".
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

# What kaggle_tfr.parallel sets by mallopt, as variables that children inherit.
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
def load_images(kind, folder):
    """Return the bytes of the images of a kind that `make_images` wrote."""
    return [file.read_bytes() for file in sorted(Path(folder).glob(f"{kind}-*.jpg"))]


def make_images(photos, folder):
    """Write the photos larger than 256, and mosaics of 2000 × 1500 of them.

    Photos with a wide-gamut profile are left out: only our way converts it, at a cost.
    So are tiles that would have to be enlarged, since they have no detail to lose.
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
    """Return the sorted paths of the photographs in the folder."""
    return sorted(Path(folder).glob("*.[jJ][pP]*"))


def make_tiles(photos):
    """Return the photographs of 500 × 375 or more, cut to that size."""
    opened = [Image.open(file) for file in list_photos(photos)]
    large = [image for image in opened if image.height >= 375 and image.width >= 500]
    return [ImageOps.fit(image.convert("RGB"), (500, 375)) for image in large]


def mosaic(tiles, rng):
    """Return a JPEG of 2000 × 1500 with 16 of the tiles, saved as by a camera."""
    image = Image.new("RGB", (2000, 1500))
    for place, tile in enumerate(rng.choice(len(tiles), 16, replace=len(tiles) < 16)):
        image.paste(tiles[tile], (place % 4 * 500, place // 4 * 375))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=92)
    return stream.getvalue()


def ours(data, side, resample="area", *, other=False):
    """Convert by kaggle-tfr; `other`: with the Huffman tables of the other recipe."""
    from kaggle_tfr.images.convert import convert

    return convert(
        data, _settings(side, resample, baselines.OPTIMIZE[side] != other)
    ).data


@lru_cache  # the writer checks its settings once, too
def _settings(side, resample, optimize):
    from kaggle_tfr.images.convert import ImageSettings

    return ImageSettings((side, side), quality=70, resample=resample, optimize=optimize)


def decode_alone(data, side):
    """Decode only: the first half of the codec limit."""
    baselines.decode_scaled(data, side)


@lru_cache
def _shrink(data, side):
    pixels = cv2.imdecode(np.frombuffer(ours(data, side), np.uint8), cv2.IMREAD_COLOR)
    return np.ascontiguousarray(pixels)


def encode_alone(data, side):
    """Encode only: the second half of the codec limit; an earlier call resized."""
    options = baselines.OPTIMISED if baselines.OPTIMIZE[side] else baselines.QUALITY
    cv2.imencode(".jpg", _shrink(data, side), options)


OURS = {
    "ours": ours,
    "ours_other": partial(ours, other=True),
    "ours_lanczos": partial(ours, resample="lanczos"),
    "decode_alone": decode_alone,
    "encode_alone": encode_alone,
}


def pin():
    """Pin this process to one core."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "VIPS_CONCURRENCY": "1"}
    cv2.setNumThreads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def start_process(*, quiet, pinned=True):
    """Return a pool of one process; `quiet`: with our settings of glibc's allocator."""
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
    """Return the seconds an image takes in a worker thread of this process."""
    function = OURS.get(way) or getattr(baselines, way)
    seconds = []
    data = load_images(kind, folder)
    worker = threading.Thread(
        target=_clock, args=(function, data, SIDES[kind], seconds)
    )
    worker.start()
    worker.join()
    return seconds[0] / len(data)


def _clock(function, data, side, seconds):
    start = time.perf_counter()
    for image in data:
        function(image, side)
    seconds.append(time.perf_counter() - start)


def quality(way, kind, folder):
    """Return the mean PSNR in dB and the mean bytes of the records of a way."""
    function = OURS.get(way) or getattr(baselines, way)
    ratios = []
    sizes = []
    for data in load_images(kind, folder):
        encoded = function(data, SIDES[kind])
        pixels = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))
        reference = baselines.reference(data, *pixels.shape[:2])
        ratios.append(baselines.psnr(pixels, reference))
        sizes.append(len(encoded))
    return float(np.mean(ratios)), float(np.mean(sizes))


def measure(folder, rounds):
    """Return seconds an image of each (kind, state, way), and its PSNR and bytes."""
    states = {"ours": OURS, "shipped": WAYS, "quiet": WAYS}
    from kaggle_tfr.parallel import prepare_worker

    pools = {state: start_process(quiet=state == "quiet") for state in states}
    pools["ours"].submit(prepare_worker).result()  # as every run does first
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
    qualities = {}
    for kind, state, way in turns:
        if not way.endswith("alone"):
            qualities[kind, way] = (
                pools[state].submit(quality, way, kind, folder).result()
            )
    for pool in pools.values():
        pool.shutdown()
    return seconds, qualities


def quietly(program, *arguments):
    """Call a program without its progress lines, since stdout is for the figures."""
    with contextlib.redirect_stdout(io.StringIO()):
        return program(*arguments)


def measure_programs(folder, rounds):
    """Return [(images a second, peak MB), …] by (kind, state, program, workers)."""
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
    # Our peak is measured in a process that has run nothing else.
    alone = start_process(quiet=False, pinned=False)
    peaks = [
        alone.submit(quietly, programs.ours, folder, kind, programs.cores()).result()[2]
        for kind in SIDES
    ]
    for pool in (*pools.values(), alone):
        pool.shutdown()
    return found, max(peaks)


def ratio(seconds, kind, state, way="ours", base="landmark"):
    """Return the median ratio of images per second of a way to those of the base."""
    pairs = zip(seconds[kind, state, base], seconds[kind, "ours", way], strict=True)
    return float(
        np.median([base_seconds / our_seconds for base_seconds, our_seconds in pairs])
    )


def scaling(found):
    """Return the speed-up of all cores against one, the smaller of both kinds."""
    speedups = []
    for kind in SIDES:
        serial = found[kind, "shipped", "ours", 1]
        parallel = found[kind, "shipped", "ours", programs.cores()]
        rounds = zip(serial, parallel, strict=True)
        speedups.append(np.median([both[0] / one[0] for one, both in rounds]))
    return float(min(speedups))


def keys(seconds, qualities):
    """Return the figures of one core by their names in the JSON output."""
    decoding = np.array(seconds["large", "ours", "decode_alone"])
    encoding = np.array(seconds["large", "ours", "encode_alone"])
    limit = (decoding + encoding) / seconds["large", "ours", "ours"]
    gap = qualities["large", "pillow_full"][0] - qualities["large", "ours_lanczos"][0]
    return {
        "large_ratio": ratio(seconds, "large", "shipped"),
        "large_ratio_quiet": ratio(seconds, "large", "quiet"),
        "large_psnr_gain": qualities["large", "ours"][0]
        - qualities["large", "landmark"][0],
        "large_codec_share": float(np.median(limit)),
        "large_lanczos_ratio": ratio(seconds, "large", "shipped", "ours_lanczos"),
        "large_lanczos_gap_db": gap,
        "small_ratio": ratio(seconds, "small", "shipped"),
        "large_vips_ratio": ratio(seconds, "large", "shipped", "ours_lanczos", "vips"),
        "small_vips_ratio": ratio(seconds, "small", "shipped", "ours_lanczos", "vips"),
        "small_psnr_gain": qualities["small", "ours"][0]
        - qualities["small", "landmark"][0],
    }


def table(seconds, qualities):
    """Yield the table of docs/benchmarks.md, as lines of Markdown."""
    yield "| images | way | allocator | img/s | × vips | PSNR dB | kB |"
    yield "|---|---|---|---|---|---|---|"
    for (kind, state, way), took in seconds.items():
        psnr, size = qualities.get((kind, way), (float("nan"), float("nan")))
        vips = np.median(np.divide(seconds[kind, "shipped", "vips"], took))
        speeds = f"{1 / np.median(took):,.0f} | {vips:.2f}"
        quality = f"{psnr:.2f} | {size / 1000:.1f}"
        yield f"| {kind} | {way} | {state} | {speeds} | {quality} |"


def main():
    """Print the table and the figures, or with --json the figures only."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--data", default="../shared/data", help="a folder that contains photos/"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(options.data) / "photos"
    folder = folder if folder.is_dir() else Path(options.data)
    with tempfile.TemporaryDirectory() as images:
        make_images(folder, images)
        if not (load_images("small", images) and load_images("large", images)):
            raise SystemExit(f"No photos of 500 × 375 or more in {folder}. Set --data.")
        seconds, qualities = measure(images, options.rounds)
        found, peak_mb = measure_programs(images, max(1, options.rounds - 2))
    figures = keys(seconds, qualities) | {
        "two_core_scaling": scaling(found),
        "peak_mb": peak_mb,
    }
    if options.json:
        print(json.dumps(figures))
        return
    print("\n".join(table(seconds, qualities)), "\n")
    print("| images | whole program | allocator | workers | img/s |")
    print("|---|---|---|---|---|")
    for (kind, state, name, workers), runs in found.items():
        speed = np.median([run[0] for run in runs])
        print(f"| {kind} | {name} | {state} | {workers} | {speed:,.0f} |")
    print()
    for name, figure in figures.items():
        print(f"{name:24}{figure:8.2f}")


if __name__ == "__main__":
    main()
