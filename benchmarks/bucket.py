"""How fast records of a bucket become batches, against the disk: python -m benchmarks.bucket.

A gs:// bucket on loopback, every request of which waits LATENCY. This process serves, another reads
through TensorFlow's own client: they share two things only, the cores and the machine's memory.
Shards have some 30 MB. 03 plans larger ones; of small ones the first bytes are most of the wait.
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
COPIES = 16  # of 1,000 records, 33 MB: shards as 03 plans them, and so many that a pass takes seconds
BUCKET = "photos"
TESTS = Path(__file__).resolve().parents[1] / "tests"  # pytest's path, and its bucket's


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
    """The figures: medians of the ratios within each round; none, and why, without a bucket.

    folder: of `write_records`. Server CPU is in cores: what a bucket elsewhere would not take.
    """
    if reason := find_lack():
        print(f"bucket_share is left out: {reason}", file=sys.stderr)
        return {}
    sys.path.append(str(TESTS))
    from support.gcs import serve_bucket

    with tempfile.TemporaryDirectory() as work, serve_bucket(work) as bucket:
        copy_shards(folder, work)
        bucket.seed_objects(BUCKET, Path(work, "shards"))
        bucket.latency = LATENCY
        before, start = time.process_time(), time.perf_counter()
        code = f"from benchmarks.bucket import measure; measure({work!r}, {rounds})"
        run = bucket.run(code, timeout=None)
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
    """What a bucket on loopback lacks here, or ""."""
    if "gs" not in tf.io.gfile.get_registered_schemes():
        return "this TensorFlow has no GCS file system"
    lacking = [
        name for name in ("gcp_storage_emulator", "trustme") if not find_spec(name)
    ]
    lacking += [] if TESTS.is_dir() else [str(TESTS)]
    return (
        f"{', '.join(lacking)} not found; run it in the checkout, with [dev]"
        if lacking
        else ""
    )


def copy_shards(folder: str, work: str) -> None:
    """COPIES links of all shards joined, in work/shards, and their table in work/shards.pickle."""
    Path(work, "shards").mkdir()
    shards, joined = find_shards(folder), Path(work, "joined")
    joined.write_bytes(b"".join(Path(file).read_bytes() for file in shards["file"]))
    files = [f"{work}/shards/{copy:02d}.tfrec" for copy in range(COPIES)]
    for file in files:
        os.link(joined, file)
    table = pd.concat([shards.head(1).assign(count=shards["count"].sum())] * COPIES)
    table.assign(file=files).reset_index(drop=True).to_pickle(f"{work}/shards.pickle")


def measure(work: str, rounds: int) -> None:
    """Prints images per second of each way in each round, as JSON, the ways taking turns."""
    disk = pd.read_pickle(f"{work}/shards.pickle")  # noqa: S301
    names = [f"gs://{BUCKET}/{os.path.basename(file)}" for file in disk["file"]]
    places = {"disk": disk, "bucket": disk.assign(file=names)}
    rates = {
        f"{place}, {what}": [] for what in ("training", "a pass") for place in places
    }
    options, batches = (
        {"image_size": SIDE, "batch_size": BATCH},
        int(disk["count"].sum()) // BATCH,
    )
    for _ in range(rounds):
        for place, shards in places.items():
            running = iter(read_batches(shards, training=True, **options))
            take(
                running, batches // 2
            )  # the shuffle buffer is filled first, with half of them
            rates[f"{place}, training"].append(
                take(running, batches)
            )  # over an epoch's border
            del running
            once = iter(read_batches(shards, **options))
            rates[f"{place}, a pass"].append(take(once, batches))
    print(json.dumps(rates))


def take(running, batches: int) -> float:
    """Images per second over so many batches."""
    start = time.perf_counter()
    taken = sum(1 for _ in islice(running, batches))
    return taken * BATCH / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
