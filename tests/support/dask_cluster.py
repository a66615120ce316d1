"""A Dask cluster of real processes on loopback, each with its own home folder."""

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

import dask
from distributed import Client

from support.forks import fork

# A task is given up after it has killed two workers.
SETTINGS = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}


class Cluster:
    """A scheduler and its workers; `workers` maps names to processes."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.workers = {}
        where = self.folder / "scheduler.json"
        options = ["--port", "0", "--no-jupyter", "--scheduler-file", str(where)]
        self.scheduler = self._start("scheduler", "scheduler", *options)
        wait_until(where.exists, "the scheduler's file")
        self.client = Client(scheduler_file=str(where), set_as_default=False)
        self.address = self.client.scheduler.address

    def _start(self, name, kind, *options):
        home = self.folder / name
        home.mkdir(parents=True)
        env = {**os.environ, **SETTINGS, "HOME": str(home), "TMPDIR": str(home)}
        command = ["dask", kind, *options, "--host", "127.0.0.1", "--no-dashboard"]
        return fork(_run_dask, command, env=env, out=home / "log", cwd=home)

    def add_workers(self, count=1):
        """Start single-threaded workers, and wait until they have joined."""
        names = [f"worker-{len(self.workers) + number}" for number in range(count)]
        for name in names:
            options = ["--nthreads", "1", "--no-nanny", "--name", name]
            options += ["--local-directory", str(self.folder / name)]
            self.workers[name] = self._start(name, "worker", self.address, *options)
        wait_until(lambda: set(names) <= set(self.joined()), f"workers {names}")

    def joined(self):
        """Return the names of the workers that are there."""
        return self.client.run_on_scheduler(
            lambda dask_scheduler: [w.name for w in dask_scheduler.workers.values()]
        )

    def count_tasks(self):
        """Return how many tasks the scheduler has, and the most that a worker has."""
        known = self.client.run_on_scheduler(
            lambda dask_scheduler: len(dask_scheduler.tasks)
        )
        taken = self.client.run(lambda dask_worker: len(dask_worker.state.tasks))
        return known, max(taken.values())


def _run_dask(command):
    from dask.__main__ import main

    dask.config.refresh()  # the environment's changes
    sys.argv = command
    main()


@contextlib.contextmanager
def start_cluster(folder):
    """A Cluster without workers, gone when the block ends."""
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        with contextlib.suppress(Exception):
            cluster.client.close(timeout=5)
        for process in [*cluster.workers.values(), cluster.scheduler]:
            process.kill()
            process.join(30)


class Gate:
    """Hold each task in its worker until the gate opens.

    folder: gets a file for each task that has begun.
    """

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir()
        self.sign = folder.with_suffix(".open")
        self.open = self.sign.touch
        self.close = self.sign.unlink

    def count_begun(self):
        return len(list(self.folder.iterdir()))

    def call(self, function, item):
        """Do the call of a worker once the gate is open."""
        tempfile.mkstemp(dir=self.folder)
        wait_until(self.sign.exists, "the gate")
        return function(item)


def wait_until(condition, what, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.02)
