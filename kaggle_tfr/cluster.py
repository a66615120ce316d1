"""A Dask cluster as joblib's backend: how to reach it, and errors that say what to mend."""

import asyncio
import pickle
import warnings
from functools import partial
from importlib import metadata
from typing import Any

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


def connect(workers: int, scheduler: str = "") -> Any:
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


def close(client: Any) -> None:
    """Ends the connection, and the cluster where `connect` began it."""
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
                raise _explain(out.error, self.client)
            if isinstance(out, BaseException) and type(out).__name__.endswith("CancelledError"):
                raise _explain(out, self.client)
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


def _explain(error: BaseException, client: Any) -> Exception:
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


def describe(client: Any) -> str:
    """One line: where the cluster is, and how many threads work there."""
    return f"Dask at {client.scheduler.address}, {count_threads(client)} worker threads"
