"""Measure what reading an image by the address of its record costs.

python -m benchmarks.records [--data DIR] [--rounds N] [--json]
"""

import contextlib
import io
import json
import statistics
import tempfile
import time
from pathlib import Path

import tensorflow as tf

from benchmarks.read import (
    RECORDS,
    SHARDS,
    SIDE,
    list_photos,
    make_parser,
    median_ratio,
)
from kaggle_tfr import explore
from kaggle_tfr.images.convert import ImageSettings
from kaggle_tfr.records import read_image_bytes


def main() -> None:
    arguments = make_parser(__doc__, rounds=15).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(arguments.data, folder)
        seconds = measure(folder, arguments.rounds)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    figures = {
        "address_cost": median_ratio(
            seconds["addresses, read"], seconds["files, read"]
        ),
        "explore_cost": median_ratio(seconds["addresses, 01"], seconds["files, 01"]),
        "explore_per_second": round(RECORDS / medians["addresses, 01"]),
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in medians.items():
        print(f"{value / RECORDS * 1e6:9.1f} µs an image  {name}")
    print("\n".join(f"{key}: {value}" for key, value in figures.items()))


def write_inputs(data: str, folder: str) -> None:
    """Write the same RECORDS photographs of short side SIDE as files and as shards."""
    photos = list_photos(data, ImageSettings((SIDE, SIDE)))
    images = [encoded for _, encoded in photos]
    for name in ("files/a", "shards"):
        Path(folder, name).mkdir(parents=True)
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(f"{folder}/shards/{shard:02d}.tfrec") as writer:
            for number in range(shard, RECORDS, SHARDS):
                encoded = images[number % len(images)]
                Path(folder, "files", "a", f"{number:04d}.jpg").write_bytes(encoded)
                example = tf.train.Example()
                example.features.feature["image"].bytes_list.value.append(encoded)
                example.features.feature["label"].int64_list.value.append(0)
                writer.write(example.SerializeToString())


def measure(folder: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way in each interleaved round."""
    inputs = {"files": f"{folder}/files", "addresses": f"{folder}/shards"}
    uses = ("read", "01")
    seconds = {f"{name}, {use}": [] for use in uses for name in inputs}
    with contextlib.redirect_stdout(io.StringIO()):
        paths = {
            name: explore.read_table(input_dir, {})[0]["path"].tolist()
            for name, input_dir in inputs.items()
        }
        for _ in range(rounds):
            for name, input_dir in inputs.items():
                start = time.perf_counter()
                for path in paths[name]:
                    read_image_bytes(path)
                seconds[f"{name}, read"].append(time.perf_counter() - start)
                start = time.perf_counter()
                explore.measure(*explore.read_table(input_dir, {}))
                seconds[f"{name}, 01"].append(time.perf_counter() - start)
    return seconds


if __name__ == "__main__":
    main()
