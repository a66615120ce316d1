"""Parts in a bucket, read by TensorFlow's own gs:// client through a loopback emulator."""

import json
import os
import subprocess
import sys

import pytest
from support.gcs import serve_bucket
from support.readers import make_example, save_noise, write_part

SHARDS, RECORDS = 8, 64
ALL = list(range(SHARDS * RECORDS))
# One process answers all questions: TensorFlow takes seconds to import.
ANSWERS = """
import json, sys
space = {}
for line in sys.stdin:
    try:
        exec(json.loads(line), space)
        answer = {"result": space.pop("result", None)}
    except Exception as error:
        answer = {"error": type(error).__name__, "said": str(error)}
    print("@" + json.dumps(answer), flush=True)
"""
PREPARE = """
from kaggle_tfr.read.batches import read_batches
from kaggle_tfr.shards import find_shards
def read(shards):
    batches = read_batches(shards, image_size=128, batch_size=32)
    labels = [ns[mask > 0] for _, ns, mask in batches.as_numpy_iterator()]
    return sorted(int(n) for ns in labels for n in ns)
"""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A bucket with a part of eight shards; record n has the label n."""
    folder, shards = tmp_path_factory.mktemp("parts"), {}
    pictures = [save_noise(seed, 320, 240) for seed in range(RECORDS)]
    for shard in range(SHARDS):
        numbered = enumerate(pictures, shard * RECORDS)
        own = [make_example(image=data, label=n, height=240, width=320) for n, data in numbered]
        shards[f"s-f{shard % 4}-{shard:03d}-{RECORDS}.tfrec"] = (shard % 4, own)
    write_part(folder / "part-1", shards)
    with serve_bucket(tmp_path_factory.mktemp("certificate")) as bucket:
        bucket.seed_objects("flowers", folder)
        yield bucket


@pytest.fixture(scope="module")
def ask(bucket, root):
    """A function that runs code beside the bucket and returns the value of its `result`."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    env, command = {**os.environ, **bucket.env}, [sys.executable, "-u", "-c", ANSWERS]
    child = subprocess.Popen(command, cwd=root, env=env, text=True, **pipes)

    def put(code):
        child.stdin.write(json.dumps(code) + "\n")
        child.stdin.flush()
        for line in child.stdout:
            if line.startswith("@"):
                answer = json.loads(line[1:])
                return answer.get("result", answer)
        raise RuntimeError(f"the process ended, with code {child.wait()}")

    put(PREPARE)
    yield put
    child.kill()
    child.wait()


@pytest.fixture(scope="module")
def shards(ask):
    """The shards, found in the bucket; they stay in the other process, as `shards`."""
    return ask("shards = find_shards('gs://flowers'); result = shards.file.tolist()")


def test_a_part_in_a_bucket_is_read_whole_with_few_requests(shards, bucket, ask):
    """The bucket's root stands for its part; each shard takes a handful of large requests."""
    before = len(bucket.requests)

    assert ask("result = read(shards)") == ALL
    assert len(bucket.requests) - before <= 5 * SHARDS
    assert shards[0] == f"gs://flowers/part-1/s-f0-000-{RECORDS}.tfrec"


def test_shards_without_a_table_are_globbed_and_counted(shards, ask):
    """Foreign shards in a bucket are listed by pattern; a name without a count is counted."""
    table = ask(
        "foreign = find_shards('gs://flowers/part-1', schema='landmark'); "
        "result = [len(foreign), int(foreign['count'].sum())]"
    )

    assert table == [SHARDS, SHARDS * RECORDS]


@pytest.mark.parametrize("code", ["read(shards)", "len(find_shards('gs://flowers'))"])
def test_latency_hides_behind_parallel_requests(shards, bucket, ask, code):
    """While one shard's answer is awaited, all others' are: one waits for rounds, not requests."""
    bucket.peak, bucket.latency = 0, 0.4  # long enough for a busy machine
    ask(f"result = {code}")
    bucket.latency = 0.0

    assert bucket.peak >= SHARDS


def test_a_download_that_breaks_off_is_tried_again_and_never_ends_an_epoch(shards, bucket, ask):
    """A connection that ends half way costs time, not records; one that keeps ending fails."""
    bucket.cut(f"s-f1-001-{RECORDS}", 20_000)
    assert ask("result = read(shards)") == ALL
    assert bucket._cuts == []

    bucket.cut(f"s-f1-001-{RECORDS}", 20_000, times=50)
    answer = ask("result = read(shards)")
    bucket._cuts.clear()
    assert answer["error"].endswith("Error")
    assert f"s-f1-001-{RECORDS}.tfrec" in answer["said"]


@pytest.mark.parametrize("address", ["gs://no-such-bucket", "gs://flowers/part-9"])
def test_a_missing_bucket_or_part_is_named(ask, address):
    """A bucket or folder that is not there is told by its address."""
    answer = ask(f"result = len(find_shards('{address}'))")

    assert answer["error"] in ("FileNotFoundError", "OSError")
    assert address in answer["said"]
