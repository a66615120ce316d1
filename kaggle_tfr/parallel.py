"""Run a function over many items: in threads, in processes or on a Dask cluster."""

import contextlib
import ctypes
import os
import pickle
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import cache, partial
from importlib import metadata
from itertools import chain, tee
from typing import Any

import joblib
from joblib.externals.loky import get_reusable_executor
from tqdm import tqdm

from kaggle_tfr import session

# The bytes of shards depend on these.
PACKAGES = ("tensorflow", "opencv-python", "pillow", "numpy")
WAIT_SECONDS = 60  # for a scheduler to answer, and for its first worker
BLOCK_IMAGES = 16
BLOCK_BYTES = 2 << 20  # 2 MiB
AHEAD = 4  # items for each worker of this machine: results wait while one is used
# Tasks beyond two a thread, so that workers that join later find work.
EXTRA_TASKS = 32
SECONDS_BETWEEN_LINES = 30
Function = Callable[[Any], Any]
Split = Callable[[Any], Iterable[list[Any]]]  # of a group, into blocks
Join = Callable[[Any, Iterator[Any]], Any]  # of a group, with a result for each block
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


def blocks_by_bytes(items: Any, largest: int) -> list[Any]:
    """Cut images into slices of 16 and of 2 MiB at most; the largest has these bytes.

    A slice has one image if the largest is beyond that.
    """
    return blocks(items, min(BLOCK_IMAGES, max(1, BLOCK_BYTES // max(1, largest))))


def run(
    function: Function,
    items: Iterable[Any],
    *,
    label: str,
    total: int | None = None,
    advance: Callable[[Any], int] = lambda _: 1,
    local_only: bool = False,
) -> Iterator[Any]:
    """Yield `function(item)` for each item, in their order.

    function, items: picklable. total: the end of the progress bar, which each result
    moves by `advance(result)`. local_only: use this machine even if there is a cluster,
    because there is too much data to send.
    Raises: the error of a call; ConnectionError: the scheduler is gone; RuntimeError: a
    task has killed its workers.
    """
    if total is None:
        items = list(items)
        total = len(items)
    run_items = _run_on_cluster if _is_cluster() and not local_only else _run_here
    results = run_items(function, items)
    with contextlib.closing(results), _progress_bar(label, total) as move:
        for result in results:
            move(advance(result))
            yield result


def run_groups(
    split: Split,
    function: Function,
    join: Join,
    groups: Iterable[Any],
    *,
    label: str,
    total: int,
    advance: Callable[[Any], int],
) -> Iterator[Any]:
    """Yield `join(group, results)` for each group, in their order.

    results: `function(block)` for each block of `split(group)`, in order; `join` takes
    all of them. No block is empty. On this machine the blocks of all groups follow one
    another in the workers, while this process splits and joins one group at a time. On
    a cluster a worker does all of a group.
    total: the end of the progress bar, moved by the length of each block; on a cluster
    by `advance(join(…))`. Raises: as `run`.
    """
    if _is_cluster():
        run_group = partial(_run_group, split, function, join)
        yield from run(run_group, groups, label=label, total=total, advance=advance)
        return

    ahead, joined = tee(groups)
    # An empty block is the end of a group.
    blocks = chain.from_iterable(chain(split(group), [[]]) for group in ahead)
    results = _run_here(partial(_run_block, function), blocks)
    with contextlib.closing(results), _progress_bar(label, total) as move:
        for group in joined:
            yield join(group, _watch(results, move))


def _run_group(split: Split, function: Function, join: Join, group: Any) -> Any:
    """Return what `join` returns for one group, all in this process."""
    return join(group, map(function, split(group)))


def _run_block(function: Function, block: list[Any]) -> tuple[int, Any]:
    """Return the length of a block, and its result."""
    return len(block), block and function(block)


def _watch(
    results: Iterator[tuple[int, Any]], move: Callable[[int], None]
) -> Iterator[Any]:
    """Yield the results of a group, and move the progress bar by their lengths."""
    for length, result in results:
        if not length:
            return
        yield result
        move(length)


def _run_here(function: Function, items: Iterable[Any]) -> Generator[Any, None, None]:
    """Yield results from threads or processes of this machine."""
    call = partial(_call_in_worker, function)
    n_jobs = _active["n_jobs"]
    if n_jobs == 1:
        yield from map(call, items)
        return
    workers: Any = ThreadPoolExecutor(n_jobs)
    if _active["backend"] == "loky":
        # Kept for the next call: new processes take seconds to import packages.
        workers = contextlib.nullcontext(get_reusable_executor(n_jobs))
    with workers as executor:
        submit = partial(executor.submit, call)
        yield from _run_ahead(submit, Future.result, items, AHEAD * n_jobs)


def _run_ahead(
    submit: Callable[[Any], Any],
    result_of: Callable[[Any], Any],
    items: Iterable[Any],
    n_ahead: int,
) -> Generator[Any, None, None]:
    """Yield the results in order, while `n_ahead` items at most are submitted."""
    futures = deque[Any]()
    try:
        for item in items:
            futures.append(submit(item))
            if len(futures) == n_ahead:
                yield result_of(futures.popleft())
        while futures:
            yield result_of(futures.popleft())
    finally:
        for future in futures:
            future.cancel()


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
    # A worker without this package raises a ModuleNotFoundError.
    versions_by_worker = client.run(package_versions)
    versions_here = package_versions()
    for worker, versions in versions_by_worker.items():
        if versions != versions_here:
            warnings.warn(
                f"the worker at {worker} has {versions}, this machine {versions_here}: "
                "its shards can differ in their bytes from those written here, not in "
                "content.",
                stacklevel=4,
            )


def _is_cluster() -> bool:
    """Return whether there is a cluster; without a choice, choose this machine."""
    if not _active:
        use_backend()
    return "client" in _active


# joblib's own Dask backend (1.6) waits forever for a task that kills its workers and
# for an item that cannot be pickled.
def _run_on_cluster(
    function: Function, items: Iterable[Any]
) -> Generator[Any, None, None]:
    """Yield results from the cluster; at the end, cancel the tasks that are left."""
    client = _active["client"]
    _check_connection(client)
    n_ahead = 2 * _count_threads(client) + EXTRA_TASKS
    submit = partial(_submit, client, function)
    yield from _run_ahead(submit, partial(_wait, client), items, n_ahead)


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


def _wait(client: Any, future: Any) -> Any:
    """Return the result of a future, or raise its error."""
    from dask.distributed import KilledWorker
    from distributed.comm import CommClosedError

    while True:
        # Dask waits forever for a result that is on its way when the scheduler goes.
        _check_connection(client)
        try:
            return future.result(timeout=1)
        except TimeoutError:
            if future.status == "error":  # that of the call
                raise
        except (CancelledError, CommClosedError):
            raise _lost_connection() from None
        except KilledWorker as error:
            raise RuntimeError(
                f"A task was given up, because every worker that took it died "
                f"({error}). See their logs; if their memory ran out, start workers "
                "with fewer threads or more memory (`dask worker --nthreads 1 "
                f"--memory-limit 4GB`). {RESUME_HINT}"
            ) from None


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
    """Show a progress bar; yield the function that moves it by a count."""
    if total and _is_page_open():
        from fastprogress.fastprogress import progress_bar

        notebook_bar = progress_bar(range(total), total=total)
        notebook_bar.comment = label
        notebook_bar.update(0)
        done = 0

        def move(count: int) -> None:
            nonlocal done
            done += count
            notebook_bar.update(done)

        yield move
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
        yield bar.update
    # A kernel sends the end of the bar's line only now; without it, what is printed
    # next would be on that line.
    sys.stderr.flush()
