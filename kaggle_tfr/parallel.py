"""Run a function over many items: in threads, in processes or on a Dask cluster."""

import contextlib
import ctypes
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from functools import cache, partial
from importlib import metadata
from itertools import chain, islice, takewhile, tee
from typing import Any

from joblib.externals.loky import ProcessPoolExecutor
from tqdm import tqdm

from kaggle_tfr import session
from kaggle_tfr.storage import RESUME_HINT

# The bytes of shards depend on these.
PACKAGES = ("opencv-python", "pillow", "numpy")
WAIT_SECONDS = 60  # for a scheduler to answer, and for its first worker
IDLE_SECONDS = 10  # after which a process ends
BLOCK_IMAGES = 16
BLOCK_BYTES = 2 << 20  # 2 MiB
AHEAD = 4  # items for each worker of this machine: results wait while one is used
NEWCOMERS = 8  # workers that find work if they join later
SECONDS_BETWEEN_LINES = 10
Function = Callable[..., Any]
# The choice of `use_backend`: a backend of joblib or Dask, n_jobs, and a Dask client.
_active: dict[str, Any] = {}


@cache
def prepare_worker() -> None:
    """Set what makes images quick in several threads, for the rest of this process.

    `run` calls it here and in its workers; an import does not.
    """
    import cv2
    import threadpoolctl
    from PIL import Image

    # Pillow warns above half the number of pixels from which images are rejected.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    # Images are processed in parallel; the threads of OpenCV and of NumPy's matrix
    # products would compete for cores.
    cv2.setNumThreads(1)
    threadpoolctl.threadpool_limits(1, user_api="blas")
    # glibc would return large buffers to the kernel; new pages cost a fifth of the time
    # of an image. So it keeps them. Other systems (musl, macOS) have no mallopt.
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        # Source: mallopt(3). M_MMAP_THRESHOLD: 32 MiB, the most that glibc accepts.
        mallopt(-3, 32 << 20)
        # M_TRIM_THRESHOLD: 64 MiB a thread.
        mallopt(-1, 64 << 20)


def _call_in_worker(function: Function, item: Any) -> Any:
    """Return `function(item)`, in a process that is prepared for images once."""
    prepare_worker()
    return function(item)


def package_versions() -> dict[str, str]:
    """Return the versions of the packages on which the bytes of shards depend, by name.

    Packages that are not installed are left out.
    """
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def use_backend(
    n_jobs: int = 0, backend: str = "threading", scheduler: str = ""
) -> str:
    """Choose where `run` works from now on in this process; return a description.

    The description is a line such as "8 workers by threading".
    n_jobs: number of workers, 0 for one per core. backend: threading, loky or dask.
    scheduler: the address of a Dask cluster ("tcp://host:8786"), which has its own
    workers; "" starts one on this machine.
    Raises: OSError: no scheduler answers there, or it has no workers.
    """
    close_backend()
    n_workers = n_jobs or session.count_cores()
    # For `run(local_only=True)`, too, which does not use a cluster.
    local: Executor = ThreadPoolExecutor(n_workers)
    if backend == "loky":
        # Idle processes are kept for a while: new ones take seconds to import packages.
        local = ProcessPoolExecutor(n_workers, timeout=IDLE_SECONDS)
    executor = local
    # The calls that are submitted before the first one's result is used. For a single
    # worker it is one: a call begins when its result is wanted.
    n_ahead = AHEAD * (n_workers - 1) + 1
    if backend == "dask":
        client = _connect(n_workers, scheduler)
        _active["client"] = client
        # pure=False: Dask does not reuse the result of an equal call.
        executor = client.get_executor(pure=False)
        n_workers = sum(client.nthreads().values())
        # With enough calls for workers that join the cluster later.
        n_ahead = AHEAD * (n_workers + NEWCOMERS)
    # What `run` uses.
    _active.update(local=local, executor=executor, n_ahead=n_ahead)
    return f"{n_workers} workers by {backend}"


def _connect(n_workers: int, scheduler: str) -> Any:
    """Return a client of a Dask cluster.

    n_workers: processes of a new cluster on this machine, if `scheduler` is "".
    scheduler: the address of an existing cluster.
    Raises: ConnectionError: it cannot be reached, or has no worker within a minute.
    """
    import dask
    from dask.distributed import Client

    # Dask keeps the last thousand messages for its debugger. Here each may hold the
    # table of a shard, so ten must do.
    dask.config.set({"distributed.admin.low-level-log-length": 10})
    if not scheduler:
        # Port 0 is any free one. Other machines cannot open the dashboard.
        return Client(
            n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        )
    try:
        client = Client(scheduler, timeout=WAIT_SECONDS)
        client.wait_for_workers(1, timeout=WAIT_SECONDS)
    except OSError as error:
        raise ConnectionError(
            f"SCHEDULER '{scheduler}' cannot be used: {error}. Start it and workers."
        ) from error
    return client


def close_backend() -> None:
    """Forget the choice of `use_backend`; close its Dask client, if there is one.

    A cluster that `use_backend` has started ends, too.
    """
    client = _active.get("client")
    _active.clear()
    if client:
        client.close()


def blocks(items: Any, size: int) -> list[Any]:
    """Cut a list, array or table into slices of `size`; the last may be shorter."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def blocks_by_bytes(items: Any, largest: int) -> list[Any]:
    """Cut images into slices of equal length, each the task of one worker.

    A slice has at most 16 images, and at most 2 MiB if each has the size `largest`, but
    at least one image: the calls that `run` submits ahead need little memory then.
    items: a list, array or table. largest: the size of one image in bytes: the largest
    of all, or their mean.
    """
    return blocks(items, min(BLOCK_IMAGES, max(1, BLOCK_BYTES // max(1, largest))))


def run(
    function: Function,
    items: Any,
    *,
    label: str,
    total: int | None = None,
    advance: Function = lambda _: 1,
    local_only: bool = False,
) -> Generator[Any]:
    """Yield `function(item)` for each item, in their order.

    function, items: picklable. label: of the progress bar. total: its end, by default
    the number of items; each result moves it by `advance(result)`. local_only: use this
    machine even if there is a cluster, because there is too much data to send.
    Raises: the error of a call; ConnectionError: the scheduler is gone; RuntimeError: a
    task has killed its workers.
    """
    if not _active:
        use_backend()
    executor = _active["local" if local_only else "executor"]
    total = len(items) if total is None else total
    # Dask would search the arguments of a call for futures, item by item, which takes
    # time. It does not search in a partial function.
    calls = (partial(_call_in_worker, function, item) for item in items)
    futures = deque[Future[Any]]()
    done = 0
    try:
        with _progress_bar(label, total) as move:
            while True:
                # No more calls are submitted than this, so memory is bounded.
                n_free = _active["n_ahead"] - len(futures)
                futures.extend(map(executor.submit, islice(calls, n_free)))
                if not futures:
                    return
                result = _wait(futures.popleft())
                done += advance(result)
                move(done)
                yield result
    finally:
        for future in futures:
            future.cancel()


def run_groups(
    split: Function,
    function: Function,
    join: Function,
    groups: Iterable[Any],
    *,
    label: str,
    total: int,
    advance: Function,
) -> Iterator[Any]:
    """Yield `join(group, results)` for each group, in their order.

    split: returns the blocks of a group, each a list that is not empty. function:
    returns a list as long as its block, [] for []. results: an iterator of the items of
    these lists, for all blocks of the group; `join` must use it up.
    On this machine the workers get the blocks of all groups one after another, while
    this process splits and joins one group at a time. On a cluster a worker does all of
    a group.
    total: the end of the progress bar, moved by the length of each block; on a cluster
    by `advance(join(…))`. Raises: as `run`.
    """
    if "client" in _active:

        def run_group(group: Any) -> Any:
            """Return the joined results of a group, all from one worker."""
            return join(group, chain.from_iterable(map(function, split(group))))

        yield from run(run_group, groups, label=label, total=total, advance=advance)
        return

    # `ahead` gives the workers their blocks; `joined` follows when results are there.
    ahead, joined = tee(groups)
    # After the blocks of a group there is an empty one. Its empty list of results marks
    # the end of the group, at which `takewhile` stops.
    items = chain.from_iterable(chain(split(group), [[]]) for group in ahead)
    lists = run(function, items, label=label, total=total, advance=len)
    with contextlib.closing(lists):
        for group in joined:
            yield join(group, chain.from_iterable(takewhile(bool, lists)))


def _wait(future: Future[Any]) -> Any:
    """Return the result of a future. Raises: its error, and as `run`."""
    client = _active.get("client")
    # `result` would wait forever if the scheduler ends while Dask sends the result.
    while client and client.status == "running" and not future.done():
        wait([future], timeout=1)
    if client and (client.status != "running" or future.cancelled()):
        raise ConnectionError(f"The Dask scheduler is gone. {RESUME_HINT}")
    try:
        return future.result()
    except Exception as error:
        # Dask's class and joblib's, by name: Dask need not be installed.
        if type(error).__name__ not in ("KilledWorker", "TerminatedWorkerError"):
            raise
        raise RuntimeError(
            "A task ended its worker: the machine lacks memory, or a file crashes a "
            f"library. Use fewer workers, or reject the file. {RESUME_HINT}"
        ) from error


@contextlib.contextmanager
def _progress_bar(label: str, total: int) -> Iterator[Callable[[int], Any]]:
    """Show a progress bar; yield the function that moves it to a count, up to `total`.

    It is HTML in a notebook that a person has opened, else lines of text.
    """
    # TERMINAL is set in kernels of `kaggle-tfr run`: "1" if it prints to a terminal.
    is_batch = os.environ.get("KAGGLE_KERNEL_RUN_TYPE") == "Batch"
    is_run = is_batch or session.TERMINAL in os.environ
    # A Jupyter kernel's shell has a `kernel`. Nobody has opened the page of a notebook
    # that a program runs.
    if total and hasattr(session.find_shell(), "kernel") and not is_run:
        from fastprogress.fastprogress import progress_bar

        notebook_bar = progress_bar(range(total))
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
        disable=total == 0,
    ) as bar:
        yield lambda count: bar.update(count - bar.n)
    # A kernel sends the end of the bar's line only now; without it, what is printed
    # next would be on that line.
    sys.stderr.flush()
