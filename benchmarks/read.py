"""How fast records become batches, against the usual readers: python -m benchmarks.read."""

import argparse
import json
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from benchmarks.readers import WAYS
from kaggle_tfr.images import ImageSettings, convert
from kaggle_tfr.reader import find_shards
from kaggle_tfr.schema import encode, load_schema
from kaggle_tfr.tfds_metadata import TFDS_NAME, write_tfds

SIDE, BATCH, RECORDS, SHARDS = 256, 32, 1000, 8
PHOTOS = Path(__file__).resolve().parents[2] / "shared" / "data" / "photos"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=str(PHOTOS), help="a folder of photographs")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds, 5 or more")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each way in each round")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_records(arguments.data, folder)
        rates = measure(folder, arguments.rounds, arguments.seconds)
    figures = compare(rates)
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{'images/s':>9}  of decode  way")
    for name, values in rates.items():
        share = median_ratio(values, rates["decode alone"])
        print(f"{statistics.median(values):9,.0f}  {share:9.2f}  {name}")
    print("\n".join(f"{key}: {value:.2f}" for key, value in figures.items()))


def write_records(data: str, folder: str) -> None:
    """RECORDS photographs of short side SIDE in SHARDS files, and the same as single JPEG files."""
    settings, schema = ImageSettings((SIDE, SIDE)), load_schema("default")
    photos = sorted(path for path in Path(data).rglob("*") if path.is_file())
    if not photos:
        raise FileNotFoundError(f"'{data}' holds no photographs. Set --data to a folder of JPEGs.")
    records = []
    for label, path in enumerate(photos):
        picture = convert(path.read_bytes(), settings)
        if min(picture.height, picture.width) < SIDE:
            continue  # enlarging would be measured, not reading
        (Path(folder) / f"{label}.jpg").write_bytes(picture.data)
        row = {"label": label, "image_id": path.stem}
        records.append(encode(row, picture, schema))
    for shard in range(SHARDS):
        numbers = range(shard, RECORDS, SHARDS)
        name = TFDS_NAME.format(name="photos", part=1, split="train", i=shard, n=SHARDS)
        with tf.io.TFRecordWriter(str(Path(folder) / name)) as writer:
            for number in numbers:
                writer.write(records[number % len(records)])


def measure(folder: str, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Images per second of each way in each round, the ways taking turns."""
    shards = find_shards(folder, schema="default")
    setting = SimpleNamespace(folder=folder, shards=shards, side=SIDE, batch=BATCH)
    ready = {name: make(setting) for name, make in ways_here(setting).items()}
    rates = {name: [] for name in ready}
    for _ in range(rounds):
        for name, batches in ready.items():
            # Begun anew each time: one that waits goes on filling buffers while others are timed.
            running = iter(batches)
            take(running, seconds)  # tf.data finds its degree of parallelism while it runs
            rates[name].append(take(running, seconds))
            del running
    return rates


def ways_here(setting) -> dict:
    """The ways that can be measured here: TensorFlow Datasets only where it is installed."""
    if find_spec("tensorflow_datasets") is None:
        return {name: way for name, way in WAYS.items() if name != "TensorFlow Datasets"}
    schema = setting.shards["schema"].iloc[0].to_dict()
    plan = SimpleNamespace(name="photos", schema=schema, classes=range(RECORDS), kind="single")
    write_tfds(setting.folder, plan, 1, setting.shards)
    return WAYS


def take(batches, seconds: float) -> float:
    """Images per second over so many seconds."""
    images, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        images += int(next(batches).shape[0])
    return images / passed


def compare(rates: dict[str, list[float]]) -> dict[str, float]:
    """The figures of the README: medians of the ratios within each round."""
    landmark = rates["landmark notebook"]
    return {
        "uint8_share_of_decode": median_ratio(rates["ours, uint8"], rates["decode alone"]),
        "uint8_ratio": median_ratio(rates["ours, uint8"], landmark),
        "xla_ratio": median_ratio(rates["ours, float32 by XLA"], landmark),
        "host_ratio": median_ratio(rates["ours, float32 on the host"], landmark),
    }


def median_ratio(over: list[float], under: list[float]) -> float:
    return round(float(np.median(np.divide(over, under))), 3)


if __name__ == "__main__":
    main()
