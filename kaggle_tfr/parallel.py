"""Work in threads, in processes or on a Dask cluster, with its progress: `use_backend`, `run`."""

import contextlib
import ctypes
import os
import pickle
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache, partial
from importlib import metadata
from itertools import islice
from typing import Any

import joblib
from tqdm import tqdm

from kaggle_tfr import session
from kaggle_tfr.parameters import check_parameters

PACKAGES = (
    "tensorflow",
    "opencv-python",
    "pillow",
    "numpy",
)  # shard bytes depend on these
WAIT_SECONDS = 60  # for a scheduler to answer, and for its first worker
RETRIES = (
    3  # of a task that a worker could not take on; one that raises is not tried again
)
IN_FLIGHT_MORE = (
    32  # tasks beyond two a thread, so that workers that join later find work
)
SECONDS_BETWEEN_LINES = 30
_active: dict[str, Any] = {"config": None, "client": None}


@cache
def prepare_worker() -> None:
    """Set what makes images quick in several threads at once, for the rest of this process.

    `run` calls it here and in its workers; an import does not.
    """
    import cv2
    from PIL import Image

    # Of two formats Pillow's readers check the size once more. Ours is checked before.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    cv2.setNumThreads(
        1
    )  # images run in parallel; OpenCV's own threads would fight over the cores
    # glibc would return large buffers to the kernel; new pages cost a fifth of an image's time.
    with contextlib.suppress(
        AttributeError, OSError, TypeError
    ):  # musl, macOS, Windows
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(
            -3, 32 << 20
        )  # mallopt(3): M_MMAP_THRESHOLD, 32 MiB, the most that glibc takes
        mallopt(
            -1, 64 << 20
        )  # M_TRIM_THRESHOLD: 64 MiB a thread, of what was in use at once


def _call_in_worker(function: Callable[[Any], Any], item: Any) -> Any:
    """In a process of a backend: the result of the call, after the process was prepared."""
    _prepare_process()
    return function(item)


@cache
def _prepare_process() -> None:
    session.prepare()
    prepare_worker()


def package_versions() -> dict[str, str]:
    """The installed version of each package that the bytes of shards depend on; "" for none."""
    return {
        n: next((d.version for d in metadata.distributions(name=n)), "")
        for n in PACKAGES
    }


def use_backend(
    n_jobs: int = 0, backend: str = "threading", scheduler: str = ""
) -> str:
    """One line that says where work runs from now on in this process.

    n_jobs: workers, 0 for one a core; a cluster at `scheduler` ("tcp://host:8786") has its own.
    Raises: ValueError: an unknown backend; ConnectionError: no scheduler answers there, or it has
    no workers; ImportError: dask is not installed, or this package not on the workers.
    """
    check_parameters({"N_JOBS": n_jobs, "BACKEND": backend, "SCHEDULER": scheduler})
    workers = n_jobs or joblib.cpu_count()
    close_backend()
    if backend == "dask":
        client = _active["client"] = _connect(workers, scheduler)
        threads = sum(client.nthreads().values())
        return f"Dask at {client.scheduler.address}, {threads} worker threads"
    _active["config"] = {"backend": backend, "n_jobs": workers}
    return f"{workers} {'threads' if backend == 'threading' else 'processes'} on this machine"


def close_backend() -> None:
    """Ends the Dask client that `use_backend` began; a cluster given by its address stays up."""
    client, _active["client"], _active["config"] = _active["client"], None, None
    if client is not None:
        with client.cluster or contextlib.nullcontext():
            client.close()


def blocks(items: Any, size: int) -> list[Any]:
    """Slices of a list, array or table, `size` long but for the last."""
    rows = items.iloc if hasattr(items, "iloc") else items
    return [rows[start : start + size] for start in range(0, len(items), size)]


def run(
    function: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    label: str,
    total: int | None = None,
    advance: Callable[[Any], int] = lambda _: 1,
    ordered: bool = False,
    local_only: bool = False,
) -> Iterator[Any]:
    """Each `function(item)` as it is done, or in the order of `items` when `ordered`.

    function, items: picklable. total: where the bar ends, `advance(result)` how far one moves it.
    local_only: on this machine even where there is a cluster: too much data to send.
    Raises: ConnectionError: the scheduler is gone; RuntimeError: the cluster gave a task up.
    """
    if total is None:
        items = list(items)
        total = len(items)
    prepare_worker()
    client = _active["client"]
    if client is not None and not local_only:
        results = _run_on_cluster(client, function, items, ordered=ordered)
    else:
        config = _active["config"] or {
            "backend": "threading",
            "n_jobs": joblib.cpu_count(),
        }
        config = config | {
            "return_as": "generator" if ordered else "generator_unordered"
        }
        parallel = joblib.Parallel(**config, pre_dispatch=2 * config["n_jobs"])
        if config["backend"] != "threading":
            function = partial(_call_in_worker, function)
        results = parallel(joblib.delayed(function)(item) for item in items)
    done = 0
    with contextlib.closing(results), _progress_bar(label, total) as show:
        for result in results:
            done += advance(result)
            show(done)
            yield result


def _connect(workers: int, scheduler: str) -> Any:
    """A client of the cluster at this address, or of `workers` single-threaded processes here."""
    try:
        import dask
        from dask.distributed import Client, LocalCluster
    except ImportError as error:
        mend = 'pip install "kaggle-tfr[dask]", or set BACKEND="threading".'
        raise ImportError(
            f'BACKEND="dask" needs dask and distributed: {mend}'
        ) from error
    # Dask keeps the last thousand messages for its debugger: here each may hold a shard's table.
    dask.config.set({"distributed.admin.low-level-log-length": 10})
    if not scheduler:
        return Client(
            LocalCluster(workers, threads_per_worker=1, dashboard_address="127.0.0.1:0")
        )
    try:
        client = Client(scheduler, timeout=WAIT_SECONDS)
    except (OSError, ValueError) as error:
        mend = 'Run `dask scheduler` and set the address that it prints; "" starts a cluster here.'
        message = (
            f"no Dask scheduler answers at SCHEDULER = '{scheduler}': {error}. {mend}"
        )
        raise ConnectionError(message) from None
    try:
        _check_workers(client, scheduler)
    except BaseException:
        client.close()
        raise
    return client


def _check_workers(client: Any, scheduler: str) -> None:
    try:
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
    except TimeoutError:
        what = f"the Dask scheduler at {scheduler} has had no worker for {WAIT_SECONDS} s. "
        mend = f"Start some: dask worker {scheduler} --nthreads 1 --nworkers -1"
        raise ConnectionError(what + mend) from None
    here = package_versions()
    try:
        workers = client.run(package_versions)
    except ModuleNotFoundError as error:
        mend = "Install it on every machine of the cluster, with the same versions as here."
        message = f"a worker of {scheduler} cannot import this package: {error}. {mend}"
        raise ModuleNotFoundError(message) from None
    for worker, there in workers.items():
        other = [
            f"{k} {v or 'missing'} ({here[k]} here)"
            for k, v in there.items()
            if v != here[k]
        ]
        if other:
            what = "its shards can differ in their bytes from those written here, not in content."
            warnings.warn(
                f"the worker at {worker} has {', '.join(other)}: {what}", stacklevel=4
            )


def _run_on_cluster(
    client: Any, function: Callable[[Any], Any], items: Iterable[Any], *, ordered: bool
) -> Generator[Any, None, None]:
    """Results as they arrive, or in the order of `items`; tasks left at the end are cancelled."""
    import cloudpickle  # comes with dask
    from dask.distributed import as_completed

    _check_connection(client)
    # Bytes go with their task: a table would be sent ahead to one worker, and be lost with it.
    calls = (cloudpickle.dumps((function, item)) for item in items)
    window = 2 * sum(client.nthreads().values()) + IN_FLIGHT_MORE
    in_flight: dict[Any, None] = {}  # futures, oldest first
    finished = {}
    arriving = as_completed(loop=client.loop, with_results=True, raise_errors=False)
    try:
        while True:
            for call in islice(calls, window - len(in_flight)):
                _check_connection(client)
                future = client.submit(_call, call, pure=False, retries=RETRIES)
                in_flight[future] = None
                arriving.add(future)
            if not in_flight:
                return
            future, result = _next_result(client, arriving)
            finished[future] = result
            while (
                first := next(iter(in_flight), None) if ordered else future
            ) in finished:
                del in_flight[first]
                yield finished.pop(first)
    finally:
        if client.status == "running":
            client.cancel(list(in_flight))


def _check_connection(client: Any) -> None:
    if client.status != "running":
        raise _explain_cluster_error(ConnectionError("the connection was lost"), client)


def _next_result(client: Any, arriving: Any) -> tuple[Any, Any]:
    """The next finished future and its result; raises the error that it has instead."""
    # `arriving` alone may not end: Dask forgets a result on its way when the scheduler goes.
    while not arriving.has_ready():
        _check_connection(client)
        time.sleep(0.01)
    future, packed = next(arriving)
    if not isinstance(packed, bytes):
        error = packed[1] if isinstance(packed, tuple) else packed
        raise _explain_cluster_error(error, client)
    result, error = pickle.loads(packed)  # noqa: S301  # from `_call`
    if error is not None:
        raise error
    return future, result


def _call(packed: bytes) -> bytes:
    """On a worker: (result, None) of the call, or (None, the error that it raised)."""
    import cloudpickle

    function, item = pickle.loads(packed)  # noqa: S301  # from `_run_on_cluster`
    try:
        return cloudpickle.dumps((_call_in_worker(function, item), None))
    except Exception as error:  # noqa: BLE001  # raised again where the results are consumed
        error.add_note(f"On the worker:\n{traceback.format_exc()}")
        return cloudpickle.dumps((None, error))


def _explain_cluster_error(error: BaseException, client: Any) -> Exception:
    from dask.distributed import KilledWorker

    reason = " ".join(f"{type(error).__name__}: {error}".split())
    kind: type[Exception] = RuntimeError
    lost = isinstance(error, ConnectionError) or "connection-lost" in reason
    if isinstance(error, KilledWorker):
        what = "A task was given up, because every worker that took it died"
        mend = "See their logs; if their memory ran out, start workers with fewer threads or more "
        mend += "memory (`dask worker --nthreads 1 --memory-limit 4GB`)."
    elif lost or client.status != "running":
        where = f" at {client.scheduler.address}" if client.scheduler else ""
        what, kind = f"The Dask scheduler{where} is gone", ConnectionError
        mend = "Start it and its workers again."
    else:
        what = "The cluster could not run a task"
        mend = "Do all workers see the same folders, and have they this process's packages?"
    again = "What is finished stays; run the same notebook again, and it goes on from there."
    return kind(f"{what} ({reason}). {mend} {again}")


@contextlib.contextmanager
def _progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; yield the function that moves it to a count."""
    # Programs other than a notebook's kernel may have imported IPython too.
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    is_driven = session.TERMINAL in os.environ
    is_batch = os.environ.get("KAGGLE_KERNEL_RUN_TYPE") == "Batch"
    if total and hasattr(shell, "kernel") and not is_driven and not is_batch:
        from fastprogress.fastprogress import progress_bar

        notebook_bar = progress_bar(range(total), total=total)
        notebook_bar.comment = label
        notebook_bar.update(0)
        yield notebook_bar.update
        return

    is_live = os.environ.get(session.TERMINAL) == "1" or sys.stderr.isatty()
    seconds = 1 if is_live else SECONDS_BETWEEN_LINES
    with tqdm(
        desc=label,
        total=total,
        unit="",
        mininterval=seconds,
        maxinterval=seconds,
        disable=total == 0,
    ) as bar:
        yield lambda done: bar.update(done - bar.n)
