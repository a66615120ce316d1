"""Measure what a cluster costs: Dask against threads, and the client's memory.

python -m benchmarks.dask_scale [--data DIR] [--rounds N] [--only NAMES] [--json]

overhead: writing 2000 × 1500 mosaics to short side 384 by two single-threaded Dask
workers on this machine, alternating with two threads; the median ratio of images per
second.
memory: the peak of the client that writes plans of 10⁴ and 10⁶ rows on a cluster whose
workers only pretend to write.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.duplicates import apart
from benchmarks.pretence import peak_of_writing, plan_rows
from benchmarks.programs import plan_files
from benchmarks.write import make_images

IMAGES, SHARDS = 96, 12
ROWS = (10_000, 1_000_000)
IMAGE_COUNTS = (1_600_000, 50_000_000, 1_000_000_000)
CORES = (64, 1000, 10_000)
ROOT = str(Path(__file__).resolve().parent.parent)


def plan_mosaics(photos, folder):
    """Plan `IMAGES` images of 2000 × 1500 in `SHARDS` shards, in the folder."""
    from kaggle_tfr.parallel import use_backend

    use_backend(1)
    make_images(photos, folder)
    files = sorted(str(file) for file in Path(folder).glob("large-*.jpg"))
    files = [files[i % len(files)] for i in range(IMAGES)]
    plan_files(files, folder, IMAGE_SIZE=384, QUALITY=70, N_SHARDS=SHARDS)


def measure_overhead(photos, rounds):
    """Return the median ratio of Dask to threads, and the speed of threads."""
    from kaggle_tfr.parallel import close_backend, use_backend
    from kaggle_tfr.write.writer import write_parts

    ratios = []
    speeds = []
    with tempfile.TemporaryDirectory() as work:
        plan_mosaics(photos, work)
        for number in range(rounds + 1):
            seconds = {}
            # The cluster stays for a whole round: the work is measured, not the start.
            for backend in ("threading", "dask"):
                use_backend(2, backend)
                for turn in range(2):  # the first imports TensorFlow in every worker
                    with tempfile.TemporaryDirectory() as out:
                        start = time.perf_counter()
                        write_parts(work, out)
                        seconds[backend, turn] = time.perf_counter() - start
                close_backend()
            if number:
                ratios.append(seconds["threading", 1] / seconds["dask", 1])
                speeds.append(IMAGES / seconds["threading", 1])
    return statistics.median(ratios), statistics.median(speeds)


@contextlib.contextmanager
def start_cluster(folder):
    """Start a scheduler and two workers as processes; yield the scheduler's address."""
    scheduler_file = Path(folder) / "scheduler.json"
    processes = []
    env = os.environ | {"PYTHONPATH": ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"}
    start = partial(subprocess.Popen, cwd=folder, env=env, stderr=subprocess.DEVNULL)
    try:
        dask = [sys.executable, "-m", "dask"]
        options = ["--no-dashboard", "--scheduler-file", str(scheduler_file)]
        processes.append(
            start([*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", *options])
        )
        for _ in range(2):
            processes.append(
                start([*dask, "worker", "--no-nanny", "--nthreads", "1", *options])
            )
        while not scheduler_file.exists():
            if processes[0].poll() is not None:
                raise RuntimeError(
                    "The Dask scheduler did not start: run `dask scheduler`."
                )
            time.sleep(0.1)
        yield json.loads(scheduler_file.read_text())["address"]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure_memory():
    """Return the peak of the client in MB for each number of `ROWS`."""
    peaks = {}
    for n in ROWS:
        with tempfile.TemporaryDirectory() as folder, start_cluster(folder) as address:
            work = os.path.join(folder, "work")
            apart(plan_rows, n, work)
            peaks[n] = apart(peak_of_writing, work, address)
    return peaks


def measure_speeds(photos):
    """Return images of 2000 × 1500 per second and core of each step that reads them."""
    from benchmarks.duplicates import ours
    from kaggle_tfr.images.convert import ImageSettings, convert
    from kaggle_tfr.parallel import prepare_worker

    prepare_worker()  # one thread, as in every worker
    settings = ImageSettings((384, 384), quality=70)
    steps = {"measure": ours, "write": partial(convert, settings=settings)}
    with tempfile.TemporaryDirectory() as folder:
        make_images(photos, folder)
        images = [
            file.read_bytes() for file in sorted(Path(folder).glob("large-*.jpg"))
        ]
    speeds = {name: [] for name in steps}
    for number in range(6):
        for name, step in steps.items():
            start = time.process_time()
            for data in images:
                step(data)
            if number:
                speeds[name].append(len(images) / (time.process_time() - start))
    return {
        f"{name}_per_core": round(statistics.median(rates), 1)
        for name, rates in speeds.items()
    }


def list_costs(speeds, ratio):
    """Return the hours for each number of images and cores, as lines of Markdown."""
    rate = ratio / sum(1 / speed for speed in speeds.values())
    yield (
        "| images of 2000 × 1500 | "
        + " | ".join(f"{cores:,} cores" for cores in CORES)
        + " |"
    )
    yield "|---|" + "---|" * len(CORES)
    for count in IMAGE_COUNTS:
        hours = [f"{count / rate / cores / 3600:,.2g} h" for cores in CORES]
        yield f"| {count / 1e6:,g} M | " + " | ".join(hours) + " |"


def main():
    """Measure what the arguments request, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="speeds,overhead,memory")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    photos = Path(options.data) / "photos"
    photos = str(photos if photos.is_dir() else options.data)
    only = options.only.split(",")
    figures = apart(measure_speeds, photos) if "speeds" in only else {}
    speeds = dict(figures)
    if "overhead" in only:
        ratio, speed = measure_overhead(photos, options.rounds)
        figures |= {
            "overhead_ratio": round(ratio, 3),
            "threads_per_second": round(speed, 1),
        }
    if "memory" in only:
        figures |= {
            f"client_mb_{n}_rows": round(peak) for n, peak in measure_memory().items()
        }
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:24}{figure:>14}")
    if speeds:
        print("\n" + "\n".join(list_costs(speeds, figures.get("overhead_ratio", 1.0))))


if __name__ == "__main__":
    main()
