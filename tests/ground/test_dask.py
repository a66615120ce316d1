"""The same work on a cluster: the same bytes, whoever dies."""

import _thread
import itertools
import os
import signal
import threading
import time

import pytest
from support.dask_cluster import start_cluster, wait_until, worker_dies
from support.plans import digests, make_images, plan_images, read_plainly, repeat_images
from support.tasks import end_worker, square

from kaggle_tfr import parallel
from kaggle_tfr.write.writer import write_parts

SHARDS = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster without workers that gives a task up after it has killed two."""
    limit = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    with start_cluster(
        tmp_path_factory.mktemp("cluster"), workers=0, env=limit
    ) as cluster:
        yield cluster


@pytest.fixture
def on_cluster(cluster):
    """The cluster with two workers, and all parallel work going there."""
    if missing := 2 - len(cluster.joined()):
        cluster.add_workers(missing)
    parallel.use_backend(0, "dask", cluster.address)
    yield cluster
    parallel.close_backend()


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a plan of 20 shards, written by one thread, and the images."""
    folder = tmp_path_factory.mktemp("alone")
    parallel.use_backend(1)
    # The bucket emulator sometimes misreads uploads of less than a megabyte.
    table = repeat_images(make_images(folder / "images", SHARDS, sizes=(600, 700)), 4)
    plan_images(table, folder, size=500, n_shards=SHARDS)
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


def test_a_worker_dies(work, on_cluster, tmp_path):
    """Others do its work, also a new one; the shards are those of one thread."""
    with worker_dies(on_cluster):
        write_parts(str(work), str(tmp_path))

    assert digests(tmp_path) == digests(work / "whole")


def test_after_an_interrupt_the_workers_stop_too(work, on_cluster, tmp_path):
    """Unfinished shards get no final name, and the next run writes equal bytes."""
    part = tmp_path / "part-1"
    has_ended = threading.Event()
    count = lambda: len(list(part.glob("*.tfrec")))  # noqa: E731

    def interrupt():
        wait_until(lambda: count() > 1, "two shards")
        # Else they might be through before the interrupt is felt.
        on_cluster.signal(signal.SIGSTOP)
        # Python drops one that arrives in a finalizer; a user presses Ctrl-C again.
        while not has_ended.is_set():
            _thread.interrupt_main()
            has_ended.wait(10)

    # What a shell starts in the background is deaf to interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            write_parts(str(work), str(tmp_path))
    finally:
        has_ended.set()
        signal.signal(signal.SIGINT, before)
        on_cluster.signal(signal.SIGCONT)

    named = count()
    assert named < SHARDS
    time.sleep(1)
    # Each worker ends its task, and one that the scheduler had given it already.
    assert count() - named <= 4
    assert all(len(read_plainly([path])) == 4 for path in part.glob("*.tfrec"))
    write_parts(str(work), str(tmp_path))
    assert digests(tmp_path) == digests(work / "whole")


def test_items_are_taken_as_there_is_room_and_none_is_left_behind(on_cluster):
    """Only a window of endless items is sent; then the scheduler forgets the rest."""
    sent = []
    endless = (sent.append(number) or number for number in itertools.count())

    results = parallel.run(square, endless, label="squares", total=1000)
    assert next(results) == 0
    results.close()

    assert len(sent) == parallel.AHEAD * (2 + parallel.NEWCOMERS)
    count = on_cluster.client.run_on_scheduler
    wait_until(
        lambda: not count(lambda dask_scheduler: len(dask_scheduler.tasks)), "no task"
    )


def test_work_with_too_much_data_to_send_stays_in_this_process(on_cluster):
    """The pair search does not send all hashes to each worker."""
    getpid = lambda _: os.getpid()  # noqa: E731

    here = parallel.run(getpid, range(4), label="Here", local_only=True)
    assert set(here) == {os.getpid()}
    assert os.getpid() not in set(parallel.run(getpid, range(4), label="There"))


def test_after_the_scheduler_s_death_the_run_can_be_taken_up(
    work, on_cluster, tmp_path
):
    """What was finished stays, the error says so, and the next run needs no cluster.

    The last test on this cluster.
    """
    out = tmp_path / "out"

    def kill():
        wait_until(lambda: list(out.glob("part-1/*.tfrec")), "a shard")
        on_cluster.scheduler.kill()

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(ConnectionError, match="scheduler is gone.*again"):
        write_parts(str(work), str(out))
    with pytest.raises(ConnectionError, match="is gone"):
        list(parallel.run(square, [1], label="squares"))
    parallel.close_backend()
    # The workers end too, and leave nothing half-written under a final name.
    for worker in on_cluster.workers.values():
        worker.kill()
        worker.join(30)
    assert all(len(read_plainly([path])) == 4 for path in out.glob("part-1/*.tfrec"))

    write_parts(str(work), str(out))

    assert digests(out) == digests(work / "whole")
