"""A Dask cluster as joblib's backend: how to reach it, and errors that say what to mend."""

import asyncio
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import metadata
from typing import Any

import joblib

WAIT_SECONDS = 60  # for a scheduler to answer, and for its first worker


RETRIES = 3


# Where these differ, the bytes of the shards may.
PACKAGES = ("tensorflow", "opencv-python", "pillow", "numpy")


def package_versions() -> dict[str, str]:
    """The installed version of every package that has a hand in the bytes; "" for none."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def connect_cluster(workers: int, scheduler: str = "") -> Any:
    """A client of the cluster at this address, or of `workers` single-threaded processes here.

    Raises:
        ImportError: dask is not installed.
        ConnectionError: no scheduler answers there, or it has no workers.
        ModuleNotFoundError: the workers lack this package.
    """
    try:
        import dask
        from dask.distributed import Client, LocalCluster
    except ImportError as error:
        raise ImportError(
            'BACKEND="dask" needs dask and distributed, which are not installed. '
            'Run: pip install "kaggle-tfr[dask]", or set BACKEND="threading".'
        ) from error
    # Dask keeps the last thousand messages for its debugger: here each may hold a shard's table.
    dask.config.set({"distributed.admin.low-level-log-length": 10})
    if not scheduler:
        options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
        return Client(LocalCluster(n_workers=workers, **options))
    try:
        client = Client(scheduler, timeout=WAIT_SECONDS)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at SCHEDULER = '{scheduler}': {error}. Start one with "
            "`dask scheduler` and set SCHEDULER to the address that it prints, such as "
            '"tcp://10.0.0.5:8786"; "" starts a cluster on this machine.'
        ) from None
    try:
        _check_workers(client, scheduler)
    except BaseException:
        client.close()
        raise
    return client


def close_client(client: Any) -> None:
    """Ends the connection, and the cluster where `connect_cluster` began it."""
    own_cluster = client.cluster
    client.close()
    if own_cluster is not None:
        own_cluster.close()


def count_threads(client: Any) -> int:
    """Worker threads that the cluster has now."""
    return max(1, sum(client.nthreads().values()))


def make_backend(client: Any) -> Any:
    """The Dask backend of joblib, but an error of the cluster itself reaches the caller.

    joblib's own waits for ever for a task whose workers all died, or whose scheduler is gone.
    """
    from joblib._dask import DaskDistributedBackend

    class ClusterBackend(DaskDistributedBackend):
        def effective_n_jobs(self, n_jobs):
            # For a single job joblib would work here, and leave out workers that join later.
            return max(2, super().effective_n_jobs(n_jobs))

        def start_call(self):
            super().start_call()
            self.client.loop.add_callback(self._watch)

        def submit(self, func, callback=None):
            future = super().submit(func, callback)
            future.add_done_callback(partial(_pass_on, callback))
            return future

        def retrieve_result_callback(self, out):
            if isinstance(out, _Failure):
                raise _explain_cluster_error(out.error, self.client)
            if isinstance(out, BaseException) and type(out).__name__.endswith("CancelledError"):
                raise _explain_cluster_error(out, self.client)
            return super().retrieve_result_callback(out)

        async def _watch(self):
            # Dask forgets a result that was on its way when the scheduler went.
            while self._continue and self.client.status == "running":  # noqa: ASYNC110
                await asyncio.sleep(1)
            for future in list(self._results.values()) if self._continue else ():
                if not future.done():
                    future.set_exception(ConnectionError("the connection was lost"))

    return ClusterBackend(client=client, retries=RETRIES)


class _Failure:
    """An error of the cluster, where joblib expects a result."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def pack(function: Any, item: Any) -> bytes:
    """A call, ready to travel.

    As bytes it goes with its task. A table would be sent ahead to one worker, and be lost with it.
    """
    import cloudpickle  # comes with dask

    return cloudpickle.dumps((function, item))


def unpack_and_call(packed: bytes) -> Any:
    """What a worker does with it."""
    function, item = pickle.loads(packed)  # noqa: S301  # packed above
    return function(item)


def _pass_on(callback, future) -> None:
    error = future.exception()
    if error is not None:
        callback(_Failure(error))


def _explain_cluster_error(error: BaseException, client: Any) -> Exception:
    from dask.distributed import KilledWorker

    what = " ".join(f"{type(error).__name__}: {error}".split())
    again = "What is finished stays; run the same notebook again, and it goes on from there."
    if isinstance(error, KilledWorker):
        return RuntimeError(
            f"A task was given up, because every worker that took it died ({what}). A worker "
            "that runs out of memory is killed: see its log, and start workers with fewer threads "
            f"or more memory (`dask worker --nthreads 1 --memory-limit 4GB`). {again}"
        )
    lost = isinstance(error, ConnectionError) or "connection-lost" in what
    if lost or client.status != "running":
        return ConnectionError(
            f"The Dask scheduler at {client.scheduler.address} is gone ({what}). Start it and its "
            f"workers again. {again}"
        )
    return RuntimeError(
        f"The cluster could not run a task ({what}). Do all workers see the same folders, and have "
        f"they the same packages as this process? {again}"
    )


def _check_workers(client: Any, scheduler: str) -> None:
    from dask.distributed import TimeoutError as DaskTimeoutError

    try:
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
    except (TimeoutError, DaskTimeoutError):
        raise ConnectionError(
            f"the Dask scheduler at {scheduler} has had no worker for {WAIT_SECONDS} s. Start "
            f"some: dask worker {scheduler} --nthreads 1 --nworkers -1"
        ) from None
    here = package_versions()
    try:
        workers = client.run(package_versions)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a worker of {scheduler} cannot import this package: {error}. Install it on every "
            "machine of the cluster, with the same versions as here."
        ) from None
    for worker, there in workers.items():
        other = [f"{k} {v or 'missing'} ({here[k]} here)" for k, v in there.items() if v != here[k]]
        if other:
            warnings.warn(
                f"the worker at {worker} has {', '.join(other)}: its shards can differ in their "
                "bytes from those written here, though not in what they show.",
                stacklevel=4,
            )


def describe_cluster(client: Any) -> str:
    """One line: where the cluster is, and how many threads work there."""
    return f"Dask at {client.scheduler.address}, {count_threads(client)} worker threads"


BACKENDS = ("threading", "loky", "dask")


SECONDS_BETWEEN_LINES = 30


IN_FLIGHT_MORE = 32  # tasks beyond two a thread, so that workers that join later find work


_active: dict[str, Any] = {"config": None, "client": None}


def use_backend(n_jobs: int = 0, backend: str = "threading", scheduler: str = "") -> str:
    """One line that says where work runs from now on in this process.

    n_jobs: workers; 0 is one a core. With dask it sizes a local cluster; a given `scheduler`
    address ("tcp://host:8786") brings its own workers.

    Raises:
        ValueError: an unknown backend.
        ImportError: dask is asked for and not installed.
        ConnectionError: no scheduler answers there, or it has no workers.
    """
    if backend not in BACKENDS:
        raise ValueError(f"BACKEND is '{backend}'. Set it to one of {', '.join(BACKENDS)}.")
    workers = n_jobs or os.cpu_count() or 1
    close_backend()
    if backend == "dask":
        _active["client"] = connect_cluster(workers, scheduler)
        return describe_cluster(_active["client"])
    _active["config"] = {"backend": backend, "n_jobs": workers}
    kind = "threads" if backend == "threading" else "processes"
    return f"{workers} {kind} on this machine"


def close_backend() -> None:
    """Ends the Dask client that `use_backend` began; a cluster given by its address stays up."""
    client, _active["client"], _active["config"] = _active["client"], None, None
    if client is not None:
        close_client(client)


def blocks(items: Sequence, size: int) -> list:
    """Slices of a list, array or table, `size` long but for the last.

    >>> blocks([1, 2, 3, 4, 5], 2)
    [[1, 2], [3, 4], [5]]
    """
    cut = items.iloc if hasattr(items, "iloc") else items
    return [cut[start : start + size] for start in range(0, len(items), size)]


def run(
    function: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    label: str,
    total: int | None = None,
    advance: Callable[[Any], int] = lambda _: 1,
    ordered: bool = False,
    here: bool = False,
) -> Iterator[Any]:
    """Each `function(item)` as it is done, or in the order of `items` when `ordered`.

    function, items: picklable, so that they can travel to other processes and machines.
    total: where the bar ends; `advance(result)` says how far one result moves it.
    here: in threads of this process even where there is a cluster: its data is too large to travel.

    Raises:
        ConnectionError: the scheduler of the cluster is gone.
        RuntimeError: the cluster gave a task up, or could not run it.
    """
    items = items if total is not None else list(items)
    total = len(items) if total is None else total
    order = "generator" if ordered else "generator_unordered"
    client, config = _active["client"], _active["config"]
    if client is not None and not here:
        items = map(partial(pack, function), items)
        function, config = unpack_and_call, {"backend": make_backend(client)}
        # Workers may join: joblib's two tasks for each of those at the start would starve them.
        config["n_jobs"] = count_threads(client)
        in_flight = 2 * config["n_jobs"] + IN_FLIGHT_MORE
    else:
        config = config or {"backend": "threading", "n_jobs": os.cpu_count() or 1}
        in_flight = 2 * config["n_jobs"]
    with joblib.parallel_config(**config):
        # joblib takes the backend when it is made, and the generator outlives this block.
        parallel = joblib.Parallel(return_as=order, pre_dispatch=in_flight)
        results = parallel(joblib.delayed(function)(item) for item in items)
    yield from _shown(results, label, total, advance)


def _shown(results: Iterator, label: str, total: int, advance: Callable) -> Iterator[Any]:
    if not total:  # nothing to show, and perhaps nothing to do
        yield from results
        return
    show = _bar(label, total) if _can_draw() else _Lines(label, total)
    done = 0
    for result in results:
        done += advance(result)
        show(min(done, total))
        yield result
    if done < total:  # what was set aside counts as done
        show(total)


def _can_draw() -> bool:
    """Whether a bar can be redrawn: a live notebook or a terminal, not a batch log."""
    if os.environ.get("KAGGLE_KERNEL_RUN_TYPE") == "Batch":
        return False
    return _in_notebook() or sys.stderr.isatty()


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel; others may have imported ipykernel too."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def _bar(label: str, total: int) -> Callable[[int], None]:
    from fastprogress.fastprogress import progress_bar

    bar = progress_bar(range(total), total=total)
    if hasattr(bar, "main_bar") or _in_notebook():
        bar.comment = label
    bar.update(0)
    return lambda done: bar.update(done) if done else None


class _Lines:
    """A line now and then: what is done, how fast, how long still."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total = label, total
        self.start = self.last = time.monotonic()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        ended = done >= self.total
        if not done or self.last < 0 or (now - self.last < SECONDS_BETWEEN_LINES and not ended):
            return
        seconds = max(now - self.start, 1e-9)
        rate = done / seconds
        rest = "" if ended else f", {(self.total - done) / rate:,.0f} s to go"
        line = f"{self.label}: {done:,} of {self.total:,} in {seconds:,.0f} s ({rate:,.0f}/s{rest})"
        print(line, flush=True)
        self.last = -1 if ended else now
