"""The same work on a cluster: the same bytes, whoever dies."""

import itertools
import os
import threading

import pytest
from support.dask_cluster import Gate, start_cluster, wait_until
from support.plans import digests, make_images, plan_images, read_plainly, repeat_images
from support.tasks import end_worker, square

from kaggle_tfr import parallel
from kaggle_tfr.__main__ import main
from kaggle_tfr.write.writer import write_parts

SHARDS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with start_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def on_cluster(cluster):
    """The cluster with two workers, and all parallel work going there."""
    if missing := 2 - len(cluster.joined()):
        cluster.add_workers(missing)
    parallel.use_backend(0, "dask", cluster.address)
    yield cluster
    parallel.close_backend()


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """A gate that holds all parallel work; each of two workers has begun a task."""
    gate = Gate(tmp_path / "gate")
    monkeypatch.setattr(parallel, "_call_in_worker", gate.call)
    return gate


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a plan of 8 shards, written by one thread, and the images."""
    folder = tmp_path_factory.mktemp("alone")
    parallel.use_backend(1)
    table = repeat_images(make_images(folder / "images", SHARDS), 4)
    plan_images(table, folder, n_shards=SHARDS)
    write_parts(str(folder), str(folder / "whole"))
    parallel.close_backend()
    return folder


def test_workers_that_are_missing_or_die_of_a_task_are_errors(cluster, monkeypatch):
    """They are reported soon; a worker survives the task."""
    monkeypatch.setattr(parallel, "WAIT_SECONDS", 1)
    with pytest.raises(ConnectionError, match="0/1 workers arrived .* Start it"):
        parallel.use_backend(0, "dask", cluster.address)
    monkeypatch.undo()
    cluster.add_workers(3)
    parallel.use_backend(0, "dask", cluster.address)
    with pytest.raises(RuntimeError, match="A task ended its worker: .* again"):
        list(parallel.run(end_worker, [1], label="ends"))
    assert len(cluster.joined()) == 1


def test_a_worker_dies(work, on_cluster, gate, tmp_path):
    """Others do its work, also a new one; the shards are those of one thread."""
    victim, _ = on_cluster.joined()

    def replace():
        wait_until(lambda: gate.count_begun() == 2, "a task in each worker")
        on_cluster.workers[victim].kill()
        on_cluster.add_workers()
        gate.open()

    threading.Thread(target=replace, daemon=True).start()
    write_parts(str(work), str(tmp_path / "out"))

    assert victim not in on_cluster.joined()
    assert digests(tmp_path / "out") == digests(work / "whole")


def test_only_a_window_of_endless_items_is_sent(on_cluster):
    """Four for each of the two workers, and for eight that may join.

    Work with too much data to send stays in this process, as the pair search.
    """
    sent = []
    endless = (sent.append(number) or number for number in itertools.count())

    results = parallel.run(square, endless, label="squares", total=1000)
    assert next(results) == 0
    results.close()

    assert len(sent) == 4 * (2 + 8)
    getpid = lambda _: os.getpid()  # noqa: E731
    here = parallel.run(getpid, range(4), label="Here", local_only=True)
    assert set(here) == {os.getpid()}
    assert os.getpid() not in set(parallel.run(getpid, range(4), label="There"))


def test_a_stopped_run_is_taken_up(work, on_cluster, gate, tmp_path, monkeypatch):
    """An interrupt ends it while workers are busy; no further shard begins.

    When the scheduler dies, the error says so, and the next run needs no cluster. What
    was finished stays, and nothing half-written has a final name. The last test on
    this cluster.
    """
    out = tmp_path / "out"
    list_shards = lambda: list(out.glob("part-1/*.tfrec"))  # noqa: E731

    def interrupt(*_, **__):
        wait_until(lambda: gate.count_begun() == 2, "a task in each worker")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parallel, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_parts(str(work), str(out))
    wait_until(lambda: max(on_cluster.count_tasks()) == 1, "the end of other tasks")
    gate.open()
    wait_until(lambda: len(list_shards()) == 2, "the shards that had begun")
    assert gate.count_begun() == 2

    def kill():
        wait_until(lambda: gate.count_begun() == 4, "a task in each worker")
        on_cluster.scheduler.kill()

    gate.close()
    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(ConnectionError, match="scheduler is gone.*again"):
        write_parts(str(work), str(out))
    with pytest.raises(ConnectionError, match="is gone"):
        list(parallel.run(square, [1], label="squares"))
    parallel.close_backend()
    for worker in on_cluster.workers.values():
        worker.kill()
        worker.join(30)
    assert [len(read_plainly([path])) for path in list_shards()] == [4, 4]

    gate.open()
    write_parts(str(work), str(out))

    assert digests(out) == digests(work / "whole")
    list_shards()[0].write_bytes(b"")
    assert main(["verify", str(out)]) == 1
