"""Run a function over many items: in threads, in processes or on a Dask cluster."""

import contextlib
import ctypes
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from importlib import metadata
from itertools import islice, takewhile
from typing import Any

import joblib
from tqdm import tqdm

from kaggle_tfr import session

# The bytes of shards depend on these.
PACKAGES = ("tensorflow", "opencv-python", "pillow", "numpy")
WAIT_SECONDS = 60  # for a scheduler to answer, and for its first worker
# Tasks beyond two a thread, so that workers that join later find work.
EXTRA_TASKS = 32
SECONDS_BETWEEN_LINES = 30
Function = Callable[[Any], Any]
RESUME_HINT = "Finished work is kept; run the same notebook again, and it resumes."
# The choice of `use_backend`: backend and n_jobs of joblib, and a Dask client.
_active: dict[str, Any] = {}


@cache
def prepare_worker() -> None:
    """Set what makes images quick in several threads, for the rest of this process.

    `run` calls it here and in its workers; an import does not.
    """
    import cv2
    import threadpoolctl
    from PIL import Image

    session.prepare()
    # Pillow checks the size of two formats again; ours is checked before.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    # Images are processed in parallel; the threads of OpenCV and of NumPy's matrix
    # products would compete for cores.
    cv2.setNumThreads(1)
    threadpoolctl.threadpool_limits(1, user_api="blas")
    # glibc would return large buffers to the kernel; new pages cost a fifth of the time
    # of an image. Other systems (musl, macOS, Windows) have no mallopt.
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        # Source: mallopt(3). M_MMAP_THRESHOLD: 32 MiB, the most that glibc accepts.
        mallopt(-3, 32 << 20)
        # M_TRIM_THRESHOLD: 64 MiB a thread.
        mallopt(-1, 64 << 20)


def _call_in_worker(function: Function, item: Any) -> Any:
    """Prepare this process of a backend once, and return the result of the call."""
    prepare_worker()
    return function(item)


def package_versions() -> dict[str, str]:
    """Return the installed version of each of PACKAGES, "" for one that is missing."""
    versions = dict.fromkeys(PACKAGES, "")
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def use_backend(
    n_jobs: int = 0, backend: str = "threading", scheduler: str = ""
) -> str:
    """Choose where `run` works from now on in this process, and describe it in a line.

    n_jobs: number of workers, 0 for one per core. backend: threading, loky or dask.
    scheduler: the address of a Dask cluster ("tcp://host:8786"), which has its own
    workers; "" starts one on this machine.
    Raises: ConnectionError: no scheduler answers there, or it has no workers;
    ImportError: dask is not installed, or a worker lacks this package.
    """
    close_backend()
    workers = n_jobs or joblib.cpu_count()
    if backend != "dask":
        _active.update(backend=backend, n_jobs=workers)
        units = "threads" if backend == "threading" else "processes"
        return f"{workers} {units} on this machine"

    client = _connect(workers, scheduler)
    address = client.scheduler.address
    # Work that stays on this machine is done in threads.
    _active.update(backend="threading", n_jobs=workers, client=client, address=address)
    return f"Dask at {address}, {_count_threads(client)} worker threads"


def _count_threads(client: Any) -> int:
    """Return the number of worker threads in the cluster."""
    return sum(client.nthreads().values())


def close_backend() -> None:
    """Close the Dask client of `use_backend`, and the cluster if it started that."""
    client = _active.get("client")
    _active.clear()
    if client is not None:
        client.close()


def blocks(items: Any, size: int) -> list[Any]:
    """Cut a list, array or table into slices of `size`; the last may be shorter."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def run(
    function: Function,
    items: Iterable[Any],
    *,
    label: str,
    total: int | None = None,
    advance: Callable[[Any], int] = lambda _: 1,
    ordered: bool = False,
    local_only: bool = False,
) -> Iterator[Any]:
    """Yield each `function(item)` when it is done, or in the order of the items.

    function, items: picklable. total: the end of the progress bar, which each result
    moves by `advance(result)`. local_only: use this machine even if there is a cluster,
    because there is too much data to send.
    Raises: the error of a call; ConnectionError: the scheduler is gone; RuntimeError: a
    task has killed its workers.
    """
    if total is None:
        items = list(items)
        total = len(items)
    prepare_worker()
    if not _active:
        use_backend()
    is_remote = "client" in _active and not local_only
    start = _run_on_cluster if is_remote else _run_here
    results = start(function, items, ordered=ordered)
    done = 0
    with contextlib.closing(results), _progress_bar(label, total) as show:
        for result in results:
            done += advance(result)
            show(done)
            yield result


def _run_here(
    function: Function, items: Iterable[Any], *, ordered: bool
) -> Generator[Any, None, None]:
    """Yield results from threads or processes of this machine."""
    parallel = joblib.Parallel(
        n_jobs=_active["n_jobs"],
        backend=_active["backend"],
        return_as="generator" if ordered else "generator_unordered",
    )
    call = joblib.delayed(_call_in_worker)
    return parallel(call(function, item) for item in items)


def _connect(workers: int, scheduler: str) -> Any:
    """Return a client of this cluster, or of new single-threaded processes here."""
    try:
        import dask
        from dask.distributed import Client
    except ImportError as error:
        raise ImportError(
            'BACKEND="dask" needs dask and distributed: '
            'pip install "kaggle-tfr[dask]", or set BACKEND="threading".'
        ) from error
    # Dask keeps the last thousand messages for its debugger: each may hold the table
    # of a shard here.
    dask.config.set({"distributed.admin.low-level-log-length": 10})
    if not scheduler:
        return Client(
            n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        )
    try:
        client = Client(scheduler, timeout=WAIT_SECONDS)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at SCHEDULER = '{scheduler}': {error}. Run "
            '`dask scheduler` and set the address that it prints; "" starts a cluster '
            "here."
        ) from None
    try:
        _check_workers(client, scheduler)
    except BaseException:
        client.close()
        raise
    return client


def _check_workers(client: Any, scheduler: str) -> None:
    """Wait for a worker, and warn of each one with other versions of PACKAGES."""
    try:
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
    except TimeoutError:
        raise ConnectionError(
            f"the Dask scheduler at {scheduler} has had no worker for {WAIT_SECONDS} "
            f"s. Start some: dask worker {scheduler} --nthreads 1 --nworkers -1"
        ) from None
    try:
        versions_by_worker = client.run(package_versions)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a worker of {scheduler} cannot import this package: {error}. Install it "
            "on every machine of the cluster, with the same versions as here."
        ) from None
    versions_here = package_versions()
    for worker, versions in versions_by_worker.items():
        if versions != versions_here:
            warnings.warn(
                f"the worker at {worker} has {versions}, this machine {versions_here}: "
                "its shards can differ in their bytes from those written here, not in "
                "content.",
                stacklevel=4,
            )


# joblib's own Dask backend (1.6) waits forever for a task that kills its workers and
# for an item that cannot be pickled.
def _run_on_cluster(
    function: Function, items: Iterable[Any], *, ordered: bool
) -> Generator[Any, None, None]:
    """Yield results from the cluster; at the end, cancel the tasks that are left."""
    from dask.distributed import as_completed

    client = _active["client"]
    _check_connection(client)
    items = iter(items)
    window = 2 * _count_threads(client) + EXTRA_TASKS
    in_flight: dict[Any, None] = {}  # futures, oldest first
    results: dict[Any, Any] = {}  # of futures that wait for older ones
    completed = as_completed(loop=client.loop, with_results=True, raise_errors=False)
    try:
        while True:
            for item in islice(items, window - len(in_flight)):
                future = _submit(client, function, item)
                completed.add(future)
                in_flight[future] = None
            if not in_flight:
                return
            future, result = _next_result(client, completed)
            results[future] = result
            candidates = list(in_flight) if ordered else [future]
            for future in takewhile(results.__contains__, candidates):
                del in_flight[future]
                yield results.pop(future)
    finally:
        if client.status == "running":
            client.cancel(list(in_flight))


def _submit(client: Any, function: Function, item: Any) -> Any:
    """Send a call to the cluster and return its future."""
    import cloudpickle  # comes with dask

    _check_connection(client)
    # Bytes travel with their task: Dask would send a table ahead to a single worker,
    # and lose it with that worker.
    call = cloudpickle.dumps((function, item))
    return client.submit(_call_packed, call, pure=False)


def _call_packed(call: bytes) -> Any:
    """Return, on a worker, the result of a pickled call."""
    return _call_in_worker(*pickle.loads(call))  # noqa: S301  # from `_submit`


def _next_result(client: Any, completed: Any) -> tuple[Any, Any]:
    """Return the next finished future and its result, or raise its error."""
    from dask.distributed import KilledWorker

    # `completed` alone may wait forever: Dask forgets a result that is on its way when
    # the scheduler goes.
    while not completed.has_ready():
        _check_connection(client)
        time.sleep(0.01)
    future, result = next(completed)
    if future.status == "finished":
        return future, result
    if future.status != "error":
        raise _lost_connection()
    _, error, trace = result
    if isinstance(error, KilledWorker):
        raise RuntimeError(
            f"A task was given up, because every worker that took it died ({error}). "
            "See their logs; if their memory ran out, start workers with fewer threads "
            "or more memory (`dask worker --nthreads 1 --memory-limit 4GB`). "
            f"{RESUME_HINT}"
        )
    raise error.with_traceback(trace)


def _check_connection(client: Any) -> None:
    if client.status != "running":
        raise _lost_connection()


def _lost_connection() -> ConnectionError:
    return ConnectionError(
        f"The Dask scheduler at {_active['address']} is gone. Start it and its workers "
        f"again. {RESUME_HINT}"
    )


def _is_page_open() -> bool:
    """Return whether this is a notebook in a browser, not one that a program runs."""
    is_batch = os.environ.get("KAGGLE_KERNEL_RUN_TYPE") == "Batch"
    is_run = is_batch or session.TERMINAL in os.environ
    return hasattr(session.find_shell(), "kernel") and not is_run


@contextlib.contextmanager
def _progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar; yield the function that moves it to a count."""
    if total and _is_page_open():
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
        mininterval=seconds,
        maxinterval=seconds,
        disable=total == 0,
    ) as bar:
        yield lambda done: bar.update(done - bar.n)
    # A kernel sends the end of the bar's line only now; without it, what is printed
    # next would be on that line.
    sys.stderr.flush()
