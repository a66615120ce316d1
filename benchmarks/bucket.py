"""Measure reading from a bucket against reading from the disk.

python -m benchmarks.bucket [--data DIR] [--rounds N] [--json]

The gs:// bucket is on loopback, and each request waits LATENCY. This process serves it;
another process reads it by TensorFlow's client. They share the cores and the memory.
Shards have about 30 MB. 03 plans larger ones; for smaller ones most of the time would
be the wait for the first bytes.
"""

import json
import os
import sys
import tempfile
import time
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pandas as pd
import tensorflow as tf

from benchmarks.read import BATCH, SIDE, make_parser, median_ratio, write_records
from kaggle_tfr.read.batches import read_batches
from kaggle_tfr.shards import find_shards

LATENCY = 0.05  # seconds
COPIES = 16  # shards of 1,000 records, 33 MB: enough for a pass of several seconds
BUCKET = "photos"
TESTS = Path(__file__).resolve().parents[1] / "tests"  # has the bucket's server


def main() -> None:
    arguments = make_parser(__doc__, rounds=5).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_records(arguments.data, folder)
        figures = compare(folder, arguments.rounds)
    if arguments.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{key}: {value:,.3g}" for key, value in figures.items()))


def compare(folder: str, rounds: int) -> dict[str, float]:
    """Return the medians of the ratios of the rounds, or nothing without a bucket.

    folder: of `write_records`. bucket_server_cores: cores that the server used, which a
    real bucket would not take.
    """
    if reason := find_lack():
        print(f"bucket_share is left out: {reason}", file=sys.stderr)
        return {}
    sys.path.append(str(TESTS))
    from support.gcs import serve_bucket
    from support.processes import call_python

    with tempfile.TemporaryDirectory() as work, serve_bucket(work) as bucket:
        copy_shards(folder, work)
        bucket.seed_objects(BUCKET, Path(work, "shards"))
        bucket.latency = LATENCY
        before, start = time.process_time(), time.perf_counter()
        code = f"from benchmarks.bucket import measure; measure({work!r}, {rounds})"
        run = call_python("-c", code, **bucket.env)
        used = (time.process_time() - before) / (time.perf_counter() - start)
    if run.returncode:
        raise RuntimeError(f"reading from the bucket failed: {run.stderr[-2000:]}")
    rates = json.loads(run.stdout.splitlines()[-1])
    return {
        "bucket_share": median_ratio(
            rates["bucket, training"], rates["disk, training"]
        ),
        "bucket_pass_share": median_ratio(
            rates["bucket, a pass"], rates["disk, a pass"]
        ),
        "bucket_server_cores": round(used, 3),
    }


def find_lack() -> str:
    """Return what is missing here for a bucket on loopback, or ""."""
    if "gs" not in tf.io.gfile.get_registered_schemes():
        return "this TensorFlow has no GCS file system"
    lacking = [
        name for name in ("gcp_storage_emulator", "trustme") if not find_spec(name)
    ]
    if not TESTS.is_dir():
        lacking.append(str(TESTS))
    if not lacking:
        return ""
    return f"{', '.join(lacking)} not found; run it in the checkout, with [dev]"


def copy_shards(folder: str, work: str) -> None:
    """Join all shards, link the result COPIES times, save a table of the links."""
    Path(work, "shards").mkdir()
    shards = find_shards(folder)
    joined = Path(work, "joined")
    joined.write_bytes(b"".join(Path(file).read_bytes() for file in shards["file"]))
    files = [f"{work}/shards/{copy:02d}.tfrec" for copy in range(COPIES)]
    for file in files:
        os.link(joined, file)
    table = pd.concat([shards.head(1).assign(count=shards["count"].sum())] * COPIES)
    table.assign(file=files).reset_index(drop=True).to_pickle(f"{work}/shards.pickle")


def measure(work: str, rounds: int) -> None:
    """Print, as JSON, the images per second of each way in each interleaved round."""
    disk = pd.read_pickle(f"{work}/shards.pickle")  # noqa: S301
    names = [f"gs://{BUCKET}/{os.path.basename(file)}" for file in disk["file"]]
    places = {"disk": disk, "bucket": disk.assign(file=names)}
    uses = ("training", "a pass")
    rates = {f"{place}, {use}": [] for use in uses for place in places}
    options = {"image_size": SIDE, "batch_size": BATCH}
    batches = int(disk["count"].sum()) // BATCH
    for _ in range(rounds):
        for place, shards in places.items():
            running = iter(read_batches(shards, training=True, **options))
            # The shuffle buffer is filled first, with half of the records.
            take(running, batches // 2)
            # This epoch's second half and the next one's first half.
            rates[f"{place}, training"].append(take(running, batches))
            del running
            once = iter(read_batches(shards, **options))
            rates[f"{place}, a pass"].append(take(once, batches))
    print(json.dumps(rates))


def take(running, batches: int) -> float:
    """Return the images per second over this number of batches."""
    start = time.perf_counter()
    taken = sum(1 for _ in islice(running, batches))
    return taken * BATCH / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
