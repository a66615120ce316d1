"""The same work on a cluster: the same bytes, whoever dies."""

import _thread
import json
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from pandas.testing import assert_frame_equal
from support.dask_cluster import Replacement, start_cluster, wait_until
from support.failing_tasks import end_worker, square, wait_and_square
from support.gcs import serve_bucket
from support.plans import digests, make_images, plan_images, read_plainly

from kaggle_tfr import parallel
from kaggle_tfr.deduplicate import hashing
from kaggle_tfr.deduplicate.hashing import hash_images
from kaggle_tfr.explore.table import measure
from kaggle_tfr.write.parts import write_parts
from kaggle_tfr.write.verify import channel_stats_of_files, verify_parts


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A scheduler and three workers."""
    with start_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def on_cluster(cluster):
    """The cluster, with all parallel work going there."""
    parallel.use_backend(0, "dask", cluster.address)
    yield cluster
    parallel.close_backend()


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a plan of 36 shards, what one thread makes of it, and the table of images."""
    folder = tmp_path_factory.mktemp("alone")
    parallel.use_backend(1)
    table = make_images(folder / "images", 144, sizes=(600, 700))
    plan_images(table, folder, size=500, n_shards=36)
    write_parts(str(folder), str(folder / "whole"))
    parallel.close_backend()
    return folder, table


def test_a_worker_dies_while_writing(work, on_cluster, tmp_path):
    """
    Its shards are written by others, one of them new, and every byte is as from one thread.
    """
    folder, _ = work
    death = Replacement(on_cluster)

    write_parts(str(folder), str(tmp_path))

    death.check()
    assert digests(tmp_path) == digests(folder / "whole")


def test_a_worker_dies_while_hashing(work, on_cluster, tmp_path, monkeypatch):
    """
    Its pictures are hashed by others, and table and cache are as from one thread.
    """
    _, table = work
    monkeypatch.setattr(hashing, "BLOCK", 2)
    (tmp_path / "here").mkdir()
    death = Replacement(on_cluster)

    hashes = hash_images(table, str(tmp_path))

    death.check()
    parallel.use_backend(1)
    alone = hash_images(table, str(tmp_path / "here"))
    assert_frame_equal(hashes, alone)
    assert (tmp_path / "hashes.parquet").read_bytes() == (
        tmp_path / "here" / "hashes.parquet"
    ).read_bytes()


def test_a_worker_dies_while_verifying(work, on_cluster, tmp_path):
    """
    Others read on, and find the one fault there is, and nothing else.
    """
    folder, _ = work
    write_parts(str(folder), str(tmp_path))
    shard = sorted((tmp_path / "part-1").glob("*.tfrec"))[7]
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    death = Replacement(on_cluster)

    faults = verify_parts(str(tmp_path / "part-1")).faults

    death.check()
    assert set(faults["file"]) == {shard.name}
    assert verify_parts(str(folder / "whole" / "part-1")).faults.empty


WRITE_AND_READ = """
import hashlib, json, sys
import tensorflow as tf
from kaggle_tfr.write.verify import verify_parts
from kaggle_tfr.write.parts import write_parts
work, out, address = sys.argv[1:]
parallel.use_backend(0, "dask", address)
write_parts(work, out)
assert verify_parts(f"{out}/part-1").faults.empty
found = {}
for folder, _, names in tf.io.gfile.walk(out):
    for name in names:
        path = f"{folder.rstrip('/')}/{name}"
        data = tf.io.gfile.GFile(path, "rb").read()
        found[path[len(out) + 1 :]] = hashlib.sha256(data).hexdigest()
print(json.dumps(found))
"""


@pytest.mark.heavy
def test_a_worker_dies_while_writing_to_a_bucket(work, tmp_path):
    """
    In the bucket too there are the bytes of one thread, whole objects, and no other.
    """
    folder, _ = work
    (tmp_path / "seed").mkdir()
    (tmp_path / "seed" / "note").write_text("makes the bucket")
    with (
        serve_bucket(tmp_path) as bucket,
        start_cluster(tmp_path, workers=2, env=bucket.env) as cluster,
    ):
        bucket.seed_objects("parts", tmp_path / "seed")
        death = Replacement(cluster)
        done = subprocess.run(
            [sys.executable, "-c", WRITE_AND_READ, folder, "gs://parts/run", cluster.address],
            env=cluster.env, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        death.check()

    assert json.loads(done.stdout.splitlines()[-1]) == digests(folder / "whole")


def test_everything_else_is_the_same_too(work, on_cluster):
    """
    Sizes of files and statistics of pixels do not depend on where they are worked out.
    """
    folder, table = work
    parts = [str(folder / "whole" / "part-1")]
    blank = table[["image_id", "path", "split", "label", "label_name", "problem"]]

    def find():
        return measure(blank), channel_stats_of_files(table), verify_parts(parts).stats

    images, files, records = find()

    parallel.use_backend(1)
    images_alone, *stats_alone = find()
    assert_frame_equal(images, images_alone)
    assert [files, records] == stats_alone


def test_after_an_interrupt_the_workers_stop_too(work, on_cluster, tmp_path):
    """
    The shards that they were at get no name any more, and the next run ends with equal bytes.
    """
    folder, _ = work
    part = tmp_path / "part-1"

    def tell_workers(number):
        for process in on_cluster.workers.values():
            process.send_signal(number)  # none to those that have ended

    def interrupt():
        wait_until(lambda: len(list(part.glob("*.tfrec"))) > 1, "two shards")
        tell_workers(signal.SIGSTOP)  # else they might be through before the interrupt is felt
        _thread.interrupt_main()

    # What a shell starts in the background is deaf to interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            write_parts(str(folder), str(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
        tell_workers(signal.SIGCONT)

    named = len(list(part.glob("*.tfrec")))
    assert named < 36
    time.sleep(2)
    assert len(list(part.glob("*.tfrec"))) - named <= 3  # those between the look and the name
    assert all(len(read_plainly([path])) == 4 for path in part.glob("*.tfrec"))
    write_parts(str(folder), str(tmp_path))
    assert digests(tmp_path) == digests(folder / "whole")


def test_another_run_takes_a_part_over(work, on_cluster, tmp_path):
    """
    Two runs at one part do not mix: the first stops and says why, the second ends it.
    """
    folder, _ = work
    errors = []

    def write_first():
        try:
            write_parts(str(folder), str(tmp_path))
        except OSError as error:
            errors.append(str(error))

    first = threading.Thread(target=write_first)
    first.start()
    wait_until(lambda: list(tmp_path.glob("part-1/*.tfrec")), "a shard")
    write_parts(str(folder), str(tmp_path))
    first.join(60)

    assert "another run has begun to write the same part" in errors[0]
    assert digests(tmp_path) == digests(folder / "whole")


def test_a_cluster_on_this_machine_comes_and_goes(monkeypatch):
    """
    Without SCHEDULER the run brings two worker processes of its own, and leaves none.
    """
    assert "2 worker threads" in parallel.use_backend(2, "dask")

    assert sorted(parallel.run(square, range(20), label="squares")) == [n * n for n in range(20)]
    address = parallel._active["client"].scheduler.address
    parallel.close_backend()

    monkeypatch.setattr(parallel, "WAIT_SECONDS", 1)
    with pytest.raises(ConnectionError):
        parallel.connect_cluster(1, address)


def test_an_error_in_a_task_is_raised_here(on_cluster):
    """
    It is neither tried again nor changed on its way.
    """
    with pytest.raises(TypeError, match="can't multiply"):
        list(parallel.run(square, ["four"], label="squares"))


def test_an_unpicklable_task_is_an_error_and_no_wait(on_cluster):
    """
    What cannot travel is said at once.
    """
    with pytest.raises(TypeError, match="pickle"):
        list(parallel.run(square, [threading.Lock()], label="squares"))


def test_a_task_that_kills_its_workers_is_given_up(tmp_path):
    """
    An image on which a library crashes does not bring the whole cluster down, one by one.
    """
    limit = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    with start_cluster(tmp_path, workers=3, env=limit) as cluster:
        parallel.use_backend(0, "dask", cluster.address)
        try:
            with pytest.raises(RuntimeError, match="every worker that took it died.*memory-limit"):
                list(parallel.run(end_worker, [1], label="ends"))
        finally:
            parallel.close_backend()


def test_the_scheduler_dies_and_the_run_can_be_taken_up(work, tmp_path):
    """
    The error names the scheduler; what was finished stays, and the next run needs no cluster.
    """
    folder, _ = work
    out = tmp_path / "out"
    with start_cluster(tmp_path, workers=2) as cluster:
        parallel.use_backend(0, "dask", cluster.address)

        def kill():
            wait_until(lambda: list(out.glob("part-1/*.tfrec")), "a shard")
            cluster.scheduler.send_signal(signal.SIGKILL)

        threading.Thread(target=kill, daemon=True).start()
        with pytest.raises(ConnectionError, match=f"{cluster.address} is gone.*again"):
            write_parts(str(folder), str(out))
        parallel.close_backend()
        # The workers end too, and leave nothing half-written under a final name.
        assert all(len(read_plainly([path])) == 4 for path in out.glob("part-1/*.tfrec"))

    write_parts(str(folder), str(out))

    assert digests(out) == digests(folder / "whole")


def test_no_scheduler_at_the_address(monkeypatch):
    """
    The message has the address and the command that starts one.
    """
    monkeypatch.setattr(parallel, "WAIT_SECONDS", 1)

    with pytest.raises(ConnectionError, match="tcp://127.0.0.1:9'.*dask scheduler"):
        parallel.use_backend(0, "dask", "tcp://127.0.0.1:9")


def test_a_scheduler_without_workers(tmp_path, monkeypatch):
    """
    The message has the command that starts some.
    """
    monkeypatch.setattr(parallel, "WAIT_SECONDS", 1)

    with (
        start_cluster(tmp_path, workers=0) as cluster,
        pytest.raises(ConnectionError, match=f"no worker for 1 s.*dask worker {cluster.address}"),
    ):
        parallel.use_backend(0, "dask", cluster.address)


def test_without_the_extra_the_message_says_what_to_install():
    """
    With dask and distributed out of reach, BACKEND="dask" names the extra, and threads work on.
    """
    code = (
        "import sys; sys.modules['dask'] = sys.modules['distributed'] = None\n"
        "from kaggle_tfr import progress\n"
        "print(parallel.use_backend(2), sorted(parallel.run(abs, [-2, 1], label='x', total=0)))\n"
        "progress.use_backend(2, 'dask')"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stdout.startswith("2 threads on this machine [1, 2]")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith('ImportError: BACKEND="dask" needs dask and distributed')
    assert 'pip install "kaggle-tfr[dask]"' in last


def test_order_is_kept_where_it_is_asked_for(on_cluster):
    """
    The first results wait for the slowest, and come first.
    """
    slow_first = partial(wait_and_square, slow=3)

    found = list(parallel.run(slow_first, range(40), label="squares", ordered=True))

    assert found == [number * number for number in range(40)]


@pytest.mark.heavy
def test_the_client_s_memory_does_not_follow_the_plan(root, monkeypatch):
    """
    From 10⁴ to 10⁶ rows of plan it grows by a window of tasks and a footer of the plan, 40 MB,
    where the table alone would take 136 MB.
    """
    monkeypatch.syspath_prepend(str(root))
    from benchmarks.dask_scale import ROWS, measure_memory

    peaks = measure_memory()

    assert peaks[ROWS[1]] - peaks[ROWS[0]] < 70
