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
        self.workers, self._logs = {}, []
        where = self.folder / "scheduler.json"
        options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter"]
        self.scheduler = self._start("scheduler", *options, "--scheduler-file", str(where))
        wait_until(where.exists, "the scheduler's file")
        self.client = Client(scheduler_file=str(where), set_as_default=False)
        self.address = self.client.scheduler.address

    def _start(self, kind, *options, name=""):
        home = self.folder / (name or kind)
        home.mkdir(parents=True)
        self._logs.append(open(home / "log", "wb"))  # noqa: SIM115
        env = self.env | {"HOME": str(home), "TMPDIR": str(home)}
        return subprocess.Popen(
            [sys.executable, "-m", "dask", kind, *options],
            env=env, cwd=home, stdout=self._logs[-1], stderr=subprocess.STDOUT,
        )  # fmt: skip

    def add_worker(self, name=""):
        """Starts one more worker of a single thread; its name. It joins when it is ready."""
        name = name or f"worker-{len(self.workers)}"
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
        options += ["--local-directory", str(self.folder / name), "--name", name]
        self.workers[name] = self._start("worker", self.address, *options, name=name)
        return name

    def wait_for(self, *names):
        """Returns when these workers have joined."""
        wait_until(lambda: set(names) <= set(self.joined()), f"workers {names}")

    def joined(self):
        """Address of each worker that is there, by name."""
        return self.client.run_on_scheduler(_list_workers)

    def tasks_of(self, name):
        """How many tasks the scheduler has given to a worker and not yet got back."""
        return len(self.client.processing().get(self.joined().get(name), ()))

    def done_by(self, name):
        """How many tasks a worker has finished."""
        count = self.client.run(_count_executed, workers=[self.joined()[name]])
        return next(iter(count.values()))

    def signal(self, name, number):
        self.workers[name].send_signal(number)
        if number == signal.SIGKILL:
            self.workers[name].wait(30)

    def close(self):
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)
        for process in [*self.workers.values(), self.scheduler]:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(30)
        for log in self._logs:
            log.close()


def _list_workers(dask_scheduler):
    return {worker.name: address for address, worker in dask_scheduler.workers.items()}


def _count_executed(dask_worker):
    return dask_worker.state.executed_count


@contextlib.contextmanager
def start_cluster(folder, workers=3, env=()):
    """A Cluster with so many single-threaded workers, gone when the block ends."""
    cluster = Cluster(folder, env)
    try:
        cluster.wait_for(*[cluster.add_worker() for _ in range(workers)])
        yield cluster
    finally:
        cluster.close()


class Replacement(threading.Thread):
    """Kills a worker in the midst of a task, and goes on once another has joined.

    All workers are stopped first, so that the victim cannot finish what it has begun.
    after: how many tasks the victim is to finish before.
    """

    def __init__(self, cluster, after=1):
        super().__init__(daemon=True)
        self.cluster, self.victim, self.after = cluster, next(iter(cluster.joined())), after
        self.lost, self.newcomer, self.problem = 0, "", None
        self.start()

    def run(self):
        try:
            self._replace()
        except BaseException as error:
            self.problem = error

    def _replace(self):
        cluster, present = self.cluster, list(self.cluster.joined())
        begin = cluster.done_by(self.victim)
        wait_until(lambda: cluster.done_by(self.victim) >= begin + self.after, "a first task")
        wait_until(lambda: cluster.tasks_of(self.victim), "a task for the victim")
        for name in present:
            cluster.signal(name, signal.SIGSTOP)
        time.sleep(0.1)
        self.lost = cluster.tasks_of(self.victim)
        cluster.signal(self.victim, signal.SIGKILL)
        self.newcomer = cluster.add_worker()
        cluster.wait_for(self.newcomer)
        for name in set(present) - {self.victim}:
            cluster.signal(name, signal.SIGCONT)

    def check(self):
        """Fails unless the victim had work, and the newcomer did some."""
        self.join(120)
        assert self.problem is None, self.problem
        assert self.lost
        assert self.victim not in self.cluster.joined()
        assert self.cluster.done_by(self.newcomer)


def wait_until(condition, what, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.02)
