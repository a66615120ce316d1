"""Measure how fast records become batches, against the usual readers.

python -m benchmarks.read [--data DIR] [--rounds N] [--seconds S] [--json]
"""

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.programs import plan_files
from benchmarks.readers import COSTS, WAYS
from kaggle_tfr.images.convert import ImageSettings, RejectedImage, convert
from kaggle_tfr.shards import find_shards
from kaggle_tfr.write.writer import write_parts

SIDE = 256
BATCH = 32
RECORDS = 1000
SHARDS = 8
# TensorFlow Datasets, one of the readers, finds shards by this pattern only.
SHARD_NAME = "{name}-{split}.tfrecord-{i:05d}-of-{n:05d}"
PHOTOS = Path(__file__).resolve().parents[2] / "shared" / "data" / "photos"


def main() -> None:
    from benchmarks import bucket  # which imports this module

    parser = make_parser(__doc__, rounds=7)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="for each way in each round"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_records(arguments.data, folder)
        costs = measure_costs(folder, arguments.rounds, 3 * arguments.seconds)
        rates = measure(folder, arguments.rounds, arguments.seconds)
        figures = compare(rates) | bucket.compare(folder, arguments.rounds)
    keys = {name: f"cpu_ms_{name.split()[0].replace('.', '_')}" for name in costs}
    figures |= {keys[name]: round(statistics.median(costs[name]), 3) for name in costs}
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{'images/s':>9}  of decode  way")
    for name, values in rates.items():
        share = median_ratio(values, rates["decode alone"])
        print(f"{statistics.median(values):9,.0f}  {share:9.2f}  {name}")
    print(f"{'CPU ms an image':>16}  of tf.data  way")
    for name, values in costs.items():
        share = median_ratio(values, costs["tf.data"])
        print(f"{statistics.median(values):16.2f}  {share:10.2f}  {name}")
    print("\n".join(f"{key}: {value:.2f}" for key, value in figures.items()))


def make_parser(about: str, rounds: int) -> argparse.ArgumentParser:
    """Return the parser of the options that all benchmarks of reading have."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--data", default=str(PHOTOS), help="a folder of photographs")
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="interleaved rounds, 5 or more"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object instead of a table"
    )
    return parser


def write_records(data: str, folder: str) -> None:
    """Write RECORDS photographs of short side SIDE as shards and as JPEG files."""
    settings = ImageSettings((SIDE, SIDE))
    photos = list_photos(data, settings)
    for number, (_, encoded) in enumerate(photos):
        (Path(folder) / f"{number}.jpg").write_bytes(encoded)
    files = [photos[number % len(photos)][0] for number in range(RECORDS)]
    plan_files(
        files,
        folder,
        name="photos",
        IMAGE_SIZE=SIDE,
        N_SHARDS=SHARDS,
        SHARD_NAME=SHARD_NAME,
    )
    write_parts(folder, folder)


def list_photos(data: str, settings: ImageSettings) -> list[tuple[str, bytes]]:
    """Return the path and the converted bytes of each photograph that is large enough.

    Raises: FileNotFoundError: there is none.
    """
    photos = []
    for path in sorted(path for path in Path(data).rglob("*") if path.is_file()):
        try:
            image = convert(path.read_bytes(), settings)
        except RejectedImage as rejection:
            print(f"'{path}' is left out: {rejection}", file=sys.stderr)
            continue
        # For a smaller one the enlargement would be measured, not the reading.
        if min(image.height, image.width) >= min(settings.size):
            photos.append((str(path), image.data))
    if not photos:
        raise FileNotFoundError(
            f"'{data}' contains no photograph of {settings.size[0]} pixels or more. "
            "Set --data to a folder of JPEGs."
        )
    return photos


def measure(folder: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the images per second of each way in each interleaved round."""
    shards = find_shards(folder)
    setting = SimpleNamespace(folder=folder, shards=shards, side=SIDE, batch=BATCH)
    ready = {name: make(setting) for name, make in find_ways().items()}
    rates = {name: [] for name in ready}
    for _ in range(rounds):
        for name, batches in ready.items():
            # Started again in each round: a waiting one would fill its buffers while
            # others are measured. tf.data tunes its parallelism in the first seconds.
            running = iter(batches)
            take(running, seconds)
            rates[name].append(take(running, seconds))
            del running
    return rates


def measure_costs(folder: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the CPU milliseconds an image, with workers, of each way in each round."""
    setting = SimpleNamespace(shards=find_shards(folder), side=SIDE, batch=BATCH)
    ready = {
        name: make(setting)
        for name, (package, make) in COSTS.items()
        if find_spec(package)
    }
    costs = {name: [] for name in ready}
    for _ in range(rounds):
        for name, batches in ready.items():
            images = 0
            cpu_before = sum(os.times()[:4])
            start = time.perf_counter()
            running = iter(batches)
            while time.perf_counter() - start < seconds:
                batch = next(running)
                images += len(batch[0] if isinstance(batch, tuple) else batch)
            del running  # ends the workers; only then their CPU time is known
            gc.collect()
            cpu_seconds = sum(os.times()[:4]) - cpu_before
            costs[name].append(cpu_seconds / images * 1000)
    return costs


def find_ways() -> dict:
    """Return the ways whose package is installed."""
    needed = {
        "TensorFlow Datasets": "tensorflow_datasets",
        "ours, uint8, to JAX's devices": "jax",
    }
    return {
        name: way
        for name, way in WAYS.items()
        if find_spec(needed.get(name, "tensorflow"))
    }


def take(batches, seconds: float) -> float:
    """Return the images per second over this number of seconds."""
    images = 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        batch = next(batches)
        images += int((batch[0] if isinstance(batch, tuple) else batch).shape[0])
    return images / passed


def compare(rates: dict[str, list[float]]) -> dict[str, float]:
    """Return the figures of docs/benchmarks.md: medians of the ratios of the rounds."""
    landmark = rates["landmark notebook"]
    jax = rates.get("ours, uint8, to JAX's devices")
    share = {"jax_share": median_ratio(jax, rates["ours, uint8"])} if jax else {}
    return share | {
        "uint8_share_of_decode": median_ratio(
            rates["ours, uint8"], rates["decode alone"]
        ),
        "uint8_share_of_batching": median_ratio(
            rates["ours, uint8"], rates["decode, cut and batch alone"]
        ),
        "uint8_ratio": median_ratio(rates["ours, uint8"], landmark),
        "xla_ratio": median_ratio(rates["ours, float32 by XLA"], landmark),
    }


def median_ratio(over: list[float], under: list[float]) -> float:
    return round(float(np.median(np.divide(over, under))), 3)


if __name__ == "__main__":
    main()
