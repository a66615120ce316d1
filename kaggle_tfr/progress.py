"""All parallel work: one function over joblib, with a bar in a notebook and lines in a log."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import joblib

from kaggle_tfr import cluster

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
        _active["client"] = cluster.connect(workers, scheduler)
        return cluster.describe(_active["client"])
    _active["config"] = {"backend": backend, "n_jobs": workers}
    kind = "threads" if backend == "threading" else "processes"
    return f"{workers} {kind} on this machine"


def close_backend() -> None:
    """Ends the Dask client that `use_backend` began; a cluster given by its address stays up."""
    client, _active["client"], _active["config"] = _active["client"], None, None
    if client is not None:
        cluster.close(client)


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
        items = map(partial(cluster.pack, function), items)
        function, config = cluster.unpack_and_call, {"backend": cluster.make_backend(client)}
        # Workers may join: joblib's two tasks for each of those at the start would starve them.
        config["n_jobs"] = cluster.count_threads(client)
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
