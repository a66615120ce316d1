"""A Dask cluster of real processes on loopback, each with its own home folder."""

import contextlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
from distributed import Client

from support.forks import fork


class Cluster:
    """A scheduler and its workers; `workers` maps names to processes."""

    def __init__(self, folder, env=()):
        self.folder = Path(folder)
        self.workers = {}
        self.env = {**os.environ, **dict(env)}
        where = self.folder / "scheduler.json"
        options = ["--port", "0", "--no-jupyter", "--scheduler-file", str(where)]
        self.scheduler = self._start("scheduler", "scheduler", *options)
        wait_until(where.exists, "the scheduler's file")
        self.client = Client(scheduler_file=str(where), set_as_default=False)
        self.address = self.client.scheduler.address

    def _start(self, name, kind, *options):
        home = self.folder / name
        home.mkdir(parents=True)
        env = self.env | {"HOME": str(home), "TMPDIR": str(home)}
        command = ["dask", kind, *options, "--host", "127.0.0.1", "--no-dashboard"]
        return fork(_run_dask, command, env=env, out=home / "log", cwd=home)

    def add_workers(self, count=1):
        """Start single-threaded workers; return their names when they have joined."""
        names = [f"worker-{len(self.workers) + number}" for number in range(count)]
        for name in names:
            options = ["--nthreads", "1", "--no-nanny", "--name", name]
            options += ["--local-directory", str(self.folder / name)]
            self.workers[name] = self._start(name, "worker", self.address, *options)
        wait_until(lambda: set(names) <= set(self.joined()), f"workers {names}")
        return names

    def joined(self):
        """Address of each worker that is there, by name."""
        return self.client.run_on_scheduler(
            lambda dask_scheduler: {
                w.name: a for a, w in dask_scheduler.workers.items()
            }
        )

    def tasks_of(self, name):
        """How many tasks the scheduler has given to a worker and not yet got back."""
        return len(self.client.processing().get(self.joined().get(name), ()))

    def signal(self, number):
        """Sends a signal to every worker that has not ended."""
        for process in self.workers.values():
            if process.is_alive():
                os.kill(process.pid, number)


def _run_dask(command):
    from dask.__main__ import main

    dask.config.refresh()  # the environment's changes
    sys.argv = command
    main()


@contextlib.contextmanager
def start_cluster(folder, workers=2, env=()):
    """A Cluster with so many single-threaded workers, gone when the block ends."""
    cluster = Cluster(folder, env)
    try:
        cluster.add_workers(workers)
        yield cluster
    finally:
        with contextlib.suppress(Exception):
            cluster.client.close(timeout=5)
        for process in [*cluster.workers.values(), cluster.scheduler]:
            process.kill()
            process.join(30)


@contextlib.contextmanager
def worker_dies(cluster):
    """Kill a worker that has a task during the block, and add another one."""
    victim = min(cluster.joined())  # the oldest, whose imports are done

    def replace():
        wait_until(lambda: cluster.tasks_of(victim), "a task for the victim")
        cluster.workers[victim].kill()
        cluster.add_workers()

    with ThreadPoolExecutor(1) as thread:
        replaced = thread.submit(replace)
        yield
        replaced.result(240)
    assert victim not in cluster.joined()


def wait_until(condition, what, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.02)
