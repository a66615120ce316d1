"""A Dask cluster of real processes on loopback, each with a home of its own, ended by pid."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from distributed import Client

TESTS = Path(__file__).parents[1]


class Cluster:
    """A scheduler, and the workers that were started: `workers` maps names to processes."""

    def __init__(self, folder, env=()):
        self.folder, self.env = Path(folder), {**os.environ, **dict(env)}
        self.env["PYTHONPATH"] = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        self.env |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self.workers = {}
        where = self.folder / "scheduler.json"
        options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter"]
        self.scheduler = self._start("scheduler", *options, "--scheduler-file", str(where))
        wait_until(where.exists, "the scheduler's file")
        self.client = Client(scheduler_file=str(where), set_as_default=False)
        self.address = self.client.scheduler.address

    def _start(self, kind, *options, name=""):
        home = self.folder / (name or kind)
        home.mkdir(parents=True)
        env = self.env | {"HOME": str(home), "TMPDIR": str(home)}
        command = [sys.executable, "-m", "dask", kind, *options]
        with open(home / "log", "wb") as log:
            return subprocess.Popen(command, env=env, cwd=home, stdout=log, stderr=log)

    def add_workers(self, count=1):
        """Starts workers of a single thread; returns their names once they have joined."""
        names = [f"worker-{len(self.workers) + number}" for number in range(count)]
        for name in names:
            options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
            options += ["--local-directory", str(self.folder / name), "--name", name]
            self.workers[name] = self._start("worker", self.address, *options, name=name)
        wait_until(lambda: set(names) <= set(self.joined()), f"workers {names}")
        return names

    def joined(self):
        """Address of each worker that is there, by name."""
        return self.client.run_on_scheduler(
            lambda dask_scheduler: {w.name: a for a, w in dask_scheduler.workers.items()}
        )

    def tasks_of(self, name):
        """How many tasks the scheduler has given to a worker and not yet got back."""
        return len(self.client.processing().get(self.joined().get(name), ()))

    def done_by(self, name):
        """How many tasks a worker has finished."""
        count = lambda dask_worker: dask_worker.state.executed_count  # noqa: E731
        return next(iter(self.client.run(count, workers=[self.joined()[name]]).values()))

    def signal(self, number):
        """Sends a signal to every worker that has not ended."""
        for process in self.workers.values():
            process.send_signal(number)

    def close(self):
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)
        for process in [*self.workers.values(), self.scheduler]:
            process.kill()
            process.wait(30)


@contextlib.contextmanager
def start_cluster(folder, workers=2, env=()):
    """A Cluster with so many single-threaded workers, gone when the block ends."""
    cluster = Cluster(folder, env)
    try:
        cluster.add_workers(workers)
        yield cluster
    finally:
        cluster.close()


class Replacement(threading.Thread):
    """Kills the oldest worker in the midst of a task, and goes on once another has joined.

    All workers are stopped first, so that the victim cannot finish what it has begun.
    """

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.victim = cluster, next(iter(cluster.joined()))
        self.lost, self.newcomer, self.problem = 0, "", None
        self.start()

    def run(self):
        try:
            self._replace()
        except BaseException as error:
            self.problem = error

    def _replace(self):
        cluster, victim = self.cluster, self.cluster.workers[self.victim]
        begin = cluster.done_by(self.victim)
        wait_until(lambda: cluster.done_by(self.victim) > begin, "a first task")
        wait_until(lambda: cluster.tasks_of(self.victim), "a task for the victim")
        cluster.signal(signal.SIGSTOP)
        time.sleep(0.1)
        self.lost = cluster.tasks_of(self.victim)
        victim.kill()
        victim.wait(30)
        (self.newcomer,) = cluster.add_workers()
        cluster.signal(signal.SIGCONT)

    def check(self):
        """Fails unless the victim had work, and the newcomer did some."""
        self.join(240)
        assert self.problem is None, self.problem
        assert self.lost
        assert self.victim not in self.cluster.joined()
        assert self.cluster.done_by(self.newcomer)


def wait_until(condition, what, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.02)
