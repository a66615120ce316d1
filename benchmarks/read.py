"""How fast records become batches, against the usual readers: python -m benchmarks.read."""

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
from kaggle_tfr.write.parts import write_parts

SIDE, BATCH, RECORDS, SHARDS = 256, 32, 1000, 8
# TensorFlow Datasets, one of the readers, finds its shards by this pattern only.
SHARD_NAME = "{name}-{split}.tfrecord-{i:05d}-of-{n:05d}"
PHOTOS = Path(__file__).resolve().parents[2] / "shared" / "data" / "photos"


def main() -> None:
    from benchmarks import bucket  # it takes from here what both need

    parser = make_parser(__doc__, rounds=7)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="of each way in each round"
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
    """What the benchmarks of reading can be asked."""
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
    """RECORDS photographs of short side SIDE in SHARDS files, and the same as single JPEG files."""
    settings = ImageSettings((SIDE, SIDE))
    photos = list_photos(data, settings)
    for number, (_, picture) in enumerate(photos):
        (Path(folder) / f"{number}.jpg").write_bytes(picture)
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
    """(path, record's image) of each photograph below a folder that is large enough.

    Raises: FileNotFoundError when there is none.
    """
    photos = []
    for path in sorted(path for path in Path(data).rglob("*") if path.is_file()):
        try:
            picture = convert(path.read_bytes(), settings)
        except RejectedImage as rejection:
            print(f"'{path}' is left out: {rejection}", file=sys.stderr)
            continue
        # Enlarging a smaller one would be measured, not reading.
        if min(picture.height, picture.width) >= min(settings.size):
            photos.append((str(path), picture.data))
    if not photos:
        raise FileNotFoundError(
            f"'{data}' holds no photograph of {settings.size[0]} pixels or more. "
            "Set --data to a folder of JPEGs."
        )
    return photos


def measure(folder: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Images per second of each way in each round, the ways taking turns."""
    shards = find_shards(folder)
    setting = SimpleNamespace(folder=folder, shards=shards, side=SIDE, batch=BATCH)
    ready = {name: make(setting) for name, make in ways_here().items()}
    rates = {name: [] for name in ready}
    for _ in range(rounds):
        for name, batches in ready.items():
            # Begun anew each time: one that waits goes on filling buffers while others are timed.
            running = iter(batches)
            take(
                running, seconds
            )  # tf.data finds its degree of parallelism while it runs
            rates[name].append(take(running, seconds))
            del running
    return rates


def measure_costs(folder: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of processor time an image of each way in each round, its workers' included."""
    setting = SimpleNamespace(shards=find_shards(folder), side=SIDE, batch=BATCH)
    ready = {
        name: make(setting)
        for name, (package, make) in COSTS.items()
        if find_spec(package)
    }
    costs = {name: [] for name in ready}
    for _ in range(rounds):
        for name, batches in ready.items():
            before, start, images = sum(os.times()[:4]), time.perf_counter(), 0
            running = iter(batches)
            while time.perf_counter() - start < seconds:
                batch = next(running)
                images += len(batch[0] if isinstance(batch, tuple) else batch)
            del running  # ends the workers, whose time is only then known
            gc.collect()
            costs[name].append((sum(os.times()[:4]) - before) / images * 1000)
    return costs


def ways_here() -> dict:
    """The ways that can be measured here: those whose package is installed."""
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
    """Images per second over so many seconds."""
    images, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        batch = next(batches)
        images += int((batch[0] if isinstance(batch, tuple) else batch).shape[0])
    return images / passed


def compare(rates: dict[str, list[float]]) -> dict[str, float]:
    """The figures of the README: medians of the ratios within each round."""
    landmark, jax = (
        rates["landmark notebook"],
        rates.get("ours, uint8, to JAX's devices"),
    )
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
        "host_ratio": median_ratio(rates["ours, float32 on the host"], landmark),
    }


def median_ratio(over: list[float], under: list[float]) -> float:
    return round(float(np.median(np.divide(over, under))), 3)


if __name__ == "__main__":
    main()
