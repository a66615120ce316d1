"""Files and parts in a bucket: TensorFlow's gs:// client and a loopback emulator."""

import pytest
from support.forks import CONTEXT, fork
from support.gcs import serve_bucket
from support.readers import make_example, save_noise, write_part
from support.tasks import run_lines

SHARDS = 8
RECORDS = 64
ALL = list(range(SHARDS * RECORDS))
PREPARE = """
from kaggle_tfr import records, storage
from kaggle_tfr.read.batches import read_batches
from kaggle_tfr.shards import find_shards
def read(shards):
    batches = read_batches(shards, image_size=128, batch_size=32)
    labels = [ns[mask > 0] for _, ns, mask in batches.as_numpy_iterator()]
    return sorted(int(n) for ns in labels for n in ns)
"""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """Serve a part of eight shards, where record n has the label n, and some files."""
    folder = tmp_path_factory.mktemp("parts")
    image = save_noise(0, 320, 240)
    shards = {}
    for shard in range(SHARDS):
        labels = range(shard * RECORDS, (shard + 1) * RECORDS)
        records = [make_example(image=image, label=label) for label in labels]
        shards[f"s-f{shard % 4}-{shard:03d}-{RECORDS}.tfrec"] = (shard % 4, records)
    write_part(folder / "part-1", shards)
    with serve_bucket(tmp_path_factory.mktemp("certificate")) as bucket:
        bucket.seed_objects("flowers", folder)
        (folder / "set" / "rose").mkdir(parents=True)
        (folder / "set" / "rose" / "1 ö.jpg").write_bytes(b"petal")
        for number in range(64):
            (folder / "set" / f"{number:02d}.jpg").write_bytes(b"x" * (number + 1))
        bucket.seed_objects("files", folder / "set")
        yield bucket


@pytest.fixture(scope="module")
def ask(bucket):
    """Return a function that runs code in another process and returns its `result`."""
    ours, theirs = CONTEXT.Pipe()
    child = fork(run_lines, theirs, env=bucket.env)
    theirs.close()

    def put(code):
        ours.send(code)
        if code == "end":
            child.join(60)
            return child.exitcode
        answer = ours.recv()
        return answer.get("result", answer)

    put(PREPARE)
    yield put
    child.kill()
    child.join()


@pytest.fixture(scope="module")
def shards(ask):
    """Return the files of the shards, which the other process has as `shards`."""
    return ask("shards = find_shards('gs://flowers'); result = shards.file.tolist()")


def test_a_part_in_a_bucket_is_read_whole_with_few_requests(shards, bucket, ask):
    """The bucket's root stands for its part; a shard takes a few large requests."""
    before = len(bucket.requests)

    assert ask("result = read(shards)") == ALL
    assert len(bucket.requests) - before <= 5 * SHARDS
    assert shards[0] == f"gs://flowers/part-1/s-f0-000-{RECORDS}.tfrec"


@pytest.mark.parametrize("code", ["read(shards)", "len(find_shards('gs://flowers'))"])
def test_latency_hides_behind_parallel_requests(shards, bucket, ask, code):
    """All shards are requested at once."""
    bucket.peak = 0
    bucket.latency = 0.25  # long enough for a busy machine
    ask(f"result = {code}")
    bucket.latency = 0.0

    assert bucket.peak >= SHARDS


def test_a_bucket_that_fails_never_ends_an_epoch(shards, bucket, ask):
    """Fewer records would be a silent error."""
    bucket.refused = range(len(bucket.requests) + SHARDS // 2, 1 << 30)
    answer = ask("result = read(shards)")
    bucket.refused = range(0)

    assert answer["error"].endswith("Error")
    assert "gs://flowers/part-1" in answer["message"]


ROSE = "gs://files/rose/1 ö.jpg"
REMOVED = (
    f"[storage.remove({ROSE!r}), storage.remove({ROSE!r}), storage.exists({ROSE!r})]"
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("storage.list_names('gs://files')[-2:]", ["63.jpg", "rose/"]),
        ("storage.list_names('gs://files/rose')", ["1 ö.jpg"]),
        (f"storage.read_bytes({ROSE!r}).decode()", "petal"),
        (f"storage.size_and_time({ROSE!r})[0]", 5),
        (REMOVED, [None, None, False]),
    ],
)
def test_a_bucket_answers_like_a_disk(ask, code, expected):
    """Each call returns what it returns for files; the last one removes its object."""
    assert ask(f"result = {code}") == expected


def test_the_objects_of_a_block_are_read_in_parallel(bucket, ask):
    """They are in order."""
    bucket.peak = 0
    bucket.latency = 0.2
    sizes = ask(
        "paths = [f'gs://files/{number:02d}.jpg' for number in range(64)]\n"
        "result = [len(data) for data in records.stream_image_bytes(paths)]"
    )
    bucket.latency = 0.0

    assert sizes == list(range(1, 65))
    assert bucket.peak > 8, "reads wait for one another"


def test_a_silent_bucket_is_an_error_soon(bucket, ask):
    """A bucket that never answers is named, with what to set.

    The last test of this process, which ends despite the requests that are pending.
    """
    assert 5 < ask("result = storage.ANSWER_SECONDS") < 60
    bucket.silent = True
    answer = ask(
        "storage.ANSWER_SECONDS = 2\n"
        "paths = ['gs://silent/a.jpg', 'gs://silent/b.jpg']\n"
        "raise next(records.stream_image_bytes(paths))"
    )

    assert answer["error"] == "TimeoutError"
    assert "gs://silent did not answer within 2 s" in answer["message"]
    assert "NO_GCE_CHECK=true" in answer["message"]
    assert ask("end") == 0
